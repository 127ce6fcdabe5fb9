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
