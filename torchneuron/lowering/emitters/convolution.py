"""Convolution and its gradients.

N is the batch, C and O the input and output channels, G the groups. A kernel is (O, C/G, spatial...); the kernel of a
transposed convolution, whose input plays the output's part, is (C, O/G, spatial...).

The forms are chosen for what backends run fast: depthwise convolution is a sum of shifted products, three spatial
dimensions are two with the taps of the first among the channels, everything else is one plain convolution; the
gradients are such convolutions too, never one with batch groups or a reversed window.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from torchneuron.lowering.builder import Builder, Val
from torchneuron.lowering.dtypes import opmath
from torchneuron.lowering.emitting import finish, shape_of
from torchneuron.lowering.errors import LoweringError
from torchneuron.lowering.registry import emitter

# More taps than this are left to the backend's own grouped convolution: the program would grow too long.
_MAX_TAPS = 64

# Up to so many groups are convolutions of their own: XLA:CPU's grouped convolution is several times slower.
_MAX_SPLIT_GROUPS = 8

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class _Window:
    """How the kernel moves; one entry per spatial dimension. ``spread`` dilates the input."""

    stride: Sizes
    low: Sizes
    dilation: Sizes
    spread: Sizes
    groups: int

    @property
    def rank(self) -> int:
        return len(self.stride)

    def without_first(self) -> "_Window":
        return _Window(
            self.stride[1:], self.low[1:], self.dilation[1:], self.spread[1:], self.groups
        )

    def of_one_group(self) -> "_Window":
        return replace(self, groups=1)

    def high(self, dim: int, size: int, taps: int, count: int) -> int:
        """Padding after ``size`` elements such that ``taps`` taps fit exactly ``count`` times."""
        reach = (count - 1) * self.stride[dim] + (taps - 1) * self.dilation[dim] + 1
        return reach - ((size - 1) * self.spread[dim] + 1) - self.low[dim]

    def pads(self, sizes: Sizes, taps: Sizes, counts: Sizes) -> list[tuple[int, int]]:
        """(low, high) padding of each dimension."""
        triples = enumerate(zip(sizes, taps, counts, strict=True))
        return [(self.low[i], self.high(i, *triple)) for i, triple in triples]


def _window(rank: int, stride: Any, padding: Any, dilation: Any, groups: int) -> _Window:
    stride, padding, dilation = (
        tuple(value) * (rank if len(value) == 1 else 1) for value in (stride, padding, dilation)
    )
    if not 1 <= rank <= 3:
        raise LoweringError("aten.convolution", f"{rank} spatial dimensions")
    return _Window(stride, padding, dilation, (1,) * rank, groups)


def _transposed(window: _Window, taps: Sizes) -> _Window:
    """The window that computes the input gradient of ``window``'s convolution from the output's."""
    low = (d * (k - 1) - p for d, k, p in zip(window.dilation, taps, window.low, strict=True))
    ones = (1,) * window.rank
    return _Window(ones, tuple(low), window.dilation, window.stride, window.groups)


def _spread_and_pad(b: Builder, x: Val, window: _Window, taps: Sizes, counts: Sizes) -> Val:
    """``x`` dilated and padded, so that the plain window covers it exactly."""
    pads = window.pads(x.shape[2:], taps, counts)
    low, high = [0, 0, *(pad[0] for pad in pads)], [0, 0, *(pad[1] for pad in pads)]
    return b.pad(x, low, high, [0, 0, *(step - 1 for step in window.spread)])


def _tap(b: Builder, x: Val, window: _Window, tap: Sizes, counts: Sizes) -> Val:
    """What kernel element ``tap`` meets at each position, of the padded ``x``: (N, C, counts...)."""
    starts = [t * d for t, d in zip(tap, window.dilation, strict=True)]
    limits = [
        start + (count - 1) * step + 1
        for start, count, step in zip(starts, counts, window.stride, strict=True)
    ]
    return b.slice(x, [0, 0, *starts], [*x.shape[:2], *limits], [1, 1, *window.stride])


def _correlate(b: Builder, x: Val, kernel: Val, window: _Window, counts: Sizes) -> Val:
    """(N, C, sizes) with (O, C/G, taps) to (N, O, counts)."""
    taps, shape = kernel.shape[2:], (x.shape[0], kernel.shape[0], *counts)
    if 0 in (x.numel, kernel.numel, math.prod(shape)):
        return b.full(shape, 0, x.dtype)
    if _is_depthwise(x, kernel, window):
        return _correlate_depthwise(b, x, kernel, window, counts)
    if window.rank == 3:
        return _correlate_deep(b, x, kernel, window, counts)
    if 1 < window.groups <= _MAX_SPLIT_GROUPS:
        parts = zip(
            _split(b, x, 1, window.groups), _split(b, kernel, 0, window.groups), strict=True
        )
        return b.concat([_correlate(b, *part, window.of_one_group(), counts) for part in parts], 1)
    pads = window.pads(x.shape[2:], taps, counts)
    spread = window.spread
    if any(low < 0 or high < 0 for low, high in pads):
        x = _spread_and_pad(b, x, window, taps, counts)
        pads, spread = [(0, 0)] * window.rank, (1,) * window.rank
    return b.convolution(
        x,
        kernel,
        strides=window.stride,
        padding=pads,
        x_dilation=spread,
        kernel_dilation=window.dilation,
        groups=window.groups,
    )


def _is_depthwise(x: Val, kernel: Val, window: _Window) -> bool:
    one_channel = window.groups == x.shape[1] > 1
    return one_channel and math.prod(kernel.shape[2:]) <= _MAX_TAPS


def _correlate_depthwise(b: Builder, x: Val, kernel: Val, window: _Window, counts: Sizes) -> Val:
    outputs, taps = kernel.shape[0], kernel.shape[2:]
    x = _per_output(b, _spread_and_pad(b, x, window, taps, counts), outputs)
    total: Val | None = None
    for tap in product(*map(range, taps)):
        element = b.slice(kernel, [0, 0, *tap], [outputs, 1, *(t + 1 for t in tap)])
        seen = _tap(b, x, window, tap, counts)
        weight = b.broadcast_in_dim(b.reshape(element, (outputs,)), seen.shape, [1])
        term = b.mul(seen, weight)
        total = term if total is None else b.add(total, term)
    assert total is not None
    return total


def _per_output(b: Builder, x: Val, outputs: int) -> Val:
    """Each channel as often as it has outputs."""
    batch, channels, *spatial = x.shape
    each = outputs // channels
    if each == 1:
        return x
    dims = [i for i in range(x.ndim + 1) if i != 2]
    wide = b.broadcast_in_dim(x, (batch, channels, each, *spatial), dims)
    return b.reshape(wide, (batch, outputs, *spatial))


def _planes(b: Builder, x: Val, window: _Window, taps: int, count: int) -> Val:
    """(N, C, D, H, W) to (N * count, C * taps, H, W): what the taps of the first dimension meet."""
    high = window.high(0, x.shape[2], taps, count)
    x = b.pad(
        x, [0, 0, window.low[0], 0, 0], [0, 0, high, 0, 0], [0, 0, window.spread[0] - 1, 0, 0]
    )
    batch, channels, _, height, width = x.shape
    reach = (count - 1) * window.stride[0] + 1
    slabs = []
    for tap in range(taps):
        start = tap * window.dilation[0]
        slab = b.slice_dim(x, 2, start, start + reach, window.stride[0])
        slabs.append(b.unsqueeze(slab, 2))
    stacked = b.transpose(b.concat(slabs, 2), [0, 3, 1, 2, 4, 5])
    return b.reshape(stacked, (batch * count, channels * taps, height, width))


def _correlate_deep(b: Builder, x: Val, kernel: Val, window: _Window, counts: Sizes) -> Val:
    outputs, channels, depth, *taps = kernel.shape
    flat = b.reshape(kernel, (outputs, channels * depth, *taps))
    planes = _planes(b, x, window, depth, counts[0])
    result = _correlate(b, planes, flat, window.without_first(), counts[1:])
    result = b.reshape(result, (x.shape[0], counts[0], outputs, *counts[1:]))
    return b.transpose(result, [0, 2, 1, 3, 4])


def _kernel_gradient(b: Builder, x: Val, grad: Val, window: _Window, taps: Sizes) -> Val:
    """(N, C, sizes) and (N, O, counts) to the gradient (O, C/G, taps) of the kernel."""
    channels, outputs, counts = x.shape[1], grad.shape[1], grad.shape[2:]
    shape = (outputs, channels // window.groups, *taps)
    if 0 in (x.numel, grad.numel, math.prod(shape)):
        return b.full(shape, 0, x.dtype)
    if window.groups == channels > 1 and math.prod(taps) <= _MAX_TAPS:
        return _kernel_gradient_depthwise(b, x, grad, window, taps)
    if window.rank == 3:
        planes = _planes(b, x, window, taps[0], counts[0])
        maps = b.reshape(
            b.transpose(grad, [0, 2, 1, 3, 4]), (planes.shape[0], outputs, *counts[1:])
        )
        return b.reshape(_kernel_gradient(b, planes, maps, window.without_first(), taps[1:]), shape)
    if 1 < window.groups <= _MAX_SPLIT_GROUPS:
        parts = zip(_split(b, x, 1, window.groups), _split(b, grad, 1, window.groups), strict=True)
        one = window.of_one_group()
        return b.concat([_kernel_gradient(b, *part, one, taps) for part in parts], 0)
    # The output's gradient is the kernel: strides and dilations change places, and so do batch and channels.
    swapped = _Window(window.dilation, window.low, window.stride, window.spread, window.groups)
    spatial = "".join(map(str, range(window.rank)))
    pads = swapped.pads(x.shape[2:], counts, taps)
    if any(high < 0 for _, high in pads):
        x = _spread_and_pad(b, x, swapped, counts, taps)
        pads = [(0, 0)] * window.rank
    return b.convolution(
        _groups_among_batch(b, x, window.groups),
        grad,
        strides=swapped.stride,
        padding=pads,
        kernel_dilation=swapped.dilation,
        groups=window.groups,
        layout=(f"bf{spatial}", f"io{spatial}", f"fb{spatial}"),
    )


def _split(b: Builder, x: Val, dim: int, groups: int) -> list[Val]:
    """The groups' shares of ``x``, one after the other along ``dim``."""
    size = x.shape[dim] // groups
    return [b.slice_dim(x, dim, i * size, (i + 1) * size) for i in range(groups)]


def _groups_among_batch(b: Builder, x: Val, groups: int) -> Val:
    """(N, C, ...) to (C/G, G * N, ...)."""
    batch, channels, *spatial = x.shape
    split = b.reshape(x, (batch, groups, channels // groups, *spatial))
    moved = b.transpose(split, [2, 1, 0, *range(3, split.ndim)])
    return b.reshape(moved, (channels // groups, groups * batch, *spatial))


def _kernel_gradient_depthwise(b: Builder, x: Val, grad: Val, window: _Window, taps: Sizes) -> Val:
    """All taps' sums in one reduction, which reads the input once."""
    outputs, counts = grad.shape[1], grad.shape[2:]
    x = _per_output(b, _spread_and_pad(b, x, window, taps, counts), outputs)
    products = [b.mul(_tap(b, x, window, tap, counts), grad) for tap in product(*map(range, taps))]
    number = len(products)

    def accumulate(*values: Val) -> list[Val]:
        return [
            b.add(total, term) for total, term in zip(values[:number], values[number:], strict=True)
        ]

    dims = [0, *range(2, x.ndim)]
    sums = b.reduce(products, [0] * number, dims, accumulate)
    return b.reshape(b.concat([b.unsqueeze(total, 1) for total in sums], 1), (outputs, 1, *taps))


def _backward_kernel(b: Builder, kernel: Val, groups: int) -> Val:
    """(O, C/G, taps) reversed, as the kernel (C, O/G, taps) that leads from output to input."""
    outputs, channels, *taps = kernel.shape
    reversed_ = b.reverse(kernel, [2 + i for i, size in enumerate(taps) if size > 1])
    if groups == 1:
        return b.transpose(reversed_, [1, 0, *range(2, kernel.ndim)])
    split = b.reshape(reversed_, (groups, outputs // groups, channels, *taps))
    moved = b.transpose(split, [0, 2, 1, *range(3, split.ndim)])
    return b.reshape(moved, (groups * channels, outputs // groups, *taps))


def _input_gradient(b: Builder, grad: Val, kernel: Val, window: _Window, sizes: Sizes) -> Val:
    """(N, O, counts) with (O, C/G, taps) to (N, C, sizes)."""
    backward = _transposed(window, kernel.shape[2:])
    return _correlate(b, grad, _backward_kernel(b, kernel, window.groups), backward, sizes)


@emitter("aten.convolution", "aten.convolution_overrideable")
def convolution(
    b: Builder,
    out: Any,
    input: Val,
    weight: Val,
    bias: Val | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Val:
    dtype = opmath(out.dtype)
    window = _window(input.ndim - 2, stride, padding, dilation, groups)
    counts = shape_of(out)[2:]
    function = _input_gradient if transposed else _correlate
    result = function(b, b.convert(input, dtype), b.convert(weight, dtype), window, counts)
    if bias is not None:
        shift = b.broadcast_in_dim(b.convert(bias, dtype), result.shape, [1])
        result = b.add(result, shift)
    return finish(b, result, out)


@emitter("aten._convolution")
def _convolution(b: Builder, out: Any, *args: Any, **kwargs: Any) -> Val:
    # The four flags after groups choose among cuDNN's algorithms.
    kwargs = {name: value for name, value in kwargs.items() if name in _CONVOLUTION_NAMES}
    return convolution(b, out, *args[:9], **kwargs)


_CONVOLUTION_NAMES = frozenset(
    [
        "input",
        "weight",
        "bias",
        "stride",
        "padding",
        "dilation",
        "transposed",
        "output_padding",
        "groups",
    ]
)


def _channels_last(b: Builder, x: Val) -> Val:
    """``x`` (N, C, ...), kept in memory as (N, ..., C)."""
    kept = b.materialize(b.transpose(x, [0, *range(2, x.ndim), 1]))
    return b.transpose(kept, [0, x.ndim - 1, *range(1, x.ndim - 1)])


@emitter("aten.convolution_backward")
def convolution_backward(
    b: Builder,
    out: Any,
    grad_output: Val,
    input: Val,
    weight: Val,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Val | None, Val | None, Val | None]:
    dtype = opmath(weight.dtype)
    grad, x, kernel = (b.convert(value, dtype) for value in (grad_output, input, weight))
    if sum(output_mask) > 1:
        # Up to three loops read it, in two orders: each would compute anew what it is made of.
        grad = b.materialize(grad)
    window = _window(x.ndim - 2, stride, padding, dilation, groups)
    sizes, taps = x.shape[2:], kernel.shape[2:]
    maps = grad
    if output_mask[1] and groups == 1 and window.rank < 3:
        # Both gradients take the channels last, and from there whole rows go where they must.
        maps = _channels_last(b, grad)
    result: list[Val | None] = [None, None, None]
    if output_mask[0]:
        to_input = _correlate if transposed else _input_gradient
        result[0] = finish(b, to_input(b, maps, kernel, window, sizes), out[0])
    if output_mask[1]:
        moved, fixed = (maps, x) if transposed else (x, maps)
        result[1] = finish(b, _kernel_gradient(b, moved, fixed, window, taps), out[1])
    if output_mask[2]:
        result[2] = finish(b, b.reduce_sum(grad, [0, *range(2, grad.ndim)]), out[2])
    return result[0], result[1], result[2]


@emitter("aten.convolution_backward_overrideable")
def convolution_backward_overrideable(
    b: Builder, out: Any, grad_output: Val, input: Val, weight: Val, *args: Any, **kwargs: Any
) -> tuple[Val | None, Val | None, Val | None]:
    return convolution_backward(b, out, grad_output, input, weight, None, *args, **kwargs)
