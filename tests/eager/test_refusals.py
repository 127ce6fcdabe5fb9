"""Dtypes that the CPU refuses are refused with the same error, and nothing else is."""

import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

from tests.conformance.refusals import Evidence, observe
from torchneuron.eager import refusals
from torchneuron.settings import settings

DEVICE = "neuron"
nn = torch.nn.functional


def _ones(device: str, dtype: torch.dtype, *sizes: int) -> torch.Tensor:
    return torch.ones(sizes or (3, 3), dtype=dtype, device=device)


REFUSED: dict[str, Callable[[str], object]] = {
    "unary": lambda d: torch.ceil(_ones(d, torch.bool)),
    "unary in place": lambda d: _ones(d, torch.bool).ceil_(),
    "unary out": lambda d: torch.ceil(_ones(d, torch.bool), out=_ones(d, torch.bool, 0)),
    "unary, no dimensions": lambda d: torch.tensor(1 + 1j, device=d).sign(),
    "binary": lambda d: torch.atan2(*[_ones(d, torch.complex64)] * 2),
    "comparison with a number": lambda d: _ones(d, torch.complex128) < 1j,
    "ternary": lambda d: torch.lerp(*[_ones(d, torch.int64)] * 2, 2),
    "a mode among kernels": lambda d: torch.div(
        *[_ones(d, torch.complex64)] * 2, rounding_mode="trunc"
    ),
    "reduction": lambda d: _ones(d, torch.int32).var(),
    "positions": lambda d: _ones(d, torch.bool).argmax(),
    "sort": lambda d: _ones(d, torch.complex64).kthvalue(1),
    "loss": lambda d: nn.mse_loss(*[_ones(d, torch.int64)] * 2),
    "loss with targets": lambda d: nn.nll_loss(_ones(d, torch.complex64), _ones(d, torch.int64, 3)),
    "gradient": lambda d: torch.ops.aten._softmax_backward_data(
        *[_ones(d, torch.int64)] * 2, 1, torch.int64
    ),
    "decomposition": lambda d: torch.cholesky_solve(*[_ones(d, torch.int64)] * 2),
    "composite": lambda d: torch.ops.aten.cholesky(_ones(d, torch.uint8)),
    "factory": lambda d: torch.arange(3, dtype=torch.bool, device=d),
    "random numbers": lambda d: _ones(d, torch.int64).normal_(),
    "index dtype": lambda d: torch.gather(_ones(d, torch.float32), 1, _ones(d, torch.float32)),
}

ACCEPTED: dict[str, Callable[[str], object]] = {
    "nothing to compute": lambda d: _ones(d, torch.complex64, 0).cummax(0).values,
    "no dimensions": lambda d: torch.tensor(True, device=d).kthvalue(1).values,
    "another mode": lambda d: torch.div(*[_ones(d, torch.complex64)] * 2),
    "a number that promotes": lambda d: _ones(d, torch.bool).clamp(0, 2),
    "a dtype that converts": lambda d: _ones(d, torch.int64).mean(dtype=torch.float32),
    "integers": lambda d: _ones(d, torch.uint8).ceil(),
}


@pytest.fixture(params=["strict", "blocking", "adaptive"])
def mode(request: pytest.FixtureRequest) -> Iterator[None]:
    before = settings.eager
    settings.eager = request.param
    yield
    settings.eager = before


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("name", REFUSED)
def test_what_the_cpu_refuses(name: str) -> None:
    call = REFUSED[name]
    with pytest.raises(Exception) as on_cpu:  # noqa: PT011  (the CPU says which)
        call("cpu")
    for _ in range(2):
        with pytest.raises(type(on_cpu.value)) as on_device:
            call(DEVICE)
        assert str(on_device.value) == str(on_cpu.value)


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_the_cpu_computes(name: str) -> None:
    torch.testing.assert_close(ACCEPTED[name](DEVICE), ACCEPTED[name]("cpu"), check_device=False)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_computed_where_the_cpu_refuses_them(dtype: torch.dtype) -> None:
    with pytest.raises(NotImplementedError):
        torch.cdist(*[_ones("cpu", dtype)] * 2)
    assert torch.cdist(*[_ones(DEVICE, dtype)] * 2).cpu().count_nonzero() == 0


def test_what_cuda_computes_is_computed() -> None:
    x = torch.tensor([0, 1, 1, 3], dtype=torch.int32)
    with pytest.raises(NotImplementedError):
        torch.histc(x, 4, 0, 3)
    assert torch.histc(x.to(DEVICE), 4, 0, 3).tolist() == [1, 2, 0, 1]


def test_the_table_is_what_the_cpu_does() -> None:
    """A random part of it is observed anew."""
    evidence = Evidence()
    warnings.simplefilter("ignore")
    for info in random.Random(0).sample(op_db, 25):
        observe(info, 2, evidence, Counter())
    accepted = [(op, key) for op, keys in evidence.accepted.items() for key in keys]
    assert len(accepted) > 500
    assert [f"{op} {key}" for op, key in accepted if refusals.refusal(op, key) is not None] == []
    compared = 0
    for op, found in evidence.refused.items():
        for key, (error, message, _, dtype) in found.items():
            known = refusals.refusal(op, key)
            # The whole table rests on more calls, some of which may have run.
            if known is not None:
                expected = message.replace("{T}", refusals.CXX_NAMES[dtype])
                assert (type(known).__name__, str(known)) == (error, expected), f"{op} {key}"
                compared += 1
    assert compared > 60
