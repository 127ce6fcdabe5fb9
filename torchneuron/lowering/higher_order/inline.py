"""Operators that only mark a part of the graph: its ops are emitted in place."""

from collections.abc import Sequence
from typing import Any

from torch import fx

from torchneuron.lowering.builder import Val
from torchneuron.lowering.errors import LoweringError
from torchneuron.lowering.higher_order import mutation
from torchneuron.lowering.interpreter import Interpreter
from torchneuron.lowering.registry import higher_order


def inline(interpreter: Interpreter, graph: fx.GraphModule, operands: Sequence[Any]) -> Any:
    """The sub-graph's result, a tuple of them if it gives a tuple."""
    results = interpreter.subgraph(graph, operands)
    (given,) = graph.graph.output_node().args
    return results if isinstance(given, (tuple, list)) else results[0]


@higher_order("invoke_subgraph")
def invoke_subgraph(
    interpreter: Interpreter, graph: fx.GraphModule, identifier: str | None, *operands: Any
) -> Any:
    """One of several calls of a graph."""
    return inline(interpreter, graph, operands)


def lower_invoke_subgraph(
    interpreter: Interpreter, graph: fx.GraphModule, identifier: str | None, *operands: Any
) -> tuple[list[Any], dict[int, Val]]:
    """The results, and the new values of the operands that the graph writes."""
    return mutation.run(interpreter, graph, operands)


@higher_order(
    "wrap",
    "tag_activation_checkpoint",
    "wrap_activation_checkpoint",
    "local_map_hop",
    "foreach_map",
    "invoke_quant",
    "invoke_quant_packed",
)
def wrap(interpreter: Interpreter, graph: fx.GraphModule, *operands: Any, **options: Any) -> Any:
    """The options tell how to partition, quantise or distribute: they change no result."""
    return inline(interpreter, graph, operands)


@higher_order("wrap_with_set_grad_enabled")
def wrap_with_set_grad_enabled(
    interpreter: Interpreter, enable_grad: bool, graph: fx.GraphModule, *operands: Any
) -> Any:
    """Autograd is done with when a graph is lowered."""
    return inline(interpreter, graph, operands)


@higher_order("wrap_with_autocast")
def wrap_with_autocast(
    interpreter: Interpreter,
    device_type: str,
    dtype: Any,
    enabled: bool,
    cache_enabled: bool | None,
    graph: fx.GraphModule,
    *operands: Any,
) -> Any:
    """Only where autocast is switched off: else the graph's ops still want their casts."""
    if enabled:
        raise LoweringError(
            "wrap_with_autocast",
            "its ops are not cast yet: export with ExportedProgram.run_decompositions()",
        )
    return inline(interpreter, graph, operands)


@higher_order("strict_mode", "run_const_graph")
def with_operands(
    interpreter: Interpreter, graph: fx.GraphModule, operands: Sequence[Any] = ()
) -> Any:
    """A graph and the tuple of its operands."""
    return inline(interpreter, graph, operands)


@higher_order("hints_wrapper")
def hints_wrapper(
    interpreter: Interpreter,
    graph: fx.GraphModule,
    operands: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    hints: dict[str, Any] | None = None,
) -> Any:
    """Hints change no result."""
    return inline(interpreter, graph, [*operands, *(kwargs or {}).values()])
