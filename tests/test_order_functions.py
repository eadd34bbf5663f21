"""Medians, quantiles, modes, running extremes beside NumPy, with NaN, ties, gradients and refusals."""

import math

import numpy as np
import pytest
import rabbet

nan, inf = math.nan, math.inf
INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def numbers(*shape, seed=0):
    return np.random.RandomState(seed).randn(*shape)


@pytest.mark.parametrize("n", [1, 4, 7])
def test_medians_are_the_lower_middle(n):
    a = numbers(3, n)
    values, indices = rabbet.tensor(a).median(1)
    np.testing.assert_array_equal(values.numpy(), np.sort(a, 1)[:, (n - 1) // 2])
    np.testing.assert_array_equal(np.take_along_axis(a, indices.numpy()[:, None], 1)[:, 0], values)
    assert rabbet.tensor(a).median().item() == np.sort(a.ravel())[(3 * n - 1) // 2]
    kept = rabbet.median(rabbet.tensor(a), dim=0, keepdim=True)
    assert kept.values.shape == kept.indices.shape == (1, n)


def test_medians_beside_nan():
    x = rabbet.tensor([[3.0, nan, 1.0, nan], [nan, nan, nan, nan], [4.0, 1.0, 2.0, 3.0]])
    values, indices = x.median(1)
    assert indices.tolist() == [1, 0, 2] and values[:2].isnan().all() and values[2] == 2
    values, indices = x.nanmedian(1)
    assert indices.tolist()[::2] == [2, 2] and values[0] == 1 and values[1].isnan()
    assert x.median().isnan() and x.nanmedian() == 2
    assert rabbet.median(rabbet.empty(0)).isnan()


def test_the_gradient_of_a_median_is_shared_by_ties():
    x = rabbet.tensor([2.0, 1.0, 2.0, 5.0], requires_grad=True)
    x.median().backward()
    assert x.grad.tolist() == [0.5, 0, 0.5, 0]
    x.grad = None
    x.median(0).values.backward()
    assert x.grad.sum() == 1 and sorted(x.grad.tolist())[-1] == 1


@pytest.mark.parametrize("k", [1, 3, 5])
def test_the_kth_value(k):
    a = numbers(4, 5)
    for dim in (0, 1, -1):
        if k <= a.shape[dim]:
            values, indices = rabbet.tensor(a).kthvalue(k, dim)
            want = np.take(np.sort(a, dim), k - 1, dim)
            np.testing.assert_array_equal(values.numpy(), want)
            at = np.expand_dims(indices.numpy(), dim)
            np.testing.assert_array_equal(np.take_along_axis(a, at, dim).squeeze(dim), want)


def test_the_mode_is_the_smallest_of_the_most_frequent():
    stats = pytest.importorskip("scipy.stats")
    a = np.random.RandomState(3).randint(0, 4, (5, 9))
    for dim in (0, 1):
        values, indices = rabbet.tensor(a).mode(dim)
        np.testing.assert_array_equal(values.numpy(), stats.mode(a, axis=dim).mode)
        at = np.expand_dims(indices.numpy(), dim)
        np.testing.assert_array_equal(np.take_along_axis(a, at, dim).squeeze(dim), values)
        last = a.shape[dim] - 1 - np.argmax(np.flip(a == np.expand_dims(values, dim), dim), dim)
        np.testing.assert_array_equal(indices.numpy(), last)
    assert rabbet.tensor([True, False, True]).mode().values.item() is True


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize("dim", [None, 0, -1])
def test_quantiles(interpolation, dim):
    a = numbers(6, 5)
    x = rabbet.tensor(a)
    for q in (0.0, 0.3, 0.77, 1.0):
        got = rabbet.quantile(x, q, dim, interpolation=interpolation).numpy()
        np.testing.assert_allclose(got, np.quantile(a, q, axis=dim, method=interpolation), 1e-12)
    q = np.array([0.1, 0.5, 0.9])
    got = x.quantile(rabbet.tensor(q), dim, True, interpolation=interpolation)
    want = np.quantile(a, q, axis=dim, method=interpolation, keepdims=True)
    np.testing.assert_allclose(got.numpy(), want, 1e-12)


def test_quantiles_beside_nan():
    a = numbers(4, 6)
    a[0, 2] = a[2, 1] = a[2, 4] = nan
    x = rabbet.tensor(a)
    got = x.quantile(0.4, 1).numpy()
    assert np.isnan(got[[0, 2]]).all() and np.isfinite(got[[1, 3]]).all()
    np.testing.assert_allclose(x.nanquantile(0.4, 1).numpy(), np.nanquantile(a, 0.4, 1), 1e-12)
    got = x.nanquantile(rabbet.tensor([0.2, 0.8], dtype=rabbet.float64), 1).numpy()
    np.testing.assert_allclose(got, np.nanquantile(a, [0.2, 0.8], 1), 1e-12)


@pytest.mark.parametrize("n", [1, 2, 5, 64, 100])
def test_running_extremes(n):
    a = np.random.RandomState(n).randint(0, 9, (3, n)).astype(float)
    for name, ref in (("cummax", np.maximum), ("cummin", np.minimum)):
        for x, dim in ((a, 1), (a.T.copy(), 0)):
            values, indices = getattr(rabbet, name)(rabbet.tensor(x), dim)
            np.testing.assert_array_equal(values.numpy(), ref.accumulate(x, dim))
            same = np.take_along_axis(x, indices.numpy(), dim)
            np.testing.assert_array_equal(same, values.numpy())
    tied = rabbet.tensor([1, 1, 0, 1]).cummax(0)
    assert tied.indices.tolist() == [0, 1, 1, 3]
    tied = rabbet.tensor([2.0, nan, 3.0, nan, 1.0]).cummax(0)
    assert tied.indices.tolist() == [0, 1, 1, 3, 3] and tied.values[1:].isnan().all()


def test_logarithms_of_running_sums():
    a = numbers(3, 40) * 50
    want = np.logaddexp.accumulate(a, 1)
    got = rabbet.tensor(a).logcumsumexp(1)
    np.testing.assert_allclose(got.numpy(), want, 1e-12)
    x = rabbet.tensor([-inf, 1.0, -inf, 2.0])
    np.testing.assert_allclose(
        x.logcumsumexp(0).numpy(), [-inf, 1, 1, math.log(math.e + math.e**2)], 1e-6
    )


def test_neighbours_without_repetitions():
    x = rabbet.tensor([1, 1, 2, 2, 2, 1, 3])
    output, inverse, counts = rabbet.unique_consecutive(x, True, True)
    assert output.tolist() == [1, 2, 1, 3] and counts.tolist() == [2, 3, 1, 1]
    assert inverse.tolist() == [0, 0, 1, 1, 1, 2, 3]
    rows = rabbet.tensor([[1, 2], [1, 2], [3, 4], [1, 2]])
    output, inverse = rows.unique_consecutive(return_inverse=True, dim=0)
    assert output.tolist() == [[1, 2], [3, 4], [1, 2]] and inverse.tolist() == [0, 0, 1, 2]
    assert rows.unique_consecutive(dim=-1).shape == (4, 2)
    assert rabbet.unique_consecutive(rabbet.empty(0)).shape == (0,)


def test_sorting_the_first_dimension():
    a = numbers(5, 3)
    np.testing.assert_array_equal(rabbet.msort(rabbet.tensor(a)).numpy(), np.sort(a, 0))


three = rabbet.tensor([1.0, 2.0, 3.0])
REFUSED = {
    "median": lambda: rabbet.median(rabbet.empty(0, 2), 0),
    "median complex": lambda: rabbet.median(rabbet.ones(3, dtype=rabbet.complex64)),
    "kthvalue 4": lambda: three.kthvalue(4),
    "kthvalue 0": lambda: three.kthvalue(0),
    "kthvalue empty": lambda: rabbet.empty(0).kthvalue(1),
    "mode": lambda: rabbet.empty(2, 0).mode(),
    "quantile number": lambda: three.quantile(1.5),
    "quantile tensor": lambda: three.quantile(rabbet.tensor([0.5, -0.1])),
    "quantile matrix": lambda: three.quantile(rabbet.ones(1, 1)),
    "quantile dtype": lambda: three.quantile(rabbet.tensor([0.5]).double()),
    "quantile half": lambda: three.half().quantile(0.5),
    "quantile integers": lambda: three.long().quantile(0.5),
    "quantile empty": lambda: rabbet.empty(0).quantile(0.5),
    "nanquantile empty": lambda: rabbet.empty(0).nanquantile(0.5),
    "cummax": lambda: rabbet.ones(3, dtype=rabbet.complex64).cummax(0),
    "logcumsumexp": lambda: rabbet.tensor([1, 2]).logcumsumexp(0),
    "unique_consecutive": lambda: rabbet.empty(0, 2).unique_consecutive(dim=1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(name):
    with pytest.raises((RuntimeError, IndexError, TypeError)) as error:
        REFUSED[name]()
    assert name.split()[0] in str(error.value)


def test_the_interpolation_is_one_of_five():
    with pytest.raises((RuntimeError, ValueError), match="cubic"):
        three.quantile(0.5, interpolation="cubic")
