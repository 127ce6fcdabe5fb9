"""Special functions: modified Bessel functions, erfcx, orthogonal polynomials."""

import math
from collections.abc import Callable
from typing import Any

import torch

from torchneuron.lowering.builder import Builder, Number, Val
from torchneuron.lowering.emitting import chebyshev, finish, in_opmath
from torchneuron.lowering.registry import emitter

Arg = Val | Number

# Chebyshev coefficients on [-1, 1], computed with mpmath to 40 digits: exp(-x) I0(x) over x in
# [0, 8], sqrt(x) exp(-x) I0(x) over 8 / x in [0, 1], and erfcx(x) / y over y = 4 / (4 + x) in
# [0, 1].
_I0_SMALL = (
    0.338397637204738042,
    -0.304682672343198399,
    0.171620901522208775,
    -0.0949010970480476444,
    0.0493052842396707085,
    -0.0237374148058994688,
    0.0105464603945949983,
    -0.00432430999505057594,
    0.0016394756169413358,
    -0.000576375574538582366,
    0.000188502885095841656,
    -0.000057541950100821037,
    0.0000164484480707288971,
    -4.41673835845875056e-6,
    1.11738753912010372e-6,
    -2.67079385394061173e-7,
    6.04699502254191895e-8,
    -1.30002500998624804e-8,
    2.65982372468238665e-9,
    -5.18979560163526291e-10,
    9.67580903537323691e-11,
    -1.72682629144155571e-11,
    2.95505266312963983e-12,
    -4.85644678311192946e-13,
    7.67618549860493562e-14,
    -1.16853328779934517e-14,
    1.71539128555513303e-15,
    -2.43127984654795469e-16,
    3.3307945188222381e-17,
)
_I0_LARGE = (
    0.402245205507054416,
    0.00336911647825569409,
    0.0000688975834691682398,
    2.89137052083475648e-6,
    2.04891858946906374e-7,
    2.26666899049817806e-8,
    3.39623202570838635e-9,
    4.94060238822496959e-10,
    1.18891471078464383e-11,
    -3.14991652796324136e-11,
    -1.32158118404477131e-11,
    -1.79417853150680612e-12,
    7.18012445138366623e-13,
    3.8527783827421427e-13,
    1.54008621752140983e-14,
    -4.15056934728722209e-14,
    -9.55484669882830765e-15,
    3.81168066935262242e-15,
    1.77256013305652638e-15,
    -3.42548561967721913e-16,
    -2.82762398051658348e-16,
    3.46122286769746109e-17,
    4.46562142029676e-17,
)
_ERFCX = (
    0.408024469549131491,
    0.376358235676367434,
    0.147580354572223619,
    0.0495713179300275863,
    0.014227107557117174,
    0.00344349326271752413,
    0.000682254183283808062,
    0.000103404519757561881,
    9.72854595199015e-6,
    -1.19887137584120442e-7,
    -2.17477677034495643e-7,
    -3.02917677359913909e-8,
    9.47991756520454925e-10,
    8.63341169499095587e-10,
    6.87215642595340244e-11,
    -1.70348984382962759e-11,
    -3.39213068682908865e-12,
    2.61580876685402449e-13,
    1.212767580310864e-13,
    -2.11468954324480916e-15,
    -4.11734093340417837e-15,
    -6.32871272170070868e-17,
    1.43931109834498473e-16,
)


def _i0e(b: Builder, x: Val) -> Val:
    """exp(-|x|) I0(x)"""
    size = b.abs(x)
    small = chebyshev(b, b.sub(b.mul(size, 0.25), 1.0), _I0_SMALL)
    far = b.max(size, 8.0)
    large = b.div(chebyshev(b, b.sub(b.div(16.0, far), 1.0), _I0_LARGE), b.sqrt(far))
    return b.select(b.le(size, 8.0), small, large)


def _erfcx(b: Builder, x: Val) -> Val:
    size = b.abs(x)
    y = b.div(4.0, b.add(size, 4.0))
    upper = b.mul(y, chebyshev(b, b.sub(b.mul(y, 2.0), 1.0), _ERFCX))
    lower = b.sub(b.mul(b.exp(b.mul(x, x)), 2.0), upper)
    return b.select(b.lt(x, 0.0), lower, upper)


def _spherical_j0(b: Builder, x: Val) -> Val:
    near = b.sub(1.0, b.div(b.mul(x, x), 6.0))
    value = b.select(b.lt(b.abs(x), 1e-3), near, b.div(b.sin(x), x))
    return b.select(b.eq(b.abs(x), math.inf), 0.0, value)


def _scaled_up(b: Builder, x: Val, value: Val) -> Val:
    return b.mul(value, b.exp(b.abs(x)))


_FUNCTIONS: dict[str, Callable[[Builder, Val], Val]] = {
    "i0": lambda b, x: _scaled_up(b, x, _i0e(b, x)),
    "special_i0e": _i0e,
    "special_i1": lambda b, x: _scaled_up(b, x, b.chlo("bessel_i1e", x)),
    "special_i1e": lambda b, x: b.chlo("bessel_i1e", x),
    "special_modified_bessel_i0": lambda b, x: _scaled_up(b, x, _i0e(b, x)),
    "special_modified_bessel_i1": lambda b, x: _scaled_up(b, x, b.chlo("bessel_i1e", x)),
    "special_erfcx": _erfcx,
    "special_spherical_bessel_j0": _spherical_j0,
}


def _register(name: str, function: Callable[[Builder, Val], Val]) -> None:
    @emitter(f"aten.{name}")
    def special(b: Builder, out: Any, x: Val) -> Val:
        return finish(b, function(b, *in_opmath(b, out, x)), out)


for _name, _function in _FUNCTIONS.items():
    _register(_name, _function)


# Orthogonal polynomials p_n(x) with p_0 = 1 and p_1 = slope x + constant. ``step`` gives p_(k+1)
# from (k, x, p_k, p_(k-1)).

Step = Callable[[Builder, Val, Val, Val, Val], Val]


def _chebyshev_step(b: Builder, k: Val, x: Val, p: Val, q: Val) -> Val:
    return b.sub(b.mul(b.mul(x, 2.0), p), q)


def _hermite_h_step(b: Builder, k: Val, x: Val, p: Val, q: Val) -> Val:
    return b.mul(b.sub(b.mul(x, p), b.mul(k, q)), 2.0)


def _hermite_he_step(b: Builder, k: Val, x: Val, p: Val, q: Val) -> Val:
    return b.sub(b.mul(x, p), b.mul(k, q))


def _laguerre_step(b: Builder, k: Val, x: Val, p: Val, q: Val) -> Val:
    ahead = b.add(k, 1.0)
    return b.div(b.sub(b.mul(b.sub(b.add(k, ahead), x), p), b.mul(k, q)), ahead)


def _legendre_step(b: Builder, k: Val, x: Val, p: Val, q: Val) -> Val:
    ahead = b.add(k, 1.0)
    return b.div(b.sub(b.mul(b.mul(b.add(k, ahead), x), p), b.mul(k, q)), ahead)


def _polynomial(b: Builder, x: Val, n: Val, first: tuple[float, float], step: Step) -> Val:
    """p_n(x), 0 for a negative ``n``; runs the recurrence up to the largest ``n``."""
    slope, constant = first
    degree = b.convert(b.convert(n, torch.int64), x.dtype)
    one = b.full(x.shape, 1.0, x.dtype)
    linear = b.add(b.mul(x, slope), constant)
    value = b.select(b.eq(degree, 1.0), linear, b.select(b.eq(degree, 0.0), one, 0.0))

    def busy(k: Val, *rest: Val) -> Val:
        return b.lt(k, b.reduce_max(rest[1]))

    def advance(k: Val, x: Val, degree: Val, p: Val, q: Val, value: Val) -> list[Val]:
        following = step(b, b.broadcast_to(k, x.shape), x, p, q)
        ahead = b.add(k, 1.0)
        hit = b.eq(degree, b.broadcast_to(ahead, x.shape))
        return [ahead, x, degree, following, p, b.select(hit, following, value)]

    start = b.full((), 1.0, x.dtype)
    return b.while_([start, x, degree, linear, one, value], busy, advance)[-1]


_POLYNOMIALS: dict[str, tuple[tuple[float, float], Step, bool]] = {
    "chebyshev_polynomial_t": ((1.0, 0.0), _chebyshev_step, False),
    "chebyshev_polynomial_u": ((2.0, 0.0), _chebyshev_step, False),
    "chebyshev_polynomial_v": ((2.0, -1.0), _chebyshev_step, False),
    "chebyshev_polynomial_w": ((2.0, 1.0), _chebyshev_step, False),
    "shifted_chebyshev_polynomial_t": ((1.0, 0.0), _chebyshev_step, True),
    "shifted_chebyshev_polynomial_u": ((2.0, 0.0), _chebyshev_step, True),
    "shifted_chebyshev_polynomial_v": ((2.0, -1.0), _chebyshev_step, True),
    "shifted_chebyshev_polynomial_w": ((2.0, 1.0), _chebyshev_step, True),
    "hermite_polynomial_h": ((2.0, 0.0), _hermite_h_step, False),
    "hermite_polynomial_he": ((1.0, 0.0), _hermite_he_step, False),
    "laguerre_polynomial_l": ((-1.0, 1.0), _laguerre_step, False),
    "legendre_polynomial_p": ((1.0, 0.0), _legendre_step, False),
}


def _register_polynomial(name: str, first: tuple[float, float], step: Step, shifted: bool) -> None:
    @emitter(*(f"aten.special_{name}.{kind}" for kind in ("default", "x_scalar", "n_scalar")))
    def polynomial(b: Builder, out: Any, x: Arg, n: Arg) -> Val:
        left, degree = b.together(*in_opmath(b, out, x, n))
        if left.numel == 0:
            return finish(b, left, out)
        if shifted:
            left = b.sub(b.mul(left, 2.0), 1.0)
        return finish(b, _polynomial(b, left, degree, first, step), out)


for _name, _entry in _POLYNOMIALS.items():
    _register_polynomial(_name, *_entry)
