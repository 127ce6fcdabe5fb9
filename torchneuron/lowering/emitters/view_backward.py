"""Gradients of views: the incoming gradient placed into zeros."""

from typing import Any

from torchneuron.lowering.builder import Builder, Val
from torchneuron.lowering.emitters.view import put_diagonal, slice_bounds
from torchneuron.lowering.registry import emitter


def _padded(b: Builder, x: Val, dim: int, low: int, size: int, step: int = 1) -> Val:
    """``x`` in zeros of ``size`` along ``dim``: from ``low`` on, every ``step``-th."""
    count = x.shape[dim]
    reach = max(0, (count - 1) * step + 1)
    lows, highs, inner = [0] * x.ndim, [0] * x.ndim, [0] * x.ndim
    lows[dim], highs[dim], inner[dim] = low, size - low - reach, step - 1
    return b.pad(x, lows, highs, inner)


@emitter("aten.slice_backward")
def slice_backward(
    b: Builder,
    out: Any,
    grad: Val,
    input_sizes: list[int],
    dim: int,
    start: int,
    end: int,
    step: int,
) -> Val:
    dim %= grad.ndim
    first, _ = slice_bounds(input_sizes[dim], start, end, step)
    return _padded(b, grad, dim, first, input_sizes[dim], step)


@emitter("aten.select_backward")
def select_backward(
    b: Builder, out: Any, grad: Val, input_sizes: list[int], dim: int, index: int
) -> Val:
    dim %= len(input_sizes)
    size = input_sizes[dim]
    return _padded(b, b.unsqueeze(grad, dim), dim, index % size, size)


@emitter("aten.diagonal_backward")
def diagonal_backward(
    b: Builder, out: Any, grad: Val, input_sizes: list[int], offset: int, dim1: int, dim2: int
) -> Val:
    return put_diagonal(b, b.full(input_sizes, 0, grad.dtype), grad, offset, dim1, dim2)


@emitter("aten.unfold_backward")
def unfold_backward(
    b: Builder, out: Any, grad_in: Val, input_sizes: list[int], dim: int, size: int, step: int
) -> Val:
    if not input_sizes:
        return b.reshape(b.slice_dim(grad_in, 0, 0, 1), ())
    dim %= len(input_sizes)
    last = grad_in.ndim - 1
    total = b.full(input_sizes, 0, grad_in.dtype)
    for place in range(size):
        part = b.squeeze(b.slice_dim(grad_in, last, place, place + 1), last)
        total = b.add(total, _padded(b, part, dim, place, input_sizes[dim], step))
    return total
