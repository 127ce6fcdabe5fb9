"""Compares what a sample gives on the device with what it gives on the CPU."""

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from tests.conformance.differences import BY_DESIGN, Difference, Kind

Inputs = tuple[Any, tuple[Any, ...], dict[str, Any]]

# What these ops give is memory that nobody wrote.
UNWRITTEN = re.compile("empty")
_WIDER = {
    torch.bfloat16: torch.float64,
    torch.float16: torch.float64,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}


@dataclass
class Case:
    """One sample of an op: a function of its inputs, and what it gives and leaves on the CPU."""

    op: str
    function: Callable[..., Any]
    inputs: Inputs
    expected: Any
    after: Inputs
    random: bool
    # What PyTorch's tests compare of the results: all, or what is well-defined of them.
    process: Callable[[Any], Any] = lambda results: results
    # Absolute and relative; PyTorch's defaults if None.
    tolerance: tuple[float, float] | None = None
    # Whether the device's inputs have gaps.
    noncontiguous: bool = False


def apply(function: Callable[..., Any], inputs: Inputs) -> Any:
    """The function of a sample's inputs."""
    return function(inputs[0], *inputs[1], **inputs[2])


def to_device(value: Any, device: str) -> Any:
    """The value with copies of its tensors on ``device``, and what names a device changed."""

    def move(item: Any) -> Any:
        if isinstance(item, torch.Tensor):
            moved = item.detach().clone() if device == "cpu" else item.detach().to(device)
            return moved.requires_grad_(item.requires_grad)
        if isinstance(item, torch.nn.Module):
            return copy.deepcopy(item).to(device)
        return torch.device(device) if isinstance(item, torch.device) or item == "cpu" else item

    return tree_map(move, value)


class _Draws(TorchDispatchMode):
    """Sees whether an op takes random numbers, or gives memory that nobody wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.found = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        state = torch.get_rng_state()
        result = func(*args, **(kwargs or {}))
        self.found = self.found or not torch.equal(state, torch.get_rng_state())
        return result


def draws(op: str, function: Callable[..., Any], inputs: Inputs) -> bool:
    """Whether the values of the result are up to chance."""
    with _Draws() as mode:
        apply(function, to_device(inputs, "cpu"))
    return mode.found or UNWRITTEN.search(op) is not None


def judge(
    case: Case, actual: Any, after: Inputs, differences: Mapping[str, Difference] = BY_DESIGN
) -> str:
    """Empty if the results and the inputs after the call are right, else what is wrong.

    ``differences`` are those that are right, by op.
    """
    difference = None if case.random else differences.get(case.op)
    try:
        _compare_after(case, _tensors(after), difference)
    except AssertionError as error:
        return f"inputs after the call: {error}"
    try:
        compare(actual, case.expected, not case.random, case.tolerance)
        return ""
    except AssertionError as error:
        if difference is None:
            return str(error)
    try:
        _CHECKS[difference.kind](case, actual)
    except AssertionError as error:
        return str(error)
    return ""


def _compare_after(
    case: Case, actual: Sequence[torch.Tensor], difference: Difference | None
) -> None:
    expected = _tensors(case.after)
    try:
        compare(actual, expected, not case.random, case.tolerance)
    except AssertionError:
        if difference is None or difference.kind not in _OF_ROUNDING:
            raise
        _, exact = _in_double_precision(case)
        _compare_with_exact(actual, expected, exact)


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def compare(
    actual: Any,
    expected: Any,
    exact: bool = True,
    tolerance: tuple[float, float] | None = None,
) -> None:
    """Raise AssertionError unless the results agree, by PyTorch's default tolerances if none is given.

    Without ``exact`` only structure, shapes and dtypes must agree.
    """
    left, right = tree_leaves(actual), tree_leaves(expected)
    assert len(left) == len(right), f"{len(left)} results instead of {len(right)}"
    for a, e in zip(left, right, strict=True):
        if isinstance(e, torch.Tensor):
            found, wanted = (a.shape, a.dtype), (e.shape, e.dtype)
            assert found == wanted, f"{found} instead of {wanted}"
            if exact and not e.is_sparse:
                atol, rtol = tolerance or (None, None)
                torch.testing.assert_close(a.cpu(), e, atol=atol, rtol=rtol, equal_nan=True)
        elif exact:
            assert a == e or (a != a and e != e), (a, e)


def _compare_rounding(case: Case, actual: Any) -> None:
    results, _ = _in_double_precision(case)
    _compare_with_exact(tree_leaves(actual), tree_leaves(case.expected), results)


def _compare_saved(case: Case, actual: Any) -> None:
    expected = tree_leaves(case.expected)
    leaves = zip(tree_leaves(actual), expected, strict=True)
    results, _ = _in_double_precision(case)
    _compare_with_exact(
        [e if _is_empty(e) and not _is_empty(a) else a for a, e in leaves], expected, results
    )


def _is_empty(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.numel() == 0


def _in_double_precision(case: Case) -> tuple[list[Any], list[torch.Tensor]]:
    """The case's results, and its inputs after it."""
    inputs = to_device(tree_map(_widen, case.inputs), "cpu")
    return tree_leaves(apply(case.function, inputs)), _tensors(inputs)


def _compare_with_exact(
    actual: Sequence[Any], expected: Sequence[Any], exact: Sequence[Any]
) -> None:
    """Each is close to the exact one; or as close as the CPU's, but for the last rounding.

    That one is up to chance: half a unit in the last place, however exact what is rounded.
    """
    for a, e, x in zip(actual, expected, exact, strict=True):
        if not isinstance(e, torch.Tensor) or not (e.is_floating_point() or e.is_complex()):
            compare(a, e)
            continue
        try:
            compare(a, x.to(e.dtype))
        except AssertionError:
            if not _error(a, x, torch.finfo(e.dtype).eps / 2) <= _error(e, x):
                raise


def _widen(item: Any) -> Any:
    if isinstance(item, torch.Tensor) and item.dtype in _WIDER:
        return item.detach().to(_WIDER[item.dtype]).requires_grad_(item.requires_grad)
    if isinstance(item, torch.nn.Module):
        return copy.deepcopy(item).double()
    return _WIDER.get(item, item) if isinstance(item, torch.dtype) else item


def _error(value: torch.Tensor, exact: torch.Tensor, rounding: float = 0) -> float:
    """The largest, beyond a relative ``rounding``; infinite where only the exact one is a number."""
    found = value.detach().cpu().to(exact.dtype)
    same = (found == exact) | (found.isnan() & exact.isnan())
    error = (found - exact).abs() - rounding * exact.abs()
    return float(error.masked_fill(same, 0).nan_to_num(nan=torch.inf).max())


def _compare_ties(case: Case, actual: Any) -> None:
    leaves = [leaf.cpu() for leaf in tree_leaves(actual)]
    # Two pairs where the op was run with two kinds of ``out=``.
    for values, indices, expected in zip(
        leaves[::2], leaves[1::2], tree_leaves(case.expected)[::2], strict=True
    ):
        compare(values, expected)
        assert any(
            _selects(case.inputs[0], dim, indices, values) for dim in range(case.inputs[0].dim())
        ), "the indices select other values"


def _selects(source: torch.Tensor, dim: int, indices: torch.Tensor, values: torch.Tensor) -> bool:
    if values.dim() < source.dim():
        values, indices = values.unsqueeze(dim), indices.unsqueeze(dim)
    rest = source.shape[:dim] + source.shape[dim + 1 :]
    if rest != values.shape[:dim] + values.shape[dim + 1 :] or indices.max() >= source.shape[dim]:
        return False
    return torch.equal(source.gather(dim, indices), values)


def _compare_stable(case: Case, actual: Any) -> None:
    first, args, kwargs = to_device(case.inputs, "cpu")
    compare(actual, apply(case.function, (first, args, {**kwargs, "stable": True})))


def _compare_dtype(case: Case, actual: Any) -> None:
    expected = tree_leaves(case.expected)
    converted = [a.to(e.dtype) for a, e in zip(tree_leaves(actual), expected, strict=True)]
    results, _ = _in_double_precision(case)
    _compare_with_exact(converted, expected, results)


_CHECKS = {
    Kind.ROUNDING: _compare_rounding,
    Kind.TIES: _compare_ties,
    Kind.STABLE: _compare_stable,
    Kind.DTYPE: _compare_dtype,
    Kind.SAVED: _compare_saved,
}
# Those of which the inputs after the call, too, may have been rounded otherwise.
_OF_ROUNDING = (Kind.ROUNDING, Kind.DTYPE, Kind.SAVED)
