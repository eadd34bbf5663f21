"""Two transforms deep over the operators: each differentiable record with cases, in every nest, against loops
of plain calls and against another order of the same derivatives."""

import warnings

import pytest
import rabbet
from rabbet.func import grad, jacfwd, jacrev, jvp, vmap
from rabbet_testing import assert_close, cases, differentiable_ops, differentiable_part

EXAMPLES = 2


class Scalar:
    """A weighted sum of an operator's results as a function of its first tensor, and points to evaluate it at."""

    def __init__(self, case):
        call, inputs = differentiable_part(case)
        self.call, self.rest = call, [t.detach() for t in inputs[1:]]
        self.point = inputs[0].detach()
        self.weights = [
            rabbet.linspace(0.5, 1.5, max(r.numel(), 1), dtype=r.dtype)[: r.numel()].reshape(
                r.shape
            )
            for r in self.results(self.point)
        ]
        self.direction = rabbet.linspace(
            1.0, -0.7, max(self.point.numel(), 1), dtype=self.point.dtype
        )[: self.point.numel()].reshape(self.point.shape)

    def results(self, x):
        return self.call(x, *self.rest)

    def __call__(self, x):
        terms = [r * w for r, w in zip(self.results(x), self.weights, strict=True)]
        return sum((t.real if t.is_complex() else t).sum() for t in terms)

    def points(self, *shape):
        """Points a little apart, which share the sign and the order of the entries."""
        if not shape:
            return self.point
        return rabbet.stack([self.points(*shape[1:]) * (1 - 0.03 * k) for k in range(shape[0])])


def scalar(name):
    """The operator's first case with something to differentiate, or None."""
    for case in cases(name, rabbet.float64, requires_grad=True):
        call, inputs = differentiable_part(case)
        if inputs and call(*inputs):
            return Scalar(case)
    return None


NAMES = [name for name in differentiable_ops() if scalar(name) is not None]
MAPPED = [name for name in NAMES if name != "masked_select"]  # its results do not fit one tensor


@pytest.fixture(autouse=True)
def loops_are_allowed():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "vmap: ", UserWarning)
        yield


@pytest.mark.parametrize("name", MAPPED)
def test_vmap_of_vmap(name):
    f = scalar(name)
    xs = f.points(EXAMPLES, EXAMPLES)
    got = vmap(vmap(f.results))(xs)
    for i, result in enumerate(got):
        assert_close(
            result, rabbet.stack([rabbet.stack([f.results(x)[i] for x in row]) for row in xs])
        )
    turned = vmap(vmap(f, in_dims=-1), in_dims=0, out_dims=0)(xs.movedim(1, -1))
    assert_close(turned, rabbet.stack([rabbet.stack([f(x) for x in row]) for row in xs]))


@pytest.mark.parametrize("name", MAPPED)
def test_grad_and_vmap(name):
    f = scalar(name)
    xs = f.points(EXAMPLES)
    expected = rabbet.stack([grad(f)(x) for x in xs])
    assert_close(vmap(grad(f))(xs), expected)
    assert_close(grad(lambda xs: vmap(f)(xs).sum())(xs), expected)


@pytest.mark.parametrize("name", NAMES)
def test_second_derivatives_in_every_order(name):
    f = scalar(name)
    x, t = f.point, f.direction
    expected = grad(lambda x: (grad(f)(x) * t).sum())(x)
    assert_close(jvp(grad(f), (x,), (t,))[1], expected)
    assert_close(grad(lambda x: jvp(f, (x,), (t,))[1])(x), expected)
    hessian = jacfwd(jacrev(f))(x)
    assert_close(hessian.reshape(x.numel(), x.numel()) @ t.reshape(-1), expected.reshape(-1))


@pytest.mark.parametrize("name", NAMES)
def test_second_derivatives_of_examples(name):
    f = scalar(name)
    xs, t = f.points(EXAMPLES), f.direction
    expected = rabbet.stack([grad(lambda x: (grad(f)(x) * t).sum())(x) for x in xs])
    assert_close(vmap(lambda x: jvp(grad(f), (x,), (t,))[1])(xs), expected)


def test_that_there_are_many():
    assert len(NAMES) > 150
