"""Write tests/special_values.json: values of functions of `rabbet.special` by mpmath, at tests/special_points.py.

Run it with a Python that has mpmath and numpy: `python tools/write_special_values.py [NAME ...]`. With names, it computes only
the values of these functions again. Each value is a float64, what it is off by in thousandths of a unit in its last place, and
the exponent of a unit of the last place. Near a zero that unit is that of the function's scale: of the modulus of oscillating
functions, and of the largest term where a reflection formula has terms of both signs.
"""

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mpmath import mp, mpf

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "tests/special_values.json"
sys.path.insert(0, str(ROOT / "tests"))

from special_points import POINTS, points  # noqa: E402

Value = Any


def newton(f: Callable[[Value], Value], slope: Callable[[Value], Value], start: Value) -> Value:
    """The root of a function whose logarithm is nearly a parabola."""
    x = start
    for _ in range(200):
        step = f(x) / slope(x)
        x -= step
        if abs(step) <= abs(x) * mpf(10) ** (5 - mp.dps):
            return x
    raise ArithmeticError(f"no root near {start}")


def ndtr(x: Value) -> Value:
    return mp.erfc(-x / mp.sqrt(2)) / 2


def ndtri(p: Value) -> Value:
    if not 0 < p < 1:
        raise ValueError
    if p > 0.1:
        return mp.sqrt(2) * erfinv(2 * p - 1)
    start = -mp.sqrt(-2 * mp.log(p))
    return newton(lambda x: mp.log(ndtr(x)) - mp.log(p), lambda x: mp.npdf(x) / ndtr(x), start)


def erfinv(y: Value) -> Value:
    if abs(y) < mpf("1e-20"):
        return y * mp.sqrt(mp.pi) / 2 * (1 + mp.pi * y * y / 12)
    if abs(y) == 1:
        raise ValueError
    return mp.erfinv(y)


def modulus(x: Value) -> Value:
    return mp.sqrt(2 / (mp.pi * abs(x)))


def lgamma(x: Value) -> Value:
    return mp.log(abs(mp.gamma(x))) if x < 100 else mp.loggamma(x)


FUNCTIONS: dict[str, Callable[..., Value]] = {
    "bessel_j0": lambda x: mp.besselj(0, x),
    "bessel_j1": lambda x: mp.besselj(1, x),
    "bessel_y0": lambda x: mp.bessely(0, x),
    "bessel_y1": lambda x: mp.bessely(1, x),
    "i0": lambda x: mp.besseli(0, x),
    "i1": lambda x: mp.besseli(1, x),
    "i0e": lambda x: mp.besseli(0, x) * mp.exp(-abs(x)),
    "i1e": lambda x: mp.besseli(1, x) * mp.exp(-abs(x)),
    "modified_bessel_k0": lambda x: mp.besselk(0, x),
    "modified_bessel_k1": lambda x: mp.besselk(1, x),
    "scaled_modified_bessel_k0": lambda x: mp.besselk(0, x) * mp.exp(x),
    "scaled_modified_bessel_k1": lambda x: mp.besselk(1, x) * mp.exp(x),
    "spherical_bessel_j0": lambda x: mp.sin(x) / x,
    "airy_ai": mp.airyai,
    "erf": mp.erf,
    "erfc": mp.erfc,
    "erfcx": lambda x: mp.exp(x * x) * mp.erfc(x) if x < 1e6 else 1 / (x * mp.sqrt(mp.pi)) * (1 - 1 / (2 * x * x)),
    "erfinv": erfinv,
    "ndtr": ndtr,
    "log_ndtr": lambda x: mp.log(ndtr(x)) if -1e6 < x < 0 else mp.log1p(-ndtr(-x)) if x >= 0 else -x * x / 2 - mp.log(-x) - mp.log(2 * mp.pi) / 2,
    "ndtri": ndtri,
    "gammaln": lgamma,
    "digamma": mp.digamma,
    "logit": lambda x: mp.log(x / (1 - x)),
    "expit": lambda x: 1 / (1 + mp.exp(-x)),
    "entr": lambda x: -x * mp.log(x),
    "sinc": mp.sincpi,
    "exp2": lambda x: mpf(2) ** x,
    "expm1": mp.expm1,
    "log1p": mp.log1p,
    "xlogy": lambda x, y: x * mp.log(y),
    "xlog1py": lambda x, y: x * mp.log1p(y),
    "zeta": lambda s, q: hurwitz(s, q),
    "hermite_polynomial_h": lambda x, n: mp.hermite(n, x),
    "hermite_polynomial_he": lambda x, n: mp.hermite(n, x / mp.sqrt(2)) / mp.mpf(2) ** (n / 2),
    "laguerre_polynomial_l": lambda x, n: mp.laguerre(n, 0, x),
    "legendre_polynomial_p": lambda x, n: mp.legendre(n, x),
    "polygamma": lambda n, x: (-1) ** (int(n) + 1) * mp.factorial(n) * hurwitz(n + 1, x),
    "gammainc": lambda a, x: incomplete_gamma(a, x)[0],
    "gammaincc": lambda a, x: incomplete_gamma(a, x)[1],
    "multigammaln": lambda x, p: sum(multigammaln_terms(x, p)),
    "chebyshev_polynomial_t": lambda x, n: chebyshev(x, n, x),
    "chebyshev_polynomial_u": lambda x, n: chebyshev(x, n, 2 * x),
    "chebyshev_polynomial_v": lambda x, n: chebyshev(x, n, 2 * x - 1),
    "chebyshev_polynomial_w": lambda x, n: chebyshev(x, n, 2 * x + 1),
}  # fmt: skip


def shifted(f: Callable[..., Value]) -> Callable[..., Value]:
    return lambda x, n: f(2 * x - 1, n)


for _kind in "tuvw":
    FUNCTIONS[f"shifted_chebyshev_polynomial_{_kind}"] = shifted(
        FUNCTIONS[f"chebyshev_polynomial_{_kind}"]
    )


def incomplete_gamma(a: Value, x: Value) -> tuple[Value, Value]:
    """P and Q, from the power series of P with enough digits for 1 - P where Q is small."""
    with mp.workdps(400 + int(-mp.log10(a) if a < 1 else mp.log10(a))):
        term = total = mpf(1)
        k = 0
        while k < x or term > total * mpf(10) ** -mp.dps:
            k += 1
            term *= x / (a + k)
            total += term
        lower = mp.exp(a * mp.log(x) - x - mp.loggamma(a + 1)) * total
        return lower, 1 - lower


def multigammaln_terms(x: Value, p: Value) -> list[Value]:
    return [mp.loggamma(x - mpf(k) / 2) for k in range(int(p))] + [p * (p - 1) / 4 * mp.log(mp.pi)]


def chebyshev(x: Value, n: Value, first: Value) -> Value:
    """The recurrence from 1 and `first`. It multiplies rounding errors by at most n ** 2."""
    before, value = mpf(1), first
    for _ in range(int(n) - 1):
        before, value = value, 2 * x * value - before
    return value


def amplitude(
    root: Callable[[Value], Value], most: Callable[[Value], Value]
) -> Callable[..., Value]:
    """The scale of a function that oscillates between -1 and 1, with at most the value `most` at the ends."""
    return lambda x, n: min(1 / mp.sqrt(root(x)), most(n)) if abs(x) < 1 else 0


def hurwitz(s: Value, q: Value) -> Value:
    """The sum of (q + k) ** -s over k >= 0, also from negative `q`."""
    if q > 0:
        # mpmath's digits are absolute ones.
        with mp.workdps(mp.dps + int(s * mp.log10(q)) if q > 1 else mp.dps):
            return mp.zeta(s, q)
    count = int(mp.ceil(-q))
    return mp.zeta(s, q + count) + sum((q + k) ** -int(s) for k in range(count))


def both_sides(s: Value, q: Value) -> Value:
    """The size of the terms on both sides of 0."""
    return mp.zeta(s, q - mp.floor(q)) + mp.zeta(s, 1 - (q - mp.floor(q)))


def waves(x: Value) -> Value:
    return modulus(x) if abs(x) > 0.4 else 0


SCALES: dict[str, Callable[..., Value]] = {
    "bessel_j0": waves,
    "bessel_j1": lambda x: waves(x) if abs(x) > 2 else 0,
    "bessel_y0": waves,
    "bessel_y1": waves,
    "spherical_bessel_j0": lambda x: 1 / abs(x) if abs(x) > 2 else 0,
    "airy_ai": lambda x: 1 / (mp.sqrt(mp.pi) * mp.root(-x, 4)) if x < -1.5 else 0,
    "gammaln": lambda x: max(abs(lgamma(1 - x)), abs(mp.log(mp.pi / abs(mp.sinpi(x))))) if x < 0 else 0,
    "digamma": lambda x: max(abs(mp.digamma(1 - x)), mp.pi, abs(mp.pi * mp.cospi(x) / mp.sinpi(x))) if x < 0 else 0,
    "zeta": lambda s, q: both_sides(s, q) if q < 0 else 0,
    "polygamma": lambda n, x: mp.factorial(n) * both_sides(n + 1, x) if x < 0 else 0,
    "multigammaln": lambda x, p: max(map(abs, multigammaln_terms(x, p))),
    "chebyshev_polynomial_t": amplitude(lambda x: mpf(1), lambda n: mpf(1)),
    "chebyshev_polynomial_u": amplitude(lambda x: 1 - x * x, lambda n: n + 1),
    "chebyshev_polynomial_v": amplitude(lambda x: (1 + x) / 2, lambda n: 2 * n + 1),
    "chebyshev_polynomial_w": amplitude(lambda x: (1 - x) / 2, lambda n: 2 * n + 1),
}  # fmt: skip
for _kind in "tuvw":
    SCALES[f"shifted_chebyshev_polynomial_{_kind}"] = shifted(
        SCALES[f"chebyshev_polynomial_{_kind}"]
    )


def rounded(x: Value) -> float:
    """The nearest float64; infinite beyond the largest."""
    with mp.workprec(53):
        return float(+x)


def entry(name: str, point: tuple[float, ...], digits: int, least: int) -> list[Any] | None:
    """Value, rest and exponent of the unit; None where there is no finite value."""
    args = [mpf(x) for x in point]
    try:
        value = FUNCTIONS[name](*args)
    except (ZeroDivisionError, ValueError):  # a pole
        return None
    scale = max(abs(value), SCALES.get(name, lambda *x: 0)(*args))
    largest = 2.0**128 if digits == 23 else math.inf
    if not abs(rounded(value)) < largest or not scale:
        return None
    unit = max(int(mp.floor(mp.log(scale, 2))), least) - digits
    high = rounded(value)
    return [high, int(mp.nint((value - mpf(high)) / mp.ldexp(1, unit) * 1000)), unit]


def entries(name: str, dtype: str, digits: int, least: int) -> list[list[Any] | None]:
    found = []
    for point in points(name, dtype):
        # Phases of large arguments and differences need more digits.
        largest = max(math.log10(max(abs(x), 1)) for x in point)
        mp.dps = 40 + int(largest) + 40 * (name == "logit")
        found.append(entry(name, point, digits, least))
    print(name, dtype, len(found), flush=True)
    return found


def main(wanted: list[str]) -> None:
    known = json.loads(TARGET.read_text()) if wanted else {}
    lines = []
    for name in POINTS:
        for dtype, digits, least in (("float64", 52, -1022), ("float32", 23, -126)):
            key = f"{name} {dtype}"
            is_kept = wanted and name not in wanted
            found = known[key] if is_kept else entries(name, dtype, digits, least)
            lines.append(f'"{key}": {json.dumps(found, separators=(",", ":"))}')
    TARGET.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
