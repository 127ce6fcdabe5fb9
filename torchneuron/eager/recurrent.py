"""LSTM, GRU and Elman layers as one program per layer and direction, forward and backward.

PyTorch composes ``aten::lstm`` and its like of a few ops for each step. Here each layer is an op of
its own, with a loop over time in its program. What that op does not cover (packed sequences,
projections, tensor subclasses, function transforms) takes PyTorch's way.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from torchneuron._untraced import untraced

_DEVICE = "neuron"
_NAMESPACE = "torchneuron"
_SCHEMAS = (
    "recurrent_layer(Tensor x, Tensor h0, Tensor? c0, Tensor w_ih, Tensor w_hh, Tensor? b_ih, "
    "Tensor? b_hh, str cell, bool reverse, bool save) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    "recurrent_layer_backward(Tensor? grad_y, Tensor? grad_h, Tensor? grad_c, Tensor x, Tensor h0, "
    "Tensor? c0, Tensor w_ih, Tensor w_hh, Tensor y, Tensor gates, Tensor cells, str cell, "
    "bool reverse, bool has_biases, bool wants_input) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)
# Rows of the weights per hidden unit.
_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
# Numbers per hidden unit and step that the gradient needs besides the results.
_SAVED = {"lstm": 4, "gru": 4, "rnn_tanh": 0, "rnn_relu": 0}
_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)

_libraries: list[torch.library.Library] = []


# Shapes


def _layer_shapes(
    x: Tensor,
    h0: Tensor,
    c0: Tensor | None,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    cell: str,
    reverse: bool,
    save: bool,
) -> tuple[Tensor, ...]:
    steps, batch, hidden = x.shape[0], x.shape[1], h0.shape[1]
    # As in sums, cells keep more digits than the dtype of the results.
    wide = torch.float64 if x.dtype is torch.float64 else torch.float32
    saved = _SAVED[cell] if save else 0
    gates = x.new_empty((steps, batch, saved * hidden) if saved else (0,))
    keeps_cells = save and c0 is not None
    cells = x.new_empty((steps, batch, hidden) if keeps_cells else (0,), dtype=wide)
    c = torch.empty_like(h0) if c0 is not None else h0.new_empty((0,))
    return x.new_empty((steps, batch, hidden)), torch.empty_like(h0), c, gates, cells


def _gradient_shapes(
    grad_y: Tensor | None,
    grad_h: Tensor | None,
    grad_c: Tensor | None,
    x: Tensor,
    h0: Tensor,
    c0: Tensor | None,
    w_ih: Tensor,
    w_hh: Tensor,
    y: Tensor,
    gates: Tensor,
    cells: Tensor,
    cell: str,
    reverse: bool,
    has_biases: bool,
    wants_input: bool,
) -> tuple[Tensor, ...]:
    rows = (w_hh.shape[0] if has_biases else 0,)
    return (
        x.new_empty(x.shape if wants_input else (0,)),
        h0.new_empty(h0.shape),
        h0.new_empty(h0.shape if c0 is not None else (0,)),
        w_ih.new_empty(w_ih.shape),
        w_hh.new_empty(w_hh.shape),
        w_hh.new_empty(rows),
        w_hh.new_empty(rows),
    )


# Gradients


@untraced
def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, h0, c0, w_ih, w_hh, b_ih, b_hh, cell, reverse, _ = inputs
    y, _, _, gates, cells = output
    ctx.save_for_backward(x, h0, c0, w_ih, w_hh, b_ih, b_hh, y, gates, cells)
    ctx.mark_non_differentiable(gates, cells)
    ctx.set_materialize_grads(False)
    ctx.cell, ctx.reverse = cell, reverse


@untraced
def _backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    x, h0, c0, w_ih, w_hh, b_ih, b_hh, y, gates, cells = ctx.saved_tensors
    to_outputs = grads[:3]
    inputs = [x, h0, c0, w_ih, w_hh, b_ih, b_hh]
    if torch.is_grad_enabled():
        # The gradient's own gradient: PyTorch's ops have one.
        found = _differentiable_gradients(inputs, ctx.cell, ctx.reverse, to_outputs)
        return (*found, None, None, None)
    has_biases, wants_input = b_ih is not None, ctx.needs_input_grad[0]
    saved = (x, h0, c0, w_ih, w_hh, y, gates, cells)
    results = torch.ops.torchneuron.recurrent_layer_backward(
        *to_outputs, *saved, ctx.cell, ctx.reverse, has_biases, wants_input
    )
    asked = zip(results, ctx.needs_input_grad[:7], strict=True)
    return (*(grad if wanted else None for grad, wanted in asked), None, None, None)


def _differentiable_gradients(
    inputs: Sequence[Tensor | None],
    cell: str,
    reverse: bool,
    grads: Sequence[Tensor | None],
) -> list[Tensor | None]:
    """Gradients of the inputs that can be differentiated again."""
    # Aliases, so that what one input owes to another one is not counted.
    aliases = [None if value is None else value.view_as(value) for value in inputs]
    outputs = _by_steps(aliases, cell, reverse)
    wanted = [(y, g) for y, g in zip(outputs, grads, strict=False) if g is not None]
    sources = [alias for alias in aliases if alias is not None and alias.requires_grad]
    found = torch.autograd.grad(
        [y for y, _ in wanted],
        sources,
        [g for _, g in wanted],
        create_graph=True,
        allow_unused=True,
    )
    remaining = iter(found)
    return [
        next(remaining) if alias is not None and alias.requires_grad else None for alias in aliases
    ]


def _by_steps(inputs: Sequence[Tensor | None], cell: str, reverse: bool) -> list[Tensor]:
    """The layer's (y, h, c) in PyTorch's own way; (y, h) if the cell has no c."""
    x, h0, c0, *weights = inputs
    assert x is not None
    assert h0 is not None
    state: Any = h0.unsqueeze(0) if c0 is None else [h0.unsqueeze(0), c0.unsqueeze(0)]
    params = [weight for weight in weights if weight is not None]
    options = (len(params) == 4, 1, 0.0, False, False, False)
    results = _compose(cell, x.flip(0) if reverse else x, state, params, *options)
    y = results[0].flip(0) if reverse else results[0]
    return [y, *(last.squeeze(0) for last in results[1:])]


def _compose(cell: str, *args: Any) -> tuple[Tensor, ...]:
    """PyTorch's own composition of the layers."""
    op = getattr(torch.ops.aten, cell).input
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    results: tuple[Tensor, ...] = op._op_dk(key, *args)
    return results


# Dispatch


def _is_plain(value: Tensor) -> bool:
    """No subclass but those of PyTorch's tracers, which any op may meet."""
    kind = type(value)
    if kind is Tensor or kind is torch.nn.Parameter:
        return True
    from torch._subclasses.fake_tensor import FakeTensor
    from torch._subclasses.functional_tensor import FunctionalTensor

    return kind is FakeTensor or kind is FunctionalTensor


def _covers(
    cell: str, x: Tensor, states: Sequence[Tensor], params: Sequence[Tensor], layout: "_Layout"
) -> bool:
    """Whether the layers' op takes these operands; wrong ones go where PyTorch says what is wrong."""
    tensors = [x, *states, *params]
    if torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
        return False
    if not all(_is_plain(value) for value in tensors):
        return False
    if any(value.dtype != x.dtype or value.device != x.device for value in tensors):
        return False
    if x.dtype not in _DTYPES or x.dim() != 3 or x.numel() == 0:
        return False
    if len(states) != (2 if cell == "lstm" else 1) or states[0].dim() != 3:
        return False
    batch, hidden = x.shape[1], states[0].shape[2]
    shape = (layout.layers * layout.directions, batch, hidden)
    if hidden == 0 or any(tuple(state.shape) != shape for state in states):
        return False
    expected = layout.weight_shapes(x.shape[2], hidden, _GATES[cell])
    return [tuple(value.shape) for value in params] == expected


class _Layout:
    """How the layers' weights follow one another in the list of parameters."""

    def __init__(self, layers: int, bidirectional: bool, has_biases: bool):
        self.layers, self.directions = layers, 2 if bidirectional else 1
        self._has_biases = has_biases

    def weight_shapes(self, size: int, hidden: int, gates: int) -> list[tuple[int, ...]]:
        rows = gates * hidden
        shapes: list[tuple[int, ...]] = []
        for layer in range(self.layers):
            columns = hidden * self.directions if layer else size
            one: list[tuple[int, ...]] = [(rows, columns), (rows, hidden)]
            shapes += (one + [(rows,)] * 2 * self._has_biases) * self.directions
        return shapes

    def weights(self, params: Sequence[Tensor], index: int) -> list[Tensor | None]:
        """(w_ih, w_hh, b_ih, b_hh) of one layer and direction."""
        count = 4 if self._has_biases else 2
        found: list[Tensor | None] = list(params[index * count : (index + 1) * count])
        return [*found, *[None] * (4 - count)]


def _autocast(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The operands in autocast's dtype, as for the layers of other devices."""
    dtype = torch.get_autocast_dtype(_DEVICE)
    return [
        value.to(dtype) if value.is_floating_point() and value.dtype is not torch.float64 else value
        for value in tensors
    ]


def _run(
    cell: str,
    x: Tensor,
    states: Sequence[Tensor],
    params: Sequence[Tensor],
    layout: _Layout,
    dropout: float,
) -> tuple[Tensor, list[Tensor]]:
    """(y, last states) of x (T, B, I) through all layers."""
    tensors = [x, *states, *params]
    save = torch.is_grad_enabled() and any(value.requires_grad for value in tensors)
    initial = [state.unbind(0) for state in states]
    last: list[list[Tensor]] = [[] for _ in states]
    for layer in range(layout.layers):
        ys = []
        for direction in range(layout.directions):
            index = layer * layout.directions + direction
            starts = [state[index] for state in initial]
            y, h, c, *_ = torch.ops.torchneuron.recurrent_layer(
                x,
                *(starts if cell == "lstm" else [*starts, None]),
                *layout.weights(params, index),
                cell,
                direction == 1,
                save,
            )
            ys.append(y)
            for results, value in zip(last, (h, c), strict=False):
                results.append(value)
        x = ys[0] if len(ys) == 1 else torch.cat(ys, -1)
        if dropout > 0 and layer < layout.layers - 1:
            x = torch.nn.functional.dropout(x, dropout)
    return x, [torch.stack(values) for values in last]


@untraced
def _layers(
    cell: str,
    x: Tensor,
    hx: Any,
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    """``aten::lstm.input``, ``gru.input``, ``rnn_tanh.input`` and ``rnn_relu.input``."""
    layout = _Layout(num_layers, bidirectional, has_biases)
    states = [hx] if isinstance(hx, Tensor) else list(hx)
    operands = [x, *states, *params]
    if torch.is_autocast_enabled(_DEVICE):
        operands = _autocast(operands)
    x_, states_, params_ = operands[0], operands[1 : 1 + len(states)], operands[1 + len(states) :]
    steps_first = x_.transpose(0, 1) if batch_first and x_.dim() == 3 else x_
    if not _covers(cell, steps_first, states_, params_, layout):
        options = (has_biases, num_layers, dropout, train, bidirectional, batch_first)
        return _compose(cell, x, hx, params, *options)
    rate = dropout if train else 0.0
    y, last = _run(cell, steps_first, states_, params_, layout, rate)
    return (y.transpose(0, 1) if batch_first else y, *last)


def register() -> None:
    """Define the layers' ops and let ``aten::lstm.input`` and its like use them on the device."""
    own = torch.library.Library(_NAMESPACE, "DEF")  # type: ignore[no-untyped-call]
    for schema in _SCHEMAS:
        own.define(schema)  # type: ignore[no-untyped-call]
    for name, shapes in (
        ("recurrent_layer", _layer_shapes),
        ("recurrent_layer_backward", _gradient_shapes),
    ):
        own.impl(name, shapes, "Meta")  # type: ignore[no-untyped-call]
    torch.library.register_autograd(
        f"{_NAMESPACE}::recurrent_layer", _backward, setup_context=_save, lib=own
    )
    aten = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    for cell in _GATES:
        function: Callable[..., Any] = partial(_layers, cell)
        for key in ("AutogradPrivateUse1", "PrivateUse1"):
            aten.impl(f"{cell}.input", function, key)  # type: ignore[no-untyped-call]
    # A library takes its registrations along when it goes.
    _libraries.extend((own, aten))
