"""Random numbers in branches and loops, and generator states that are values of the graph."""

import operator

import pytest
import torch
from functorch.compile import min_cut_rematerialization_partition
from torch import fx
from torch._prims import rng_prims
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

from tests.lowering.graphs import Recorder, run_graph

hop = torch.ops.higher_order
N = 5


def run(function, *inputs, seed=3, offset=8):
    """The function's results with the program's generator at (seed, offset)."""
    gm = make_fx(function, tracing_mode="fake")(*inputs)
    output = gm.graph.output_node().args[0]
    return run_graph(gm, inputs, [node.meta["val"] for node in output], seed, offset)


def draws(count):
    """What `count` ops in a row draw."""
    return run(lambda: tuple(torch.rand(N) for _ in range(count)))


@pytest.mark.parametrize("flag", [True, False])
def test_a_branch_draws_as_it_would_alone_and_what_follows_is_the_same_either_way(flag):
    def twice():
        return (torch.rand(N) + torch.rand(N),)

    def function(flag):
        before = torch.rand(N)
        inside = hop.cond(flag, twice, lambda: (torch.rand(N),), ())
        return before, inside[0], torch.rand(N)

    before, inside, after = run(function, torch.tensor(flag))
    one, two, three, four = draws(4)
    assert torch.equal(before, one)
    assert torch.equal(inside, two + three if flag else two)
    # The generator has moved on by what the branch that draws more draws.
    assert torch.equal(after, four)


def test_scan_draws_what_its_steps_would_draw_in_turn():
    def function(init, xs):
        before = torch.rand(N)
        last, ys = hop.scan(lambda c, x: (c + torch.rand(N), x + torch.rand(N)), [init], [xs], ())
        return before, last, ys, torch.rand(N)

    before, last, ys, after = run(function, torch.zeros(N), torch.zeros(3, N))
    wanted = draws(8)
    assert torch.equal(before, wanted[0])
    torch.testing.assert_close(last, wanted[1] + wanted[3] + wanted[5])
    assert torch.equal(ys, torch.stack([wanted[2], wanted[4], wanted[6]]))
    assert torch.equal(after, wanted[7])


def test_map_in_map_draws_everywhere_else():
    def function(xs):
        inner = lambda x: (torch.rand(N) + x,)  # noqa: E731
        return hop.map_impl(lambda x: hop.map_impl(inner, [x], []), [xs], [])

    (drawn,) = run(function, torch.zeros(2, 3, N))
    assert torch.equal(drawn.reshape(6, N), torch.stack(draws(6)))


def test_while_loop_draws_other_numbers_each_time_and_other_than_the_program():
    def loop(count, shape):
        def body(i, rows):
            return i + 1, rows + (torch.arange(4) == i)[:, None] * torch.rand(shape)

        start = torch.zeros((), dtype=torch.int64)
        return hop.while_loop(lambda i, rows: i < count, body, (start, torch.zeros(4, *shape)), ())[
            1
        ]

    def function(x):
        return torch.rand(N), loop(4, (N,)), loop(3, (N,)), torch.rand(N)

    before, rows, others, after = run(function, torch.zeros(1))
    numbers = torch.cat([before, rows.reshape(-1), others[:3].reshape(-1), after])
    assert len(numbers.unique()) == len(numbers)
    assert numbers.min() > 0
    assert torch.equal(others[3], torch.zeros(N))
    # Reproducible, and dependent on the program's generator.
    assert torch.equal(run(function, torch.zeros(1))[1], rows)
    assert not torch.equal(run(function, torch.zeros(1), offset=12)[1], rows)
    # The generator has moved on by a fixed amount for each loop.
    assert torch.equal(after, run(lambda: (torch.rand(N + 2), torch.rand(N)))[1])


def test_the_condition_of_a_loop_may_draw():
    def function(x):
        # Each trip halves the chance to go on.
        return hop.while_loop(
            lambda i, x: torch.rand(()) < 0.5**i,
            lambda i, x: (i + 1, x + torch.rand(())),
            (torch.zeros((), dtype=torch.int64), x),
            (),
        )

    counts = [run(function, torch.zeros(()), seed=seed)[0].item() for seed in range(5)]
    assert min(counts) >= 1
    assert max(counts) > 1
    assert len(set(counts)) > 1


def test_a_recomputed_dropout_is_that_of_the_forward():
    def function(x, w):
        def block(x):
            return torch.nn.functional.dropout((x * w).sin(), 0.5)

        return checkpoint(block, x, use_reentrant=False)

    recorder = Recorder(min_cut_rematerialization_partition)
    x, w = (torch.randn(64).requires_grad_() for _ in range(2))
    out = torch.compile(function, backend=recorder.backend, fullgraph=True)(x, w)
    # The backward program runs with another seed.
    out.sum().backward()
    kept = out != 0
    assert 10 < kept.sum() < 54
    torch.testing.assert_close(x.grad, torch.where(kept, 2 * (x * w).cos() * w, 0.0))
    assert {"run_and_save_rng_state", "run_with_rng_state"} <= recorder.targets()


def test_saved_states_follow_one_another():
    rand = torch.ops.aten.rand.default
    graph = fx.Graph()
    nodes = []
    for _ in range(2):
        saved = graph.call_function(rng_prims.run_and_save_rng_state, (rand, [N]))
        nodes += [graph.call_function(operator.getitem, (saved, i)) for i in range(2)]
    nodes.append(graph.call_function(rng_prims.run_with_rng_state, (nodes[0], rand, [N])))
    nodes.append(graph.call_function(rand, ([N],)))
    graph.output(tuple(nodes))
    state, numbers = torch.empty(16, dtype=torch.uint8), torch.empty(N)
    gm = fx.GraphModule(torch.nn.Module(), graph)
    results = run_graph(gm, [], [state, numbers, state, numbers, numbers, numbers], 3, 8)
    first, one, second, two, again, later = results
    wanted = draws(3)
    assert torch.equal(torch.stack([one, two, later]), torch.stack(wanted))
    assert torch.equal(again, one)
    # Seed and offset.
    assert first.view(torch.int64).tolist() == [3, 8]
    assert second.view(torch.int64).tolist()[0] == 3
    assert second.view(torch.int64).tolist()[1] > 8
