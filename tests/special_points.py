"""Where test_special_accuracy.py looks at functions of `rabbet.special`; tools/write_special_values.py has the values.

Points come from arithmetic that is exact or rounded once, so that every machine has the same ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

Points = list[tuple[float, ...]]


def even(low: float, high: float, count: int) -> list[float]:
    """Numbers at equal distances between two that are not among them."""
    return [low + (high - low) * ((2 * k + 1) / (2 * count)) for k in range(count)]


def spread(low: int, high: int, count: int) -> list[float]:
    """Numbers of all magnitudes from 2**low to 2**high."""
    fraction = [1 + (k * 0.6180339887498949) % 1 for k in range(count)]
    return [math.ldexp(f, low + k * (high - low) // count) for k, f in enumerate(fraction)]


def around(*centres: float) -> list[float]:
    """Numbers and their neighbours, near and less near."""
    found = []
    for c in centres:
        found += [
            c,
            math.nextafter(c, math.inf),
            math.nextafter(c, -math.inf),
            c * (1 + 2e-9),
            c * (1 - 3e-5),
        ]
    return found


def signed(numbers: Iterable[float]) -> list[float]:
    return [s * x for x in numbers for s in (1, -1)]


def grid(first: Iterable[float], second: Iterable[float]) -> Points:
    second = list(second)
    return [(a, b) for a in first for b in second]


def alone(numbers: Iterable[float]) -> Points:
    return [(x,) for x in numbers]


_BESSEL = (
    spread(-1000, -4, 6)
    + even(0, 5, 30)
    + even(5, 30, 20)
    + spread(5, 20, 14)
    + spread(20, 1020, 8)
)
_ABOVE_ZERO = spread(-1000, -4, 6) + even(0, 1, 16) + even(1, 8, 16) + around(1.0)
_GAMMA = [
    *spread(-1000, -4, 6), *even(0, 3, 24), *even(3, 9, 16), *spread(3, 1000, 12), *even(-8, 0, 20),
    *even(-60, -8, 8), *around(0.875, 1.0, 1.4616321449683622, 1.5, 2.0, 2.5, 8.5),
]  # fmt: skip
_TAILS = signed(spread(-1000, -8, 4)) + even(-37.5, -1, 40) + even(-1, 1, 16) + even(1, 8, 10)
_SHAPES = [
    *spread(-300, -4, 5), 0.3, 0.9, 1.0, 1.5, 2.0, 2.3, 5.5, 14.2, 29.7, 31.0, 97.3, 1234.5, 2.0**17 + 0.3,
]  # fmt: skip
# Points by their ratio to the shape, by their distance from it in standard deviations, and of small shapes.
_INCOMPLETE_GAMMA = [
    *((a, a * r) for a in _SHAPES for r in (1e-9, 0.02, 0.4999, 0.83, 1.0, 1.21, 1.7001, 4.3) if a < 1000 or 0.6 < r < 1.6),
    *((a, a + d * math.sqrt(a)) for a in _SHAPES if a > 20 for d in (-8.3, -3.1, -0.9, 0.01, 1.2, 5.4, 20.7) if a + d * math.sqrt(a) > 0),
    *grid([1e-300, 1e-4, 0.02, 0.4, 0.95, 1.8], [1e-4, 0.1, 0.45, 0.57, 0.67, 0.699, 0.71, 1.3, 3.7, 44.0, 633.3, 738.0]),
]  # fmt: skip
_DEGREES = [2.0, 3.0, 6.0, 7.0, 30.0, 501.0, 2977.0]
_CHEBYSHEV = grid(even(-1, 1, 12) + even(0.99, 1, 3) + around(1.0)[:3], _DEGREES) + grid(
    even(-4, 4, 8) + [1 + 2.0**-12, -1 - 2.0**-30], [1.0, 2.0, 5.0, 30.0]
)
_SHIFTED = [((x + 1) / 2, n) for x, n in _CHEBYSHEV] + grid(spread(-60, -2, 6), _DEGREES)
_POLYNOMIALS = grid(even(-1, 1, 12) + even(-3, 3, 8) + even(0, 20, 6), [2.0, 3.0, 5.0, 8.0, 30.0])

POINTS: dict[str, Points] = {
    "bessel_j0": alone(_BESSEL + around(2.75, 5.0)),
    "bessel_j1": alone([-x for x in _BESSEL] + around(2.75, 5.0)),
    "bessel_y0": alone(_BESSEL + around(2.75, 5.0)),
    "bessel_y1": alone(_BESSEL + around(2.75, 5.0)),
    "i0": alone(even(0, 8, 40) + even(8, 40, 20) + even(40, 713, 20) + around(8.0) + spread(-1000, -4, 4)),
    "i1": alone(even(0, -8, 40) + even(8, 40, 20) + even(40, 713, 20) + around(8.0) + spread(-1000, -4, 4)),
    "i0e": alone(even(0, 8, 40) + even(8, -40, 20) + spread(5, 1000, 12) + around(8.0)),
    "i1e": alone(even(0, 8, 40) + even(8, -40, 20) + spread(5, 1000, 12) + around(8.0)),
    "modified_bessel_k0": alone(_ABOVE_ZERO + even(8, 700, 20)),
    "modified_bessel_k1": alone(_ABOVE_ZERO + even(8, 700, 20)),
    "scaled_modified_bessel_k0": alone(_ABOVE_ZERO + spread(3, 1000, 20)),
    "scaled_modified_bessel_k1": alone(_ABOVE_ZERO + spread(3, 1000, 20)),
    "spherical_bessel_j0": alone(signed(spread(-500, -2, 6)) + even(0, 20, 40) + spread(5, 1000, 12)),
    "airy_ai": alone([
        *even(-4, 1, 30), *even(-60, -4, 30), *(-x for x in spread(6, 33, 16)), *even(1, 10, 20), *even(10, 103, 16),
        *around(-4.0, -2.75, -1.5, 1.0),
    ]),
    "erf": alone(signed(spread(-1000, -8, 4)) + even(0, 6, 40) + around(0.5)),
    "erfc": alone(signed(spread(-1000, -8, 4)) + even(-5, 26, 50)),
    "erfcx": alone(signed(spread(-1000, -8, 4)) + even(-26, 0, 30) + even(0, 8, 30) + spread(3, 1000, 10) + around(2.0)),
    "erfinv": alone(signed(spread(-1000, -4, 6)) + even(-1, 1, 60) + [1 - x for x in spread(-53, -4, 20)]),
    "ndtr": alone(_TAILS),
    "log_ndtr": alone(_TAILS + [-x for x in spread(5, 500, 10)] + even(8, 37, 8) + even(0.7, 1.5, 20) + [0.8438863420812364]),
    "ndtri": alone(spread(-1060, -4, 40) + even(0, 1, 40) + [1 - x for x in spread(-53, -4, 10)] + around(0.5)),
    "gammaln": alone(_GAMMA + [-x for x in spread(-1074, -1000, 4)]),
    "digamma": alone(_GAMMA),
    "logit": alone(spread(-1060, -3, 10) + even(0, 1, 50) + [1 - x for x in spread(-53, -4, 8)] + around(0.25, 0.5, 0.75)),
    "expit": alone(even(-740, -40, 16) + even(-40, 40, 40)),
    "entr": alone(spread(-1060, -3, 12) + even(0, 3, 30) + spread(2, 1000, 8) + around(1.0)),
    "sinc": alone(signed(spread(-500, -4, 4)) + even(0, 6, 40) + spread(3, 50, 16) + around(0.5, 1.0)),
    "exp2": alone(even(-1070, 1023, 40) + even(-2, 2, 30)),
    "expm1": alone(signed(spread(-1000, -4, 6)) + even(-40, 2, 30) + even(2, 709, 20)),
    "log1p": alone(signed(spread(-1000, -4, 6)) + even(-1, 3, 30) + spread(2, 1000, 10)),
    "xlogy": grid([0.3, -2.5], spread(-1000, 1000, 20) + even(0.5, 2, 20)),
    "xlog1py": grid([0.3, -2.5], spread(-500, 1000, 20) + even(-1, 1, 20)),
    "zeta": [(1.0000000000258562, 10469.842072767962)] + grid([1 + 2.0**-40, 1.0000001, 1.25, 2.0, 3.5, 10.0, 55.0], [0.01, 0.6, 1.0, 3.7, 20.3, 5000.7])
    + grid([2.0, 3.0, 6.0], [-0.6, -3.3, -12.8]),
    **dict.fromkeys(
        ["hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"], _POLYNOMIALS
    ),
    "polygamma": grid([1.0, 2.0, 5.0, 20.0, 100.0, 170.0, 171.0], [0.01, 0.99, 1.0, 3.3, 20.7, 1000.3, 2.0**40])
    + grid([1.0, 2.0, 5.0, 20.0], [-0.3, -0.51, -2.9, -7.4, -20.7]),
    "gammainc": _INCOMPLETE_GAMMA,
    "gammaincc": _INCOMPLETE_GAMMA,
    "multigammaln": [(p / 2 - 0.5 + x, p) for p in (1.0, 2.0, 3.0, 7.0) for x in spread(-20, 400, 8) + even(0, 5, 8)],
    **{f"chebyshev_polynomial_{kind}": _CHEBYSHEV for kind in "tuvw"},
    **{f"shifted_chebyshev_polynomial_{kind}": _SHIFTED for kind in "tuvw"},
}  # fmt: skip


def fits_single(x: float) -> bool:
    return x == 0 or 2.0**-149 <= abs(x) < 2.0**128


def points(name: str, dtype: str) -> Points:
    """The points of a function; in float32 every second one, rounded."""
    if dtype == "float64":
        return POINTS[name]
    import numpy as np

    narrow = [
        tuple(float(np.float32(x)) if fits_single(x) else math.inf for x in p)
        for p in POINTS[name][::2]
    ]
    return [p for p in narrow if all(map(fits_single, p))]
