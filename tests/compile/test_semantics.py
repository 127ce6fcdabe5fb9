"""What goes in and comes out of compiled functions: containers, numbers, views, aliases, mutation."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

DEVICE = "neuron"


def on_device(value: Any) -> Any:
    """The same tensors on the device, lying in their storages as on the CPU."""
    return pytree.tree_map_only(torch.Tensor, _moved, value)


def _moved(tensor: torch.Tensor) -> torch.Tensor:
    whole = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
    return whole.to(DEVICE).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return torch.compile(function, backend="neuron", fullgraph=True, **options)


def check(function: Callable[..., Any], *args: Any, calls: int = 2) -> Any:
    """Compare the compiled function on the device with the function on the CPU, arguments too."""
    run = compiled(function)
    device_args = on_device(args)
    for _ in range(calls):
        expected, found = function(*args), run(*device_args)
        compare(found, expected)
        compare(device_args, args)
    return found


def compare(found: Any, expected: Any) -> None:
    found_leaves, found_tree = pytree.tree_flatten(found)
    leaves, tree = pytree.tree_flatten(expected)
    assert found_tree == tree
    for one, other in zip(found_leaves, leaves, strict=True):
        if isinstance(other, torch.Tensor):
            assert one.device.type == DEVICE
            assert one.stride() == other.stride()
            assert one.storage_offset() == other.storage_offset()
            torch.testing.assert_close(one.cpu(), other, equal_nan=True)
        else:
            assert one == other
            assert type(one) is type(other)


def test_containers_and_numbers() -> None:
    def function(pair: tuple[Any, ...], table: dict[str, Any], n: int, f: float) -> Any:
        x, y = pair
        return {
            "sum": x + y * n,
            "none": None,
            "list": [x * f, n, f],
            "flag": n > 1,
            "in": table["a"] + 1,
        }

    check(function, (torch.randn(3), torch.randn(3)), {"a": torch.randn(2)}, 3, 0.5)


def test_number_arguments_that_change() -> None:
    run = compiled(lambda x, n, f: x * f + n)
    x = torch.randn(4)
    for n, f in ((1, 0.5), (2, 0.25), (3, 1.5), (4, -2.0)):
        torch.testing.assert_close(run(x.to(DEVICE), n, f).cpu(), x * f + n)


def test_views_of_inputs_and_of_each_other() -> None:
    def function(x: torch.Tensor) -> Any:
        y = x * 2
        return x.t(), x[1:], x[:, 1], y, y.t(), y.view(-1)[3:], y[0].expand(2, 4), x

    found = check(function, torch.randn(3, 4))
    x_t, rows, column, y, y_t, flat, wide, x = found
    assert x_t.data_ptr() == x.data_ptr()
    assert rows.untyped_storage().data_ptr() == column.untyped_storage().data_ptr()
    assert {t.untyped_storage().data_ptr() for t in (y, y_t, flat, wide)} == {
        y.untyped_storage().data_ptr()
    }


def test_writing_to_a_result_reaches_its_aliases() -> None:
    def function(x: torch.Tensor) -> Any:
        y = x + 1
        return x[0], y, y[1]

    x = torch.zeros(2, 3, device=DEVICE)
    row, y, y_row = compiled(function)(x)
    row.fill_(5)
    y_row.fill_(7)
    assert x[0].tolist() == [5, 5, 5]
    assert y[1].tolist() == [7, 7, 7]


def test_view_of_an_input_that_begins_inside_its_storage() -> None:
    base = torch.arange(24.0)
    check(lambda x: (x[1:], x * 2), base[4:20].view(4, 4).t())
    check(lambda x: x.sum(0), base.as_strided((3, 3), (2, 3), 5))


def test_mutated_inputs() -> None:
    def function(x: torch.Tensor, cache: torch.Tensor, at: torch.Tensor) -> Any:
        cache[at] = x
        x.mul_(2)
        return cache.sum(0), x

    check(function, torch.randn(2, 3), torch.zeros(5, 3), torch.tensor([1, 3]), calls=3)


def test_mutated_view_of_a_larger_storage() -> None:
    big, other = torch.zeros(6, 6), torch.randn(2, 3)
    device_big = big.to(DEVICE)
    run = compiled(lambda window, x: window.add_(x))
    for row in range(3):
        run(device_big[row : row + 2, 1:4], other.to(DEVICE))
        big[row : row + 2, 1:4].add_(other)
    torch.testing.assert_close(device_big.cpu(), big)


def test_two_mutated_inputs_that_share_a_storage() -> None:
    def function(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        left.add_(1)
        right.mul_(3)
        return left + right

    base, device_base = torch.ones(4), torch.ones(4, device=DEVICE)
    expected = function(base[:3], base[1:])
    found = compiled(function)(device_base[:3], device_base[1:])
    torch.testing.assert_close(found.cpu(), expected)
    torch.testing.assert_close(device_base.cpu(), base)


def test_metadata_mutation_and_result_that_is_the_input() -> None:
    def function(x: torch.Tensor) -> Any:
        x.add_(1)
        return x, x.t_() if False else x.view(-1)

    check(function, torch.randn(2, 3))


def test_written_storages_are_donated() -> None:
    cache = torch.zeros(1 << 20, device=DEVICE)
    run = compiled(lambda c, x, i: c.narrow(0, 0, 4).add_(x))
    run(cache, torch.ones(4, device=DEVICE), 0)
    torch.neuron.synchronize()
    before = torch.neuron.memory_allocated()
    for _ in range(5):
        run(cache, torch.ones(4, device=DEVICE), 0)
    torch.neuron.synchronize()
    assert torch.neuron.memory_allocated() <= before + 1024


def test_batch_norm_keeps_its_statistics() -> None:
    torch.manual_seed(0)
    cpu = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    device = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    device.load_state_dict(cpu.state_dict())
    run = torch.compile(device.to(DEVICE), backend="neuron", fullgraph=True)
    for _ in range(3):
        x = torch.randn(2, 3, 8, 8)
        torch.testing.assert_close(run(x.to(DEVICE)).cpu(), cpu(x), rtol=1e-4, atol=1e-5)
    for (name, buffer), (_, other) in zip(cpu.named_buffers(), device.named_buffers(), strict=True):
        torch.testing.assert_close(other.cpu(), buffer, msg=name)
    cpu.eval(), device.eval()
    torch.testing.assert_close(run(x.to(DEVICE)).cpu(), cpu(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1,), (1, 1, 1)])
def test_small_shapes(shape: tuple[int, ...]) -> None:
    check(lambda x: (x + 1, x.sum(), x.reshape(-1)), torch.randn(shape))


@pytest.mark.parametrize(
    "dtype",
    [
        torch.bool,
        torch.uint8,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float64,
        torch.complex64,
    ],
)
def test_dtypes(dtype: torch.dtype) -> None:
    x = torch.ones(3, 2, dtype=dtype)
    check(lambda a: (a.t(), a == a, a.clone()), x)


def test_results_on_the_host_and_inputs_from_it() -> None:
    def function(x: torch.Tensor, y: torch.Tensor, s: torch.Tensor) -> Any:
        return (x * y.to(DEVICE) * s).cpu(), s + 1

    x, y, s = torch.randn(3), torch.randn(3), torch.tensor(2.0)
    found, scalar = compiled(function)(x.to(DEVICE), y, s)
    assert found.device.type == "cpu"
    assert scalar.device.type == "cpu"
    torch.testing.assert_close(found, x * y * s)
    assert scalar.item() == 3


def test_host_scalar_that_is_written() -> None:
    def function(x: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        step += 1
        return x * step

    step = torch.tensor(0.0)
    run = compiled(function)
    x = torch.ones(2, device=DEVICE)
    assert [run(x, step).sum().item() for _ in range(3)] == [2, 4, 6]
    assert step.item() == 3


def test_functions_of_no_tensors() -> None:
    found = compiled(lambda n: torch.arange(n, device=DEVICE) * 2)(5)
    assert found.tolist() == [0, 2, 4, 6, 8]


def test_functions_on_the_cpu_stay_there() -> None:
    x = torch.randn(3)
    found = compiled(lambda a: a * 2 + 1)(x)
    assert found.device.type == "cpu"
    torch.testing.assert_close(found, x * 2 + 1)


def test_tensors_of_two_devices() -> None:
    if torch.neuron.device_count() < 2:
        pytest.fail("the process must show two devices")
    run = compiled(lambda x: x * 2)
    found = run(torch.ones(2, device="neuron:1"))
    assert found.device.index == 1
    assert run(torch.ones(2, device="neuron:0")).device.index == 0


def test_constants_of_the_graph() -> None:
    weights = [1.0, 2.0, 3.0]
    check(lambda x: x * torch.tensor([1.0, 2.0, 3.0], device=x.device), torch.randn(3))
    run = compiled(lambda x: x + torch.tensor(weights).to(x.device))
    assert run(torch.zeros(3, device=DEVICE)).tolist() == [1, 2, 3]


def test_nan_and_infinity() -> None:
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0])
    check(lambda a: (a.relu(), a.max(), a * 0, torch.maximum(a, -a), a.clamp(-1, 1)), x)


def test_lazy_conjugates_and_negatives() -> None:
    def function(x: torch.Tensor) -> Any:
        return x.conj() * 2, torch.fft.ifft(x), (x * 1j).conj(), x.imag.neg()

    run = compiled(function)
    x = torch.randn(4, dtype=torch.complex64)
    for given in (x, x.conj()):
        for found, expected in zip(run(given.to(DEVICE)), function(given), strict=True):
            torch.testing.assert_close(found.cpu(), expected.resolve_conj().resolve_neg())
    device_x = x.to(DEVICE)
    for found, expected in zip(run(device_x.conj()), function(x.conj()), strict=True):
        torch.testing.assert_close(found.cpu(), expected.resolve_conj().resolve_neg())


def test_second_call_runs_no_python_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchneuron.compile import compiled as module

    run = compiled(lambda x: x * 3)
    x = torch.ones(3, device=DEVICE)
    run(x)
    monkeypatch.setattr(module.CompiledGraph, "_resolve", lambda *args: pytest.fail("called"))
    assert run(x).tolist() == [3, 3, 3]


@pytest.mark.parametrize("divisor", [0, -1])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_division_of_constants(divisor: int, dtype: torch.dtype) -> None:
    # What the compiler divides itself must not end the process.
    lowest = torch.iinfo(dtype).min
    constant = divisor % 256 if lowest == 0 else divisor

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        smallest = torch.full((2,), lowest, dtype=dtype, device=x.device)
        by = torch.full((2,), constant, dtype=dtype, device=x.device)
        return x + torch.div(smallest, by, rounding_mode="trunc"), x + torch.fmod(smallest, by)

    x = torch.zeros(2, dtype=dtype, device="neuron")
    quotient, rest = torch.compile(function, backend="neuron", fullgraph=True)(x)
    if divisor:
        assert quotient.tolist() == [lowest] * 2
        assert rest.tolist() == [0, 0]
    else:
        assert quotient.tolist() == [255 if lowest == 0 else -1] * 2
        assert rest.tolist() == [lowest] * 2
