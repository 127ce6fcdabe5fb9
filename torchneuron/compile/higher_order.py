"""What PyTorch's higher-order operators must be told of the device before TorchDynamo meets them.

* They pass autocast by for the devices that PyTorch knows; for this one a dispatch key more has to
  fall through. ``flex_attention`` casts its operands, as for those devices.
* ``torch.nn.attention.flex_attention`` admits a closed list of devices. TorchDynamo traces its check
  with this device added (``torch.compiler.substitute_in_graph``); PyTorch's function itself stays as
  it is, so that without ``torch.compile`` flex_attention keeps refusing the device.
"""

from __future__ import annotations

from functools import cache
from types import FunctionType
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey

DEVICE = "neuron"
_AUTOCAST = DispatchKey.AutocastPrivateUse1  # type: ignore[attr-defined]
_PASSING_AUTOCAST = (
    "associative_scan",
    "auto_functionalized",
    "auto_functionalized_v2",
    "cond",
    "flex_attention_backward",
    "hints_wrapper",
    "invoke_quant",
    "invoke_quant_packed",
    "invoke_subgraph",
    "map_impl",
    "run_and_save_rng_state",
    "run_with_rng_state",
    "scan",
    "strict_mode",
    "while_loop",
    "while_loop_stack_output",
    "with_effects",
)


@cache
def register() -> None:
    """Tell them; once, and before anything is traced."""
    for name in _PASSING_AUTOCAST:
        getattr(torch.ops.higher_order, name).fallthrough(_AUTOCAST)
    torch.ops.higher_order.flex_attention.py_impl(_AUTOCAST)(_autocast_flex_attention)
    _admit_to_flex_attention()


def _autocast_flex_attention(query: Tensor, key: Tensor, value: Tensor, *args: Any) -> Any:
    dtype = torch.get_autocast_dtype(DEVICE)
    operands = (
        x.to(dtype) if x.is_floating_point() and x.dtype is not torch.float64 else x
        for x in (query, key, value)
    )
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(_AUTOCAST)):
        return torch.ops.higher_order.flex_attention(*operands, *args)


def _admit_to_flex_attention() -> None:
    from torch.nn.attention import flex_attention

    check: Any = flex_attention._validate_device
    # A function of its own with the same code: the substitute holds for the original alone.
    elsewhere = FunctionType(check.__code__, check.__globals__, check.__name__)

    def _validate_device(query: Tensor, key: Tensor, value: Tensor) -> None:
        if query.device.type != DEVICE:
            elsewhere(query, key, value)

    torch.compiler.substitute_in_graph(check)(_validate_device)
