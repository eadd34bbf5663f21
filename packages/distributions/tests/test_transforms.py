"""Transforms: inverses, Jacobians by autograd, shapes, caches, chains, and the registries."""

import copy
import pickle

import numpy as np
import pytest
import rabbet
import rabbet.distributions as D
from rabbet.distributions import constraints as C


def t(x):
    return rabbet.tensor(x, dtype=rabbet.float64)


def numbers(*shape, low=0.2, high=1.5):
    return rabbet.from_numpy(np.random.default_rng(0).uniform(low, high, shape))


BIJECTIONS = {
    "affine": (D.AffineTransform(t([1.0, 2.0, 3.0]), t([0.5, -1.0, 2.0])), (3,)),
    "affine vector": (D.AffineTransform(1.0, t([0.5, -1.0, 2.0]), event_dim=1), (3,)),
    "cat": (D.CatTransform([D.ExpTransform(), D.TanhTransform()], -1, [1, 2]), (3,)),
    "stack": (D.StackTransform([D.ExpTransform(), D.TanhTransform()], -1), (2,)),
    "compose": (D.ComposeTransform([D.ExpTransform(), D.SoftplusTransform()]), (3,)),
    "corr": (D.CorrCholeskyTransform(), (6,)),
    "cdf": (D.CumulativeDistributionTransform(D.Normal(t(0.5), t(2.0))), (3,)),
    "exp": (D.ExpTransform(), (3,)),
    "inverse": (D.SigmoidTransform().inv.inv, (3,)),
    "independent": (D.IndependentTransform(D.TanhTransform(), 1), (3,)),
    "power": (D.PowerTransform(t([2.0, -1.0, 0.5])), (3,)),
    "reshape": (D.ReshapeTransform((3,), (3, 1)), (3,)),
    "sigmoid": (D.SigmoidTransform(), (3,)),
    "softplus": (D.SoftplusTransform(), (3,)),
    "tanh": (D.TanhTransform(), (3,)),
    "stick": (D.StickBreakingTransform(), (3,)),
}


def jacobian(transform, x):
    """log(abs(det)) of the matrix of derivatives, in the coordinates that determine the image."""

    def image(x):
        y = transform(x)
        if isinstance(transform, D.StickBreakingTransform):
            return y[..., :-1]
        if isinstance(transform, D.CorrCholeskyTransform):
            return D.utils.tril_matrix_to_vec(y, diag=-1)
        return y.reshape(x.shape)

    return np.linalg.slogdet(rabbet.autograd.functional.jacobian(image, x).numpy())[1]


@pytest.mark.parametrize("name", BIJECTIONS)
def test_jacobians_are_determinants(name):
    transform, shape = BIJECTIONS[name]
    x = numbers(*shape)
    y = transform(x)
    assert transform.bijective and transform.inv.bijective
    np.testing.assert_allclose(transform.inv(y).numpy(), x.numpy(), 1e-9)
    got = transform.log_abs_det_jacobian(x, y)
    np.testing.assert_allclose(got.sum().item(), jacobian(transform, x), 1e-9, 1e-12)
    back = transform.inv.log_abs_det_jacobian(y, x)
    assert rabbet.equal(back, -got)


@pytest.mark.parametrize("name", BIJECTIONS)
def test_images_lie_in_the_codomain_and_have_its_shape(name):
    transform, shape = BIJECTIONS[name]
    x = numbers(4, *shape)
    y = transform(x)
    assert transform.codomain.check(y).all() and transform.domain.check(x).all()
    assert tuple(transform.forward_shape(x.shape)) == tuple(y.shape)
    assert tuple(transform.inverse_shape(y.shape)) == tuple(x.shape)
    if name != "stack":  # whose slices keep their own Jacobians
        batch = y.shape[: y.ndim - transform.codomain.event_dim]
        assert transform.log_abs_det_jacobian(x, y).shape == batch


@pytest.mark.parametrize("name", BIJECTIONS)
def test_caches_give_back_the_very_tensor(name):
    transform, shape = BIJECTIONS[name]
    x = numbers(*shape)
    cached = transform.with_cache()
    assert cached.with_cache() is cached
    y = cached(x)
    assert cached.inv(y) is x
    assert cached(x) is y or isinstance(transform, D.ComposeTransform)


@pytest.mark.parametrize("name", sorted(set(BIJECTIONS) - {"cdf"}))
def test_transforms_are_copied_and_pickled(name):
    transform, shape = BIJECTIONS[name]
    x = numbers(*shape)
    for other in (copy.deepcopy(transform), pickle.loads(pickle.dumps(transform))):
        assert rabbet.equal(other(x), transform(x))


def test_many_to_one_transforms_have_an_inverse_of_images():
    x = numbers(2, 3, 3)
    for transform in (D.SoftmaxTransform(), D.LowerCholeskyTransform(), D.PositiveDefiniteTransform(), D.AbsTransform()):  # fmt: skip
        y = transform(x)
        assert transform.codomain.check(y).all() and not transform.bijective
        np.testing.assert_allclose(transform(transform.inv(y)).numpy(), y.numpy(), 1e-9)
        with pytest.raises(NotImplementedError):
            transform.log_abs_det_jacobian(x, y)


def test_a_sigmoid_stays_inside_the_unit_interval():
    y = D.SigmoidTransform()(t([-1e4, 1e4]))
    assert (y > 0).all() and (y < 1).all() and D.SigmoidTransform().inv(y).isfinite().all()


def test_equality():
    assert D.ExpTransform() == D.ExpTransform() and D.ExpTransform() != D.TanhTransform()
    assert D.AffineTransform(1, 2) == D.AffineTransform(1.0, t(2.0))
    assert D.AffineTransform(1, t([2.0, 3.0])) != D.AffineTransform(1, t([2.0, 4.0]))
    assert D.PowerTransform(t(2.0)) == D.PowerTransform(2.0) != D.PowerTransform(3.0)
    chain = [D.ExpTransform(), D.AffineTransform(0, 1)]
    assert D.ComposeTransform(chain) == D.ComposeTransform(list(chain))
    assert D.ExpTransform().inv == D.ExpTransform().inv != D.ExpTransform()


def test_signs():
    assert D.ComposeTransform([D.ExpTransform(), D.AffineTransform(0, -2)]).sign == -1
    assert D.AffineTransform(0, t([-1.0, 3.0])).sign.tolist() == [-1, 1]
    with pytest.raises(NotImplementedError):
        D.SoftmaxTransform().sign  # noqa: B018


CONSTRAINTS = {
    "real": (C.real, (3,)),
    "positive": (C.positive, (3,)),
    "nonnegative": (C.nonnegative, (3,)),
    "greater_than": (C.greater_than(t(-2.0)), (3,)),
    "less_than": (C.less_than(-2.0), (3,)),
    "unit_interval": (C.unit_interval, (3,)),
    "interval": (C.interval(-2.0, t([0.0, 1.0, 2.0])), (3,)),
    "half_open_interval": (C.half_open_interval(-2.0, 1.0), (3,)),
    "simplex": (C.simplex, (3,)),
    "corr_cholesky": (C.corr_cholesky, (6,)),
    "lower_cholesky": (C.lower_cholesky, (3, 3)),
    "positive_definite": (C.positive_definite, (3, 3)),
    "independent": (C.independent(C.positive, 1), (3,)),
    "cat": (C.cat([C.positive, C.unit_interval], -1, [1, 2]), (3,)),
    "stack": (C.stack([C.positive, C.less_than(0), C.real], -1), (3,)),
}


@pytest.mark.parametrize("name", CONSTRAINTS)
@pytest.mark.parametrize("registry", [D.biject_to, D.transform_to], ids=["biject_to", "transform_to"])  # fmt: skip
def test_registered_transforms_reach_the_constraint(name, registry):
    constraint, shape = CONSTRAINTS[name]
    if registry is D.biject_to and name in ("lower_cholesky", "positive_definite"):
        with pytest.raises(NotImplementedError, match=r"Cannot transform _\w+ constraints"):
            registry(constraint)
        return
    transform = registry(constraint)
    x = numbers(5, *shape, low=-2.0, high=2.0)
    y = transform(x)
    assert constraint.check(y).all()
    np.testing.assert_allclose(transform(transform.inv(y)).numpy(), y.numpy(), 1e-8, 1e-12)
    if registry is D.biject_to:
        assert transform.bijective
        assert transform.log_abs_det_jacobian(x, y).isfinite().all()


def test_own_constraints_are_registered():
    class _Even(C.Constraint):
        pass

    registry = D.constraint_registry.ConstraintRegistry()

    @registry.register(_Even)
    def make(constraint):
        return D.AffineTransform(0, 2)

    assert registry(_Even()).scale == 2
    with pytest.raises(TypeError, match="Expected constraint to be either"):
        registry.register(int, make)
    with pytest.raises(NotImplementedError, match="Cannot transform _Real constraints"):
        registry(C.real)


BAD = {
    "cache_size must be 0 or 1": lambda: D.ExpTransform(cache_size=2),
    "different numbers of elements": lambda: D.ReshapeTransform((2,), (3,)),
    "Shape mismatch": lambda: D.ReshapeTransform((2,), (1, 2)).forward_shape((3,)),
    "Too few dimensions on input": lambda: D.StickBreakingTransform().forward_shape(()),
    "not a flattened lower-diagonal number": lambda: D.CorrCholeskyTransform().forward_shape((4,)),
    "Input is not square": lambda: D.CorrCholeskyTransform().inverse_shape((4, 3)),
    "cannot be expressed as the lower": lambda: D.utils.vec_to_tril_matrix(t([1.0, 2.0])),
    r"diag \(2\) provided is outside": lambda: D.utils.tril_matrix_to_vec(t([[1.0]]), 2),
    "transforms must be a Transform or list": lambda: D.TransformedDistribution(D.Normal(0, 1), 3),
    "Please use either": lambda: D.StickBreakingTransform().__class__.event_dim.fget(
        D.ReshapeTransform((2,), (1, 2))
    ),
}


@pytest.mark.parametrize("text", BAD)
def test_bad_input(text):
    with pytest.raises(ValueError, match=text):
        BAD[text]()


def test_parts_have_to_fit():
    exp = D.ExpTransform()
    for call, text in (
        (lambda: D.CatTransform([exp, 3]), "must be Transform instances"),
        (lambda: D.CatTransform([exp], lengths=[1, 2]), "must match transforms"),
        (lambda: D.CatTransform([exp], 0, [2])(t([0.0])), r"x\.size\(0\) = 1 must equal length 2"),
        (lambda: D.StackTransform([exp], 1)(t([0.0])), "out of range for tensor with 1 dim"),
        (lambda: D.StackTransform([exp])(t([0.0, 1.0])), "must equal len"),
    ):
        with pytest.raises(AssertionError, match=text):
            call()


def test_triangles():
    matrix = numbers(2, 4, 4)
    for diag in range(-3, 1):
        vector = D.utils.tril_matrix_to_vec(matrix, diag)
        assert rabbet.equal(D.utils.vec_to_tril_matrix(vector, diag), matrix.tril(diag))
