"""Reductions, scans, softmax, sorting and moments against NumPy and SciPy."""

import itertools
from typing import Any

import numpy as np
import pytest
from native_host import ARG, Host, KernelError, assert_close, layouts, random_array, wide

special = pytest.importorskip("scipy.special")

SHAPES: list[tuple[int, ...]] = [
    (),
    (5,),
    (4, 6),
    (2, 3, 4, 5),
    (1, 7, 1),
    (0, 3),
    (1000,),
    (300, 200),
    (70000,),
    (70000, 3),
]
DTYPES = ["float32", "float64", "float16", "int64", "uint8", "bool", "complex64"]


def cases(shape: tuple[int, ...]) -> list[tuple[tuple[int, ...] | None, bool]]:
    sizes = range(1, min(len(shape), 3) + 1)
    dims = [c for k in sizes for c in itertools.combinations(range(len(shape)), k)]
    return list(itertools.product([None, *dims], (False, True)))


def count(shape: tuple[int, ...], dim: tuple[int, ...] | None) -> int:
    return int(np.prod([shape[d] for d in (range(len(shape)) if dim is None else dim)]))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_reductions_match_numpy(host: Host, dtype: str, shape: tuple[int, ...]) -> None:
    x = random_array(np.random.default_rng(1), dtype, shape)
    kind = x.dtype.kind
    scale = 10 * max(1.0, x.size**0.5)  # the sum's own magnitude
    for view, (dim, keepdim) in itertools.product(
        layouts(x) if x.size < 1000 else [x], cases(shape)
    ):
        w = wide(view)
        n = count(shape, dim)

        def check(op: str, want: Any, *args: Any, out: str = dtype, scale: float = 3.0) -> None:
            want = np.asarray(want)
            got = host.filled(op, args or [view, dim, keepdim], want.shape, out)  # noqa: B023
            assert_close(got, want, scale)

        check("any", np.any(view, axis=dim, keepdims=keepdim), out="bool")
        check("all", np.all(view, axis=dim, keepdims=keepdim), out="bool")
        if host.supports("sum", dtype) and x.dtype.itemsize > 1:
            check("sum", np.sum(w, axis=dim, keepdims=keepdim), scale=scale)
        if kind in "fc" and n:
            check("mean", np.mean(w, axis=dim, keepdims=keepdim), scale=10)
        if kind in "fc" and n > 1:
            out = "float32" if dtype == "complex64" else dtype
            check(
                "var",
                np.var(w, axis=dim, ddof=1, keepdims=keepdim),
                view,
                dim,
                1,
                keepdim,
                out=out,
                scale=20,
            )
        if kind != "c" and n:
            check("amax", np.max(w, axis=dim, keepdims=keepdim))
            check("amin", np.min(w, axis=dim, keepdims=keepdim))
        if kind != "c" and n and dim is not None and len(dim) == 1:
            (d,) = dim
            for op, find in (("argmax", np.argmax), ("argmin", np.argmin)):
                check(op, find(view, axis=d, keepdims=keepdim), view, d, keepdim, out="int64")
            want = np.max(view, axis=d, keepdims=keepdim)
            values, indices = np.empty(want.shape, dtype), np.empty(want.shape, "int64")
            host.run("max.dim", [view, d, keepdim], [values, indices])
            np.testing.assert_array_equal(values, want)
            np.testing.assert_array_equal(indices, np.argmax(view, axis=d, keepdims=keepdim))


@pytest.mark.parametrize("place", [0, 3, 599])
def test_nan_is_the_extreme(host: Host, place: int) -> None:
    x = np.random.default_rng(2).normal(size=(4, 600)).astype(np.float32)
    x[2, place] = np.nan
    assert np.isnan(host.filled("amax", [x, [1], False], (4,), "float32")).tolist() == [
        False,
        False,
        True,
        False,
    ]
    assert host.filled("argmin", [x, 1, False], (4,), "int64")[2] == place
    assert np.isnan(host.filled("amin", [x, [0], False], (600,), "float32")).sum() == 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_extremes_of_runs_with_special_values(host: Host, dtype: str) -> None:
    rng = np.random.default_rng(1)
    for n in (15, 63, 64, 65, 130, 515):
        for first, second in [(np.inf, -np.inf), (np.inf, np.nan), (-np.inf, np.nan), (0.0, -0.0)]:
            x = -rng.uniform(1, 2, n).astype(dtype)
            a, b = rng.choice(n, 2, replace=False)
            x[a], x[b] = first, second
            for run, op in [(x, "amax"), (-x, "amin")]:
                want = (run.max if op == "amax" else run.min)()
                np.testing.assert_array_equal(host.filled(op, [run, [0]], (), dtype), want)


INTEGERS = ["bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_long_runs_and_columns_of_integers(host: Host, dtype: str) -> None:
    rng = np.random.default_rng(4)
    low, high = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    for shape in [(1, 3), (5, 63), (7, 64), (2, 257), (130, 5), (9, 700)]:
        x = rng.integers(
            low, high, shape, dtype="int64" if dtype == "bool" else dtype, endpoint=True
        )
        x = x.astype(dtype)
        for dim in ((0,), (1,), (0, 1)):
            kept = tuple(n for d, n in enumerate(shape) if d not in dim)
            for op, want in (("amax", x.max(dim)), ("amin", x.min(dim))):
                np.testing.assert_array_equal(host.filled(op, [x, dim], kept, dtype), want)
            want = x.astype("int64").sum(dim)  # modulo 2 ** 64
            np.testing.assert_array_equal(host.filled("sum", [x, dim], kept, "int64"), want)


def test_products_keep_the_range_of_double(host: Host) -> None:
    x = np.tile(np.array([1e30, 1e-30], "float32"), 100)  # beyond float32 after two factors
    got = host.filled("prod.dim", [x, 0], (), "float32")
    np.testing.assert_allclose(got, np.prod(x.astype("float64")), rtol=1e-6)


@pytest.mark.parametrize("op,dim", [("amax", [0]), ("argmin", 0)])
def test_extremes_of_nothing_are_an_error(host: Host, op: str, dim: Any) -> None:
    with pytest.raises(
        KernelError, match=f"{op}: cannot reduce over a dimension of size 0"
    ) as caught:
        host.filled(
            op,
            [np.zeros((0, 3), np.float32), dim, False],
            (3,),
            "float32" if op == "amax" else "int64",
        )
    assert caught.value.code == ARG


def test_results_do_not_depend_on_threads(host: Host) -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(3, 70001)).astype(np.float32)
    a, b = (
        rng.normal(size=(130, 300)).astype(np.float32),
        rng.normal(size=(300, 257)).astype(np.float32),
    )
    found = []
    for threads in (1, 2, 5):
        host.lib.set_threads(threads)
        found.append(
            [
                host.filled("sum", [x, None, False], (), "float32"),
                host.filled("sum", [x, [1], False], (3,), "float32"),
                host.filled("var", [x.T, [0], 1, False], (3,), "float32"),
                host.filled("matmul", [a, b], (130, 257), "float32"),
            ]
        )
    host.lib.set_threads(2)
    for other in found[1:]:
        for p, q in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(p, q)


def test_float32_sum_is_accurate(host: Host) -> None:
    x = np.random.default_rng(4).uniform(size=1_000_003).astype(np.float32)
    got = host.filled("sum", [x, None, False], (), "float32")
    assert abs(float(got) - x.astype(np.float64).sum()) <= np.spacing(got)


LINES: list[tuple[tuple[int, ...], int]] = [
    ((5,), 0),
    ((4, 1000), 1),
    ((70, 9), 1),
    ((3, 40, 300), 1),
    ((5, 40, 3), 1),
    ((4, 7), 0),
    ((2, 3, 4), 1),
    ((), 0),
    ((3, 0), 1),
]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("shape,dim", LINES, ids=str)
def test_softmax_and_derivatives(host: Host, shape: tuple[int, ...], dim: int, dtype: str) -> None:
    rng = np.random.default_rng(5)
    x, g = random_array(rng, dtype, shape), random_array(rng, dtype, shape)
    axis = dim if shape else None
    for view in layouts(x):
        if x.size == 0:
            assert host.filled("softmax", [view, dim], shape, dtype).shape == shape
            continue
        soft, log = special.softmax(wide(view), axis), special.log_softmax(wide(view), axis)
        assert_close(host.filled("softmax", [view, dim], shape, dtype), soft)
        assert_close(host.filled("log_softmax", [view, dim], shape, dtype), log, 3)
        y, z = soft.astype(dtype), log.astype(dtype)
        d_soft = host.filled("softmax_vjp", [g, np.asarray(y), dim], shape, dtype)
        assert_close(
            d_soft, wide(y) * (wide(g) - np.sum(wide(g) * wide(y), axis, keepdims=True)), 10
        )
        d_log = host.filled("log_softmax_vjp", [g, np.asarray(z), dim], shape, dtype)
        assert_close(d_log, wide(g) - np.exp(wide(z)) * np.sum(wide(g), axis, keepdims=True), 10)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "complex128"])
@pytest.mark.parametrize("shape,dim", LINES, ids=str)
def test_scans(host: Host, shape: tuple[int, ...], dim: int, dtype: str) -> None:
    rng = np.random.default_rng(6)
    x = random_array(rng, dtype, shape)
    for view in layouts(x):
        w = wide(view)
        assert_close(
            host.filled("cumsum", [view, dim], shape, dtype), np.cumsum(w, dim) if shape else w, 50
        )
        with np.errstate(all="ignore"):
            want = np.cumprod(w, dim) if shape else w
            assert_close(host.filled("cumprod", [view, dim], shape, dtype), want, 50)


def test_affine_scan(host: Host) -> None:
    rng = np.random.default_rng(7)
    a, b = rng.uniform(-1, 1, (3, 50, 2)), rng.normal(size=(3, 50, 2))
    want, r = np.empty_like(b), np.zeros((3, 2))
    for k in range(50):
        r = a[:, k] * r + b[:, k]
        want[:, k] = r
    assert_close(host.filled("affine_scan", [a, b, 1], a.shape, "float64"), want, 10)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint8", "bool"])
def test_sort_is_stable_with_nan_last(host: Host, dtype: str, descending: bool) -> None:
    x = random_array(np.random.default_rng(8), dtype, (6, 90))
    if x.dtype.kind == "f":
        x[2, 5:8] = np.nan
    for view, dim in itertools.product(layouts(x), (0, 1)):
        values, indices = np.empty(x.shape, dtype), np.empty(x.shape, "int64")
        host.run("sort", [view, dim, descending, True], [values, indices])
        key = wide(view) if x.dtype.kind == "f" else view.astype(np.int64)
        key = np.where(np.isnan(key), np.inf, key) if x.dtype.kind == "f" else key
        want = np.argsort(-key if descending else key, dim, kind="stable")
        np.testing.assert_array_equal(indices, want)
        np.testing.assert_array_equal(values, np.take_along_axis(view, want, dim))
