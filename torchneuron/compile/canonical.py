"""Graphs and their values as text: equal for equal graphs, in every process and on every device."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import torch
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload


def graph_text(module: Any) -> str:
    """One line a node. Names are numbers in order, tensors of the module are named by contents,
    subgraphs are written out, and a device is its type alone.
    """
    names: dict[fx.Node, str] = {}
    lines = []
    for node in module.graph.nodes:
        names[node] = f"%{len(names)}"
        arguments = value_text((node.args, node.kwargs), names)
        lines.append(f"{names[node]} = {node.op} {_target_text(module, node)} {arguments}")
        if node.op == "placeholder":
            lines[-1] += f" {value_text(node.meta.get('val'))}"
    return "\n".join(lines)


def value_text(value: Any, names: dict[fx.Node, str] | None = None) -> str:
    """An argument of a node, or what a node is said to give."""
    if isinstance(value, fx.Node):
        return names[value] if names else value.name
    if isinstance(value, torch.Tensor):
        sizes, strides = value_text(tuple(value.shape)), value_text(tuple(value.stride()))
        return f"{value.dtype}{sizes}{strides}@{value.device.type}"
    if isinstance(value, torch.device):
        return value.type
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return str(value.node.expr)
    if isinstance(value, (tuple, list)):
        return "(" + ", ".join(value_text(item, names) for item in value) + ")"
    if isinstance(value, dict):
        return value_text(sorted(value.items(), key=lambda item: str(item[0])), names)
    if isinstance(value, slice):
        return value_text((value.start, value.stop, value.step), names)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = tuple(getattr(value, field.name) for field in dataclasses.fields(value))
        return type(value).__name__ + value_text(fields, names)
    if isinstance(value, (OpOverload, HigherOrderOperator)):
        return str(value)
    return repr(value)


def _target_text(module: Any, node: fx.Node) -> str:
    if node.op == "placeholder" or node.op == "output":
        return ""
    if node.op != "get_attr":
        target: Any = node.target
        named = isinstance(target, (OpOverload, HigherOrderOperator, str))
        return str(target) if named else f"{target.__module__}.{target.__qualname__}"
    found = module
    for part in str(node.target).split("."):
        found = getattr(found, part)
    if isinstance(found, torch.nn.Module):
        return "{\n" + graph_text(found) + "\n}"
    if isinstance(found, torch.Tensor):
        return f"{value_text(found)} {_contents(found)}"
    return value_text(found)


def _contents(tensor: torch.Tensor) -> str:
    with torch.no_grad(), torch.utils._python_dispatch._disable_current_modes():
        host = tensor.detach().cpu().contiguous()
        return hashlib.sha256(host.reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()
