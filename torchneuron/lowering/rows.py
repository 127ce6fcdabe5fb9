"""Which way a program's reductions run through memory."""

import math
from collections.abc import Sequence
from typing import Any

# Reductions of at most so many elements are small: which way they run through memory costs nothing.
SMALL_REDUCTION = 1 << 12
# XLA splits reductions over more elements than this, see `program.options`.
WINDOW = 32

# Operations whose results lie in memory in the order of their dimensions, whatever their operands do.
_IN_ORDER = frozenset(
    ("stablehlo.dot_general", "stablehlo.reduce", "stablehlo.sort", "stablehlo.while", "func.call")
)
_BRANCHES = frozenset(("stablehlo.while", "stablehlo.if", "stablehlo.case"))


def reduces_rows(ir: Any, module: Any) -> bool:
    """Whether all large reductions are over the last dimensions of values as they lie in memory.

    False where that is not certain. ``ir`` are MLIR's bindings, ``module`` is in StableHLO.
    """
    return all(
        _along(ir, block, set())
        for function in module.body.operations
        for block in function.regions[0].blocks
    )


def _along(ir: Any, block: Any, crossed: set[Any]) -> bool:
    """``crossed`` are the values that are computed from a transposed one: their last dimension may
    not be what lies side by side in memory.
    """
    for operation in block.operations:
        name = operation.operation.name
        if name == "stablehlo.reduce" and _crosses(ir, operation, crossed):
            return False
        if name in _BRANCHES and not all(
            _along(ir, inner, crossed) for region in operation.regions for inner in region.blocks
        ):
            return False
        if name == "stablehlo.transpose" or (
            name not in _IN_ORDER and crossed and not crossed.isdisjoint(operation.operands)
        ):
            crossed.update(operation.results)
    return True


def _crosses(ir: Any, reduction: Any, crossed: set[Any]) -> bool:
    operands = list(reduction.operands)
    values = operands[: len(operands) // 2]
    shape = ir.RankedTensorType(values[0].type).shape
    dims = list(ir.DenseI64ArrayAttr(reduction.attributes["dimensions"]))
    if math.prod(shape) <= SMALL_REDUCTION or all(shape[dim] <= WINDOW for dim in dims):
        return False
    return not crossed.isdisjoint(values) or not _are_last(shape, dims)


def _are_last(shape: Sequence[int], dims: Sequence[int]) -> bool:
    wide = [dim for dim, size in enumerate(shape) if size > 1]
    reduced = [dim for dim in wide if dim in dims]
    return reduced == wide[len(wide) - len(reduced) :]
