"""The one place that loads MLIR: checks a module's text and turns it into StableHLO's portable
artifact.
"""

import threading
from dataclasses import dataclass
from functools import cache
from typing import Any

from torchneuron.lowering.errors import LoweringError
from torchneuron.lowering.rows import reduces_rows

# Oldest first: the artifact takes the first version that can express the module, so that old
# plugins load it too. 1.0.0 has all but the batching dimensions of gather and scatter (1.1) and the
# newer 8-bit floats (1.8).
ARTIFACT_VERSIONS = ("1.0.0", "1.8.0")

_TORCH_PIPELINE = "builtin.module(torch-backend-to-stablehlo-backend-pipeline)"
_DECOMPOSE_PIPELINE = "builtin.module(func.func(torch-decompose-complex-ops,canonicalize))"
_CHLO_PIPELINE = "builtin.module(func.func(chlo-legalize-to-stablehlo))"

# Runs the pipeline once: that loads the StableHLO dialects into the context.
_TRIVIAL = """
func.func @main(%a: !torch.vtensor<[1],f32>) -> !torch.vtensor<[1],f32> {
  return %a : !torch.vtensor<[1],f32>
}
"""

# The names of functions that keep a value in memory begin so, see `materialize`.
KEPT = "kept"
_INLINE_PIPELINE = "builtin.module(inline,symbol-dce)"

# An MLIR context is not safe against two threads.
_lock = threading.Lock()


class _Toolchain:
    """A context with all dialects loaded."""

    def __init__(self) -> None:
        from torch_mlir import ir
        from torch_mlir._mlir_libs import _stablehlo
        from torch_mlir.dialects import torch as torch_dialect
        from torch_mlir.passmanager import PassManager

        self._ir: Any = ir
        self._stablehlo: Any = _stablehlo
        self._pass_manager: Any = PassManager
        _stablehlo.register_stablehlo_passes()
        self._context = ir.Context()
        self._context.enable_multithreading(False)
        torch_dialect.register_dialect(self._context)
        self.parse_and_run(_TRIVIAL, [_TORCH_PIPELINE])

    def parse_and_run(self, text: str, pipelines: list[str]) -> Any:
        """The verified module after ``pipelines``; raises MLIRError with MLIR's diagnostics."""
        ir = self._ir
        with self._context, ir.Location.unknown():
            module = ir.Module.parse(text)
            for pipeline in pipelines:
                self._pass_manager.parse(pipeline).run(module.operation)
            return module

    def inline(self, module: Any) -> None:
        """Put what is called in place of the calls, but for those that keep a value in memory."""
        kept: list[Any] = []

        def collect(operation: Any) -> Any:
            if operation.name == "func.call":
                callee = self._ir.FlatSymbolRefAttr(operation.attributes["callee"]).value
                if callee.rpartition(".")[2].startswith(KEPT):
                    kept.append(operation)
            return self._ir.WalkResult.ADVANCE

        with self._context, self._ir.Location.unknown():
            module.operation.walk(collect)
            for call in kept:
                call.attributes["no_inline"] = self._ir.UnitAttr.get()
            self._pass_manager.parse(_INLINE_PIPELINE).run(module.operation)
            # The artifact has no place for the mark.
            kept.clear()
            module.operation.walk(collect)
            for call in kept:
                del call.attributes["no_inline"]

    def deserialize(self, artifact: bytes) -> Any:
        with self._context, self._ir.Location.unknown():
            return self._stablehlo.deserialize_portable_artifact(self._context, artifact)

    def build(self, module: Any) -> "Built":
        along = reduces_rows(self._ir, module)  # while it is StableHLO
        return Built(self.serialize(module), along)

    def serialize(self, module: Any) -> bytes:
        for version in ARTIFACT_VERSIONS[:-1]:
            try:
                # The failing attempt must not print its diagnostics.
                handler = self._context.attach_diagnostic_handler(lambda _: True)
                try:
                    return bytes(self._stablehlo.serialize_portable_artifact(module, version))
                finally:
                    handler.detach()
            except ValueError:
                continue
        return bytes(self._stablehlo.serialize_portable_artifact(module, ARTIFACT_VERSIONS[-1]))


@cache
def _toolchain() -> _Toolchain:
    return _Toolchain()


def load() -> None:
    """Load MLIR now rather than with the first module."""
    with _lock:
        _toolchain()


@dataclass(frozen=True)
class Built:
    """A module as StableHLO's portable artifact; ``reduces_rows`` is of `rows`."""

    artifact: bytes
    reduces_rows: bool


def build(text: str, *, has_torch: bool = False, has_chlo: bool = False) -> Built:
    """A module from its text in generic form; ``has_torch`` and ``has_chlo`` say which dialects to
    lower.
    """
    pipelines = [_DECOMPOSE_PIPELINE, _TORCH_PIPELINE] if has_torch else []
    if has_chlo:
        pipelines.append(_CHLO_PIPELINE)
    with _lock:
        tools = _toolchain()
        try:
            return tools.build(tools.parse_and_run(text, pipelines))
        except (tools._ir.MLIRError, ValueError, RuntimeError) as error:
            raise LoweringError("module", f"MLIR refuses the program: {error}") from error


@dataclass(frozen=True)
class Function:
    """A module's public function under another name, for a module of several.

    ``text`` also holds the functions that it calls; types are MLIR's. ``aliases`` are the results'
    numbers by those of the parameters that they may overwrite. ``origins`` are the names of the
    operations that compute each result: back to the first that does more than move values.
    """

    name: str
    text: str
    parameters: tuple[str, ...]
    results: tuple[str, ...]
    aliases: dict[int, int]
    origins: tuple[frozenset[str], ...]


# Operations that leave values as they are, but for their places.
_MOVES = {
    f"stablehlo.{name}"
    for name in (
        "reshape",
        "transpose",
        "broadcast_in_dim",
        "slice",
        "dynamic_slice",
        "dynamic_update_slice",
        "concatenate",
        "reverse",
        "select",
        "convert",
    )
}


def function(artifact: bytes, name: str) -> Function:
    """The function ``main`` of a portable artifact as a private one called ``name``."""
    with _lock:
        tools = _toolchain()
        ir = tools._ir
        module = tools.deserialize(artifact)
        tools.inline(module)
        with tools._context, ir.Location.unknown():
            for operation in module.body.operations:
                symbol = ir.StringAttr(operation.attributes["sym_name"]).value
                renamed = name if symbol == "main" else f"{name}.{symbol}"
                ir.SymbolTable.replace_all_symbol_uses(symbol, renamed, module.operation)
                operation.attributes["sym_name"] = ir.StringAttr.get(renamed)
                operation.attributes["sym_visibility"] = ir.StringAttr.get("private")
                if symbol == "main":
                    type_ = ir.FunctionType(
                        ir.TypeAttr(operation.attributes["function_type"]).value
                    )
                    aliases = _aliases(ir, operation)
                    results = list(operation.regions[0].blocks[0].operations)[-1].operands
                    origins = tuple(frozenset(_origins(ir, value)) for value in results)
                    if "arg_attrs" in operation.attributes:
                        del operation.attributes["arg_attrs"]
            texts = [
                operation.get_asm(assume_verified=True) for operation in module.body.operations
            ]
            return Function(
                name,
                "\n".join(texts),
                tuple(map(str, type_.inputs)),
                tuple(map(str, type_.results)),
                aliases,
                origins,
            )


def _origins(ir: Any, value: Any) -> set[str]:
    """The operations that compute a value: back to the first that does more than move it."""
    found: set[str] = set()
    seen: set[Any] = set()
    waiting = [value]
    while waiting:
        operation = waiting.pop().owner
        if isinstance(operation, ir.Block):  # of an argument
            continue
        found.add(operation.name)
        if operation.name in _MOVES and operation not in seen:
            seen.add(operation)
            waiting += operation.operands
    return found


def _aliases(ir: Any, operation: Any) -> dict[int, int]:
    if "arg_attrs" not in operation.attributes:
        return {}
    found = {}
    for number, attributes in enumerate(ir.ArrayAttr(operation.attributes["arg_attrs"])):
        names = ir.DictAttr(attributes)
        if "tf.aliasing_output" in names:
            found[number] = ir.IntegerAttr(names["tf.aliasing_output"]).value
    return found


def inline(text: str) -> Built:
    """A module whose ``main`` calls the others: ``main`` alone, and what keeps values in memory."""
    with _lock:
        tools = _toolchain()
        module = tools.parse_and_run(text, [])
        tools.inline(module)
        return tools.build(module)
