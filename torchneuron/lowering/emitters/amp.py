"""Gradient scaling for automatic mixed precision."""

from collections.abc import Sequence
from typing import Any

import torch

from torchneuron.lowering.builder import Builder, Number, Val
from torchneuron.lowering.dtypes import opmath
from torchneuron.lowering.emitting import shape_of
from torchneuron.lowering.registry import emitter

Arg = Val | Number


@emitter("aten._amp_foreach_non_finite_check_and_unscale")
def unscale(
    b: Builder, out: Any, gradients: Sequence[Val], found_inf: Val, inv_scale: Val
) -> tuple[list[Val], Val]:
    """The gradients times ``inv_scale``; ``found_inf`` becomes 1 if one of them is infinite or NaN."""
    unscaled = []
    bad = b.full((), False, torch.bool)
    for gradient in gradients:
        value = b.convert(gradient, opmath(gradient.dtype))
        factor = b.scalar(inv_scale, value.dtype)
        # A factor of 1 leaves everything as it is, like PyTorch's.
        unscaled.append(b.convert(b.mul(value, factor), gradient.dtype))
        bad = b.or_(bad, b.reduce_or(b.not_(b.isfinite(value))))
    found = b.select(bad, 1.0, found_inf)
    return unscaled, b.reshape(found, shape_of(out[1]))


@emitter("aten._amp_update_scale")
def update_scale(
    b: Builder,
    out: Any,
    scale: Val,
    growth_tracker: Val,
    found_inf: Val,
    scale_growth_factor: Arg,
    scale_backoff_factor: Arg,
    growth_interval: int,
) -> tuple[Val, Val]:
    """Back off after an overflow, grow after ``growth_interval`` steps without one unless that overflows."""
    current, tracker = b.scalar(scale, torch.float64), b.reshape(growth_tracker, ())
    found = b.ne(b.reshape(found_inf, ()), 0)
    successes = b.add(tracker, 1)
    due = b.eq(successes, growth_interval)
    grown = b.convert(b.mul(current, b.scalar(scale_growth_factor, torch.float64)), scale.dtype)
    kept = b.reshape(scale, ())
    grown = b.select(b.and_(due, b.isfinite(grown)), grown, kept)
    reduced = b.convert(b.mul(current, b.scalar(scale_backoff_factor, torch.float64)), scale.dtype)
    new_scale = b.select(found, reduced, grown)
    new_tracker = b.select(b.or_(found, due), 0, successes)
    return b.reshape(new_scale, shape_of(out[0])), b.reshape(new_tracker, shape_of(out[1]))
