"""Higher-order operators under `torch.compile(backend="neuron", fullgraph=True)`, forward and backward."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops import map as hop_map
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

DEVICE = "neuron"


def leaf(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).requires_grad_()


def on_device(value: Any) -> Any:
    def move(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().to(DEVICE).requires_grad_(tensor.requires_grad)

    return pytree.tree_map_only(torch.Tensor, move, value)


def gradients(result: Any, inputs: Any) -> list[torch.Tensor | None]:
    wanted = [x for x in pytree.tree_leaves(inputs) if isinstance(x, torch.Tensor)]
    outputs = [x for x in pytree.tree_leaves(result) if isinstance(x, torch.Tensor)]
    loss = sum((x * x).sum() for x in outputs if x.requires_grad)
    return list(torch.autograd.grad(loss, [x for x in wanted if x.requires_grad]))


def check(function: Callable[..., Any], *inputs: Any, reference: Any = None) -> None:
    """Compare with the function on the CPU, gradients too."""
    run = torch.compile(function, backend="neuron", fullgraph=True)
    expected = (reference or function)(*inputs)
    device_inputs = on_device(inputs)
    result = run(*device_inputs)
    compare(result, expected)
    if any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs):
        compare(gradients(result, device_inputs), gradients(expected, inputs))


def compare(found: Any, expected: Any) -> None:
    for one, other in zip(pytree.tree_leaves(found), pytree.tree_leaves(expected), strict=True):
        if isinstance(other, torch.Tensor):
            assert one.device.type == DEVICE
            torch.testing.assert_close(one.cpu(), other)
        else:
            assert one == other


@pytest.mark.parametrize("sign", [1, -1])
def test_cond(sign: int) -> None:
    def inner(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.cond(b.sum() > 0, lambda a: a * 2, lambda a: a.exp(), (a,))

    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        return torch.cond(
            x.sum() * sign > 0,
            lambda a, b: (a.sin() * b, inner(a, b)),
            lambda a, b: (a.cos() - b, a * 2),
            (x, y),
        )

    check(function, leaf(3, 4), leaf(3, 4, seed=1))


def test_cond_that_writes_a_buffer() -> None:
    def function(x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        def write(x: torch.Tensor) -> torch.Tensor:
            cache[1].add_(x.sum(0))
            return x + cache

        return torch.cond(x.sum() > 0, write, lambda x: x - cache, (x,))

    run = torch.compile(function, backend="neuron", fullgraph=True)
    for value in (1.0, -1.0):
        x, cache = torch.full((2, 3), value), torch.randn(2, 3)
        on_neuron = cache.to(DEVICE)
        with torch.no_grad():
            result = run(x.to(DEVICE), on_neuron)
            expected = function(x, cache)
        compare(result, expected)
        compare(on_neuron, cache)


def test_while_loop() -> None:
    def function(i: torch.Tensor, x: torch.Tensor) -> Any:
        return while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 1.5 + i), (i, x))

    for start in (0, 9):
        check(function, torch.tensor(start), torch.randn(3))


def test_while_loop_that_carries_numbers_and_gives_one() -> None:
    def function(x: torch.Tensor) -> Any:
        def body(i: int, x: torch.Tensor) -> Any:
            y = x * 2
            y[i] = x[i] + i
            return i + 1, y

        count, x = while_loop(lambda i, x: i < 3, body, (0, x))
        return count, x + count

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        check(function, torch.randn(5, 2))


def test_gradient_of_while_loop() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        i = torch.zeros((), dtype=torch.int64, device=x.device)
        return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, torch.tanh(x @ w)), (i, x))[1]

    def reference(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = torch.tanh(x @ w)
        return x

    check(function, leaf(2, 3), leaf(3, 3, seed=1), reference=reference)


@pytest.mark.parametrize("steps", [0, 1, 16, 17, 100])
def test_gradient_of_while_loop_runs_as_programs(steps: int) -> None:
    """However many steps: each program holds some, and the next goes on."""

    def function(x: torch.Tensor, w: torch.Tensor, limit: torch.Tensor) -> torch.Tensor:
        i = torch.zeros((), dtype=torch.int64, device=x.device)
        return while_loop(lambda i, x: i < limit, lambda i, x: (i + 1, (x @ w).sin()), (i, x))[1]

    torch.manual_seed(0)
    x, w = torch.randn(2, 3, requires_grad=True), torch.eye(3).mul_(0.99).requires_grad_()
    y, v = (t.detach().to("neuron").requires_grad_() for t in (x, w))
    expected = x
    for _ in range(steps):
        expected = (expected @ w).sin()
    compiled = torch.compile(function, backend="neuron", fullgraph=True)
    torch.neuron.reset_metrics()
    actual = compiled(y, v, torch.tensor(steps, device="neuron"))
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-5)
    # PyTorch's formula takes a loop of no step for one of one step; for all backends.
    if steps:
        expected.sum().backward()
        actual.sum().backward()
        torch.testing.assert_close(y.grad.cpu(), x.grad, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(v.grad.cpu(), w.grad, rtol=1e-4, atol=1e-5)
    # What the steps add one by one is far less than an operation a step.
    assert torch.neuron.metrics()["executions"] < 60


def test_scan() -> None:
    def function(h: torch.Tensor, xs: torch.Tensor, weight: torch.Tensor) -> Any:
        def step(h: torch.Tensor, x: torch.Tensor) -> Any:
            h = torch.tanh(h @ weight + x)
            return h, h * 2

        return scan(step, h, xs, dim=1, reverse=True)

    check(function, leaf(2, 3), leaf(2, 4, 3, seed=1), leaf(3, 3, seed=2))


def test_map() -> None:
    def function(xs: torch.Tensor, y: torch.Tensor) -> Any:
        return hop_map(lambda x, y: x.sin() @ y, xs, y)

    check(function, leaf(4, 3, 2), leaf(2, 3, seed=1))


def test_associative_scan() -> None:
    def function(xs: torch.Tensor) -> Any:
        return associative_scan(lambda a, b: a * b, xs, dim=0, combine_mode="generic")

    check(function, leaf(5, 3), reference=lambda xs: xs.cumprod(0))


def test_checkpoint_with_dropout() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        def block(x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.dropout((x * w).sin(), 0.5)

        return checkpoint(block, x, use_reentrant=False)

    run = torch.compile(function, backend="neuron", fullgraph=True)
    x, w = (on_device(leaf(64, seed=seed)) for seed in range(2))
    kept = []
    for _ in range(2):
        out = run(x, w)
        (grad,) = torch.autograd.grad(out.sum(), [x])
        kept.append(out != 0)
        expected = torch.where(kept[-1], 2 * (x * w).cos() * w, 0.0)
        torch.testing.assert_close(grad.cpu(), expected.cpu())
    assert not torch.equal(kept[0].cpu(), kept[1].cpu())


def test_invoke_subgraph() -> None:
    block = torch.compiler.nested_compile_region(lambda x, w: torch.tanh(x @ w) + x)

    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return block(block(block(x, w), w), w)

    check(function, leaf(2, 3), leaf(3, 3, seed=1))


def test_flex_attention() -> None:
    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor) -> Any:
        return flex_attention(q, k, v, lambda s, b, h, i, j: s * 0.5 + bias[h, i], mask)

    def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor) -> Any:
        scores = q @ k.mT * q.shape[-1] ** -0.5 * 0.5 + bias[:, :, None]
        causal = torch.ones(32, 32, dtype=torch.bool).tril()
        return scores.masked_fill(~causal, -torch.inf).softmax(-1) @ v

    mask = create_block_mask(
        lambda b, h, i, j: i >= j, B=2, H=2, Q_LEN=32, KV_LEN=32, device=DEVICE, BLOCK_SIZE=16
    )
    inputs = [leaf(2, 2, 32, 8, seed=seed) for seed in range(3)]
    check(function, *inputs, leaf(2, 32, seed=3), reference=reference)


def test_autocast() -> None:
    mask = create_block_mask(
        lambda b, h, i, j: i >= j, B=None, H=None, Q_LEN=16, KV_LEN=16, device=DEVICE, BLOCK_SIZE=16
    )

    def function(x: torch.Tensor, q: torch.Tensor) -> Any:
        with torch.autocast(DEVICE, torch.bfloat16):
            chosen = torch.cond(x.sum() > 0, lambda x: x @ x, lambda x: x @ x - 1, (x,))
            last, _ = scan(lambda c, x: (c + x, c * x), x[0], x)
            return chosen, last, flex_attention(q, q, q, block_mask=mask)

    run = torch.compile(function, backend="neuron", fullgraph=True)
    result = run(torch.eye(4, device=DEVICE), torch.randn(1, 1, 16, 4, device=DEVICE))
    assert [x.dtype for x in result] == [torch.bfloat16, torch.float32, torch.bfloat16]


def test_dynamic_sizes() -> None:
    def function(init: torch.Tensor, xs: torch.Tensor) -> Any:
        last, ys = scan(lambda c, x: (c * 0.5 + x.sin(), c * x), init, xs)
        return torch.cond(ys.sum() > 0, lambda a: a * 2, lambda a: a.cos(), (last,)), ys

    run = torch.compile(function, backend="neuron", fullgraph=True, dynamic=True)
    for length, width in ((3, 4), (5, 4), (6, 2)):
        inputs = leaf(width), leaf(length, width, seed=1)
        device_inputs = on_device(inputs)
        result, expected = run(*device_inputs), function(*inputs)
        compare(result, expected)
        compare(gradients(result, device_inputs), gradients(expected, inputs))
