"""Decompositions of special functions."""

import math
from collections.abc import Callable
from fractions import Fraction

from .. import _C
from .._C import Tensor
from .._functions import promote_types
from .elementwise import both_tensors

_ops = _C.op


# Factorials up to this one are split into a power of the unit and a float64.
_MOST_SPLIT = 2000


def polygamma(n: int, input: Tensor) -> Tensor:
    """`(-1)**(n + 1) * n! * zeta(n + 1, input)`, the zeta function of Hurwitz."""
    if n == 0:
        return _ops("digamma")(input)
    x = input if input.is_floating_point() else input.to(_C.get_default_dtype())
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


def mvlgamma(input: Tensor, p: int) -> Tensor:
    if p * max(input.numel(), 1) > _MOST_TERMS:
        raise _C.ArgumentError(
            f"mvlgamma: expected p * input.numel() of at most {_MOST_TERMS}, "
            f"got p = {p} and {input.numel()} elements"
        )
    x = input if input.is_floating_point() else input.to(_C.get_default_dtype())
    steps = _ops("arange")(p, dtype=x.dtype, device=x.device) * 0.5
    return (x.unsqueeze(-1) - steps).lgamma().sum(-1) + p * (p - 1) / 4 * math.log(math.pi)


# ---- incomplete gamma functions (W. Gautschi, A computational procedure for incomplete gamma functions, 1979)

_EPSILON = 2.0**-53
_MOST_STEPS = 100_000
_BETWEEN_CHECKS = 8


def _until_done(advance: Callable[[int], Tensor]) -> None:
    """Call `advance(k)`, which returns whether each element is done, for k = 1, 2, ... until all are."""
    for k in range(1, _MOST_STEPS):
        done = advance(k)
        if k % _BETWEEN_CHECKS == 0 and bool(done.all()):
            return


def _gamma_power(a: Tensor, x: Tensor) -> Tensor:
    """x ** a * exp(-x) / gamma(a + 1), for large `a` by Stirling's series."""
    small = _ops("exp")(a * x.log() - x - _ops("lgamma")(a + 1))
    large = a.clamp(min=8.0)
    off = (x - large) / large
    w = 1 / (large * large)
    series = 1 / 1188 - w * (691 / 360360 - w * (1 / 156 - w * (3617 / 122400)))
    series = (1 / 12 - w * (1 / 360 - w * (1 / 1260 - w * (1 / 1680 - w * series)))) / large
    exponent = large * (off.log1p() - off) - series
    return _ops("where")(a < 8, small, exponent.exp() / (2 * math.pi * large).sqrt())


def _lower_series(a: Tensor, x: Tensor) -> Tensor:
    """P(a, x) for x up to about a + 1."""
    term = _ops("ones_like")(x)
    total = _ops("ones_like")(x)

    def advance(k: int) -> Tensor:
        nonlocal term, total
        term = term * (x / (a + k))
        total = total + term
        return term <= _EPSILON * total

    _until_done(advance)
    return _gamma_power(a, x) * total


def _upper_fraction(a: Tensor, x: Tensor) -> Tensor:
    """Q(a, x) for x above a + 1, by Legendre's continued fraction and Lentz's method."""
    tiny = 1e-300
    b = x + 1 - a
    c = _ops("full_like")(b, 1 / tiny)
    d = 1 / b
    value = d

    def advance(k: int) -> Tensor:
        nonlocal b, c, d, value
        factor = -k * (k - a)
        b = b + 2
        d = factor * d + b
        d = 1 / _ops("where")(d.abs() < tiny, tiny, d)
        c = b + factor / c
        c = _ops("where")(c.abs() < tiny, tiny, c)
        value = value * (d * c)
        return (d * c - 1).abs() <= 8 * _EPSILON  # a product of rounded factors

    _until_done(advance)
    return _gamma_power(a, x) * a * value


def _upper_series(a: Tensor, x: Tensor) -> Tensor:
    """Q(a, x) for small x and a, where 1 - P(a, x) would cancel."""
    term = _ops("ones_like")(x)
    total = _ops("zeros_like")(x)

    def advance(k: int) -> Tensor:
        nonlocal term, total
        term = term * (-x / k)
        total = total + term / (a + k)
        return term.abs() <= _EPSILON * total.abs()

    _until_done(advance)
    power = a * x.log()
    return -(power - _ops("lgamma")(a + 1)).expm1() - (power - _ops("lgamma")(a)).exp() * total


def _incomplete_gamma(input: Tensor, other: Tensor, upper: bool) -> Tensor:
    input, other = both_tensors(input, other)
    dtype = promote_types(input.dtype, other.dtype)
    a, x = _ops("broadcast_tensors")([input.double(), other.double()])
    where = _ops("where")
    inside = (a > 0) & (x > 0) & (a < math.inf) & (x < math.inf)
    below = inside & (x < a + 1)
    above = inside & (x >= a + 1)
    lower = _lower_series(where(below, a, 1.0), where(below, x, 0.5))
    fraction = _upper_fraction(where(above, a, 1.0), where(above, x, 3.0))
    if upper:
        limit = where(x <= 0.5, -0.4 / where(x < 0.5, x, 0.5).log(), x * 1.1)
        tails = inside & (x <= 1.1) & (a <= limit)
        tail = _upper_series(where(tails, a, 1.0), where(tails, x, 0.5))
        found = where(tails, tail, where(below, 1 - lower, fraction))
    else:
        found = where(below, lower, 1 - fraction)
    at_zero, far = (1.0, 0.0) if upper else (0.0, 1.0)
    found = where(x == math.inf, far, where(x == 0, at_zero, found))
    found = where(a == math.inf, where(x == math.inf, math.nan, at_zero), found)
    found = where(a == 0, where(x > 0, far, math.nan), found)
    return where((a >= 0) & (x >= 0), found, math.nan).to(dtype)


def igamma(input: Tensor, other: Tensor) -> Tensor:
    return _incomplete_gamma(input, other, False)


def igammac(input: Tensor, other: Tensor) -> Tensor:
    return _incomplete_gamma(input, other, True)
