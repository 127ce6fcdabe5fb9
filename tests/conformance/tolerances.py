"""The tolerances that PyTorch's own databases state for an op's or a module's results."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.testing._comparison import default_tolerances
from torch.testing._internal.common_device_type import precisionOverride, toleranceOverride
from torch.testing._internal.opinfo.core import DecorateInfo

# Tests that compare an op's results on a device with others of the same op. Those of gradcheck and of
# references in NumPy state tolerances for something else.
_TESTS = frozenset(
    {
        None,
        "test_compare_cpu",
        "test_noncontiguous_samples",
        "test_variant_consistency_eager",
        "test_cpu_gpu_parity",
        "test_forward",
    }
)
_CLASSES = frozenset({None, "TestCommon", "TestModule"})


def tolerance_of(info: Any, dtype: torch.dtype) -> tuple[float, float] | None:
    """Absolute and relative tolerance of an OpInfo or a ModuleInfo; None where it states none."""
    stated = list(_stated(info, dtype))
    if not stated:
        return None
    rtol, atol = default_tolerances(dtype)
    return max(atol, *(t[0] for t in stated)), max(rtol, *(t[1] for t in stated))


def _stated(info: Any, dtype: torch.dtype) -> Iterator[tuple[float, float]]:
    for decorator in info.decorators:
        if isinstance(decorator, DecorateInfo):
            if decorator.test_name not in _TESTS or decorator.cls_name not in _CLASSES:
                continue
            if decorator.dtypes is not None and dtype not in decorator.dtypes:
                continue
            overrides = decorator.decorators
        else:
            overrides = [decorator]
        for override in overrides:
            found = override.d.get(dtype) if _is_override(override) else None
            if found is not None:
                yield tuple(found) if isinstance(override, toleranceOverride) else (found, 0.0)


def _is_override(decorator: Any) -> bool:
    return isinstance(decorator, toleranceOverride | precisionOverride)
