"""Reductions over rows and columns of any shape, scans, selections: generated shapes, threads, NaN."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from native_host import ARG, INDEX, BFloat16, Host, KernelError, assert_close, layouts, wide

RELAXED = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
FLOATS = st.sampled_from(["float32", "float64", "float16"])
SHAPES = st.lists(st.integers(0, 40), min_size=1, max_size=4).map(tuple)


def normal(seed: int, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


@RELAXED
@given(shape=SHAPES, dtype=FLOATS, layout=st.integers(0, 3), data=st.data())
def test_reductions_of_generated_shapes(
    host: Host, shape: tuple[int, ...], dtype: str, layout: int, data: Any
) -> None:
    dims = tuple(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
    keepdim = data.draw(st.booleans())
    x = normal(len(shape), dtype, shape)
    found = layouts(x)
    view = found[layout % len(found)]
    w, count = wide(x), int(np.prod([shape[d] for d in dims]))
    args = [view, dims, keepdim]

    def check(op: str, want: Any, *given: Any, scale: float = 3.0, out: str = dtype) -> None:
        got = host.filled(op, list(given) or args, np.shape(want), out)
        assert_close(got, want, scale)

    check("sum", w.sum(dims, keepdims=keepdim), scale=10 * max(1.0, count**0.5))
    check("prod.dim", w.prod(dims[0], keepdims=keepdim), view, dims[0], keepdim)
    holes = np.where(abs(w) > 1, np.nan, w).astype(dtype)
    want = np.nansum(wide(holes), dims, keepdims=keepdim)
    check("nansum", want, holes, dims, keepdim, scale=10 * max(1.0, count**0.5))
    check("any", (w > 9).any(dims, keepdims=keepdim), view > 9, dims, keepdim, out="bool")
    check("count_nonzero", np.count_nonzero(w > 0, dims), view > 0, dims, out="int64")
    if count:
        check("mean", w.mean(dims, keepdims=keepdim), scale=10)
        check("amax", w.max(dims, keepdims=keepdim))
        check("amin", w.min(dims, keepdims=keepdim))
    if count > 1:
        want = w.var(dims, ddof=1, keepdims=keepdim)
        check("var", want, view, dims, 1, keepdim, scale=20)
    if shape[dims[0]]:
        want = w.argmax(dims[0], keepdims=keepdim)
        check("argmax", want, view, dims[0], keepdim, out="int64")


@RELAXED
@given(shape=SHAPES, dtype=FLOATS, layout=st.integers(0, 3), data=st.data())
def test_lines_of_generated_shapes(
    host: Host, shape: tuple[int, ...], dtype: str, layout: int, data: Any
) -> None:
    dim = data.draw(st.integers(0, len(shape) - 1))
    x = normal(7, dtype, shape)
    found = layouts(x)
    view = found[layout % len(found)]
    w = wide(x)
    assert_close(host.filled("cumsum", [view, dim], shape, dtype), w.cumsum(dim), 20)
    if x.size:
        e = np.exp(w - w.max(dim, keepdims=True))
        want = e / e.sum(dim, keepdims=True)
        assert_close(host.filled("softmax", [view, dim], shape, dtype), want, 3)
    k = data.draw(st.integers(0, shape[dim]))
    out = tuple(k if d == dim else n for d, n in enumerate(shape))
    values, indices = np.empty(out, dtype), np.empty(out, "int64")
    host.run("topk", [view, k, dim, True, True], [values, indices])
    order = np.argsort(-w, dim, kind="stable").take(range(k), dim)
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, dim))


@pytest.mark.parametrize("shape,dim", [((3000, 37), 0), ((5, 700, 40), 1), ((2, 600, 3), 1)])
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_special_values_spread_along_columns(
    host: Host, shape: tuple[int, ...], dim: int, special: float
) -> None:
    x = normal(1, "float32", shape)
    x[(1,) * len(shape)] = special
    out = tuple(n for d, n in enumerate(shape) if d != dim)
    for op, want in (("sum", x.sum(dim)), ("amax", x.max(dim)), ("amin", x.min(dim))):
        assert_close(host.filled(op, [x, [dim], False], out, "float32"), want, 100)
    got = host.filled("argmax", [x, dim, False], out, "int64")
    np.testing.assert_array_equal(got, x.argmax(dim))
    with np.errstate(invalid="ignore"):
        want = x.var(dim, ddof=1, dtype="float64")
    assert_close(host.filled("var", [x, [dim], 1, False], out, "float32"), want, 20)
    got = host.filled("cumsum", [x, dim], shape, "float32")
    assert_close(got, x.cumsum(dim, dtype="float64"), 20)


def test_bfloat16_rows_and_columns(host: Host) -> None:
    values = normal(2, "float32", (300, 65))
    x = BFloat16(values)
    w = x.float32().astype(np.float64)
    for dim in (0, 1):
        out = BFloat16(np.empty(w.shape[1 - dim], np.float32))
        host.run("sum", [x, [dim], False], [out])
        np.testing.assert_allclose(out.float32(), w.sum(dim), rtol=2**-8, atol=2**-8)
        soft = BFloat16(np.empty(w.shape, np.float32))
        host.run("softmax", [x, dim], [soft])
        want = np.exp(w) / np.exp(w).sum(dim, keepdims=True)
        np.testing.assert_allclose(soft.float32(), want, rtol=2**-7)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("op", ["cumsum", "cumprod"])
def test_long_scans_are_split_without_a_change(host: Host, op: str, dtype: str) -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=700_003) if op == "cumsum" else 1 + 1e-3 * rng.normal(size=700_003)
    x = (x * (0.01 if op == "cumsum" else 1)).astype(dtype)
    want = getattr(np, op)(wide(x))
    found = []
    for threads in (1, 2, 4):
        host.lib.set_threads(threads)
        found.append(host.filled(op, [x, 0], x.shape, dtype))
    host.lib.set_threads(2)
    np.testing.assert_allclose(wide(found[0]), want, rtol=2e-3 if dtype == "float16" else 1e-6,
                               atol=1e-3 if dtype == "float16" else 1e-5)  # fmt: skip
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_reductions_do_not_depend_on_threads(host: Host) -> None:
    x = normal(4, "float32", (5000, 130))
    middle = x.reshape(50, 100, 130)
    calls: list[tuple[str, list[Any], tuple[int, ...], str]] = [
        ("sum", [x, [0], False], (130,), "float32"),
        ("mean", [x, [0], False], (130,), "float32"),
        ("var", [x, [0], 1, False], (130,), "float32"),
        ("sum", [middle, [0, 2], False], (100,), "float32"),
        ("prod.dim", [x, 0, False], (130,), "float32"),
        ("argmax", [x, 0, False], (130,), "int64"),
        ("softmax", [x, 0], x.shape, "float32"),
        ("cumsum", [x, 0], x.shape, "float32"),
    ]
    found = []
    for threads in (1, 2, 4):
        host.lib.set_threads(threads)
        found.append([host.filled(*call) for call in calls])
    host.lib.set_threads(2)
    for other in found[1:]:
        for p, q in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(p, q)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64"])
def test_integers_are_summed_to_int64(host: Host, dtype: str) -> None:
    x = (
        np.random.default_rng(5)
        .integers(0, 2 if dtype == "bool" else 100, (300, 257))
        .astype(dtype)
    )
    for dims in ([0], [1], None):
        axis = None if dims is None else dims[0]
        want = np.sum(x, axis, dtype="int64")
        got = host.filled("sum", [x, dims, False], want.shape, "int64")
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "int32", "uint32", "int64", "bool"]
)
def test_topk_takes_the_first_of_equals_and_nan_as_largest(
    host: Host, dtype: str, largest: bool
) -> None:
    rng = np.random.default_rng(6)
    x = rng.integers(0, 7, (4, 900)).astype(dtype)
    if x.dtype.kind == "f":
        x[1, [5, 700]] = np.nan
        x[2, ::3] = -0.0
    key = x.astype(np.float64)
    key[np.isnan(key)] = np.inf
    for k in (0, 1, 5, 200, 900):
        values, indices = np.empty((4, k), dtype), np.empty((4, k), "int64")
        host.run("topk", [x, k, 1, largest, True], [values, indices])
        want = np.argsort(-key if largest else key, 1, kind="stable")[:, :k]
        np.testing.assert_array_equal(indices, want)
        np.testing.assert_array_equal(values, np.take_along_axis(x, want, 1))


def test_topk_of_a_long_rising_run(host: Host) -> None:
    x = np.arange(100_000, dtype=np.float32)  # every element is better than all before
    values, indices = np.empty(10, "float32"), np.empty(10, "int64")
    host.run("topk", [x, 10, 0, True, True], [values, indices])
    np.testing.assert_array_equal(indices, np.arange(99_999, 99_989, -1))


@pytest.mark.parametrize("k", [-1, 6])
def test_topk_beyond_the_dimension_is_an_error(host: Host, k: int) -> None:
    with pytest.raises(KernelError, match=rf"topk: k = {k} is out of range .* size 5") as e:
        host.run("topk", [np.zeros(5), k, 0, True, True], [np.empty(1), np.empty(1, "int64")])
    assert e.value.code == ARG


def test_sort_of_a_long_run_keeps_signed_zeros(host: Host) -> None:
    x = np.random.default_rng(7).normal(size=50_000).astype(np.float32)
    x[::7], x[3::7], x[5] = 0.0, -0.0, np.nan
    values, indices = np.empty_like(x), np.empty(x.shape, "int64")
    host.run("sort", [x, 0, False, True], [values, indices])
    want = np.argsort(x, kind="stable")
    np.testing.assert_array_equal(indices, want)
    np.testing.assert_array_equal(np.signbit(values), np.signbit(x[want]))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64"])
@pytest.mark.parametrize("padding", [-1, 3])
def test_embedding_and_its_derivative(host: Host, dtype: str, padding: int) -> None:
    rng = np.random.default_rng(8)
    table = rng.integers(-9, 9, (50, 12)).astype(dtype)
    index = rng.integers(0, 50, (7, 30))
    got = host.filled("embedding", [table, index, padding], (7, 30, 12), dtype)
    np.testing.assert_array_equal(got, table[index])
    g = rng.integers(-4, 4, (7, 30, 12)).astype(dtype)
    want = np.zeros(table.shape, dtype)
    np.add.at(want, index, g * (index != padding)[..., None].astype(dtype))
    got = host.filled("embedding_backward", [g, index, [50, 12], padding], (50, 12), dtype)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("bad", [-1, 5, 2**40])
def test_embedding_refuses_an_index_before_any_write(host: Host, bad: int) -> None:
    out = np.full((2, 3), 7.0)
    with pytest.raises(
        KernelError,
        match=rf"embedding: index out of range in self: index {bad} is out of range .* size 5",
    ) as e:
        host.run("embedding", [np.zeros((5, 3)), np.array([0, bad]), -1], [out])
    assert e.value.code == INDEX
    assert (out == 7).all()


def test_writes_that_meet_do_not_depend_on_threads(host: Host) -> None:
    rng = np.random.default_rng(9)
    x, index = normal(10, "float32", (300, 400)), rng.integers(0, 300, 5000)
    rows, places = normal(11, "float32", (5000, 400)), rng.integers(0, 400, (300, 400))
    found = []
    for threads in (1, 2, 4):
        host.lib.set_threads(threads)
        found.append([
            host.filled("index_add", [x, 0, index, rows, 1], x.shape, "float32"),
            host.filled("scatter_add", [x, 1, places, x], x.shape, "float32"),
            host.filled("scatter", [x, 1, places, x], x.shape, "float32"),
            host.filled("embedding_backward", [rows, index, [300, 400], -1], x.shape, "float32"),
        ])  # fmt: skip
    host.lib.set_threads(2)
    want = x.astype(np.float64)
    np.add.at(want, index, rows)
    np.testing.assert_allclose(found[0][0], want, rtol=1e-4, atol=1e-4)
    for other in found[1:]:
        for p, q in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(p, q)
