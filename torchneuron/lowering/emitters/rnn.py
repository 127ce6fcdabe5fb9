"""The fused cells of LSTM and GRU layers. H is the hidden size; gates stand side by side."""

from collections.abc import Sequence
from typing import Any

import torch

from torchneuron.lowering.builder import Builder, Val
from torchneuron.lowering.dtypes import opmath
from torchneuron.lowering.emitting import finish
from torchneuron.lowering.registry import emitter, shape_rule


def _wide(b: Builder, x: Val) -> Val:
    return b.convert(x, opmath(x.dtype))


def _parts(b: Builder, x: Val, count: int) -> list[Val]:
    """The last dimension in ``count`` equal parts."""
    size = x.shape[-1] // count
    return [b.slice_dim(x, x.ndim - 1, i * size, (i + 1) * size) for i in range(count)]


def _with_bias(b: Builder, gates: Val, bias: Val | None) -> Val:
    wide = _wide(b, gates)
    return wide if bias is None else b.add(wide, b.convert(bias, wide.dtype))


def _sigmoid_slope(b: Builder, y: Val) -> Val:
    return b.mul(b.sub(1, y), y)


def _tanh_slope(b: Builder, y: Val) -> Val:
    return b.sub(1, b.mul(y, y))


@shape_rule("aten._thnn_fused_lstm_cell")
def _lstm_shapes(
    input_gates: torch.Tensor, hidden_gates: torch.Tensor, cx: torch.Tensor, *_: Any, **__: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    # PyTorch's own rule fails where there are no biases.
    return cx.new_empty(cx.shape), cx.new_empty(cx.shape), input_gates.new_empty(input_gates.shape)


@emitter("aten._thnn_fused_lstm_cell")
def lstm_cell(
    b: Builder,
    out: Any,
    input_gates: Val,
    hidden_gates: Val,
    cx: Val,
    input_bias: Val | None = None,
    hidden_bias: Val | None = None,
) -> tuple[Val, Val, Val]:
    """(hy, cy, workspace): the workspace holds the activated gates i, f, g, o for the gradient."""
    summed = b.add(_with_bias(b, input_gates, input_bias), _with_bias(b, hidden_gates, hidden_bias))
    i, f, g, o = _parts(b, summed, 4)
    i, f, g, o = b.logistic(i), b.logistic(f), b.tanh(g), b.logistic(o)
    cy = b.add(b.mul(f, _wide(b, cx)), b.mul(i, g))
    hy = b.mul(o, b.tanh(cy))
    workspace = b.concat([i, f, g, o], -1)
    return finish(b, hy, out[0]), finish(b, cy, out[1]), finish(b, workspace, out[2])


@emitter("aten._thnn_fused_lstm_cell_backward_impl")
def lstm_cell_backward(
    b: Builder,
    out: Any,
    grad_hy: Val | None,
    grad_cy: Val | None,
    cx: Val,
    cy: Val,
    workspace: Val,
    has_bias: bool,
) -> Sequence[Val | None]:
    """(gradient of the gates, of cx, of each bias)"""
    if grad_hy is None and grad_cy is None:
        return None, None, None
    i, f, g, o = _parts(b, _wide(b, workspace), 4)
    state = b.tanh(_wide(b, cy))
    to_state = b.full(state.shape, 0, state.dtype)
    to_output = to_state
    if grad_hy is not None:
        grad = _wide(b, grad_hy)
        to_state = b.mul(b.mul(grad, o), _tanh_slope(b, state))
        to_output = b.mul(b.mul(grad, state), _sigmoid_slope(b, o))
    if grad_cy is not None:
        to_state = b.add(to_state, _wide(b, grad_cy))
    gates = b.concat(
        [
            b.mul(b.mul(to_state, g), _sigmoid_slope(b, i)),
            b.mul(b.mul(to_state, _wide(b, cx)), _sigmoid_slope(b, f)),
            b.mul(b.mul(to_state, i), _tanh_slope(b, g)),
            to_output,
        ],
        -1,
    )
    bias = finish(b, b.reduce_sum(gates, [0]), out[2]) if has_bias else None
    return finish(b, gates, out[0]), finish(b, b.mul(to_state, f), out[1]), bias


@shape_rule("aten._thnn_fused_gru_cell")
def _gru_shapes(
    input_gates: torch.Tensor, hidden_gates: torch.Tensor, hx: torch.Tensor, *_: Any, **__: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    workspace = hx.new_empty((hx.shape[0], hx.shape[1] * 5))
    return hx.new_empty(hx.shape), workspace


@emitter("aten._thnn_fused_gru_cell")
def gru_cell(
    b: Builder,
    out: Any,
    input_gates: Val,
    hidden_gates: Val,
    hx: Val,
    input_bias: Val | None = None,
    hidden_bias: Val | None = None,
) -> tuple[Val, Val]:
    """(hy, workspace): the workspace holds r, z, n, hx and the hidden part of n for the gradient."""
    from_input = _parts(b, _with_bias(b, input_gates, input_bias), 3)
    from_hidden = _parts(b, _with_bias(b, hidden_gates, hidden_bias), 3)
    r = b.logistic(b.add(from_input[0], from_hidden[0]))
    z = b.logistic(b.add(from_input[1], from_hidden[1]))
    n = b.tanh(b.add(from_input[2], b.mul(r, from_hidden[2])))
    before = _wide(b, hx)
    hy = b.add(n, b.mul(z, b.sub(before, n)))
    workspace = b.concat([r, z, n, before, from_hidden[2]], -1)
    return finish(b, hy, out[0]), finish(b, workspace, out[1])


@shape_rule("aten._thnn_fused_gru_cell_backward")
def _gru_backward_shapes(
    grad_hy: torch.Tensor, workspace: torch.Tensor, has_bias: bool
) -> tuple[torch.Tensor | None, ...]:
    batch, hidden = grad_hy.shape
    gates = [workspace.new_empty((batch, hidden * 3)) for _ in range(2)]
    biases = [workspace.new_empty((hidden * 3,)) if has_bias else None for _ in range(2)]
    return (*gates, torch.empty_like(grad_hy), *biases)


@emitter("aten._thnn_fused_gru_cell_backward")
def gru_cell_backward(
    b: Builder, out: Any, grad_hy: Val, workspace: Val, has_bias: bool
) -> list[Val | None]:
    """(gradient of the input's gates, of the hidden gates, of hx, of the two biases)"""
    r, z, n, before, hidden = _parts(b, _wide(b, workspace), 5)
    grad = _wide(b, grad_hy)
    to_z = b.mul(b.mul(grad, b.sub(before, n)), _sigmoid_slope(b, z))
    to_n = b.mul(b.mul(grad, b.sub(1, z)), _tanh_slope(b, n))
    to_r = b.mul(b.mul(to_n, hidden), _sigmoid_slope(b, r))
    from_input = b.concat([to_r, to_z, to_n], -1)
    from_hidden = b.concat([to_r, to_z, b.mul(to_n, r)], -1)
    results: list[Val | None] = [
        finish(b, from_input, out[0]),
        finish(b, from_hidden, out[1]),
        finish(b, b.mul(grad, z), out[2]),
    ]
    for gates, like in zip((from_input, from_hidden), out[3:], strict=True):
        results.append(finish(b, b.reduce_sum(gates, [0]), like) if has_bias else None)
    return results
