"""Floats of a graph that PyTorch will make constants anyway, told before AOTAutograd traces.

Under ``dynamic=True`` TorchDynamo makes inputs of Python floats, such as a normalisation's ``eps``.
AOTAutograd then finds, once it has traced everything, that an operator's ``float`` parameter took
them, and has TorchDynamo start over; so everything would be traced twice. TorchDynamo then traces as
before, puts the constants in the place of those inputs and guards them, and calls the backend again:
here it does so at once. Neither request has a public form: this module is the adapter to both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch._guards import TracingContext
from torch.nn import functional as F

# Their numbers are parameters of type float of an operator, not operands that a tensor could be.
_CONSTANT_PARAMETERS = frozenset(
    {
        F.batch_norm,
        F.dropout,
        F.embedding,
        F.group_norm,
        F.instance_norm,
        F.layer_norm,
        F.rms_norm,
        F.scaled_dot_product_attention,
        torch.dropout,
    }
)


def specialize(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Sequence[Any]:
    """Put constants, with guards, in the place of such floats in ``gm``; give the inputs that are left.

    Raises TensorifyScalarRestartAnalysis, with which TorchDynamo starts over, where ``gm`` holds a copy
    of its graph: then only a new trace can change its list of inputs.
    """
    from torch._dynamo.exc import TensorifyScalarRestartAnalysis
    from torch._dynamo.symbolic_convert import InstructionTranslator, TensorifyState

    found = [name for name in map(_constant, gm.graph.nodes) if name is not None]
    names = [name for name in found if not TensorifyState.should_specialize(name)]
    if not names or TracingContext.try_get() is None:
        return example_inputs
    for name in names:
        TensorifyState.specialize(name)
    output = InstructionTranslator.current_tx().output
    if output.graph is not gm.graph:
        raise TensorifyScalarRestartAnalysis(restart_reason="floats that are constants")
    inputs = gm.graph.find_nodes(op="placeholder")
    output.remove_tensorify_specialized_graphargs()
    gm.recompile()
    left = set(gm.graph.find_nodes(op="placeholder"))
    return [value for node, value in zip(inputs, example_inputs, strict=True) if node in left]


def _constant(node: fx.Node) -> str | None:
    """The symbol of a float that ``node``, a 0-d tensor, brings to such functions alone."""
    if node.op != "placeholder" or not node.users:
        return None
    memo: Any = getattr(node.meta.get("example_value"), "item_memo", None)
    if not isinstance(memo, torch.SymFloat):
        return None
    name: str | None = getattr(memo.node._expr, "name", None)
    items = list(node.users)
    users = [user for item in items for user in item.users]
    known = all(item.target == "item" for item in items)
    return name if known and all(user.target in _CONSTANT_PARAMETERS for user in users) else None
