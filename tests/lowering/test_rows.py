"""Which way a program's reductions run through memory."""

import pytest

from torchneuron.lowering import mlir
from torchneuron.lowering.window import Stretch, fuse

WIDE, TALL, ROWS = "tensor<256x96xf32>", "tensor<96x256xf32>", "tensor<256xf32>"
TRANSPOSE = f"%t = stablehlo.transpose %x, dims = [1, 0] : ({TALL}) -> {WIDE}"


def reduce(value: str) -> str:
    return (
        "%zero = stablehlo.constant dense<0.0> : tensor<f32>\n"
        f"%r = stablehlo.reduce({value} init: %zero) applies stablehlo.add across dimensions = [1]"
        f" : ({WIDE}, tensor<f32>) -> {ROWS}"
    )


def program(type_: str, result: str, *lines: str, value: str = "%r") -> str:
    body = "\n".join(lines)
    return (
        f"func.func public @main(%x: {type_}) -> {result} {{\n{body}\nreturn {value} : {result}\n}}"
    )


PRODUCT = (
    f"%p = stablehlo.dot_general %t, %x, contracting_dims = [1] x [0] : ({WIDE}, {TALL}) -> "
    "tensor<256x256xf32>\n"
    f"%s = stablehlo.slice %p [0:256, 0:96] : (tensor<256x256xf32>) -> {WIDE}"
)
LOOP = f"""
%false = stablehlo.constant dense<false> : tensor<i1>
%r = "stablehlo.while"(%x) ({{
^bb0(%state: {WIDE}):
  stablehlo.return %false : tensor<i1>
}}, {{
^bb0(%state: {WIDE}):
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %sum = stablehlo.reduce(%state init: %zero) applies stablehlo.add across dimensions = [0] :
    ({WIDE}, tensor<f32>) -> tensor<96xf32>
  %next = stablehlo.broadcast_in_dim %sum, dims = [1] : (tensor<96xf32>) -> {WIDE}
  stablehlo.return %next : {WIDE}
}}) : ({WIDE}) -> {WIDE}
"""


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (program(WIDE, ROWS, reduce("%x")), True),
        (program(TALL, ROWS, TRANSPOSE, reduce("%t")), False),
        (
            program(TALL, ROWS, TRANSPOSE, f"%a = stablehlo.abs %t : {WIDE}", reduce("%a")),
            False,
        ),
        (program(TALL, ROWS, TRANSPOSE, PRODUCT, reduce("%s")), True),
        (program(WIDE, WIDE, LOOP), False),
    ],
    ids=["rows", "transposed", "made of a transposed value", "of a product", "in a loop"],
)
def test_a_program(text: str, rows: bool) -> None:
    assert mlir.build(text).reduces_rows is rows


def test_a_window_is_judged_across_its_steps() -> None:
    moved = mlir.build(program(TALL, WIDE, TRANSPOSE, value="%t"))
    summed = mlir.build(program(WIDE, ROWS, reduce("%x")))
    assert moved.reduces_rows
    assert summed.reduces_rows
    modules = (moved.artifact, summed.artifact)
    apart = Stretch(modules, ((0, ((-1, 0),)), (1, ((-1, 1),))), 2, ((0, 0), (1, 0)))
    chained = Stretch(modules, ((0, ((-1, 0),)), (1, ((0, 0),))), 1, ((1, 0),))
    assert fuse(apart).reduces_rows
    assert not fuse(chained).reduces_rows
