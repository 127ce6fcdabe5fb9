"""Interpolation to another size and its gradient: the same linear map along each dimension, or its transpose.

Source positions are computed as the CPU's kernels do, in float32 (float64 for float64 tensors), so that the same
neighbours are chosen.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from torchneuron.lowering.builder import Builder, Val
from torchneuron.lowering.dtypes import is_float, opmath
from torchneuron.lowering.emitting import finish, shape_of
from torchneuron.lowering.errors import LoweringError
from torchneuron.lowering.registry import emitter
from torchneuron.lowering.resampling import Rows, apply

Entry = tuple[int, float]
# (input size, output size, align_corners, scale, dtype of the arithmetic) to the map
Maker = Callable[[int, int, bool, float | None, Any], Rows]


def _ratio(size: int, count: int, scale: float | None, real: Any) -> Any:
    """Input elements per output element."""
    if scale is not None and scale > 0:
        return real(1.0 / scale)
    return real(size) / real(count)


def _cornered_ratio(size: int, count: int, corners: bool, scale: float | None, real: Any) -> Any:
    if corners:
        return real(size - 1) / real(count - 1) if count > 1 else real(0)
    return _ratio(size, count, scale, real)


def _nearest(size: int, count: int, corners: bool, scale: float | None, real: Any) -> Rows:
    ratio = _ratio(size, count, scale, np.float32)
    columns = [min(math.floor(np.float32(i) * ratio), size - 1) for i in range(count)]
    return Rows.picks(columns, size)


def _nearest_even(size: int, count: int, corners: bool, scale: float | None, real: Any) -> Rows:
    """As the CPU's kernels for two dimensions and for gradients: a scale that is not quite 1 or 2 is taken for it."""
    return _nearest(size, count, corners, None if count in (size, 2 * size) else scale, real)


def _nearest_exact(size: int, count: int, corners: bool, scale: float | None, real: Any) -> Rows:
    ratio = _ratio(size, count, scale, np.float32)
    columns = [
        min(math.floor((np.float32(i) + np.float32(0.5)) * ratio), size - 1) for i in range(count)
    ]
    return Rows.picks(columns, size)


def _position(i: int, ratio: Any, corners: bool, real: Any) -> Any:
    """Where output element ``i`` lies between the input elements."""
    return ratio * real(i) if corners else ratio * (real(i) + real(0.5)) - real(0.5)


def _merged(entries: Sequence[Entry]) -> list[Entry]:
    """One entry for each column, in order of appearance."""
    weights: dict[int, float] = {}
    for column, weight in entries:
        weights[column] = weights.get(column, 0.0) + weight
    return list(weights.items())


def _linear(size: int, count: int, corners: bool, scale: float | None, real: Any) -> Rows:
    if count == size:
        return Rows.picks(range(size), size)
    ratio = _cornered_ratio(size, count, corners, scale, real)
    rows = []
    for i in range(count):
        position = max(_position(i, ratio, corners, real), real(0))
        column = min(int(position), size - 1)
        share = min(max(position - real(column), real(0)), real(1))
        after = min(column + 1, size - 1)
        rows.append(_merged([(column, float(real(1) - share)), (after, float(share))]))
    return Rows.from_entries(count, size, rows)


def _cubic(size: int, count: int, corners: bool, scale: float | None, real: Any) -> Rows:
    ratio = _cornered_ratio(size, count, corners, scale, real)
    rows = []
    for i in range(count):
        position = _position(i, ratio, corners, real)
        column = min(math.floor(position), size - 1)
        share = min(max(position - real(column), real(0)), real(1))
        weights = [float(_cubic_weight(share + real(1 - tap), -0.75)) for tap in range(4)]
        columns = [min(max(column + tap - 1, 0), size - 1) for tap in range(4)]
        rows.append(_merged(list(zip(columns, weights, strict=True))))
    return Rows.from_entries(count, size, rows)


def _cubic_weight(distance: Any, a: float) -> Any:
    """Keys' cubic convolution kernel with parameter ``a``."""
    x = abs(distance)
    if x <= 1:
        return ((a + 2) * x - (a + 3)) * x * x + 1
    return (((x - 5) * x + 8) * x - 4) * a if x < 2 else x * 0


def _triangle(distance: Any) -> Any:
    return max(1 - abs(distance), distance * 0)


def _lanczos(distance: Any) -> Any:
    """Three-lobed."""
    if not -3 < distance < 3:
        return distance * 0
    return np.sinc(distance) * np.sinc(distance / 3)


def _antialiased(width: int, kernel: Callable[[Any], Any]) -> Maker:
    """``kernel``, of ``width`` elements, stretched over as many input elements as one output element covers."""

    def make(size: int, count: int, corners: bool, scale: float | None, real: Any) -> Rows:
        ratio = _cornered_ratio(size, count, corners, scale, real)
        stretch = max(ratio, real(1))
        support = real(width / 2) * stretch
        rows = []
        for i in range(count):
            centre = ratio * (real(i) + real(0.5))
            first = max(int(centre - support + real(0.5)), 0)
            last = min(int(centre + support + real(0.5)), size)
            weights = [kernel((real(j) - centre + real(0.5)) / stretch) for j in range(first, last)]
            total = sum(weights)
            rows.append(
                [(first + k, float(w / total)) for k, w in enumerate(weights) if total != 0]
            )
        return Rows.from_entries(count, size, rows)

    return make


def _map(
    b: Builder,
    x: Val,
    out: Any,
    sizes: Sequence[int],
    counts: Sequence[int],
    corners: bool,
    scales: Sequence[float | None],
    maker: Maker,
    backward: bool,
) -> Val:
    """Apply the maps of ``sizes`` to ``counts``, or their transposes, to the last dimensions of ``x``."""
    if 0 in shape_of(out):
        return b.full(shape_of(out), 0, out.dtype)
    exact = maker in (_nearest, _nearest_even, _nearest_exact) and not backward
    if not (is_float(out.dtype) or exact):
        raise LoweringError("aten.upsample", f"interpolation of {out.dtype}")
    value = x if exact else b.convert(x, opmath(out.dtype))
    real = np.float64 if out.dtype is torch.float64 else np.float32
    first = x.ndim - len(sizes)
    for i in reversed(range(len(sizes))):
        rows = maker(sizes[i], counts[i], corners, scales[i], real)
        value = apply(b, value, first + i, rows.transposed() if backward else rows)
    return finish(b, value, out)


_SCALES = {1: ("scales",), 2: ("scales_h", "scales_w"), 3: ("scales_d", "scales_h", "scales_w")}


def _register(name: str, rank: int, forward: Maker, backward: Maker, has_corners: bool) -> None:
    """The op ``name`` and its gradient; arguments after the sizes are [align_corners,] scales..."""
    static = _SCALES[rank]

    def options(rest: Sequence[Any], named: dict[str, Any]) -> tuple[bool, list[float | None]]:
        corners = named.get("align_corners", False)
        if has_corners and rest:
            corners, *rest = rest
        padded = [*rest, *[None] * (rank - len(rest))]
        return corners, [named.get(n, v) for n, v in zip(static, padded, strict=True)]

    @emitter(f"aten.{name}", static=static)
    def upsample(
        b: Builder, out: Any, self: Val, output_size: Sequence[int], *rest: Any, **named: Any
    ) -> Val:
        corners, scales = options(rest, named)
        sizes, counts = self.shape[-rank:], shape_of(out)[-rank:]
        return _map(b, self, out, sizes, counts, corners, scales, forward, False)

    @emitter(f"aten.{name}_backward", static=static)
    def upsample_backward(
        b: Builder,
        out: Any,
        grad_output: Val,
        output_size: Sequence[int],
        input_size: Sequence[int],
        *rest: Any,
        **named: Any,
    ) -> Val:
        corners, scales = options(rest, named)
        sizes, counts = shape_of(out)[-rank:], grad_output.shape[-rank:]
        return _map(b, grad_output, out, sizes, counts, corners, scales, backward, True)


def _unless_equal(maker: Maker) -> Maker:
    """Nothing to do between equal sizes, whatever the scale."""

    def make(size: int, count: int, corners: bool, scale: float | None, real: Any) -> Rows:
        if size == count:
            return Rows.picks(range(size), size)
        return maker(size, count, corners, scale, real)

    return make


for _rank in (1, 2, 3):
    _forward = _nearest_even if _rank == 2 else _nearest
    _register(f"upsample_nearest{_rank}d", _rank, _forward, _nearest_even, False)
    _exact = f"_upsample_nearest_exact{_rank}d"
    _register(_exact, _rank, _nearest_exact, _nearest_exact, False)
for _name, _rank, _maker in (
    ("upsample_linear1d", 1, _linear),
    ("upsample_bilinear2d", 2, _linear),
    ("upsample_trilinear3d", 3, _linear),
    ("upsample_bicubic2d", 2, _cubic),
):
    _register(_name, _rank, _maker, _maker, True)
for _name, _aa in (
    ("_upsample_bilinear2d_aa", _antialiased(2, _triangle)),
    ("_upsample_bicubic2d_aa", _antialiased(4, lambda x: _cubic_weight(x, -0.5))),
    ("_upsample_lanczos2d_aa", _antialiased(6, _lanczos)),
):
    _register(_name, 2, _unless_equal(_aa), _aa, True)
