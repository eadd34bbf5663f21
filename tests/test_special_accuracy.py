"""Accuracy of rabbet.special against mpmath: errors of at most 4 ulps in float64 and 2 ulps in float32.

tools/write_special_values.py writes the reference values to special_values.json. Near a zero of a function, an ulp is that of
the function's scale.
"""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import rabbet
import rabbet.special
from special_points import POINTS, points

VALUES = json.loads((Path(__file__).parent / "special_values.json").read_text())
BOUND = {"float64": 4.0, "float32": 2.0}
# Functions of an int and a tensor, with the position of the int.
NUMBERS = {"polygamma": 0, "multigammaln": 1}


def computed(name: str, dtype: str, given: list[tuple[float, ...]]) -> np.ndarray:
    columns = [np.array(column, dtype) for column in zip(*given, strict=True)]
    f = getattr(rabbet.special, name)
    if name not in NUMBERS:
        return f(*(rabbet.from_numpy(c) for c in columns)).numpy().astype(np.float64)
    out = np.empty(len(given))
    place = NUMBERS[name]
    for n in np.unique(columns[place]):
        at = columns[place] == n
        x = rabbet.from_numpy(columns[1 - place][at])
        out[at] = (f(int(n), x) if place == 0 else f(x, int(n))).numpy()
    return out


def errors(name: str, dtype: str) -> tuple[np.ndarray, list[tuple[float, ...]]]:
    """In units of the last place, and where; values that are not finite count as infinitely wrong."""
    pairs = list(zip(points(name, dtype), VALUES[f"{name} {dtype}"], strict=True))
    known = [(p, v) for p, v in pairs if v is not None]
    got = computed(name, dtype, [p for p, _ in known])
    high, rest, unit = (np.array(c) for c in zip(*(v for _, v in known), strict=True))
    scaled = np.ldexp(got - high, -unit.astype(int))
    found = np.abs(scaled - rest / 1000)
    return np.where(np.isfinite(got), found, math.inf), [p for p, _ in known]


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("name", POINTS)
def test_a_function_stays_within_its_bound(name: str, dtype: str) -> None:
    found, where = errors(name, dtype)
    assert len(found) >= 10
    worst = int(found.argmax())
    assert found[worst] <= BOUND[dtype], f"{name}{where[worst]}: {found[worst]:.2f}"


@pytest.mark.parametrize("level", ["2", "3"])
def test_lower_levels_of_instructions(level: str) -> None:
    """Repeat the test at lower levels; a CPU whose best level is one of them runs that level twice."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command += [__file__, "-k", "stays_within"]
    done = subprocess.run(
        command, env={**os.environ, "RABBET_CPU_LEVEL": level}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:]


EDGES = {
    "bessel_j0": [1, 1, 0, 0], "bessel_j1": [0, -0.0, 0, -0.0], "bessel_y0": [-math.inf, -math.inf, 0, math.nan],
    "bessel_y1": [-math.inf, -math.inf, 0, math.nan], "i0": [1, 1, math.inf, math.inf],
    "i1": [0, -0.0, math.inf, -math.inf], "i0e": [1, 1, 0, 0], "i1e": [0, -0.0, 0, -0.0],
    "modified_bessel_k0": [math.inf, math.inf, 0, math.nan], "modified_bessel_k1": [math.inf, math.inf, 0, math.nan],
    "scaled_modified_bessel_k0": [math.inf, math.inf, 0, math.nan],
    "scaled_modified_bessel_k1": [math.inf, math.inf, 0, math.nan], "spherical_bessel_j0": [1, 1, 0, 0],
    "airy_ai": [0.3550280538878172, 0.3550280538878172, 0, 0], "erf": [0, -0.0, 1, -1], "erfc": [1, 1, 0, 2],
    "erfcx": [1, 1, 0, math.inf], "erfinv": [0, -0.0, math.nan, math.nan], "ndtr": [0.5, 0.5, 1, 0],
    "log_ndtr": [-math.log(2), -math.log(2), -0.0, -math.inf], "ndtri": [-math.inf, -math.inf, math.nan, math.nan],
    "gammaln": [math.inf, math.inf, math.inf, math.inf], "digamma": [-math.inf, math.inf, math.inf, math.nan],
    "logit": [-math.inf, -math.inf, math.nan, math.nan], "expit": [0.5, 0.5, 1, 0], "entr": [0, 0, -math.inf, -math.inf],
    "exp2": [1, 1, math.inf, 0], "expm1": [0, -0.0, math.inf, -1], "log1p": [0, -0.0, math.inf, math.nan],
}  # fmt: skip


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("name", EDGES)
def test_zeros_infinities_and_nan(name: str, dtype: str) -> None:
    x = np.array([0.0, -0.0, math.inf, -math.inf, math.nan], dtype)
    got = getattr(rabbet.special, name)(rabbet.from_numpy(x)).numpy()
    want = np.array([*EDGES[name], math.nan], dtype)
    np.testing.assert_allclose(got, want, 4 * np.finfo(dtype).eps)
    zero = want == 0
    if "bessel" not in name and name != "airy_ai":
        assert np.array_equal(np.signbit(got[zero]), np.signbit(want[zero]))
