"""Decompositions of orthogonal polynomials: recurrences in the degree."""

from __future__ import annotations

import math
from collections.abc import Callable

from .. import _C
from .._C import Tensor
from .._functions import promote_types
from .elementwise import both_tensors

_op = _C.op
_MOST_STEPS = 100_000

# alpha, beta, gamma and divisor of p(k + 1) = ((alpha + beta x) p(k) - gamma p(k - 1)) / divisor; whole numbers.
_Step = Callable[[int], tuple[int, int, int, int]]


def _polynomial(name: str, x: Tensor, n: Tensor, step: _Step) -> Tensor:
    """Polynomials in float64, each taken at its degree; the result has the dtype that the record says.

    Rounding errors of the recurrence grow with the degree and stand out near zeros. Each step's error is computed exactly
    and carried on by the same recurrence, so that the sum is as exact as a recurrence in twice the digits.
    """
    x, n = both_tensors(x, n)
    dtype = promote_types(x.dtype, n.dtype)
    if not dtype.is_floating_point:
        dtype = _C.get_default_dtype()
    x, degree = _op("broadcast_tensors")([x.double(), n.double().trunc()])
    where = _op("where")
    found = where(degree < 0, 0.0, where(degree == 0, 1.0, math.nan + 0 * x))
    most = degree.nan_to_num(nan=-1.0).clamp(max=_MOST_STEPS).max().item() if x.numel() else 0.0
    if most >= _MOST_STEPS:
        raise _C.ArgumentError(
            f"{name}: expected degrees below {_MOST_STEPS}, got {degree.max().item():g}"
        )
    before, value = _op("zeros_like")(x), _op("ones_like")(x)
    error_before, error, fixed = before.detach(), before.detach(), x.detach()
    advance, rounding = _op("recurrence_step"), _op("recurrence_error")
    for k in range(int(most)):
        numbers = [float(c) for c in step(k)]
        missed = rounding(fixed, value.detach(), before.detach(), *numbers)
        error_before, error = error, advance(fixed, error, error_before, *numbers) + missed
        before, value = value, advance(x, value, before, *numbers)
        # Beside results near the largest number the error may not be finite.
        exact = where(error.isfinite(), value + error, value)
        found = where(degree == k + 1, exact, found)
    return found.to(dtype)


def hermite(x: Tensor, n: Tensor) -> Tensor:
    return _polynomial("hermite_polynomial_h", x, n, lambda k: (0, 2, 2 * k, 1))


def hermite_e(x: Tensor, n: Tensor) -> Tensor:
    return _polynomial("hermite_polynomial_he", x, n, lambda k: (0, 1, k, 1))


def laguerre(x: Tensor, n: Tensor) -> Tensor:
    return _polynomial("laguerre_polynomial_l", x, n, lambda k: (2 * k + 1, -1, k, k + 1))


def legendre(x: Tensor, n: Tensor) -> Tensor:
    return _polynomial("legendre_polynomial_p", x, n, lambda k: (0, 2 * k + 1, k, k + 1))
