"""Decompositions of special functions."""

import math

from .. import _C
from .._C import Tensor

_ops = _C.op


def polygamma(n: int, input: Tensor) -> Tensor:
    """`(-1)**(n + 1) * n! * zeta(n + 1, input)`, the zeta function of Hurwitz."""
    if n == 0:
        return _ops("digamma")(input)
    x = input if input.is_floating_point() else input.to(_C.get_default_dtype())
    # 171! is larger than the largest float64.
    factor = (float(math.factorial(n)) if n <= 170 else math.inf) * (1 if n % 2 else -1)
    return factor * _zeta(n + 1, x)


def _zeta(s: int, q: Tensor) -> Tensor:
    """The sum of `(q + k) ** -s` over all k >= 0 for real `q`; infinite at the poles 0, -1, -2, ...

    With f = q - floor(q) a negative `q` has terms on both sides of 0, which are sums over positive numbers:
    zeta(s, f) + (-1)**s * (zeta(s, 1 - f) - zeta(s, 1 - q)). In this order equal parts cancel exactly.
    """
    where, zeta = _ops("where"), _ops("hurwitz_zeta")
    above = q > 0
    # The distance to the nearest pole is exact, the distances to both neighbours of `q` are not.
    apart = q - q.detach().round()
    pole = apart == 0 if s == 2 else (apart == 0) | q.isinf()
    near = where(above | pole, 0.25, apart.abs())
    right = where(apart > 0, near, 1 - near)  # f
    left = where(apart > 0, 1 - near, near)  # 1 - f
    beyond = zeta(where(above, 1.0, 1 - q), s)
    both = zeta(right, s), zeta(left, s)
    below = both[0] + both[1] - beyond if s % 2 == 0 else both[0] - both[1] + beyond
    finite = above & q.isfinite()
    positive = where(q == math.inf, 0.0, zeta(where(finite, q, 1.0), s))
    return where(above, positive, where(pole, math.inf, below))


# Logarithms of gamma functions that one call of mvlgamma may take; about ten seconds.
_MOST_TERMS = 2**28


def mvlgamma(input: Tensor, p: int) -> Tensor:
    if p * max(input.numel(), 1) > _MOST_TERMS:
        raise _C.ArgumentError(
            f"mvlgamma: expected p * input.numel() of at most {_MOST_TERMS}, "
            f"got p = {p} and {input.numel()} elements"
        )
    x = input if input.is_floating_point() else input.to(_C.get_default_dtype())
    steps = _ops("arange")(p, dtype=x.dtype, device=x.device) * 0.5
    return (x.unsqueeze(-1) - steps).lgamma().sum(-1) + p * (p - 1) / 4 * math.log(math.pi)
