"""Results equal the CPU's over dtypes and layouts, functionally, in place and with `out=`; strides included."""

from collections.abc import Callable

import pytest
import torch

DEVICE = "neuron"

LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda t: t,
    "transposed": lambda t: t.transpose(0, 1),
    "sliced": lambda t: t[1:, ::2],
    "offset": lambda t: t[1],
    "expanded": lambda t: t[:1].expand(3, *t.shape[1:]),
    "permuted": lambda t: t.permute(2, 0, 1),
    "scalar": lambda t: t[0, 0, 0],
    "empty": lambda t: t[:0],
}
DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64]


def base(dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(4, 3, 5, generator=generator) * 3
    return values > 0 if dtype is torch.bool else values.to(dtype)


def same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    assert actual.device.type == DEVICE
    torch.testing.assert_close(actual.cpu(), expected, equal_nan=True)
    assert actual.stride() == expected.stride() or expected.numel() < 2


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_layouts_of_one_operand(dtype: torch.dtype) -> None:
    host = base(dtype)
    device = host.to(DEVICE)
    for layout in LAYOUTS.values():
        x, y = layout(host), layout(device)
        same(y.clone(), x.clone())
        same(y.eq(y), x.eq(x))
        same(y.contiguous(), x.contiguous())
        torch.testing.assert_close(torch.logical_not(y).cpu(), torch.logical_not(x))
        if dtype is not torch.bool:
            same(y + y, x + x)
            same(y * 2, x * 2)
            same(-y, -x)
        if not dtype.is_complex:
            same(y.to(torch.float64), x.to(torch.float64))


@pytest.mark.parametrize("left", LAYOUTS)
def test_pairs_of_layouts_broadcast(left: str) -> None:
    host = base(torch.float32)
    device = host.to(DEVICE)
    for right in ("contiguous", "offset", "scalar"):
        x, y = LAYOUTS[left](host), LAYOUTS[right](host)
        try:
            expected = x - y
        except RuntimeError:
            continue
        same(LAYOUTS[left](device) - LAYOUTS[right](device), expected)


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "sliced", "permuted", "empty"])
def test_in_place_writes_through_the_view(layout: str) -> None:
    host = base(torch.float32).clone()
    device = host.to(DEVICE)
    for t in (host, device):
        view = LAYOUTS[layout](t)
        view.mul_(2).add_(1, alpha=0.5).clamp_(-2, 2)
        view[..., :1].zero_()
    torch.testing.assert_close(device.cpu(), host)


def test_out_tensors() -> None:
    host = torch.arange(6.0)
    device = host.to(DEVICE)
    for shape in [(6,), (0,)]:
        out = torch.empty(shape, device=DEVICE)
        result = torch.add(device, 1, out=out)
        assert result is out
        torch.testing.assert_close(out.cpu(), host + 1)
    strided = torch.zeros(12, device=DEVICE)
    torch.mul(device, 3, out=strided[::2])
    expected = torch.zeros(12)
    torch.mul(host, 3, out=expected[::2])
    torch.testing.assert_close(strided.cpu(), expected)
    values, indices = (
        torch.empty(0, device=DEVICE),
        torch.empty(0, dtype=torch.int64, device=DEVICE),
    )
    torch.sort(device.flip(0), out=(values, indices))
    torch.testing.assert_close(values.cpu(), host)
    wider = torch.empty(6, dtype=torch.float64, device=DEVICE)
    torch.add(device, device, out=wider)
    torch.testing.assert_close(wider.cpu(), (host + host).double())


def test_channels_last_is_kept() -> None:
    host = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    device = host.to(DEVICE)
    same(device, host)
    same(torch.relu(device), torch.relu(host))
    assert torch.relu(device).is_contiguous(memory_format=torch.channels_last)


def test_type_promotion_of_numbers() -> None:
    for dtype in (torch.int32, torch.float32, torch.bfloat16, torch.bool):
        host = torch.ones(2, dtype=dtype)
        device = host.to(DEVICE)
        for number in (2, 2.5, True, 1j):
            same(device + number, host + number)
            same(device[0] * number, host[0] * number)
    previous = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        same(
            torch.ones(2, dtype=torch.int64, device=DEVICE) / 2,
            torch.ones(2, dtype=torch.int64) / 2,
        )
    finally:
        torch.set_default_dtype(previous)


def test_lazy_conjugation_and_negation() -> None:
    host = torch.randn(3, 2, dtype=torch.complex64)
    device = host.to(DEVICE)
    assert device.conj().is_conj()
    torch.testing.assert_close(device.conj().cpu(), host.conj())
    torch.testing.assert_close((device.conj() * device).cpu(), host.conj() * host)
    torch.testing.assert_close(device.conj().imag.cpu(), host.conj().imag)
    target = torch.zeros(3, 2, dtype=torch.complex64, device=DEVICE)
    target.conj().copy_(device)
    torch.testing.assert_close(target.cpu(), host.conj().resolve_conj())
