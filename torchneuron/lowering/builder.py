"""``Builder``: what emitters write StableHLO with."""

from torchneuron.lowering.hlo.blocks import Blocks
from torchneuron.lowering.hlo.core import Body, Number, Result
from torchneuron.lowering.hlo.value import Val

__all__ = ["Body", "Builder", "Number", "Result", "Val"]


class Builder(Blocks):
    """A thin, complete StableHLO DSL over ``Val``; see the modules of ``hlo`` for its methods by
    kind.

    Methods emit one op each, or a few; they compute result shapes and check dtypes, and MLIR
    verifies the whole.
    """
