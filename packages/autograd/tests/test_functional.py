"""autograd.functional: Jacobians, Hessians and products, beside finite differences and closed forms."""

import numpy as np
import pytest
import rabbet
from rabbet.autograd.functional import hessian, hvp, jacobian, jvp, vhp, vjp


def rand(*shape):
    return rabbet.rand(*shape, dtype=rabbet.float64)


def both(x, y):
    return x.exp().sum(dim=1), x * 2 + y.sum()


def cubes(x, y):
    return (x**3).sum() + (x * y).sum() ** 2


def finite(f, x, eps=1e-6):
    """The Jacobian of `f` at `x` by central differences."""
    columns = []
    for i in range(x.numel()):
        e = rabbet.zeros(x.numel(), dtype=x.dtype)
        e[i] = eps
        d = e.reshape(x.shape)
        columns.append((f(x + d) - f(x - d)) / (2 * eps))
    return rabbet.stack(columns, -1).reshape(*columns[0].shape, *x.shape)


def close(a, b, tolerance=1e-6):
    np.testing.assert_allclose(
        a.detach().numpy(), b.detach().numpy(), rtol=tolerance, atol=tolerance
    )


def test_a_jacobian_has_the_shapes_of_outputs_and_inputs():
    x, y = rand(2, 3), rand(4)
    (a, b), (c, d) = jacobian(both, (x, y))
    assert [tuple(t.shape) for t in (a, b, c, d)] == [(2, 2, 3), (2, 4), (2, 3, 2, 3), (2, 3, 4)]
    close(a, finite(lambda x: both(x, y)[0], x))
    close(c, finite(lambda x: both(x, y)[1], x))
    close(d, finite(lambda y: both(x, y)[1], y))
    assert not b.any() and not a.requires_grad
    close(jacobian(rabbet.sin, x.flatten()), rabbet.diag(x.flatten().cos()))
    assert jacobian(lambda x: x.sum(), x).shape == x.shape
    (only,) = jacobian(lambda x: x * 2, (x,))
    assert only.shape == (2, 3, 2, 3) and jacobian(lambda x: x[:0], rand(3)).shape == (0, 3)


def cube(x):
    return (x**3).sum()


@pytest.mark.parametrize("strategy", ["reverse-mode", "forward-mode"])
def test_ways_to_compute_jacobians_and_hessians_agree(strategy):
    x, y = rand(2, 3), rand(4)
    options = {"vectorize": True, "strategy": strategy}
    for got, want in zip(jacobian(both, (x, y), **options), jacobian(both, (x, y)), strict=True):
        for g, w in zip(got, want, strict=True):
            close(g, w)
            assert not g.requires_grad
    close(jacobian(rabbet.exp, y, **options), jacobian(rabbet.exp, y))
    assert jacobian(lambda x: rabbet.zeros(2), y, **options).tolist() == [[0] * 4] * 2
    a, b = rand(3), rand(3)
    ways = {"vectorize": True, "outer_jacobian_strategy": strategy}
    for got, want in zip(hessian(cubes, (a, b), **ways), hessian(cubes, (a, b)), strict=True):
        for g, w in zip(got, want, strict=True):
            close(g, w)
    close(hessian(cube, a, **ways), rabbet.diag(6 * a))
    assert not hessian(lambda x: x.sum(), a, **ways).any()


def test_a_jacobian_of_one_run_can_be_differentiated_again():
    x = rand(3).requires_grad_()
    j = jacobian(lambda x: x**3, x, create_graph=True, vectorize=True)
    (g,) = rabbet.autograd.grad(j.sum(), x)
    close(g, 6 * x)


def test_a_hessian_is_the_jacobian_of_the_gradient():
    x, y = rand(3), rand(3)
    (xx, xy), (yx, yy) = hessian(cubes, (x, y))
    s = (x * y).sum()
    close(xx, rabbet.diag(6 * x) + 2 * rabbet.outer(y, y))
    close(yy, 2 * rabbet.outer(x, x))
    close(xy, 2 * rabbet.outer(y, x) + 2 * s * rabbet.eye(3, dtype=x.dtype))
    close(yx, xy.t())
    close(hessian(lambda x: (x**3).sum(), x), rabbet.diag(6 * x))
    assert not hessian(lambda x: x.sum(), x).any()


def test_products_are_those_with_the_matrices():
    x, y = rand(2, 3), rand(4)
    v, w = (rand(2), rand(2, 3)), (rand(2, 3), rand(4))
    (a, _), (c, d) = jacobian(both, (x, y))
    out, found = vjp(both, (x, y), v)
    close(out[1], both(x, y)[1])
    close(found[0], rabbet.einsum("i,ijk->jk", v[0], a) + rabbet.einsum("il,iljk->jk", v[1], c))
    close(found[1], rabbet.einsum("il,ilj->j", v[1], d))
    _, found = jvp(both, (x, y), w)
    close(found[0], rabbet.einsum("ijk,jk->i", a, w[0]))
    close(found[1], rabbet.einsum("iljk,jk->il", c, w[0]) + rabbet.einsum("ilj,j->il", d, w[1]))
    x, y = rand(3), rand(3)
    u = (rand(3), rand(3))
    (xx, xy), (yx, yy) = hessian(cubes, (x, y))
    for product in (vhp, hvp):
        value, found = product(cubes, (x, y), u)
        close(value, cubes(x, y))
        close(found[0], xx @ u[0] + xy @ u[1])
        close(found[1], yx @ u[0] + yy @ u[1])


def test_a_single_number_needs_no_vector():
    x = rand(3)
    assert vjp(lambda x: x.sum(), x)[1].tolist() == [1, 1, 1]
    assert jvp(lambda x: rabbet.stack([x, x * 2]), rand(()))[1].tolist() == [1, 2]


@pytest.mark.parametrize("function", [vjp, jvp, vhp, hvp, jacobian, hessian])
def test_results_can_be_differentiated_again(function):
    x = rand(3).requires_grad_()
    v = () if function in (jacobian, hessian) else ((rand(3),) if function is not vjp else (None,))
    found = function(lambda x: (x**4).sum(), x, *v, create_graph=True)
    found = found[1] if isinstance(found, tuple) else found
    assert found.requires_grad
    (g,) = rabbet.autograd.grad(found.sum(), x)
    assert g.shape == (3,) and g.all()
    plain = function(lambda x: (x**4).sum(), x, *v)
    assert not (plain[1] if isinstance(plain, tuple) else plain).requires_grad


def test_gradients_are_taken_whatever_the_mode():
    with rabbet.no_grad():
        close(jacobian(rabbet.exp, x := rand(2)), rabbet.diag(x.exp()))
        assert vjp(lambda x: x.sum(), rand(2))[1].tolist() == [1, 1]


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda: jacobian(rabbet.exp, 3), TypeError, "The inputs given to jacobian must be either a Tensor"),
        (lambda: jacobian(lambda x: 3, rand(2)), TypeError, "The outputs of the user-provided function given to"),
        (lambda: jacobian(lambda x: rabbet.zeros(2), rand(2), strict=True), RuntimeError, "Output 0 of the user"),
        (lambda: jacobian(lambda x, y: x * 2, (rand(2), rand(2)), strict=True), RuntimeError, "independent of input 1"),
        (lambda: jacobian(rabbet.exp, rand(2), strategy="x"), AssertionError, "Expected strategy to be either"),
        (lambda: jacobian(rabbet.exp, rand(2), strict=True, vectorize=True), RuntimeError, "not supported together"),
        (lambda: jacobian(rabbet.exp, rand(2), create_graph=True, strategy="forward-mode"), NotImplementedError, "are not supported together"),
        (lambda: hessian(rabbet.exp, rand(2)), RuntimeError, "should contain a single element"),
        (lambda: hessian(lambda x: (x.sum(),), rand(2)), RuntimeError, "should return a single Tensor"),
        (lambda: vjp(rabbet.exp, rand(2)), RuntimeError, "The vector v can only be None if"),
        (lambda: jvp(rabbet.exp, rand(2)), RuntimeError, "The vector v can only be None if"),
        (lambda: vjp(rabbet.exp, rand(2), rand(3)), RuntimeError, "v has invalid size"),
        (lambda: vjp(rabbet.exp, rand(2), (rand(2), rand(2))), RuntimeError, "The given v should contain a single Tensor"),
        (lambda: vhp(lambda x: x.sum(), rand(2), 3), TypeError, "The v given to vhp must be"),
        (lambda: jacobian(rabbet.exp, [rand(2)]), TypeError, "but the given inputs has type <class 'list'>"),
        (lambda: jacobian(both, (rand(2), 3)), TypeError, "but the value at index 1 has type <class 'int'>"),
        (lambda: jacobian(lambda x: [x], rand(2)), TypeError, "the given outputs of the user-provided function has type"),
        (lambda: jacobian(rabbet.exp, rand(2), strategy="forward-mode"), NotImplementedError, "only implemented for `vectorize"),
        (lambda: jacobian(rabbet.exp, rand(2), strategy="forward-mode", strict=True), RuntimeError, "not supported together"),
        (lambda: hessian(cube, rand(2), outer_jacobian_strategy="x"), AssertionError, "Expected strategy to be either"),
        (lambda: hessian(lambda x: x.sum(), rand(2), strict=True), RuntimeError, "Output 0|jacobian of the user-provided"),
        (lambda: vjp(both, (rand(2, 3), rand(4)), (rand(2),)), RuntimeError, "invalid length: should be 2 but got 1"),
        (lambda: vjp(both, (rand(2, 3), rand(4)), (rand(2), rand(2))), RuntimeError, "Entry 1 in v has invalid size"),
        (lambda: vjp(lambda x: x * 2, rand(2).requires_grad_(), rand(2), create_graph=True, strict=True), RuntimeError, "jacobian .* independent of input 0.* when create_graph"),
        (lambda: jvp(lambda x: x * 2, rand(2).requires_grad_(), rand(2), create_graph=True, strict=True), RuntimeError, "jacobian .* independent of input 0.* when create_graph"),
        (lambda: vhp(lambda x: x.sum() * 2, rand(2), rand(2), strict=True), RuntimeError, "input 0 is independent of the input"),
        (lambda: hvp(lambda x: x.sum() * 2, rand(2), rand(2), strict=True), RuntimeError, "input 0 is independent of the input"),
        (lambda: hvp(lambda x: (x * x).sum(), rand(2).requires_grad_(), rand(2), create_graph=True, strict=True), RuntimeError, "hessian .* independent of input 0.* when create_graph"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused(call, error, text):
    with pytest.raises(error, match=text):
        call()
