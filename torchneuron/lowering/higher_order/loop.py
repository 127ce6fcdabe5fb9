"""``Loop``: a ``stablehlo.while`` whose state is found while its body is emitted."""

from collections.abc import Callable, Sequence

import torch

from torchneuron.lowering.builder import Builder, Result, Val
from torchneuron.lowering.errors import LoweringError
from torchneuron.lowering.hlo.philox import random_words

_U64 = torch.uint64


class Loop:
    """One loop.

    ``carry`` and ``buffer`` declare its state and give it as the loop's inside sees it; the body
    says with ``follow`` what each becomes. State that the body leaves alone is invariant.

    A body may draw random numbers, each trip other ones. Where the number of trips is known they
    are those that as many separate ops would draw; else the loop gets a seed of its own, drawn from
    the program's, for the program must say beforehand how far it advances the generator.
    """

    def __init__(self, b: Builder, name: str):
        """``name`` is the operator's, for errors."""
        self._b = b
        self._name = name
        self._initial: list[Callable[[], Val]] = []
        self._inside: list[Val] = []
        self._next: list[Val] = []

    def _declare(self, inside: Val, initial: Callable[[], Val]) -> Val:
        self._inside.append(inside)
        self._next.append(inside)
        self._initial.append(initial)
        return inside

    def carry(self, initial: Val) -> Val:
        """State that starts as ``initial``."""
        inside = Val(self._b.name(), initial.dtype, initial.shape, initial.wrapped)
        return self._declare(inside, lambda: initial)

    def buffer(self, dtype: torch.dtype, shape: Sequence[int]) -> Val:
        """State that starts as zeros; may be declared by the body itself."""
        inside = Val(self._b.name(), dtype, tuple(shape))
        return self._declare(inside, lambda: self._b.full(shape, 0, dtype))

    def follow(self, inside: Val, following: Val) -> None:
        """In the next trip, ``inside`` is ``following``, a value of the body."""
        if following.dtype is not inside.dtype or following.shape != inside.shape:
            raise LoweringError(
                self._name,
                f"a carried value of {inside.dtype} {inside.shape} becomes "
                f"{following.dtype} {following.shape}",
            )
        position = next(i for i, value in enumerate(self._inside) if value is inside)
        self._next[position] = following

    def run(
        self, condition: Callable[[], Val], body: Callable[[], None], trips: int | None
    ) -> list[Val]:
        """Emit the loop and give the last state, in the order of declaration; ``trips`` is how many
        there will be, if that is known.
        """
        b = self._b
        stream = Val(b.name(), _U64, (2,))

        def test() -> None:
            b.op("stablehlo.return", [condition()], [])

        def step() -> None:
            body()
            if b.rng_offset:
                self._declare(stream, lambda: self._stream(drawn, trips))
                self.follow(stream, b.advance_random(stream, b.rng_offset))
            b.op("stablehlo.return", self._next, [])

        with b.random_stream(stream):
            test_lines, _ = b.capture(test)
            lines, _ = b.capture(step)
            drawn = b.rng_offset
        regions = [b.block(self._inside, test_lines), b.block(self._inside, lines)]
        types: list[Result] = [(value.dtype, value.shape) for value in self._inside]
        initial = [give() for give in self._initial]
        results = b.op("stablehlo.while", initial, types, "", regions)
        return [
            Val(result.ir, result.dtype, result.shape, inside.wrapped)
            for result, inside in zip(results, self._inside, strict=True)
        ]

    def _stream(self, drawn: int, trips: int | None) -> Val:
        """Where the loop's numbers start: (seed, offset)."""
        b = self._b
        if trips is not None:
            state = b.random_state()
            b.rng_offset += trips * drawn
            return state
        low, high = (b.convert(word, _U64) for word in random_words(b, (1,), 2))
        seed = b.or_(low, b.shift_left(high, 32))
        return b.concat([seed, b.full((1,), 0, _U64)], 0)


def element(b: Builder, x: Val, index: Val) -> Val:
    """``x[index]``, the index in range."""
    starts: list[Val | int] = [index, *[0] * (x.ndim - 1)]
    return b.reshape(b.dynamic_slice(x, starts, [1, *x.shape[1:]]), x.shape[1:])


def with_element(b: Builder, x: Val, index: Val, value: Val) -> Val:
    """``x`` after ``x[index] = value``, the index in range."""
    starts: list[Val | int] = [index, *[0] * (x.ndim - 1)]
    return b.dynamic_update_slice(x, b.reshape(value, (1, *value.shape)), starts)
