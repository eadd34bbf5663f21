"""The polynomials of vecmath.h: the bounds that the header states, and exceptional values."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from native_host import Host

special = pytest.importorskip("scipy.special")

# Function, oracle in a wider type, where to look, bound in ulp for float32 and float64 (None: libm).
FUNCTIONS: dict[
    str, tuple[Callable[[Any], Any], list[tuple[float, float]], float, float | None]
] = {
    "exp": (np.exp, [(-87, 88), (-1, 1)], 1.1, 1.1),
    "expm1": (np.expm1, [(-20, 88), (-1, 1)], 1.5, 1.5),
    "log": (np.log, [(1e-30, 1e30), (0.3, 3), (1e-3, 10)], 1.0, 1.0),
    "log2": (np.log2, [(1e-30, 1e30), (0.3, 3)], 2.0, None),
    "log10": (np.log10, [(1e-30, 1e30), (0.3, 3)], 2.1, None),
    "log1p": (np.log1p, [(-0.99, 3), (0, 1e20)], 1.0, 1.0),
    "tanh": (np.tanh, [(-12, 12), (-1, 1)], 2.5, 2.5),
    "erf": (special.erf, [(-5, 5), (-0.6, 0.6)], 1.9, 3.0),
    "erfc": (special.erfc, [(-4, 9), (-0.5, 0.5)], 0.6, None),
    "sin": (np.sin, [(-1e5, 1e5), (-7, 7)], 1.6, 2.5),
    "cos": (np.cos, [(-1e5, 1e5), (-7, 7)], 1.6, 2.5),
    "tan": (np.tan, [(-1e5, 1e5), (-7, 7)], 1.8, 1.8),
    "atan": (np.arctan, [(-3, 3), (-1e30, 1e30)], 1.4, 1.4),
    "asin": (np.arcsin, [(-1, 1), (-0.1, 0.1)], 1.3, 1.3),
    "acos": (np.arccos, [(-1, 1), (-0.1, 0.1)], 1.3, 1.3),
    "sinh": (np.sinh, [(-88, 88), (-2, 2)], 1.8, 1.8),
    "cosh": (np.cosh, [(-88, 88), (-2, 2)], 1.8, 1.8),
}


def samples(low: float, high: float, dtype: str) -> np.ndarray:
    """Evenly spread numbers, and numbers of all magnitudes."""
    rng = np.random.default_rng(2)
    even = rng.uniform(low, high, 100_003)
    small = rng.choice(even, 50_000) * 2.0 ** rng.integers(-30, 1, 50_000)
    x = np.concatenate([even, small]).astype(dtype)
    return x[(x >= low) & (x <= high)]


def error_in_ulp(got: np.ndarray, want: np.ndarray) -> float:
    exponent = np.floor(np.log2(np.abs(np.where(want == 0, 1, want)))).astype(int)
    digits = 23 if got.dtype == np.float32 else 52
    unit = np.ldexp(
        np.ones_like(want), np.maximum(exponent, -126 if digits == 23 else -1022) - digits
    )
    return float(np.max(np.abs(got.astype(want.dtype) - want) / unit))


@pytest.mark.parametrize("op", FUNCTIONS)
def test_float32_stays_within_its_bound(host: Host, op: str) -> None:
    oracle, ranges, bound, _ = FUNCTIONS[op]
    for low, high in ranges:
        x = samples(low, high, "float32")
        got = host.filled(op, [x], x.shape, "float32")
        assert error_in_ulp(got, oracle(x.astype(np.float64))) <= bound


@pytest.mark.parametrize("op", [op for op in FUNCTIONS if FUNCTIONS[op][3]])
def test_float64_stays_within_its_bound(host: Host, op: str) -> None:
    oracle, ranges, _, bound = FUNCTIONS[op]
    assert bound is not None
    # SciPy has no wider erf: allow for half an ulp of its own and its rounding.
    wide = np.float64 if op == "erf" else np.longdouble
    if wide is np.longdouble and np.finfo(wide).nmant <= 52:
        pytest.skip("long double is no wider than double")
    for low, high in ranges:
        x = samples(low, high, "float64")
        got = host.filled(op, [x], x.shape, "float64")
        assert error_in_ulp(got, oracle(x.astype(wide))) <= bound + (op == "erf")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", FUNCTIONS)
def test_exceptional_values(host: Host, op: str, dtype: str) -> None:
    info = np.finfo(dtype)
    x = np.array(
        [0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, info.smallest_subnormal, info.tiny / 8, info.max,
         -info.max, 750.0, -750.0, 1e6, -1e6, 5e-9]
    ).astype(dtype)  # fmt: skip
    got = host.filled(op, [x], x.shape, dtype)
    with np.errstate(all="ignore"):
        want = FUNCTIONS[op][0](x)
    np.testing.assert_allclose(
        got, want, rtol=4 * info.eps, atol=2 * float(info.smallest_subnormal)
    )
    signed = ~np.isnan(want)
    assert np.array_equal(np.signbit(got[signed]), np.signbit(want[signed]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", ["sin", "tan", "asin", "atan", "sinh", "expm1", "log1p"])
def test_tiny_arguments_and_zeros_are_their_own_results(host: Host, op: str, dtype: str) -> None:
    info = np.finfo(dtype)
    x = np.array([0.0, -0.0, info.smallest_subnormal, -info.smallest_subnormal, info.tiny / 8] * 20)
    x = x.astype(dtype)
    got = host.filled(op, [x], x.shape, dtype)
    assert np.array_equal(got, x)
    assert np.array_equal(np.signbit(got), np.signbit(x))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", ["sinh", "cosh"])
def test_results_up_to_the_largest_number(host: Host, op: str, dtype: str) -> None:
    """exp of these arguments is infinite, half of it is not."""
    edge = 89.0 if dtype == "float32" else 710.0
    x = np.linspace(edge, edge + 0.4, 500).astype(dtype)
    wide = np.float64 if dtype == "float32" else np.longdouble
    if wide is np.longdouble and np.finfo(wide).nmant <= 52:
        pytest.skip("long double is no wider than double")
    got = host.filled(op, [x], x.shape, dtype)
    assert np.all(np.isfinite(got))
    assert error_in_ulp(got, FUNCTIONS[op][0](x.astype(wide))) <= 1.8


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tan_beside_its_poles(host: Host, dtype: str) -> None:
    wide = np.float64 if dtype == "float32" else np.longdouble
    if wide is np.longdouble and np.finfo(wide).nmant <= 60:
        pytest.skip("long double is no wider than double")
    x = (np.arange(1, 60_000) * (np.pi / 2)).astype(dtype)
    want = np.tan(x.astype(wide))
    got = host.filled("tan", [x], x.shape, dtype)
    assert error_in_ulp(got, want) <= 1.8


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_pow_keeps_the_rules_of_the_standard(host: Host, dtype: str) -> None:
    values = np.array(
        [
            0.0,
            -0.0,
            1,
            -1,
            2,
            -2,
            0.5,
            -0.5,
            3,
            -3,
            np.inf,
            -np.inf,
            np.nan,
            1e-40,
            1e38,
            -7.5,
            2**24,
            2**53 + 2,
            1e300 if dtype == "float64" else 1e30,
            5e-324 if dtype == "float64" else 1e-45,
        ]
    ).astype(dtype)
    x, y = (np.ascontiguousarray(a.ravel()) for a in np.meshgrid(values, values))
    got = host.filled("pow", [x, y], x.shape, dtype)
    with np.errstate(all="ignore"):
        want = np.power(x.astype(np.float64), y.astype(np.float64)).astype(dtype)
    info = np.finfo(dtype)
    np.testing.assert_allclose(
        got, want, rtol=2 * info.eps, atol=2 * float(info.smallest_subnormal)
    )
    signed = ~np.isnan(want)
    assert np.array_equal(np.signbit(got[signed]), np.signbit(want[signed]))


def test_pow_stays_within_its_bound(host: Host) -> None:
    rng = np.random.default_rng(4)
    x = rng.uniform(0, 20, 100_001).astype(np.float32)
    y = rng.uniform(-20, 20, x.size).astype(np.float32)
    got = host.filled("pow", [x, y], x.shape, "float32")
    want = np.power(x.astype(np.float64), y.astype(np.float64))
    usual = (want > 1e-37) & (want < 3e38)
    assert error_in_ulp(got[usual], want[usual]) <= 0.6


def test_pow_of_float64_stays_within_its_bound(host: Host) -> None:
    if np.finfo(np.longdouble).nmant <= 60:
        pytest.skip("long double is no wider than double")
    rng = np.random.default_rng(6)
    spread = np.exp(rng.uniform(-700, 700, 60_000))
    near_one = np.concatenate([rng.uniform(0.7, 1.5, 60_000), 1 + rng.uniform(-1e-3, 1e-3, 60_000)])
    x = np.concatenate([spread, near_one])
    y = rng.uniform(-700, 700, x.size) / np.log(x)  # results of all magnitudes
    got = host.filled("pow", [x, y], x.shape, "float64")
    assert error_in_ulp(got, np.power(x.astype(np.longdouble), y.astype(np.longdouble))) <= 1.8


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", ["exp", "sin", "gelu", "pow", "tan", "asin", "sinh", "erfc"])
def test_every_length_and_stride_gives_the_same_bits(host: Host, op: str, dtype: str) -> None:
    """Whole blocks, the elements that remain, and gathered elements."""
    x = np.random.default_rng(5).uniform(0.1, 0.9 if op == "asin" else 5, 1300).astype(dtype)
    more = {"gelu": ["none"], "pow": [x]}.get(op, [])
    whole = host.filled(op, [x, *more], x.shape, dtype)
    for n in (1, 2, 31, 63, 64, 65, 127, 513, 1299):
        part = [a[:n] if isinstance(a, np.ndarray) else a for a in [x, *more]]
        assert np.array_equal(host.filled(op, part, (n,), dtype), whole[:n])
    odd = [a[1::3] if isinstance(a, np.ndarray) else a for a in [x, *more]]
    assert np.array_equal(host.filled(op, odd, odd[0].shape, dtype), whole[1::3])
