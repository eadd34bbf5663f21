"""Remainders and rounded quotients of floating-point numbers: every bit as NumPy has it."""

import numpy as np
import pytest
from native_host import Host

SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.1, 1e-40, -1e-40, 3e38, 7.0, -2.5]


def pairs(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of all magnitudes, exact multiples and their neighbours, and every pair of special values."""
    rng = np.random.default_rng(3)

    def spread(n: int) -> np.ndarray:
        return (rng.normal(size=n) * 2.0 ** rng.integers(-40, 40, n)).astype(dtype)

    divisors = spread(20_000)
    multiples = (divisors * rng.integers(-5000, 5000, 20_000)).astype(dtype)
    near = np.nextafter(multiples, spread(20_000))
    first, second = np.meshgrid(np.array(SPECIAL, dtype), np.array(SPECIAL, dtype))
    x = np.concatenate([spread(20_000), multiples, near, first.ravel()])
    y = np.concatenate([divisors, divisors, divisors, second.ravel()])
    order = rng.permutation(len(x))
    return x[order], y[order]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", ["fmod", "remainder"])
def test_every_bit_of_a_remainder_is_right(host: Host, op: str, dtype: str) -> None:
    x, y = pairs(dtype)
    with np.errstate(all="ignore"):
        want = np.fmod(x, y)
        if op == "remainder":  # the sign of zero is the dividend's, as in PyTorch
            other = (want != 0) & ((y < 0) != (want < 0))
            want = np.where(other, want + y, want)
    got = host.filled(op, [x, y], x.shape, dtype)
    np.testing.assert_array_equal(got, want)
    numbers = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got)[numbers], np.signbit(want)[numbers])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_remainders_of_few_elements_at_any_stride(host: Host, dtype: str) -> None:
    x, y = pairs(dtype)
    for n in (1, 3, 63, 65, 700):
        a, b = x[: 3 * n : 3], y[:n][::-1]
        with np.errstate(all="ignore"):
            want = np.fmod(a, b)
        np.testing.assert_array_equal(host.filled("fmod", [a, b], a.shape, dtype), want)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rounded_down_quotients_are_those_of_exact_remainders(host: Host, dtype: str) -> None:
    x, y = pairs(dtype)
    with np.errstate(all="ignore"):
        want = np.where(y == 0, x / y, np.floor_divide(x, y))
    np.testing.assert_array_equal(host.filled("div", [x, y, "floor"], x.shape, dtype), want)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_angles_of_points_stay_within_their_bound(host: Host, dtype: str) -> None:
    y, x = pairs(dtype)
    wide = np.longdouble
    if dtype == "float64" and np.finfo(wide).nmant <= 52:
        pytest.skip("long double is no wider than double")
    want = np.arctan2(y.astype(wide), x.astype(wide))
    got = host.filled("atan2", [y, x], x.shape, dtype)
    numbers = ~np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got), ~numbers)
    np.testing.assert_array_equal(np.signbit(got)[numbers], np.signbit(want)[numbers])
    unit = np.spacing(np.abs(want[numbers]).astype(dtype)).astype(wide)
    assert np.max(np.abs(got[numbers].astype(wide) - want[numbers]) / unit) <= 1.8


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_powers_that_are_roots_and_products(host: Host, dtype: str) -> None:
    x, _ = pairs(dtype)
    with np.errstate(all="ignore"):
        wanted = {0.5: np.sqrt(x), -0.5: 1 / np.sqrt(x), 3: x * x * x, 2: x * x, -1: 1 / x}
    for exponent, want in wanted.items():
        got = host.filled("pow", [x, exponent], x.shape, dtype)
        np.testing.assert_array_equal(got, want.astype(dtype), err_msg=str(exponent))
