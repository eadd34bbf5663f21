"""What all distributions share: shapes, checks, expansion, text; and what each refuses."""

import copy
import pickle
import re
import subprocess
import sys
import warnings

import pytest
import rabbet
import rabbet.distributions as D
from distribution_cases import CASES
from rabbet.distributions import constraints as C


def t(x):
    return rabbet.tensor(x, dtype=rabbet.float64)


@pytest.mark.parametrize("name", CASES)
def test_shapes(name):
    distribution = CASES[name](D, t)
    batch, event = distribution.batch_shape, distribution.event_shape
    assert isinstance(batch, rabbet.Size) and isinstance(event, rabbet.Size)
    for shape in ((), (3,), (2, 1)):
        x = distribution.sample(shape)
        assert x.shape == rabbet.Size(shape) + batch + event
        assert distribution.log_prob(x).shape == rabbet.Size(shape) + batch
        assert distribution.support.check(x).all()


@pytest.mark.parametrize("name", CASES)
def test_expansion_repeats_the_parameters(name):
    distribution = CASES[name](D, t)
    x = distribution.sample()
    wider = distribution.expand((3, 2, *distribution.batch_shape))
    assert type(wider) is type(distribution)
    assert wider.event_shape == distribution.event_shape
    assert wider.sample().shape == wider.batch_shape + wider.event_shape
    assert rabbet.allclose(wider.log_prob(x)[1, 1], distribution.log_prob(x))
    twice = wider.expand((5, *wider.batch_shape))
    assert twice.log_prob(x).shape == twice.batch_shape


@pytest.mark.parametrize("name", CASES)
def test_distributions_are_copied_and_pickled(name):
    distribution = CASES[name](D, t)
    x = distribution.sample()
    for other in (copy.deepcopy(distribution), pickle.loads(pickle.dumps(distribution))):
        assert rabbet.equal(other.log_prob(x), distribution.log_prob(x))


@pytest.mark.parametrize("name", CASES)
def test_what_cannot_be_differentiated_says_so(name):
    distribution = CASES[name](D, t)
    if not distribution.has_rsample and name != "LKJCholesky":
        with pytest.raises(NotImplementedError):
            distribution.rsample()
    if not distribution.has_enumerate_support:
        with pytest.raises(NotImplementedError):
            distribution.enumerate_support()


@pytest.mark.parametrize("name", [n for n in CASES if CASES[n](D, t).has_enumerate_support])
def test_all_values_have_the_probability_one(name):
    distribution = CASES[name](D, t)
    if name == "Binomial of many":
        with pytest.raises(NotImplementedError, match="Inhomogeneous total count"):
            distribution.enumerate_support()
        return
    values = distribution.enumerate_support()
    total = distribution.log_prob(values).exp().sum(0)
    assert rabbet.allclose(total, rabbet.ones_like(total))
    narrow = distribution.enumerate_support(expand=False)
    assert narrow.numel() <= values.numel() and len(narrow) == len(values)


def test_numbers_make_a_distribution_without_a_batch():
    assert D.Normal(0, 1).batch_shape == () and D.Normal(0, t([1.0])).batch_shape == (1,)
    assert D.Normal(0, 1).sample().dtype == rabbet.get_default_dtype()


def test_text():
    assert repr(D.Normal(0.0, t([1.0, 2.0]))) == f"Normal(loc: {rabbet.Size([2])}, scale: {rabbet.Size([2])})"  # fmt: skip
    assert repr(D.Bernoulli(0.5)) == "Bernoulli(probs: 0.5)"
    assert repr(D.Independent(D.Exponential(t([1.0])), 1)).startswith("Independent(Exponential(rate: tensor([1.]")  # fmt: skip


def test_sample_n_is_deprecated():
    with pytest.warns(FutureWarning, match="sample_n"):
        assert D.Normal(0.0, 1.0).sample_n(3).shape == (3,)


def test_checks_can_be_turned_off():
    with pytest.raises(ValueError):
        D.Normal(0.0, -1.0)
    D.Normal(0.0, -1.0, validate_args=False)
    D.Distribution.set_default_validate_args(False)
    try:
        D.Normal(0.0, -1.0)
        with pytest.raises(ValueError):
            D.Normal(0.0, -1.0, validate_args=True)
    finally:
        D.Distribution.set_default_validate_args(True)
    with pytest.raises(ValueError):
        D.Distribution.set_default_validate_args(2)
    assert D.Exponential(1.0, validate_args=False).log_prob(t(-1.0)) == 1


BAD = {
    "Expected parameter scale (Tensor of shape (2,)) of distribution Normal(": lambda: D.Normal(
        t([0.0, 1.0]), t([1.0, -2.0])
    ),
    "to satisfy the constraint GreaterThan(lower_bound=0.0), but found invalid values": lambda: (
        D.Gamma(t([-1.0]), t([1.0]))
    ),
    "to satisfy the constraint Real(), but": lambda: D.Laplace(t(float("nan")), 1.0),
    "Input arguments must all be instances of Number": lambda: D.Normal("a", 1.0),
    "to satisfy the constraint LessThan(upper_bound=": lambda: D.Uniform(t(0.0), t(-1.0)),
    "Either `probs` or `logits` must be specified, but not both.": lambda: D.Bernoulli(),
    "to satisfy the constraint Interval(lower_bound=0.0, upper_bound=1.0)": lambda: D.Bernoulli(1.5),
    "`probs` parameter must be at least one-dimensional.": lambda: D.Categorical(t(0.5)),
    "`logits` parameter must be at least one-dimensional.": lambda: D.Categorical(logits=t(0.5)),
    "to be positive but found invalid values": lambda: D.Geometric(t([0.5, 0.0])),
    "`concentration` parameter must be at least one-dimensional.": lambda: D.Dirichlet(t(1.0)),
    "Exactly one of covariance_matrix or precision_matrix": lambda: D.MultivariateNormal(t([0.0])),
    "loc must be at least one-dimensional.": lambda: D.MultivariateNormal(t(0.0), t([[1.0]])),
    "covariance_matrix must be at least two-dimensional": lambda: D.MultivariateNormal(t([0.0]), t([1.0])),
    "to satisfy the constraint PositiveDefinite()": lambda: D.MultivariateNormal(
        t([0.0, 1.0]), t([[1.0, 2.0], [2.0, 1.0]])
    ),
    "to satisfy the constraint LowerCholesky()": lambda: D.MultivariateNormal(
        t([0.0, 1.0]), scale_tril=t([[1.0, 2.0], [0.0, 1.0]])
    ),
    "cov_factor must be a batch of matrices with shape 2 x m": lambda: D.LowRankMultivariateNormal(
        t([0.0, 1.0]), t([[1.0]]), t([1.0, 1.0])
    ),
    "Incompatible batch shapes": lambda: D.LowRankMultivariateNormal(
        t([[0.0], [1.0]]), t([[[1.0]]] * 3), t([1.0])
    ),
    "instance of torch.distributions.Categorical": lambda: D.MixtureSameFamily(
        D.Normal(0.0, 1.0), D.Normal(0.0, 1.0)
    ),
    "does not equal `component_distribution.batch_shape[-1]`": lambda: D.MixtureSameFamily(
        D.Categorical(t([0.5, 0.5])), D.Normal(t([0.0, 1.0, 2.0]), t(1.0))
    ),
    "Expected reinterpreted_batch_ndims <= len": lambda: D.Independent(D.Normal(0.0, 1.0), 1),
    "base_distribution needs to have shape with size at least 1": lambda: D.TransformedDistribution(
        D.Normal(0.0, 1.0), D.StickBreakingTransform()
    ),
    "Expected dim to be an integer greater than or equal to 2": lambda: D.LKJCholesky(1),
    "expected to be greater than ndim - 1 = 1.": lambda: D.Wishart(t(1.0), t([[1.0, 0.0], [0.0, 1.0]])),
    "to be within the support (GreaterThanEq(lower_bound=0.0))": lambda: (
        D.Exponential(1.0).log_prob(t(-1.0))
    ),
    "The value argument to log_prob must be a Tensor": lambda: D.Normal(0.0, 1.0).log_prob(1.0),
    "to be within the support (IntegerInterval(lower_bound=0, upper_bound=1))": lambda: (
        D.Categorical(t([0.5, 0.5])).log_prob(t(2.0))
    ),
    "to be within the support (OneHot())": lambda: (
        D.OneHotCategorical(t([0.5, 0.5])).log_prob(t([0.5, 0.5]))
    ),
    "Value is not broadcastable with batch_shape+event_shape": lambda: (
        D.Normal(t([0.0, 1.0]), 1.0).log_prob(t([0.0, 1.0, 2.0]))
    ),
    "The right-most size of value must match event_shape": lambda: (
        D.Dirichlet(t([1.0, 1.0])).log_prob(t([1.0]))
    ),
    "Cannot determine validity of dependent constraint": lambda: C.dependent.check(t(1.0)),
    "Expected value.dim() >= 1 but got 0": lambda: C.real_vector.check(t(1.0)),
}  # fmt: skip


@pytest.mark.parametrize("text", BAD)
def test_bad_input(text):
    with pytest.raises(ValueError, match=re.escape(text)):
        BAD[text]()


def test_a_name_that_is_missing_is_named():
    with pytest.raises(ImportError, match="cannot import name 'Wisharts' from 'rabbet"):
        from rabbet.distributions import Wisharts  # noqa: F401


def test_inhomogeneous_counts_are_refused():
    with pytest.raises(NotImplementedError, match="inhomogeneous total_count is not supported"):
        D.Multinomial(t(3.0), t([0.5, 0.5]))


class Shifted(D.Normal):
    """A subclass with an `__init__` of its own."""

    def __init__(self, shift):
        super().__init__(shift, 1.0)


class Renamed(D.Normal):
    pass


class Bare(D.Distribution):
    def __init__(self):
        super().__init__(rabbet.Size([2]))

    def rsample(self, sample_shape=()):
        return rabbet.zeros(self._extended_shape(sample_shape))


def test_subclasses():
    assert type(Renamed(t([0.0]), 1.0).expand((3, 1))) is Renamed
    with pytest.raises(NotImplementedError, match="Subclass Shifted of Normal that defines a custom __init__"):  # fmt: skip
        Shifted(t([0.0])).expand((3,))
    with pytest.warns(UserWarning, match="does not define `arg_constraints`"):
        bare = Bare()
    assert bare.sample((3,)).shape == (3, 2)
    with pytest.warns(UserWarning, match="does not define `support`"):
        bare._validate_sample(rabbet.zeros(2))
    for call in (
        lambda: bare.mean, lambda: bare.mode, lambda: bare.variance, lambda: bare.stddev, bare.entropy,
        lambda: bare.log_prob(t(0.0)), lambda: bare.cdf(t(0.0)), lambda: bare.icdf(t(0.0)), lambda: bare.expand((2,)),
    ):  # fmt: skip
        with pytest.raises(NotImplementedError):
            call()


def test_distributions_expand_where_torch_means_rabbet():
    code = """
import rabbet; rabbet.as_torch()
import inspect, torch
from torch.distributions import Bernoulli, Normal
class Renamed(Normal):
    pass
class Shifted(Normal):
    def __init__(self, loc):
        super().__init__(loc, 1.0)
print(Bernoulli(torch.ones(2)).expand((3, 2)).batch_shape, type(Renamed(torch.zeros(1), 1.0).expand((3, 1))).__name__)
try:
    Shifted(torch.zeros(1)).expand((3,))
except NotImplementedError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "torch.Size([3, 2]) Renamed",
        "Subclass Shifted of Normal that defines a custom __init__ method must also define a custom .expand() method.",
    ]


def test_lazy_properties_are_computed_once():
    distribution = D.MultivariateNormal(t([0.0, 1.0]), t([[2.0, 0.5], [0.5, 1.0]]))
    assert "precision_matrix" not in vars(distribution)
    first = distribution.precision_matrix
    assert distribution.precision_matrix is first
    product = first @ distribution.covariance_matrix
    assert rabbet.allclose(product, rabbet.eye(2, dtype=product.dtype))
    assert isinstance(D.MultivariateNormal.precision_matrix, property)


def test_constraints_of_impossible_values():
    assert not C.positive_definite.check(t([[1.0, 2.0], [2.0, 1.0]]))
    assert C.positive_definite.check(t([[[2.0, 0.5], [0.5, 1.0]]] * 2)).tolist() == [True, True]
    singular = t([[1.0, 1.0], [1.0, 1.0]])
    assert C.positive_semidefinite.check(singular) and not C.positive_definite.check(singular)
    assert C.positive_semidefinite.check(t([[0.0, 0.0], [0.0, 0.0]]))
    several = t([[[2.0, 0.5], [0.5, 1.0]], [[0.0, 1.0], [1.0, 0.0]]])
    assert C.positive_semidefinite.check(several).tolist() == [True, False]
    assert not C.positive_semidefinite.check(t([[1.0, 0.5], [0.0, 1.0]]))
    assert not C.positive_definite.check(t([[1.0, 0.0]])) and not C.square.check(t([[1.0, 0.0]]))
    assert not C.simplex.check(t([0.5, 0.6])) and C.simplex.check(t([0.5, 0.5]))
    assert not C.real.check(t(float("nan"))) and C.real.check(t(float("inf")))
    with pytest.raises(NotImplementedError, match="is_discrete cannot be determined statically"):
        C.dependent.is_discrete  # noqa: B018
    with pytest.raises(AssertionError, match="base_constraint must be a Constraint, got int"):
        C.independent(3, 1)


def test_large_matrices_are_factored():
    rng = rabbet.randn(60, 60, dtype=rabbet.float64, generator=rabbet.Generator().manual_seed(0))
    covariance = rng @ rng.mT + 60 * rabbet.eye(60, dtype=rabbet.float64)
    distribution = D.MultivariateNormal(rabbet.zeros(60, dtype=rabbet.float64), covariance)
    factor = distribution.scale_tril
    assert rabbet.equal(factor, factor.tril())
    assert rabbet.allclose(factor @ factor.mT, covariance, rtol=1e-12)


def test_a_low_number_of_degrees_warns():
    with pytest.warns(UserWarning, match="Low df values detected"):
        D.Wishart(t(1.5), t([[1.0, 0.0], [0.0, 1.0]]))


def test_draws_under_vmap_differ_and_densities_batch():
    vmap = pytest.importorskip("rabbet.vmap").vmap
    loc = t([0.0, 1.0, 2.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = vmap(lambda m, x: D.Normal(m, 2.0, validate_args=False).log_prob(x))(loc, loc + 1)
    assert rabbet.allclose(got, D.Normal(loc, 2.0).log_prob(loc + 1))
