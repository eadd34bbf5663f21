"""Decompositions of special functions."""

import math
from fractions import Fraction

from .. import _C
from .._C import Tensor

_ops = _C.op


# Factorials up to this one are split into a power of the unit and a float64.
_MOST_SPLIT = 2000


def polygamma(n: int, input: Tensor) -> Tensor:
    """`(-1)**(n + 1) * n! * zeta(n + 1, input)`, the zeta function of Hurwitz."""
    if n == 0:
        return _ops("digamma")(input)
    x = input if input.is_floating_point() else input.to(_C.get_default_dtype())
    if n == 1:
        return _ops("trigamma")(x)
    q = x.double()
    # The distance to the nearest pole is exact, the distances to both neighbours of `q` are not.
    apart = q - q.detach().round()
    # Factorials overflow and powers underflow where the product does neither: with a unit, a power of 2, the product
    # n! * q ** -(n + 1) = factor * (unit * q) ** -(n + 1). The larger of two factors serves large results.
    unit: Tensor = _ops("full")([], 1.0, dtype=q.dtype, device=q.device)
    factor: Tensor = unit * math.inf
    if n <= _MOST_SPLIT:
        bits = math.log2(math.factorial(n)) / (n + 1)
        where = _ops("where")
        large = where(q > 0, q, apart.abs()).detach() < 2.0**bits
        steps = math.floor(bits), math.floor(bits) + 1
        units, factors = zip(
            *((2.0**-k, _scaled_factorial(n, k * (n + 1))) for k in steps), strict=True
        )
        unit = where(large, *(unit.new_full((), u) for u in units))
        factor = where(large, *(unit.new_full((), f) for f in factors))
    found = factor * _zeta(n + 1, q, apart, unit)
    return (found if n % 2 else -found).to(x.dtype)


def _scaled_factorial(n: int, bits: int) -> float:
    """`n! * 2**-bits`, rounded once."""
    return float(Fraction(math.factorial(n), 2**bits))


def _zeta(s: int, q: Tensor, apart: Tensor, unit: Tensor) -> Tensor:
    """The sum of `(unit * (q + k)) ** -s` over all k >= 0 for real `q`; infinite at the poles 0, -1, -2, ...

    With f = q - floor(q) a negative `q` has terms on both sides of 0, which are sums over positive numbers:
    zeta(s, f) + (-1)**s * (zeta(s, 1 - f) - zeta(s, 1 - q)). In this order equal parts cancel exactly.
    """
    where = _ops("where")
    order = _ops("full")([], float(s), dtype=q.dtype, device=q.device)

    def zeta(x: Tensor) -> Tensor:
        return _ops("hurwitz_zeta")(x, order, unit)

    above = q > 0
    pole = apart == 0 if s == 2 else (apart == 0) | q.isinf()
    near = where(above | pole, 0.25, apart.abs())
    right = where(apart > 0, near, 1 - near)  # f
    left = where(apart > 0, 1 - near, near)  # 1 - f
    # The one sum of a positive `q`, or the third of a negative one.
    finite = where(q.isfinite(), q, 1.0)
    beyond = zeta(where(above, finite, 1 - finite))
    both = zeta(right), zeta(left)
    below = both[0] + both[1] - beyond if s % 2 == 0 else both[0] - both[1] + beyond
    positive = where(q == math.inf, 0.0, beyond)
    return where(above, positive, where(pole, math.inf, below))


# Logarithms of gamma functions that one call of mvlgamma may take; about ten seconds.
_MOST_TERMS = 2**28
# Up to this many they are added one by one, in float64.
_FEW_STEPS = 16


def mvlgamma(input: Tensor, p: int) -> Tensor:
    if p * max(input.numel(), 1) > _MOST_TERMS:
        raise _C.ArgumentError(
            f"mvlgamma: expected p * input.numel() of at most {_MOST_TERMS}, "
            f"got p = {p} and {input.numel()} elements"
        )
    x = input if input.is_floating_point() else input.to(_C.get_default_dtype())
    constant = p * (p - 1) / 4 * math.log(math.pi)
    if p <= _FEW_STEPS:
        wide = x.double()
        total = wide.lgamma()
        for k in range(1, p):
            total = total + (wide - k * 0.5).lgamma()
        return (total + constant).to(x.dtype)
    steps = _ops("arange")(p, dtype=x.dtype, device=x.device) * 0.5
    return (x.unsqueeze(-1) - steps).lgamma().sum(-1) + constant
