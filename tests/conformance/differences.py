"""Ops whose results may differ from the CPU's by more than the tolerance, and why that is right.

Each kind has a check of its own in its place: a difference is never just ignored.
"""

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What is checked in place of equality with the CPU."""

    ROUNDING = (
        "as close to the same computation in double precision as the CPU, but for the last rounding"
    )
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

_POLAR = Difference(Kind.ROUNDING, "complex: by logarithm and angle; neither has all digits")
_CHOICE = Difference(Kind.TIES, "of equal values another one may be chosen")

BY_DESIGN: dict[str, Difference] = {
    # Several operations on the CPU, with a rounding after each.
    **dict.fromkeys(
        (
            *("_foreach_acos", "_foreach_add", "_foreach_asin", "_foreach_cosh", "_foreach_rsqrt"),
            *("_foreach_sigmoid", "_foreach_sub", "acosh", "add", "addr", "asin"),
            *("div.trunc_rounding", "fmod"),
            *("grid_sampler_2d", "grid_sampler_3d", "linspace", "linspace.tensor_overload"),
            *("log_softmax", "logspace", "logspace.tensor_overload", "masked.log_softmax"),
            *("masked.logsumexp", "masked.normalize", "masked.softmax", "masked.softmin"),
            *("nn.functional.binary_cross_entropy", "nn.functional.cross_entropy"),
            *("nn.functional.glu", "nn.functional.grid_sample", "nn.functional.instance_norm"),
            *("nn.functional.interpolate.area", "nn.functional.interpolate.bicubic"),
            *("nn.functional.interpolate.linear", "nn.functional.interpolate.trilinear"),
            "nn.functional.kl_div",
            *("nn.functional.linear_cross_entropy", "nn.functional.linear_cross_entropy.chunked"),
            *("nn.functional.linear_cross_entropy.chunked_none", "nn.functional.mse_loss"),
            *("nn.functional.nll_loss", "nn.functional.scaled_dot_product_attention"),
            *("nn.functional.softmin", "rsqrt", "softmax", "special.xlog1py", "sub", "xlogy"),
            *(f"polygamma.polygamma_n_{order}" for order in range(5)),
            "special.polygamma.special_polygamma_n_0",
        ),
        _ONCE,
    ),
    # Sums, means and products.
    **dict.fromkeys(
        (
            *("_foreach_mm", "_unsafe_masked_index_put_accumulate", "addbmm", "index_reduce.mean"),
            *("index_reduce.prod", "linalg.vector_norm", "masked.prod"),
            *("nn.functional.adaptive_avg_pool3d", "nn.functional.bilinear"),
            *("nn.functional.conv1d", "nn.functional.conv2d", "nn.functional.conv3d"),
            *("nn.functional.conv_transpose1d", "nn.functional.conv_transpose2d"),
            *("nn.functional.conv_transpose3d", "nn.functional.embedding_bag"),
            *("nn.functional.linear", "prod", "sparse.mm.reduce"),
        ),
        _FLOAT32_SUM,
    ),
    **dict.fromkeys(
        (
            *("cdist", "cov", "fft.hfft2", "linalg.lstsq", "linalg.lstsq.grad_oriented"),
            *("nn.MultiheadAttention", "nn.functional.multi_head_attention_forward"),
            "triangular_solve",
        ),
        _ORDER,
    ),
    **dict.fromkeys(("__rpow__", "pow"), _POLAR),
    **dict.fromkeys(("_batch_norm_with_update", "nn.functional.batch_norm"), _BATCH_NORM),
    **dict.fromkeys(("_native_batch_norm_legit", "native_batch_norm"), _SAVED_STATISTICS),
    **dict.fromkeys(("kthvalue", "median", "mode", "nanmedian", "topk"), _CHOICE),
    **dict.fromkeys(("argsort", "sort"), Difference(Kind.STABLE, "sorting is always stable")),
    "logit": Difference(Kind.ROUNDING, "bfloat16: rounds once; the CPU rounds the quotient too"),
    "matrix_exp": Difference(Kind.ROUNDING, "another degree of the polynomial, rounding once"),
    "native_layer_norm": Difference(
        Kind.DTYPE, "statistics of narrow floats are float32, as PyTorch's meta function says"
    ),
    "nn.functional.layer_norm": Difference(
        Kind.ROUNDING, "the gradient sums in another order, and of narrow floats rounds once"
    ),
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
