"""Decompositions of orthogonal polynomials: recurrences in the degree."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache

from .. import _C
from .._C import Tensor

_op = _C.op
_MOST_STEPS = 100_000

# alpha, beta, gamma and divisor of p(k + 1) = ((alpha + beta x) p(k) - gamma p(k - 1)) / divisor; whole numbers.
_Numbers = tuple[int, int, int, int]
_Step = Callable[[int], _Numbers]

# Up to this degree the cancellation between a polynomial's terms in float64 costs no digit of a float32 result.
_MOST_TERMS = 12


def _common_dtype(*arguments: Tensor | float) -> _C.dtype:
    """The dtype of the results."""
    tensors = [x for x in arguments if isinstance(x, Tensor)]
    dtype = tensors[0].dtype
    for x in tensors[1:]:
        dtype = _C.promote_types(dtype, x.dtype)
    return dtype if dtype.is_floating_point else _C.get_default_dtype()


def _both_in_float64(x: Tensor | float, n: Tensor | float) -> tuple[Tensor, Tensor]:
    device = next(v.device for v in (x, n) if isinstance(v, Tensor))
    x, n = (
        v.double() if isinstance(v, Tensor) else _C.tensor(float(v), _C.float64, device)
        for v in (x, n)
    )
    return x, n.trunc()


def _few_terms(x: Tensor | float, n: Tensor | float) -> bool:
    """Whether the sum of the polynomial's terms in float64 is exact enough."""
    if not isinstance(x, Tensor) or isinstance(n, Tensor) or not 1 <= n < _MOST_TERMS + 1:
        return False
    return _common_dtype(x, n) is not _C.float64


@cache
def _coefficients(step: _Step, degree: int) -> list[float]:
    """Of the powers of x, from that of the constant on."""
    before, value = [Fraction(0)], [Fraction(1)]
    for k in range(degree):
        alpha, beta, gamma, divisor = step(k)
        terms = [Fraction(0)] * (k + 2)
        for i, c in enumerate(value):
            terms[i] += alpha * c
            terms[i + 1] += beta * c
        for i, c in enumerate(before):
            terms[i] -= gamma * c
        before, value = value, [c / divisor for c in terms]
    return [float(c) for c in value]


def _sum_of_terms(x: Tensor, c: list[float]) -> Tensor:
    """The polynomial with the coefficients `c`, of which there are at least 2."""
    if len(c) > 2 and not any(c[-2::-2]):  # an even or odd polynomial
        if len(c) % 2:
            return _sum_of_terms(x * x, c[::2])
        return x * (_sum_of_terms(x * x, c[1::2]))
    last = (len(c) - 1) // 4 * 4
    if last == len(c) - 1:
        found: Tensor = _op("full")([], c[last], dtype=x.dtype, device=x.device)
    else:
        found = _op("polynomial_start")(x, *c[last:], count=len(c) - last)
    for i in range(last - 4, -1, -4):
        found = _op("polynomial_more")(x, found, *c[i : i + 4])
    return found


def _polynomial(name: str, x: Tensor, n: Tensor | float, step: _Step) -> Tensor:
    """Polynomials in float64, each taken at its degree; the result has the dtype that the record says.

    Rounding errors of the recurrence grow with the degree and stand out near zeros. Each step's error is computed exactly
    and carried on by the same recurrence, so that the sum is as exact as a recurrence in twice the digits.
    """
    dtype = _common_dtype(x, n)
    if _few_terms(x, n):
        return _sum_of_terms(x.double(), _coefficients(step, int(n))).to(dtype)
    x, degree = _both_in_float64(x, n)
    x, degree = _op("broadcast_tensors")([x, degree])
    where = _op("where")
    most = degree.nan_to_num(nan=-1.0).clamp(max=_MOST_STEPS).max().item() if x.numel() else 0.0
    if most >= _MOST_STEPS:
        raise _C.ArgumentError(
            f"{name}: expected degrees below {_MOST_STEPS}, got {degree.max().item():g}"
        )
    found = where(degree < 0, 0.0, where(degree == 0, 1.0, math.nan + 0 * x))
    for k, exact in enumerate(_values(x, int(most), step)):
        found = where(degree == k + 1, exact, found)
    return found.to(dtype)


def _values(x: Tensor, most: int, step: _Step) -> Iterator[Tensor]:
    """Those of the degrees from 1 to `most`."""
    where = _op("where")
    before, value = _op("zeros_like")(x), _op("ones_like")(x)
    error_before, error, fixed = before.detach(), before.detach(), x.detach()
    advance, rounding = _op("recurrence_step"), _op("recurrence_error")
    for k in range(most):
        numbers = [float(c) for c in step(k)]
        missed = rounding(fixed, value.detach(), before.detach(), *numbers)
        error_before, error = error, advance(fixed, error, error_before, *numbers) + missed
        before, value = value, advance(x, value, before, *numbers)
        # Beside results near the largest number the error may not be finite.
        yield where(error.isfinite(), value + error, value)


def _hermite(k: int) -> _Numbers:
    return 0, 2, 2 * k, 1


def _hermite_e(k: int) -> _Numbers:
    return 0, 1, k, 1


def _laguerre(k: int) -> _Numbers:
    return 2 * k + 1, -1, k, k + 1


def _legendre(k: int) -> _Numbers:
    return 0, 2 * k + 1, k, k + 1


def hermite(x: Tensor, n: Tensor) -> Tensor:
    return _polynomial("hermite_polynomial_h", x, n, _hermite)


def hermite_e(x: Tensor, n: Tensor) -> Tensor:
    return _polynomial("hermite_polynomial_he", x, n, _hermite_e)


def laguerre(x: Tensor, n: Tensor) -> Tensor:
    return _polynomial("laguerre_polynomial_l", x, n, _laguerre)


def legendre(x: Tensor, n: Tensor) -> Tensor:
    return _polynomial("legendre_polynomial_p", x, n, _legendre)


def _chebyshev_t(k: int) -> _Numbers:
    return 0, 2 if k else 1, 1, 1


def _chebyshev_u(k: int) -> _Numbers:
    return 0, 2, 1, 1


def _chebyshev_v(k: int) -> _Numbers:
    return (0 if k else -1), 2, 1, 1


def _chebyshev_w(k: int) -> _Numbers:
    return (0 if k else 1), 2, 1, 1


def _chebyshev(x: Tensor, n: Tensor, step: _Step, kind: int, shifted: bool) -> Tensor:
    dtype = _common_dtype(x, n)
    if _few_terms(x, n):
        x = 2 * x.double() - 1 if shifted else x.double()
        return _sum_of_terms(x, _coefficients(step, int(n))).to(dtype)
    x, degree = _both_in_float64(x, n)
    found: Tensor = _op("chebyshev")(x, degree, kind, shifted)
    return found.to(dtype)


def chebyshev_t(x: Tensor, n: Tensor) -> Tensor:
    return _chebyshev(x, n, _chebyshev_t, 1, False)


def chebyshev_u(x: Tensor, n: Tensor) -> Tensor:
    return _chebyshev(x, n, _chebyshev_u, 2, False)


def chebyshev_v(x: Tensor, n: Tensor) -> Tensor:
    return _chebyshev(x, n, _chebyshev_v, 3, False)


def chebyshev_w(x: Tensor, n: Tensor) -> Tensor:
    return _chebyshev(x, n, _chebyshev_w, 4, False)


def shifted_chebyshev_t(x: Tensor, n: Tensor) -> Tensor:
    return _chebyshev(x, n, _chebyshev_t, 1, True)


def shifted_chebyshev_u(x: Tensor, n: Tensor) -> Tensor:
    return _chebyshev(x, n, _chebyshev_u, 2, True)


def shifted_chebyshev_v(x: Tensor, n: Tensor) -> Tensor:
    return _chebyshev(x, n, _chebyshev_v, 3, True)


def shifted_chebyshev_w(x: Tensor, n: Tensor) -> Tensor:
    return _chebyshev(x, n, _chebyshev_w, 4, True)
