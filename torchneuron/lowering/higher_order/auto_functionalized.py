"""Ops that write to their arguments, made functional: the new values come as further results.

An op of ours or of PyTorch's is traced through functionalisation. A control-flow operator is run by
its own lowering, which tells what its sub-graphs write.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.utils import _pytree as pytree

from torchneuron.lowering import registry, views
from torchneuron.lowering.builder import Builder, Val
from torchneuron.lowering.errors import LoweringError
from torchneuron.lowering.higher_order import cond, inline, scan, while_loop
from torchneuron.lowering.interpreter import Interpreter
from torchneuron.lowering.registry import higher_order
from torchneuron.lowering.spec import TensorInput

# (results, {position among the flat tensor operands: new value})
Writing = Callable[..., tuple[Any, dict[int, Val]]]
_CONTROL_FLOW: dict[str, Writing] = {
    "cond": cond.lower,
    "while_loop": while_loop.lower,
    "scan": scan.lower_scan,
    "map_impl": scan.lower_map,
    "invoke_subgraph": inline.lower_invoke_subgraph,
}


@dataclass(frozen=True)
class _View:
    """An argument as a view of base number ``base``; the graph tells its place by one of these."""

    base: int
    slice: tuple[int, int, int] | None = None
    strided: tuple[Sequence[int], Sequence[int], int] | None = None

    def read(self, b: Builder, bases: Sequence[Val], layouts: Sequence[Any]) -> Val:
        whole = bases[self.base]
        if self.slice is not None:
            dim, start, end = self.slice
            return b.slice_dim(whole, dim, start, end)
        if self.strided is None:
            return whole
        flat = views.dense_to_flat(b, whole, self._base_strides(layouts))
        return views.read(b, flat, self._spec(whole.dtype), self._offset(b))

    def write(self, b: Builder, bases: list[Val], layouts: Sequence[Any], value: Val) -> None:
        whole = bases[self.base]
        if self.slice is not None:
            dim, start, _ = self.slice
            starts: list[Val | int] = [start if axis == dim else 0 for axis in range(whole.ndim)]
            value = b.dynamic_update_slice(whole, value, starts)
        elif self.strided is not None:
            strides = self._base_strides(layouts)
            flat = views.dense_to_flat(b, whole, strides)
            flat = views.write(b, flat, value, self._spec(whole.dtype), self._offset(b))
            layout = TensorInput(0, whole.dtype, whole.shape, strides)
            value = views.read(b, flat, layout)
        bases[self.base] = value

    def _base_strides(self, layouts: Sequence[Any]) -> tuple[int, ...]:
        layout = layouts[self.base]
        if not torch.ops.aten.is_non_overlapping_and_dense(layout) or layout.storage_offset():
            raise LoweringError("auto_functionalized_v2", "a view of a tensor that is not dense")
        return tuple(int(stride) for stride in layout.stride())

    def _spec(self, dtype: torch.dtype) -> TensorInput:
        assert self.strided is not None
        sizes, strides, _ = self.strided
        return TensorInput(0, dtype, tuple(sizes), tuple(strides), dynamic_offset=True)

    def _offset(self, b: Builder) -> Val:
        assert self.strided is not None
        return b.full((), self.strided[2], torch.int64)


def _take_view(kwargs: dict[str, Any], prefix: str) -> _View | None:
    """The view that ``kwargs`` describes under ``prefix``, taken out of them."""
    base = kwargs.pop(f"{prefix}_base_index")
    kwargs.pop(f"{prefix}_alias", None)
    if base is None:
        return None
    if f"{prefix}_slice_dim" in kwargs:
        parts = [kwargs.pop(f"{prefix}_slice_{part}") for part in ("dim", "start", "end")]
        return _View(base, slice=(parts[0], parts[1], parts[2]))
    if f"{prefix}_storage_offset" in kwargs:
        parts = [kwargs.pop(f"{prefix}_{part}") for part in ("size", "stride", "storage_offset")]
        return _View(base, strided=(parts[0], parts[1], parts[2]))
    return _View(base)


def _written_names(schema: Any) -> list[str]:
    return [a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]


@higher_order("auto_functionalized_v2", layout=True)
def auto_functionalized_v2(
    interpreter: Interpreter, op: Any, *, examples: Any, **kwargs: Any
) -> Any:
    """[results of the op, new values of the bases]; an ``out=`` op gives its results alone."""
    b = interpreter.builder
    kwargs.pop("_only_clone_these_bases", None)
    bases: list[Any] = list(kwargs.pop("_all_bases", []))
    layouts = examples()[1].get("_all_bases", [])
    if isinstance(op, OpOverload):
        schema = op._schema
    else:
        schema = pytree.tree_unflatten([], kwargs.pop("_op_schema")).schema
    if isinstance(op, OpOverload) and torch._library.utils.is_out(op):
        return _out_variant(interpreter, op, kwargs)
    found: dict[str, Any] = {}
    for name in _written_names(schema):
        if f"_{name}_length" in kwargs:
            count = kwargs.pop(f"_{name}_length")
            parts = [_take_view(kwargs, f"_{name}_{i}") for i in range(count or 0)]
            found[name] = None if count is None else parts
        else:
            found[name] = _take_view(kwargs, f"_{name}")
    arguments = pytree.tree_map_only(_View, lambda v: v.read(b, bases, layouts), found)
    results, after = _call(interpreter, op, schema, {**kwargs, **arguments})
    for name, value in after.items():
        places, values = pytree.tree_leaves(found[name]), pytree.tree_leaves(value)
        for place, one in zip(places, values, strict=True):
            if isinstance(place, _View) and isinstance(one, Val):
                place.write(b, bases, layouts, one)
    return [*_as_list(results), *bases]


@higher_order("auto_functionalized")
def auto_functionalized(interpreter: Interpreter, op: OpOverload, **kwargs: Any) -> list[Any]:
    """[results of the op, new values of the arguments that it writes]."""
    kwargs.pop("_only_clone_these_tensors", None)
    results, after = _call(interpreter, op, op._schema, kwargs)
    return [*_as_list(results), *(after[name] for name in _written_names(op._schema))]


def _as_list(results: Any) -> list[Any]:
    return list(results) if isinstance(results, (tuple, list)) else [results]


def _call(
    interpreter: Interpreter, op: Any, schema: Any, arguments: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """The op's results and the new value of each argument that it writes, by name."""
    if isinstance(op, HigherOrderOperator):
        return _control_flow(interpreter, op, schema, arguments)
    names = _written_names(schema)
    expanded = registry.find_decomposition(op)
    if expanded is None and op.namespace not in ("aten", "prims") and not registry.is_composite(op):
        raise LoweringError(
            op,
            "an op that writes its arguments, and no decomposition of it is registered "
            "(torchneuron.lowering.decomposition)",
        )
    function = op if expanded is None else expanded.function

    def traced(given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return function(**given), {name: given[name] for name in names}

    results, after = interpreter.expand_functional(op, traced, (arguments,), {})
    return results, after


def _control_flow(
    interpreter: Interpreter, op: HigherOrderOperator, schema: Any, arguments: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    lower = _CONTROL_FLOW.get(str(op))
    if lower is None:
        raise LoweringError(op, "no lowering of a form of it that writes to its operands")
    names = [argument.name for argument in schema.arguments]
    flat = [arguments[name] for name in names]
    if schema.tree_spec is not None:
        args, kwargs = pytree.tree_unflatten(flat, schema.tree_spec)
    else:
        args, kwargs = flat, {}
    results, written = lower(interpreter, *args, **kwargs)
    # Operands come last in every schema, in the order in which sub-graphs take them.
    graphs = [
        n
        for n, value in zip(names, flat, strict=True)
        if not isinstance(value, torch.fx.GraphModule)
    ]
    operands = [
        name for name in graphs if name not in ("pred", "identifier", "mutated_arg_indices")
    ]
    return results, {operands[position]: value for position, value in written.items()}


def _out_variant(interpreter: Interpreter, op: OpOverload, kwargs: dict[str, Any]) -> Any:
    """An ``out=`` op whose results start as fresh tensors, described in ``kwargs``."""
    given = dict(kwargs)
    for name in _written_names(op._schema):
        parts = {
            part: given.pop(f"_{name}_{part}") for part in ("size", "stride", "dtype", "device")
        }
        sizes = tuple(int(size) for size in parts["size"])
        given[name] = interpreter.builder.full(sizes, 0, parts["dtype"])
    return _call(interpreter, op, op._schema, given)[0]
