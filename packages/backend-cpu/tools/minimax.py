"""Coefficients of vecmath_angles.h and of erf in vecmath.h: minimax polynomials by the Remez exchange, rounded one by one.

    python minimax.py [NAME ...]

Prints the coefficients, highest degree first, and the largest error relative to the function. Needs
mpmath.
"""

import struct
import sys
from collections.abc import Callable
from typing import Any

from mpmath import mp, mpf

mp.dps = 50
Function = Callable[[Any], Any]


def remez(f: Function, weight: Function, low: Any, high: Any, powers: list[int]) -> list[Any]:
    """Coefficients c of sum(c[k] x^powers[k]) with the least largest |weight (sum - f)|."""
    n = len(powers)
    middle, half = (mpf(high) + low) / 2, (mpf(high) - low) / 2
    points = [middle - half * mp.cos(mp.pi * k / n) for k in range(n + 1)]
    grid = [middle - half * mp.cos(mp.pi * (k + mpf(1) / 2) / (30 * n)) for k in range(30 * n)]
    values = [(x, f(x), weight(x)) for x in grid]
    best = (mpf("inf"), [])
    for _ in range(12):
        rows, right = mp.matrix(n + 1, n + 1), mp.matrix(n + 1, 1)
        for i, x in enumerate(points):
            for k, power in enumerate(powers):
                rows[i, k] = x**power
            rows[i, n] = (-1) ** i / weight(x)
            right[i] = f(x)
        solved = mp.lu_solve(rows, right)
        c, level = list(solved)[:n], abs(solved[n])
        errors = [
            w * (sum(a * x**p for a, p in zip(c, powers, strict=True)) - y) for x, y, w in values
        ]
        # One extreme of each run of equal sign.
        runs: list[int] = []
        for i, error in enumerate(errors):
            if runs and (errors[runs[-1]] > 0) == (error > 0):
                if abs(error) > abs(errors[runs[-1]]):
                    runs[-1] = i
            else:
                runs.append(i)
        while len(runs) > n + 1:
            runs.pop(0 if abs(errors[runs[0]]) < abs(errors[runs[-1]]) else -1)
        largest = max(abs(e) for e in errors)
        best = min(best, (largest, c), key=lambda pair: pair[0])
        if len(runs) < n + 1 or largest < level * mpf("1.001"):
            break
        points = [grid[i] for i in runs]
    return best[1]


def rounded(x: Any, single: bool) -> Any:
    return mpf(struct.unpack("f", struct.pack("f", float(x)))[0]) if single else mpf(float(x))


def fit(f: Function, weight: Function, low: Any, high: Any, degree: int, single: bool) -> None:
    """Print a fit whose two lowest coefficients are rounded before the others are fitted."""
    fixed: list[Any] = []
    for k in range(3):

        def rest(x: Any, known: tuple[Any, ...] = tuple(fixed)) -> Any:
            return f(x) - sum(a * x**p for p, a in enumerate(known))

        c = remez(rest, weight, low, high, list(range(k, degree + 1)))
        fixed += [rounded(a, single) for a in (c if k == min(2, degree) else c[:1])]
        if len(fixed) > degree:
            break
    worst = max(
        abs(weight(x) * (sum(a * x**p for p, a in enumerate(fixed)) - f(x)))
        for x in (low + (mpf(high) - low) * (i + mpf(1) / 2) / 1000 for i in range(1000))
    )
    digits = 9 if single else 17
    print(", ".join(f"{mp.nstr(a, digits)}{'f' if single else ''}" for a in reversed(fixed)))
    print(f"  error {float(worst * 2 ** (24 if single else 53)):.3f} x 2^-{24 if single else 53}")


def series(g: Function, z: Any) -> Any:
    """g(x) / x with x = sqrt(z)."""
    return g(mp.sqrt(z)) / mp.sqrt(z)


def odd(g: Function) -> tuple[Function, Function]:
    """P with g(x) = x + x^3 P(x^2), and the weight of its error."""
    return (lambda z: (series(g, z) - 1) / z), (lambda z: z / series(g, z))


QUARTER = mpf("0.7854") ** 2
HALF_LOG2 = (mp.log(2) / 2 * mpf("1.0001")) ** 2
LOW = mpf("0.001")  # below it the polynomial hardly counts
COSH = (lambda z: (mp.cosh(mp.sqrt(z)) - 1 - z / 2) / z**2), (lambda z: z**2)
FITS: dict[str, tuple[Function, Function, Any, Any, int, bool]] = {
    "atan32": (*odd(mp.atan), LOW, mpf(1), 8, True),
    "atan64": (*odd(mp.atan), LOW, mpf(1), 19, False),
    "asin32": (*odd(mp.asin), LOW, mpf("0.25"), 4, True),
    "asin64": (*odd(mp.asin), LOW, mpf("0.25"), 11, False),
    "tan32": (*odd(mp.tan), LOW, QUARTER, 6, True),
    "tan64": (*odd(mp.tan), LOW, QUARTER, 13, False),
    "sinh32": (*odd(mp.sinh), LOW, HALF_LOG2, 2, True),
    "sinh64": (*odd(mp.sinh), LOW, HALF_LOG2, 5, False),
    "cosh32": (*COSH, LOW, HALF_LOG2, 1, True),
    "cosh64": (*COSH, LOW, HALF_LOG2, 4, False),
    "erf32": (
        lambda z: series(mp.erf, z) - 1,
        lambda z: 1 / series(mp.erf, z),
        LOW,
        mpf("0.25"),
        4,
        True,
    ),
}

if __name__ == "__main__":
    for name in sys.argv[1:] or FITS:
        print(name)
        fit(*FITS[name])
