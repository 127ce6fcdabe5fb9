"""The grid of an affine map."""

from torchneuron.lowering.registry import use_stock_decomposition

use_stock_decomposition("aten.affine_grid_generator")
