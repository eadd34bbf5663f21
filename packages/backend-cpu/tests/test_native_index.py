"""Indexing, movement and creation against NumPy, with the errors of bad indices."""

from typing import Any

import numpy as np
import pytest
from native_host import ARG, INDEX, TYPE, Host, KernelError, TensorList, layouts, random_array

DTYPES = ["float32", "uint8", "int16", "complex128"]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(1)


def same(got: np.ndarray, want: Any) -> None:
    np.testing.assert_array_equal(got, want)


def scattered(x: np.ndarray, dim: int, index: np.ndarray, src: Any, add: bool) -> np.ndarray:
    out = x.copy()
    places = list(np.indices(index.shape))
    places[dim] = index
    if add:
        np.add.at(out, tuple(places), src)
    else:
        out[tuple(places)] = src
    return out


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_gather_and_scatter(host: Host, rng: np.random.Generator, dim: int, dtype: str) -> None:
    base = random_array(rng, dtype, (4, 5, 6))
    index = rng.integers(0, base.shape[dim], (3, 4, 5))
    src = random_array(rng, dtype, (3, 4, 5))
    unique = np.argsort(rng.random(base.shape), dim)
    for x in layouts(base):
        part = x[tuple(slice(None) if d == dim else slice(0, n) for d, n in enumerate(index.shape))]
        same(
            host.filled("gather", [x, dim, index], index.shape, dtype),
            np.take_along_axis(part, index, dim),
        )
        added = host.filled("scatter_add", [x, dim, index, src], x.shape, dtype)
        np.testing.assert_allclose(
            added, scattered(base, dim, index, src, True), rtol=1e-5, atol=1e-5
        )
        valued = host.filled("scatter.value", [x, dim, index, 2], x.shape, dtype)
        same(valued, scattered(base, dim, index, 2, False))
        whole = random_array(rng, dtype, base.shape)
        same(
            host.filled("scatter", [x, dim, unique, whole], x.shape, dtype),
            scattered(base, dim, unique, whole, False),
        )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_index_select_and_add(host: Host, rng: np.random.Generator, dim: int, dtype: str) -> None:
    base = random_array(rng, dtype, (4, 5, 6))
    index = rng.integers(0, base.shape[dim], 7)
    shape = tuple(7 if d == dim else n for d, n in enumerate(base.shape))
    source = random_array(rng, dtype, shape)
    for x in layouts(base):
        same(host.filled("index_select", [x, dim, index], shape, dtype), np.take(base, index, dim))
        for alpha in (1, 2):
            want = np.moveaxis(base.copy(), dim, 0)
            np.add.at(want, index, np.moveaxis(source, dim, 0) * base.dtype.type(alpha))
            got = host.filled("index_add", [x, dim, index, source, alpha], x.shape, dtype)
            np.testing.assert_allclose(got, np.moveaxis(want, 0, dim), rtol=1e-5, atol=1e-5)


def test_advanced_indexing(host: Host, rng: np.random.Generator) -> None:
    base = rng.normal(size=(4, 5, 6))
    a, b, c = rng.integers(-4, 4, 3), rng.integers(-5, 5, (2, 3)), rng.integers(0, 6, 3)
    for x in layouts(base):
        for indices in (
            [a],
            [a, b],
            [None, b],
            [a, None, c],
            [None, b, c],
            [a, b, c],
            [None, None, c],
        ):
            key = tuple(slice(None) if i is None else i for i in indices)
            want = base[key]
            same(host.filled("index", [x, TensorList(indices)], want.shape, "float64"), want)
            values = rng.normal(size=want.shape[-1:])
            put = base.copy()
            np.add.at(put, key, values)
            got = host.filled(
                "index_put", [x, TensorList(indices), values, True], base.shape, "float64"
            )
            np.testing.assert_allclose(got, put)
            put = base.copy()
            put[key] = 1.5
            same(
                host.filled(
                    "index_put", [x, TensorList(indices), 1.5, False], base.shape, "float64"
                ),
                put,
            )


X = np.arange(120.0).reshape(4, 5, 6)
BAD: list[tuple[str, list[Any], int, str]] = [
    (
        "gather",
        [X, 0, np.array([[[4]]])],
        INDEX,
        "gather: index 4 is out of range for dimension 0 with size 4",
    ),
    (
        "index_select",
        [X, 1, np.array([-1])],
        INDEX,
        "index -1 is out of range for dimension 1 with size 5",
    ),
    ("scatter", [X, 0, np.array([[[9]]]), X], INDEX, "scatter: index 9 is out of range"),
    ("scatter_add", [X, 0, np.array([[[-1]]]), X], INDEX, "scatter_add: index -1"),
    ("index_add", [X, 0, np.array([4]), X[:1], 1], INDEX, "index_add: index 4"),
    ("index_put", [X, TensorList([np.array([-5])]), 1.0, False], INDEX, "index_put: index -5"),
    ("index_select", [X, 1, np.array([0.5])], TYPE, "expected indices of int64, got float64"),
    (
        "scatter",
        [X, 0, np.array([[[0]]]), X.astype("f4")],
        TYPE,
        "expected `src` of float64 like `input`, got float32",
    ),
    (
        "gather",
        [X, 0, np.zeros((1, 9, 1), int)],
        ARG,
        "gather: `index` must have as many dimensions",
    ),
    (
        "slice_scatter",
        [X, X, 1, 1, None, 2],
        ARG,
        r"expected `src` of shape \(4, 2, 6\), got \(4, 5, 6\)",
    ),
    ("slice_scatter", [X, X, 1, 1, None, 0], ARG, "`step` must be positive"),
    ("roll", [X, [1, 2], [0]], ARG, "`shifts` has 2 entries and `dims` 1"),
]


@pytest.mark.parametrize(
    "op,args,code,message", BAD, ids=[f"{b[0]}-{i}" for i, b in enumerate(BAD)]
)
def test_bad_input_changes_nothing(
    host: Host, op: str, args: list[Any], code: int, message: str
) -> None:
    out = np.full(X.shape, -7.0)
    with pytest.raises(KernelError, match=message) as caught:
        host.run(op, args, [out])
    assert caught.value.code == code
    assert (out == -7.0).all()


@pytest.mark.parametrize("dtype", ["float32", "bool", "int64", "complex64"])
def test_nonzero(host: Host, rng: np.random.Generator, dtype: str) -> None:
    x = random_array(rng, dtype, (4, 5))
    x[rng.random((4, 5)) < 0.5] = 0
    for view in layouts(x):
        same(host.run_allocating("nonzero", [view]), np.argwhere(view))
    assert host.run_allocating("nonzero", [np.array(3.0)]).shape == (1, 0)


def test_searchsorted(host: Host, rng: np.random.Generator) -> None:
    keys = np.sort(rng.normal(size=20))
    wanted = np.concatenate([rng.normal(size=30), keys[:3]])
    for right in (False, True):
        want = np.searchsorted(keys, wanted, "right" if right else "left")
        same(host.filled("searchsorted", [keys, wanted, right], (33,), "int64"), want)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int64"])
def test_searchsorted_side_by_side(host: Host, rng: np.random.Generator, dtype: str) -> None:
    """Whole blocks of searches and parts of them, in keys of every length; NaN counts as largest."""
    for n in (0, 1, 2, 3, 5, 8, 100):
        keys = rng.integers(-9, 9, n).astype(dtype)
        if dtype.startswith("float") and n > 2:
            keys[:2] = np.nan
        keys = np.sort(keys)
        for count in (1, 31, 32, 33, 3000):
            wanted = rng.integers(-11, 11, count).astype(dtype)
            if dtype.startswith("float"):
                wanted[::7] = np.nan
            for right in (False, True):
                want = np.searchsorted(keys, wanted, "right" if right else "left")
                same(host.filled("searchsorted", [keys, wanted, right], (count,), "int64"), want)


@pytest.mark.parametrize("dtype", DTYPES)
def test_movement(host: Host, rng: np.random.Generator, dtype: str) -> None:
    base = random_array(rng, dtype, (3, 4, 5))
    part, diagonal = random_array(rng, dtype, (3, 2, 5)), random_array(rng, dtype, (4, 3))
    for x in layouts(base):
        same(host.filled("flip", [x, [0, 2]], (3, 4, 5), dtype), np.flip(base, (0, 2)))
        same(
            host.filled("roll", [x, [1, -2], [0, 2]], (3, 4, 5), dtype),
            np.roll(base, (1, -2), (0, 2)),
        )
        same(host.filled("roll", [x, [7], []], (3, 4, 5), dtype), np.roll(base, 7))
        same(host.filled("tril", [x, 1], (3, 4, 5), dtype), np.tril(base, 1))
        same(host.filled("triu", [x, -1], (3, 4, 5), dtype), np.triu(base, -1))
        same(
            host.filled("cat", [TensorList([x, base]), 1], (3, 8, 5), dtype),
            np.concatenate([base, base], 1),
        )
        padded = host.filled("pad_constant", [x, [1, 0, -2, 1], 3], (3, 3, 6), dtype)
        same(padded, np.pad(base[:, 2:], ((0, 0), (0, 1), (1, 0)), constant_values=3))
        sliced = base.copy()
        sliced[:, 1::2] = part
        same(host.filled("slice_scatter", [x, part, 1, 1, None, 2], (3, 4, 5), dtype), sliced)
        crossed = base.copy()
        crossed[[0, 1, 2], :, [0, 1, 2]] = diagonal.T
        same(host.filled("diagonal_scatter", [x, diagonal, 0, 0, 2], (3, 4, 5), dtype), crossed)


def test_creation(host: Host) -> None:
    same(host.filled("arange", [1.0, 8.0, 1.0], (7,), "float32"), np.arange(1, 8))
    same(host.filled("arange", [7, None, 1], (7,), "int64"), np.arange(7))
    np.testing.assert_allclose(
        host.filled("linspace", [0.0, 1.0, 7], (7,), "float64"), np.linspace(0, 1, 7)
    )
    same(host.filled("eye", [3, 5], (3, 5), "int32"), np.eye(3, 5))
    same(host.filled("full", [(3, 5), 7], (3, 5), "uint8"), np.full((3, 5), 7))
    same(host.filled("zeros_like", [X], (2, 2), "bool"), np.zeros((2, 2)))
    same(host.filled("ones", [(2, 2)], (2, 2), "complex64"), np.ones((2, 2)))
