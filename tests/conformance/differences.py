"""Ops whose results may differ from the CPU's by more than the tolerance, and why that is right.

Each kind has a check of its own in its place: a difference is never just ignored.
"""

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What is checked in place of equality with the CPU."""

    ROUNDING = "close to the same computation in double precision, or closer to it than the CPU"
    TIES = "values equal the CPU's, and the indices select these values"
    STABLE = "equal to what the CPU gives with stable=True"
    DTYPE = "after conversion to the CPU's dtype, as with ROUNDING"
    SAVED = "results that the CPU leaves empty aside, as with ROUNDING"


@dataclass(frozen=True)
class Difference:
    """Why an op may differ, and what is checked then."""

    kind: Kind
    reason: str


_FLOAT32_SUM = Difference(
    Kind.ROUNDING, "sums in float32, in another order, and rounds once; the CPU rounds on the way"
)
_ORDER = Difference(Kind.ROUNDING, "sums in another order")
_BATCH_NORM = Difference(
    Kind.ROUNDING, "bfloat16: normalises in float32; the CPU rounds scale and shift on the way"
)
_ONCE = Difference(
    Kind.ROUNDING, "narrow floats: computes in float32 and rounds once; the CPU rounds on the way"
)
_SAVED_STATISTICS = Difference(
    Kind.SAVED, "evaluation saves its statistics, as PyTorch's meta function says; see batch_norm"
)

BY_DESIGN: dict[str, Difference] = {
    "_batch_norm_with_update": _BATCH_NORM,
    "_foreach_add": _ONCE,
    "_foreach_mm": _FLOAT32_SUM,
    "_foreach_sub": _ONCE,
    "_native_batch_norm_legit": _SAVED_STATISTICS,
    "_unsafe_masked_index_put_accumulate": _FLOAT32_SUM,
    "acosh": _ONCE,
    "addbmm": _FLOAT32_SUM,
    "argsort": Difference(Kind.STABLE, "sorting is always stable"),
    "asin": _ONCE,
    "cov": _ORDER,
    "grid_sampler_2d": _ONCE,
    "kthvalue": Difference(Kind.TIES, "of equal values another one may be chosen"),
    "logit": Difference(Kind.ROUNDING, "bfloat16: rounds once; the CPU rounds the quotient too"),
    "matrix_exp": Difference(Kind.ROUNDING, "another degree of the polynomial, rounding once"),
    "native_batch_norm": _SAVED_STATISTICS,
    "native_layer_norm": Difference(
        Kind.DTYPE, "statistics of narrow floats are float32, as PyTorch's meta function says"
    ),
    "nn.functional.batch_norm": _BATCH_NORM,
    "nn.functional.bilinear": _FLOAT32_SUM,
    "nn.functional.grid_sample": _ONCE,
    "nn.functional.instance_norm": _ONCE,
    "nn.functional.layer_norm": Difference(
        Kind.ROUNDING, "the gradient sums in another order, and of narrow floats rounds once"
    ),
    "nn.functional.multi_head_attention_forward": _ORDER,
    "nn.functional.conv_transpose1d": _FLOAT32_SUM,
    "nn.functional.conv_transpose2d": _FLOAT32_SUM,
    "nn.functional.conv_transpose3d": _FLOAT32_SUM,
    "rsqrt": _ONCE,
    "sort": Difference(Kind.STABLE, "sorting is always stable"),
    "topk": Difference(Kind.TIES, "of equal values another one may be chosen"),
}

_ONE_ROUNDING = Difference(
    Kind.ROUNDING, "1 - x * x rounds once in a fused program (multiply-add), twice on the CPU"
)

# Of a program that is more than the op: with its backward, or of the ops that it is composed of.
COMPILED: dict[str, Difference] = {
    **BY_DESIGN,
    "asin": _ONE_ROUNDING,
    "atanh": _ONE_ROUNDING,
}
