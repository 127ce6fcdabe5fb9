"""Fourier transforms against PyTorch's CPU."""

import pytest
import torch

from tests.lowering.harness import Call, call, check_ops

aten = torch.ops.aten

_PAIRS = ((torch.float32, torch.complex64), (torch.float64, torch.complex128))


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize(("real", "wide"), _PAIRS)
def test_transforms(real: torch.dtype, wide: torch.dtype) -> None:
    signal = torch.randn(3, 4, 5, 6, dtype=real)
    spectrum = torch.randn(3, 4, 5, 6, dtype=wide)
    calls: list[Call] = []
    for dims in ([3], [1], [0, 2], [3, 1], [0, 1, 2], [0, 1, 2, 3]):
        for mode in (0, 1, 2):
            calls.append(call(aten._fft_c2c.default, spectrum, dims, mode, mode != 1))
            calls.append(call(aten._fft_c2c.default, spectrum, dims, mode, mode == 1))
            calls.append(call(aten._fft_r2c.default, signal, dims, mode, True))
            calls.append(call(aten._fft_r2c.default, signal, dims, mode, False))
            size = spectrum.shape[dims[-1]]
            calls.append(call(aten._fft_c2r.default, spectrum, dims, mode, 2 * size - 2))
            calls.append(call(aten._fft_c2r.default, spectrum, dims, mode, 2 * size - 1))
    check_ops(calls)


def test_lengths_and_views() -> None:
    calls = [
        call(aten._fft_c2c.default, torch.randn(n, dtype=torch.complex64), [0], 0, True)
        for n in (1, 7, 31, 64)
    ]
    calls.append(call(aten._fft_r2c.default, torch.randn(1), [0], 0, True))
    calls.append(call(aten._fft_c2c.default, torch.randn(2, 4, dtype=torch.complex64), [], 0, True))
    calls.append(
        call(aten._fft_c2r.default, torch.randn(2, 4, dtype=torch.complex64).t(), [0], 2, 6)
    )
    check_ops(calls)
