"""Fused optimizer steps on lists of tensors.

Everything that depends on a step alone (bias corrections, decayed rates) is 0-d float64, as PyTorch's CPU kernels have
it; everything of a tensor's size is in the tensor's opmath dtype and rounded once. Learning rates, betas, weight decay
and the other numbers are operands. The gradient lists come back unscaled if there is a ``grad_scale``, else unchanged.
"""

from collections.abc import Sequence
from typing import Any

import torch

from torchneuron.lowering.builder import Builder, Number, Val
from torchneuron.lowering.dtypes import opmath
from torchneuron.lowering.registry import emitter, shape_rule

Arg = Val | Number
Tensors = Sequence[Val]
Metas = Sequence[torch.Tensor]

_F64 = torch.float64


def _number(b: Builder, x: Arg) -> Val:
    return b.scalar(x, _F64)


def _flag(b: Builder, found_inf: Val | None) -> Val | None:
    """0-d bool: the step is skipped."""
    return None if found_inf is None else b.eq(b.scalar(found_inf, torch.float32), 1.0)


def _store(b: Builder, skip: Val | None, old: Val, new: Val) -> Val:
    """``new`` in ``old``'s dtype, or ``old`` where the step is skipped."""
    rounded = b.convert(new, old.dtype)
    return rounded if skip is None else b.select(skip, old, rounded)


def _gradient(b: Builder, grad: Val, grad_scale: Val | None) -> Val:
    """The unscaled gradient in opmath."""
    value = b.convert(grad, opmath(grad.dtype))
    return value if grad_scale is None else b.div(value, b.scalar(grad_scale, value.dtype))


def _decayed(b: Builder, grad: Val, param: Val, weight_decay: Arg) -> Val:
    """``grad`` plus the gradient of the weights' L2 norm; without decay infinite weights must not matter."""
    if not isinstance(weight_decay, Val) and weight_decay == 0:
        return grad
    decay = b.scalar(weight_decay, grad.dtype)
    return b.select(b.eq(decay, 0), grad, b.add(grad, b.mul(param, decay)))


def _lerp(b: Builder, x: Val, y: Val, weight: Val) -> Val:
    """x + weight (y - x), from the nearer end."""
    gap = b.sub(y, x)
    near_y = b.sub(y, b.mul(gap, b.sub(1, weight)))
    return b.select(b.lt(b.abs(weight), 0.5), b.add(x, b.mul(gap, weight)), near_y)


# Adam and AdamW


class _Adam:
    """One step of Adam for all tensors; ``decoupled`` is AdamW's weight decay."""

    def __init__(self, b: Builder, decoupled: bool, options: dict[str, Any]):
        self._b = b
        self._decoupled = decoupled
        self._lr = _number(b, options["lr"])
        self._beta1 = _number(b, options["beta1"])
        self._beta2 = _number(b, options["beta2"])
        self._weight_decay: Arg = options["weight_decay"]
        self._eps: Arg = options["eps"]
        self._amsgrad: bool = options["amsgrad"]
        self._maximize: bool = options["maximize"]
        self._grad_scale: Val | None = options["grad_scale"]
        self._skip = _flag(b, options["found_inf"])

    def run(
        self,
        params: Tensors,
        grads: Tensors,
        means: Tensors,
        squares: Tensors,
        peaks: Tensors,
        steps: Tensors,
    ) -> tuple[list[Val], list[Val], list[Val], list[Val], list[Val]]:
        """New parameters, gradients, first and second moments, and largest second moments."""
        result: tuple[list[Val], ...] = ([], [], [], [], [])
        for index, param in enumerate(params):
            peak = peaks[index] if self._amsgrad else None
            new = self._one(param, grads[index], means[index], squares[index], peak, steps[index])
            for values, value in zip(result, new, strict=True):
                if value is not None:
                    values.append(value)
        return result  # type: ignore[return-value]

    def _one(
        self, param: Val, grad: Val, mean: Val, square: Val, peak: Val | None, step: Val
    ) -> tuple[Val, Val, Val, Val, Val | None]:
        b, dtype = self._b, opmath(param.dtype)
        unscaled = _gradient(b, grad, self._grad_scale)
        gradient = b.neg(unscaled) if self._maximize else unscaled
        weights = b.convert(param, dtype)
        if self._decoupled:
            weights = self._shrunk(weights)
        else:
            gradient = _decayed(b, gradient, weights, self._weight_decay)
        new_mean = _lerp(b, b.convert(mean, dtype), gradient, self._rest(self._beta1, dtype))
        kept = b.mul(b.convert(square, dtype), b.scalar(self._beta2, dtype))
        new_square = b.add(kept, b.mul(b.mul(gradient, gradient), self._rest(self._beta2, dtype)))
        new_peak = None if peak is None else b.max(b.convert(peak, dtype), new_square)
        rate, correction = self._rates(step, dtype)
        root = b.div(b.sqrt(new_square if new_peak is None else new_peak), correction)
        denominator = b.add(root, b.scalar(self._eps, dtype))
        new_param = b.sub(weights, b.div(b.mul(rate, new_mean), denominator))
        return (
            _store(b, self._skip, param, new_param),
            grad if self._grad_scale is None else _store(b, self._skip, grad, unscaled),
            _store(b, self._skip, mean, new_mean),
            _store(b, self._skip, square, new_square),
            None if peak is None or new_peak is None else _store(b, self._skip, peak, new_peak),
        )

    def _rest(self, beta: Val, dtype: torch.dtype) -> Val:
        return self._b.scalar(self._b.sub(1, beta), dtype)

    def _shrunk(self, weights: Val) -> Val:
        b = self._b
        if not isinstance(self._weight_decay, Val) and self._weight_decay == 0:
            return weights
        factor = b.sub(1, b.mul(self._lr, _number(b, self._weight_decay)))
        return b.mul(weights, b.scalar(factor, weights.dtype))

    def _rates(self, step: Val, dtype: torch.dtype) -> tuple[Val, Val]:
        """Step size and the root of the second moment's bias correction."""
        b = self._b
        count = _number(b, step)
        first = b.sub(1, b.pow(self._beta1, count))
        second = b.sub(1, b.pow(self._beta2, count))
        return b.scalar(b.div(self._lr, first), dtype), b.scalar(b.sqrt(second), dtype)


def _register_adam(name: str, decoupled: bool) -> None:
    @emitter(f"aten.{name}", f"aten.{name}.tensor_lr")
    def adam(
        b: Builder,
        out: Any,
        params: Tensors,
        grads: Tensors,
        exp_avgs: Tensors,
        exp_avg_sqs: Tensors,
        max_exp_avg_sqs: Tensors,
        state_steps: Tensors,
        *,
        grad_scale: Val | None = None,
        found_inf: Val | None = None,
        **options: Any,
    ) -> tuple[list[Val], ...]:
        options |= {"grad_scale": grad_scale, "found_inf": found_inf}
        step = _Adam(b, decoupled, options)
        return step.run(params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps)

    @shape_rule(f"aten.{name}", f"aten.{name}.tensor_lr")
    def shapes(*lists: Metas, **_: Any) -> tuple[list[torch.Tensor], ...]:
        return _same(*lists[:5])


def _same(*lists: Metas) -> tuple[list[torch.Tensor], ...]:
    """New tensors like the ones in the lists."""
    return tuple([torch.empty_like(tensor) for tensor in tensors] for tensors in lists)


_register_adam("_fused_adam", decoupled=False)
_register_adam("_fused_adamw", decoupled=True)


# SGD


@emitter("aten._fused_sgd", "aten._fused_sgd.tensor_lr")
def fused_sgd(
    b: Builder,
    out: Any,
    params: Tensors,
    grads: Tensors,
    momentum_buffers: Tensors,
    *,
    weight_decay: Arg,
    momentum: Arg,
    lr: Arg,
    dampening: Arg,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: Val | None = None,
    found_inf: Val | None = None,
) -> tuple[list[Val], list[Val], list[Val]]:
    skip = _flag(b, found_inf)
    new_params, new_grads, new_buffers = [], [], []
    for index, (param, grad) in enumerate(zip(params, grads, strict=True)):
        dtype = opmath(param.dtype)
        unscaled = _gradient(b, grad, grad_scale)
        weights = b.convert(param, dtype)
        gradient = _decayed(b, b.neg(unscaled) if maximize else unscaled, weights, weight_decay)
        if momentum_buffers:
            buffer = momentum_buffers[index]
            speed = gradient
            if not is_first_step:
                kept = b.mul(b.convert(buffer, dtype), b.scalar(momentum, dtype))
                rest = b.scalar(b.sub(1, _number(b, dampening)), dtype)
                speed = b.add(kept, b.mul(gradient, rest))
            new_buffers.append(_store(b, skip, buffer, speed))
            gradient = (
                b.add(gradient, b.mul(speed, b.scalar(momentum, dtype))) if nesterov else speed
            )
        new_params.append(
            _store(b, skip, param, b.sub(weights, b.mul(gradient, b.scalar(lr, dtype))))
        )
        new_grads.append(grad if grad_scale is None else _store(b, skip, grad, unscaled))
    return new_params, new_grads, new_buffers


@shape_rule("aten._fused_sgd", "aten._fused_sgd.tensor_lr")
def _sgd_shapes(*lists: Metas, **_: Any) -> tuple[list[torch.Tensor], ...]:
    return _same(*lists)


# Adagrad


@emitter("aten._fused_adagrad", "aten._fused_adagrad.tensor_lr")
def fused_adagrad(
    b: Builder,
    out: Any,
    params: Tensors,
    grads: Tensors,
    state_sums: Tensors,
    state_steps: Tensors,
    *,
    lr: Arg,
    lr_decay: Arg,
    weight_decay: Arg,
    eps: Arg,
    maximize: bool,
    grad_scale: Val | None = None,
    found_inf: Val | None = None,
) -> tuple[list[Val], ...]:
    skip = _flag(b, found_inf)
    new_params, new_grads, new_sums = [], [], []
    for param, grad, state, step in zip(params, grads, state_sums, state_steps, strict=True):
        dtype = opmath(param.dtype)
        unscaled = _gradient(b, grad, grad_scale)
        weights = b.convert(param, dtype)
        gradient = _decayed(b, b.neg(unscaled) if maximize else unscaled, weights, weight_decay)
        total = b.add(b.convert(state, dtype), b.mul(gradient, gradient))
        slowed = b.add(1, b.mul(b.sub(_number(b, step), 1), _number(b, lr_decay)))
        rate = b.scalar(b.div(_number(b, lr), slowed), dtype)
        scale = b.add(b.sqrt(total), b.scalar(eps, dtype))
        new_params.append(
            _store(b, skip, param, b.sub(weights, b.div(b.mul(gradient, rate), scale)))
        )
        new_grads.append(grad if grad_scale is None else _store(b, skip, grad, unscaled))
        new_sums.append(_store(b, skip, state, total))
    results = (new_params, new_grads, new_sums)
    return results if len(out) == 3 else (*results, list(state_steps))


@shape_rule("aten._fused_adagrad")
def _adagrad_shapes(*lists: Metas, **_: Any) -> tuple[list[torch.Tensor], ...]:
    return _same(*lists)


@shape_rule("aten._fused_adagrad.tensor_lr")
def _adagrad_tensor_lr_shapes(*lists: Metas, **_: Any) -> tuple[list[torch.Tensor], ...]:
    return _same(*lists[:3])
