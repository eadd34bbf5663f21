"""Elementwise kernels against NumPy and SciPy: dtypes, layouts, broadcasting, special values, errors."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import rabbet
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from native_host import (
    ARG,
    DTYPES,
    NOTIMPL,
    TYPE,
    BFloat16,
    Host,
    KernelError,
    assert_close,
    layouts,
    random_array,
    wide,
)

special = pytest.importorskip("scipy.special")

REAL_OR_COMPLEX: dict[str, Callable[[Any], Any]] = {
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "neg": np.negative,
}
REAL: dict[str, Callable[[Any], Any]] = {
    "erf": special.erf,
    "erfc": special.erfc,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.rint,
    "relu": lambda x: np.maximum(x, 0),
    "sign": np.sign,
    "gelu": lambda x: x * special.ndtr(x),
    "abs": np.abs,
}
# What their records decompose, with kernels of the decomposition for floats.
DECOMPOSED = {"rsqrt", "reciprocal", "sigmoid", "silu"}
POSITIVE = {"log", "log2", "log10", "log1p", "sqrt", "rsqrt"}
UNIT = {"asin", "acos"}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
}
DIVIDING: dict[str, Callable[[Any, Any], Any]] = {"remainder": np.remainder, "fmod": np.fmod}
NUMPY_DTYPES = [d for d in DTYPES if d != "bfloat16"]
TO_BOOL = {"eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor"}


def inputs(op: str, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    x = random_array(np.random.default_rng(3), dtype, shape)
    if np.dtype(dtype).kind == "f" and op in POSITIVE:
        return np.asarray(np.abs(x) + x.dtype.type(1e-3))
    if np.dtype(dtype).kind == "f" and op in UNIT:
        return np.asarray(np.tanh(x))
    return x


def extra(op: str) -> list[Any]:
    return {"round": [0], "gelu": ["none"], "add": [1], "sub": [1]}.get(op, [])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("op", [*REAL_OR_COMPLEX, *REAL])
def test_unary_matches_numpy(host: Host, op: str, dtype: str) -> None:
    if op in REAL and dtype.startswith("complex"):
        pytest.skip("not defined for complex numbers")
    formula = {**REAL_OR_COMPLEX, **REAL}[op]
    if op in DECOMPOSED and dtype.startswith("complex"):  # no kernel: core runs the decomposition
        x = inputs(op, dtype, (7, 5))
        assert_close(rabbet.ops(op)(rabbet.tensor(x)).numpy(), formula(wide(x)), scale=6)
        return
    for shape in [(1000,), (7, 5), (), (0, 3)]:
        for x in layouts(inputs(op, dtype, shape)):
            got = host.filled(op, [x, *extra(op)], x.shape, dtype)
            assert_close(got, formula(wide(x)), scale=3)


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
@pytest.mark.parametrize("op", [*BINARY, *DIVIDING])
def test_binary_matches_numpy(host: Host, op: str, dtype: str) -> None:
    if not host.supports(op, dtype):
        pytest.skip("the kernel says so in its dtype mask")
    rng = np.random.default_rng(4)
    for left, right in [
        ((6, 7), (6, 7)),
        ((6, 7), (7,)),
        ((6, 1), (1, 7)),
        ((), (4,)),
        ((70000,), (70000,)),
        ((0, 3), (3,)),
    ]:
        y = random_array(rng, dtype, right)
        if op in DIVIDING:
            y = np.asarray(np.where(y == 0, np.ones_like(y), y))
        for x in layouts(random_array(rng, dtype, left))[: 4 if left != (70000,) else 1]:
            shape = np.broadcast_shapes(left, right)
            got = host.filled(op, [x, y, *extra(op)], shape, "bool" if op in TO_BOOL else dtype)
            formula = {**BINARY, **DIVIDING}[op]
            want = formula(x, y) if op in TO_BOOL or dtype == "bool" else formula(wide(x), wide(y))
            assert_close(got, want, scale=4)


@given(
    shapes=hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=4, max_side=5),
    dtype=st.sampled_from(["int32", "float32", "complex128", "uint8"]),
    data=st.data(),
)
@settings(max_examples=60, deadline=None)
def test_mul_broadcasts_any_strides(
    host: Host, shapes: Any, dtype: str, data: st.DataObject
) -> None:
    rng = np.random.default_rng(0)
    pair = []
    for shape in shapes.input_shapes:
        order = data.draw(st.permutations(range(len(shape))))
        base = random_array(rng, dtype, tuple(shape[i] for i in order))
        pair.append(np.transpose(base, np.argsort(order)) if shape else base)
    got = host.filled("mul", pair, shapes.result_shape, dtype)
    assert_close(got, pair[0] * pair[1])


def test_numbers_stand_for_tensors(host: Host) -> None:
    x = np.float32([1.5, -2.0, 3.0])
    assert_close(host.filled("add", [x, 2, 1], (3,), "float32"), x + 2)
    assert_close(host.filled("sub", [1.0, x, 3], (3,), "float32"), 1 - 3 * x)
    assert_close(host.filled("pow", [x, 2], (3,), "float32"), x**2)
    assert_close(host.filled("pow", [2.0, x], (3,), "float32"), 2**x)
    assert_close(host.filled("clamp", [x, -1.0, 2.0], (3,), "float32"), np.clip(x, -1, 2))
    assert_close(host.filled("clamp", [x, None, 2.0], (3,), "float32"), np.minimum(x, 2))


def test_in_place_on_an_input(host: Host) -> None:
    x = np.arange(100, dtype=np.float32)
    want = x * x
    host.run("mul", [x, x], [x])
    assert_close(x, want)


def test_nan_wins_and_signs_stay(host: Host) -> None:
    x, y = np.float32([np.nan, 1, -0.0, np.inf]), np.float32([1, np.nan, 2, np.nan])
    for op in ("maximum", "minimum"):
        assert np.isnan(host.filled(op, [x, y], (4,), "float32")[[0, 1, 3]]).all()
    assert np.isnan(host.filled("relu", [x], (4,), "float32")[0])
    assert np.isnan(host.filled("clamp", [x, 0.0, 1.0], (4,), "float32")[0])


@pytest.mark.parametrize("op", ["exp", "log", "log2", "tanh", "sigmoid", "sin", "cos", "erf"])
def test_float32_functions_stay_within_3_ulp(host: Host, op: str) -> None:
    rng = np.random.default_rng(1)
    x = np.concatenate(
        [rng.uniform(-80, 80, 50000), rng.normal(size=50000), rng.normal(size=5000) * 1e-4]
    ).astype(np.float32)
    x = np.abs(x) + np.float32(1e-30) if op in POSITIVE else x
    got = host.filled(op, [x], x.shape, "float32").astype(np.float64)
    want = {**REAL_OR_COMPLEX, **REAL}[op](x.astype(np.float64))
    normal = np.abs(want) > 1e-37
    error = np.abs(got - want)[normal] / np.spacing(np.abs(want[normal]).astype(np.float32))
    assert error.max() < 3.0


def test_float32_functions_at_the_edges(host: Host) -> None:
    x = np.float32([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 1e-40, 3e38, 88.9, -150])
    with np.errstate(all="ignore"):
        for op in ("exp", "log", "log2", "tanh", "sigmoid"):
            want = REAL_OR_COMPLEX[op](x.astype(np.float64)).astype(np.float32)
            assert_close(host.filled(op, [x], x.shape, "float32"), want.astype(np.float64))


def test_bfloat16_rounds_once(host: Host) -> None:
    rng = np.random.default_rng(2)
    x, y = BFloat16(rng.normal(size=1000)), BFloat16(rng.normal(size=1000))
    out = BFloat16(np.zeros(1000))
    host.run("mul", [x, y], [out])
    np.testing.assert_array_equal(out.bits, BFloat16(x.float32() * y.float32()).bits)


@pytest.mark.parametrize("source", NUMPY_DTYPES)
@pytest.mark.parametrize("target", NUMPY_DTYPES)
def test_cast_matches_numpy(host: Host, source: str, target: str) -> None:
    x = random_array(np.random.default_rng(6), source, (6, 7))
    if np.dtype(target).kind == "u":
        x = np.asarray(x.real if np.dtype(source).kind == "c" else x)
        x = np.abs(x.astype(np.float64)).astype(
            source
        )  # negative floats to unsigned are undefined in C
    for layout in layouts(x):
        with np.errstate(all="ignore"):
            want = (
                layout.real
                if np.dtype(source).kind == "c" and np.dtype(target).kind not in "cb"
                else layout
            ).astype(target)
        np.testing.assert_array_equal(host.filled("cast", [layout, 0], (6, 7), target), want)


def test_float16_conversions_are_exact(host: Host) -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    np.testing.assert_array_equal(
        host.filled("cast", [every, 0], every.shape, "float32"), every.astype(np.float32)
    )
    rng = np.random.default_rng(7)
    x = (rng.normal(size=50000) * 10.0 ** rng.uniform(-9, 6, 50000)).astype(np.float32)
    x = np.concatenate(
        [x, np.float32([65504, 65519.99, 65520, np.inf, np.nan, 6e-8, 2.98e-8, 2.99e-8])]
    )
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(
            host.filled("cast", [x, 0], x.shape, "float16"), x.astype(np.float16)
        )


def test_float16_roundings_and_nan_bits_in_runs_of_every_length(host: Host) -> None:
    """The instructions round as half.h does, at each position of a run."""
    edges = np.float32([65504, 65519.99, 65520, -np.inf, 6e-8, 2.98e-8, 2.99e-8, -1e-45, 6.1e-5])
    nans = np.array([0x7F800001, 0x7FC12345, 0xFFBFFFFF, 0x7FA02000], np.uint32)
    quiet = np.uint16(0x7E00) | (nans >> 16 & 0x8000 | nans >> 13 & 0x3FF).astype(np.uint16)
    with np.errstate(all="ignore"):
        want = np.concatenate([edges.astype(np.float16).view(np.uint16), quiet])
    x = np.concatenate([edges, nans.view(np.float32)])
    for n in [*range(1, 36), 530]:
        for shift in range(0, len(x), 5):
            at = (np.arange(n) + shift) % len(x)
            got = host.filled("cast", [x[at], 0], (n,), "float16").view(np.uint16)
            np.testing.assert_array_equal(got, want[at])


COMPLEX_EDGES = [0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan, 1e38, 1e-44]


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("op", ["mul", "div"])
def test_products_and_quotients_of_complex_numbers(host: Host, op: str, dtype: str) -> None:
    rng = np.random.default_rng(10)
    formula = {"mul": np.multiply, "div": np.divide}[op]
    for n in (1, 5, 8, 9, 63, 64, 65, 200):
        pairs = [(random_array(rng, dtype, (2 * n,)) + 1).astype(dtype) for _ in range(2)]
        for step in (1, 2, -2):
            x, y = (z[::step][:n] for z in pairs)
            got = host.filled(op, [x, y], (n,), dtype)
            assert_close(got, formula(wide(x), wide(y)), scale=6)
            assert_close(
                host.filled(op, [x, complex(y[0])], (n,), dtype),
                formula(wide(x), wide(y[0])),
                scale=6,
            )
    x = random_array(rng, dtype, (200,))
    want = host.filled(op, [x, x + 1], (200,), dtype)
    host.run(op, [x, x + 1], [x])
    np.testing.assert_array_equal(x, want)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_infinities(host: Host, dtype: str) -> None:
    """An infinite part makes a product infinite, unless the other number is zero or NaN, whichever block it is in."""
    every = np.array([complex(a, b) for a in COMPLEX_EDGES for b in COMPLEX_EDGES], dtype)
    x, y = (a.reshape(-1).copy() for a in np.meshgrid(every, every))
    with np.errstate(all="ignore"):
        product = host.filled("mul", [x, y], x.shape, dtype)
        quotient = host.filled("div", [x, y], x.shape, dtype)
    one_by_one = {"mul": product, "div": quotient}
    for k in range(0, len(x), 97):
        for op, whole in one_by_one.items():
            alone = host.filled(op, [x[k : k + 1], y[k : k + 1]], (1,), dtype)
            np.testing.assert_array_equal(
                alone.view(alone.real.dtype), whole[k : k + 1].view(alone.real.dtype)
            )
    infinite = [np.isinf(z.real) | np.isinf(z.imag) for z in (x, y)]
    nan = [np.isnan(z.real) & np.isnan(z.imag) | np.isnan(z) & ~i for z, i in zip((x, y), infinite)]
    some = (infinite[0] & ~nan[1] & (y != 0)) | (infinite[1] & ~nan[0] & (x != 0))
    assert some.sum() > 500
    assert (np.isinf(product.real) | np.isinf(product.imag))[some].all()
    finite = [np.isfinite(z.real) & np.isfinite(z.imag) for z in (x, y)]
    ended = infinite[0] & finite[1]
    assert (np.isinf(quotient.real) | np.isinf(quotient.imag))[ended].all()
    assert (quotient[finite[0] & infinite[1]] == 0).all()


@pytest.mark.parametrize("dtype", [d for d in DTYPES if "int" in d])
def test_shifts_by_any_count(host: Host, dtype: str) -> None:
    rng = np.random.default_rng(11)
    bits = 8 * np.dtype(dtype).itemsize
    low = -3 if np.dtype(dtype).kind == "i" else 0
    limits = np.iinfo(dtype)
    for n in (1, 7, 16, 33, 300):
        x = rng.integers(limits.min, limits.max, n, dtype, endpoint=True)
        y = rng.integers(low, min(bits + 3, limits.max), n).astype(dtype)
        inside = [0 <= int(c) < bits for c in y]
        left = [(int(a) << int(c)) % 2**bits if ok else 0 for a, c, ok in zip(x, y, inside)]
        right = [int(a) >> (int(c) if ok else bits) for a, c, ok in zip(x, y, inside)]
        got = host.filled("bitwise_left_shift", [x, y], (n,), dtype)
        assert [int(v) % 2**bits for v in got] == left
        assert [int(v) for v in host.filled("bitwise_right_shift", [x, y], (n,), dtype)] == right


def test_transposed_copies(host: Host) -> None:
    x = np.random.default_rng(8).normal(size=(3, 130, 67))
    for order in [(2, 1, 0), (0, 2, 1), (1, 0, 2)]:
        view = x.transpose(order)
        np.testing.assert_array_equal(host.filled("clone", [view], view.shape, "float64"), view)


def test_where_and_masked_fill(host: Host) -> None:
    rng = np.random.default_rng(9)
    mask, x, y = (
        random_array(rng, "bool", (4, 1, 6)),
        rng.normal(size=(4, 5, 6)),
        rng.normal(size=(5, 6)),
    )
    np.testing.assert_array_equal(
        host.filled("where", [mask, x, y], x.shape, "float64"), np.where(mask, x, y)
    )
    np.testing.assert_array_equal(
        host.filled("where", [mask, 2.0, x], x.shape, "float64"), np.where(mask, 2.0, x)
    )
    filled = host.filled("masked_fill", [x, mask, -np.inf], x.shape, "float64")
    np.testing.assert_array_equal(filled, np.where(mask, -np.inf, x))


def test_integer_division_rounds_as_asked(host: Host) -> None:
    x, y = np.array([-(2**63), 5, -7, 7]), np.array([-1, -2, 2, -2])
    np.testing.assert_array_equal(
        host.filled("div", [x, y, "floor"], (4,), "int64")[1:], [-3, -4, -4]
    )
    np.testing.assert_array_equal(
        host.filled("div", [x, y, "trunc"], (4,), "int64")[1:], [-2, -3, -3]
    )
    np.testing.assert_array_equal(host.filled("remainder", [x, y], (4,), "int64"), [0, -1, 1, -1])


INT = np.array([2, 3, -2, 0])
BAD: list[tuple[str, list[Any], int, str]] = [
    ("div", [INT, 0, "floor"], ARG, "div: integer division by zero"),
    ("remainder", [INT, np.array([1, 1, 1, 0])], ARG, "remainder: integer division by zero"),
    ("fmod", [INT, INT], ARG, "fmod: integer division by zero"),
    ("pow", [INT, -1], ARG, "pow: Integers to negative integer powers"),
    (
        "bitwise_and",
        [np.ones(4), np.ones(4)],
        NOTIMPL,
        "bitwise_and: the cpu backend has no kernel for float64",
    ),
    ("clamp", [INT, None, None], ARG, "at least one of `min` and `max`"),
    ("fill", [INT, 1j], TYPE, "a complex number does not fit into int64"),
    ("where", [INT, INT, INT], TYPE, "expected a bool condition, got int64"),
]


@pytest.mark.parametrize(
    "op,args,code,message", BAD, ids=[f"{b[0]}-{i}" for i, b in enumerate(BAD)]
)
def test_bad_input_is_an_error(
    host: Host, op: str, args: list[Any], code: int, message: str
) -> None:
    with pytest.raises(KernelError, match=message.replace("(", r"\(")) as caught:
        host.filled(op, args, (4,), args[0].dtype.name)
    assert caught.value.code == code


def streamed_bytes() -> int:
    """From how many bytes on results are streamed past the caches (csrc/common/loops.cpp)."""
    try:
        l2 = os.sysconf("SC_LEVEL2_CACHE_SIZE")
    except ValueError:
        l2 = 0
    return 8 * (l2 if l2 > 0 else 1 << 20)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(33, 70), (1, 64), (16, 16), (2, 3, 130, 67), (1100, 1500)])
def test_transposed_copies_of_any_size(host: Host, dtype: str, shape: tuple[int, ...]) -> None:
    x = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    y = np.swapaxes(x, -1, -2)
    got = host.filled("clone", [y], y.shape, dtype)
    assert got.flags.c_contiguous and np.array_equal(got, y)


@pytest.mark.parametrize("offset", [0, 1, 3])
def test_large_results_at_any_alignment(host: Host, offset: int) -> None:
    """Results that are streamed past the caches: heads, tails and in-place calls."""
    n = streamed_bytes() // 4 + 1
    base = np.random.default_rng(0).normal(size=n + 8).astype(np.float32)
    x, y = base[offset : offset + n], base[2 : 2 + n]
    out = np.zeros(n + 8, np.float32)
    host.run("mul", [x, y], [out[offset : offset + n]])
    assert np.array_equal(out[offset : offset + n], x * y)
    assert not out[:offset].any() and not out[offset + n :].any()
    z = x.copy()
    host.run("mul", [z, z], [z])
    assert np.array_equal(z, x * x)
