"""Sparse tensors on the device: the container, its conversions and products, and their gradients, against the CPU."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.functional import embedding

from torchneuron.settings import settings

pytestmark = pytest.mark.usefixtures("no_fallback")
DEVICE = "neuron"
DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64]
LAYOUTS = [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc]


def values_of(count: int, *dense: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    values = torch.arange(1, 1 + torch.Size((count, *dense)).numel()).reshape(count, *dense)
    return (values % 2 == 1) if dtype is torch.bool else values.to(dtype)


def duplicates(
    *dense: int, dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> torch.Tensor:
    """``[3, 4, *dense]``, uncoalesced: two of its elements stand twice, out of order."""
    indices = torch.tensor([[2, 0, 2, 0, 1, 2], [3, 1, 3, 0, 2, 0]])
    values = values_of(6, *dense, dtype=dtype)
    return torch.sparse_coo_tensor(
        indices.to(device), values.to(device), (3, 4, *dense), check_invariants=True
    )


def empty(*dense: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> torch.Tensor:
    return torch.sparse_coo_tensor(
        torch.empty(2, 0, dtype=torch.int64), torch.empty(0, *dense), (3, 4, *dense)
    ).to(device, dtype)


def agree(actual: Any, expected: Any) -> None:
    """The same layout, elements and dtype; the actual one on the device."""
    assert actual.device.type == DEVICE
    assert actual.layout == expected.layout
    if expected.layout is torch.sparse_coo:
        assert actual.is_coalesced() == expected.is_coalesced()
    torch.testing.assert_close(actual.cpu(), expected)


def on_both(function: Callable[..., Any], *tensors: torch.Tensor) -> None:
    agree(function(*[tensor.to(DEVICE) for tensor in tensors]), function(*tensors))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dense", [(), (2,), (2, 0)])
@pytest.mark.parametrize("make", [duplicates, empty])
def test_container(make: Callable[..., torch.Tensor], dense: tuple[int, ...], dtype: Any) -> None:
    x, expected = make(*dense, dtype=dtype, device=DEVICE), make(*dense, dtype=dtype)
    assert (x.sparse_dim(), x.dense_dim(), x._nnz()) == (2, len(dense), expected._nnz())
    agree(x, expected)
    agree(x.clone(), expected)
    agree(x.coalesce(), expected.coalesce())
    agree(x.coalesce().indices(), expected.coalesce().indices())
    agree(x.to_dense(), expected.to_dense())
    agree(x.transpose(0, 1).coalesce(), expected.transpose(0, 1).coalesce())
    assert str(x).startswith("tensor(indices=")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 4), (0, 4), (3, 0), (1, 1)])
def test_between_layouts(shape: tuple[int, int], dtype: torch.dtype, layout: torch.layout) -> None:
    dense = (values_of(*shape, dtype=torch.int64) % 3).to(dtype)
    on_both(lambda x: x.to_sparse(layout=layout), dense)
    on_both(lambda x: x.to_sparse(layout=layout).to_dense(), dense)
    on_both(lambda x: x.to_sparse(layout=layout).to_sparse(), dense)
    on_both(lambda x: x.to_sparse().to_sparse(layout=layout), dense)
    on_both(lambda x: x.to_sparse(layout=layout).clone(), dense)
    on_both(lambda x: x.to_sparse_csr().to_sparse(layout=layout), dense)
    on_both(lambda x: x.to_sparse_csc().to_sparse(layout=layout), dense)
    assert dense.to(DEVICE).to_sparse_csr().col_indices().is_contiguous()


def test_blocks_and_batches() -> None:
    x = (values_of(4, 6) % 5 < 2).float()
    for layout in (torch.sparse_bsr, torch.sparse_bsc):
        on_both(lambda x, layout=layout: x.to_sparse(layout=layout, blocksize=(2, 3)), x)
        on_both(lambda x, layout=layout: x.to_sparse(layout=layout, blocksize=(2, 3)).to_dense(), x)
    batch = torch.eye(3).expand(2, 3, 3).contiguous()
    on_both(lambda x: x.to_sparse_csr(), batch)
    on_both(lambda x: x.to_sparse_csr().to_dense(), batch)
    on_both(lambda x: x.to_sparse(1), values_of(3, 4))


@pytest.mark.parametrize("dense", [(), (2,)])
def test_arithmetic(dense: tuple[int, ...]) -> None:
    x, y, none = duplicates(*dense), duplicates(*dense).coalesce() * 2, empty(*dense)
    full = values_of(3, 4, *dense)
    for other in (y, none, x):
        on_both(lambda a, b: (a + b).coalesce(), x, other)
        on_both(lambda a, b: torch.add(b, a, alpha=3).coalesce(), x, other)
        on_both(lambda a, b: (a - b).coalesce(), y, other)
        on_both(lambda a, b: (a * b).coalesce(), y, other)
        on_both(lambda a, b: a + b, full, other)
        on_both(lambda a, b: torch.add(a, b, alpha=-2), full, other)
        on_both(lambda a, b: a.clone().add_(b), full, other)
        on_both(lambda a, b: a.sparse_mask(b), full, other.coalesce())
        on_both(lambda a, b: a.sparse_mask(b.coalesce()), y, other)
    on_both(lambda a: (a * 3 / 2).coalesce().sqrt(), x)
    on_both(lambda a: a * a.to_dense(), x.coalesce())
    on_both(lambda a: a.clone().zero_(), x)
    on_both(lambda a: a.norm(), x)
    on_both(torch.sparse.sum, x)
    on_both(lambda a: torch.cat([a, a]), x)
    on_both(lambda a: a * torch.full((2, 3, 4, *dense), 2.0, device=a.device), x.coalesce())
    on_both(lambda a: torch.add(a, a, out=torch.empty_like(a)), x.coalesce())
    on_both(lambda a: a.clone().mul_(2).add_(a).coalesce(), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.int64])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("make", [duplicates, empty])
def test_products(make: Callable[..., torch.Tensor], layout: Any, dtype: torch.dtype) -> None:
    x = (
        make(dtype=dtype)
        if layout is torch.sparse_coo
        else make(dtype=dtype).to_sparse(layout=layout)
    )
    right, start = values_of(4, 5, dtype=dtype), values_of(3, 5, dtype=dtype)
    dense = x.to_dense()
    agree(torch.sparse.mm(x.to(DEVICE), right.to(DEVICE)), dense @ right)
    agree(x.to(DEVICE) @ right[:, 0].to(DEVICE), dense @ right[:, 0])
    agree(
        torch.addmm(start.to(DEVICE), x.to(DEVICE), right.to(DEVICE), beta=2, alpha=3),
        torch.addmm(start, dense, right, beta=2, alpha=3),
    )
    agree(right.t().to(DEVICE) @ x.t().to(DEVICE), right.t() @ dense.t())


def test_compressed_arithmetic() -> None:
    x, y, dense = duplicates().to_sparse_csr(), torch.eye(3, 4).to_sparse_csr(), values_of(3, 4)
    on_both(lambda a, b: a + b, x, y)
    on_both(lambda a, b: torch.add(a, b, alpha=2), dense, y)
    on_both(lambda a, b: a * b, x, y)
    on_both(lambda a, b: a * b, x, dense)
    on_both(lambda a: (a * 2).sin().neg(), x)
    on_both(lambda a, b: a.sparse_mask(b), dense, x)
    on_both(lambda a: a[1], x)


def gradients(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> list[Any]:
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    result = function(*leaves)
    weight = torch.arange(1.0, 1 + result.numel()).reshape(result.shape)
    (result * weight.to(result.device)).sum().backward()
    grads = [leaf.grad for leaf in leaves]
    return [g.coalesce() if g is not None and g.layout is torch.sparse_coo else g for g in grads]


def same_gradients(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> None:
    expected = gradients(function, *inputs)
    for actual, wanted in zip(
        gradients(function, *[x.to(DEVICE) for x in inputs]), expected, strict=True
    ):
        agree(actual, wanted)


def test_gradients() -> None:
    x, right = duplicates(), values_of(4, 5)
    same_gradients(lambda a: a.to_dense(), x)
    same_gradients(lambda a: a.to_sparse().to_dense(), right)
    same_gradients(
        lambda v: torch.sparse_coo_tensor(x._indices().to(v.device), v).to_dense(), x._values()
    )
    same_gradients(torch.sparse.mm, x.coalesce(), right)
    same_gradients(torch.sparse.mm, x, right)
    same_gradients(lambda a: a.to_dense(), x.to_sparse_csr())


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin"])
def test_product_with_reduction(reduce: str) -> None:
    crow, col = torch.tensor([0, 2, 2, 4]), torch.tensor([0, 3, 1, 1])
    x = torch.sparse_csr_tensor(crow, col, torch.tensor([1.0, -2.0, 0.5, 3.0]), (3, 4))
    right = values_of(4, 5) - 7
    on_both(lambda a, b: torch.sparse.mm(a, b, reduce), x, right)
    same_gradients(lambda a, b: torch.sparse.mm(a, b, reduce), x, right)
    on_both(lambda a, b: torch.sparse.mm(a, b, reduce), empty().to_sparse_csr(), right)


def test_sampled_product() -> None:
    x, left, right = duplicates().to_sparse_csr(), values_of(3, 5), values_of(5, 4)
    on_both(lambda a, b, c: torch.sparse.sampled_addmm(a, b, c, beta=2, alpha=3), x, left, right)
    on_both(torch.sparse.sampled_addmm, empty().to_sparse_csr(), left, right)
    same_gradients(lambda a, b, c: torch.sparse.sampled_addmm(a, b, c).to_dense(), x, left, right)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        torch.sparse.sampled_addmm(x.to(DEVICE), left.to(DEVICE), left.to(DEVICE))


@pytest.mark.parametrize(
    "optimizer", [torch.optim.SparseAdam, torch.optim.SGD, torch.optim.Adagrad]
)
def test_training_of_a_sparse_embedding(optimizer: Any) -> None:
    def train(device: str) -> torch.Tensor:
        weight = (values_of(6, 3) / 10).to(device).requires_grad_()
        chosen = torch.tensor([[0, 2, 2], [5, 0, 1]], device=device)
        trained = optimizer([weight], lr=0.1)
        for _ in range(3):
            trained.zero_grad()
            embedding(chosen, weight, sparse=True, padding_idx=5).square().sum().backward()
            assert weight.grad is not None
            assert weight.grad.layout is torch.sparse_coo
            trained.step()
        return weight.detach()

    agree(train(DEVICE), train("cpu"))


def test_bad_input_is_refused_with_its_reason() -> None:
    x, index = duplicates(device=DEVICE), torch.tensor([[0], [1]])
    with pytest.raises(RuntimeError, match="device"):
        torch.sparse_coo_tensor(index, torch.ones(1, device=DEVICE), (2, 2), device="cpu") + x
    with pytest.raises(RuntimeError, match="inconsistent with indices"):
        torch.sparse_coo_tensor(
            index.to(DEVICE), torch.ones(1, device=DEVICE), (1, 1), check_invariants=True
        )
    with pytest.raises(RuntimeError, match="does not currently support broadcasting"):
        torch.ones(4, device=DEVICE) + x
    with pytest.raises(RuntimeError, match="sizes of 'self' and 'other' to match"):
        x + x.t()
    with pytest.raises(RuntimeError, match="Expected dim 0 size 4, got 3"):
        torch.sparse.mm(x, torch.ones(3, 2, device=DEVICE))
    settings.fallback = "allow"
    with pytest.raises(RuntimeError, match="col_indices"):
        torch.sparse_csr_tensor(
            torch.tensor([0, 1], device=DEVICE),
            torch.tensor([5], device=DEVICE),
            torch.ones(1, device=DEVICE),
            (1, 2),
            check_invariants=True,
        )
    with pytest.raises(RuntimeError, match="uncoalesced"):
        x.indices()


def test_what_has_no_composition_falls_back_and_is_counted() -> None:
    x = duplicates().coalesce()
    with pytest.raises(NotImplementedError, match="_sparse_sparse_matmul"):
        torch.sparse.mm(x.to(DEVICE), x.t().to(DEVICE))
    settings.fallback = "allow"
    before = torch.neuron.metrics()["fallbacks"].get("aten::_sparse_sparse_matmul", 0)
    on_both(lambda a: torch.sparse.mm(a, a.t()).coalesce(), x)
    on_both(lambda a: torch.sparse.mm(a, a.t().to_sparse_csr()), x.to_sparse_csr())
    on_both(lambda a: torch.sparse.softmax(a, 1).coalesce(), x)
    on_both(lambda a: a.index_select(0, torch.tensor([2, 0], device=a.device)).coalesce(), x)
    assert torch.neuron.metrics()["fallbacks"]["aten::_sparse_sparse_matmul"] == before + 1
