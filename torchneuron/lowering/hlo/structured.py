"""Reductions, windows, contractions, gather and scatter, sort, and the library ops (fft, cholesky,
...).
"""

import math
from collections.abc import Callable, Sequence

import torch

from torchneuron.lowering.dtypes import complex_of, highest, is_complex, lowest, real_of
from torchneuron.lowering.errors import LoweringError
from torchneuron.lowering.hlo.core import Body, Number, Result
from torchneuron.lowering.hlo.maths import Maths
from torchneuron.lowering.hlo.shape import i64_array
from torchneuron.lowering.hlo.value import Val
from torchneuron.lowering.mlir import KEPT
from torchneuron.lowering.rows import SMALL_REDUCTION, WINDOW

Pairs = Sequence[tuple[int, int]]

# A row or column longer than this is summed in pieces of at most so many elements, whose sums are summed:
# the result is more exact, and cores share the pieces.
_LONG_ROW = 1 << 11
_PIECE = 1 << 10

# From so many on, columns of these dtypes are summed by a product with ones, whose loop is a vector
# unit's. XLA's reduction goes along one column after the other, across memory.
_WIDE_COLUMNS = 32
_FAST_PRODUCTS = (torch.float32, torch.float64)


def _pieces_of(length: int) -> int:
    """How many pieces a long dimension is summed in: what divides it if there is such a number.

    Two at least: XLA computes what a product of a single vector reads element by element in its loop.
    """
    least = max(2, -(-length // _PIECE))
    return next((n for n in range(least, 4 * least) if length % n == 0), least)


def _untransposed(
    x: Val, contract: Sequence[int], batch: Sequence[int]
) -> tuple[Val, Sequence[int]]:
    """An operand and its contracted dimensions, without the transpose that made it where that left
    the batch dimensions and the order of the free ones.

    XLA:CPU folds a transpose into the product of large matrices, but for a single row it moves the
    other matrix, a layer's weight, through memory first.
    """
    if x.transposed is None:
        return x, contract
    source, permutation = x.transposed
    free = [permutation[i] for i in range(x.ndim) if i not in contract and i not in batch]
    if free != sorted(free) or any(permutation[i] != i for i in batch):
        return x, contract
    return source, [permutation[i] for i in contract]


def _free(x: Val, contract: Sequence[int], batch: Sequence[int]) -> list[int]:
    """Sizes of the dimensions that a product keeps apart."""
    return [size for i, size in enumerate(x.shape) if i not in contract and i not in batch]


def _dims_attr(name: str, kind: str, fields: dict[str, Sequence[int] | int]) -> str:
    """``name = #stablehlo.kind<field = [..], ...>`` without the empty fields."""
    parts = []
    for field, value in fields.items():
        if isinstance(value, int):
            parts.append(f"{field} = {value}")
        elif value:
            parts.append(f"{field} = [{', '.join(map(str, value))}]")
    return f"{name} = #stablehlo.{kind}<{', '.join(parts)}>"


def _pairs_attr(pairs: Pairs) -> str:
    rows = ", ".join(f"[{low}, {high}]" for low, high in pairs)
    return f"dense<[{rows}]> : tensor<{len(pairs)}x2xi64>" if pairs else "dense<> : tensor<0x2xi64>"


class Structured(Maths):
    """Ops over windows, dimensions and index sets."""

    # Reductions

    def reduce(
        self, inputs: Sequence[Val], inits: Sequence[Val | Number], dims: Sequence[int], body: Body
    ) -> tuple[Val, ...]:
        """Reduce inputs of equal shape over ``dims``, which vanish; ``body(*accumulators,
        *elements)``.
        """
        full = inputs[0].shape
        shape = tuple(size for dim, size in enumerate(full) if dim not in dims)
        scalars = [
            self.scalar(init, value.dtype) for init, value in zip(inits, inputs, strict=True)
        ]
        types: list[Result] = [(value.dtype, ()) for value in inputs]
        return self.op(
            "stablehlo.reduce",
            [*inputs, *scalars],
            [(value.dtype, shape) for value in inputs],
            f"dimensions = {i64_array(list(dims))}",
            [self.region(types + types, body)],
        )

    def _reduce1(
        self, x: Val, init: Number, dims: Sequence[int] | None, keepdim: bool, combine: Body
    ) -> Val:
        axes = sorted(dim % x.ndim for dim in dims) if dims is not None else list(range(x.ndim))
        result = self.reduce([x], [init], axes, combine)[0] if axes else x
        if not keepdim:
            return result
        return self.reshape(
            result, [1 if dim in axes else size for dim, size in enumerate(x.shape)]
        )

    def reduce_sum(self, x: Val, dims: Sequence[int] | None = None, keepdim: bool = False) -> Val:
        """Sum over ``dims`` (None: all) in ``x``'s own dtype.

        Large sums go over neighbouring dimensions at a time, the last first, so that each loop runs
        along memory: over rows, or for floats as a product with ones over columns.
        """
        axes = {dim % x.ndim for dim in dims} if dims is not None else set(range(x.ndim))
        if x.numel <= SMALL_REDUCTION:
            return self._reduce1(x, 0, sorted(axes), keepdim, self.add)
        kept = [1 if dim in axes else size for dim, size in enumerate(x.shape)]
        result, last = x, x.ndim
        while last:
            first = last - 1
            while first and (first - 1 in axes) == (last - 1 in axes):
                first -= 1
            if last - 1 in axes:
                outer, inner = math.prod(x.shape[:first]), math.prod(kept[last:])
                result = self._sum_middle(
                    self.reshape(result, (outer, math.prod(x.shape[first:last]), inner))
                )
            last = first
        shape = kept if keepdim else [size for dim, size in enumerate(x.shape) if dim not in axes]
        return self.reshape(result, shape)

    def _sum_middle(self, x: Val) -> Val:
        """(outer, length, inner) summed to (outer, inner)."""
        outer, length, inner = x.shape
        pieces = _pieces_of(length)
        wide = inner >= _WIDE_COLUMNS and x.numel > SMALL_REDUCTION and x.dtype in _FAST_PRODUCTS
        if wide and length > WINDOW and length % pieces == 0:
            split = self.reshape(x, (outer * pieces, length // pieces, inner))
            ones = self.full(split.shape[:2], 1, x.dtype)
            sums = self.dot_general(ones, split, ([1], [1]), ([0], [0]), exact=True)
        elif length > _LONG_ROW:
            padded = self.pad(x, [0, 0, 0], [0, -length % pieces, 0])
            split = self.reshape(padded, (outer * pieces, -(-length // pieces), inner))
            # Without the barrier XLA makes one reduction of the two again.
            (sums,) = self.optimization_barrier([self._reduce1(split, 0, [1], False, self.add)])
        else:
            return self._reduce1(x, 0, [1], False, self.add)
        return self._sum_middle(self.reshape(sums, (outer, pieces, inner)))

    def reduce_prod(self, x: Val, dims: Sequence[int] | None = None, keepdim: bool = False) -> Val:
        """Product over ``dims`` (None: all)."""
        return self._reduce1(x, 1, dims, keepdim, self.mul)

    def reduce_max(self, x: Val, dims: Sequence[int] | None = None, keepdim: bool = False) -> Val:
        """Maximum, NaN if there is one; the smallest value over nothing."""
        return self._reduce1(x, lowest(x.dtype), dims, keepdim, self.max)

    def reduce_min(self, x: Val, dims: Sequence[int] | None = None, keepdim: bool = False) -> Val:
        """Minimum, NaN if there is one; the largest value over nothing."""
        return self._reduce1(x, highest(x.dtype), dims, keepdim, self.min)

    def reduce_and(self, x: Val, dims: Sequence[int] | None = None, keepdim: bool = False) -> Val:
        """Bitwise and over ``dims`` (None: all)."""
        return self._reduce1(x, True if x.dtype is torch.bool else -1, dims, keepdim, self.and_)

    def reduce_or(self, x: Val, dims: Sequence[int] | None = None, keepdim: bool = False) -> Val:
        """Bitwise or over ``dims`` (None: all)."""
        return self._reduce1(x, 0, dims, keepdim, self.or_)

    # Windows

    def reduce_window(
        self,
        inputs: Sequence[Val],
        inits: Sequence[Val | Number],
        window: Sequence[int],
        body: Body,
        *,
        strides: Sequence[int] | None = None,
        padding: Pairs | None = None,
        base_dilations: Sequence[int] | None = None,
        window_dilations: Sequence[int] | None = None,
    ) -> tuple[Val, ...]:
        """Reduce each window of the inputs; every sequence has one entry per dimension."""
        rank = len(window)
        steps, pads = list(strides or [1] * rank), list(padding or [(0, 0)] * rank)
        base, dilation = list(base_dilations or [1] * rank), list(window_dilations or [1] * rank)
        shape = []
        for i, size in enumerate(inputs[0].shape):
            dilated = max(0, (size - 1) * base[i] + 1) + sum(pads[i])
            extent = (window[i] - 1) * dilation[i] + 1
            shape.append(max(0, (dilated - extent) // steps[i] + 1))
        scalars = [
            self.scalar(init, value.dtype) for init, value in zip(inits, inputs, strict=True)
        ]
        types: list[Result] = [(value.dtype, ()) for value in inputs]
        attrs = (
            f"window_dimensions = {i64_array(window)}, window_strides = {i64_array(steps)}, "
            f"base_dilations = {i64_array(base)}, window_dilations = {i64_array(dilation)}, "
            f"padding = {_pairs_attr(pads)}"
        )
        return self.op(
            "stablehlo.reduce_window",
            [*inputs, *scalars],
            [(value.dtype, tuple(shape)) for value in inputs],
            attrs,
            [self.region(types + types, body)],
        )

    def select_and_scatter(
        self,
        x: Val,
        source: Val,
        init: Val | Number,
        window: Sequence[int],
        strides: Sequence[int],
        padding: Pairs,
        select: Body,
        scatter: Body,
    ) -> Val:
        """Scatter ``source`` to the element of each window of ``x`` that ``select`` chooses."""
        attrs = (
            f"window_dimensions = {i64_array(window)}, window_strides = {i64_array(strides)}, "
            f"padding = {_pairs_attr(padding)}"
        )
        scalars: list[Result] = [(x.dtype, ()), (x.dtype, ())]
        regions = [self.region(scalars, select), self.region(scalars, scatter)]
        operands = [x, source, self.scalar(init, x.dtype)]
        return self.op1("stablehlo.select_and_scatter", operands, x.dtype, x.shape, attrs, regions)

    # Contractions

    def dot_general(
        self,
        x: Val,
        y: Val,
        contract: tuple[Sequence[int], Sequence[int]],
        batch: tuple[Sequence[int], Sequence[int]] = ((), ()),
        dtype: torch.dtype | None = None,
        *,
        exact: bool = False,
    ) -> Val:
        """Contraction to (batch..., free of x..., free of y...); ``dtype`` is the accumulator's and
        the result's; ``exact`` asks compilers that round operands for speed not to. LoweringError
        for booleans: PyTorch has no product of them, and XLA:CPU ends the process at one with an
        addend.
        """
        if torch.bool in (x.dtype, y.dtype):
            raise LoweringError("dot_general", "booleans have no products")
        x, contract_x = _untransposed(x, contract[0], batch[0])
        y, contract_y = _untransposed(y, contract[1], batch[1])
        free_x = _free(x, contract_x, batch[0])
        free_y = _free(y, contract_y, batch[1])
        shape = [*(x.shape[i] for i in batch[0]), *free_x, *free_y]
        if batch[0] and math.prod(free_x) == 1 and list(contract_y) == [y.ndim - 1]:
            # Of one row and stacked matrices XLA:CPU moves the right operand through memory so that its
            # rows are contracted; on the left they are as they lie.
            x, y, batch = y, x, (batch[1], batch[0])
            contract_x, contract_y, free_x, free_y = contract_y, contract_x, free_y, free_x
        contract = (contract_x, contract_y)
        numbers = _dims_attr(
            "dot_dimension_numbers",
            "dot",
            {
                "lhs_batching_dimensions": batch[0],
                "rhs_batching_dimensions": batch[1],
                "lhs_contracting_dimensions": contract[0],
                "rhs_contracting_dimensions": contract[1],
            },
        )
        if exact:
            highest_precision = "#stablehlo<precision HIGHEST>"
            numbers += f", precision_config = [{highest_precision}, {highest_precision}]"
        given = [*(x.shape[i] for i in batch[0]), *free_x, *free_y]
        product = self.op1("stablehlo.dot_general", [x, y], dtype or x.dtype, given, numbers)
        return self.reshape(product, shape)

    def convolution(
        self,
        x: Val,
        kernel: Val,
        *,
        strides: Sequence[int],
        padding: Pairs,
        x_dilation: Sequence[int] | None = None,
        kernel_dilation: Sequence[int] | None = None,
        reversal: bool = False,
        groups: int = 1,
        batch_groups: int = 1,
        layout: tuple[str, str, str] | None = None,
        dtype: torch.dtype | None = None,
    ) -> Val:
        """Convolution of x (N, C, spatial...) with kernel (O, C/groups, spatial...).

        ``layout`` names the dimensions of x, kernel and result in StableHLO's letters, without
        commas, for other orders: ("bf01", "oi01", "bf01") is the default in two dimensions.

        The operation itself has the channels last, between transpositions: in that order XLA:CPU
        computes it as a product of matrices, in others element by element, many times slower.
        It reorders by itself only what stands outside of all regions and functions.
        """
        rank = x.ndim - 2
        spatial = "".join(map(str, range(rank)))
        names = layout or (f"bf{spatial}", f"oi{spatial}", f"bf{spatial}")
        last = (f"b{spatial}f", f"{spatial}io", f"b{spatial}f")
        x = self.transpose(x, [names[0].index(letter) for letter in last[0]])
        kernel = self.transpose(kernel, [names[1].index(letter) for letter in last[1]])
        dilate_x, dilate_k = list(x_dilation or [1] * rank), list(kernel_dilation or [1] * rank)
        counts = []
        for i in range(rank):
            size, taps = x.shape[1 + i], kernel.shape[i]
            extent = (size - 1) * dilate_x[i] + 1 if size else 0
            reach = (taps - 1) * dilate_k[i] + 1 if taps else 0
            counts.append(max(0, (extent + sum(padding[i]) - reach) // strides[i] + 1))
        text = [f"[{', '.join(name)}]" for name in last]
        flags = ", ".join(["true" if reversal else "false"] * rank)
        attrs = (
            f"dimension_numbers = #stablehlo.conv<{text[0]}x{text[1]}->{text[2]}>, "
            f"window_strides = {i64_array(list(strides))}, padding = {_pairs_attr(padding)}, "
            f"lhs_dilation = {i64_array(dilate_x)}, rhs_dilation = {i64_array(dilate_k)}, "
            f"window_reversal = array<i1{': ' if flags else ''}{flags}>, "
            f"feature_group_count = {groups} : i64, batch_group_count = {batch_groups} : i64"
        )
        shape = [x.shape[0] // batch_groups, *counts, kernel.shape[-1]]
        result = self.op1("stablehlo.convolution", [x, kernel], dtype or x.dtype, shape, attrs)
        return self.transpose(result, [last[2].index(letter) for letter in names[2]])

    # Indexing

    def gather(
        self,
        x: Val,
        indices: Val,
        slice_sizes: Sequence[int],
        *,
        offset_dims: Sequence[int],
        collapsed: Sequence[int],
        index_map: Sequence[int],
        index_vector_dim: int,
        sorted_indices: bool = False,
    ) -> Val:
        """StableHLO gather; out-of-range starts are clamped."""
        numbers = _dims_attr(
            "dimension_numbers",
            "gather",
            {
                "offset_dims": offset_dims,
                "collapsed_slice_dims": collapsed,
                "start_index_map": index_map,
                "index_vector_dim": index_vector_dim,
            },
        )
        batch = iter([size for dim, size in enumerate(indices.shape) if dim != index_vector_dim])
        kept = iter([size for dim, size in enumerate(slice_sizes) if dim not in collapsed])
        rank = indices.ndim - (index_vector_dim < indices.ndim) + len(offset_dims)
        shape = [next(kept) if dim in offset_dims else next(batch) for dim in range(rank)]
        attrs = (
            f"{numbers}, slice_sizes = {i64_array(list(slice_sizes))}, "
            f"indices_are_sorted = {'true' if sorted_indices else 'false'}"
        )
        return self.op1("stablehlo.gather", [x, indices], x.dtype, shape, attrs)

    def take(self, x: Val, indices: Val, dim: int = 0) -> Val:
        """``x`` indexed along ``dim`` by ``indices`` of any shape, which takes ``dim``'s place; all
        in range.
        """
        before, rank = x.shape[:dim], indices.ndim
        sizes = [1 if i == dim else size for i, size in enumerate(x.shape)]
        offsets = [*range(dim), *range(dim + rank, x.ndim - 1 + rank)]
        assert len(before) == dim
        return self.gather(
            x,
            indices,
            sizes,
            offset_dims=offsets,
            collapsed=[dim],
            index_map=[dim],
            index_vector_dim=rank,
        )

    def scatter(
        self,
        x: Sequence[Val],
        indices: Val,
        updates: Sequence[Val],
        body: Body,
        *,
        window_dims: Sequence[int],
        inserted: Sequence[int],
        index_map: Sequence[int],
        index_vector_dim: int,
        sorted_indices: bool = False,
        unique: bool = False,
    ) -> tuple[Val, ...]:
        """StableHLO scatter, ``body(*old, *new)``; updates outside are dropped, and applied in
        order on XLA:CPU.
        """
        numbers = _dims_attr(
            "scatter_dimension_numbers",
            "scatter",
            {
                "update_window_dims": window_dims,
                "inserted_window_dims": inserted,
                "scatter_dims_to_operand_dims": index_map,
                "index_vector_dim": index_vector_dim,
            },
        )
        attrs = (
            f"{numbers}, indices_are_sorted = {'true' if sorted_indices else 'false'}, "
            f"unique_indices = {'true' if unique else 'false'}"
        )
        types: list[Result] = [(value.dtype, ()) for value in x]
        region = self.region(types + types, body)
        results: list[Result] = [(value.dtype, value.shape) for value in x]
        return self.op("stablehlo.scatter", [*x, indices, *updates], results, attrs, [region])

    def sort(
        self, values: Sequence[Val], dim: int, before: Callable[..., Val], stable: bool = True
    ) -> tuple[Val, ...]:
        """Sort the values together; ``before(a0, b0, a1, b1, ...)`` is true if element a comes
        before b.
        """
        types: list[Result] = [(value.dtype, ()) for value in values for _ in range(2)]
        attrs = f"dimension = {dim} : i64, is_stable = {'true' if stable else 'false'}"
        results: list[Result] = [(value.dtype, value.shape) for value in values]
        return self.op("stablehlo.sort", list(values), results, attrs, [self.region(types, before)])

    # Library ops

    def fft(self, x: Val, kind: str, length: Sequence[int]) -> Val:
        """``kind`` is FFT, IFFT, RFFT or IRFFT over the last ``len(length)`` dimensions."""
        shape = list(x.shape)
        dtype = x.dtype
        if kind == "RFFT":
            shape[-1], dtype = length[-1] // 2 + 1, complex_of(dtype)
        elif kind == "IRFFT":
            shape[-1], dtype = length[-1], real_of(dtype)
        attrs = f"fft_type = #stablehlo<fft_type {kind}>, fft_length = {i64_array(list(length))}"
        return self.op1("stablehlo.fft", [x], dtype, shape, attrs)

    def cholesky(self, x: Val, lower: bool = True) -> Val:
        """Factor of each (n, n) matrix; the other triangle holds anything, a failed factor NaN."""
        return self.op1(
            "stablehlo.cholesky", [x], x.dtype, x.shape, f"lower = {'true' if lower else 'false'}"
        )

    def triangular_solve(
        self,
        a: Val,
        b: Val,
        *,
        left: bool = True,
        lower: bool = True,
        unit_diagonal: bool = False,
        transpose: str = "NO_TRANSPOSE",
    ) -> Val:
        """x of a x = b (or x a = b); ``transpose``: NO_TRANSPOSE, TRANSPOSE or ADJOINT of ``a``."""
        flags = {"left_side": left, "lower": lower, "unit_diagonal": unit_diagonal}
        text = ", ".join(
            f"{name} = {'true' if value else 'false'}" for name, value in flags.items()
        )
        attrs = f"{text}, transpose_a = #stablehlo<transpose {transpose}>"
        return self.op1("stablehlo.triangular_solve", [a, b], b.dtype, b.shape, attrs)

    def reduce_precision(self, x: Val, exponent_bits: int, mantissa_bits: int) -> Val:
        """``x`` rounded as if it had so many exponent and mantissa bits."""
        attrs = f"exponent_bits = {exponent_bits} : i32, mantissa_bits = {mantissa_bits} : i32"
        return self.op1("stablehlo.reduce_precision", [x], x.dtype, x.shape, attrs)

    def custom_call(
        self,
        target: str,
        operands: Sequence[Val],
        results: Sequence[Result],
        *,
        side_effect: bool = False,
        config: str = "",
    ) -> tuple[Val, ...]:
        """Call ``target`` of the plugin; ``config`` is its backend_config string."""
        attrs = (
            f'call_target_name = "{target}", '
            f"has_side_effect = {'true' if side_effect else 'false'}, "
            f'backend_config = "{config}"'
        )
        return self.op("stablehlo.custom_call", operands, results, attrs)

    def optimization_barrier(self, values: Sequence[Val]) -> tuple[Val, ...]:
        """The values, computed as they are before anything that uses them."""
        results: list[Result] = [(value.dtype, value.shape) for value in values]
        return self.op("stablehlo.optimization_barrier", values, results)

    def materialize(self, x: Val) -> Val:
        """``x``, computed once and kept in memory in its own order.

        XLA computes what is cheap anew in every loop that reads it, and in that loop's order. It
        fuses nothing across a call that it may not inline; the call itself costs nothing. Worth
        it where several loops read what is more than an elementwise operation, or reads across
        memory. Small values are left as they are.
        """
        known = self.kept(x)
        if x.numel <= SMALL_REDUCTION or known is not x:
            return known
        name = "_".join([KEPT, str(x.dtype).removeprefix("torch."), *map(str, x.shape)])
        self.functions[name] = (
            f"func.func private @{name}(%x: {x.type}) -> {x.type} {{\n"
            f'"func.return"(%x) : ({x.type}) -> ()\n}}'
        )
        attrs = f'callee = @{name}, mhlo.frontend_attributes = {{inlineable = "false"}}'
        result = self.op1("func.call", [x], x.dtype, x.shape, attrs)
        self.keep(x, result)
        return result

    # Products that several families want

    def matmul(self, x: Val, y: Val) -> Val:
        """(..., m, k) x (..., k, n) with equal batch dimensions; narrow floats accumulate in
        float32, result too.
        """
        batch = list(range(x.ndim - 2))
        narrow = x.dtype in (torch.float16, torch.bfloat16)
        accumulator = torch.float32 if narrow and not is_complex(x.dtype) else x.dtype
        return self.dot_general(x, y, ([x.ndim - 1], [y.ndim - 2]), (batch, batch), accumulator)
