"""Interpolation and its gradients."""

from typing import Any

import pytest
import torch

from tests.lowering.harness import call, check_ops, lowers, run_op

aten = torch.ops.aten

SIZES: dict[int, list[tuple[tuple[int, ...], tuple[int, ...]]]] = {
    1: [((5,), (10,)), ((7,), (3,)), ((4,), (4,)), ((6,), (11,)), ((3,), (1,))],
    2: [((5, 6), (10, 12)), ((7, 9), (4, 13)), ((4, 5), (4, 7)), ((1, 3), (5, 2))],
    3: [((2, 3, 4), (4, 6, 8)), ((3, 4, 5), (2, 7, 5))],
}
LINEAR = {1: "upsample_linear1d", 2: "upsample_bilinear2d", 3: "upsample_trilinear3d"}
SMOOTH = [
    "upsample_bicubic2d",
    "_upsample_bilinear2d_aa",
    "_upsample_bicubic2d_aa",
    "_upsample_lanczos2d_aa",
]


def _op(name: str) -> Any:
    return getattr(aten, name).default


def _calls(name: str, x: torch.Tensor, counts: tuple[int, ...], *options: Any) -> list[Any]:
    grad = torch.randn(*x.shape[:2], *counts).to(x.dtype)
    backward = call(_op(f"{name}_backward"), grad, list(counts), list(x.shape), *options)
    return [call(_op(name), x, list(counts), *options), backward]


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_nearest(rank: int) -> None:
    torch.manual_seed(0)
    calls = []
    for sizes, counts in SIZES[rank]:
        x = torch.randn(2, 3, *sizes)
        for name in (f"upsample_nearest{rank}d", f"_upsample_nearest_exact{rank}d"):
            calls += _calls(name, x, counts)
            calls += _calls(name, x, counts, *[1.7] * rank)
    check_ops(calls)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_linear(rank: int) -> None:
    torch.manual_seed(0)
    calls = []
    for sizes, counts in SIZES[rank]:
        x = torch.randn(2, 3, *sizes)
        for corners in (False, True):
            calls += _calls(LINEAR[rank], x, counts, corners)
        calls += _calls(LINEAR[rank], x, counts, False, *[1.7] * rank)
    check_ops(calls)


@pytest.mark.parametrize("name", SMOOTH)
def test_smooth(name: str) -> None:
    torch.manual_seed(0)
    calls = []
    for sizes, counts in SIZES[2]:
        x = torch.randn(2, 3, *sizes)
        for corners in (False, True):
            calls += _calls(name, x, counts, corners)
        # The counts that these factors give: for others the CPU's antialiasing reads past the rows.
        scaled = (int(sizes[0] * 1.7), int(sizes[1] * 0.6))
        calls += _calls(name, x, scaled, False, 1.7, 0.6)
    for one in calls:
        # Weights of either sign: a rounding error of theirs shows more than one of a value.
        one.tolerances.update(rtol=1e-5, atol=3e-5)
    check_ops(calls)


def test_dtypes() -> None:
    x = torch.randn(2, 3, 5, 6)
    calls = [
        call(_op("upsample_nearest2d"), (x * 50).to(torch.uint8), [7, 12]),
        *_calls("upsample_bilinear2d", x.double(), (7, 9), False),
        *_calls("upsample_bicubic2d", x.double(), (7, 9), True),
        call(_op("upsample_bilinear2d"), x.bfloat16(), [10, 12], False),
    ]
    check_ops(calls)
    run_op(aten.upsample_bilinear2d.vec, x, None, True, [2.0, 1.5])


def test_interpolation_of_bytes_is_left_to_the_cpu() -> None:
    x = torch.zeros(1, 1, 4, 4, dtype=torch.uint8)
    assert not lowers(lambda: run_op(_op("upsample_bilinear2d"), x, [8, 8], False))
