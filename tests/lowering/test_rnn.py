"""LSTM and GRU cells against their formulas: the CPU has no fused kernels of them."""

import torch

from tests.lowering.harness import run_op

aten = torch.ops.aten


def _lstm(gates: torch.Tensor, cx: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    i, f, g, o = gates.chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx + i * g
    return o * cy.tanh(), cy, torch.cat([i, f, g, o], 1)


def test_lstm() -> None:
    torch.manual_seed(0)
    input_gates, hidden_gates, cx = torch.randn(3, 20), torch.randn(3, 20), torch.randn(3, 5)
    biases = torch.randn(20), torch.randn(20)
    cell = aten._thnn_fused_lstm_cell.default
    expected = _lstm(input_gates + hidden_gates + biases[0] + biases[1], cx)
    run_op(cell, input_gates, hidden_gates, cx, *biases, expected=expected)
    expected = _lstm(input_gates + hidden_gates, cx)
    run_op(cell, input_gates, hidden_gates, cx, expected=expected)


def test_lstm_gradient() -> None:
    torch.manual_seed(0)
    gates = torch.randn(3, 20, requires_grad=True)
    cx = torch.randn(3, 5, requires_grad=True)
    hy, cy, workspace = (value for value in _lstm(gates, cx))
    grad_hy, grad_cy = torch.randn(3, 5), torch.randn(3, 5)
    saved = (cx.detach(), cy.detach(), workspace.detach())
    backward = aten._thnn_fused_lstm_cell_backward_impl.default
    for given in ((grad_hy, grad_cy), (grad_hy, None), (None, grad_cy)):
        wanted = [(y, g) for y, g in zip((hy, cy), given, strict=True) if g is not None]
        outputs, grads = zip(*wanted, strict=True)
        to_gates, to_cx = torch.autograd.grad(outputs, (gates, cx), grads, retain_graph=True)
        run_op(backward, *given, *saved, True, expected=(to_gates, to_cx, to_gates.sum(0)))
    run_op(backward, *given, *saved, False, expected=(to_gates, to_cx, None))


def test_gru() -> None:
    torch.manual_seed(0)
    input_gates, hidden_gates = (torch.randn(3, 15, requires_grad=True) for _ in range(2))
    hx = torch.randn(3, 5, requires_grad=True)
    biases = [torch.randn(15, requires_grad=True) for _ in range(2)]
    from_input = (input_gates + biases[0]).chunk(3, 1)
    from_hidden = (hidden_gates + biases[1]).chunk(3, 1)
    r, z = (torch.sigmoid(from_input[k] + from_hidden[k]) for k in range(2))
    n = torch.tanh(from_input[2] + r * from_hidden[2])
    hy = (1 - z) * n + z * hx
    workspace = torch.cat([r, z, n, hx, from_hidden[2]], 1).detach()
    operands = [value.detach() for value in (input_gates, hidden_gates, hx, *biases)]
    run_op(aten._thnn_fused_gru_cell.default, *operands, expected=(hy.detach(), workspace))

    grad = torch.randn(3, 5)
    expected = torch.autograd.grad(hy, (input_gates, hidden_gates, hx, *biases), grad)
    backward = aten._thnn_fused_gru_cell_backward.default
    run_op(backward, grad, workspace, True, expected=expected)
    run_op(backward, grad, workspace, False, expected=(*expected[:3], None, None))
