"""Definitions of special functions that SciPy has under other signatures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special

from .definitions import Array, defines

_FAMILIES = {
    "chebyshev_polynomial_t": scipy.special.eval_chebyt,
    "chebyshev_polynomial_u": scipy.special.eval_chebyu,
    "shifted_chebyshev_polynomial_t": scipy.special.eval_sh_chebyt,
    "shifted_chebyshev_polynomial_u": scipy.special.eval_sh_chebyu,
    "hermite_polynomial_h": scipy.special.eval_hermite,
    "hermite_polynomial_he": scipy.special.eval_hermitenorm,
    "laguerre_polynomial_l": scipy.special.eval_laguerre,
    "legendre_polynomial_p": scipy.special.eval_legendre,
}


def _polynomial(function: Any) -> Callable[[Array, Array], Any]:
    def definition(x: Array, n: Array) -> Any:
        degrees = np.asarray(n).astype(np.int64)
        found = function(degrees, np.asarray(x, np.float64))
        return np.where(degrees < 0, 0.0, found)

    return definition


for _name, _function in _FAMILIES.items():
    defines(f"special_{_name}")(_polynomial(_function))


def _third_kind(n: Array, x: Array) -> Any:
    """V(n) = U(n) - U(n - 1)."""
    return scipy.special.eval_chebyu(n, x) - scipy.special.eval_chebyu(n - 1, x)


def _fourth_kind(n: Array, x: Array) -> Any:
    """W(n) = U(n) + U(n - 1)."""
    return scipy.special.eval_chebyu(n, x) + scipy.special.eval_chebyu(n - 1, x)


defines("special_chebyshev_polynomial_v")(_polynomial(_third_kind))
defines("special_chebyshev_polynomial_w")(_polynomial(_fourth_kind))
defines("special_shifted_chebyshev_polynomial_v")(
    _polynomial(lambda n, x: _third_kind(n, 2 * x - 1))
)
defines("special_shifted_chebyshev_polynomial_w")(
    _polynomial(lambda n, x: _fourth_kind(n, 2 * x - 1))
)


@defines("special_airy_ai")
def _airy_ai(input: Array) -> Any:
    return scipy.special.airy(input)[0]


@defines("special_spherical_bessel_j0")
def _spherical_bessel_j0(input: Array) -> Any:
    return scipy.special.spherical_jn(0, np.asarray(input, np.float64))


def _incomplete_gammas(a: Array, x: Array) -> tuple[Array, Array]:
    """P and Q: where x < a + 1 by the power series, elsewhere by the continued fraction, in extended precision.

    SciPy's own are off by 2e-14 where it integrates asymptotic series.
    """
    a, x = np.broadcast_arrays(np.asarray(a, np.longdouble), np.asarray(x, np.longdouble))
    logarithm = scipy.special.gammaln((a + 1).astype(np.float64))
    power = np.exp(a * np.log(x) - x - logarithm)
    total = term = np.ones_like(x)
    for k in range(1, 400):
        term = term * x / (a + k)
        total = total + term
    fraction = np.zeros_like(x)
    for k in range(400, 0, -1):
        fraction = k * (k - a) / (x + 2 * k + 1 - a - fraction)
    lower, upper = power * total, power * a / (x + 1 - a - fraction)
    near = x < a + 1
    return np.where(near, lower, 1 - upper), np.where(near, 1 - lower, upper)


@defines("igamma")
def _igamma(input: Array, other: Array) -> Any:
    return _incomplete_gammas(input, other)[0]


@defines("igammac")
def _igammac(input: Array, other: Array) -> Any:
    return _incomplete_gammas(input, other)[1]
