"""A call that the core could not resolve, in the terms of Python: op, arguments, tensors, scalars."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload

from torchneuron._C import ScalarArgument, ScalarDescription, TensorArgument, TensorDescription


@cache
def overload_of(name: str) -> OpOverload:
    """``"aten::add.Tensor"`` -> ``torch.ops.aten.add.Tensor``."""
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), base)
    found: OpOverload = getattr(packet, overload or "default")
    return found


def operand_arguments(name: str) -> list[str]:
    """Names of the arguments of an op whose numbers may be operands of its programs."""
    from torchneuron.eager.functional import functional_form
    from torchneuron.lowering.registry import dynamic_args

    form = functional_form(overload_of(name))
    return sorted(dynamic_args(form.op)) if form is not None else []


@dataclass(frozen=True)
class Call:
    """One call. ``args`` follow the schema; tensors and scalar operands in it are references by index."""

    op: OpOverload
    args: tuple[Any, ...]
    tensors: Sequence[TensorDescription]
    scalars: Sequence[ScalarDescription]
    device: int

    def meta_tensors(self) -> list[torch.Tensor]:
        """The tensors on the meta device: same views, and the same sharing of storages."""
        storages: dict[int, torch.UntypedStorage] = {}
        result = []
        for tensor in self.tensors:
            if tensor.storage not in storages:
                size = tensor.storage_nbytes
                storages[tensor.storage] = torch.empty(
                    size, dtype=torch.uint8, device="meta"
                ).untyped_storage()
            view = torch.empty(0, dtype=tensor.dtype, device="meta")
            view.set_(storages[tensor.storage], tensor.offset, tensor.sizes, tensor.strides)
            result.append(view)
        return result

    def scalar_examples(self) -> list[Any]:
        """What stands for each scalar operand in shape inference: a number, a list, or a 0-d meta tensor."""
        return [self._scalar_example(scalar) for scalar in self.scalars]

    def _scalar_example(self, scalar: ScalarDescription) -> Any:
        if not isinstance(scalar.example, torch.Tensor):
            return scalar.example
        if self.counts_as_number(scalar):
            return scalar.example.item()
        return torch.empty((), dtype=scalar.dtype, device="meta")

    def counts_as_number(self, scalar: ScalarDescription) -> bool:
        """Whether a scalar operand takes part in type promotion as a Python number does.

        A number in the place of a tensor arrives as a tensor, and only some ops take it as a number again.
        """
        if not isinstance(scalar.example, torch.Tensor):
            return True
        return scalar.wrapped and torch._C._should_allow_numbers_as_tensors(
            self.op._schema.name.split("::")[1]
        )

    def substitute(
        self,
        tensor: Callable[[int], Any],
        scalar: Callable[[int], Any],
        args: Sequence[Any] | None = None,
    ) -> list[Any]:
        """The arguments with every reference replaced."""

        def replace(value: Any) -> Any:
            if isinstance(value, TensorArgument):
                return tensor(value.index)
            if isinstance(value, ScalarArgument):
                return scalar(value.index)
            if isinstance(value, list):
                return [replace(item) for item in value]
            return value

        return [replace(value) for value in (self.args if args is None else args)]

    def text(self) -> str:
        """The signature for people: dtypes, sizes, and what else tells programs apart."""
        return f"{self.op}({', '.join(self._field(value) for value in self.args)})"

    def _field(self, value: Any) -> str:
        if isinstance(value, TensorArgument):
            return self._tensor_field(self.tensors[value.index])
        if isinstance(value, ScalarArgument):
            scalar = self.scalars[value.index]
            return f"<{short(scalar.dtype)}>" if not scalar.length else f"<{scalar.length} numbers>"
        if isinstance(value, list):
            return f"[{', '.join(self._field(item) for item in value)}]"
        return str(value)

    @staticmethod
    def _tensor_field(tensor: TensorDescription) -> str:
        text = f"{short(tensor.dtype)}[{', '.join(map(str, tensor.sizes))}]"
        if not is_contiguous(tensor.sizes, tensor.strides):
            text += f" strides ({', '.join(map(str, tensor.strides))})"
        return text if tensor.whole else f"{text} of {tensor.storage_numel}"


def short(dtype: torch.dtype) -> str:
    """``torch.float32`` -> ``float32``."""
    return str(dtype).removeprefix("torch.")


def is_contiguous(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Row-major and dense; strides of dimensions of size one mean nothing."""
    expected = 1
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        if size == 0:
            return True
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def is_dense(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Every element at its own place without gaps, in some order of the dimensions."""
    dims = sorted((stride, size) for size, stride in zip(sizes, strides, strict=True) if size != 1)
    expected = 1
    for stride, size in dims:
        if size == 0:
            return True
        if stride != expected:
            return False
        expected *= size
    return True
