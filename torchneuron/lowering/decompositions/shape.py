"""Reordering ops that are rarely hot enough for an emitter."""

from torchneuron.lowering.registry import use_stock_decomposition

use_stock_decomposition(
    "aten.block_diag",
    "aten.channel_shuffle",
    "aten.pixel_shuffle",
    "aten.pixel_unshuffle",
    "aten.rot90",
)
