"""Polynomials of ops/special.rec, ops/bessel.rec and of sinc: fits at Chebyshev nodes in 50 digits.

    python special_coefficients.py [NAME ...]

Prints each definition as the record files hold it (`temme` is nine of them) and, as a comment, the largest error of the fit relative to the
function's largest value in units of 2^-53. A fit is a polynomial in s, which runs from -1 to 1 over the interval, or in t, the distance
of the argument from `origin`: that is exact where s would be rounded, and the terms of some functions then have one sign.
Needs mpmath.
"""

import sys
import textwrap
from collections.abc import Callable
from typing import Any, NamedTuple

from mpmath import mp, mpf

mp.dps = 50
Function = Callable[[Any], Any]


class Fit(NamedTuple):
    function: Function
    low: Any
    high: Any
    degree: int
    origin: Any = None  # None: a polynomial in s


def scaled_erfc(x: Any) -> Any:
    """exp(x * x) * erfc(x)."""
    if x < 30:
        return mp.exp(x * x) * mp.erfc(x)
    term = total = mpf(1)
    for k in range(1, 60):
        term *= -(2 * k - 1) / (2 * x * x)
        total += term
    return total / (x * mp.sqrt(mp.pi))


def over_t(x_of_t: Function, value: Function, limit: Any) -> Function:
    """value(x) / t as a function of t, with its limit at t = 0."""
    return lambda t: limit if t < mpf(10) ** -9 else value(x_of_t(t)) / t


def erfcx_series(t: Any) -> Any:
    """exp(x * x) * erfc(x) / t with t = 2 / (2 + x)."""
    return over_t(lambda t: 2 / t - 2, scaled_erfc, 1 / (2 * mp.sqrt(mp.pi)))(t)


def tail_series(t: Any) -> Any:
    """exp(x * x / 2) * ndtr(-x) / t with t = 2.25 / (2.25 + x)."""
    root = mp.sqrt(2)
    value = lambda x: scaled_erfc(x / root) / 2  # noqa: E731
    c = mpf("2.25")
    return over_t(lambda t: c / t - c, value, 1 / (c * mp.sqrt(2 * mp.pi)))(t)


def normal_slope(w: Any) -> Any:
    """(ndtr(x) - 1 / 2) / x at x * x = w."""
    x = mp.sqrt(w + mpf(10) ** -40)
    return mp.erf(x / mp.sqrt(2)) / (2 * x)


def lgamma_between(t: Any) -> Any:
    """log(gamma(2 + t)) / (t * (1 + t))."""
    if t == 0:
        return 1 - mp.euler
    if t == -1:
        return +mp.euler
    return mp.loggamma(2 + t) / (t * (1 + t))


DIGAMMA_ROOT = mp.findroot(mp.digamma, 1.4616321449683623)


def digamma_between(y: Any) -> Any:
    """digamma(y) / (y - its root)."""
    return mp.digamma(y) / (y - DIGAMMA_ROOT)


def inverse_erf(w: Any) -> Any:
    """erfinv(x) / x at exp(-w) = 1 - x * x."""
    if w < mpf(10) ** -30:
        return mp.sqrt(mp.pi) / 2
    x = mp.sqrt(-mp.expm1(-w))
    # 1 - x without cancellation.
    miss = mp.exp(-w) / (1 + x)
    y = mp.erfinv(x) if w < 3 else mp.sqrt(w)
    for _ in range(60):
        # The logarithm of erfc is nearly a parabola.
        value = mp.erfc(y)
        step = (mp.log(value) - mp.log(miss)) * value / (2 / mp.sqrt(mp.pi) * mp.exp(-y * y))
        y += step
        if abs(step) < mpf(10) ** -45 * y:
            break
    return y / x


def over_root(v: Any) -> Any:
    """erfinv(x) / (x * v) at exp(-v * v) = 1 - x * x."""
    return inverse_erf(v * v) / v


def regular_y0(x: Any) -> Any:
    return mp.bessely(0, x) - 2 / mp.pi * mp.log(x) * mp.besselj(0, x)


def regular_y1(x: Any) -> Any:
    return (mp.bessely(1, x) - 2 / mp.pi * (mp.log(x) * mp.besselj(1, x) - 1 / x)) / x


def of_square(f: Function) -> Function:
    return lambda w: f(mp.sqrt(w + mpf(10) ** -40))


def hankel(order: int, part: int) -> Function:
    """P (part 0) or x Q of Hankel's expansion as a function of 1 / x ** 2."""

    def series(x: Any) -> tuple[Any, Any]:
        term, parts = mpf(1), [mpf(0), mpf(0)]
        for k in range(100):
            parts[k % 2] += (-1) ** (k // 2) * term
            term *= (4 * mpf(order) ** 2 - (2 * k + 1) ** 2) / ((k + 1) * 8 * x)
        return parts[0], parts[1] * x

    def exact(x: Any) -> tuple[Any, Any]:
        j, y = mp.besselj(order, x), mp.bessely(order, x)
        angle, root = x - mp.pi / 4 - order * mp.pi / 2, mp.sqrt(mp.pi * x / 2)
        cosine, sine = mp.cos(angle) * root, mp.sin(angle) * root
        return j * cosine + y * sine, (y * cosine - j * sine) * x

    def value(t: Any) -> Any:
        x = 1 / mp.sqrt(t + mpf(10) ** -40)
        return (exact(x) if x < 60 else series(x))[part]

    return value


j0, j1, y0, y1 = ((lambda x, f=f, n=n: f(n, x)) for f in (mp.besselj, mp.bessely) for n in (0, 1))


def sinc_root(w: Any) -> Any:
    """sin(pi * r) / (pi * r) at r * r = w."""
    return mp.sincpi(mp.sqrt(w))


def logit_root(w: Any) -> Any:
    """logit(x) / d with d = 2 * x - 1 and d * d = w."""
    d = mp.sqrt(w + mpf(10) ** -40)
    return 2 * mp.atanh(d) / d


def stirling_factor(t: Any) -> Any:
    """sqrt(a) * exp(a * log(a) - a) / gamma(a + 1) - 0.390625 at a = 1 / t."""
    if t < mpf(10) ** -12:
        return (1 - t / 12) / mp.sqrt(2 * mp.pi) - mpf("0.390625")
    a = 1 / t
    return mp.sqrt(a) * mp.exp(a * mp.log(a) - a - mp.loggamma(a + 1)) - mpf("0.390625")


def lgamma_slope(a: Any) -> Any:
    """lgamma(1 + a) / a."""
    return mp.loggamma(1 + a) / a if a > mpf(10) ** -20 else -mp.euler


def temme(count: int) -> list[list[Any]]:
    """Taylor coefficients of the first functions of Temme's expansion, up to a distance of 0.64 and for a above 30.

    NIST Digital Library of Mathematical Functions, 8.12.7 to 8.12.11: eta ** 2 / 2 = mu - log(1 + mu), and mu, 1 / mu and the
    functions are power series in eta.
    """
    size = 70
    mu = [mpf(0), mpf(1)]
    for n in range(2, size + 2):  # mu * mu' = eta * (1 + mu)
        mu.append((mu[n - 1] - sum(i * mu[i] * mu[n + 1 - i] for i in range(2, n))) / (n + 1))
    inverse = [mpf(1)]  # of mu / eta
    for n in range(1, size):
        inverse.append(-sum(mu[k + 1] * inverse[n - k] for k in range(1, n + 1)))
    regular = inverse[1:]  # 1 / mu - 1 / eta
    functions = [regular]
    for _ in range(1, count):
        last = functions[-1]
        functions.append(
            [
                (n + 2) * c - last[1] * r
                for n, (c, r) in enumerate(zip(last[2:], regular, strict=False))
            ]
        )
    kept = []
    for k, function in enumerate(functions):
        least = mpf(2) ** -58 * mpf(30) ** k * mp.sqrt(2 * mp.pi * 30)
        last = max(n for n in range(45) if abs(function[n]) * mpf("0.64") ** n > least)
        kept.append(function[: last + 1])
    return kept


FITS = {
    "stirling_factor": Fit(stirling_factor, 0, mpf("0.5"), 19),
    "gamma_inverse": Fit(lambda a: mp.rgamma(1 + a) - 1, 0, 2, 21),
    "lgamma_slope": Fit(lgamma_slope, 0, mpf("1.02"), 26),
    "logit_of_square": Fit(logit_root, 0, mpf("0.25"), 16, 0),
    "sinc_of_square": Fit(sinc_root, 0, mpf("0.25"), 8, 0),
    "erfcx_far": Fit(erfcx_series, 0, mpf("0.5"), 19, 0),
    "erfcx_near": Fit(erfcx_series, mpf("0.5"), 1, 16),
    "tail_far": Fit(tail_series, 0, mpf("0.5"), 20, 0),
    "tail_near": Fit(tail_series, mpf("0.5"), mpf("0.78"), 13),
    "tail_slope": Fit(normal_slope, 0, mpf("0.5"), 9, 0),
    "lgamma_between": Fit(lgamma_between, mpf("-1.125"), mpf("0.5"), 26, 0),
    "digamma_between": Fit(digamma_between, 1, mpf("2.5"), 26),
    "erfinv_near": Fit(inverse_erf, 0, 6, 24),
    "erfinv_far": Fit(over_root, mpf("2.4"), mpf("6.2"), 30),
    "ndtri_far": Fit(lambda u: over_root(1 / u), mpf(1) / 28, mpf(1) / 6, 25),
    "bessel_j0_near": Fit(of_square(j0), 0, 8, 11),
    "bessel_j0_middle": Fit(j0, mpf("2.75"), 5, 16, mpf("3.875")),
    "bessel_j1_near": Fit(of_square(lambda x: j1(x) / x), 0, 8, 11),
    "bessel_j1_middle": Fit(j1, mpf("2.75"), 5, 16, mpf("3.875")),
    "bessel_y0_near": Fit(of_square(regular_y0), 0, 8, 11),
    "bessel_y0_middle": Fit(y0, mpf("2.75"), 5, 20, mpf("3.875")),
    "bessel_y1_near": Fit(of_square(regular_y1), 0, 8, 11),
    "bessel_y1_middle": Fit(y1, mpf("2.75"), 5, 20, mpf("3.875")),
    "bessel_p0": Fit(hankel(0, 0), 0, mpf("0.04"), 17),
    "bessel_q0": Fit(hankel(0, 1), 0, mpf("0.04"), 21),
    "bessel_p1": Fit(hankel(1, 0), 0, mpf("0.04"), 17),
    "bessel_q1": Fit(hankel(1, 1), 0, mpf("0.04"), 20),
    "airy_near": Fit(mp.airyai, mpf("-1.5"), 1, 22, 0),
    "airy_middle": Fit(mp.airyai, mpf("-2.75"), mpf("-1.5"), 16, mpf("-2.125")),
    "airy_last": Fit(mp.airyai, -4, mpf("-2.75"), 17, mpf("-3.375")),
}


def coefficients(fit: Fit) -> list[Any]:
    """Of powers of s, or of the argument; lowest first."""
    count = fit.degree + 1
    half, middle = (mpf(fit.high) - fit.low) / 2, (mpf(fit.high) + fit.low) / 2
    angles = [mp.pi * (2 * k + 1) / (2 * count) for k in range(count)]
    values = [fit.function(middle + half * mp.cos(a)) for a in angles]
    sums = [
        sum(v * mp.cos(j * a) for v, a in zip(values, angles, strict=True)) * 2 / count
        for j in range(count)
    ]
    sums[0] /= 2
    # Clenshaw's recurrence on polynomials: s is `argument`.
    argument = [mpf(0), mpf(1)] if fit.origin is None else [(fit.origin - middle) / half, 1 / half]
    zero = [mpf(0)] * count
    before, value = zero, zero
    for j in range(fit.degree, -1, -1):
        twice = 2 if j else 1
        product = [mpf(0)] * count
        for k in range(count):
            product[k] += twice * argument[0] * value[k]
            if k + 1 < count:
                product[k + 1] += twice * argument[1] * value[k]
        before, value = value, [p - b for p, b in zip(product, before, strict=True)]
        value[0] += sums[j]
    return value


def error(fit: Fit, given: list[float]) -> float:
    """The largest error relative to the function's largest value."""
    half, middle = (mpf(fit.high) - fit.low) / 2, (mpf(fit.high) + fit.low) / 2
    worst = largest = mpf(0)
    for k in range(201):
        s = mpf(k) / 100 - 1 + mpf(10) ** -9 * (100 - k)
        x = middle + half * s
        variable = s if fit.origin is None else x - fit.origin
        want = fit.function(x)
        worst = max(worst, abs(sum(mpf(c) * variable**p for p, c in enumerate(given)) - want))
        largest = max(largest, abs(want))
    return float(worst / largest * 2**53)


def written(name: str, variable: str, given: list[float]) -> str:
    text = f"def {name}({variable}) = " + f" + {variable} * (".join(repr(c) for c in given)
    text += ")" * (len(given) - 1)
    lines = textwrap.wrap(text, 118, subsequent_indent=" " * 10, break_on_hyphens=False)
    return "\n".join(lines)


def definition(name: str, fit: Fit) -> str:
    given = [float(c) for c in coefficients(fit)]
    variable = "s" if fit.origin is None else "t"
    return written(name, variable, given) + f"\n# error {error(fit, given):.2f} x 2^-53"


if __name__ == "__main__":
    for wanted in sys.argv[1:] or [*FITS, "temme"]:
        if wanted == "temme":
            for k, function in enumerate(temme(9)):
                print(written(f"temme_{k}", "e", [float(c) for c in function]), flush=True)
        else:
            print(definition(wanted, FITS[wanted]), flush=True)
