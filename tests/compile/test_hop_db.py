"""PyTorch's own samples of higher-order operators (hop_db), compiled for the device and compared with the CPU."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import BlockMask
from torch.testing._internal.hop_db import hop_db
from torch.utils import _pytree as pytree

from torchneuron.lowering.registry import decomposition
from torchneuron.settings import settings

# "ok" is forward and, where the operator has one, backward; else a part of what the error says. A row
# that does better than it says fails as well.
EXPECTED = {
    "auto_functionalize.simple": "ok",
    "cond.simple": "ok",
    "flex_attention.simple": "ok",
    "flex_attention_backward.explicit_buffers": "ok",
    "flex_attention_backward.simple": "ok",
    # Instructions of a GPU.
    "inline_asm_elementwise.simple": "no lowering of this higher-order operator",
    # PyTorch's partitioner fails in the same way for the backend aot_eager on the CPU.
    "invoke_quant.simple": "AOT Autograd failed to partition the joint forward-backward graph",
    "invoke_quant_packed.simple": "ok",
    "invoke_subgraph.simple": "ok",
    # TorchDynamo captures neither of these two for any device.
    "local_map_hop.simple": "Unsupported: Unexpected type in sourceless builder",
    "register_hook.simple": "Unable to create higher order operator variable for register_hook",
    "map.nested": "ok",
    "map.simple": "ok",
    "map.triple_nested": "ok",
    "scan.simple": "ok",
    "while_loop.simple": "ok",
    "while_loop_stack_output.simple": "ok",
}


@decomposition("testlib.mutating_custom_op")
def mutating_custom_op(x: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The sample's op for this device; the database has kernels of it for the CPU, CUDA and XPU only."""
    x.add_(5)
    z.add_(5)
    return x.clone(), z.clone(), x + z


def _attention(query: Any, key: Any, value: Any, score_mod: Any, block_mask: Any) -> torch.Tensor:
    """What PyTorch refuses to differentiate on the CPU; the sample's score function adds the head."""
    heads = torch.arange(query.shape[1])[:, None, None]
    scores = query @ key.mT * query.shape[-1] ** -0.5 + heads
    return scores.softmax(-1) @ value


# What a sample computes, where its function does not run on the CPU.
REFERENCES: dict[str, Callable[..., Any]] = {"flex_attention.simple": _attention}


def attempt(op: Any) -> str:
    """ "ok", or what goes wrong with the operator's first sample."""
    name = op.full_name
    differentiable = op.supports_autograd
    sample = next(iter(op.sample_inputs_func(op, "cpu", torch.float32, differentiable)))
    inputs = (sample.input, *sample.args)
    device_inputs = pytree.tree_map(_moved, inputs)
    compiled = torch.compile(op.op, backend="neuron", fullgraph=True)
    try:
        result = compiled(*device_inputs, **sample.kwargs)
        expected = REFERENCES.get(name, op.op)(*inputs, **sample.kwargs)
        _compare(result, expected)
        if differentiable:
            _compare(_gradients(result, device_inputs), _gradients(expected, inputs))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "ok"


def _moved(leaf: Any) -> Any:
    if isinstance(leaf, BlockMask):
        return leaf.to("neuron")
    if isinstance(leaf, torch.Tensor):
        return leaf.detach().to("neuron").requires_grad_(leaf.requires_grad)
    return leaf


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [x for x in pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def _gradients(result: Any, inputs: Any) -> list[torch.Tensor]:
    loss = sum((x * x).sum() for x in _tensors(result) if x.requires_grad)
    return list(torch.autograd.grad(loss, [x for x in _tensors(inputs) if x.requires_grad]))


def _compare(found: Any, expected: Any) -> None:
    for one, other in zip(_tensors(found), _tensors(expected), strict=True):
        assert one.device.type == "neuron"
        torch.testing.assert_close(one.cpu(), other)


@pytest.mark.parametrize("op", hop_db, ids=lambda op: op.full_name)
def test_sample(op: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # PyTorch's partitioner leaves a file behind where it fails.
    monkeypatch.chdir(tmp_path)
    before = settings.fallback
    settings.fallback = "allow"
    try:
        found = attempt(op)
    finally:
        settings.fallback = before
    wanted = EXPECTED.get(op.full_name, "not listed")
    assert found == wanted or (wanted != "ok" and wanted in found), f"{found}\nexpected: {wanted}"


def test_every_row_is_an_operator_of_hop_db() -> None:
    assert set(EXPECTED) == {op.full_name for op in hop_db}
