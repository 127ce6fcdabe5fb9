"""Wrong input raises what PyTorch's CPU raises."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.conftest import RunPython

F = torch.nn.functional


def matrix(device: str, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype).to(device)


CASES: dict[str, Callable[[str], Any]] = {
    "add shapes": lambda d: matrix(d, 2, 3) + matrix(d, 2, 4),
    "add_ shape of self": lambda d: matrix(d, 1).add_(matrix(d, 3)),
    "matmul shapes": lambda d: matrix(d, 2, 3) @ matrix(d, 2, 3),
    "matmul dtypes": lambda d: matrix(d, 2, 2) @ matrix(d, 2, 2, dtype=torch.float64),
    "mm of vectors": lambda d: torch.mm(matrix(d, 2), matrix(d, 2)),
    "bmm batch": lambda d: torch.bmm(matrix(d, 2, 3, 3), matrix(d, 3, 3, 3)),
    "linear": lambda d: F.linear(matrix(d, 2, 3), matrix(d, 4, 5)),
    "conv channels": lambda d: F.conv2d(matrix(d, 1, 3, 8, 8), matrix(d, 4, 2, 3, 3)),
    "conv dims": lambda d: F.conv2d(matrix(d, 3), matrix(d, 4, 3, 3, 3)),
    "cat shapes": lambda d: torch.cat([matrix(d, 2, 3), matrix(d, 2, 4)]),
    "stack shapes": lambda d: torch.stack([matrix(d, 2), matrix(d, 3)]),
    "cat of nothing": lambda d: torch.cat([]),
    "view size": lambda d: matrix(d, 2, 3).view(5),
    "view of transposed": lambda d: matrix(d, 2, 3).t().view(6),
    "reshape": lambda d: matrix(d, 2, 3).reshape(4),
    "expand": lambda d: matrix(d, 2, 3).expand(2, 4),
    "squeeze dim": lambda d: matrix(d, 2).squeeze(3),
    "sum dim": lambda d: matrix(d, 2, 3).sum(2),
    "softmax dim": lambda d: matrix(d, 2, 3).softmax(5),
    "transpose dim": lambda d: matrix(d, 2, 3).transpose(0, 2),
    "index dim": lambda d: matrix(d, 2)[0, 0],
    "int index": lambda d: matrix(d, 2)[2],
    "select": lambda d: matrix(d, 2, 3).select(1, 3),
    "narrow": lambda d: matrix(d, 5).narrow(0, 3, 4),
    "mask shape": lambda d: matrix(d, 3)[torch.ones(4, dtype=torch.bool).to(d)],
    "index dtype": lambda d: matrix(d, 3)[matrix(d, 1)],
    "gather dtype": lambda d: matrix(d, 2, 2).gather(0, matrix(d, 1, 2)),
    "embedding dtype": lambda d: F.embedding(matrix(d, 2), matrix(d, 3, 4)),
    "cross_entropy shapes": lambda d: F.cross_entropy(
        matrix(d, 2, 3), torch.zeros(4, dtype=torch.long).to(d)
    ),
    "nll_loss dtype": lambda d: F.nll_loss(matrix(d, 2, 3), matrix(d, 2)),
    "in-place on expanded": lambda d: matrix(d, 1).expand(3).add_(1),
    "in-place result type": lambda d: matrix(d, 2, dtype=torch.int64).add_(0.5),
    "in-place division of integers": lambda d: matrix(d, 2, dtype=torch.int64).div_(2),
    "in-place overlap": lambda d: _overlapping(matrix(d, 6)),
    "out dtype": lambda d: torch.add(
        matrix(d, 2), matrix(d, 2), out=matrix(d, 2, dtype=torch.int64)
    ),
    "bool subtraction": lambda d: (
        torch.ones(2, dtype=torch.bool).to(d) - torch.ones(2, dtype=torch.bool).to(d)
    ),
    "negative bool": lambda d: -torch.ones(2, dtype=torch.bool).to(d),
    "bitwise on floats": lambda d: matrix(d, 2) & matrix(d, 2),
    "item of two": lambda d: matrix(d, 2).item(),
    "bool of two": lambda d: bool(matrix(d, 2)),
    "int of complex": lambda d: int(matrix(d, 1, dtype=torch.complex64) * 1j),
    "leaf in-place": lambda d: matrix(d, 2).requires_grad_().add_(1),
    "backward of non-scalar": lambda d: matrix(d, 2).requires_grad_().mul(2).backward(),
    "integer requires grad": lambda d: matrix(d, 2, dtype=torch.int64).requires_grad_(),
    "mean of integers": lambda d: matrix(d, 2, dtype=torch.int64).mean(),
    "zero step": lambda d: torch.arange(0, 5, 0, device=d),
    "negative size": lambda d: torch.zeros(-1, device=d),
    "bad as_strided": lambda d: matrix(d, 4).as_strided((5,), (1,)),
    "unsupported view dtype": lambda d: matrix(d, 3, dtype=torch.uint8).view(torch.int32),
    "sort dim": lambda d: matrix(d, 2).sort(dim=2),
    "topk k": lambda d: matrix(d, 2).topk(3),
    "dropout p": lambda d: F.dropout(matrix(d, 2), 1.5),
    "layer_norm shape": lambda d: F.layer_norm(matrix(d, 2, 3), (4,)),
    "batch_norm single": lambda d: F.batch_norm(
        matrix(d, 1, 3), matrix(d, 3), matrix(d, 3), training=True
    ),
    "wrong keyword": lambda d: torch.add(matrix(d, 2), 1, nonsense=2),
    "string operand": lambda d: matrix(d, 2) + "x",
    "normal std": lambda d: torch.normal(0.0, -1.0, (2,), device=d),
    "random range": lambda d: torch.randint(5, 5, (2,), device=d),
    "multinomial": lambda d: torch.multinomial(matrix(d, 2), 3),
}


def _overlapping(x: torch.Tensor) -> torch.Tensor:
    return x[1:].add_(x[:-1])


def raised(work: Callable[[], Any]) -> BaseException | None:
    try:
        result = work()
        if isinstance(result, torch.Tensor):
            result.cpu()
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize("case", CASES)
def test_same_exception_as_the_cpu(case: str) -> None:
    expected = raised(lambda: CASES[case]("cpu"))
    actual = raised(lambda: CASES[case]("neuron"))
    assert expected is not None, "the case is no error on the CPU"
    assert type(actual) is type(expected), f"{actual!r} instead of {expected!r}"


@pytest.mark.parametrize(
    "work",
    [
        lambda x, h: x + h,
        lambda x, h: h + x,
        lambda x, h: x @ h,
        lambda x, h: x.add_(h),
        lambda x, h: h.add_(x),
        lambda x, h: torch.cat([x, h]),
        lambda x, h: torch.where(x > 0, x, h),
        lambda x, h: F.linear(x, h),
        lambda x, h: F.layer_norm(x, (2,), h[0]),
        lambda x, h: torch.add(x, x, out=h),
        lambda x, h: torch._foreach_add([x], [h]),
        lambda x, h: x.gather(0, h.long()),
        lambda x, h: h[x.long()],
    ],
)
def test_mixed_devices(work) -> None:  # type: ignore[no-untyped-def]
    x, host = torch.ones(2, 2, device="neuron"), torch.ones(2, 2)
    with pytest.raises(RuntimeError, match=r"same device|neuron|cpu"):
        work(x, host)
    other = torch.ones(2, 2, device="neuron:1")
    with pytest.raises(RuntimeError, match=r"same device|neuron"):
        work(x, other)


def test_the_message_names_both_devices() -> None:
    x = torch.ones(2, device="neuron")
    text = r"Expected all tensors to be on the same device, but found at least two devices"
    with pytest.raises(RuntimeError, match=rf"{text}, neuron:0 and cpu"):
        x + torch.ones(2)
    with pytest.raises(RuntimeError, match=rf"{text}, neuron:0 and neuron:1"):
        x + torch.ones(2, device="neuron:1")


def test_numbers_and_0d_host_tensors_are_no_mix() -> None:
    x = torch.ones(2, device="neuron")
    assert (x + torch.tensor(2.0)).tolist() == [3, 3]
    assert (torch.tensor(2.0) * x).tolist() == [2, 2]
    x[torch.tensor([0])] = 5.0
    assert x[torch.tensor([0, 1])].tolist() == [5, 1]


@pytest.mark.parametrize("device", ["neuron:99", "neuron:-2", "neuron:x", "neurons", "neuron:"])
def test_devices_that_do_not_exist(device: str) -> None:
    with pytest.raises(RuntimeError):
        torch.zeros(2, device=device)


@pytest.mark.parametrize("dtype", [torch.qint8, torch.quint8, torch.bits8])
def test_dtypes_that_the_device_cannot_hold(dtype: torch.dtype) -> None:
    with pytest.raises((TypeError, RuntimeError), match=r"(?i)neuron|qint8|quint8|quant|bits8"):
        torch.empty(2, dtype=dtype, device="neuron")


def test_layouts_that_the_device_cannot_hold() -> None:
    with pytest.raises(NotImplementedError, match="neuron"):
        torch.eye(2, device="neuron").to_mkldnn()
    with pytest.raises(NotImplementedError, match="neuron"):
        torch.eye(2).to_mkldnn().to("neuron")


def test_the_device_works_on_after_errors() -> None:
    x = torch.ones(3, device="neuron")
    for _ in range(3):
        with pytest.raises(RuntimeError):
            x + torch.ones(4, device="neuron")
        x = x + 1
    assert x.tolist() == [4, 4, 4]


BROKEN = """
import torch
assert torch.neuron.is_available()
for attempt in range(2):
    try:
        torch.zeros(2, device="neuron").add_(1)
    except RuntimeError as error:
        print(type(error).__name__, str(error).splitlines()[0])
assert not torch.neuron.is_initialized()
"""


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "there is no such file"),
        ("not a library", "plugin.so"),
    ],
)
def test_a_broken_plugin_is_one_clear_sentence(
    run_python: RunPython,
    tmp_path,  # type: ignore[no-untyped-def]
    content: str | None,
    says: str,
) -> None:
    path = tmp_path / "plugin.so"
    if content is not None:
        path.write_text(content)
    done = run_python(BROKEN, TORCHNEURON_PLUGIN=str(path))
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert lines[0] == lines[1]
    assert str(path) in lines[0]
    assert says in lines[0]
    assert done.stderr == ""


def test_a_wrong_setting_is_named_when_torch_is_imported(run_python: RunPython) -> None:
    done = run_python("import torch", check=False, TORCHNEURON_TARGET="trn9")
    assert done.returncode == 1
    assert "TORCHNEURON_TARGET" in done.stderr
    assert "trn2 or trn3" in done.stderr
