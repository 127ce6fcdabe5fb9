"""Nested tensors on the device, of the strided and the jagged layout, and their gradients, against the CPU."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nested import nested_tensor
from torch.nn import functional

pytestmark = [
    pytest.mark.usefixtures("no_fallback"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),
]
LAYOUTS = [torch.strided, torch.jagged]
PARTS = [torch.linspace(-1, 1, 4 * rows).reshape(rows, 4) for rows in (2, 3, 1)]
WIDE = [torch.linspace(-1, 1, 4 * columns).reshape(4, columns) for columns in (2, 3, 5)]
WEIGHT = torch.linspace(-1, 1, 20).reshape(5, 4)
BIAS = torch.linspace(-1, 1, 5)
SCALE, SHIFT = torch.linspace(0.5, 2, 4), torch.linspace(-1, 1, 4)
QUERY = [torch.linspace(-1, 1, 8 * length).reshape(length, 2, 4) for length in (3, 5, 2)]
OFFSETS = torch.tensor([0, 2, 5, 6])

Function = Callable[[torch.Tensor], torch.Tensor]


def make(device: str, parts: list[torch.Tensor], layout: torch.layout, **how: Any) -> torch.Tensor:
    return nested_tensor([part.clone() for part in parts], device=device, layout=layout, **how)


def dense(value: torch.Tensor) -> list[torch.Tensor]:
    parts = value.unbind() if value.is_nested else [value]
    return [part.detach().cpu() for part in parts]


def compare(function: Callable[[str], torch.Tensor]) -> None:
    actual = function("neuron")
    assert actual.device.type == "neuron"
    torch.testing.assert_close(dense(actual), dense(function("cpu")))


def attention(x: torch.Tensor) -> torch.Tensor:
    heads = x.transpose(1, 2)
    heads = heads.contiguous() if x.layout is torch.strided else heads
    return functional.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2)


BOTH: dict[str, Function] = {
    "abs": torch.abs,
    "add": lambda x: x + x,
    "chunk": lambda x: x.chunk(2, -1)[1],
    "clone": torch.clone,
    "dropout": lambda x: functional.dropout(x, 0.0),
    "gelu": functional.gelu,
    "layer_norm": lambda x: functional.layer_norm(x, (4,), SCALE.to(x.device), SHIFT.to(x.device)),
    "linear": lambda x: functional.linear(x, WEIGHT.to(x.device), BIAS.to(x.device)),
    "mul": lambda x: x * x,
    "padded": lambda x: x.to_padded_tensor(-1.0),
    "relu": torch.relu,
    "select": lambda x: x[1],
    "silu": functional.silu,
    "softmax": lambda x: x.softmax(-1),
    "sum of rows": lambda x: x.sum(-1, keepdim=True),
    "to bfloat16": lambda x: x.to(torch.bfloat16),
    "unbind": lambda x: torch.cat(list(x.unbind())),
}
STRIDED: dict[str, Function] = {
    "bmm": lambda x: torch.bmm(x, make(x.device.type, WIDE, torch.strided)),
    "cat": lambda x: torch.cat([x, x]),
    "contiguous": lambda x: x.transpose(1, 2).contiguous(),
    "fill": lambda x: x.clone().fill_(2.0),
    "in place": lambda x: x.clone().mul_(3).add_(x),
    "matmul": lambda x: x @ x.transpose(1, 2),
    "reshape": lambda x: x.reshape(3, -1, 2, 2),
    "split": lambda x: x.split_with_sizes([1, 3], -1)[1],
    "wider padding": lambda x: x.to_padded_tensor(0.0, (4, 5, 6)),
    "zeros_like": torch.zeros_like,
}
JAGGED: dict[str, Function] = {
    "amax": lambda x: x.amax(1),
    "mean": lambda x: x.mean(1),
    "softmax of the rows": lambda x: torch.softmax(x, 1),
    "sum": lambda x: x.sum(1),
    "times a column": lambda x: x * torch.arange(3.0, device=x.device).reshape(3, 1, 1),
}
CASES = [
    *((layout, name, f) for layout in LAYOUTS for name, f in BOTH.items()),
    *((torch.strided, name, f) for name, f in STRIDED.items()),
    *((torch.jagged, name, f) for name, f in JAGGED.items()),
]
# PyTorch has no gradient for these.
WITHOUT_GRADIENT = {
    *("abs", "amax", "cat", "fill", "in place", "mean", "sum", "times a column", "wider padding"),
    "zeros_like",
}
WITHOUT_GRADIENT_HERE = {(torch.jagged, "sum of rows"), (torch.strided, "chunk")}


@pytest.mark.parametrize(
    ("layout", "function"), [pytest.param(c[0], c[2], id=f"{c[1]}-{c[0]}") for c in CASES]
)
def test_forward(layout: torch.layout, function: Function) -> None:
    compare(lambda device: function(make(device, PARTS, layout)))


@pytest.mark.parametrize(
    ("layout", "function"),
    [
        pytest.param(c[0], c[2], id=f"{c[1]}-{c[0]}")
        for c in CASES
        if c[1] not in WITHOUT_GRADIENT and (c[0], c[1]) not in WITHOUT_GRADIENT_HERE
    ],
)
def test_gradient(layout: torch.layout, function: Function) -> None:
    def gradient(device: str) -> torch.Tensor:
        x = make(device, PARTS, layout, requires_grad=True)
        result = function(x)
        if result.is_nested:
            result = torch.cat([part.flatten() for part in result.unbind()])
        weights = torch.linspace(0.5, 1.5, result.numel()).reshape(result.shape)
        (result * weights.to(device, result.dtype)).sum().backward()
        assert x.grad is not None
        return x.grad

    compare(gradient)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("differentiated", [False, True])
def test_attention(layout: torch.layout, differentiated: bool) -> None:
    def run(device: str) -> torch.Tensor:
        x = make(device, QUERY, layout, requires_grad=differentiated)
        result = attention(x)
        if not differentiated:
            return result
        torch.cat([part.square().flatten() for part in result.unbind()]).sum().backward()
        assert x.grad is not None
        return x.grad

    compare(run)


def test_moves_between_devices() -> None:
    there = make("cpu", PARTS, torch.strided).to("neuron")
    assert there.is_nested
    assert there.device.type == "neuron"
    torch.testing.assert_close(dense(there.cpu()), PARTS)


def test_from_mask() -> None:
    mask = torch.tensor([[True, True, False], [True, False, False]])
    padded = torch.arange(24.0).reshape(2, 3, 4)
    compare(lambda device: torch._nested_tensor_from_mask(padded.to(device), mask.to(device)))


@pytest.mark.parametrize("dtype", [torch.bool, torch.int32])
def test_padding_keeps_the_dtype(dtype: torch.dtype) -> None:
    parts = [(part > 0).to(dtype) for part in PARTS]
    compare(lambda device: make(device, parts, torch.jagged).to_padded_tensor(0.0))


def test_jagged_from_padded() -> None:
    from torch.nested._internal.nested_tensor import nested_from_padded

    padded = torch.arange(36.0).reshape(3, 3, 4)
    compare(lambda device: nested_from_padded(padded.to(device), OFFSETS.to(device)))


def test_transformer_encoder_with_padding_mask() -> None:
    """In evaluation PyTorch takes the nested road: the places behind a sequence's end become zeros."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 2).eval()
    x, padding = torch.randn(2, 5, 8), torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    with torch.no_grad():
        expected = encoder(x, src_key_padding_mask=padding)
        actual = encoder.to("neuron")(x.to("neuron"), src_key_padding_mask=padding.to("neuron"))
    assert not expected[1, 3:].any()
    torch.testing.assert_close(actual.cpu(), expected)


@pytest.mark.parametrize("dims", [[0], [1, 2]])
def test_sum_of_other_dimensions_is_refused(dims: list[int]) -> None:
    for device in ("cpu", "neuron"):
        with pytest.raises(RuntimeError, match="NestedTensor"):
            make(device, PARTS, torch.strided).sum(dims, keepdim=True)


def test_layer_norm_of_other_sizes_is_refused() -> None:
    for device in ("cpu", "neuron"):
        weight = torch.ones(3, device=device)
        with pytest.raises(RuntimeError, match="normalized_shape"):
            functional.layer_norm(make(device, PARTS, torch.strided), (3,), weight, weight)
