"""Sliding blocks as columns (im2col) and their sum back (col2im)."""

from collections.abc import Iterator, Sequence
from typing import Any

from torchneuron.lowering.builder import Builder, Val
from torchneuron.lowering.dtypes import opmath
from torchneuron.lowering.emitting import finish, shape_of
from torchneuron.lowering.registry import emitter

Pair = Sequence[int]


def _counts(size: Pair, kernel: Pair, dilation: Pair, padding: Pair, stride: Pair) -> list[int]:
    """How many blocks fit along each dimension."""
    return [
        (size[i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1
        for i in range(2)
    ]


def _taps(kernel: Pair, dilation: Pair) -> Iterator[tuple[int, int]]:
    """Where in a block each kernel element lies."""
    for row in range(kernel[0]):
        for column in range(kernel[1]):
            yield row * dilation[0], column * dilation[1]


@emitter("aten.im2col")
def im2col(
    b: Builder, out: Any, self: Val, kernel_size: Pair, dilation: Pair, padding: Pair, stride: Pair
) -> Val:
    if 0 in shape_of(out):
        return b.full(shape_of(out), 0, out.dtype)
    x = b.unsqueeze(self, 0) if self.ndim == 3 else self
    batch, channels = x.shape[:2]
    rows, columns = _counts(x.shape[2:], kernel_size, dilation, padding, stride)
    x = b.pad(x, [0, 0, *padding], [0, 0, *padding])
    blocks = []
    for top, left in _taps(kernel_size, dilation):
        limits = [top + (rows - 1) * stride[0] + 1, left + (columns - 1) * stride[1] + 1]
        seen = b.slice(x, [0, 0, top, left], [batch, channels, *limits], [1, 1, *stride])
        blocks.append(b.unsqueeze(seen, 2))
    return b.reshape(b.concat(blocks, 2), shape_of(out))


@emitter("aten.col2im")
def col2im(
    b: Builder,
    out: Any,
    self: Val,
    output_size: Pair,
    kernel_size: Pair,
    dilation: Pair,
    padding: Pair,
    stride: Pair,
) -> Val:
    shape = shape_of(out)
    if 0 in shape:
        return b.full(shape, 0, out.dtype)
    batch, channels = (shape[0] if len(shape) == 4 else 1), shape[-3]
    counts = _counts(output_size, kernel_size, dilation, padding, stride)
    taps = list(_taps(kernel_size, dilation))
    columns = b.convert(self, opmath(out.dtype))
    columns = b.reshape(columns, (batch, channels, len(taps), *counts))
    total: Val | None = None
    for index, starts in enumerate(taps):
        block = b.squeeze(b.slice_dim(columns, 2, index, index + 1), 2)
        low = [start - pad for start, pad in zip(starts, padding, strict=True)]
        reach = [(count - 1) * step + 1 for count, step in zip(counts, stride, strict=True)]
        high = [output_size[i] - reach[i] - low[i] for i in range(2)]
        inner = [0, 0, stride[0] - 1, stride[1] - 1]
        spread = b.pad(block, [0, 0, *low], [0, 0, *high], inner)
        total = spread if total is None else b.add(total, spread)
    assert total is not None
    return finish(b, b.reshape(total, shape), out)
