"""The steps of SyncBatchNorm put together, with the batch in two parts, against one batch normalization."""

import torch

from tests.lowering.harness import lowers, run_op

aten = torch.ops.aten


def _run(op: torch._ops.OpOverload, *args: object, expected: object) -> object:
    """The op's result; `expected` is compared with and gives the shapes."""
    return run_op(op, *args, expected=expected, rtol=1e-4, atol=1e-5)


def test_two_parts_make_one_batch() -> None:
    torch.manual_seed(0)
    whole = torch.randn(5, 3, 4) + 1
    parts, counts = [whole[:2], whole[2:]], torch.tensor([8, 12], dtype=torch.int32)
    weight, bias = torch.rand(3), torch.rand(3)
    stats = []
    for part in parts:
        mean = part.mean((0, 2))
        inverse = (part.var((0, 2), correction=0) + 1e-5).rsqrt()
        stats.append(_run(aten.batch_norm_stats.default, part, 1e-5, expected=(mean, inverse)))
    means, inverses = (torch.stack([s[k] for s in stats]) for k in range(2))
    mean, inverse = whole.mean((0, 2)), (whole.var((0, 2), correction=0) + 1e-5).rsqrt()
    gathered = (parts[0], means, inverses, None, None, 0.1, 1e-5, counts.float())
    _run(aten.batch_norm_gather_stats_with_counts.default, *gathered, expected=(mean, inverse))

    x, w, c = (t.clone().requires_grad_() for t in (whole, weight, bias))
    result = torch.nn.functional.batch_norm(x, None, None, w, c, training=True)
    normalized = (parts[1], weight, bias, mean, inverse, 1e-5)
    _run(aten.batch_norm_elemt.default, *normalized, expected=result.detach()[2:])

    grad = torch.randn_like(result)
    to_x, to_w, to_c = torch.autograd.grad(result, (x, w, c), grad)
    sums = (grad.sum((0, 2)), (grad * (whole - mean.view(3, 1))).sum((0, 2)))
    reduced = (grad, whole, mean, inverse, weight, True, True, True)
    _run(aten.batch_norm_backward_reduce.default, *reduced, expected=(*sums, to_w, to_c))
    last = (grad[:2], parts[0], mean, inverse, weight, *sums, counts)
    _run(aten.batch_norm_backward_elemt.default, *last, expected=to_x[:2])


def test_running_statistics_are_refused() -> None:
    x, stats = torch.randn(2, 3, 4), torch.rand(2, 3)
    running = torch.zeros(3)
    arguments = (x, stats, stats, running, running, 0.1, 1e-5, torch.ones(2))
    op = aten.batch_norm_gather_stats_with_counts.default
    assert not lowers(lambda: run_op(op, *arguments, expected=(running, running)))
