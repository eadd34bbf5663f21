"""Elementwise formulas as source text: what core writes is C that computes what the formula says."""

import ctypes
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rabbet import _C

# The primitives of the language in terms of libm: what a backend supplies.
PRELUDE = """
#include <math.h>
#define T double
#define RB_BODY
#define P1(name, text) static T rb_##name(T a) { return text; }
#define P2(name, text) static T rb_##name(T a, T b) { return text; }
#define T1(name, text) static int rb_##name(T a) { return text; }
#define T2(name, text) static int rb_##name(T a, T b) { return text; }
P1(neg, -a) P1(abs, fabs(a)) P1(sgn, (a > 0) - (a < 0)) P1(exp, exp(a)) P1(expm1, expm1(a)) P1(log, log(a))
P1(log2, log2(a)) P1(log10, log10(a)) P1(log1p, log1p(a)) P1(sqrt, sqrt(a)) P1(tan, tan(a)) P1(asin, asin(a))
P1(acos, acos(a)) P1(atan, atan(a)) P1(sinh, sinh(a)) P1(cosh, cosh(a)) P1(tanh, tanh(a)) P1(erf, erf(a))
P1(erfc, erfc(a)) P1(floor, floor(a)) P1(ceil, ceil(a)) P1(trunc, trunc(a)) P1(round, rint(a))
P1(relu, a < 0 ? 0 : a) P2(relu_vjp, b <= 0 ? 0 : a)
P2(add, a + b) P2(sub, a - b) P2(mul, a * b) P2(div, a / b) P2(div_floor, floor(a / b)) P2(div_trunc, trunc(a / b))
P2(remainder, a - b * floor(a / b)) P2(fmod, fmod(a, b)) P2(pow, pow(a, b)) P2(atan2, atan2(a, b)) P2(copysign, copysign(a, b))
P2(maximum, a > b ? a : b) P2(minimum, a < b ? a : b)
static T rb_clamp(T a, T b, T c) { return a < b ? b : a > c ? c : a; }
T1(isnan, isnan(a)) T1(isinf, isinf(a)) T1(isfinite, isfinite(a)) T1(logical_not, a == 0)
T2(eq, a == b) T2(ne, a != b) T2(lt, a < b) T2(le, a <= b) T2(gt, a > b) T2(ge, a >= b)
"""


@pytest.fixture(scope="module")
def bodies(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """All bodies of the C dialect, compiled."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs gcc")
    folder = tmp_path_factory.mktemp("emit")
    source, library = folder / "bodies.c", folder / "bodies.so"
    source.write_text(PRELUDE + _C.emit("c")["fused_bodies.inc"])
    flags = ["-Wall", "-Werror", "-Wno-unused-function", "-shared", "-fPIC", "-ffp-contract=off"]
    subprocess.run([compiler, *flags, str(source), "-o", str(library), "-lm"], check=True)
    return ctypes.CDLL(str(library))


def first_body(formula: str) -> tuple[int, int, int]:
    """The body that a call of tensors reaches first: its number, its operands, its numbers."""
    text = _C.emit("c")["fused_kernels.inc"]
    block = text.split(f"// {formula}\n")[1].split("\n}\n")[0]
    found = re.search(r"return (\d+);", block)
    assert found is not None
    way = block[: found.start()]
    return int(found[1]), way.count("o.in["), way.count("o.numbers[")


def call(bodies: ctypes.CDLL, formula: str, *values: float) -> float:
    number, inputs, numbers = first_body(formula)
    assert inputs + numbers == len(values)
    function = getattr(bodies, f"rb_body_{number}")
    function.restype, function.argtypes = ctypes.c_double, [ctypes.c_double] * len(values)
    return float(function(*values))


def test_bodies_compute_what_the_formulas_say(bodies: ctypes.CDLL) -> None:
    for x in (-30.0, -1.5, 0.0, 0.7, 4.0):
        s = 1 / (1 + math.exp(-x))
        assert math.isclose(call(bodies, "sigmoid", x), s, rel_tol=1e-12)
        assert math.isclose(call(bodies, "silu", x), x * s, rel_tol=1e-12)
        assert math.isclose(
            call(bodies, "mish", x), x * math.tanh(math.log1p(math.exp(x))), rel_tol=1e-9
        )
        cdf = 0.5 * (1 + math.erf(x / math.sqrt(2)))
        pdf = math.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
        assert math.isclose(
            call(bodies, "gelu.vjp.input", x, 3.0), 3 * (cdf + x * pdf), rel_tol=1e-9, abs_tol=1e-15
        )
    assert math.isclose(call(bodies, "rsqrt", 4.0), 0.5)


def test_bodies_of_long_formulas(bodies: ctypes.CDLL) -> None:
    """Those of special functions call other records, in twice the digits."""
    # Q(n, x) = exp(-x) * (1 + x + ... + x ** (n - 1) / (n - 1)!), and -P where P is smaller.
    for n, x in ((1, 0.8), (1, 40.0), (5, 7.5), (20, 22.0), (60, 61.0), (60, 170.0)):
        q = math.exp(-x) * math.fsum(x**k / math.factorial(k) for k in range(n))
        assert math.isclose(call(bodies, "incomplete_gamma", n, x), q, rel_tol=1e-14)
    assert math.isclose(call(bodies, "incomplete_gamma", 1, 0.2), math.expm1(-0.2), rel_tol=1e-14)
    for x in (-30.0, -1.5, 0.0, 0.9, 4.0):
        tail = math.erfc(abs(x) / math.sqrt(2)) / 2
        want = math.log(tail) if x < 0 else math.log1p(-tail)
        assert math.isclose(call(bodies, "log_ndtr", x), want, rel_tol=1e-14)
    for n, x in ((3, 0.25), (40, -0.9), (11, 1.5)):
        want = math.cos(n * math.acos(x)) if x <= 1 else math.cosh(n * math.acosh(x))
        assert math.isclose(call(bodies, "chebyshev", x, n), want, rel_tol=1e-12)


def test_numbers_of_the_call_are_parameters(bodies: ctypes.CDLL) -> None:
    for slope in (0.01, 2.5):
        assert call(bodies, "leaky_relu", -2.0, slope) == -2.0 * slope
        assert call(bodies, "leaky_relu", 2.0, slope) == 2.0


def test_the_same_formula_is_written_once() -> None:
    text = _C.emit("c")["fused_bodies.inc"]
    functions = re.findall(r"RB_BODY T rb_body_\d+(\(.*?\n\})", text, re.S)
    assert len(functions) == len(set(functions)) > 80


def test_both_dialects_know_the_same_formulas() -> None:
    found = [re.findall(r"// (\S+)\n", _C.emit(d)["fused_kernels.inc"]) for d in ("cpu", "c")]
    assert found[0] == found[1]


def test_the_command_writes_files_and_leaves_equal_ones(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rabbet", "emit", "--dialect", "cpu", str(tmp_path / "made")]
    subprocess.run(command, check=True)
    files = sorted((tmp_path / "made").iterdir())
    assert [f.name for f in files] == ["fused_bodies.inc", "fused_kernels.inc"]
    before = [f.stat().st_mtime_ns for f in files]
    subprocess.run(command, check=True)
    assert [f.stat().st_mtime_ns for f in files] == before


def test_an_unknown_dialect_is_an_error() -> None:
    with pytest.raises(ValueError, match="emit: dialect must be 'cpu' or 'c', got 'ptx'"):
        _C.emit("ptx")
    command = [sys.executable, "-m", "rabbet", "emit", "--dialect", "ptx", "x"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "invalid choice: 'ptx'" in done.stderr
