from __future__ import annotations

import digits_cnn
import pytest
import torch


def test_one_epoch_follows_the_cpu(device: str) -> None:
    ours = digits_cnn.train(device, epochs=1, seed=3)
    theirs = digits_cnn.train("cpu", epochs=1, seed=3)
    assert digits_cnn.curves_agree(ours.losses, theirs.losses)
    assert ours.accuracies == pytest.approx(theirs.accuracies, abs=1 / digits_cnn.HELD_OUT)
    assert sum(ours.losses[-5:]) < 0.8 * sum(ours.losses[:5])


def test_short_training_misses_the_wanted_accuracy(device: str) -> None:
    result = digits_cnn.run(device, epochs=1, compare=False)
    assert not result.passed
    assert result.figures["accuracy"] < digits_cnn.WANTED_ACCURACY
    assert result.figures["counters"]["fallbacks"] == {}


def test_split_is_a_partition_drawn_by_the_seed() -> None:
    train, held_out = digits_cnn.load_data(0)
    assert len(train) + len(held_out) == 1797
    assert len(held_out) == digits_cnn.HELD_OUT
    again, _ = digits_cnn.load_data(0)
    other, _ = digits_cnn.load_data(1)
    assert torch.equal(train.tensors[0], again.tensors[0])
    assert not torch.equal(train.tensors[1], other.tensors[1])


def test_curves_that_differ_do_not_agree() -> None:
    assert digits_cnn.curves_agree([1.0, 0.5], [1.0, 0.5 + 1e-5])
    assert not digits_cnn.curves_agree([1.0, 0.5], [1.0, 0.502])
    assert digits_cnn.curve_difference([1.0, 0.6], [1.0, 0.5]) == pytest.approx(0.2)
