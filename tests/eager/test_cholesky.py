"""torch.cholesky: natively, with the CPU's errors."""

import pytest
import torch


@pytest.mark.parametrize("upper", [False, True])
def test_native(upper: bool) -> None:
    x = torch.randn(2, 4, 4, generator=torch.Generator().manual_seed(0))
    x = x @ x.mT + torch.eye(4)
    fallbacks = dict(torch.neuron.metrics()["fallbacks"])
    factor = torch.cholesky(x.to("neuron"), upper=upper)
    assert dict(torch.neuron.metrics()["fallbacks"]) == fallbacks
    torch.testing.assert_close(factor.cpu(), torch.linalg.cholesky(x, upper=upper))


def test_not_positive_definite() -> None:
    x = torch.eye(3)
    x[1, 1] = -1
    errors = []
    for device in ("cpu", "neuron"):
        with pytest.raises(torch.linalg.LinAlgError) as raised:
            torch.cholesky(x.to(device))
        errors.append(str(raised.value))
    assert errors[0] == errors[1]
