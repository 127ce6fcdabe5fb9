"""Ops that belong to no family, against PyTorch's CPU."""

import math
from itertools import pairwise

import pytest
import torch

from tests.lowering.harness import Call, call, check_ops, run_op

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def test_tables() -> None:
    calls: list[Call] = []
    for name in ("bartlett", "blackman", "hann", "hamming", "kaiser"):
        packet = getattr(aten, f"{name}_window")
        calls += [call(packet.default, 7), call(packet.periodic, 6, False, dtype=torch.float64)]
    calls.append(call(aten.hamming_window.periodic_alpha_beta, 5, True, 0.4, 0.6))
    calls.append(call(aten.kaiser_window.beta, 5, True, 8.0))
    calls += [call(aten.fft_fftfreq.default, 6, 0.5), call(aten.fft_rfftfreq.default, 5)]
    check_ops(calls)


def test_bits() -> None:
    calls: list[Call] = []
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        info = torch.finfo(dtype)
        special = [0.0, -0.0, 1.0, -0.75, 1e-3, info.max, info.tiny, math.inf, -math.inf, math.nan]
        x = torch.cat([torch.tensor(special, dtype=dtype), torch.randn(20).to(dtype)])
        calls += [call(aten.frexp.Tensor, x), call(aten.hash_tensor.default, x)]
        calls.append(
            call(aten.frexp.Tensor, torch.tensor([info.tiny / 4, -info.tiny / 2], dtype=dtype))
        )
    for dtype in (torch.int8, torch.int64, torch.bool, torch.uint8):
        calls.append(
            call(
                aten.hash_tensor.default, torch.randint(-9, 9, (3, 4)).to(dtype), [1], keepdim=True
            )
        )
    check_ops(calls)


def test_aliases_of_other_ops() -> None:
    x = torch.randn(3, 4)
    check_ops(
        [
            call(aten._aminmax.default, x),
            call(aten._aminmax.dim, x, 1, True),
            call(aten._is_all_true.default, x > 0),
            call(aten._is_any_true.default, x > 0),
            call(aten._stack.default, [x, x], 1),
            call(aten._logcumsumexp.default, x, 1),
            call(aten._compute_linear_combination.default, torch.randn(3, 2, 2), torch.randn(5, 3)),
            call(aten.linalg__powsum.default, x, 3.0, [1], True),
            call(aten.linalg__powsum.default, x),
            call(aten._chunk_cat.default, [torch.randn(5, 2), torch.randn(4)], 0, 2),
            call(aten._chunk_cat.default, [torch.randn(4, 6), torch.randn(4, 2, 3)], 1, 3),
        ]
    )


def test_forward_mode_of_glu() -> None:
    x, dx = torch.randn(3, 6), torch.randn(3, 6)
    glu, grad = torch.nn.functional.glu(x), torch.randn(3, 3)
    grad_x = aten.glu_backward.default(grad, x, -1)
    check_ops(
        [
            call(aten.glu_jvp.default, glu, x, dx, -1),
            call(aten.glu_backward_jvp.default, grad_x, grad, x, torch.randn(3, 3), dx, -1),
        ]
    )


def test_histogram() -> None:
    x = torch.cat([torch.randn(50), torch.tensor([-1.0, 0.0, 1.0, 2.0])])
    weight = torch.rand(54)
    edges = torch.tensor([-1.0, -0.2, 0.0, 0.7, 2.0])
    check_ops(
        [
            call(aten.histogram.bins_tensor, x, edges),
            call(aten.histogram.bins_tensor, x, edges, weight=weight, density=True),
            call(aten.histogram.bin_ct, x, 7),
            call(aten.histogram.bin_ct, x, 7, range=[-1.0, 1.0], weight=weight),
            call(aten.histogram.bin_ct, x, 5, density=True),
            call(aten.histogram.bin_ct, torch.ones(4), 4),
        ]
    )


def test_masked_scatter_backward() -> None:
    grad, mask = torch.randn(4, 5), torch.rand(4, 5) > 0.5
    check_ops(
        [
            call(aten.masked_scatter_backward.default, grad, mask, [4, 5]),
            call(aten.masked_scatter_backward.default, grad, mask, [30]),
            call(aten.masked_scatter_backward.default, grad, mask[0], [4, 5]),
        ]
    )


def test_scaled_products() -> None:
    calls = []
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        x, y = torch.randn(16, 32).to(dtype), torch.randn(48, 32).to(dtype).t()
        one = torch.tensor(0.5)
        calls.append(call(aten._scaled_mm.default, x, y, one, one * 3, out_dtype=torch.float32))
        calls.append(
            call(aten._scaled_mm.default, x, y, one, one, torch.randn(48), out_dtype=torch.float32)
        )
    check_ops(calls)
    weight = torch.randint(-128, 128, (32, 64), dtype=torch.int8)
    x, scales = torch.randn(8, 64).bfloat16(), torch.rand(32).bfloat16()
    expected = (x.float() @ weight.float().t() * scales.float()).bfloat16()
    run_op(aten._weight_int8pack_mm.default, x, weight, scales, expected=expected)


def test_rowwise_scales() -> None:
    x, y = (
        torch.randn(16, 32).to(torch.float8_e4m3fn),
        torch.randn(48, 32).to(torch.float8_e4m3fn).t(),
    )
    rows, columns = torch.rand(16, 1), torch.rand(1, 48)
    expected = ((x.float() * rows) @ (y.float() * columns)).bfloat16()
    run_op(
        aten._scaled_mm.default, x, y, rows, columns, out_dtype=torch.bfloat16, expected=expected
    )


@pytest.mark.parametrize("size", [8, 300])
def test_grouped_products(size: int) -> None:
    """Against a loop over the groups, one of which is empty; rows behind the last one are not compared."""
    ends = torch.tensor([size // 4, size // 4, size // 2, size], dtype=torch.int32)
    bounds = [0, *ends.tolist()]
    spans = [slice(low, high) for low, high in pairwise(bounds)]
    x, weights = torch.randn(size, 16).bfloat16(), torch.randn(4, 16, 24).bfloat16()
    y = torch.randn(size, 24).bfloat16()
    rows = torch.cat(
        [(x[span].float() @ w.float()) for span, w in zip(spans, weights, strict=True)]
    )
    depth = torch.stack([x[span].t().float() @ y[span].float() for span in spans])
    op = aten._grouped_mm.default
    run_op(op, x, weights, ends, expected=rows.bfloat16())
    turned = weights.transpose(1, 2)
    run_op(op, turned, x.t(), ends, expected=rows.t().bfloat16())
    run_op(op, x.t(), y, ends, expected=depth.bfloat16())
    run_op(op, weights, turned, expected=(weights.float() @ turned.float()).bfloat16())
