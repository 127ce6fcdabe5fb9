"""FX graph of ATen ops -> StableHLO.

``lower`` turns a graph and the storages that it reads and writes into one module; ``registry`` says
how each op gets there. Importing this package loads no compiler: MLIR comes in with the first
module that is built.
"""

from torchneuron.lowering.errors import LoweringError
from torchneuron.lowering.lower import Lowered, lower
from torchneuron.lowering.registry import (
    decomposition,
    dynamic_args,
    emitter,
    road,
    torch_mlir,
    use_stock_decomposition,
)
from torchneuron.lowering.spec import (
    FreshOutput,
    ProgramSpec,
    ScalarInput,
    ScalarListInput,
    StorageOutput,
    StorageSpec,
    TensorInput,
)

__all__ = [
    "FreshOutput",
    "Lowered",
    "LoweringError",
    "ProgramSpec",
    "ScalarInput",
    "ScalarListInput",
    "StorageOutput",
    "StorageSpec",
    "TensorInput",
    "decomposition",
    "dynamic_args",
    "emitter",
    "lower",
    "road",
    "torch_mlir",
    "use_stock_decomposition",
]
