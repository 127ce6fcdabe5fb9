"""Arguments whose memory holds the conjugate or the negative of their value, as PyTorch passes them to products."""

from collections.abc import Callable

import pytest
import torch

DEVICE = "neuron"
Tensor = torch.Tensor

CALLS: dict[str, Callable[[Tensor], Tensor]] = {
    "mm": lambda x: x @ x.mH,
    "mm, left": lambda x: x.conj() @ x.mT,
    "mm, both": lambda x: x.conj() @ x.mH,
    "addmm": lambda x: torch.addmm(x.conj(), x, x.mH),
    "bmm": lambda x: x[None] @ x[None].mH,
    "dot": lambda x: torch.dot(x[0].conj(), x[1]),
    "vdot": lambda x: torch.vdot(x[0].conj(), x[1]),
    "solve_triangular": lambda x: torch.linalg.solve_triangular(
        x.mH + 3 * torch.eye(3, device=x.device), x, upper=True
    ),
    "cov": torch.cov,
    "negative": lambda x: torch.mm(x.conj().imag, x.real),
    "in place": lambda x: x.clone().conj_physical_() @ x,
}


def _matrix() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(3, 3, dtype=torch.complex64, generator=generator)


@pytest.mark.parametrize("name", CALLS)
def test_as_on_the_cpu(name: str) -> None:
    x = _matrix()
    torch.testing.assert_close(CALLS[name](x.to(DEVICE)).cpu(), CALLS[name](x))


def test_gradient_of_lu() -> None:
    def gradient(x: Tensor) -> Tensor:
        x = x.requires_grad_()
        factors, _ = torch.linalg.lu_factor(x)
        factors.abs().sum().backward()
        assert x.grad is not None
        return x.grad

    torch.testing.assert_close(gradient(_matrix().to(DEVICE)).cpu(), gradient(_matrix()))


@pytest.mark.parametrize("size", [0, 3])
def test_out_is_a_conjugate(size: int) -> None:
    x = _matrix()
    results = []
    for device in ("cpu", DEVICE):
        memory = torch.zeros(size, size, dtype=torch.complex64, device=device)
        out = memory.conj()
        result = torch.mm(x.to(device), x.to(device).mH, out=out)
        assert result is out
        assert out.is_conj()
        results.append((out.resolve_conj().cpu(), memory.cpu()))
    # With other sizes PyTorch's CPU gives `out` the values without their conjugation.
    torch.testing.assert_close(results[1][0], x @ x.mH)
    if size:
        torch.testing.assert_close(results[1], results[0])
