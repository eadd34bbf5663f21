"""Each path of the kernels that index, move, search and scan, beside NumPy: sizes on both sides of what chooses a path."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import rabbet

REALS = ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool"]
nan, inf = math.nan, math.inf


def drawn(dtype: str, shape: tuple[int, ...], seed: int = 0, ties: bool = False) -> rabbet.Tensor:
    """Numbers that every dtype holds; few different ones if `ties`."""
    rng = np.random.default_rng(seed)
    high = 4 if ties else 100
    x = rng.integers(0, high, shape) - (0 if dtype in ("uint8", "bool") else high // 2)
    return rabbet.tensor(x % 2 if dtype == "bool" else x).to(getattr(rabbet, dtype))


def array(x: rabbet.Tensor) -> np.ndarray:
    return (x.double() if x.dtype is rabbet.bfloat16 else x).numpy()


def forms(x: rabbet.Tensor) -> list[rabbet.Tensor]:
    """The same values in other places in memory."""
    dims = list(range(x.ndim))
    every_second = rabbet.stack([x, x], -1).flatten(-2)[..., ::2]
    return [x, x.permute(dims[::-1]).contiguous().permute(dims[::-1]), every_second]


def same(got: rabbet.Tensor, want: Any) -> None:
    np.testing.assert_array_equal(array(got), want)


# ---- running extremes


def running(x: np.ndarray, dim: int, largest: bool) -> tuple[np.ndarray, np.ndarray]:
    lines = np.moveaxis(x, dim, -1)
    values, places = np.empty(lines.shape, x.dtype), np.empty(lines.shape, np.int64)
    for line in np.ndindex(lines.shape[:-1]):
        best = 0
        for i, v in enumerate(lines[line]):
            top = lines[line][best]
            if v != v or (v >= top if largest else v <= top):
                best = i
            values[line][i], places[line][i] = lines[line][best], best
    return np.moveaxis(values, -1, dim), np.moveaxis(places, -1, dim)


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("shape", [(3, 5), (4, 9), (9, 130), (1, 1), (7, 3, 9)], ids=str)
def test_running_extremes_of_rows_and_columns(dtype: str, shape: tuple[int, ...]) -> None:
    x = drawn(dtype, shape, 1, ties=True)
    for dim, form, name in itertools.product(range(x.ndim), forms(x), ("cummax", "cummin")):
        values, places = getattr(rabbet, name)(form, dim)
        want, at = running(array(x), dim, name == "cummax")
        same(values, want)
        same(places, at)


def test_running_extremes_beside_nan_and_zeros() -> None:
    rows = rabbet.tensor([[2.0, nan, 3.0, nan, 1.0], [0.0, -0.0, 0.0, -1.0, -0.0]])
    for x, dim in ((rows, 1), (rows.repeat(5, 1), 1), (rows.t().contiguous().repeat(1, 5), 0)):
        for name in ("cummax", "cummin"):
            values, places = getattr(x, name)(dim)
            want, at = running(x.numpy(), dim, name == "cummax")
            same(places, at)
            same(values, want)
            same(values.signbit() & ~values.isnan(), np.signbit(want) & ~np.isnan(want))


def test_the_gradient_of_a_running_maximum_goes_to_where_it_stands() -> None:
    x = rabbet.tensor([[1.0, 3.0, 2.0, 3.0], [4.0, 1.0, 5.0, 0.0]], requires_grad=True)
    values, _ = x.cummax(1)
    values.backward(rabbet.tensor([[1.0, 2.0, 4.0, 8.0], [1.0, 2.0, 4.0, 8.0]]))
    assert x.grad.tolist() == [[1, 6, 0, 8], [3, 0, 12, 0]]


@pytest.mark.parametrize("op", ["amax", "amin"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_extremes_of_rows_and_columns_of_any_length(op: str, dtype: str) -> None:
    for n in (1, 2, 5, 15, 16, 17, 31, 33, 63, 64, 65, 95, 130, 600):
        x = drawn(dtype, (3, n), n)
        want = getattr(np, op)(array(x), 1)
        same(getattr(x, op)(1), want)
        same(getattr(x.t().contiguous(), op)(0), want)
        for place in {0, n // 2, n - 1}:
            y = x.clone()
            y[1, place] = nan
            assert getattr(y, op)(1).isnan().tolist() == [False, True, False]
            assert getattr(y.t().contiguous(), op)(0).isnan().tolist() == [False, True, False]


@pytest.mark.parametrize("n", [20, 64, 100, 1000])
@pytest.mark.parametrize("op", ["amax", "amin"])
def test_the_sign_of_an_extreme_zero_follows_from_the_order_of_lanes(op: str, n: int) -> None:
    """The first element, the first zero of each of sixteen lanes and the rest are compared in turn; the last zero stays."""
    rng = np.random.default_rng(n)
    whole = n // 16 * 16
    for trial in range(20):
        row = rng.integers(1, 3, n).astype(np.float32) * (-1 if op == "amax" else 1)
        row[rng.permutation(n)[: 1 + trial % 5]] = rng.choice([0.0, -0.0], 1 + trial % 5)
        in_turn = [0]
        for lane in range(16):
            in_turn += [i for i in range(lane, whole, 16) if row[i] == 0][:1]
        in_turn += range(whole, n)
        stays = [i for i in in_turn if row[i] == 0][-1]
        got = getattr(rabbet.tensor(row), op)().numpy()
        assert got == 0 and np.signbit(got) == np.signbit(row[stays])


# ---- reductions at indices


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("include_self", [True, False])
def test_scattered_products_and_maxima(dtype: str, dim: int, include_self: bool) -> None:
    rng = np.random.default_rng(3)
    x, src = (drawn(dtype, shape, k) for k, shape in enumerate([(6, 9), (7, 11)]))
    if dtype != "bool":
        x, src = x.remainder(3), src.remainder(3)
    shape = (7, 9) if dim == 0 else (6, 11)
    index = rng.integers(0, x.shape[dim], shape)
    for reduce, join in (("prod", np.multiply), ("amax", np.maximum), ("amin", np.minimum)):
        want, reached = array(x).copy(), np.zeros(x.shape, bool)
        for place in np.ndindex(shape):
            at = (index[place], place[1]) if dim == 0 else (place[0], index[place])
            first = not include_self and not reached[at]
            value = array(src)[place]
            want[at] = value if first else join(want[at], value)
            reached[at] = True
        for form, source in zip(forms(x), forms(src), strict=True):
            got = form.scatter_reduce(
                dim, rabbet.tensor(index), source, reduce, include_self=include_self
            )
            assert got.dtype is x.dtype
            same(got, want)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_slices_are_reduced_copied_and_filled_at_indices(dim: int) -> None:
    x = drawn("float32", (40, 50, 30), 1)
    n = x.shape[dim]
    index = np.random.default_rng(2).integers(0, n, n + 7)
    shape = [n + 7 if d == dim else size for d, size in enumerate(x.shape)]
    source = drawn("float32", tuple(shape), 3)
    t = rabbet.tensor(index)
    lines = [np.moveaxis(array(v), dim, 0) for v in (x, source)]
    want = {name: lines[0].copy() for name in ("prod", "amax", "copy", "fill")}
    for i, k in enumerate(index):
        want["prod"][k] *= lines[1][i]
        want["amax"][k] = np.maximum(want["amax"][k], lines[1][i])
        want["copy"][k] = lines[1][i]
        want["fill"][k] = 7
    for name, got in {
        "prod": x.index_reduce(dim, t, source, "prod"),
        "amax": x.index_reduce(dim, t, source, "amax"),
        "copy": x.index_copy(dim, t, source),
        "fill": x.index_fill(dim, t, 7),
    }.items():
        if name == "prod":  # rounded in another order
            np.testing.assert_allclose(got.numpy(), np.moveaxis(want[name], 0, dim), 1e-6)
        else:
            same(got, np.moveaxis(want[name], 0, dim))


def test_half_precision_products_are_rounded_once() -> None:
    x = rabbet.ones(1, dtype=rabbet.bfloat16)
    src = rabbet.full((20,), 1.0078125, dtype=rabbet.bfloat16)
    got = x.scatter_reduce(0, rabbet.zeros(20, dtype=rabbet.int64), src, "prod")
    assert got.item() == rabbet.tensor(1.0078125**20, dtype=rabbet.bfloat16).item()


@pytest.mark.parametrize("reduce", ["prod", "amax"])
def test_reductions_at_places_that_are_not_there(reduce: str) -> None:
    x, src = rabbet.zeros(3, 4), rabbet.ones(2, 4)
    with pytest.raises(IndexError, match="scatter_reduce: index 3 is out of range for dimension 0"):
        x.scatter_reduce_(0, rabbet.tensor([[0] * 4, [3] * 4]), src, reduce)
    with pytest.raises(IndexError, match="scatter_reduce: index -1 is out of range"):
        x.index_reduce_(0, rabbet.tensor([0, -1]), src, reduce)
    assert (x == 0).all()


def test_an_expanded_index_reads_and_writes_slices() -> None:
    x = drawn("float32", (5, 6), 1)
    rows = rabbet.tensor([4, 0, 4])
    index = rows.unsqueeze(1).expand(3, 6)
    same(x.gather(0, index), x.numpy()[rows.numpy()])
    want = x.numpy().copy()
    want[rows.numpy()] = 2
    same(x.scatter(0, index, 2.0), want)
    columns = rabbet.tensor([1, 3]).expand(5, 2)
    same(x.gather(1, columns), x.numpy()[:, [1, 3]])
    with pytest.raises(IndexError, match="index 5 is out of range"):
        x.scatter(0, rabbet.tensor([[5]]).expand(1, 6), 2.0)


# ---- nonzero and masks


@pytest.mark.parametrize(
    "shape",
    [(5,), (1025,), (70001,), (3, 40000), (300, 7, 40), (40000, 2), (0, 3), (2, 0)],
    ids=str,
)
@pytest.mark.parametrize("density", [0.0, 0.01, 0.5, 1.0])
def test_places_of_what_is_not_zero(shape: tuple[int, ...], density: float) -> None:
    x = (np.random.default_rng(1).random(shape) < density).astype(np.float32) * 3
    want = np.argwhere(x)
    for form in forms(rabbet.tensor(x)):
        for t in (form, form.bool(), form.to(rabbet.int64)):
            got = t.nonzero()
            same(got, want)
            assert got.stride() == (1, max(len(want), 1))
    assert rabbet.tensor(3).nonzero().shape == (1, 0) and rabbet.tensor(0).nonzero().shape == (0, 0)


def test_masks_choose_and_are_written() -> None:
    rng = np.random.default_rng(2)
    x, mask = rng.normal(size=(300, 401)), rng.random((300, 401)) < 0.3
    t, m = rabbet.tensor(x), rabbet.tensor(mask)
    same(t[m], x[mask])
    same(t.t()[m.t()], x.T[mask.T])
    want = x.copy()
    want[mask] = 5
    same(rabbet.index_put(t, (m,), rabbet.tensor(5.0, dtype=t.dtype)), want)
    want[mask] = np.arange(mask.sum())
    same(rabbet.index_put(t, (m,), rabbet.arange(int(mask.sum()), dtype=t.dtype)), want)


def test_indices_that_are_broadcast_or_negative() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(6, 7, 8))
    t = rabbet.tensor(x)
    a, b, c = rng.integers(-6, 6, (3, 1)), rng.integers(-7, 7, (1, 4)), rng.integers(-8, 8, 4)
    ta, tb, tc = (rabbet.tensor(v) for v in (a, b, c))
    same(t[ta, tb], x[a, b])
    same(t[ta, :, tc], x[a, :, c])
    same(t[:, tb], x[:, b])
    same(t[:, :, tc], x[:, :, c])
    same(t.take(rabbet.tensor(a * 7)), x.ravel()[a * 7])
    index = rng.integers(0, 6, 40000)
    many = np.zeros(6)
    np.add.at(many, index, 1.0)
    ones = rabbet.ones(40000, dtype=rabbet.float64)
    same(rabbet.zeros(6, dtype=rabbet.float64).index_put((rabbet.tensor(index),), ones, True), many)


# ---- runs


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "complex64", "complex128"])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_selected_stretches(dtype: str, dim: int) -> None:
    shape = (3, 33, 40) if dim else (40, 5, 7)
    x = drawn("int32", shape, 1).to(getattr(rabbet, dtype))
    n = x.shape[dim]
    for index in (
        [2, 1, *range(n), n - 2, n - 3],
        [*range(n - 1), *range(n - 1)],
        [0, 1],
        [n - 1, 0],
        [0] * 20 + list(range(n)),
        list(range(n))[::-1],
        [1, 2, 3, 3, 4, 5],
        [],
    ):
        for form in forms(x):
            got = form.index_select(dim, rabbet.tensor(index, dtype=rabbet.int64))
            same(got, np.take(x.numpy(), np.array(index, np.int64), dim))
    big = rabbet.arange(300_000.0).reshape(3, 100_000)
    same(big.index_select(1, rabbet.arange(7, 90_000)), big.numpy()[:, 7:90_000])


@pytest.mark.parametrize("dtype", ["bool", "uint8", "float16", "float32", "float64", "complex128"])
def test_short_and_reversed_runs_are_copied(dtype: str) -> None:
    for width in (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65):
        x = drawn("bool" if dtype == "bool" else "int32", (70, 100), width).to(
            getattr(rabbet, dtype)
        )
        a = x.numpy()
        same(x[:, 3 : 3 + width].contiguous(), a[:, 3 : 3 + width])
        same(x[::2, 3 : 3 + width].flip(0), a[::2, 3 : 3 + width][::-1])
        same(x[:, :width].flip(1), a[:, :width][:, ::-1])
        same(x.flip(0, 1), a[::-1, ::-1])
        cube = x.reshape(5, 14, 100)
        same(cube[:, 1:, :width].contiguous(), a.reshape(5, 14, 100)[:, 1:, :width])
    flat = drawn("int32", (4001,), 1).to(getattr(rabbet, dtype))
    got = rabbet.unfold_copy(flat, 0, 16, 4)
    windows = np.lib.stride_tricks.sliding_window_view(flat.numpy(), 16)[::4]
    same(got, windows)
    assert got.is_contiguous()


@pytest.mark.parametrize("dtype", ["bool", "float32", "complex128"])
@pytest.mark.parametrize("name", ["tril", "triu"])
def test_triangles_of_any_strides(dtype: str, name: str) -> None:
    x = drawn("bool" if dtype == "bool" else "int32", (2, 5, 7), 1).to(getattr(rabbet, dtype))
    for diagonal in (-9, -5, -2, 0, 1, 6, 7, 20):
        want = getattr(np, name)(x.numpy(), diagonal)
        for form in forms(x):
            same(getattr(form, name)(diagonal), want)
            changed = form.clone(memory_format=rabbet.preserve_format)
            getattr(changed, name + "_")(diagonal)
            same(changed, want)
        into = rabbet.ones(7, 5, 2, dtype=x.dtype).permute(2, 1, 0)
        getattr(rabbet, name)(x, diagonal, out=into)
        same(into, want)


# ---- ranges, grids of indices, searches


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "int32", "uint8"])
def test_long_ranges(dtype: str) -> None:
    t = getattr(rabbet, dtype)
    for n, start, step in ((1500, 0, 1), (1500, 3, 2), (70000, 0, 1), (513, -5, 1)):
        end = start + n * step
        want = np.arange(start, end, step, dtype=np.float64 if "float" in dtype else np.int64)
        with np.errstate(over="ignore"):
            same(rabbet.arange(start, end, step, dtype=t), want.astype(dtype))
    exact = [0.1 + 0.3 * i for i in range(1000)]
    if dtype in ("float32", "float64"):
        same(rabbet.arange(0.1, 0.1 + 0.3 * 999.5, 0.3, dtype=t), np.array(exact, dtype))
    into = rabbet.zeros(2000, dtype=t)[::2]
    rabbet.arange(1000, out=into)
    same(into, np.arange(1000).astype(dtype))


@pytest.mark.parametrize("steps", [1, 2, 5, 511, 512, 513, 1025, 40001])
def test_even_spacing_is_exact_at_both_ends_and_symmetric(steps: int) -> None:
    got = rabbet.linspace(-3, 7.5, steps, dtype=rabbet.float64).numpy()
    step = 10.5 / (steps - 1) if steps > 1 else 0.0
    middle = (steps + 1) // 2
    up, down = np.arange(middle), np.arange(steps - middle)[::-1]
    np.testing.assert_array_equal(got, np.concatenate([-3 + step * up, 7.5 - step * down]))
    turned = rabbet.linspace(1j, 2, steps, dtype=rabbet.complex128).numpy()
    np.testing.assert_allclose(turned, np.linspace(1j, 2, steps), 1e-12)


@pytest.mark.parametrize("name", ["tril", "triu"])
@pytest.mark.parametrize(
    "size", [(3, 4), (4, 3), (1, 6), (6, 1), (0, 3), (3, 0), (50, 60)], ids=str
)
def test_indices_of_triangles(name: str, size: tuple[int, int]) -> None:
    for offset in (-70, -3, -1, 0, 2, 5, 70):
        want = getattr(np, name + "_indices")(size[0], offset, size[1])
        for dtype in (rabbet.int64, rabbet.int32):
            got = getattr(rabbet, name + "_indices")(*size, offset, dtype=dtype)
            assert got.dtype is dtype and got.is_contiguous()
            same(got, np.stack(want))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "uint8", "bool"])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 8, 9, 31, 100])
def test_searches_in_sorted_numbers(dtype: str, n: int) -> None:
    keys = drawn(dtype, (n,), n, ties=n % 2 == 0).sort()[0]
    values = drawn(dtype, (50,), 7)
    for right in (False, True):
        want = np.searchsorted(array(keys), array(values), "right" if right else "left")
        same(rabbet.searchsorted(keys, values, right=right), want)


def test_searches_beside_nan() -> None:
    keys = np.array([-inf, 0.0, 0.0, 2.0, inf, nan, nan])
    values = np.array([nan, -inf, inf, 0.0, -0.0, 1.0])
    for n, right in itertools.product(range(len(keys) + 1), (False, True)):
        got = rabbet.searchsorted(rabbet.tensor(keys[:n]), rabbet.tensor(values), right=right)
        same(got, np.searchsorted(keys[:n], values, "right" if right else "left"))


@pytest.mark.parametrize("repeat", [False, True])
def test_all_choices_in_the_order_of_places(repeat: bool) -> None:
    choose = itertools.combinations_with_replacement if repeat else itertools.combinations
    for n, r in itertools.product(range(6), range(1, 5)):
        x = rabbet.arange(n) * 10
        want = np.array(list(choose(range(0, 10 * n, 10), r)), np.int64).reshape(-1, r)
        got = rabbet.combinations(x, r, repeat)
        assert got.shape == want.shape
        same(got, want)
