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

# p(k + 1) from x, p(k), p(k - 1) and k.
_Step = Callable[[Tensor, Tensor, Tensor, int], Tensor]


def _polynomial(name: str, x: Tensor, n: Tensor, first: _Step, step: _Step) -> Tensor:
    """Polynomials in float64, each taken at its degree; the result has the dtype that the record says."""
    x, n = both_tensors(x, n)
    dtype = promote_types(x.dtype, n.dtype)
    if not dtype.is_floating_point:
        dtype = _C.get_default_dtype()
    x, degree = _op("broadcast_tensors")([x.double(), n.double().trunc()])
    found = _op("where")(degree < 0, 0.0, _op("where")(degree == 0, 1.0, math.nan + 0 * x))
    most = degree.nan_to_num(nan=-1.0).clamp(max=_MOST_STEPS).max().item() if x.numel() else 0.0
    if most >= _MOST_STEPS:
        raise _C.ArgumentError(
            f"{name}: expected degrees below {_MOST_STEPS}, got {degree.max().item():g}"
        )
    before, value = _op("ones_like")(x), first(x, x, x, 0)
    for k in range(1, int(most) + 1):
        found = _op("where")(degree == k, value, found)
        before, value = value, step(x, value, before, k)
    return found.to(dtype)


def hermite(x: Tensor, n: Tensor) -> Tensor:
    return _polynomial(
        "hermite_polynomial_h",
        x,
        n,
        lambda x, p, q, k: 2 * x,
        lambda x, p, q, k: 2 * x * p - 2 * k * q,
    )


def hermite_e(x: Tensor, n: Tensor) -> Tensor:
    return _polynomial(
        "hermite_polynomial_he", x, n, lambda x, p, q, k: x, lambda x, p, q, k: x * p - k * q
    )


def laguerre(x: Tensor, n: Tensor) -> Tensor:
    return _polynomial(
        "laguerre_polynomial_l",
        x,
        n,
        lambda x, p, q, k: 1 - x,
        lambda x, p, q, k: ((2 * k + 1 - x) * p - k * q) / (k + 1),
    )


def legendre(x: Tensor, n: Tensor) -> Tensor:
    return _polynomial(
        "legendre_polynomial_p",
        x,
        n,
        lambda x, p, q, k: x,
        lambda x, p, q, k: ((2 * k + 1) * x * p - k * q) / (k + 1),
    )
