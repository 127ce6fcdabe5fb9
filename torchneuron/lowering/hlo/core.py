"""Text emission: ops, regions, constants, conversions."""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from torchneuron.lowering.dtypes import is_complex, is_float, is_integer, mlir_name, opmath, real_of
from torchneuron.lowering.hlo.value import Val, tensor_type

Number = bool | int | float | complex
Result = tuple[torch.dtype, tuple[int, ...]]
Body = Callable[..., "Val | Sequence[Val]"]
T = TypeVar("T")

_HEX_WIDTH = {2: 4, 4: 8, 8: 16}


def float_literal(value: float, dtype: torch.dtype) -> str:
    """``value`` rounded to ``dtype`` as an MLIR literal."""
    rounded = (
        value
        if dtype is torch.float64
        else torch.tensor(value, dtype=torch.float64).to(dtype).item()
    )
    if math.isfinite(rounded):
        text = repr(rounded)
        return text if "." in text else text.replace("e", ".0e")
    raw = torch.tensor([rounded], dtype=dtype).view(torch.uint8).numpy()[::-1]
    return "0x" + "".join(f"{byte:02X}" for byte in raw)


def literal(value: Number, dtype: torch.dtype) -> str:
    """``value`` as an MLIR literal of ``dtype``; integers wrap around."""
    if dtype is torch.bool:
        return "true" if value else "false"
    if is_complex(dtype):
        part = real_of(dtype)
        number = complex(value)
        return f"({float_literal(number.real, part)},{float_literal(number.imag, part)})"
    if is_float(dtype):
        return float_literal(float(value.real), dtype)
    info = torch.iinfo(dtype)
    integer = int(value.real)
    if not info.min <= integer <= info.max:
        integer = (integer - info.min) % (1 << info.bits) + info.min
    return str(integer)


# Where StableHLO's conversion overflows to NaN, PyTorch's gives the largest finite number.
_SATURATES = torch.float8_e4m3fn


class Core:
    """Holds the text of the function under construction."""

    def __init__(self) -> None:
        """An empty function."""
        self._lines: list[str] = []
        self._next = 0
        self._constants: list[dict[str, Val]] = [{}]
        # Reshapes outside all regions: operand and result, by the result's name.
        self._reshapes: dict[str, tuple[Val, Val]] = {}
        # Private functions that the text calls, by name.
        self.functions: dict[str, str] = {}
        self.has_chlo = False
        self.has_torch = False

    # Emission

    def name(self) -> str:
        """A fresh SSA name."""
        self._next += 1
        return f"%{self._next}"

    def raw(self, line: str) -> None:
        """Append one line of MLIR text."""
        self._lines.append(line)

    def op(
        self,
        name: str,
        operands: Sequence[Val],
        results: Sequence[Result],
        attrs: str = "",
        regions: Sequence[str] = (),
    ) -> tuple[Val, ...]:
        """Emit an op in generic form and give its results; ``attrs`` is the inside of the attribute
        dictionary.
        """
        out = self.name()
        count = len(results)
        left = f"{out} = " if count == 1 else f"{out}:{count} = " if count else ""
        args = ", ".join(operand.ir for operand in operands)
        types = ", ".join(operand.type for operand in operands)
        result_types = ", ".join(tensor_type(*result) for result in results)
        body = f" ({', '.join(regions)})" if regions else ""
        dictionary = f" {{{attrs}}}" if attrs else ""
        self._lines.append(
            f'{left}"{name}"({args}){body}{dictionary} : ({types}) -> ({result_types})'
        )
        if count == 1:
            return (Val(out, *results[0]),)
        return tuple(Val(f"{out}#{i}", *result) for i, result in enumerate(results))

    def op1(
        self,
        name: str,
        operands: Sequence[Val],
        dtype: torch.dtype,
        shape: Sequence[int],
        attrs: str = "",
        regions: Sequence[str] = (),
    ) -> Val:
        """``op`` with one result."""
        return self.op(name, operands, [(dtype, tuple(shape))], attrs, regions)[0]

    def region(
        self, arguments: Sequence[Result], body: Body, terminator: str = "stablehlo.return"
    ) -> str:
        """Text of a region with one block; ``body(*arguments)`` emits it and gives the value(s)
        that it returns.
        """
        args = [Val(self.name(), *argument) for argument in arguments]

        def emit() -> None:
            given = body(*args)
            self.op(terminator, [given] if isinstance(given, Val) else list(given), [])

        return self.block(args, self.capture(emit)[0])

    def capture(self, body: Callable[[], T]) -> tuple[list[str], T]:
        """The lines that ``body()`` emits, kept out of the function, and what it gives."""
        outer, self._lines = self._lines, []
        self._constants.append({})
        try:
            given = body()
            return self._lines, given
        finally:
            self._lines = outer
            self._constants.pop()

    def block(self, arguments: Sequence[Val], lines: Sequence[str]) -> str:
        """Text of a region with one block of captured ``lines``, terminator included."""
        header = ", ".join(f"{arg.ir}: {arg.type}" for arg in arguments)
        return "{\n" + "\n".join([f"^bb0({header}):" if header else "^bb0:", *lines]) + "\n}"

    def mark(self) -> tuple[int, dict[str, Val]]:
        """A point to ``rollback`` to."""
        return len(self._lines), dict(self._constants[-1])

    def rollback(self, mark: tuple[int, dict[str, Val]]) -> None:
        """Forget what was emitted since ``mark``."""
        del self._lines[mark[0] :]
        self._constants[-1] = mark[1]

    def body_text(self) -> str:
        """What was emitted so far."""
        return "\n".join(self._lines)

    def keep(self, x: Val, kept: Val) -> None:
        """Remember within this region that ``kept`` is ``x`` in memory."""
        self._constants[-1][f"kept {x.ir}"] = kept

    def kept(self, x: Val) -> Val:
        """``x`` in memory if it is there anyway, else ``x`` itself."""
        return self._constants[-1].get(f"kept {x.ir}", x)

    # Constants

    def full(self, shape: Sequence[int], value: Number, dtype: torch.dtype) -> Val:
        """A splat constant."""
        shape = tuple(shape)
        text = "" if 0 in shape else literal(value, dtype)
        attr = f"value = dense<{text}> : {tensor_type(dtype, shape)}"
        known = self._constants[-1].get(attr)
        if known is None:
            known = self.op1("stablehlo.constant", [], dtype, shape, attr)
            self._constants[-1][attr] = known
        return known

    def constant(self, value: Any, dtype: torch.dtype | None = None) -> Val:
        """A constant from a number, nested list, numpy array or CPU tensor."""
        if isinstance(value, (bool, int, float, complex)) and dtype is not None:
            return self.full((), value, dtype)
        data = value.detach().cpu() if isinstance(value, torch.Tensor) else torch.as_tensor(value)
        data = (
            data.to(dtype if dtype is not None else data.dtype)
            .resolve_conj()
            .resolve_neg()
            .contiguous()
        )
        shape = tuple(data.shape)
        if data.numel() == 0:
            return self.full(shape, 0, data.dtype)
        if data.dtype is torch.bool:
            elements = str(data.tolist()).lower()
        elif data.numel() == 1:
            elements = literal(data.item(), data.dtype)
        else:
            raw = data.reshape(-1).view(torch.uint8).numpy().tobytes()
            elements = f'"0x{raw.hex().upper()}"'
        return self.op1(
            "stablehlo.constant",
            [],
            data.dtype,
            shape,
            f"value = dense<{elements}> : {tensor_type(data.dtype, shape)}",
        )

    def scalar(self, x: "Val | Number", dtype: torch.dtype) -> Val:
        """A number, static or dynamic, as a 0-d value of ``dtype``."""
        if isinstance(x, Val):
            return self.convert(x if x.shape == () else self.reshape(x, ()), dtype)
        return self.full((), x, dtype)

    def reshape(self, x: Val, shape: Sequence[int]) -> Val:
        """``x`` with another shape of as many elements."""
        shape = tuple(shape)
        if shape == x.shape:
            return x
        result = self.op1("stablehlo.reshape", [x], x.dtype, shape)
        result.reshaped = x
        if len(self._constants) == 1:
            self._reshapes[result.ir] = (x, result)
        return result

    def before_reshape(self, x: Val) -> Val:
        """What ``x`` was reshaped from outside all regions; ``x`` itself if it was not."""
        return self._reshapes.get(x.ir, (x,))[0]

    def take_reshapes(self, sources: Sequence[Val]) -> list[tuple[Val, str]]:
        """Take the reshapes of ``sources`` out of the text; their results and lines."""
        wanted = {x.ir for x in sources}
        taken, kept = [], []
        for line in self._lines:
            source, result = self._reshapes.get(line.partition(" = ")[0], (None, None))
            if source is not None and result is not None and source.ir in wanted:
                taken.append((result, line))
            else:
                kept.append(line)
        self._lines = kept
        return taken

    # Conversions

    def _convert(self, x: Val, dtype: torch.dtype) -> Val:
        return x if x.dtype is dtype else self.op1("stablehlo.convert", [x], dtype, x.shape)

    def convert(self, x: Val, dtype: torch.dtype) -> Val:
        """``x.to(dtype)``: truncation to integers, ``!= 0`` to bool, the real part of a complex
        number.
        """
        source = x.dtype
        if source is dtype:
            return x
        if dtype is torch.bool:
            return self._nonzero(x)
        if is_complex(source):
            if is_complex(dtype):
                return self._convert(x, dtype)
            return self.convert(self.op1("stablehlo.real", [x], real_of(source), x.shape), dtype)
        if is_complex(dtype):
            real = self.convert(x, real_of(dtype))
            return self.op1(
                "stablehlo.complex", [real, self.full(x.shape, 0, real.dtype)], dtype, x.shape
            )
        if is_float(source):
            return self._convert_float(x, dtype)
        if opmath(dtype) is not dtype and source is not torch.bool:
            # PyTorch goes through float32 and so rounds twice.
            return self._convert_float(self._convert(x, torch.float32), dtype)
        return self._convert(x, dtype)

    def _convert_float(self, x: Val, dtype: torch.dtype) -> Val:
        if is_float(dtype):
            narrow = opmath(dtype) is not dtype or opmath(x.dtype) is not x.dtype
            value = self._convert(x, torch.float32) if narrow else x
            return self._convert(self._saturated(value) if dtype is _SATURATES else value, dtype)
        if is_integer(dtype) and dtype.itemsize < 4:
            # Out of range, CPUs wrap around where StableHLO would saturate.
            x = self._convert(x, torch.int32)
        return self._convert(x, dtype)

    def _saturated(self, x: Val) -> Val:
        """Bounded to the finite numbers of ``_SATURATES``; a NaN stays."""
        limit = torch.finfo(_SATURATES).max
        bounded = x
        for name, bound in (("maximum", -limit), ("minimum", limit)):
            operands = [bounded, self.full(x.shape, bound, x.dtype)]
            bounded = self.op1(f"stablehlo.{name}", operands, x.dtype, x.shape)
        return bounded

    def _nonzero(self, x: Val) -> Val:
        kind = "FLOAT" if x.dtype.is_floating_point or x.dtype.is_complex else "SIGNED"
        if mlir_name(x.dtype).startswith("ui"):
            kind = "UNSIGNED"
        attrs = (
            "comparison_direction = #stablehlo<comparison_direction NE>, "
            f"compare_type = #stablehlo<comparison_type {kind}>"
        )
        return self.op1(
            "stablehlo.compare", [x, self.full(x.shape, 0, x.dtype)], torch.bool, x.shape, attrs
        )
