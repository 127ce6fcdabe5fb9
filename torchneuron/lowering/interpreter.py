"""Walks a graph and emits each op by the road that the registry gives it.

Decompositions are not traced to a graph first: they run on meta tensors under a dispatch mode that
emits each op as it passes, the same way. Only one that mutates a tensor is traced through
functionalisation.
"""

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol, cast

import torch
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from torchneuron.lowering import origin, registry, symbolic, torch_mlir_ops
from torchneuron.lowering.builder import Builder, Val
from torchneuron.lowering.errors import LoweringError

_META = torch.device("meta")

_STATIC_CHECKS = frozenset(
    {
        "aten._assert_scalar.default",
        "aten._assert_tensor_metadata.default",
        "aten.sym_constrain_range.default",
        "aten.sym_constrain_range_for_size.default",
    }
)

# Their result is a number that only the running program knows.
_READS = frozenset({"aten._local_scalar_dense.default", "aten.item.default"})


class Argument(Protocol):
    """A placeholder's value."""

    def example(self) -> Any:
        """Meta tensor or number for shape inference."""

    def value(self) -> Any:
        """``Val``, or a list of them, or a Python value."""


class _Known:
    """A value that is there already, with its example."""

    def __init__(self, value: Any, example: Any):
        self._value = value
        self._example = example

    def example(self) -> Any:
        return self._example

    def value(self) -> Any:
        return self._value


class _Mutation(Exception):
    """A decomposition mutates a tensor."""


def meta_like(value: Val) -> torch.Tensor:
    """A dense meta tensor of the value's dtype and shape."""
    return torch.empty(value.shape, dtype=value.dtype, device=_META)


def _on_meta(argument: Any) -> Any:
    """An op argument for shape inference: tensors and devices go to meta."""
    if isinstance(argument, torch.Tensor):
        return (
            argument
            if argument.device.type == "meta" and type(argument) is torch.Tensor
            else _bare_meta(argument)
        )
    return _META if isinstance(argument, torch.device) else argument


def _bare_meta(tensor: torch.Tensor) -> torch.Tensor:
    sizes, strides = [int(s) for s in tensor.shape], [int(s) for s in tensor.stride()]
    return torch.empty_strided(sizes, strides, dtype=tensor.dtype, device=_META)


def infer(op: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The op's outputs as meta tensors."""
    args, kwargs = pytree.tree_map(_on_meta, (tuple(args), dict(kwargs)))
    if not isinstance(op, OpOverload):
        return op(*args, **kwargs)
    if rule := registry.find_shape_rule(op):
        return rule(*args, **kwargs)
    if any(a.name == "device" and a.kwarg_only for a in op._schema.arguments):
        kwargs["device"] = _META
    try:
        result = op(*args, **kwargs)
    except NotImplementedError:
        # No Meta kernel; a decomposition tells as much.
        expanded = registry.find_decomposition(op)
        if expanded is None:
            raise
        result = expanded.function(*args, **kwargs)
    return _wanted(op, args, kwargs, result)


def _wanted(op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> Any:
    """The result without the gradients that ``output_mask`` declines: some Meta kernels give them."""
    names = [argument.name for argument in op._schema.arguments]
    if "output_mask" not in names:
        return result
    position = names.index("output_mask")
    mask = args[position] if position < len(args) else kwargs["output_mask"]
    return tuple(one if asked else None for one, asked in zip(result, mask, strict=True))


def _concrete(meta: Any) -> Any:
    """``meta`` unless a symbol is in it."""
    for leaf in pytree.tree_leaves(meta):
        sizes = (*leaf.shape, *leaf.stride()) if isinstance(leaf, torch.Tensor) else (leaf,)
        if any(isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool)) for size in sizes):
            return None
    return meta


def _produced(value: Any) -> _Known:
    """A value without metadata: its example is made from it."""
    return _Known(value, pytree.tree_map(_example, value))


def _example(value: Any) -> Any:
    """Meta tensor or, for a number that is an operand, any number of its kind."""
    if not isinstance(value, Val):
        return value
    if value.wrapped:
        return torch.zeros((), dtype=value.dtype).item()
    return meta_like(value)


def _has_number_operand(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    return any(isinstance(leaf, Val) and leaf.wrapped for leaf in (*args, *kwargs.values()))


class Interpreter:
    """Emits graphs into ``builder``; ``roads`` collects op -> road."""

    def __init__(self, builder: Builder):
        """Emits into ``builder``."""
        self.builder = builder
        self.roads: dict[str, str] = {}

    def run(self, gm: fx.GraphModule, arguments: Sequence[Argument]) -> list[Any]:
        """The values of the graph's output tuple."""
        with _disable_current_modes():
            return self._run(gm, arguments)

    def _run(self, gm: fx.GraphModule, arguments: Sequence[Argument]) -> list[Any]:
        env: dict[fx.Node, Argument] = {}
        remaining = iter(arguments)
        for node in gm.graph.nodes:
            if node.op == "placeholder":
                env[node] = next(remaining)
            elif node.op == "get_attr":
                env[node] = self._attribute(gm, str(node.target))
            elif node.op == "call_function":
                with _located(node):
                    env[node] = self._call(node, env)
            elif node.op == "output":
                results = (
                    node.args[0] if isinstance(node.args[0], (tuple, list)) else (node.args[0],)
                )
                return [
                    env[item].value() if isinstance(item, fx.Node) else item for item in results
                ]
            else:
                raise LoweringError(node.op, "not a node of an ATen graph")
        raise LoweringError("graph", "it has no output")

    def _attribute(self, gm: fx.GraphModule, target: str) -> Argument:
        found: Any = gm
        for part in target.split("."):
            found = getattr(found, part)
        if isinstance(found, torch.Tensor):
            return _Known(self.builder.constant(found), _bare_meta(found))
        return _Known(found, found)

    def _call(self, node: fx.Node, env: dict[fx.Node, Argument]) -> Argument:
        args: Any = fx.map_arg(node.args, lambda n: env[n].value())
        kwargs = fx.map_arg(node.kwargs, lambda n: env[n].value())
        out = _concrete(node.meta.get("val"))
        if node.target is operator.getitem:
            source, index = node.all_input_nodes[0], cast(int, node.args[1])
            return _Known(args[0][index], out if out is not None else env[source].example()[index])
        if isinstance(node.target, HigherOrderOperator):
            return self._higher_order(
                node.target,
                args,
                kwargs,
                out,
                lambda: fx.map_arg((node.args, node.kwargs), lambda n: env[n].example()),
            )
        if not isinstance(node.target, OpOverload):
            return self._python_call(node, args, kwargs)
        if str(node.target) in _READS:
            return _produced(self.emit(node.target, args, kwargs, None))
        if out is None:
            examples = fx.map_arg((node.args, node.kwargs), lambda n: env[n].example())
            out = infer(node.target, *examples)
        if isinstance(out, (bool, int, float)) or str(node.target) in _STATIC_CHECKS:
            # A size, or a check of one: known when the program is built.
            return _Known(out, out)
        first = node.args[0] if node.args else None
        example = env[first].example if isinstance(first, fx.Node) else None
        return _Known(self.emit(node.target, args, kwargs, out, example), out)

    def _python_call(self, node: fx.Node, args: Any, kwargs: Any) -> Argument:
        """Arithmetic on numbers, such as sizes: static ones, or operands of the program."""
        if not callable(node.target):
            raise LoweringError(node.target, "not an ATen op")
        if any(isinstance(leaf, Val) for leaf in pytree.tree_leaves((args, kwargs))):
            return _produced(symbolic.call(self.builder, node.target, args, kwargs))
        result = node.target(*args, **kwargs)
        return _Known(result, result)

    # Higher-order operators

    def _higher_order(
        self,
        op: HigherOrderOperator,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        out: Any,
        examples: Callable[[], Any],
    ) -> Argument:
        found = registry.find_higher_order(op)
        if found is None:
            raise LoweringError(op, "no lowering of this higher-order operator")
        self.roads[f"higher_order.{op}"] = "emitter"
        extra = {"examples": examples} if found.layout else {}
        result = found.function(self, *args, **kwargs, **extra)
        return _produced(result) if out is None else _Known(_checked(op, result, out), out)

    def subgraph(self, gm: fx.GraphModule, operands: Sequence[Any]) -> list[Any]:
        """The values of a sub-graph's output tuple, emitted here; an operand is a ``Val`` or a
        Python value.
        """
        placeholders = gm.graph.find_nodes(op="placeholder")
        given = []
        for node, operand in zip(placeholders, operands, strict=True):
            example = _concrete(node.meta.get("val"))
            given.append(_produced(operand) if example is None else _Known(operand, example))
        return self._run(gm, given)

    def apply(self, op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The result of one op, higher-order or not, for these values."""
        example_args, example_kwargs = pytree.tree_map(_example, (tuple(args), dict(kwargs)))
        if isinstance(op, HigherOrderOperator):
            examples = (example_args, example_kwargs)
            return self._higher_order(op, args, kwargs, None, lambda: examples).value()
        first = example_args[0] if example_args else None
        out = infer(op, example_args, example_kwargs)
        return self.emit(op, args, kwargs, out, lambda: first)

    def expand(
        self, op: Any, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        """What ``function``, plain torch code, gives for these values; ``op`` is named in errors."""
        return self._expand(op, function, args, kwargs)

    def expand_functional(
        self, op: Any, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        """The same for a ``function`` that writes to its arguments."""
        with _naming(op, "decomposition"):
            return self._expand_functional(function, args, kwargs)

    def emit(
        self,
        op: OpOverload,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        out: Any,
        first: Callable[[], Any] | None = None,
    ) -> Any:
        """Emit one op on values and give its results, which have the dtypes and shapes of ``out``.

        ``first`` gives the meta tensor of the first argument.
        """
        name = str(op)
        if (at_index := registry.find_indexed(op)) and _has_number_operand(args, kwargs):
            self.roads[name] = "emitter"
            with _naming(op, "emitter"):
                result = at_index(self.builder, out, *args, **kwargs)
        elif found := registry.find_emitter(op):
            self.roads[name] = "emitter"
            _check_static(op, found.static, args, kwargs)
            with _naming(op, "emitter"):
                extra = {"strides": _strides(first)} if found.layout else {}
                result = found.function(self.builder, out, *args, **kwargs, **extra)
        elif expanded := registry.find_decomposition(op):
            self.roads[name] = "decomposition"
            result = self._expand(op, expanded.function, args, kwargs)
        elif registry.uses_torch_mlir(op):
            self.roads[name] = "torch-mlir"
            result = torch_mlir_ops.emit(self.builder, op, args, kwargs, out)
        elif registry.is_composite(op):
            self.roads[name] = "decomposition"
            result = self._expand(op, partial(_decompose, op), args, kwargs)
        else:
            raise LoweringError(op)
        return _checked(op, result, out)

    # Decompositions

    def _expand(
        self, op: object, function: Callable[..., Any], args: Sequence[Any], kwargs: Any
    ) -> Any:
        mark, rng_offset = self.builder.mark(), self.builder.rng_offset
        try:
            with _naming(op, "decomposition"):
                return _Trace(self).trace(function, args, kwargs)
        except _Mutation:
            self.builder.rollback(mark)
            self.builder.rng_offset = rng_offset
        with _naming(op, "decomposition"):
            return self._expand_functional(function, args, kwargs)

    def _expand_functional(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Any
    ) -> Any:
        """Trace through functionalisation and emit the graph."""
        from torch._functorch.eager_transforms import functionalize
        from torch.fx.experimental.proxy_tensor import make_fx

        leaves, tree = pytree.tree_flatten((tuple(args), dict(kwargs)))
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Val)]
        shape_of_result: list[Any] = []

        def flat(*tensors: torch.Tensor) -> list[Any]:
            filled = list(leaves)
            for place, tensor in zip(places, tensors, strict=True):
                filled[place] = tensor
            given_args, given_kwargs = pytree.tree_unflatten(filled, tree)
            results, result_tree = pytree.tree_flatten(function(*given_args, **given_kwargs))
            shape_of_result.append(result_tree)
            return results

        examples = [meta_like(leaves[place]) for place in places]
        gm = make_fx(functionalize(flat, remove="mutations_and_views"))(*examples)
        # The last of the graph: what the function wrote, into its arguments. Whoever wants it has it
        # as a result.
        for node in gm.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default):
            gm.graph.erase_node(node)
        known = [
            _Known(leaves[place], example) for place, example in zip(places, examples, strict=True)
        ]
        return pytree.tree_unflatten(self._run(gm, known), shape_of_result[-1])


class _Trace(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Emits the ops that run under it; meta tensors stand for values by identity."""

    def __init__(self, interpreter: Interpreter):
        super().__init__()  # type: ignore[no-untyped-call]
        self._interpreter = interpreter
        # Keeps the tensors, so that an id means one tensor only.
        self._values: dict[int, tuple[torch.Tensor, Any]] = {}

    def trace(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        given_args, given_kwargs = pytree.tree_map(self._stand_in, (tuple(args), dict(kwargs)))
        with self, _HostData():
            result = function(*given_args, **given_kwargs)
        return pytree.tree_map(self._value, result)

    def _stand_in(self, argument: Any) -> Any:
        return self._bind(meta_like(argument), argument) if isinstance(argument, Val) else argument

    def _bind(self, tensor: torch.Tensor, value: Any) -> torch.Tensor:
        self._values[id(tensor)] = (tensor, value)
        return tensor

    def _value(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if id(leaf) not in self._values:
            if leaf.device.type == "meta":
                raise ValueError("a meta tensor from outside")
            return self._interpreter.builder.constant(leaf)
        return self._values[id(leaf)][1]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = [
            leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)
        ]
        if not any(id(tensor) in self._values for tensor in tensors) and (
            tensors or _takes_tensor(func, args)
        ):
            # Tensors that the decomposition makes of Python data.
            return func(*args, **kwargs)
        if func._schema.is_mutable:
            raise _Mutation(str(func))
        out = infer(func, args, kwargs)
        if not any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(out)):
            return out
        value_args, value_kwargs = pytree.tree_map(self._value, (tuple(args), dict(kwargs)))
        first = args[0] if args else None
        self._bind_all(
            out, self._interpreter.emit(func, value_args, value_kwargs, out, lambda: first)
        )
        return out

    def _bind_all(self, out: Any, value: Any) -> None:
        if isinstance(out, torch.Tensor):
            self._bind(out, value)
        elif isinstance(out, (tuple, list)):
            for one, its_value in zip(out, value, strict=True):
                self._bind_all(one, its_value)


def _takes_tensor(op: OpOverload, args: Sequence[Any]) -> bool:
    """Whether the first argument is a number in a tensor's place."""
    first = op._schema.arguments[:1]
    return bool(args and first) and str(first[0].type) == "Tensor"


class _HostData(TorchFunctionMode):
    """Keeps tensors made of Python data on the host: on meta they would lose it."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in (torch.tensor, torch.as_tensor, torch.asarray):
            kwargs["device"] = None
        return func(*args, **kwargs)


def _decompose(op: OpOverload, *args: Any, **kwargs: Any) -> Any:
    """The op's own composite kernel. A function mode would call the op anew and never come to it."""
    with torch._C.DisableTorchFunction():
        return op.decompose(*args, **kwargs)


@contextmanager
def _naming(op: object, what: str) -> Iterator[None]:
    """Turn what goes wrong in the op's emitter or decomposition into a LoweringError of the op."""
    try:
        yield
    except (LoweringError, _Mutation):
        raise
    except Exception as error:
        raise LoweringError(op, f"its {what} failed: {type(error).__name__}: {error}") from error


@contextmanager
def _located(node: fx.Node) -> Iterator[None]:
    """Name the op and the user's line in what goes wrong at ``node``."""
    try:
        yield
    except _Mutation:
        raise
    except LoweringError as error:
        error.locate(origin.line_of(node))
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise LoweringError(node.target, reason, origin.line_of(node)) from error


def _strides(first: Callable[[], Any] | None) -> tuple[int, ...]:
    example = first() if first is not None else None
    if not isinstance(example, torch.Tensor):
        raise ValueError("the first argument is no tensor")
    return tuple(int(stride) for stride in example.stride())


def _check_static(
    op: OpOverload, static: frozenset[str], args: Sequence[Any], kwargs: dict[str, Any]
) -> None:
    if not static:
        return
    names = [argument.name for argument in op._schema.arguments]
    for name, value in [*zip(names, args, strict=False), *kwargs.items()]:
        if name in static and any(isinstance(leaf, Val) for leaf in pytree.tree_leaves(value)):
            raise LoweringError(op, f"argument {name} must be known when the program is built")


def _checked(op: object, result: Any, out: Any) -> Any:
    """``result`` if it has the structure, dtypes and shapes of ``out``."""
    if isinstance(out, (tuple, list)):
        if not isinstance(result, (tuple, list)) or len(result) != len(out):
            raise LoweringError(op, f"gives {result}, not {len(out)} results")
        return [_checked(op, one, expected) for one, expected in zip(result, out, strict=True)]
    if not isinstance(out, torch.Tensor):
        return result
    shape = tuple(int(size) for size in out.shape)
    if not isinstance(result, Val) or result.dtype is not out.dtype or result.shape != shape:
        raise LoweringError(op, f"gives {result!r}, not {out.dtype} of shape {shape}")
    return result
