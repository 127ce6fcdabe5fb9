"""Control flow and random bits."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from torchneuron.lowering.hlo.core import Result
from torchneuron.lowering.hlo.structured import Structured
from torchneuron.lowering.hlo.value import Val

# Philox gives four 32-bit words for each value of its counter.
_WORDS_PER_COUNTER = 4


class Control(Structured):
    """Control flow and random bits."""

    def __init__(self) -> None:
        """No random numbers are drawn yet."""
        super().__init__()
        self.rng_offset = 0
        self.rng_operand: Val | None = None

    def while_(
        self,
        state: Sequence[Val],
        condition: Callable[..., Val],
        body: Callable[..., Sequence[Val]],
    ) -> tuple[Val, ...]:
        """Loop while ``condition(*state)``, a 0-d bool, holds; ``body(*state)`` gives the next
        state.
        """
        types: list[Result] = [(value.dtype, value.shape) for value in state]
        regions = [self.region(types, condition), self.region(types, body)]
        return self.op("stablehlo.while", list(state), types, "", regions)

    def for_(
        self, count: int | Val, state: Sequence[Val], body: Callable[..., Sequence[Val]]
    ) -> tuple[Val, ...]:
        """``body(i, *state)`` for i (0-d i64) from 0 to ``count``; gives the last state."""
        limit = self.scalar(count, torch.int64)
        looped = self.while_(
            [self.full((), 0, torch.int64), limit, *state],
            lambda i, n, *_: self.lt(i, n),
            lambda i, n, *rest: [self.add(i, 1), n, *body(i, *rest)],
        )
        return looped[2:]

    def if_(
        self,
        predicate: Val,
        then: Callable[[], Sequence[Val]],
        otherwise: Callable[[], Sequence[Val]],
        results: Sequence[Result],
    ) -> tuple[Val, ...]:
        """One of the branches, both giving ``results``; they may use values from outside."""
        regions = [self.region([], then), self.region([], otherwise)]
        return self.op("stablehlo.if", [predicate], results, "", regions)

    def case(
        self, index: Val, branches: Sequence[Callable[[], Sequence[Val]]], results: Sequence[Result]
    ) -> tuple[Val, ...]:
        """Branch number ``index`` (0-d i32), the last one if out of range."""
        regions = [self.region([], branch) for branch in branches]
        return self.op("stablehlo.case", [self.scalar(index, torch.int32)], results, "", regions)

    @contextmanager
    def random_stream(self, state: Val) -> Iterator[None]:
        """Inside, numbers come from ``state`` tensor<2xui64> (seed, offset), and ``rng_offset``
        counts from there.
        """
        outer = self.rng_operand, self.rng_offset
        self.rng_operand, self.rng_offset = state, 0
        try:
            yield
        finally:
            self.rng_operand, self.rng_offset = outer

    def random_state(self) -> Val:
        """Where the next draw starts: tensor<2xui64> (seed, offset)."""
        if self.rng_operand is None:
            self.rng_operand = Val("%rng", torch.uint64, (2,))
        return self.advance_random(self.rng_operand, self.rng_offset)

    def advance_random(self, state: Val, words: int) -> Val:
        """``state`` tensor<2xui64> (seed, offset) after ``words`` more draws."""
        if not words:
            return state
        return self.add(state, self.constant(torch.tensor([0, words]), torch.uint64))

    def rng_bit_generator(
        self, state: Val, shape: Sequence[int], dtype: torch.dtype
    ) -> tuple[Val, Val]:
        """(next state, bits) of Philox from ``state`` tensor<2xui64> (key, counter)."""
        next_state, bits = self.op(
            "stablehlo.rng_bit_generator",
            [state],
            [(state.dtype, state.shape), (dtype, tuple(shape))],
            "rng_algorithm = #stablehlo<rng_algorithm PHILOX>",
        )
        return next_state, bits

    def random_bits(self, shape: Sequence[int], bits: int = 32) -> Val:
        """Uniform ui32 or ui64 of ``shape`` from the program's (seed, offset) operand; each call
        takes fresh ones.

        Advances ``rng_offset``, counted in 32-bit words and a multiple of 4. Not for use inside a
        region.
        """
        if self.rng_operand is None:
            self.rng_operand = Val("%rng", torch.uint64, (2,))
        count = bits // 32
        for size in shape:
            count *= size
        seed = self.slice(self.rng_operand, [0], [1])
        offset = self.slice(self.rng_operand, [1], [2])
        counter = self.div(self.add(offset, self.rng_offset), _WORDS_PER_COUNTER)
        self.rng_offset += -(-count // _WORDS_PER_COUNTER) * _WORDS_PER_COUNTER
        dtype = torch.uint32 if bits == 32 else torch.uint64
        if count == 0:
            return self.full(shape, 0, dtype)
        return self.rng_bit_generator(self.concat([seed, counter], 0), shape, dtype)[1]
