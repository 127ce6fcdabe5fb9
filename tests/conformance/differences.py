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
    DTYPE = "equal to the CPU's after conversion to the device's dtype"


@dataclass(frozen=True)
class Difference:
    """Why an op may differ, and what is checked then."""

    kind: Kind
    reason: str


_FLOAT32_SUM = Difference(
    Kind.ROUNDING, "sums in float32, in another order, and rounds once; the CPU rounds on the way"
)

BY_DESIGN: dict[str, Difference] = {
    "_unsafe_masked_index_put_accumulate": _FLOAT32_SUM,
    "addbmm": _FLOAT32_SUM,
    "argsort": Difference(Kind.STABLE, "sorting is always stable"),
    "kthvalue": Difference(Kind.TIES, "of equal values another one may be chosen"),
    "logit": Difference(Kind.ROUNDING, "bfloat16: rounds once; the CPU rounds the quotient too"),
    "matrix_exp": Difference(Kind.ROUNDING, "another degree of the polynomial, rounding once"),
    "native_layer_norm": Difference(
        Kind.DTYPE, "statistics of narrow floats are float32, as PyTorch's meta function says"
    ),
    "nn.functional.conv_transpose1d": _FLOAT32_SUM,
    "nn.functional.conv_transpose2d": _FLOAT32_SUM,
    "nn.functional.conv_transpose3d": _FLOAT32_SUM,
    "sort": Difference(Kind.STABLE, "sorting is always stable"),
    "topk": Difference(Kind.TIES, "of equal values another one may be chosen"),
}
