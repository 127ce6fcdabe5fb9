"""Reads and writes at an index that is an operand: a number that a loop carries, or ``.item()``."""

from typing import Any

from torchneuron.lowering.builder import Builder, Val
from torchneuron.lowering.emitting import shape_of
from torchneuron.lowering.errors import LoweringError
from torchneuron.lowering.registry import emitter, indexed
from torchneuron.lowering.symbolic import number


def _at(b: Builder, size: int, index: Any) -> Val | int:
    """``index`` counted from the start; a negative one counts from the end."""
    if not isinstance(index, Val):
        return int(index % size)
    return b.select(b.lt(index, 0), b.add(index, size), index)


def _starts(b: Builder, x: Val, dim: int, index: Any) -> list[Val | int]:
    starts: list[Val | int] = [0] * x.ndim
    starts[dim] = _at(b, x.shape[dim], index)
    return starts


@emitter("aten._local_scalar_dense", "aten.item")
def item(b: Builder, out: Any, x: Val) -> Val:
    """The element as a number that is an operand of what uses it."""
    return number(b, b.reshape(x, ()))


@indexed("aten.select.int", "aten.select_copy.int")
def select(b: Builder, out: Any, x: Val, dim: int, index: Val | int) -> Val:
    """One index of ``dim``, which vanishes."""
    dim %= x.ndim
    sizes = [1 if axis == dim else size for axis, size in enumerate(x.shape)]
    return b.squeeze(b.dynamic_slice(x, _starts(b, x, dim, index), sizes), dim)


def _start(b: Builder, size: int, start: Val | int | None, length: int) -> Val | int:
    """Where a slice of ``length`` elements starts; the length tells that it is not cut short."""
    first = _at(b, size, start) if start is not None else 0
    return b.clamp(0, first, size - length) if isinstance(first, Val) else first


@indexed("aten.slice.Tensor", "aten.slice_copy.Tensor")
def slice_(
    b: Builder,
    out: Any,
    x: Val,
    dim: int = 0,
    start: Val | int | None = None,
    end: Val | int | None = None,
    step: int = 1,
) -> Val:
    """A slice that moves; its length is static, as the graph's metadata say."""
    dim %= x.ndim
    if step != 1:
        raise LoweringError("aten.slice.Tensor", "a moving slice with a step")
    starts: list[Val | int] = [0] * x.ndim
    starts[dim] = _start(b, x.shape[dim], start, shape_of(out)[dim])
    return b.dynamic_slice(x, starts, shape_of(out))


@indexed("aten.select_scatter")
def select_scatter(b: Builder, out: Any, x: Val, src: Val, dim: int, index: Val | int) -> Val:
    """``x`` with one index of ``dim`` replaced."""
    dim %= x.ndim
    update = b.unsqueeze(b.convert(src, x.dtype), dim)
    return b.dynamic_update_slice(x, update, _starts(b, x, dim, index))


@indexed("aten.slice_scatter")
def slice_scatter(
    b: Builder,
    out: Any,
    x: Val,
    src: Val,
    dim: int = 0,
    start: Val | int | None = None,
    end: Val | int | None = None,
    step: int = 1,
) -> Val:
    """``x`` with a moving slice replaced by ``src``, whose size is the slice's."""
    dim %= x.ndim
    if step != 1:
        raise LoweringError("aten.slice_scatter", "a moving slice with a step")
    starts: list[Val | int] = [0] * x.ndim
    starts[dim] = _start(b, x.shape[dim], start, src.shape[dim])
    return b.dynamic_update_slice(x, b.convert(src, x.dtype), starts)


@indexed("aten.select_backward")
def select_backward(
    b: Builder, out: Any, grad: Val, input_sizes: list[int], dim: int, index: Val | int
) -> Val:
    """``grad`` at one index of zeros."""
    blank = b.full(tuple(int(size) for size in input_sizes), 0, grad.dtype)
    return select_scatter(b, out, blank, grad, dim, index)
