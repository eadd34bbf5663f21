"""Functions of PyTorch's own database beside NumPy: correlations, places, lengths, sums to a size, copies of views."""

import numpy as np
import pytest
import rabbet

nan, inf = float("nan"), float("inf")


def numbers(*shape, seed=0):
    return np.random.RandomState(seed).randn(*shape)


def test_correlations():
    a = numbers(4, 9)
    np.testing.assert_allclose(rabbet.corrcoef(rabbet.tensor(a)).numpy(), np.corrcoef(a), 1e-12)
    z = a + 1j * numbers(4, 9, seed=1)
    np.testing.assert_allclose(rabbet.tensor(z).corrcoef().numpy(), np.corrcoef(z), 1e-12)
    assert rabbet.corrcoef(rabbet.tensor(a[0])).item() == 1
    whole = rabbet.tensor([[1, 2, 4], [3, 1, 5]])
    assert rabbet.corrcoef(whole).dtype is rabbet.float32
    x = rabbet.tensor(numbers(3, 5), requires_grad=True)
    assert rabbet.autograd.gradcheck(rabbet.corrcoef, (x,))
    with pytest.raises(RuntimeError, match=r"corrcoef: expected at most 2 dimensions.*\(2, 3, 4\)"):
        rabbet.corrcoef(rabbet.ones(2, 3, 4))


@pytest.mark.parametrize("shape", [(24,), (4, 6), (2, 3, 4)])
def test_places_of_flat_indices(shape):
    flat = np.arange(24).reshape(2, 12)[:, ::-1].copy()
    got = rabbet.unravel_index(rabbet.tensor(flat), shape)
    assert isinstance(got, tuple)
    for one, want in zip(got, np.unravel_index(flat, shape), strict=True):
        assert one.dtype is rabbet.int64
        assert one.stride() == (12 * len(shape), len(shape))
        np.testing.assert_array_equal(one.numpy(), want)


def test_places_refuse_what_has_none():
    flat = rabbet.tensor([1, 2])
    with pytest.raises(ValueError, match=r"unravel_index: .*negative"):
        rabbet.unravel_index(flat, (2, -3))
    with pytest.raises(RuntimeError, match="has no elements"):
        rabbet.unravel_index(flat, (2, 0))
    assert rabbet.unravel_index(flat[:0], (0,))[0].shape == (0,)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_lengths(dtype):
    big = np.finfo(dtype).max / 4
    a = np.array([3, 0, -5, big, 1e-30, inf, nan, nan, -inf, big], dtype)
    b = np.array([4, 0, 12, big, 1e-30, nan, 1.0, -inf, 2.0, 1.0], dtype)
    x, y = rabbet.tensor(a), rabbet.tensor(b)
    want = np.hypot(a, b)
    np.testing.assert_allclose(rabbet.hypot(x, y).numpy(), want, 4 * np.finfo(dtype).eps)
    np.testing.assert_array_equal(x.clone().hypot_(y).numpy(), x.hypot(y).numpy())
    with pytest.raises(RuntimeError, match="hypot"):
        rabbet.hypot(rabbet.tensor([1]), rabbet.tensor([2]))


def test_gradients_of_lengths():
    x, y = (rabbet.tensor(numbers(3, 4, seed=s), requires_grad=True) for s in (1, 2))
    assert rabbet.autograd.gradcheck(rabbet.hypot, (x, y))
    assert rabbet.autograd.gradgradcheck(rabbet.hypot, (x, y))


def test_sums_to_a_size():
    a = numbers(4, 3, 2)
    x = rabbet.tensor(a, requires_grad=True)
    np.testing.assert_allclose(x.sum_to_size(3, 1).detach().numpy(), a.sum((0, 2))[:, None], 1e-12)
    np.testing.assert_allclose(x.sum_to_size([]).item(), a.sum(), 1e-12)
    assert x.detach().sum_to_size(4, 3, 2).data_ptr() == x.data_ptr()
    x.sum_to_size((1, 2)).sum().backward()
    assert (x.grad == 1).all()
    for size in ((5, 3, 2), (2, 2), (1, 4, 3, 2)):
        with pytest.raises(RuntimeError, match=r"sum_to_size: size .* does not broadcast"):
            x.sum_to_size(size)


def test_copies_of_views_have_their_own_memory():
    x = rabbet.tensor(numbers(4, 6))
    pairs = [
        (rabbet.alias_copy(x), x),
        (rabbet.narrow_copy(x, 1, -4, 3), x.narrow(1, -4, 3)),
        (rabbet.unfold_copy(x, 1, 3, 2), x.unfold(1, 3, 2)),
        *zip(rabbet.unbind_copy(x, 1), x.unbind(1), strict=True),
        *zip(rabbet.split_with_sizes_copy(x, [1, 3]), x.split([1, 3]), strict=True),
    ]
    storage = x.untyped_storage().data_ptr()
    for copy, view in pairs:
        np.testing.assert_array_equal(copy.numpy(), view.numpy())
        assert copy.is_contiguous() and copy.untyped_storage().data_ptr() != storage
    with pytest.raises(RuntimeError):
        rabbet.narrow_copy(x, 1, 5, 3)
    with pytest.raises(RuntimeError):
        rabbet.split_with_sizes_copy(x, [1, 2])


def test_batched():
    x = rabbet.tensor(numbers(5, 3, 4))
    for function in (rabbet.corrcoef, lambda t: t.sum_to_size(1, 4)):
        got = rabbet.vmap(function)(x)
        want = rabbet.stack([function(t) for t in x])
        np.testing.assert_allclose(got.numpy(), want.numpy(), 1e-12)


EMPTY_OR_CONSTANT = {
    "matrix_power": (lambda x: rabbet.linalg.matrix_power(x, 0), (2, 2)),
    "householder_product": (lambda x: rabbet.linalg.householder_product(x, x.new_empty(0)), (3, 2)),
    "no householder_product": (
        lambda x: rabbet.linalg.householder_product(x, x.new_empty(0)),
        (0, 0),
    ),
    "lstsq": (lambda x: rabbet.linalg.lstsq(x, rabbet.ones(2, 1).double()).residuals, (2, 3)),
    "cumprod": (lambda x: rabbet.cumprod(x, 0), (0,)),
    "gather": (lambda x: rabbet.gather(x, 0, rabbet.empty(2, 0, dtype=rabbet.uint8)), (5,)),
}


@pytest.mark.parametrize("name", EMPTY_OR_CONSTANT)
def test_results_that_carry_no_gradient_require_grad_as_those_of_pytorch(name):
    function, shape = EMPTY_OR_CONSTANT[name]
    x = rabbet.tensor(numbers(*shape), requires_grad=True)
    out = function(x)
    assert out.requires_grad
    (grad,) = rabbet.autograd.grad(out.sum(), x, create_graph=True)
    assert (grad == 0).all() and grad.shape == x.shape
    if name in ("cumprod", "gather"):
        cotangent = rabbet.ones_like(out).requires_grad_()
        (grad,) = rabbet.autograd.grad(out, x, cotangent, create_graph=True)
        assert grad.requires_grad
