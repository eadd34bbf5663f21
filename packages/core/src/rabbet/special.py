"""Special functions under PyTorch's names for them; the operators have their formulas in the records."""

import math
from typing import Any

from . import _C

_ops = _C.op

__all__ = [
    "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "exp2", "expit", "expm1", "gammaln", "i0", "i0e", "i1", "i1e", "log1p",
    "log_ndtr", "log_softmax", "logit", "logsumexp", "multigammaln", "ndtr", "ndtri", "polygamma", "psi", "round", "sinc",
    "softmax", "xlog1py", "xlogy",
]  # fmt: skip

digamma = psi = _ops("digamma")
entr = _ops("entr")
erf = _ops("erf")
erfc = _ops("erfc")
erfinv = _ops("erfinv")
exp2 = _ops("exp2")
expit = _ops("sigmoid")
expm1 = _ops("expm1")
gammaln = _ops("lgamma")
i0 = _ops("i0")
i0e = _ops("i0e")
i1 = _ops("i1")
i1e = _ops("i1e")
log1p = _ops("log1p")
log_ndtr = _ops("log_ndtr")
log_softmax = _ops("log_softmax")
logit = _ops("logit")
logsumexp = _ops("logsumexp")
multigammaln = _ops("mvlgamma")
ndtr = _ops("ndtr")
ndtri = _ops("ndtri")
polygamma = _ops("polygamma")
round = _ops("round")
sinc = _ops("sinc")
softmax = _ops("softmax")
xlog1py = _ops("xlog1py")
xlogy = _ops("xlogy")


def erfcx(input: Any, *, out: Any = None) -> Any:
    """exp(x^2) erfc(x), without overflow and underflow for large x.

    From x = 2 on by the continued fraction of Abramowitz and Stegun, 7.1.14, cut off at 120 terms.

    Example:
        >>> rabbet.special.erfcx(rabbet.tensor([0.0, 30.0]))
        tensor([1.0000, 0.0188])
    """
    dtype = input.dtype if input.is_floating_point() else _C.get_default_dtype()
    x = input.to(_C.float64)
    is_large = x >= 2
    small = _ops("where")(is_large, 0.0, x)
    large = _ops("where")(is_large, x, 2.0)
    fraction = large
    for k in range(120, 0, -1):
        fraction = large + k / 2 / fraction
    by_fraction = 1 / (math.sqrt(math.pi) * fraction)
    found = _ops("where")(is_large, by_fraction, (small * small).exp() * erfc(small)).to(dtype)
    return found if out is None else out.resize_(found.shape).copy_(found)
