"""Rows in tensors large enough to be stored past the caches, and indices along them, against NumPy."""

from collections.abc import Callable

import numpy as np
import pytest
import rabbet
import rabbet.nn.functional as F

ROWS, WIDTH = 1024, 1024  # 4 MB of float32
rng = np.random.default_rng(5)


def normal(*shape: int, dtype: str = "float32") -> np.ndarray:
    return rng.normal(size=shape).astype(dtype)


ROW_OPS: dict[str, Callable[[rabbet.Tensor], rabbet.Tensor]] = {
    "softmax": lambda x: rabbet.softmax(x, -1),
    "log_softmax": lambda x: rabbet.log_softmax(x, -1),
    "layer_norm": lambda x: F.layer_norm(x, (x.shape[1],)),
    "rms_norm": lambda x: F.rms_norm(x, (x.shape[1],)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("width", [WIDTH, 1003])
@pytest.mark.parametrize("name", ROW_OPS)
def test_large_results_have_the_bits_of_small_ones(name: str, width: int, dtype: str) -> None:
    x, g = normal(ROWS, width, dtype=dtype), normal(ROWS, width, dtype=dtype)

    def both(rows: slice) -> tuple[np.ndarray, np.ndarray]:
        t = rabbet.tensor(x[rows], requires_grad=True)
        y = ROW_OPS[name](t)
        y.backward(rabbet.tensor(g[rows]))
        return y.detach().numpy(), t.grad.numpy()

    value, gradient = both(slice(None))
    for begin in (0, 8, ROWS - 8):
        part = slice(begin, begin + 8)
        small, small_gradient = both(part)
        np.testing.assert_array_equal(value[part], small)
        np.testing.assert_array_equal(gradient[part], small_gradient)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int16"])
@pytest.mark.parametrize("width", [WIDTH, 1000, 20000, 7])
def test_indices_along_rows(dtype: str, width: int) -> None:
    rows = 64
    x, index = (100 * normal(rows, width)).astype(dtype), rng.integers(0, width, (rows, width))
    at, t = rabbet.tensor(index), rabbet.tensor(x)
    np.testing.assert_array_equal(rabbet.gather(t, 1, at).numpy(), np.take_along_axis(x, index, 1))
    part = rabbet.gather(t, 1, at[:9, : width // 2]).numpy()
    np.testing.assert_array_equal(part, np.take_along_axis(x[:9], index[:9, : width // 2], 1))
    source = (10 * normal(rows, width)).astype("int16").astype(dtype)
    want = x.astype("float64")
    np.add.at(want, (np.arange(rows)[:, None], index), source)
    got = rabbet.scatter_add(t, 1, at, rabbet.tensor(source)).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-2)
    order = rng.permuted(np.tile(np.arange(width), (rows, 1)), axis=1)
    want = np.empty_like(x)
    np.put_along_axis(want, order, source, 1)
    got = rabbet.scatter(t, 1, rabbet.tensor(order), rabbet.tensor(source)).numpy()
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
@pytest.mark.parametrize("shape,dim", [((300, 1024), 0), ((3, 40, 33), 1), ((5, 20000), 0)])
def test_whole_rows_at_indices(shape: tuple[int, ...], dim: int, dtype: str) -> None:
    x = (3 * normal(*shape)).astype("int16").astype(dtype)
    index = rng.integers(0, shape[dim], 2 * shape[dim])
    source = np.take(x, index, dim)
    t, at, s = rabbet.tensor(x), rabbet.tensor(index), rabbet.tensor(source)
    np.testing.assert_array_equal(rabbet.index_select(t, dim, at).numpy(), source)
    want = x.copy()
    for i, k in enumerate(index):  # in the order of the index
        place = (slice(None),) * dim + (k,)
        step = source[(slice(None),) * dim + (i,)]
        want[place] = want[place] | step if dtype == "bool" else want[place] + step
    np.testing.assert_array_equal(rabbet.index_add(t, dim, at, s).numpy(), want)
    t.index_add_(dim, at, s)
    np.testing.assert_array_equal(t.numpy(), want)


@pytest.mark.parametrize("bad", [-1, 1024, 2**62, -(2**63)])
def test_an_index_out_of_range_raises_and_changes_nothing(bad: int) -> None:
    index = np.zeros((64, 1024), "int64")
    index[37, 900] = bad
    at, line = rabbet.tensor(index), rabbet.tensor(index[37])
    x, table = rabbet.ones(64, 1024), rabbet.ones(1024, 64)
    calls: list[Callable[[], object]] = [
        lambda: rabbet.gather(x, 1, at),
        lambda: rabbet.gather(x.to(rabbet.float64), 1, at),
        lambda: rabbet.index_select(table, 0, line),
        lambda: x.scatter_(1, at, x + 1),
        lambda: x.scatter_add_(1, at, x + 1),
        lambda: table.index_add_(0, line, table + 1),
        lambda: F.embedding(line, table),
    ]
    for call in calls:
        with pytest.raises(IndexError, match=r"out of range for dimension . with size 1024"):
            call()
    assert (x.numpy() == 1).all() and (table.numpy() == 1).all()


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("rows,n,k", [(9, 1024, 10), (3, 5000, 1), (2, 60000, 50), (4, 900, 900)])
def test_topk_of_rows_with_ties_and_nan(rows: int, n: int, k: int, largest: bool) -> None:
    plain = normal(rows, n)
    special = plain.copy()
    special[:, ::7], special[:, 3], special[:, 5] = np.nan, np.inf, -np.inf
    rising = np.sort(plain, 1)
    for x in (plain, np.round(2 * plain), special, rising, -rising, np.zeros_like(plain)):
        rank = np.where(
            np.isnan(x), np.finfo("float64").max, np.clip(x.astype("float64"), -1e9, 1e9)
        )
        order = np.argsort(-rank if largest else rank, 1, kind="stable")[:, :k]
        values, indices = rabbet.topk(rabbet.tensor(x), k, -1, largest)
        np.testing.assert_array_equal(indices.numpy(), order)
        np.testing.assert_array_equal(values.numpy(), np.take_along_axis(x, order, 1))


@pytest.mark.parametrize("dim", [[0], [1], [0, 2], [0, 1, 2]])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_logsumexp(dim: list[int], dtype: str) -> None:
    x = (10 * normal(30, 700, 5)).astype(dtype)
    top = x.max(tuple(dim), keepdims=True).astype("float64")
    want = np.log(np.exp(x - top).sum(tuple(dim), keepdims=True)) + top
    got = rabbet.logsumexp(rabbet.tensor(x), dim, True).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-12 if dtype == "float64" else 1e-5)
    if dtype != "int64":
        t = rabbet.tensor(x, requires_grad=True)
        rabbet.logsumexp(t, dim).sum().backward()
        np.testing.assert_allclose(t.grad.numpy(), np.exp(x - want), rtol=1e-4, atol=1e-12)


def test_logsumexp_of_extremes_and_bad_arguments() -> None:
    inf, nan = np.inf, np.nan
    x = np.array(
        [[-inf, -inf], [inf, 1], [nan, 1], [-inf, 2], [inf, -inf], [1000, -1000]], "float32"
    )
    want = [-inf, inf, nan, 2, inf, 1000]
    np.testing.assert_array_equal(rabbet.logsumexp(rabbet.tensor(x), 1).numpy(), want)
    columns = rabbet.tensor(np.repeat(x.T, 5, 1))
    np.testing.assert_array_equal(rabbet.logsumexp(columns, 0).numpy(), np.repeat(want, 5))
    with pytest.raises(IndexError, match="dim 2 is out of range"):
        rabbet.logsumexp(columns, 2)
    with pytest.raises(TypeError):
        rabbet.logsumexp(columns, "0")
