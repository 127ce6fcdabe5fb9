"""Elementwise functions in terms of others."""

import math

import torch

from torchneuron.lowering.registry import decomposition


def _float(x: torch.Tensor) -> torch.Tensor:
    """``x`` in the dtype to compute in; integers in the default dtype."""
    if not (x.is_floating_point() or x.is_complex()):
        return x.to(torch.get_default_dtype())
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _like(value: torch.Tensor, *inputs: torch.Tensor) -> torch.Tensor:
    """``value`` in the dtype that the inputs promote to, integers to the default dtype."""
    dtype = inputs[0].dtype
    for other in inputs[1:]:
        dtype = torch.result_type(torch.empty((), dtype=dtype), other)
    return value.to(dtype if dtype.is_floating_point else torch.get_default_dtype())


@decomposition("aten.special_entr")
def special_entr(x: torch.Tensor) -> torch.Tensor:
    """-x log x, 0 at 0, -inf below."""
    value = _float(x)
    entropy = torch.where(value > 0, -value * value.log(), -math.inf)
    entropy = torch.where(value == 0, 0.0, entropy)
    return _like(torch.where(value.isnan(), value, entropy), x)


@decomposition("aten.special_log_ndtr")
def special_log_ndtr(x: torch.Tensor) -> torch.Tensor:
    """Logarithm of the normal distribution function, exact in the lower tail too."""
    value = _float(x)
    scaled = value * math.sqrt(0.5)
    lower = torch.log(torch.special.erfcx(-scaled) / 2) - scaled * scaled
    return _like(torch.where(value < -1, lower, torch.log1p(-torch.erfc(scaled) / 2)), x)


@decomposition("aten.special_ndtri")
def special_ndtri(p: torch.Tensor) -> torch.Tensor:
    """Inverse of the normal distribution function."""
    value = _float(p)
    return _like(math.sqrt(2.0) * torch.erfinv(2 * value - 1), p)


@decomposition("aten.ldexp.Tensor")
def ldexp(x: torch.Tensor, exponent: torch.Tensor) -> torch.Tensor:
    """x * 2**exponent"""
    return x * torch.pow(2.0, exponent)


@decomposition("aten.mvlgamma")
def mvlgamma(x: torch.Tensor, p: int) -> torch.Tensor:
    """Logarithm of the multivariate gamma function of dimension ``p``."""
    steps = -torch.arange(p, device=x.device) / 2
    total = torch.lgamma(_float(x).unsqueeze(-1) + steps.to(_float(x).dtype)).sum(-1)
    return _like(total + p * (p - 1) / 4 * math.log(math.pi), x)


@decomposition("aten.dist")
def dist(x: torch.Tensor, y: torch.Tensor, p: float = 2) -> torch.Tensor:
    """Norm of the difference."""
    norm: torch.Tensor = torch.linalg.vector_norm(x - y, p)
    return norm


@decomposition("aten._add_relu.Tensor", "aten._add_relu.Scalar")
def add_relu(x: torch.Tensor, y: torch.Tensor | float, alpha: float = 1) -> torch.Tensor:
    """relu(x + alpha y)"""
    return torch.relu(torch.add(x, y, alpha=alpha))


@decomposition("aten._addmm_activation")
def addmm_activation(
    bias: torch.Tensor,
    x: torch.Tensor,
    y: torch.Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
    use_gelu: bool = False,
) -> torch.Tensor:
    """``addmm`` followed by relu or gelu."""
    product = torch.addmm(bias, x, y, beta=beta, alpha=alpha)
    return torch.nn.functional.gelu(product) if use_gelu else torch.relu(product)


@decomposition("aten.renorm")
def renorm(x: torch.Tensor, p: float, dim: int, maxnorm: float) -> torch.Tensor:
    """``x`` with each slice of ``dim`` scaled down to a ``p``-norm of at most ``maxnorm``."""
    value = _float(x)
    others = [axis for axis in range(x.dim()) if axis != dim % x.dim()]
    norm = torch.linalg.vector_norm(value, p, others, keepdim=True)
    factor = torch.where(norm > maxnorm, maxnorm / (norm + 1e-7), 1.0)
    return (value * factor).to(x.dtype)
