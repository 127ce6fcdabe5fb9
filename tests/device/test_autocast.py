"""torch.autocast("neuron") and GradScaler."""

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.autocast_test_lists import AutocastTestLists

DTYPES = [torch.bfloat16, torch.float16]


@pytest.fixture
def lists() -> Iterator[AutocastTestLists]:
    """PyTorch's lists of ops with operands on the device that have dtypes but no data."""
    with FakeTensorMode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield AutocastTestLists("neuron")


def first_dtype(result: Any) -> torch.dtype | None:
    while isinstance(result, (tuple, list)):
        result = result[0]
    return result.dtype if isinstance(result, torch.Tensor) else None


def wrong(
    cases: list[Any], module: Any, expected: torch.dtype | None, dtype: torch.dtype
) -> list[str]:
    """The cases of a list whose result has another dtype than expected."""
    failures = []
    for name, args, *rest in cases:
        # The lists' einsum has its equation where the operands should be; PyTorch has no shape
        # inference for the cell that gru_cell becomes.
        if name.startswith("cudnn") or name == "gru_cell" or not isinstance(args, tuple):
            continue
        kwargs = rest[0] if rest and isinstance(rest[0], dict) else {}
        wanted = expected or (rest[0] if rest and isinstance(rest[0], torch.dtype) else None)
        with torch.autocast("neuron", dtype=dtype):
            if module is None:
                result = getattr(args[0], name)(*args[1:], **kwargs)
            else:
                result = getattr(module, name)(*args, **kwargs)
        found = first_dtype(result)
        if found is not None and wanted is not None and found != wanted:
            failures.append(f"{name}: {found} instead of {wanted}")
    return failures


@pytest.mark.parametrize("dtype", DTYPES)
def test_operations_that_run_in_the_lower_precision(
    lists: AutocastTestLists, dtype: torch.dtype
) -> None:
    assert wrong(lists.torch_fp16, torch, dtype, dtype) == []
    assert wrong(lists.nn_fp16, torch._C._nn, dtype, dtype) == []
    assert wrong(lists.linalg_fp16, torch._C._linalg, dtype, dtype) == []
    assert wrong(lists.methods_fp16, None, dtype, dtype) == []


@pytest.mark.parametrize("dtype", DTYPES)
def test_operations_that_run_in_float32(lists: AutocastTestLists, dtype: torch.dtype) -> None:
    assert wrong(lists.torch_fp32, torch, torch.float32, dtype) == []
    assert wrong(lists.nn_fp32, torch._C._nn, torch.float32, dtype) == []
    assert wrong(lists.methods_fp32, None, torch.float32, dtype) == []


def test_operations_that_promote(lists: AutocastTestLists) -> None:
    assert wrong(lists.torch_need_autocast_promote, torch, torch.float32, torch.float16) == []
    builtin = [case for case in lists.torch_expect_builtin_promote if case[0] != "equal"]
    assert wrong(builtin, torch, None, torch.float16) == []
    assert wrong(lists.methods_expect_builtin_promote, None, None, torch.float16) == []


def test_unsafe_operations_say_what_to_use(lists: AutocastTestLists) -> None:
    for name, args, module in lists.banned:
        with (
            torch.autocast("neuron"),
            pytest.raises(RuntimeError, match="binary_cross_entropy_with_logits"),
        ):
            getattr(module, name)(*args)


def test_the_default_is_bfloat16() -> None:
    assert torch.amp.is_autocast_available("neuron")
    assert torch.get_autocast_dtype("neuron") == torch.bfloat16
    assert not torch.is_autocast_enabled("neuron")
    with torch.autocast("neuron"):
        assert torch.is_autocast_enabled("neuron")
        assert not torch.is_autocast_enabled("cpu")
        with torch.autocast("neuron", enabled=False):
            assert not torch.is_autocast_enabled("neuron")
        assert torch.is_autocast_enabled("neuron")
    assert torch.neuron.get_amp_supported_dtype() == DTYPES


def test_other_dtypes_turn_it_off_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="bfloat16"), torch.autocast("neuron", dtype=torch.float64):
        assert not torch.is_autocast_enabled("neuron")


def test_a_training_step_computes_in_bfloat16_and_keeps_float32_weights() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 3))
    x, y = torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])

    def step(device: str) -> tuple[torch.Tensor, list[torch.Tensor]]:
        model.to(device).zero_grad()
        with torch.autocast(device, dtype=torch.bfloat16):
            logits = model(x.to(device))
            loss = torch.nn.functional.cross_entropy(logits, y.to(device))
        assert logits.dtype == torch.bfloat16
        assert loss.dtype == torch.float32
        loss.backward()
        return loss.detach().cpu(), [p.grad.cpu().clone() for p in model.parameters()]

    expected_loss, expected = step("cpu")
    loss, gradients = step("neuron")
    assert loss.isclose(expected_loss, rtol=2e-2)
    for gradient, reference in zip(gradients, expected, strict=True):
        assert gradient.dtype == torch.float32
        assert gradient.allclose(reference, atol=2e-2)


def test_casts_of_weights_are_cached() -> None:
    layer = torch.nn.Linear(16, 16, bias=False).to("neuron")
    x = torch.ones(2, 16, device="neuron", dtype=torch.bfloat16)
    with torch.autocast("neuron"):
        layer(x)
        torch.neuron.synchronize()
        torch.neuron.reset_metrics()
        layer(x)
    torch.neuron.synchronize()
    assert torch.neuron.metrics()["executions"] == 1


def test_custom_functions_take_part() -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="neuron", cast_inputs=torch.float32)
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            assert x.dtype == torch.float32
            assert not torch.is_autocast_enabled("neuron")
            return x * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type="neuron")
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad * 2

    x = torch.ones(2, device="neuron", dtype=torch.bfloat16, requires_grad=True)
    with torch.autocast("neuron"):
        y = Double.apply(x)
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2, 2]


def scaler_and_parameter(scale: float) -> tuple[torch.amp.GradScaler, torch.nn.Parameter, Any]:
    parameter = torch.nn.Parameter(torch.ones(3, device="neuron"))
    optimizer = torch.optim.SGD([parameter], lr=0.5)
    return torch.amp.GradScaler("neuron", init_scale=scale, growth_interval=2), parameter, optimizer


def test_grad_scaler_steps_and_grows() -> None:
    scaler, parameter, optimizer = scaler_and_parameter(128.0)
    for _ in range(2):
        optimizer.zero_grad()
        loss = (parameter * 2).sum()
        scaler.scale(loss).backward()
        assert parameter.grad is not None
        assert parameter.grad[0].item() == 256
        scaler.step(optimizer)
        scaler.update()
    assert parameter.tolist() == [-1, -1, -1]
    assert scaler.get_scale() == 256


def test_grad_scaler_skips_infinite_gradients() -> None:
    scaler, parameter, optimizer = scaler_and_parameter(128.0)
    scaler.scale((parameter * float("inf")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert parameter.tolist() == [1, 1, 1]
    assert scaler.get_scale() == 64


def test_grad_scaler_unscales_for_clipping_and_saves_its_state() -> None:
    scaler, parameter, optimizer = scaler_and_parameter(64.0)
    scaler.scale((parameter * 3).sum()).backward()
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_([parameter], 1.0)
    assert norm.item() == pytest.approx(27**0.5)
    scaler.step(optimizer)
    scaler.update()
    assert parameter[0].item() == pytest.approx(1 - 0.5 / 3**0.5, abs=1e-4)
    other = torch.amp.GradScaler("neuron")
    other.load_state_dict(scaler.state_dict())
    assert other.get_scale() == scaler.get_scale()
