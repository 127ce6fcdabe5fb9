"""Layers of LSTM, GRU and Elman networks: one program with a loop over time.

What does not depend on the step before is one matrix product outside the loop: the input's share of
the gates, and the gradients of the input and of the weights. Sizes: T steps, B batch, I input, H
hidden, G gates with a row of the weights each. The layers' gates are saved for the gradient in the
dtype of the input, the cells' states, which are never rounded, in the dtype of the arithmetic.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torchneuron.lowering.builder import Builder, Val
from torchneuron.lowering.dtypes import opmath
from torchneuron.lowering.emitting import finish
from torchneuron.lowering.registry import emitter

State = dict[str, Val]


@dataclass(frozen=True)
class _Cell:
    """One step and its gradient; all values are of the dtype of the arithmetic.

    ``forward(b, from_input, from_hidden, h, c)`` takes the shares of the gates (B, G * H) and gives
    (h, c, saved gates), c and the saved ones None if the cell has none. ``backward(b, grad_h,
    grad_c, step)`` gives (gradient of the input's gates, of the hidden gates, direct gradient of
    the last h, of the last c); ``step`` has the step's "saved", "h", "before" (the last h), "c" and
    "c_before".
    """

    forward: Callable[..., tuple[Val, Val | None, Val | None]]
    backward: Callable[..., tuple[Val, Val, Val | None, Val | None]]
    # Whether the gradients of the two shares differ.
    splits: bool = False


def _parts(b: Builder, x: Val, count: int) -> list[Val]:
    """The last dimension in ``count`` equal parts."""
    size = x.shape[-1] // count
    return [b.slice_dim(x, x.ndim - 1, i * size, (i + 1) * size) for i in range(count)]


def _sigmoid_slope(b: Builder, y: Val) -> Val:
    return b.mul(b.sub(1, y), y)


def _tanh_slope(b: Builder, y: Val) -> Val:
    return b.sub(1, b.mul(y, y))


def _lstm(b: Builder, from_input: Val, from_hidden: Val, h: Val, c: Val) -> tuple[Val, Val, Val]:
    i, f, g, o = _parts(b, b.add(from_input, from_hidden), 4)
    i, f, g, o = b.logistic(i), b.logistic(f), b.tanh(g), b.logistic(o)
    c = b.add(b.mul(f, c), b.mul(i, g))
    return b.mul(o, b.tanh(c)), c, b.concat([i, f, g, o], 1)


def _lstm_gradient(b: Builder, grad_h: Val, grad_c: Val, step: State) -> tuple[Val, Val, None, Val]:
    i, f, g, o = _parts(b, step["saved"], 4)
    state = b.tanh(step["c"])
    to_state = b.add(grad_c, b.mul(b.mul(grad_h, o), _tanh_slope(b, state)))
    gates = b.concat(
        [
            b.mul(b.mul(to_state, g), _sigmoid_slope(b, i)),
            b.mul(b.mul(to_state, step["c_before"]), _sigmoid_slope(b, f)),
            b.mul(b.mul(to_state, i), _tanh_slope(b, g)),
            b.mul(b.mul(grad_h, state), _sigmoid_slope(b, o)),
        ],
        1,
    )
    return gates, gates, None, b.mul(to_state, f)


def _gru(b: Builder, from_input: Val, from_hidden: Val, h: Val, c: None) -> tuple[Val, None, Val]:
    inputs, hiddens = _parts(b, from_input, 3), _parts(b, from_hidden, 3)
    r, z = (b.logistic(b.add(inputs[k], hiddens[k])) for k in range(2))
    n = b.tanh(b.add(inputs[2], b.mul(r, hiddens[2])))
    return b.add(n, b.mul(z, b.sub(h, n))), None, b.concat([r, z, n, hiddens[2]], 1)


def _gru_gradient(b: Builder, grad_h: Val, grad_c: None, step: State) -> tuple[Val, Val, Val, None]:
    r, z, n, hidden = _parts(b, step["saved"], 4)
    to_z = b.mul(b.mul(grad_h, b.sub(step["before"], n)), _sigmoid_slope(b, z))
    to_n = b.mul(b.mul(grad_h, b.sub(1, z)), _tanh_slope(b, n))
    to_r = b.mul(b.mul(to_n, hidden), _sigmoid_slope(b, r))
    from_input = b.concat([to_r, to_z, to_n], 1)
    from_hidden = b.concat([to_r, to_z, b.mul(to_n, r)], 1)
    return from_input, from_hidden, b.mul(grad_h, z), None


def _elman(
    activation: Callable[[Builder, Val], Val], slope: Callable[[Builder, Val], Val]
) -> _Cell:
    def forward(
        b: Builder, from_input: Val, from_hidden: Val, h: Val, c: None
    ) -> tuple[Val, None, None]:
        return activation(b, b.add(from_input, from_hidden)), None, None

    def backward(b: Builder, grad_h: Val, grad_c: None, step: State) -> tuple[Val, Val, None, None]:
        gates = b.mul(grad_h, slope(b, step["h"]))
        return gates, gates, None, None

    return _Cell(forward, backward)


_CELLS = {
    "lstm": _Cell(_lstm, _lstm_gradient),
    "gru": _Cell(_gru, _gru_gradient, splits=True),
    "rnn_tanh": _elman(lambda b, x: b.tanh(x), _tanh_slope),
    "rnn_relu": _elman(lambda b, x: b.max(x, 0), lambda b, y: b.convert(b.gt(y, 0), y.dtype)),
}


# Loops


def _at(b: Builder, x: Val, t: Val) -> Val:
    """Step ``t`` of (T, ...)."""
    rest = x.shape[1:]
    return b.reshape(b.dynamic_slice(x, [t, *[0] * len(rest)], [1, *rest]), rest)


def _put(b: Builder, x: Val, t: Val, value: Val) -> Val:
    """``x`` (T, ...) with ``value`` as step ``t``."""
    update = b.reshape(b.convert(value, x.dtype), (1, *value.shape))
    return b.dynamic_update_slice(x, update, [t, *[0] * value.ndim])


def _loop(
    b: Builder, steps: int, backwards: bool, state: State, body: Callable[[Val, State], None]
) -> State:
    """``body(t, state)`` changes the state, for each step in turn."""
    names = list(state)

    def step(i: Val, *values: Val) -> list[Val]:
        current = dict(zip(names, values, strict=True))
        body(b.sub(steps - 1, i) if backwards else i, current)
        return [current[name] for name in names]

    return dict(zip(names, b.for_(steps, list(state.values()), step), strict=True))


def _zeros(b: Builder, like: torch.Tensor, dtype: torch.dtype) -> Val:
    return b.full(tuple(like.shape), 0, dtype)


@emitter("torchneuron.recurrent_layer")
def recurrent_layer(
    b: Builder,
    out: Any,
    x: Val,
    h0: Val,
    c0: Val | None,
    w_ih: Val,
    w_hh: Val,
    b_ih: Val | None,
    b_hh: Val | None,
    cell: str,
    reverse: bool,
    save: bool,
) -> list[Val]:
    """(y, h, c, gates, cells) of x (T, B, I), h0 and c0 (B, H), w_ih (G * H, I), w_hh (G * H, H)."""
    (steps, batch, size), dtype = x.shape, opmath(x.dtype)
    from_input = b.matmul(b.reshape(x, (steps * batch, size)), b.transpose(w_ih, [1, 0]))
    if b_ih is not None:
        from_input = b.add(from_input, b.convert(b_ih, dtype))
    state = {
        "h": h0,
        "y": _zeros(b, out[0], x.dtype),
        "from_input": b.reshape(from_input, (steps, batch, w_ih.shape[0])),
        "w": b.transpose(w_hh, [1, 0]),
    }
    if b_hh is not None:
        state["bias"] = b.convert(b_hh, dtype)
    if c0 is not None:
        state["c"] = b.convert(c0, dtype)
    saves_gates, saves_cells = out[3].numel() > 0, out[4].numel() > 0
    if saves_gates:
        state["gates"] = _zeros(b, out[3], out[3].dtype)
    if saves_cells:
        state["cells"] = _zeros(b, out[4], dtype)

    def step(t: Val, now: State) -> None:
        from_hidden = b.matmul(now["h"], now["w"])
        if "bias" in now:
            from_hidden = b.add(from_hidden, now["bias"])
        before = b.convert(now["h"], dtype)
        shares = (_at(b, now["from_input"], t), from_hidden)
        h, c, saved = _CELLS[cell].forward(b, *shares, before, now.get("c"))
        now["h"] = b.convert(h, x.dtype)
        now["y"] = _put(b, now["y"], t, h)
        if c is not None:
            now["c"] = c
        if saves_gates and saved is not None:
            now["gates"] = _put(b, now["gates"], t, saved)
        if saves_cells and c is not None:
            now["cells"] = _put(b, now["cells"], t, c)

    last = _loop(b, steps, reverse, state, step)
    none = b.full((0,), 0, dtype)
    return [
        finish(b, last.get(name, none), like)
        for name, like in zip(("y", "h", "c", "gates", "cells"), out, strict=True)
    ]


def _before(b: Builder, first: Val, states: Val, reverse: bool) -> Val:
    """What each step starts from: the state after the step before it, ``first`` for the first one."""
    steps, first = states.shape[0], b.unsqueeze(b.convert(first, states.dtype), 0)
    if reverse:
        return b.concat([b.slice_dim(states, 0, 1, steps), first], 0)
    return b.concat([first, b.slice_dim(states, 0, 0, steps - 1)], 0)


def _gate_gradients(
    b: Builder, cell: _Cell, reverse: bool, state: State, per_step: Sequence[str]
) -> State:
    """``state`` after the loop that fills "from_input" and "from_hidden", the gates' gradients."""
    dtype = state["grad_h"].dtype

    def step(t: Val, now: State) -> None:
        values = {name: b.convert(_at(b, now[name], t), dtype) for name in per_step}
        grad_h = now["grad_h"]
        if "grad_y" in values:
            grad_h = b.add(grad_h, values["grad_y"])
        from_input, from_hidden, direct, grad_c = cell.backward(
            b, grad_h, now.get("grad_c"), values
        )
        now["from_input"] = _put(b, now["from_input"], t, from_input)
        if cell.splits:
            now["from_hidden"] = _put(b, now["from_hidden"], t, from_hidden)
        w = now["w"]
        grad_h = b.matmul(b.convert(from_hidden, w.dtype), w)
        now["grad_h"] = grad_h if direct is None else b.add(grad_h, direct)
        if grad_c is not None:
            now["grad_c"] = grad_c

    return _loop(b, state["h"].shape[0], not reverse, state, step)


@emitter("torchneuron.recurrent_layer_backward")
def recurrent_layer_backward(
    b: Builder,
    out: Any,
    grad_y: Val | None,
    grad_h: Val | None,
    grad_c: Val | None,
    x: Val,
    h0: Val,
    c0: Val | None,
    w_ih: Val,
    w_hh: Val,
    y: Val,
    gates: Val,
    cells: Val,
    cell: str,
    reverse: bool,
    has_biases: bool,
    wants_input: bool,
) -> list[Val]:
    """Gradients of x, h0, c0, w_ih, w_hh, b_ih and b_hh."""
    steps, batch, dtype = *x.shape[:2], opmath(x.dtype)
    rows = w_hh.shape[0]
    start = b.full(h0.shape, 0, dtype)
    before = _before(b, h0, y, reverse)
    state = {
        "grad_h": start if grad_h is None else b.convert(grad_h, dtype),
        "from_input": b.full((steps, batch, rows), 0, x.dtype),
        "w": w_hh,
    }
    if _CELLS[cell].splits:
        state["from_hidden"] = state["from_input"]
    per_step = {"h": y, "before": before}
    if grad_y is not None:
        per_step["grad_y"] = grad_y
    if gates.numel:
        per_step["saved"] = gates
    if c0 is not None:
        state["grad_c"] = start if grad_c is None else b.convert(grad_c, dtype)
        per_step |= {"c": cells, "c_before": _before(b, c0, cells, reverse)}
    last = _gate_gradients(b, _CELLS[cell], reverse, state | per_step, list(per_step))

    def flat(value: Val) -> Val:
        return b.reshape(value, (steps * batch, value.shape[-1]))

    from_input = flat(last["from_input"])
    from_hidden = flat(last["from_hidden"]) if _CELLS[cell].splits else from_input
    turned = [b.transpose(value, [1, 0]) for value in (from_input, from_hidden)]
    none = b.full((0,), 0, dtype)
    to_input = b.reshape(b.matmul(from_input, w_ih), x.shape) if wants_input else none
    biases = [
        b.reduce_sum(b.convert(value, dtype), [0]) if has_biases else none
        for value in (from_input, from_hidden)
    ]
    weights = [b.matmul(turned[0], flat(x)), b.matmul(turned[1], flat(before))]
    results = [to_input, last["grad_h"], last.get("grad_c", none), *weights, *biases]
    return [finish(b, value, like) for value, like in zip(results, out, strict=True)]
