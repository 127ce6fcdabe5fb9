"""How each op gets to StableHLO.

An op takes one of three roads, the first that is registered for it: an *emitter* writes StableHLO
itself; a *decomposition* is plain torch code that is traced on meta tensors, each op in it taking
its own road; *Torch-MLIR* lowers the op inside the program. An op that is composite by itself
(CompositeImplicitAutograd) needs no entry. Registering an op twice for one road is an error.
Nothing here imports MLIR.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import torch
from torch._ops import HigherOrderOperator, OpOverload

F = TypeVar("F", bound=Callable[..., Any])

# Schema types whose value may be an operand of the program instead of a part of it.
_NUMBER_TYPES = frozenset(
    {"number", "float", "Optional[number]", "Optional[float]", "List[number]"}
)


@dataclass(frozen=True)
class Emitter:
    """``function(b, out, *args, **kwargs)``; the arguments named in ``static`` always arrive as
    Python values.

    With ``layout`` it also gets ``strides=``, those of the first argument.
    """

    function: Callable[..., Any]
    static: frozenset[str]
    layout: bool


@dataclass(frozen=True)
class Decomposition:
    """``function(*args, **kwargs)`` in torch ops; arguments named in ``dynamic`` arrive as 0-d
    tensors.
    """

    function: Callable[..., Any]
    dynamic: frozenset[str]


@dataclass(frozen=True)
class HigherOrder:
    """``function(interpreter, *args, **kwargs)``; with ``layout`` it also gets ``examples=``, which
    gives the meta tensors of (args, kwargs).
    """

    function: Callable[..., Any]
    layout: bool


_emitters: dict[str, Emitter] = {}
_decompositions: dict[str, Decomposition] = {}
_torch_mlir: set[str] = set()
_shape_rules: dict[str, Callable[..., Any]] = {}
_higher_order: dict[str, HigherOrder] = {}
_indexed: dict[str, Callable[..., Any]] = {}


def canonical(name: str) -> str:
    """``aten.relu`` -> ``aten.relu.default``; full names stay."""
    return name if name.count(".") >= 2 else f"{name}.default"


def _claim(table: Any, name: str) -> str:
    key = canonical(name)
    if key in table:
        raise ValueError(f"{key} is registered twice")
    return key


def emitter(*names: str, static: tuple[str, ...] = (), layout: bool = False) -> Callable[[F], F]:
    """Register ``fn(b, out, *args, **kwargs)`` as the emitter of the ops ``names``.

    ``b`` is the Builder, ``out`` the meta tensor (or tuple of them) that tells the result's dtype
    and shape. Tensors arrive as ``Val``; number arguments as Python numbers or, unless named in
    ``static``, as 0-d ``Val``s. The result is a ``Val`` or a tuple of them with exactly ``out``'s
    dtypes and shapes. ``layout`` is for the few ops that look at memory (as_strided): they get
    ``strides=``, those of the first argument's meta tensor.
    """

    def register(function: F) -> F:
        for name in names:
            _emitters[_claim(_emitters, name)] = Emitter(function, frozenset(static), layout)
        return function

    return register


def decomposition(*names: str, dynamic: tuple[str, ...] = ()) -> Callable[[F], F]:
    """Register a function in plain torch ops that computes the ops ``names``; mutation in it is
    functionalised.

    Number arguments are Python numbers, and part of the program, except those in ``dynamic``: they
    may arrive as 0-d tensors (float64, int64, complex128 or bool) and want a ``.to(dtype)`` first.
    """

    def register(function: F) -> F:
        for name in names:
            _decompositions[_claim(_decompositions, name)] = Decomposition(
                function, frozenset(dynamic)
            )
        return function

    return register


def use_stock_decomposition(*names: str) -> None:
    """Take PyTorch's own decomposition (``torch._decomp``, else ``torch._refs``) for the ops
    ``names``.
    """
    for name in names:
        key = _claim(_decompositions, name)
        _decompositions[key] = Decomposition(_StockDecomposition(key), frozenset())


def torch_mlir(*names: str) -> None:
    """Let Torch-MLIR lower the ops ``names``. Only ops that were tried: it aborts the process on
    some inputs.
    """
    for name in names:
        _torch_mlir.add(_claim(_torch_mlir, name))


def shape_rule(*names: str) -> Callable[[F], F]:
    """Register the shape inference of the ops ``names``, for ops that PyTorch gives no Meta kernel.

    The function gets the op's arguments, tensors on meta, and gives its outputs as meta tensors.
    """

    def register(function: F) -> F:
        for name in names:
            _shape_rules[_claim(_shape_rules, name)] = function
        return function

    return register


def higher_order(*names: str, layout: bool = False) -> Callable[[F], F]:
    """Register the lowering of the higher-order operators ``names`` (``cond``).

    ``fn(interpreter, *args, **kwargs)`` gets tensors as ``Val``, sub-graphs as GraphModules, all
    else as it stands in the graph, and gives the operator's results in their nesting. ``layout`` is
    for those that look at memory: they get ``examples=``, a function that gives the arguments' meta
    tensors as (args, kwargs).
    """

    def register(function: F) -> F:
        for name in names:
            if name in _higher_order:
                raise ValueError(f"{name} is registered twice")
            _higher_order[name] = HigherOrder(function, layout)
        return function

    return register


def indexed(*names: str) -> Callable[[F], F]:
    """Register how the ops ``names`` are emitted where an integer argument is known only when the
    program runs: like an emitter, but such integers arrive as 0-d ``Val``s.
    """

    def register(function: F) -> F:
        for name in names:
            _indexed[_claim(_indexed, name)] = function
        return function

    return register


class _StockDecomposition:
    """Looks PyTorch's decomposition up at its first call: importing ``torch._decomp`` takes a
    second.
    """

    def __init__(self, key: str):
        self._key = key
        self._function: Callable[..., Any] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._function is None:
            self._function = self._find()
        return self._function(*args, **kwargs)

    def _find(self) -> Callable[..., Any]:
        from torch._decomp import decomposition_table

        namespace, name, overload = self._key.split(".")
        op = getattr(getattr(getattr(torch.ops, namespace), name), overload)
        found = decomposition_table.get(op)
        if found is None:
            from torch import _refs

            found = getattr(_refs, name, None)
        if found is None:
            raise ValueError(f"PyTorch has no decomposition of {self._key}")
        return found


@cache
def load() -> None:
    """Import every module of emitters, decompositions and higher-order operators, once."""
    from torchneuron.lowering import decompositions, emitters, higher_order

    emitters.load()
    decompositions.load()
    higher_order.load()


def find_emitter(op: OpOverload) -> Emitter | None:
    """The op's emitter, if it has one."""
    load()
    return _emitters.get(str(op))


def find_decomposition(op: OpOverload) -> Decomposition | None:
    """The op's registered decomposition, or what PyTorch says a prim is in ATen ops."""
    load()
    found = _decompositions.get(str(op))
    if found is None and op.namespace == "prims":
        in_aten = getattr(op, "impl_aten", None)
        return Decomposition(in_aten, frozenset()) if in_aten is not None else None
    return found


def find_shape_rule(op: OpOverload) -> Callable[..., Any] | None:
    """The op's rule for its results' shapes, if it has one."""
    load()
    return _shape_rules.get(str(op))


def find_higher_order(op: HigherOrderOperator) -> HigherOrder | None:
    """The lowering of a higher-order operator, if it has one."""
    load()
    return _higher_order.get(str(op))


def find_indexed(op: OpOverload) -> Callable[..., Any] | None:
    """How the op is emitted with integers that are operands, if it can."""
    load()
    return _indexed.get(str(op))


def uses_torch_mlir(op: OpOverload) -> bool:
    """Whether the op is on Torch-MLIR's list."""
    load()
    return str(op) in _torch_mlir


def is_composite(op: OpOverload) -> bool:
    """True if PyTorch itself computes the op from others (CompositeImplicitAutograd)."""
    return op.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)


def road(op: OpOverload) -> str | None:
    """``"emitter"``, ``"decomposition"``, ``"torch-mlir"``, or None for an op that cannot be
    lowered.
    """
    if find_emitter(op):
        return "emitter"
    if find_decomposition(op):
        return "decomposition"
    if uses_torch_mlir(op):
        return "torch-mlir"
    return "decomposition" if is_composite(op) else None


def registered() -> dict[str, tuple[str, Callable[..., Any] | None]]:
    """Every operator that the registry names: its road, and the function that is registered for it."""
    load()
    found: dict[str, tuple[str, Callable[..., Any] | None]] = dict.fromkeys(
        _torch_mlir, ("torch-mlir", None)
    )
    found |= {name: ("decomposition", d.function) for name, d in _decompositions.items()}
    found |= {name: ("emitter", e.function) for name, e in _emitters.items()}
    found |= {name: ("higher-order", h.function) for name, h in _higher_order.items()}
    return found


@cache
def dynamic_args(op: OpOverload) -> frozenset[str]:
    """Names of the arguments whose numbers may be operands of the program; all others are part of
    it.
    """
    numbers = {arg.name for arg in op._schema.arguments if str(arg.type) in _NUMBER_TYPES}
    if not numbers:
        return frozenset()  # without loading the emitters, which a warm process may not need
    if found := find_emitter(op):
        return frozenset(numbers - found.static)
    if expanded := find_decomposition(op):
        return frozenset(numbers & expanded.dynamic)
    return frozenset()
