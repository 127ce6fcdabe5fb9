"""Wrong arguments raise what PyTorch's CPU raises, and leave the process usable."""

from collections.abc import Callable

import pytest
import torch

DEVICE = "neuron"

CALLS: dict[str, Callable[[str], object]] = {
    "mm shapes": lambda d: torch.ones(2, 3, device=d) @ torch.ones(2, 3, device=d),
    "add shapes": lambda d: torch.ones(2, device=d) + torch.ones(3, device=d),
    "mm dtypes": lambda d: torch.mm(
        torch.ones(2, 2, device=d), torch.ones(2, 2, device=d, dtype=torch.float64)
    ),
    "bitwise on floats": lambda d: torch.ones(2, device=d) & torch.ones(2, device=d),
    "in-place result dtype": lambda d: torch.ones(2, device=d, dtype=torch.int64).add_(1.5),
    "in-place broadcast": lambda d: torch.ones(2, device=d).add_(torch.ones(3, 2, device=d)),
    "in-place on expanded": lambda d: torch.ones(1, device=d).expand(3).add_(1),
    "softmax dimension": lambda d: torch.softmax(torch.ones(2, device=d), 3),
    "sum dimension": lambda d: torch.ones(2, device=d).sum(2),
    "view size": lambda d: torch.ones(6, device=d).view(4),
    "view of transposed": lambda d: torch.ones(2, 3, device=d).t().view(6),
    "cat shapes": lambda d: torch.cat([torch.ones(2, 2, device=d), torch.ones(3, 3, device=d)]),
    "select out of range": lambda d: torch.ones(3, device=d)[5],
    "narrow out of range": lambda d: torch.ones(3, device=d).narrow(0, 2, 4),
    "item of many": lambda d: torch.ones(3, device=d).item(),
    "truth of many": lambda d: bool(torch.ones(3, device=d)),
    "as_strided out of bounds": lambda d: torch.ones(3, device=d).as_strided((4,), (1,)),
    "conv channels": lambda d: torch.conv2d(
        torch.ones(1, 2, 4, 4, device=d), torch.ones(1, 3, 2, 2, device=d)
    ),
    "gather rank": lambda d: torch.gather(
        torch.ones(3, device=d), 0, torch.zeros(1, 1, dtype=torch.int64, device=d)
    ),
    "index dtype": lambda d: torch.ones(3, device=d)[torch.ones(1, device=d)],
    "backward of non-scalar": lambda d: (
        torch.ones(2, device=d, requires_grad=True) * 2
    ).backward(),
    "cross entropy target": lambda d: torch.nn.functional.cross_entropy(
        torch.ones(2, 3, device=d), torch.zeros(3, dtype=torch.int64, device=d)
    ),
    "arange to bool": lambda d: torch.arange(2, dtype=torch.bool, device=d),
    "linspace to bool": lambda d: torch.linspace(0, 1, 3, dtype=torch.bool, device=d),
    "logspace out bool": lambda d: torch.logspace(
        0, 1, 3, out=torch.ones(3, dtype=torch.bool, device=d)
    ),
    # The compiler would end the process at what follows.
    "hardtanh of complex": lambda d: torch.nn.functional.hardtanh(
        torch.ones(3, dtype=torch.complex64, device=d), -0.5, 0.5
    ),
    "hardswish of complex": lambda d: torch.nn.functional.hardswish(
        torch.ones(3, dtype=torch.complex64, device=d)
    ),
    "addmv of booleans": lambda d: torch.addmv(
        torch.ones(5, dtype=torch.bool, device=d),
        torch.ones(5, 10, dtype=torch.bool, device=d),
        torch.ones(10, dtype=torch.bool, device=d),
    ),
    "clamp of complex": lambda d: torch.clamp(
        *[torch.ones(2, dtype=torch.complex64, device=d)] * 3
    ),
    "fmod of complex": lambda d: torch.fmod(*[torch.ones(2, dtype=torch.complex64, device=d)] * 2),
    "amax of nothing": lambda d: torch.ones(5, 0, device=d).amax(1),
    "aminmax of nothing": lambda d: torch.ones(5, 0, device=d).aminmax(dim=1),
    "aminmax out dtype": lambda d: torch.aminmax(
        torch.ones(3, 3, device=d),
        dim=0,
        out=(torch.ones(3, device=d), torch.ones(3, device=d, dtype=torch.float64)),
    ),
    "bucketize boundaries": lambda d: torch.bucketize(
        torch.ones(2, device=d), torch.ones(2, 2, device=d)
    ),
    "cat of scalars": lambda d: torch.cat([torch.ones((), device=d), torch.ones((), device=d)]),
    "complex out dtype": lambda d: torch.complex(
        torch.ones(2, device=d, dtype=torch.float64),
        torch.ones(2, device=d, dtype=torch.float64),
        out=torch.ones(2, device=d, dtype=torch.complex64),
    ),
    "conv padding": lambda d: torch.conv3d(
        torch.ones(1, 1, 4, 4, 4, device=d), torch.ones(1, 1, 2, 2, 2, device=d), padding=-1
    ),
    "embedding weight": lambda d: torch.embedding(
        torch.ones(1, 1, 1, device=d), torch.zeros(2, dtype=torch.int64, device=d)
    ),
    "histogramdd bins": lambda d: torch.histogramdd(torch.ones(5, 6, device=d), [1, 1]),
    "masked_scatter mask": lambda d: torch.ones(3, device=d).masked_scatter(
        torch.ones(3, device=d, dtype=torch.uint8), torch.ones(3, device=d)
    ),
    "multinomial out dtype": lambda d: torch.multinomial(
        torch.ones(1, 2, device=d), 2, out=torch.ones(1, 2, device=d)
    ),
    "multinomial samples": lambda d: torch.multinomial(torch.ones(2, device=d), 0),
    "uniform_ bounds": lambda d: torch.ones(2, device=d).uniform_(3, -1),
    "normal_ deviation": lambda d: torch.ones(2, device=d).normal_(0, -1),
    "log_normal_ deviation": lambda d: torch.ones(2, device=d).log_normal_(0, 0),
    "cauchy_ sigma": lambda d: torch.ones(2, device=d).cauchy_(0, 0),
    "exponential_ rate": lambda d: torch.ones(2, device=d).exponential_(0),
    "geometric_ probability": lambda d: torch.ones(2, device=d).geometric_(-1),
    "bernoulli_ probability": lambda d: torch.ones(2, device=d).bernoulli_(1.5),
    "negative size": lambda d: torch.empty(-1, device=d),
    "out dtype": lambda d: torch.add(
        torch.ones(2, device=d), 1.5, out=torch.ones(2, device=d, dtype=torch.int64)
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_exception_is_the_cpus(name: str) -> None:
    call = CALLS[name]
    with pytest.raises(Exception) as on_cpu:  # noqa: PT011  (the CPU says which)
        call("cpu")
    with pytest.raises(type(on_cpu.value)):
        call(DEVICE)


def test_a_number_is_checked_at_every_call() -> None:
    x = torch.ones(2, device=DEVICE)
    x.uniform_(0, 2)
    with pytest.raises(RuntimeError, match="uniform_ expects"):
        x.uniform_(2, 0)


def test_out_that_is_an_input() -> None:
    x = torch.ones(3, device=DEVICE)
    index = torch.zeros(3, dtype=torch.int64, device=DEVICE)
    with pytest.raises(RuntimeError, match="unsupported operation"):
        torch.take(x, index, out=x)


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.ones(2, device=DEVICE) + torch.ones(2),
        lambda: torch.mm(torch.ones(2, 2), torch.ones(2, 2, device=DEVICE)),
        lambda: torch.ones(2).add_(torch.ones(2, device=DEVICE)),
        lambda: torch.ones(2, device="neuron:0") + torch.ones(2, device="neuron:1"),
    ],
)
def test_operands_on_different_devices(call: Callable[[], object]) -> None:
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        call()


def test_an_error_leaves_the_device_usable() -> None:
    x = torch.arange(3.0, device=DEVICE)
    for _ in range(3):
        with pytest.raises(RuntimeError):
            x.add_(torch.ones(2, device=DEVICE))
    assert (x + 1).tolist() == [1, 2, 3]


def test_unsupported_dtypes_are_a_type_error() -> None:
    with pytest.raises(TypeError, match="neuron device has no"):
        torch.empty(2, dtype=torch.complex32, device=DEVICE)


def test_zero_dim_cpu_tensors_mix_in() -> None:
    x = torch.arange(3.0, device=DEVICE)
    assert (x * torch.tensor(2.0)).tolist() == [0, 2, 4]
    assert (x + torch.tensor(1, dtype=torch.int64)).dtype == torch.float32


def test_gradients_count_the_dimensions_of_what_they_are_gradients_of() -> None:
    x = torch.arange(24.0, device=DEVICE).reshape(2, 3, 4).requires_grad_()
    (x[:, :, 1] * 2 + x.select(-1, 3)).sum().backward()
    expected = torch.zeros(2, 3, 4)
    expected[..., 1], expected[..., 3] = 2, 1
    torch.testing.assert_close(x.grad.cpu(), expected)
    grad = torch.ones(2, 3, device=DEVICE)
    with pytest.raises(IndexError, match=r"range of \[-3, 2\], but got 3"):
        torch.ops.aten.select_backward(grad, [2, 3, 4], 3, 0)
