"""Values that are computed once because several loops read them, and convolutions' own order."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.lowering.harness import Call, call, check_ops
from torchneuron.lowering import mlir
from torchneuron.lowering.builder import Builder, Val
from torchneuron.lowering.window import Stretch, fuse

aten = torch.ops.aten
F32, BF16 = torch.float32, torch.bfloat16


def test_large_values_pass_a_call_that_xla_may_not_inline() -> None:
    b = Builder()
    shapes = [((80, 70), F32), ((80, 70), F32), ((5600,), torch.complex64), ((4, 4), F32)]
    for number, (shape, dtype) in enumerate(shapes):
        kept = b.materialize(Val(f"%x{number}", dtype, shape))
        assert (kept.shape, kept.dtype) == (shape, dtype)
        again = b.materialize(Val(f"%x{number}", dtype, shape))
        assert again.ir == kept.ir == b.kept(Val(f"%x{number}", dtype, shape)).ir
    assert b.body_text().count("func.call") == 3
    assert sorted(b.functions) == ["kept_complex64_5600", "kept_float32_80_70"]


def _module(x: Val, body: str, result: str, *functions: str) -> bytes:
    main = f'{body}\n"func.return"({result}) : ({x.type}) -> ()'
    text = f"func.func public @main(%x: {x.type}) -> {x.type} {{\n{main}\n}}\n"
    return mlir.build(text + "\n".join(functions)).artifact


def _shaped(x: Val, operation: str) -> bytes:
    """A program that computes in a function of its own, as those of large storages do."""
    inner = (
        f"func.func private @shaped(%x: {x.type}) -> {x.type} {{\n"
        f'%y = "stablehlo.{operation}"(%x) : ({x.type}) -> {x.type}\n'
        f'"func.return"(%y) : ({x.type}) -> ()\n}}'
    )
    attributes = '{callee = @shaped, mhlo.frontend_attributes = {inlineable = "false"}}'
    return _module(x, f'%y = "func.call"(%x) {attributes} : ({x.type}) -> {x.type}', "%y", inner)


def test_windows_keep_what_their_programs_keep_and_inline_the_rest() -> None:
    b, x = Builder(), Val("%x", F32, (80, 70))
    kept = b.materialize(b.exp(x))
    modules = (_module(x, b.body_text(), kept.ir, *b.functions.values()), _shaped(x, "log"))
    steps = ((0, ((-1, 0),)), (1, ((0, 0),)), (0, ((1, 0),)))
    window = mlir.function(fuse(Stretch(modules, steps, 1, ((2, 0),))).module, "window")
    assert len(re.findall(r"call @\S*kept_float32_80_70\(", window.text)) == 2
    assert "shaped" not in window.text
    assert "stablehlo.log" in window.text


def test_what_xla_would_simplify_is_seen_through_calls() -> None:
    x = Val("%x", F32, (80, 70))
    modules = (_shaped(x, "exponential"), _shaped(x, "log"))
    for first, barred in ((0, True), (1, False)):
        steps = ((first, ((-1, 0),)), (1, ((0, 0),)))
        window = mlir.function(fuse(Stretch(modules, steps, 1, ((1, 0),))).module, "window")
        assert ("optimization_barrier" in window.text) is barred


def test_convolutions_have_the_channels_last_also_within_regions() -> None:
    b = Builder()
    x, kernel = Val("%x", F32, (2, 3, 8, 9)), Val("%k", F32, (4, 3, 3, 3))
    layout = ("fb01", "oi01", "fb01")

    def body(count: Val) -> list[Val]:
        ones = [(1, 1), (1, 1)]
        result = b.convolution(x, kernel, strides=(1, 1), padding=ones)
        assert result.shape == (2, 4, 8, 9)
        other = b.convolution(
            b.transpose(x, [1, 0, 2, 3]), kernel, strides=(1, 2), padding=ones, layout=layout
        )
        assert other.shape == (4, 2, 8, 5)
        return [b.add(count, 1)]

    b.while_([Val("%n", torch.int64, ())], lambda count: b.lt(count, 3), body)
    orders = re.findall(r"#stablehlo.conv<(\S.*?)>,", b.body_text())
    assert orders == ["[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]"] * 2


def _convolutions(dtype: torch.dtype) -> Iterator[Call]:
    """Gradients of sizes that are kept; strides, padding, dilation, groups, both directions."""
    cases: list[tuple[Any, ...]] = [
        ((4, 6, 14, 13), (8, 6, 3, 3), (1, 1), (1, 1), (1, 1), False, 1),
        ((6, 8, 21, 17), (12, 4, 3, 2), (2, 1), (2, 0), (1, 2), False, 2),
        ((4, 8, 13, 14), (16, 1, 3, 3), (1, 1), (1, 1), (1, 1), False, 8),
        ((4, 6, 14, 13), (6, 5, 3, 3), (2, 2), (1, 0), (1, 1), True, 1),
        ((3, 6, 600), (4, 6, 5), (1,), (2,), (1,), False, 1),
        ((2, 3, 9, 10, 11), (4, 3, 3, 2, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), False, 1),
    ]
    close = {"rtol": 2e-2, "atol": 2e-1} if dtype is BF16 else {"rtol": 1e-4, "atol": 1e-3}
    for size, kernel, stride, padding, dilation, transposed, groups in cases:
        x, weight = torch.randn(size).to(dtype), torch.randn(kernel).to(dtype)
        rest = (stride, padding, dilation, transposed, [0] * len(stride), groups)
        result = aten.convolution.default(x, weight, None, *rest)
        outputs = result.shape[1]
        for mask in ([True, True, True], [False, True, True]):
            grad = torch.randn(result.shape).to(dtype)
            arguments = (grad, x, weight, [outputs], *rest, mask)
            yield Call(aten.convolution_backward.default, arguments, {}, close)


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_gradients_of_convolutions(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    check_ops(list(_convolutions(dtype)))


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_maxima_of_ties_and_nans(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randint(3, (4, 8, 24, 22)).to(dtype)
    x[torch.rand(x.shape) < 0.02] = float("nan")
    x[torch.rand(x.shape) < 0.02] = -float("inf")
    calls = []
    for options in (([2, 2],), ([3, 3], [1, 1], [1, 1]), ([3, 2], [2, 2], [1, 0], [1, 2], True)):
        calls.append(call(aten.max_pool2d_with_indices.default, x, *options))
    check_ops(calls)


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_batch_norm_in_training(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = (torch.randn(8, 6, 16, 12) * 3 + 1).to(dtype)
    strided = x.to(memory_format=torch.channels_last)
    per_channel = [torch.rand(6) + 0.5 for _ in range(4)]
    op = aten._native_batch_norm_legit_functional.default
    check_ops([call(op, value, *per_channel, True, 0.1, 1e-5) for value in (x, strided)])
