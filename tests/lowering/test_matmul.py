"""Matrix and vector products over dtypes; beta, alpha; empty inner dimensions."""

import pytest
import torch

from tests.lowering.harness import call, check_ops

aten = torch.ops.aten
DTYPES = [
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.complex64,
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_products(dtype: torch.dtype) -> None:
    torch.manual_seed(0)

    def m(*sizes: int) -> torch.Tensor:
        return (
            torch.randn(*sizes, dtype=dtype)
            if dtype.is_complex
            else (torch.randn(*sizes) * 3).to(dtype)
        )

    beta, alpha = (2, 3) if dtype is torch.int64 else (2.5, 0.5)
    check_ops(
        [
            call(aten.mm.default, m(4, 5), m(5, 3)),
            call(aten.mm.default, m(5, 4).t(), m(3, 5).t()),
            call(aten.mm.default, m(4, 0), m(0, 3)),
            call(aten.bmm.default, m(2, 4, 5), m(2, 3, 5).mT),
            call(aten.addmm.default, m(3), m(4, 5), m(5, 3), beta=beta, alpha=alpha),
            call(aten.addmm.default, m(4, 1), m(4, 5), m(5, 3)),
            call(aten.baddbmm.default, m(2, 4, 3), m(2, 4, 5), m(2, 5, 3), beta=beta),
            call(aten.addbmm.default, m(4, 3), m(2, 4, 5), m(2, 5, 3), alpha=alpha),
            call(aten.mv.default, m(4, 5), m(5)),
            call(aten.addmv.default, m(4), m(4, 5), m(5), beta=beta, alpha=alpha),
            call(aten.dot.default, m(5), m(5)),
            call(aten.vdot.default, m(5), m(5)),
            call(aten.outer.default, m(4), m(3)),
            # The CPU's addr rounds each step in float16, we only the result.
            *(
                call(aten.addr.default, m(4, 3), m(4), m(3), beta=beta, alpha=alpha)
                for _ in range(dtype is not torch.float16)
            ),
        ]
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 2, 8])
def test_few_rows_over_layouts(dtype: torch.dtype, rows: int) -> None:
    """Each operand contiguous and transposed: products read a transposition in place."""
    torch.manual_seed(0)

    def m(*sizes: int) -> torch.Tensor:
        return torch.randint(-3, 4, sizes).to(dtype)

    lefts = [m(rows, 24), m(24, rows).t()]
    rights = [m(24, 40), m(40, 24).t()]
    stacks = [
        m(3, 24, 40),
        m(3, 40, 24).mT,
        m(24, 3, 40).transpose(0, 1),
        m(40, 24, 3).permute(2, 1, 0),
    ]
    check_ops(
        [
            *(call(aten.mm.default, x, y) for x in lefts for y in rights),
            *(call(aten.addmm.default, m(40), x, y) for x in lefts for y in rights),
            *(call(aten.bmm.default, m(3, rows, 24), y) for y in stacks),
            *(call(aten.bmm.default, m(3, 24, rows).mT, y) for y in stacks),
            *(call(aten.addbmm.default, m(rows, 40), m(3, rows, 24), y) for y in stacks),
            call(aten.matmul.default, m(2, 3, rows, 24), m(2, 3, 40, 24).mT),
            call(aten.mv.default, m(24, 40).t(), m(24)),
            call(aten.addmv.default, m(40), m(24, 40).t(), m(24)),
        ]
    )


@pytest.mark.parametrize("static", [False, True])
def test_beta_of_zero_ignores_the_bias(static: bool) -> None:
    bias = torch.full((3,), float("nan"))
    x, y = torch.randn(4, 5), torch.randn(5, 3)
    check_ops([call(aten.addmm.default, bias, x, y, beta=0)], static_numbers=static)


def test_integer_product_of_bytes() -> None:
    x = torch.randint(-100, 100, (17, 16), dtype=torch.int8)
    y = torch.randint(-100, 100, (16, 8), dtype=torch.int8)
    check_ops([call(aten._int_mm.default, x, y)])


@pytest.mark.parametrize("dtype", DTYPES)
def test_products_of_transposed_matrices(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    weight = torch.randn(40, 24).to(dtype)
    calls = []
    for rows in (1, 2, 7, 64):
        x = torch.randn(rows, 24).to(dtype)
        calls += [
            call(aten.mm.default, x, weight.t()),
            call(aten.mm.default, x.t().contiguous().t(), weight.t()),
            call(aten.mm.default, weight, x.t()),
            call(aten.addmm.default, weight[:, 0], x, weight.t()),
        ]
    check_ops(calls)
