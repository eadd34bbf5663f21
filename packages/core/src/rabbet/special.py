"""Special functions under PyTorch's names for them; the operators have their formulas in the records."""

from . import _C

_ops = _C.op

__all__ = [
    "digamma", "entr", "erf", "erfc", "erfinv", "exp2", "expit", "expm1", "gammaln", "i0", "i0e", "i1", "i1e", "log1p",
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
