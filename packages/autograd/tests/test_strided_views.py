"""Views of views: chains of any length, and views by strides, with their gradients."""

import gc

import numpy as np
import pytest
import rabbet
from rabbet import _C
from rabbet.autograd import forward_ad, grad, gradcheck, gradgradcheck
from rabbet.func import functionalize, jvp, vmap

F64 = rabbet.float64


def leaf(*shape):
    n = int(np.prod(shape))
    return rabbet.linspace(-1.0, 2.0, n, dtype=F64).reshape(shape).requires_grad_()


def strided_sum(size, stride, offset, weight):
    """The gradient of (as_strided(input) * weight).sum() by a loop over the elements."""
    memory = np.zeros(1000)
    for at in np.ndindex(*size):
        memory[offset + int(np.dot(at, stride))] += weight[at]
    return memory


@pytest.mark.parametrize(
    "shape, turned, size, stride, offset",
    [
        ((3, 4), False, (2, 3), (1, 2), None),
        ((12,), False, (3, 3), (1, 1), 2),
        ((3, 4), True, (2, 5), (3, 1), 1),
        ((4, 3), False, (), (), 5),
        ((3, 4), False, (0, 2), (1, 1), None),
        ((5,), False, (2, 3), (0, 1), None),
    ],
)
def test_as_strided_is_differentiable(shape, turned, size, stride, offset):
    x = leaf(*shape)
    weight = rabbet.linspace(0.5, 3.0, max(int(np.prod(size)), 1), dtype=F64)[: int(np.prod(size))]
    weight = weight.reshape(size)

    def f(x):
        y = x.t() if turned else x
        return y.as_strided(size, stride, offset)

    (f(x) * weight).sum().backward()
    memory = strided_sum(size, stride, offset or 0, weight.numpy())
    assert np.allclose(x.grad.numpy().reshape(-1), memory[: x.numel()])
    assert gradcheck(f, (x,)) and gradgradcheck(f, (x,))


def test_elements_that_share_a_place_share_its_gradient():
    x = leaf(3)
    wide = x.expand(2, 3)
    wide.as_strided((3,), (1,)).sum().backward()
    assert x.grad.tolist() == [1, 1, 1]


def test_as_strided_of_part_of_a_tensor():
    x = leaf(10)
    part = x[4:8]
    (
        part.as_strided((2, 2), (2, 1), 5) * rabbet.tensor([[1.0, 2], [3, 4]], dtype=F64)
    ).sum().backward()
    assert x.grad.tolist() == [
        0,
        0,
        0,
        0,
        0,
        1,
        2,
        3,
        0,
        0,
    ]  # what lies beyond the part is not its own


def test_as_strided_in_forward_mode_sees_tangents_that_lie_otherwise():
    x, t = leaf(3, 4).detach(), leaf(4, 3).detach().t()

    def f(x):
        return x.as_strided((2, 5), (3, 1), 1)

    _, made = jvp(f, (x,), (t,))
    assert np.array_equal(made.numpy(), f(t.contiguous()).numpy())
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, t)
        assert np.array_equal(forward_ad.unpack_dual(f(dual)).tangent.numpy(), made.numpy())


def test_as_strided_inside_vmap_and_functionalize():
    x = leaf(5, 3, 4).detach()

    def f(x):
        return x.as_strided((2, 3), (1, 2))

    want = rabbet.stack([f(row) for row in x.unbind()])
    assert np.array_equal(vmap(f)(x).numpy(), want.numpy())
    one = x[0].clone().requires_grad_()
    through = functionalize(lambda x: f(x) * 2)(one)
    assert np.array_equal(
        grad(through.sum(), one)[0].numpy(), 2 * grad(f(one).sum(), one)[0].numpy()
    )
    slopes = vmap(rabbet.func.grad(lambda x: f(x).sin().sum()))(x)
    for row, slope in zip(x.unbind(), slopes.unbind(), strict=True):
        row = row.clone().requires_grad_()
        assert np.allclose(slope.numpy(), grad(f(row).sin().sum(), row)[0].numpy())


def test_writes_through_strided_views_are_recorded():
    x = leaf(6)
    y = x * 1
    y.as_strided((3,), (2,)).mul_(5)
    y.sum().backward()
    assert x.grad.tolist() == [5, 1, 5, 1, 5, 1]


@pytest.mark.parametrize("links", [3, 40, 400])
def test_writes_through_a_long_chain_of_views(links):
    x = leaf(4, 6)
    y = x * 1
    view = y
    for i in range(links):
        view = view.t() if i % 3 else view.view(view.shape)
    view = view[1:3]
    for _ in range(3):
        view.mul_(2)
        view = view.view(view.shape)
    (y * rabbet.arange(24.0, dtype=F64).reshape(4, 6)).sum().backward()
    marks = np.ones((4, 6))
    (marks.T if sum(bool(i % 3) for i in range(links)) % 2 else marks)[1:3] = 8
    assert np.array_equal(x.grad.numpy(), marks * np.arange(24.0).reshape(4, 6))


def test_a_long_chain_of_views_keeps_only_its_root():
    x = rabbet.ones(4)
    gc.collect()
    before = _C.live_counts()["tensors"]
    for _ in range(10_000):
        x = x.view(4)
    assert _C.live_counts()["tensors"] - before < 40
    assert x.tolist() == [1, 1, 1, 1]


def test_writes_between_views_of_views_take_time_in_proportion():
    """8,000 steps took minutes when each replayed all views before it."""
    x = leaf(4)
    y = x * 1
    for _ in range(8_000):
        y.mul_(1.0)
        y = y.view(4)
    y.sum().backward()
    assert x.grad.tolist() == [1, 1, 1, 1]
