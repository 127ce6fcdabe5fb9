"""Autograd's count of writes, by which it finds values that changed before a backward needs them."""

import pytest
import torch

DEVICE = "neuron"


@pytest.mark.parametrize("arguments", [{"foreach": True}, {"fused": True}, {"foreach": False}])
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
def test_optimizers_count(
    optimizer: type[torch.optim.Optimizer], arguments: dict[str, bool]
) -> None:
    parameters = [torch.nn.Parameter(torch.ones(3, device=DEVICE)) for _ in range(2)]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    before = [parameter._version for parameter in parameters]
    optimizer(parameters, lr=0.1, **arguments).step()  # type: ignore[call-arg]
    assert all(p._version > old for p, old in zip(parameters, before, strict=True))


def test_a_value_that_a_backward_needs_may_not_change() -> None:
    x = torch.ones(3, device=DEVICE, requires_grad=True)
    y = x.sin()
    loss = (y * y).sum()
    with torch.no_grad():
        torch._foreach_mul_([y], 2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_inference_tensors_are_written_without() -> None:
    with torch.inference_mode():
        x = torch.ones(3, device=DEVICE)
        torch._foreach_add_([x], 1.0)
    assert x.cpu().tolist() == [2, 2, 2]
