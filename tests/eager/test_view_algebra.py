"""Random chains of views and in-place writes agree exactly with the CPU, in every alias."""

from collections.abc import Callable

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

DEVICE = "neuron"
EXACT = {"rtol": 0, "atol": 0, "equal_nan": True}

ViewOp = Callable[[torch.Tensor], torch.Tensor]


@st.composite
def view_ops(draw: st.DrawFn, shape: tuple[int, ...]) -> ViewOp:
    """A view that a tensor of this shape allows."""
    choices = ["unsqueeze", "alias"]
    if shape:
        choices += ["select", "narrow", "step", "permute", "unfold", "expand", "diagonal", "view"]
    kind = draw(st.sampled_from(choices))
    dim = draw(st.integers(0, len(shape) - 1)) if shape else 0
    size = shape[dim] if shape else 1
    if kind == "unsqueeze":
        where = draw(st.integers(0, len(shape)))
        return lambda t: t.unsqueeze(where)
    if kind == "select" and size:
        index = draw(st.integers(0, size - 1))
        return lambda t: t.select(dim, index)
    if kind == "narrow" and size:
        start = draw(st.integers(0, size - 1))
        length = draw(st.integers(0, size - start))
        return lambda t: t.narrow(dim, start, length)
    if kind == "step" and size:
        start = draw(st.integers(0, size - 1))
        step = draw(st.integers(1, 3))
        return lambda t: t[(slice(None),) * dim + (slice(start, None, step),)]
    if kind == "permute":
        order = draw(st.permutations(range(len(shape))))
        return lambda t: t.permute(order)
    if kind == "unfold" and size >= 2:
        step = draw(st.integers(1, 2))
        return lambda t: t.unfold(dim, 2, step)
    if kind == "expand":
        return lambda t: t.unsqueeze(0).expand(2, *t.shape)
    if kind == "diagonal" and len(shape) >= 2:
        offset = draw(st.integers(-1, 1))
        return lambda t: t.diagonal(offset)
    if kind == "view":
        return lambda t: t.view(-1) if t.is_contiguous() else t.view_as(t)
    return lambda t: t.view_as(t)


def _writable(tensor: torch.Tensor) -> bool:
    """No two elements share memory, so that the result of a write is defined."""
    elements = tensor.untyped_storage().nbytes() // tensor.element_size()
    positions = torch.arange(elements).as_strided(
        tensor.shape, tensor.stride(), tensor.storage_offset()
    )
    return positions.unique().numel() == positions.numel()


WRITES: list[tuple[str, Callable[[torch.Tensor, int], torch.Tensor]]] = [
    ("add_", lambda t, k: t.add_(k)),
    ("mul_", lambda t, k: t.mul_(k + 2)),
    ("fill_", lambda t, k: t.fill_(k)),
    ("copy_", lambda t, k: t.copy_(torch.full(t.shape, float(k), device=t.device))),
    ("zero_", lambda t, k: t.zero_()),
    ("setitem", lambda t, k: _set_first(t, k)),
]


def _set_first(t: torch.Tensor, k: int) -> torch.Tensor:
    if t.dim() and t.shape[0]:
        t[0] = k
    return t


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_chains_of_views_and_writes(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3), label="shape"))
    dtype = data.draw(st.sampled_from([torch.float32, torch.int64, torch.int16]), label="dtype")
    numel = int(torch.tensor(shape).prod())
    host = torch.arange(numel).reshape(shape).to(dtype)
    device = host.to(DEVICE)
    aliases = [(host, device)]
    for step in range(data.draw(st.integers(2, 6), label="steps")):
        base_host, base_device = aliases[data.draw(st.integers(0, len(aliases) - 1))]
        op = data.draw(view_ops(tuple(base_host.shape)))
        view_host, view_device = op(base_host), op(base_device)
        assert view_host.shape == view_device.shape
        assert view_host.stride() == view_device.stride()
        assert view_host.storage_offset() == view_device.storage_offset()
        aliases.append((view_host, view_device))
        _, write = WRITES[data.draw(st.integers(0, len(WRITES) - 1))]
        if _writable(view_host):
            write(view_host, step + 1)
            write(view_device, step + 1)
    for expected, actual in aliases:
        torch.testing.assert_close(actual.cpu(), expected, **EXACT)
        if expected.numel():
            torch.testing.assert_close((actual + 1).cpu(), expected + 1, **EXACT)


def test_dtype_views_alias_the_bytes() -> None:
    host = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    device = host.to(DEVICE)
    for dtype in (torch.int32, torch.uint8, torch.int16, torch.complex64, torch.float64):
        torch.testing.assert_close(device.view(dtype).cpu(), host.view(dtype), **EXACT)
    device.view(torch.int32)[1].add_(1)
    host.view(torch.int32)[1].add_(1)
    torch.testing.assert_close(device.cpu(), host, **EXACT)
    flat = torch.arange(64, dtype=torch.int8)
    halves = flat.to(DEVICE)
    halves[8:24].view(torch.bfloat16).fill_(1.5)
    flat[8:24].view(torch.bfloat16).fill_(1.5)
    torch.testing.assert_close(halves.cpu(), flat, **EXACT)


def test_as_strided_overlap_reads_and_set() -> None:
    host = torch.arange(10.0)
    device = host.to(DEVICE)
    torch.testing.assert_close(
        device.as_strided((4, 3), (2, 1), 1).cpu(), host.as_strided((4, 3), (2, 1), 1), **EXACT
    )
    other = torch.empty(0, device=DEVICE).set_(device.untyped_storage(), 2, (2, 3), (3, 1))
    other.mul_(10)
    host[2:8].mul_(10)
    torch.testing.assert_close(device.cpu(), host, **EXACT)


def test_aliased_operands_and_overlapping_copies() -> None:
    host = torch.arange(8.0)
    device = host.to(DEVICE)
    for t in (host, device):
        t[:4].add_(t[4:])
        t.mul_(t)
        t[1:].copy_(t[:-1].clone())
    torch.testing.assert_close(device.cpu(), host, **EXACT)


def test_clone_shares_no_later_write() -> None:
    device = torch.arange(6.0, device=DEVICE)
    copy = device.clone()
    device.add_(1)
    copy.mul_(2)
    assert device.tolist() == [1, 2, 3, 4, 5, 6]
    assert copy.tolist() == [0, 2, 4, 6, 8, 10]
