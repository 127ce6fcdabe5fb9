"""Control flow: graphs of `cond`, `while_loop`, `scan`, `map` and `associative_scan`."""

import pytest
import torch
from torch._higher_order_ops import map as hop_map
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.associative_scan import associative_scan_op
from torch.fx.experimental.proxy_tensor import make_fx

from tests.lowering.graphs import check, check_graph, run_graph
from torchneuron.lowering import LoweringError

hop = torch.ops.higher_order


def differentiable(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).requires_grad_()


# One operator at a time


@pytest.mark.parametrize("flag", [True, False])
def test_cond(flag):
    # Other dtypes, a predicate of shape (1,), an operand given back as it is.
    def function(flag, x, y):
        return hop.cond(
            flag,
            lambda x, y: (x + 1, x > 1, y.to(torch.bfloat16), y.clone()),
            lambda x, y: (x * 3, x < 1, y.to(torch.bfloat16) + 1, y * 2),
            (x, y),
        )

    check_graph(function, torch.tensor([flag]), torch.arange(4), torch.randn(2, 3))


def test_cond_inside_cond():
    def inner(x):
        return hop.cond(x.max() > 2, lambda x: (x.exp(),), lambda x: (x * 3,), (x,))

    def function(x):
        return hop.cond(x.sum() > 0, inner, lambda x: (x.sin(),), (x,))

    for scale in (0.1, 4.0, -1.0):
        check_graph(function, torch.linspace(-0.5, 1, 5) * scale)


@pytest.mark.parametrize("start", [0, 3, 9])
def test_while_loop(start):
    # From 9 on the body never runs.
    def function(i, x, done):
        return hop.while_loop(
            lambda i, x, done: (i < 5) & ~done,
            lambda i, x, done: (i + 1, x * 1.5 + i, x.sum() > 1e3),
            (i, x, done),
            (),
        )

    check_graph(function, torch.tensor(start), torch.randn(3), torch.tensor(False))


def test_while_loop_carries_one_tensor_twice_and_uses_another():
    def function(i, x, weight):
        return hop.while_loop(
            lambda i, a, b, w: i < 4,
            lambda i, a, b, w: (i + 1, b @ w, a + b),
            (i, x, x),
            (weight,),
        )

    check_graph(function, torch.tensor(0), torch.randn(2, 3), torch.randn(3, 3))


def test_loop_in_loop_in_branch():
    def inner(n, x):
        return hop.while_loop(
            lambda k, x, n: k < n, lambda k, x, n: (k + 1, x * 1.1), (n * 0, x), (n,)
        )[1]

    def loop(i, x):
        return hop.while_loop(lambda i, x: i < 4, lambda i, x: (i + 1, inner(i, x) + i), (i, x), ())

    def function(i, x):
        return hop.cond(x.sum() > 0, loop, lambda i, x: (i + 2, x.clone()), (i, x))

    for sign in (1, -1):
        check_graph(function, torch.tensor(1), torch.rand(3) * sign)


def test_scan():
    def function(h, n, xs, steps, weight):
        def step(h, n, x, count, weight):
            h = torch.tanh(h @ weight + x)
            return h, n + count, h * 2, n * count

        return hop.scan(step, [h, n], [xs, steps], (weight,))

    check_graph(
        function,
        torch.randn(2, 3),
        torch.tensor([1, 2]),
        torch.randn(4, 2, 3),
        torch.arange(8).reshape(4, 2),
        torch.randn(3, 3),
    )


def test_scan_of_one_element():
    def function(init, xs):
        return hop.scan(lambda c, x: (c + x, c * x), [init], [xs], ())

    check_graph(function, torch.randn(2), torch.randn(1, 2))


def test_map_in_map_in_scan():
    def rows(x, y):
        return hop.map_impl(lambda x, y: (x * y + x.cos(),), [x], [y])

    def step(carry, x):
        (mapped,) = hop.map_impl(rows, [x], [carry])
        return carry + mapped.sum((0, 1)), carry.sum(0)

    def function(init, xs):
        return hop.scan(step, [init], [xs], ())

    check_graph(function, torch.randn(3, 2), torch.randn(2, 4, 3, 2))


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_associative_scan(count):
    # x -> a x + b composed: not commutative.
    def combine(a0, b0, a1, b1):
        return [a0 * a1, b0 * a1 + b1]

    def function(a, b):
        return associative_scan_op(combine, (a, b), ())

    check_graph(function, torch.randn(count, 3), torch.randn(count, 3))


def test_errors_name_the_operator():
    def function(x):
        torch._higher_order_ops.print("x is {}", x)
        return x + 1

    graph = make_fx(function)(torch.ones(2))
    with pytest.raises(LoweringError, match="print: a program on the device cannot print"):
        run_graph(graph, [torch.ones(2)], [torch.ones(2)])


# As Dynamo and AOTAutograd make the graphs, with gradients


@pytest.mark.parametrize("sign", [1, -1])
def test_gradient_of_cond(sign):
    weight = differentiable(4, seed=2)

    def inner(a, b):
        return torch.cond(b.sum() > 0, lambda a: a * weight, lambda a: a.exp(), (a,))

    def function(x, y):
        return torch.cond(
            x.sum() * sign > 0,
            lambda a, b: (a.sin() * b, inner(a, b)),
            lambda a, b: (a.cos() - b, a * 2),
            (x, y),
        )

    check(function, differentiable(3, 4), differentiable(3, 4, seed=1), uses="cond")


def test_gradient_of_scan():
    weight = differentiable(3, 3, seed=2)

    def function(h, xs, weight):
        def step(h, x):
            h = torch.tanh(h @ weight + x)
            return h, {"h": h * 2}

        return scan(step, h, xs, dim=1, reverse=True)

    inputs = (differentiable(2, 3), differentiable(2, 4, 3, seed=1), weight)
    check(function, *inputs, uses="scan")


def test_gradient_of_map():
    def function(xs, y):
        return hop_map(lambda x, y: hop_map(lambda r, y: r.sin() @ y, x, y), xs, y)

    check(function, differentiable(4, 3, 2), differentiable(2, 3, seed=1), uses="map_impl")


def test_while_loop_that_carries_numbers():
    def function(x):
        def body(i, j, x):
            # Reads and writes at a carried index.
            y = x + i * 2 - j // 3
            y[i] = x.select(0, -1 - i) * (j % 4)
            return i + 1, j - 2, y

        return while_loop(lambda i, j, x: i < x.shape[0] - 1, body, (0, 7, x))[2]

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        check(function, torch.randn(5, 2), uses="while_loop")
