"""Every distribution, transform and constraint beside PyTorch."""

import itertools
import warnings

import numpy as np
import pytest
import rabbet
import rabbet.distributions as D
from distribution_cases import CASES

torch = pytest.importorskip("torch")
T = torch.distributions
PROPERTIES = (
    "mean", "mode", "variance", "stddev", "entropy", "perplexity", "batch_shape", "event_shape", "has_rsample",
    "has_enumerate_support", "scale_tril", "covariance_matrix", "precision_matrix", "probs", "logits", "param_shape",
)  # fmt: skip
REFUSALS = (ValueError, NotImplementedError, RuntimeError, TypeError, AssertionError, AttributeError)  # fmt: skip

# Pairs for which PyTorch has another rule or a worse one.
DIFFERENT = {
    (
        "Uniform",
        "ContinuousBernoulli",
    ),  # infinite there for the unit interval itself, whose divergence is finite
    ("ContinuousBernoulli", "Uniform"),  # likewise where q ends at 0 or 1
}
# Where PyTorch 2.13 fails or is less exact, and the references of test_scipy.py are the judge.
SKIPPED = {
    ("Kumaraswamy", "mode"),  # the logarithm of a negative number for concentration0 > 1
    ("Multinomial", "perplexity"),
    ("Multinomial", "entropy"),  # a logarithm in float32; an AttributeError after expand
}
FLOAT32_ONLY = {"GeneralizedPareto"}  # PyTorch compares its concentration with a float32 zero
NAMES = [name for name in CASES if name not in FLOAT32_ONLY]


def ours(x):
    return rabbet.tensor(x, dtype=rabbet.float64)


def theirs(x):
    return torch.tensor(x, dtype=torch.float64)


def both(name):
    return CASES[name](D, ours), CASES[name](T, theirs)


def outcome(call, *args):
    """What a call gives: the result as plain values, or the class of the error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return plain(call(*args))
        except REFUSALS as error:
            return next(kind for kind in REFUSALS if isinstance(error, kind))


def plain(value):
    if isinstance(value, (rabbet.Tensor, torch.Tensor)):
        return value.detach().numpy()
    return tuple(value) if isinstance(value, (rabbet.Size, torch.Size)) else value


def text(thing):
    return repr(thing).replace("rabbet.", "torch.")


def same(mine, other, what, rtol=1e-9):
    assert type(mine) is type(other), (what, mine, other)
    if isinstance(mine, np.ndarray):
        assert mine.dtype == other.dtype and mine.shape == other.shape, (what, mine, other)
        rtol, atol = (2e-6, 1e-6) if mine.dtype == np.float32 else (rtol, 1e-10)
        np.testing.assert_allclose(mine, other, rtol, atol, err_msg=str(what))
    else:
        assert mine == other, (what, mine, other)


def test_every_name_is_here():
    missing = {n for n in T.__all__ if not hasattr(D, n)}
    assert missing == set()
    assert set(T.constraints.__all__) - set(D.constraints.__all__) == {"positive_semidefinite"}
    assert set(T.transforms.__all__) == set(D.transforms.__all__)


@pytest.mark.parametrize("name", CASES)
def test_properties_and_text(name):
    mine, other = both(name)
    for what in PROPERTIES:
        if (name.split()[0], what) not in SKIPPED and (
            hasattr(type(other), what) or what in vars(other)
        ):
            got, want = (outcome(_value, d, what) for d in (mine, other))
            same(got, want, what)
    assert text(mine) == text(other)
    assert text(mine.support) == text(other.support)


def _value(distribution, what):
    value = getattr(distribution, what)
    return value() if callable(value) else value


@pytest.mark.parametrize("name", NAMES)
def test_log_prob_cdf_and_icdf(name):
    mine, other = both(name)
    rabbet.manual_seed(0)
    value = mine.sample((5,))
    value_t = torch.from_numpy(value.numpy().copy())
    same(plain(mine.log_prob(value)), plain(other.log_prob(value_t)), "log_prob")
    same(outcome(lambda: mine.cdf(value)), outcome(lambda: other.cdf(value_t)), "cdf")
    p = np.random.default_rng(0).uniform(0.05, 0.95, (5,) + tuple(mine.batch_shape))
    got = outcome(lambda: mine.icdf(rabbet.from_numpy(p)))
    same(got, outcome(lambda: other.icdf(torch.from_numpy(p))), "icdf")
    same(outcome(mine.enumerate_support), outcome(other.enumerate_support), "enumerate")
    same(
        outcome(lambda: mine.enumerate_support(False)),
        outcome(lambda: other.enumerate_support(False)),
        "enumerate",
    )


@pytest.mark.parametrize("name", NAMES)
def test_expansion(name):
    mine, other = (d.expand((3,) + tuple(d.batch_shape)) for d in both(name))
    assert text(mine) == text(other)
    assert type(mine).__name__ == type(other).__name__
    rabbet.manual_seed(0)
    value = mine.sample((2,))
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # PyTorch thinks of some Wishart numbers that they are singular
        assert tuple(value.shape) == tuple(other.sample((2,)).shape)
    value_t = torch.from_numpy(value.numpy().copy())
    same(plain(mine.log_prob(value)), plain(other.log_prob(value_t)), "log_prob")
    for what in ("mean", "variance", "entropy"):
        if (name.split()[0], what) in SKIPPED:
            continue
        same(*(outcome(_value, d, what) for d in (mine, other)), what)


@pytest.mark.parametrize("name", [n for n in NAMES if n != "Normal of numbers"])
def test_gradients_of_log_prob(name):
    found = []
    rabbet.manual_seed(1)
    value = CASES[name](D, ours).sample((3,)).numpy().copy()
    for module, framework, make in ((D, rabbet, ours), (T, torch, theirs)):
        leaves = []

        def leaf(x, make=make, leaves=leaves):
            leaves.append(make(x).requires_grad_())
            return leaves[-1]

        distribution = CASES[name](module, leaf)
        distribution.log_prob(framework.from_numpy(value)).sum().backward()
        found.append([None if x.grad is None else x.grad.numpy() for x in leaves])
    for mine, other in zip(*found, strict=True):
        if name == "Wishart of a factor" and mine.ndim == 2:
            other = np.tril(other)  # nothing depends on what is above the diagonal
        same(mine, other, name)


BAD = {
    "scale": lambda D, t: D.Normal(t([0.0, 1.0]), t([1.0, -2.0])),
    "nan": lambda D, t: D.Normal(t([0.0, float("nan")]), t([1.0, 2.0])),
    "string": lambda D, t: D.Normal("a", 1.0),
    "uniform": lambda D, t: D.Uniform(t([0.0]), t([-1.0])),
    "two": lambda D, t: D.Bernoulli(t(0.5), t(0.5)),
    "none": lambda D, t: D.Categorical(),
    "probs": lambda D, t: D.Bernoulli(t([0.5, 1.5])),
    "scalar classes": lambda D, t: D.Categorical(t(0.5)),
    "scalar logits": lambda D, t: D.Categorical(logits=t(0.5)),
    "geometric": lambda D, t: D.Geometric(t([0.5, 0.0])),
    "dirichlet": lambda D, t: D.Dirichlet(t(1.0)),
    "gamma": lambda D, t: D.Gamma(t([-1.0]), t([1.0])),
    "no matrix": lambda D, t: D.MultivariateNormal(t([0.0, 1.0])),
    "a vector": lambda D, t: D.MultivariateNormal(t([0.0, 1.0]), t([0.0, 1.0])),
    "loc": lambda D, t: D.MultivariateNormal(t(0.0), t([[1.0]])),
    "covariance": lambda D, t: D.MultivariateNormal(t([0.0, 1.0]), t([[1.0, 2.0], [2.0, 1.0]])),
    "asymmetric": lambda D, t: D.MultivariateNormal(t([0.0, 1.0]), t([[1.0, 0.2], [0.1, 1.0]])),
    "factor": lambda D, t: D.LowRankMultivariateNormal(t([0.0, 1.0]), t([[1.0]]), t([1.0, 1.0])),
    "diagonal": lambda D, t: D.LowRankMultivariateNormal(t([0.0, 1.0]), t([[1.0], [1.0]]), t([1.0])),
    "mixture": lambda D, t: D.MixtureSameFamily(D.Normal(0.0, 1.0), D.Normal(0.0, 1.0)),
    "component": lambda D, t: D.MixtureSameFamily(D.Categorical(t([0.5, 0.5])), 3),
    "components": lambda D, t: D.MixtureSameFamily(
        D.Categorical(t([0.5, 0.5])), D.Normal(t([0.0, 1.0, 2.0]), t(1.0))
    ),
    "batches": lambda D, t: D.MixtureSameFamily(
        D.Categorical(t([[0.5, 0.5]] * 3)), D.Normal(t([[0.0, 1.0]] * 2), t(1.0))
    ),
    "independent": lambda D, t: D.Independent(D.Normal(t([0.0]), t([1.0])), 2),
    "transforms": lambda D, t: D.TransformedDistribution(D.Normal(0.0, 1.0), 3),
    "transform list": lambda D, t: D.TransformedDistribution(D.Normal(0.0, 1.0), [3]),
    "too few": lambda D, t: D.TransformedDistribution(D.Normal(0.0, 1.0), D.StickBreakingTransform()),
    "dim": lambda D, t: D.LKJCholesky(1),
    "df": lambda D, t: D.Wishart(t(1.0), t([[1.0, 0.0], [0.0, 1.0]])),
    "count": lambda D, t: D.Multinomial(t(3.0), t([0.5, 0.5])),
    "support": lambda D, t: D.Exponential(t([1.0])).log_prob(t([-1.0])),
    "value": lambda D, t: D.Exponential(t([1.0])).log_prob(1.0),
    "class": lambda D, t: D.Categorical(t([0.5, 0.5])).log_prob(t(2.0)),
    "shape": lambda D, t: D.Normal(t([0.0, 1.0]), t([1.0, 1.0])).log_prob(t([0.0, 1.0, 2.0])),
    "event": lambda D, t: D.Dirichlet(t([1.0, 1.0])).log_prob(t([1.0])),
    "event of 1": lambda D, t: D.OneHotCategorical(t([0.5, 0.5])).log_prob(t([0.5, 0.5])),
    "inhomogeneous": lambda D, t: D.Binomial(t([2.0, 3.0]), t([0.5, 0.5])).enumerate_support(),
    "no closed form": lambda D, t: D.kl_divergence(D.Normal(0.0, 1.0), D.Categorical(t([0.5, 0.5]))),
    "no bregman": lambda D, t: D.kl_divergence(D.Poisson(t(1.0)), D.Normal(0.0, 1.0)),
    "events": lambda D, t: D.kl_divergence(
        D.MultivariateNormal(t([0.0]), t([[1.0]])), D.MultivariateNormal(t([0.0] * 2), t([[1.0, 0], [0, 1]]))
    ),
    "no transform": lambda D, t: D.biject_to(D.constraints.boolean),
    "no constraint": lambda D, t: D.biject_to.register(3, lambda c: None),
    "cache": lambda D, t: D.ExpTransform(cache_size=2),
    "sequence": lambda D, t: D.CatTransform([D.ExpTransform(), 3]),
    "lengths": lambda D, t: D.CatTransform([D.ExpTransform()], lengths=[1, 2]),
    "cat size": lambda D, t: D.CatTransform([D.ExpTransform()], 0, [2])(t([0.0])),
    "cat dim": lambda D, t: D.CatTransform([D.ExpTransform()], 1, [1])(t([0.0])),
    "stack size": lambda D, t: D.StackTransform([D.ExpTransform()])(t([0.0, 1.0])),
    "reshape": lambda D, t: D.ReshapeTransform((2,), (3,)),
    "reshape shape": lambda D, t: D.ReshapeTransform((2,), (1, 2)).forward_shape((3,)),
    "reshape dims": lambda D, t: D.ReshapeTransform((2, 1), (1, 2)).forward_shape((3,)),
    "corr size": lambda D, t: D.CorrCholeskyTransform().forward_shape((4,)),
    "corr square": lambda D, t: D.CorrCholeskyTransform().inverse_shape((4, 3)),
    "triangle": lambda D, t: D.utils.vec_to_tril_matrix(t([1.0, 2.0])),
    "diag": lambda D, t: D.utils.tril_matrix_to_vec(t([[1.0]]), 2),
    "dependent": lambda D, t: D.constraints.dependent.check(t(1.0)),
    "is discrete": lambda D, t: D.constraints.dependent.is_discrete,
    "event dim": lambda D, t: D.constraints.dependent.event_dim,
    "independent constraint": lambda D, t: D.constraints.independent(3, 1),
    "independent dims": lambda D, t: D.constraints.real_vector.check(t(1.0)),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_has_the_same_error(name):
    with pytest.raises(Exception) as other:
        BAD[name](T, theirs)
    with pytest.raises(type(other.value)) as mine:
        BAD[name](D, ours)
    want, got = (" ".join(str(e.value).replace("rabbet.", "torch.").split()) for e in (other, mine))
    assert got == want


PAIRS = sorted({(p.__name__, q.__name__) for p, q in T.kl._KL_REGISTRY if hasattr(D, p.__name__)})


def of_class(name):
    """The cases of a class; bounds are those of the unit interval where others need it."""
    return [case for case in CASES if case.split(" ")[0] == name]


@pytest.mark.parametrize("p,q", PAIRS)
def test_divergences(p, q):
    for a, b in itertools.product(of_class(p), of_class(q)):
        (p_mine, p_other), (q_mine, q_other) = both(a), both(b)
        got = outcome(D.kl_divergence, p_mine, q_mine)
        want = outcome(T.kl_divergence, p_other, q_other)
        mixed = ("numbers" in a) != ("numbers" in b)  # float32 and float64
        if (p, q) not in DIFFERENT and not mixed:
            same(got, want, (a, b), 1e-8)


def test_every_divergence_is_registered():
    mine = {(p.__name__, q.__name__) for p, q in D.kl._KL_REGISTRY}
    assert set(PAIRS) <= mine


TRANSFORMS = {
    "abs": (lambda D, t: D.AbsTransform(), (2, 3)),
    "affine": (lambda D, t: D.AffineTransform(t([1.0, 2.0, 3.0]), t([0.5, -1.0, 2.0])), (2, 3)),
    "affine numbers": (lambda D, t: D.AffineTransform(1.0, -2.0), (2, 3)),
    "affine vector": (lambda D, t: D.AffineTransform(1.0, t([1.0, 2.0, 3.0]), event_dim=1), (2, 3)),
    "cat": (lambda D, t: D.CatTransform([D.ExpTransform(), D.TanhTransform()], 1, [1, 2]), (2, 3)),
    "stack": (lambda D, t: D.StackTransform([D.ExpTransform(), D.TanhTransform()], 0), (2, 3)),
    "compose": (lambda D, t: D.ComposeTransform([D.ExpTransform(), D.SoftplusTransform()]), (2, 3)),
    "corr": (lambda D, t: D.CorrCholeskyTransform(), (2, 6)),
    "cdf": (lambda D, t: D.CumulativeDistributionTransform(D.Normal(t(0.5), t(2.0))), (2, 3)),
    "exp": (lambda D, t: D.ExpTransform(), (2, 3)),
    "independent": (lambda D, t: D.IndependentTransform(D.ExpTransform(), 1), (2, 3)),
    "lower": (lambda D, t: D.LowerCholeskyTransform(), (2, 3, 3)),
    "positive definite": (lambda D, t: D.PositiveDefiniteTransform(), (2, 3, 3)),
    "power": (lambda D, t: D.PowerTransform(t([2.0, -1.0, 0.5])), (2, 3)),
    "reshape": (lambda D, t: D.ReshapeTransform((3,), (3, 1)), (2, 3)),
    "sigmoid": (lambda D, t: D.SigmoidTransform(), (2, 3)),
    "softplus": (lambda D, t: D.SoftplusTransform(), (2, 3)),
    "tanh": (lambda D, t: D.TanhTransform(), (2, 3)),
    "softmax": (lambda D, t: D.SoftmaxTransform(), (2, 3)),
    "stick": (lambda D, t: D.StickBreakingTransform(), (2, 3)),
    "inverse": (lambda D, t: D.ExpTransform().inv, (2, 3)),
    "compose events": (
        lambda D, t: D.ComposeTransform([D.ExpTransform(), D.StickBreakingTransform(), D.ExpTransform()]), (2, 3),
    ),
}  # fmt: skip


def _part(transform, name, part):
    return part(getattr(transform, name))


def _transform_of(module, registry, constraint):
    return text(getattr(module, registry)(constraint))


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name):
    make, shape = TRANSFORMS[name]
    mine, other = make(D, ours), make(T, theirs)
    x = np.random.default_rng(0).uniform(0.2, 1.5, shape)
    a, b = rabbet.from_numpy(x), torch.from_numpy(x)
    y, z = mine(a), other(b)
    same(plain(y), plain(z), "forward")
    same(plain(mine.inv(y)), plain(other.inv(z)), "inverse")
    for f in (lambda t, p, q: t.log_abs_det_jacobian(p, q), lambda t, p, q: t.inv.log_abs_det_jacobian(q, p)):  # fmt: skip
        same(outcome(lambda f=f: f(mine, a, y)), outcome(lambda f=f: f(other, b, z)), "jacobian")
    for what in ("sign", "bijective", "event_dim"):
        same(*(outcome(getattr, t, what) for t in (mine, other)), what)
    for what in ("domain", "codomain"):
        for part in (text, lambda c: c.event_dim, lambda c: c.is_discrete):
            same(*(outcome(_part, t, what, part) for t in (mine, other)), what)
    assert text(mine) == text(other)
    assert tuple(mine.forward_shape(shape)) == tuple(other.forward_shape(shape))
    image = tuple(y.shape)
    assert tuple(mine.inverse_shape(image)) == tuple(other.inverse_shape(image))
    assert (mine == make(D, ours)) is (other == make(T, theirs))
    same(*(outcome(lambda t=t: t.with_cache()._cache_size) for t in (mine, other)), "cache")


CONSTRAINTS = {
    "boolean": lambda c, t: c.boolean,
    "one_hot": lambda c, t: c.one_hot,
    "nonnegative_integer": lambda c, t: c.nonnegative_integer,
    "positive_integer": lambda c, t: c.positive_integer,
    "integer_interval": lambda c, t: c.integer_interval(0, 3),
    "real": lambda c, t: c.real,
    "real_vector": lambda c, t: c.real_vector,
    "positive": lambda c, t: c.positive,
    "nonnegative": lambda c, t: c.nonnegative,
    "greater_than": lambda c, t: c.greater_than(t(0.5)),
    "greater_than_eq": lambda c, t: c.greater_than_eq(0.5),
    "less_than": lambda c, t: c.less_than(0.5),
    "multinomial": lambda c, t: c.multinomial(2),
    "unit_interval": lambda c, t: c.unit_interval,
    "interval": lambda c, t: c.interval(-1, 0.5),
    "half_open_interval": lambda c, t: c.half_open_interval(-1, 1),
    "simplex": lambda c, t: c.simplex,
    "lower_triangular": lambda c, t: c.lower_triangular,
    "lower_cholesky": lambda c, t: c.lower_cholesky,
    "corr_cholesky": lambda c, t: c.corr_cholesky,
    "square": lambda c, t: c.square,
    "symmetric": lambda c, t: c.symmetric,
    "positive_definite": lambda c, t: c.positive_definite,
    "cat": lambda c, t: c.cat([c.positive, c.real], -1, [1, 1]),
    "stack": lambda c, t: c.stack([c.positive, c.real], -1),
    "independent": lambda c, t: c.independent(c.positive, 1),
}
VALUES = [
    [[[0.0, 1.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]],
    [[[2.0, 0.5], [0.5, 1.0]], [[1.0, 2.0], [2.0, 1.0]]],
    [[[0.3, 0.7], [-1.0, 1.0]], [[float("nan"), 1.0], [0.5, 0.5]]],
    [[[1.0, 0.0], [0.6, 0.8]], [[1.0, 0.0], [0.6, -0.8]]],
]


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_constraints(name):
    mine, other = (CONSTRAINTS[name](m.constraints, make) for m, make in ((D, ours), (T, theirs)))
    assert text(mine) == text(other)
    assert (mine.is_discrete, mine.event_dim) == (other.is_discrete, other.event_dim)
    for value in VALUES:
        same(plain(mine.check(ours(value))), plain(other.check(theirs(value))), name)
    for registry in ("biject_to", "transform_to"):
        found = []
        for module, constraint in ((D, mine), (T, other)):
            found.append(outcome(_transform_of, module, registry, constraint))
        assert found[0] == found[1]
