"""Views inside programs, joining and reordering, conversions, creation."""

import torch

from tests.lowering.harness import call, check_ops

aten = torch.ops.aten
torch.manual_seed(0)
X, Y = torch.randn(4, 6), torch.randn(3, 4, 5)
I = torch.arange(24).view(4, 6)  # noqa: E741
C = torch.randn(4, 6, dtype=torch.complex64)


def test_sizes() -> None:
    check_ops(
        [
            call(aten.view.default, X, [3, 8]),
            call(aten._unsafe_view.default, X, [-1]),
            call(aten.unsqueeze.default, X, -1),
            call(aten.squeeze.default, X[:1]),
            call(aten.squeeze.dim, X[:1], 0),
            call(aten.squeeze.dims, X[:1, None], [0, 1]),
            call(aten.expand.default, X[:1], [5, -1, 6]),
            call(aten.permute.default, Y, [2, 0, -2]),
            call(aten.transpose.int, Y, 0, -1),
            call(aten.t.default, X),
            call(aten.clone.default, X.t()),
        ]
    )


def test_parts() -> None:
    check_ops(
        [
            call(aten.slice.Tensor, Y, 1, 1, 100, 2),
            call(aten.slice.Tensor, Y, 2, -3, -1),
            call(aten.slice.Tensor, Y, 2, 3, 1),
            call(aten.select.int, Y, 1, -1),
            call(aten.split.Tensor, Y, 2, 1),
            call(aten.split_with_sizes.default, Y, [1, 4], -1),
            call(aten.unbind.int, Y, 1),
            call(aten.diagonal.default, Y, 0, 1, 2),
            call(aten.diagonal.default, Y, -1, 0, 2),
            call(aten.diagonal.default, Y, 9, 0, 2),
            call(aten.unfold.default, Y, 2, 3, 1),
            call(aten.unfold.default, Y, 1, 2, 2),
            call(aten.unfold.default, Y, 1, 1, 3),
            call(aten.narrow_copy.default, Y, 1, 1, 2),
        ]
    )


def test_scatters() -> None:
    check_ops(
        [
            call(aten.select_scatter.default, Y, torch.randn(3, 5), 1, -2),
            call(aten.slice_scatter.default, Y, torch.randn(3, 4, 2), 2, 0, 4, 2),
            call(aten.slice_scatter.default, Y, torch.randn(3, 2, 5), 1, 1, 3),
            call(aten.diagonal_scatter.default, Y, torch.randn(5, 3), 1, 0, 1),
            call(aten.diagonal_scatter.default, Y, torch.randn(3, 3), -1, 1, 2),
            call(aten.diag_embed.default, X, 1, 0, 2),
            call(aten.as_strided_scatter.default, X, torch.randn(3, 2), [3, 2], [5, 7], 1),
        ]
    )


def test_gradients_of_views() -> None:
    check_ops(
        [
            call(aten.slice_backward.default, torch.randn(3, 2, 5), [3, 4, 5], 1, 0, 4, 2),
            call(aten.slice_backward.default, torch.randn(3, 2, 5), [3, 4, 5], 1, -3, 3, 1),
            call(aten.select_backward.default, torch.randn(3, 5), [3, 4, 5], 1, -1),
            call(aten.diagonal_backward.default, torch.randn(3), [3, 4], 0, 0, 1),
            call(aten.unfold_backward.default, torch.randn(3, 4, 3, 3), [3, 4, 5], 2, 3, 1),
            call(aten.unfold_backward.default, torch.randn(3, 2, 5, 2), [3, 4, 5], 1, 2, 2),
        ]
    )


def test_blocks() -> None:
    check_ops(
        [
            call(aten.block_diag.default, [X, X.t()]),
            call(aten.channel_shuffle.default, torch.randn(2, 6, 2, 2), 3),
            call(aten.pixel_shuffle.default, torch.randn(2, 8, 2, 3), 2),
            call(aten.pixel_unshuffle.default, torch.randn(2, 2, 4, 6), 2),
            call(aten.rot90.default, Y, 1, [0, 2]),
        ]
    )


def test_strides_over_memory() -> None:
    check_ops(
        [
            call(aten.as_strided.default, X, [3, 2], [5, 7], 1),
            call(aten.as_strided.default, X, [3, 4], [1, 2]),
            call(aten.as_strided.default, torch.randn(6, 4).t(), [3, 2], [5, 7], 1),
        ]
    )


def test_reinterpretation() -> None:
    check_ops(
        [
            call(aten.view.dtype, X, torch.int32),
            call(aten.view.dtype, X, torch.int16),
            call(aten.view.dtype, I, torch.float32),
            call(aten.view.dtype, X, torch.complex64),
            call(aten.view.dtype, C, torch.int32),
            call(aten.view.dtype, I.to(torch.uint8), torch.int16),
            call(aten.view.dtype, X > 0, torch.uint8),
            call(aten.view_as_real.default, C),
            call(aten.view_as_complex.default, torch.randn(3, 2)),
            call(aten.real.default, C),
            call(aten.imag.default, C),
            call(aten._conj.default, C),
            call(aten._neg_view.default, X),
        ]
    )


def test_conversions() -> None:
    sources = [X, X * 300, I, I - 12, C, X > 0, X.bfloat16()]
    targets = [
        torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16,
        torch.bfloat16, torch.float64, torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2,
    ]  # fmt: skip
    calls = [
        call(aten._to_copy.default, source, dtype=target)
        for source in sources
        for target in targets
        # The CPU's float to int8 conversion is undefined out of range.
        if not (target is torch.int8 and source.to(torch.complex64).abs().max() > 127)
        if not (source.is_complex() and target.itemsize == 1 and target.is_floating_point)
    ]
    check_ops([*calls, call(aten.copy.default, Y, torch.randint(0, 9, (4, 1)))])


def test_joining_and_reordering() -> None:
    check_ops(
        [
            call(aten.cat.default, [X, I, X[:0], torch.empty(0)]),
            call(aten.cat.default, [Y, Y[:, :, :2]], -1),
            call(aten.stack.default, [X, I.float()], 1),
            call(aten.repeat.default, X, [2, 3, 1]),
            call(aten.flip.default, Y, [0, -1]),
            call(aten.roll.default, Y, [1, -2], [0, 2]),
            call(aten.roll.default, Y, [7]),
            call(aten.constant_pad_nd.default, Y, [1, -1, 2, 0], 2.5),
            call(aten.tril.default, Y, -1),
            call(aten.triu.default, Y, 1),
        ]
    )


def test_creation() -> None:
    check_ops(
        [
            call(aten.full.default, [2, 3], 2.5),
            call(aten.full.default, [2, 3], True),
            call(aten.full_like.default, I, 7),
            call(aten.fill.Scalar, X, 3),
            call(aten.fill.Tensor, X, torch.tensor(4)),
            call(aten.scalar_tensor.default, 2.5),
            call(aten.zeros.default, [2]),
            call(aten.ones_like.default, X),
            call(aten.new_full.default, X, [2], 3.0),
            call(aten.arange.default, 5),
            call(aten.arange.start, 2, 7.5),
            call(aten.arange.start_step, 1, 9, 3, dtype=torch.bfloat16),
            call(aten.arange.start_step, 5, -5, -2),
            call(aten.linspace.default, -1, 3.7, 11),
            call(aten.linspace.default, 0, 10, 7, dtype=torch.int64),
            call(aten.linspace.default, 0, 10, 1),
            call(aten.linspace.default, -5.0, 100, 13, dtype=torch.float16),
            call(aten.logspace.default, -1, 3.7, 11),
            call(aten.linspace.Tensor_Tensor, torch.tensor(1.0), torch.tensor(3.0), 5),
            call(aten.linspace.Tensor_Scalar, torch.tensor(1.0), 7, 5),
            call(aten.logspace.Scalar_Tensor, 1, torch.tensor(3.0), 5),
            call(aten.eye.default, 3),
            call(aten.eye.m, 3, 5, dtype=torch.int64),
            call(aten.tril_indices.default, 3, 4, -1),
            call(aten.triu_indices.default, 3, 4),
        ]
    )
