"""``flex_attention``: attention whose scores a user's function changes, and its backward.

The scores are computed whole. The user's functions are graphs of one score and its four indices,
batched over batch B, heads H, queries Q and keys K by ``torch.vmap``. A block mask's tables are not
looked at: they only say where its ``mask_mod`` can hold.

Shapes: query (B, H, Q, D), key (B or 1, H / G, K, D), value (B or 1, H / G, K, E), scores
(B, H, Q, K), logsumexp and row maxima (B, H, Q) in units of log 2.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from torchneuron.lowering.builder import Builder, Val
from torchneuron.lowering.errors import LoweringError
from torchneuron.lowering.interpreter import Interpreter
from torchneuron.lowering.registry import decomposition, higher_order

_LN2 = math.log(2)
# Which of the four indices each vmap runs over, from the innermost.
_INDEX_DIMS: tuple[tuple[int | None, ...], ...] = (
    (None, None, None, 0),
    (None, None, 0, None),
    (None, 0, None, None),
    (0, None, None, None),
)


@decomposition("flex_lib.zeros_and_scatter")
def zeros_and_scatter(shape: list[int], indices: list[Tensor], vals: Tensor) -> Tensor:
    """The gradient of a captured buffer that is read by index."""
    return torch.index_put(vals.new_zeros(shape), tuple(indices), vals, accumulate=True)


class _SumOverBatch(torch.autograd.Function):
    """Its argument, summed over every dimension that a vmap has hidden."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None], x: Tensor) -> tuple[Tensor, None]:
        dim = in_dims[0]
        return _sum_over_batch(x if dim is None else x.sum(dim)), None


def _sum_over_batch(x: Tensor) -> Tensor:
    total: Tensor = _SumOverBatch.apply(x)  # type: ignore[no-untyped-call]
    return total


def _batched(
    function: Callable[..., Any],
    before: tuple[int | None, ...],
    after: tuple[int | None, ...],
    out_dims: Any = 0,
) -> Callable[..., Any]:
    """``function(*before, b, h, q, k, *after)`` over whole tensors of scores where a dimension is 0,
    and the same value everywhere where it is None.
    """
    for dims in _INDEX_DIMS:
        function = torch.vmap(function, in_dims=(*before, *dims, *after), out_dims=out_dims)
    return function


def _indices(scores: Tensor) -> list[Tensor]:
    return [torch.arange(size, dtype=torch.int32, device=scores.device) for size in scores.shape]


def _mask(scores: Tensor, mask_mod: Any, buffers: Sequence[Any]) -> Tensor:
    extra = (None,) * len(buffers)
    mask: Tensor = _batched(mask_mod, (), extra)(*_indices(scores), *buffers)
    return mask


def _modified(
    scores: Tensor, score_mod: Any, mask_mod: Any, score_buffers: Any, mask_buffers: Any
) -> Tensor:
    """(B, H, Q, K) after both functions."""
    extra = (None,) * len(score_buffers)
    changed = _batched(score_mod, (0,), extra)(scores, *_indices(scores), *score_buffers)
    mask = _mask(scores, mask_mod, mask_buffers)
    return torch.where(mask, changed.to(scores.dtype), -math.inf)


def _score_gradients(
    scores: Tensor, grad: Tensor, joint: fx.GraphModule, mask_mod: Any, buffers: Any, masked: Any
) -> list[Tensor]:
    """Gradients of the scores before the functions and of the buffers that have one."""

    def gradients(*operands: Tensor) -> tuple[Tensor, ...]:
        of_score, _, _, _, _, *of_buffers = joint(*operands)
        return (of_score, *(_sum_over_batch(one) for one in of_buffers if one is not None))

    found = sum(one is not None for one in _buffer_results(joint))
    function = _batched(gradients, (0,), (0, *(None,) * len(buffers)), (0, *(None,) * found))
    of_score, *of_buffers = function(scores, *_indices(scores), grad, *buffers)
    mask = _mask(scores, mask_mod, masked)
    return [torch.where(mask, of_score, 0.0), *of_buffers]


def _precision(query: Val) -> torch.dtype:
    return torch.float64 if query.dtype is torch.float64 else torch.float32


def _for_all_queries(b: Builder, x: Val, query: Val) -> Val:
    """(B or 1, H / G, K, D) -> (B, H, K, D): each head of ``x`` serves G of the query."""
    batch, heads = query.shape[:2]
    groups = heads // x.shape[1]
    grid = (batch, x.shape[1], groups, *x.shape[2:])
    return b.reshape(b.broadcast_to(b.unsqueeze(x, 2), grid), (batch, heads, *x.shape[2:]))


def _of_all_queries(b: Builder, grad: Val, x: Val) -> Val:
    """The gradient (B, H, K, D) of what ``_for_all_queries`` made of ``x``, as one of ``x``."""
    groups = grad.shape[1] // x.shape[1]
    grid = (grad.shape[0], x.shape[1], groups, *x.shape[2:])
    total = b.reduce_sum(b.reshape(grad, grid), [2])
    if x.shape[0] != grad.shape[0]:
        total = b.reduce_sum(total, [0], keepdim=True)
    return b.convert(total, x.dtype)


def _product(b: Builder, x: Val, y: Val, dtype: torch.dtype) -> Val:
    """x @ y, accumulated in at least float32; operands of unequal dtypes are widened first."""
    if x.dtype is not y.dtype:
        x, y = b.convert(x, dtype), b.convert(y, dtype)
    return b.convert(b.matmul(x, y), dtype)


def _swap(b: Builder, x: Val) -> Val:
    return b.transpose(x, [0, 1, 3, 2])


def _raw_scores(b: Builder, query: Val, key: Val, scale: Any) -> Val:
    scores = _product(b, query, _swap(b, key), _precision(query))
    return b.mul(scores, b.scalar(scale, scores.dtype))


@higher_order("flex_attention")
def flex_attention(
    interpreter: Interpreter,
    query: Val,
    key: Val,
    value: Val,
    score_mod: fx.GraphModule,
    block_mask: Sequence[Any],
    scale: Any,
    kernel_options: dict[str, Any],
    score_mod_other_buffers: Sequence[Any] = (),
    mask_mod_other_buffers: Sequence[Any] = (),
) -> list[Val]:
    """[output, logsumexp, row maxima]; a row that is masked throughout gives zeros and -inf."""
    b = interpreter.builder
    key, value = _for_all_queries(b, key, query), _for_all_queries(b, value, query)
    raw = _raw_scores(b, query, key, scale)
    buffers = (list(score_mod_other_buffers), list(mask_mod_other_buffers))
    scores = interpreter.expand(
        "flex_attention", _modified, (raw, score_mod, block_mask[-1], *buffers), {}
    )
    highest = b.reduce_max(scores, [3])
    empty = b.eq(highest, -math.inf)
    shift = b.select(empty, 0.0, highest)
    weights = b.exp(b.sub(scores, b.unsqueeze(shift, 3)))
    total = b.select(empty, 1.0, b.reduce_sum(weights, [3]))
    weights = b.convert(b.div(weights, b.unsqueeze(total, 3)), query.dtype)
    output = _product(b, weights, b.convert(value, query.dtype), query.dtype)
    logsumexp = b.select(empty, -math.inf, b.add(b.log(total), shift))
    statistics = (b.convert(b.div(x, _LN2), torch.float32) for x in (logsumexp, highest))
    return [output, *statistics]


@higher_order("flex_attention_backward")
def flex_attention_backward(
    interpreter: Interpreter,
    query: Val,
    key: Val,
    value: Val,
    out: Val,
    logsumexp: Val,
    grad_out: Val | None,
    grad_logsumexp: Val | None,
    fw_graph: fx.GraphModule,
    joint_graph: fx.GraphModule,
    block_mask: Sequence[Any],
    scale: Any,
    kernel_options: dict[str, Any],
    score_mod_other_buffers: Sequence[Any] = (),
    mask_mod_other_buffers: Sequence[Any] = (),
) -> list[Any]:
    """[gradients of query, key and value, list of those of the score function's buffers]."""
    if not query.dtype is key.dtype is value.dtype:
        raise LoweringError("flex_attention_backward", "query, key and value of unequal dtypes")
    b, precision = interpreter.builder, _precision(query)
    buffers = (list(score_mod_other_buffers), list(mask_mod_other_buffers))
    keys, values = _for_all_queries(b, key, query), _for_all_queries(b, value, query)
    if grad_out is None:
        grad_out = b.full(out.shape, 0, out.dtype)
    raw = _raw_scores(b, query, keys, scale)
    scores = interpreter.expand(
        "flex_attention", _modified, (raw, fw_graph, block_mask[-1], *buffers), {}
    )
    total = b.mul(b.convert(logsumexp, precision), _LN2)
    empty = b.unsqueeze(b.eq(total, -math.inf), 3)
    weights = b.select(empty, 0.0, b.exp(b.sub(scores, b.unsqueeze(total, 3))))
    grad_values = _product(b, _swap(b, b.convert(weights, query.dtype)), grad_out, query.dtype)

    grad_weights = _product(b, grad_out, _swap(b, values), precision)
    wide = b.mul(b.convert(out, precision), b.convert(grad_out, precision))
    grad_weights = b.sub(grad_weights, b.reduce_sum(wide, [3], keepdim=True))
    if grad_logsumexp is not None:
        of_total = b.div(b.convert(grad_logsumexp, precision), _LN2)
        grad_weights = b.add(grad_weights, b.unsqueeze(of_total, 3))
    operands = (raw, b.mul(weights, grad_weights), joint_graph, block_mask[-1], *buffers)
    grad_scores, *of_buffers = interpreter.expand(
        "flex_attention_backward", _score_gradients, operands, {}
    )
    scaled = b.mul(grad_scores, b.scalar(scale, grad_scores.dtype))
    grad_scores = b.convert(scaled, query.dtype)
    grad_query = _product(b, grad_scores, keys, query.dtype)
    grad_keys = _product(b, _swap(b, grad_scores), query, query.dtype)
    return [
        grad_query,
        _of_all_queries(b, grad_keys, key),
        _of_all_queries(b, grad_values, value),
        _buffer_gradients(b, joint_graph, score_mod_other_buffers, of_buffers),
    ]


def _buffer_results(joint: fx.GraphModule) -> list[Any]:
    """What the joint graph gives for the buffers: None for those that have no gradient."""
    results: Any = joint.graph.output_node().args[0]
    return list(results[5:])


def _buffer_gradients(
    b: Builder, joint: fx.GraphModule, buffers: Sequence[Any], found: Sequence[Val]
) -> list[Val | None]:
    """One for each buffer: the operator promises zeros for those that have none."""
    remaining = iter(found)
    gradients: list[Val | None] = []
    for buffer, result in zip(buffers, _buffer_results(joint), strict=True):
        if not isinstance(buffer, Val):
            gradients.append(None)
        elif result is None:
            gradients.append(b.full(buffer.shape, 0, buffer.dtype))
        else:
            gradients.append(b.convert(next(remaining), buffer.dtype))
    return gradients
