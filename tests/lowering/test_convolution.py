"""Convolutions of one to three dimensions and their gradients."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.lowering.harness import Call, call, check_ops, run_op

aten = torch.ops.aten

# rank, channels, outputs, groups, taps, size, stride, padding, dilation
CASES = [
    (1, 3, 4, 1, (3,), (9,), (1,), (0,), (1,)),
    (1, 6, 6, 6, (4,), (9,), (1,), (3,), (1,)),
    (1, 4, 8, 4, (3,), (10,), (2,), (1,), (2,)),
    (2, 3, 4, 1, (3, 3), (7, 8), (1, 1), (1, 1), (1, 1)),
    (2, 3, 4, 1, (3, 2), (9, 8), (2, 3), (1, 0), (2, 1)),
    (2, 4, 6, 2, (3, 3), (8, 8), (2, 2), (1, 1), (1, 1)),
    (2, 4, 4, 4, (3, 3), (8, 7), (1, 2), (1, 1), (1, 2)),
    (2, 3, 6, 3, (2, 3), (8, 7), (2, 1), (0, 2), (2, 1)),
    (2, 1, 4, 1, (1, 1), (5, 6), (2, 2), (2, 2), (1, 1)),
    (2, 4, 4, 1, (5, 5), (12, 12), (4, 4), (2, 2), (1, 1)),
    (2, 4, 4, 4, (9, 9), (9, 9), (1, 1), (4, 4), (1, 1)),
    (3, 3, 4, 1, (3, 3, 3), (5, 6, 7), (1, 1, 1), (1, 1, 1), (1, 1, 1)),
    (3, 4, 6, 2, (2, 3, 1), (7, 6, 5), (2, 1, 2), (1, 0, 1), (2, 2, 1)),
    (3, 4, 4, 4, (2, 2, 2), (5, 5, 5), (2, 1, 1), (0, 1, 0), (1, 1, 1)),
    (3, 2, 3, 1, (1, 2, 2), (4, 5, 5), (2, 2, 2), (1, 1, 1), (1, 1, 1)),
]


def _data(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_floating_point:
        return torch.randn(shape, dtype=torch.promote_types(dtype, torch.float32)).to(dtype)
    return torch.randint(-9, 9, shape, dtype=dtype)


def _both_directions(case: Any, transposed: bool, dtype: torch.dtype) -> Iterator[Call]:
    rank, channels, outputs, groups, taps, size, stride, padding, dilation = case
    x = _data((2, channels, *size), dtype)
    kernel_shape = (channels, outputs // groups) if transposed else (outputs, channels // groups)
    kernel, bias = _data((*kernel_shape, *taps), dtype), _data((outputs,), dtype)
    extra = [0] * rank
    if transposed:
        extra = [min(1, max(s, d) - 1) for s, d in zip(stride, dilation, strict=True)]
    args = (stride, padding, dilation, transposed, extra, groups)
    yield call(aten.convolution.default, x, kernel, bias, *args)
    if dtype.is_floating_point:
        result = aten.convolution(x, kernel, bias, *args)
        grad = _data(tuple(result.shape), dtype)
        backward = call(
            aten.convolution_backward.default, grad, x, kernel, [outputs], *args, [True] * 3
        )
        # Weight gradients are sums of hundreds of terms that nearly cancel, here in another order.
        backward.tolerances.update(rtol=1e-5, atol=1e-4)
        yield backward


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_float32(rank: int, transposed: bool) -> None:
    torch.manual_seed(0)
    cases = [case for case in CASES if case[0] == rank]
    check_ops([one for case in cases for one in _both_directions(case, transposed, torch.float32)])


def test_float64() -> None:
    torch.manual_seed(0)
    cases = (CASES[0], CASES[3], CASES[5], CASES[6], CASES[11])
    check_ops([one for case in cases for one in _both_directions(case, True, torch.float64)])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_floats_are_rounded_once(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    for one in _both_directions(CASES[5], False, dtype):
        wide = [x.float() if isinstance(x, torch.Tensor) else x for x in one.args]
        expected = one.op(*wide)
        if isinstance(expected, torch.Tensor):
            run_op(one.op, *one.args, expected=expected.to(dtype))
        else:
            run_op(one.op, *one.args, expected=tuple(x.to(dtype) for x in expected))


def test_integers() -> None:
    calls = [next(_both_directions(case, False, torch.int64)) for case in (CASES[3], CASES[6])]
    check_ops(calls)


def test_empty() -> None:
    args = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    x, kernel = torch.randn(0, 3, 5, 5), torch.randn(4, 3, 3, 3)
    check_ops(
        [
            call(aten.convolution.default, x, kernel, torch.randn(4), *args),
            call(
                aten.convolution_backward.default,
                torch.randn(0, 4, 5, 5),
                x,
                kernel,
                [4],
                *args,
                [True, True, True],
            ),
        ]
    )


def test_without_bias_and_with_one_entry_for_all_dimensions() -> None:
    x, kernel = torch.randn(2, 3, 6, 6), torch.randn(4, 3, 3, 3)
    run_op(aten.convolution.default, x, kernel, None, [2], [1], [1], False, [0], 1)


def test_channels_last_and_strided_inputs() -> None:
    x = torch.randn(2, 4, 8, 8).to(memory_format=torch.channels_last)
    kernel = torch.randn(3, 3, 6, 4).permute(2, 3, 0, 1)
    args = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    check_ops(
        [
            call(aten.convolution.default, x, kernel, None, *args),
            call(aten._convolution.default, x[:, :, ::2, 1:], kernel, None, *args, *[False] * 4),
        ]
    )


def test_infinities_and_nans_spread_as_in_a_plain_convolution() -> None:
    x, kernel = torch.randn(1, 3, 6, 6), torch.randn(3, 1, 3, 3)
    x[0, 1, 2, 2] = float("inf")
    x[0, 2, 3, 3] = float("nan")
    args = ([1, 1], [1, 1], [1, 1], False, [0, 0])
    check_ops(
        [
            call(aten.convolution.default, x, kernel, None, *args, 3),
            call(aten.convolution.default, x, torch.randn(2, 3, 3, 3), None, *args, 1),
        ]
    )


def test_only_the_gradients_asked_for() -> None:
    grad, x, kernel = torch.randn(2, 4, 6, 6), torch.randn(2, 3, 6, 6), torch.randn(4, 3, 3, 3)
    args = ([4], [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    masks = [[True, False, False], [False, True, False]]
    check_ops(
        [call(aten.convolution_backward.default, grad, x, kernel, *args, mask) for mask in masks]
    )


def test_ops_that_only_other_devices_have() -> None:
    torch.manual_seed(0)
    x, kernel, grad = torch.randn(2, 3, 6, 6), torch.randn(4, 3, 3, 3), torch.randn(2, 4, 6, 6)
    args = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    expected = aten.convolution(x, kernel, torch.ones(4), *args)
    run_op(
        aten.convolution_overrideable.default, x, kernel, torch.ones(4), *args, expected=expected
    )
    mask = [True, True, False]
    gradients = aten.convolution_backward(grad, x, kernel, [4], *args, [True] * 3)
    run_op(
        aten.convolution_backward_overrideable.default,
        grad,
        x,
        kernel,
        *args,
        mask,
        expected=(*gradients[:2], None),
        rtol=1e-5,
        atol=1e-4,  # sums of many terms, in another order
    )


def test_time_first() -> None:
    x, kernel, bias = torch.randn(7, 2, 3), torch.randn(3, 3, 4), torch.randn(4)
    run_op(aten.conv_tbc.default, x, kernel, bias, 1)
