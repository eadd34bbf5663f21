"""Distances between rows: the kernels beside definitions in NumPy, at all orders, dtypes and sizes."""

import math

import numpy as np
import pytest
import rabbet
from rabbet.nn import functional as F

ORDERS = [0.0, 0.5, 1.0, 2.0, 3.0, math.inf]


def distances(x, y, p):
    d = np.abs(x[..., :, None, :] - y[..., None, :, :])
    if p == 0:
        return (d != 0).sum(-1).astype(float)
    if p == math.inf:
        return d.max(-1, initial=0)
    return (d**p).sum(-1) ** (1 / p)


def rows(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.parametrize("dtype", [rabbet.float32, rabbet.float64])
@pytest.mark.parametrize(
    "left,right,m", [(1, 1, 1), (5, 33, 7), (130, 65, 3), (6, 4, 600), (3, 70, 0)]
)
def test_distances_are_norms_of_differences(p, dtype, left, right, m):
    x, y = rows(left, m), rows(right, m, seed=1)
    found = rabbet.cdist(rabbet.tensor(x, dtype=dtype), rabbet.tensor(y, dtype=dtype), p)
    tolerance = 1e-5 if dtype is rabbet.float32 else 1e-12
    np.testing.assert_allclose(found.numpy(), distances(x, y, p), tolerance, tolerance)


@pytest.mark.parametrize("p", ORDERS)
def test_leading_dimensions_broadcast_and_strides_are_kept(p):
    x, y = rows(3, 1, 4, 5), rows(2, 6, 5, seed=1)
    given = rabbet.tensor(np.swapaxes(x, -1, -2).copy()).transpose(-1, -2), rabbet.tensor(y)
    found = rabbet.cdist(*given, p)
    assert found.shape == (3, 2, 4, 6)
    np.testing.assert_allclose(found.numpy(), distances(x, y, p), 1e-12)


@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.parametrize("dtype", [rabbet.float16, rabbet.bfloat16])
def test_distances_of_16_bits_are_rounded_once(p, dtype):
    x, y = (rabbet.tensor(rows(9, 20, seed=k), dtype=dtype) for k in range(2))
    assert rabbet.equal(rabbet.cdist(x, y, p), rabbet.cdist(x.float(), y.float(), p).to(dtype))


def test_a_nan_is_in_the_distances_of_its_row_alone():
    x = rabbet.tensor(rows(5, 40))
    x[2, 17] = math.nan
    for p in (0.5, 1.0, 2.0, math.inf):
        found = rabbet.cdist(x, rabbet.tensor(rows(7, 40, seed=1)), p).isnan()
        assert found.any(1).tolist() == found.all(1).tolist() == [False, False, True, False, False]


@pytest.mark.parametrize("p", ORDERS[1:])
def test_gradients_of_distances(p):
    x = rabbet.tensor(rows(2, 3, 9), requires_grad=True)
    y = rabbet.tensor(rows(4, 9, seed=1), requires_grad=True)
    rabbet.autograd.gradcheck(lambda x, y: rabbet.cdist(x, y, p), (x, y))
    if p > 1:
        rabbet.autograd.gradgradcheck(lambda x, y: rabbet.cdist(x, y, p), (x, y))


@pytest.mark.parametrize("p", ORDERS)
def test_equal_rows_have_no_gradient(p):
    x = rabbet.ones(3, 20, requires_grad=True)
    rabbet.cdist(x, rabbet.ones(4, 20), p).sum().backward()
    assert bool((x.grad == 0).all())


def test_every_largest_difference_has_the_gradient():
    x = rabbet.tensor([[3.0, -3.0, 1.0]], requires_grad=True)
    rabbet.cdist(x, rabbet.zeros(1, 3), math.inf).sum().backward()
    assert x.grad.tolist() == [[1.0, -1.0, 0.0]]


@pytest.mark.parametrize("dtype", [rabbet.float16, rabbet.bfloat16])
def test_gradients_of_16_bits_are_rounded_once(dtype):
    g, x, y = (
        rabbet.tensor(rows(*shape, seed=k), dtype=dtype)
        for k, shape in enumerate([(6, 5), (6, 20), (5, 20)])
    )
    d = rabbet.cdist(x, y)
    found = rabbet.ops.cdist_backward(g, x, y, 2.0, d)
    want = rabbet.ops.cdist_backward(g.float(), x.float(), y.float(), 2.0, d.float())
    assert rabbet.equal(found, want.to(dtype))


@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_distances_of_pairs_of_rows(p, count):
    x = rows(count, 5)
    first, second = np.triu_indices(count, 1)
    found = F.pdist(rabbet.tensor(x), p)
    np.testing.assert_allclose(found.numpy(), distances(x, x, p)[first, second], 1e-12)


@pytest.mark.parametrize(
    "call,message",
    [
        (lambda: rabbet.cdist(rabbet.ones(2, 3), rabbet.ones(2, 4)), "m differs"),
        (lambda: rabbet.cdist(rabbet.ones(3), rabbet.ones(2, 3)), "x1"),
        (lambda: rabbet.cdist(rabbet.ones(2, 3), rabbet.ones(2, 3), -1.0), "non-negative p"),
        (lambda: rabbet.cdist(rabbet.ones(2, 3), rabbet.ones(2, 3), 2.0, "x"), "x is not a valid"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises((RuntimeError, ValueError), match=f"cdist.*{message}"):
        call()
