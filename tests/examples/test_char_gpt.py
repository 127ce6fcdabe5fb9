from __future__ import annotations

import math
from dataclasses import replace

import char_gpt
import pytest
import torch
from char_gpt import Config, Trainer

TINY = Config(
    layers=1,
    heads=2,
    width=32,
    context=16,
    batch=4,
    steps=6,
    warmup=2,
    evaluation_batches=1,
    sampled=8,
)


@pytest.fixture(scope="module")
def text() -> tuple[torch.Tensor, torch.Tensor]:
    return char_gpt.split_text()


def test_the_job_runs_natively_and_stops_compiling(device: str) -> None:
    result = char_gpt.run(device, TINY)
    assert result.figures["counters"]["fallbacks"] == {}
    assert len(result.figures["sample"]) == TINY.sampled
    by_step = result.figures["new_programs_by_step"]
    assert len(by_step) == TINY.steps
    assert by_step[2:] == [0] * (TINY.steps - 2)


def test_learning_rate_changes_while_nothing_compiles(
    device: str, text: tuple[torch.Tensor, torch.Tensor]
) -> None:
    trained = char_gpt.train(Trainer(device, replace(TINY, dropout=0.1), text[0]), text[1])
    assert len(set(trained.learning_rates)) == TINY.steps
    assert sum(trained.new_programs[2:]) == 0
    assert all(math.isfinite(loss) for loss in [*trained.losses, trained.held_out_loss])


def test_training_follows_the_cpu(device: str, text: tuple[torch.Tensor, torch.Tensor]) -> None:
    config = replace(TINY, steps=8, peak_lr=1e-2)
    ours, theirs = (
        char_gpt.train(Trainer(where, config, text[0]), text[1]) for where in (device, "cpu")
    )
    # bfloat16 keeps eight bits: a few rounding steps of it on losses near 4.5.
    torch.testing.assert_close(ours.losses, theirs.losses, rtol=1e-2, atol=0)
    assert ours.losses[-1] < ours.losses[0]


def test_a_seed_fixes_the_sample(device: str, text: tuple[torch.Tensor, torch.Tensor]) -> None:
    trainer = Trainer(device, TINY, text[0])
    prompt = text[1][: TINY.context]
    first, again, other = (trainer.sample(prompt, 24, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_text_is_the_language_reference(text: tuple[torch.Tensor, torch.Tensor]) -> None:
    whole = char_gpt.load_text()
    assert len(whole) > 300_000
    assert '"assert" statement' in whole
    assert set(whole) <= set(char_gpt.ALPHABET)
    assert char_gpt.decode(char_gpt.encode(whole[:500]).tolist()) == whole[:500]
    assert len(text[1]) == char_gpt.HELD_OUT_CHARACTERS


def test_pair_loss_of_known_texts() -> None:
    certain = char_gpt.encode("ab" * 5000)
    assert char_gpt.pair_loss(certain, certain) < 0.02
    generator = torch.Generator().manual_seed(0)
    uniform = torch.randint(96, (200_000,), generator=generator)
    assert char_gpt.pair_loss(uniform, uniform) == pytest.approx(math.log(96), abs=0.05)


def test_learning_rate_schedule() -> None:
    config = Config(steps=100, warmup=10)
    factors = [char_gpt.learning_rate_factor(step, config) for step in range(101)]
    assert factors[0] == pytest.approx(1 / 11)
    assert max(factors) == factors[10] == pytest.approx(1.0)
    assert factors[10:] == sorted(factors[10:], reverse=True)
    assert factors[100] == pytest.approx(0.1)
    assert len(set(factors)) == len(factors)
