"""Gradients of piecewise and singular functions at the points where the pieces meet."""

import math

import numpy as np
import pytest
import rabbet
import rabbet.nn.functional

NAN, INF = math.nan, math.inf


def gradients(f, *xs, library=rabbet):
    """Of sum(f(*xs)) in float64, one list per argument."""
    leaves = [library.tensor(x, dtype=library.float64, requires_grad=True) for x in xs]
    f(library, *leaves).sum().backward()
    return [[] if t.grad is None else t.grad.tolist() for t in leaves]


def functional(library):
    return library.nn.functional


# What the gradient has to be, by argument.
CASES = {
    "clamp max": (
        lambda m, x, high: m.clamp(x, max=high),
        [[1.0, 2.0, 3.0], [2.0, 2.0, 2.0]],
        [[1, 1, 0], [0, 0, 1]],
    ),
    "clamp min": (
        lambda m, x, low: m.clamp(x, min=low),
        [[1.0, 2.0, 3.0], [2.0, 2.0, 2.0]],
        [[0, 1, 1], [1, 0, 0]],
    ),
    "clamp both, also crossed": (
        lambda m, x, low, high: m.clamp(x, low, high),
        [[1.0, 2.0, 3.0, 0.0, 2.5], [2.0, 2.0, 2.0, 3.0, 3.0], [3.0, 2.0, 2.5, 1.0, 1.0]],
        [[0, 1, 0, 0, 0], [1, 0, 0, 0, 0], [0, 0, 1, 1, 1]],
    ),
    "elu": (
        lambda m, x: functional(m).elu(x, 0.7),
        [[0.0, -0.0, 1.0, -INF, INF, 1000.0]],
        [[0.7, 0.7, 1, 0, 1, 1]],
    ),
    "elu of negative alpha": (
        lambda m, x: functional(m).elu(x, -0.7),
        [[0.0, 2.0, -1.0]],
        [[-0.7, 1, -0.7 * math.exp(-1)]],
    ),
    "softplus": (
        lambda m, x: functional(m).softplus(x, 2, 4),
        [[0.0, 2.0, 2.1, -INF, INF, 1000.0]],
        [[0.5, 1 / (1 + math.exp(-4)), 1, 0, 1, 1]],
    ),
    "atan2": (
        lambda m, y, x: m.atan2(y, x),
        [[0.0, 0.0, -0.0, 1.0, 0.0], [0.0, -0.0, 0.0, 0.0, -1.0]],
        [[0, 0, 0, 0, -1], [0, 0, 0, -1, 0]],
    ),
    "hardtanh": (
        lambda m, x: functional(m).hardtanh(x, -1, 2),
        [[-1.0, 2.0, 0.0, 5.0, -5.0]],
        [[0, 0, 1, 0, 0]],
    ),
    "relu6": (lambda m, x: functional(m).relu6(x), [[0.0, 6.0, 3.0]], [[0, 0, 1]]),
    "leaky_relu": (
        lambda m, x: functional(m).leaky_relu(x, 0.1),
        [[0.0, -0.0, 2.0, -2.0]],
        [[0.1, 0.1, 1, 0.1]],
    ),
    "logsigmoid": (
        lambda m, x: functional(m).logsigmoid(x),
        [[0.0, -800.0, 800.0, -INF, INF]],
        [[0.5, 1, 0, 1, 0]],
    ),
    "logaddexp": (
        lambda m, x, y: m.logaddexp(x, y),
        [[0.0, -INF, INF, 1.0, 1.0], [0.0, 0.0, -INF, -800.0, 801.0]],
        [[0.5, 0, 1, 1, 0], [0.5, 1, 0, 0, 1]],
    ),
    "celu": (lambda m, x: functional(m).celu(x, 2.0), [[0.0, -2.0, 3.0]], [[1, math.exp(-1), 1]]),
    "selu": (
        lambda m, x: functional(m).selu(x),
        [[0.0, 1.0, 1000.0]],
        [[1.7580993408473766, 1.0507009873554805, 1.0507009873554805]],
    ),
    "mish": (lambda m, x: functional(m).mish(x), [[0.0, -800.0, 800.0]], [[0.6, 0, 1]]),
    "hardsigmoid": (
        lambda m, x: functional(m).hardsigmoid(x),
        [[-3.0, 3.0, 0.0]],
        [[0, 0, 1 / 6]],
    ),
    "hardswish": (
        lambda m, x: functional(m).hardswish(x),
        [[-3.0, 3.0, 0.0, 1.5, 4.0]],
        [[0, 1, 0.5, 1, 1]],
    ),
    "threshold": (
        lambda m, x: functional(m).threshold(x, 0.5, 7.0),
        [[0.5, 0.6, NAN]],
        [[0, 1, 1]],
    ),
    "hardshrink": (
        lambda m, x: functional(m).hardshrink(x, 0.5),
        [[0.5, -0.5, 0.6, -0.6]],
        [[0, 0, 1, 1]],
    ),
    "softshrink": (
        lambda m, x: functional(m).softshrink(x, 0.5),
        [[0.5, -0.5, 0.6, -0.6]],
        [[0, 0, 1, 1]],
    ),
    "softsign": (lambda m, x: functional(m).softsign(x), [[0.0, 1.0, -3.0]], [[1, 0.25, 0.0625]]),
    "tanhshrink": (lambda m, x: functional(m).tanhshrink(x), [[0.0, 1000.0]], [[0, 1]]),
    "prelu": (
        lambda m, x, w: functional(m).prelu(x, w),
        [[0.0, 1.0, -2.0], [0.25]],
        [[0.25, 1, 0.25], [-2]],
    ),
    "l1_loss": (
        lambda m, x, y: functional(m).l1_loss(x, y, reduction="none"),
        [[1.0, 2.0, 3.0], [2.0, 2.0, 2.0]],
        [[-1, 0, 1], [1, 0, -1]],
    ),
    "smooth_l1_loss": (
        lambda m, x, y: functional(m).smooth_l1_loss(x, y, reduction="none", beta=2.0),
        [[2.0, 1.0, -3.0, 0.0], [0.0, 0.0, 0.0, 0.0]],
        [[1, 0.5, -1, 0], [-1, -0.5, 1, 0]],
    ),
    "huber_loss": (
        lambda m, x, y: functional(m).huber_loss(x, y, reduction="none", delta=2.0),
        [[2.0, 1.0, -3.0, 0.0], [0.0, 0.0, 0.0, 0.0]],
        [[2, 1, -2, 0], [-2, -1, 2, 0]],
    ),
    "binary_cross_entropy": (
        lambda m, x: functional(m).binary_cross_entropy(
            x, m.tensor([1.0, 0.0, 1.0], dtype=m.float64), reduction="none"
        ),
        [[0.5, 1.0, 0.0]],
        [[-2, 1e12, -1e12]],
    ),
    "binary_cross_entropy_with_logits": (
        lambda m, x, y: functional(m).binary_cross_entropy_with_logits(x, y, reduction="none"),
        [[0.0, 800.0, -800.0], [1.0, 0.0, 0.0]],
        [[-0.5, 1, 0], [0, -800, 800]],
    ),
    "maximum of NaN": (
        lambda m, x, y: m.maximum(x, y),
        [[1.0, NAN, NAN, 3.0], [NAN, 1.0, NAN, 3.0]],
        [[1, 1, 1, 0.5], [1, 1, 1, 0.5]],
    ),
    "minimum of NaN": (
        lambda m, x, y: m.minimum(x, y),
        [[1.0, NAN, NAN, 3.0], [NAN, 1.0, NAN, 3.0]],
        [[1, 1, 1, 0.5], [1, 1, 1, 0.5]],
    ),
    "max of NaN": (lambda m, x: m.max(x), [[1.0, NAN, NAN]], [[0, 0.5, 0.5]]),
    "min of NaN": (lambda m, x: m.min(x), [[1.0, NAN, 3.0]], [[0, 1, 0]]),
    "max of ties": (lambda m, x: m.max(x), [[1.0, 3.0, 3.0]], [[0, 0.5, 0.5]]),
    "amax of NaN": (
        lambda m, x: m.amax(x, 1),
        [[[1.0, NAN, 3.0], [1.0, 3.0, 3.0]]],
        [[[NAN, NAN, NAN], [0, 0.5, 0.5]]],
    ),
    "amin of NaN": (lambda m, x: m.amin(x), [[1.0, NAN]], [[NAN, NAN]]),
    "relu": (lambda m, x: m.relu(x), [[0.0, NAN, -1.0, 2.0]], [[0, 1, 0, 1]]),
    "hardswish of NaN": (lambda m, x: functional(m).hardswish(x), [[NAN]], [[1]]),
    "hardsigmoid of NaN": (lambda m, x: functional(m).hardsigmoid(x), [[NAN]], [[0]]),
    "celu of NaN": (lambda m, x: functional(m).celu(x), [[NAN]], [[1]]),
    "smooth_l1_loss of NaN": (
        lambda m, x, y: functional(m).smooth_l1_loss(x, y, reduction="none"),
        [[NAN], [0.0]],
        [[NAN], [NAN]],
    ),
    "std": (
        lambda m, x: m.std(x, 1),
        [[[2.0, 2.0], [0.0, 0.0], [0.0, 2.0]]],
        [[[0, 0], [0, 0], [-(0.5**0.5), 0.5**0.5]]],
    ),
    "normalize of zeros": (
        lambda m, x: functional(m).normalize(x),
        [[[0.0, 0.0], [3.0, 4.0]]],
        [[[1e12, 1e12], [0.032, -0.024]]],
    ),
    "normalize by another norm": (
        lambda m, x: functional(m).normalize(x, p=3.0),
        [[[0.0, 0.0], [1.0, 0.0]]],
        [[[1e12, 1e12], [0, 1]]],
    ),
    "pairwise_distance of equals": (
        lambda m, x, y: functional(m).pairwise_distance(x, y, eps=0.0),
        [[[0.0, 0.0], [3.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]]],
        [[[0, 0], [0.6, 0.8]], [[0, 0], [-0.6, -0.8]]],
    ),
    "the largest distance": (
        lambda m, x, y: functional(m).pairwise_distance(x, y, p=INF, eps=0.0),
        [[[0.0, 0.0], [3.0, -4.0], [2.0, 2.0]], [[0.0, 0.0]]],
        [[[0, 0], [0, -1], [0.5, 0.5]], [[-0.5, 0.5]]],
    ),
    "steps": (
        lambda m, x: m.floor(x) + m.ceil(x) + m.trunc(x) + m.round(x) + m.sign(x),
        [[0.0, 1.5, -2.0]],
        [[0, 0, 0]],
    ),
    "division that rounds": (
        lambda m, x, y: m.div(x, y, rounding_mode="floor") + m.div(x, y, rounding_mode="trunc"),
        [[1.0, -3.0], [2.0, 2.0]],
        [[0, 0], [0, 0]],
    ),
    "fill": (lambda m, x: (x * 1).fill_(2.0) + (x * 1).zero_(), [[1.0, 2.0]], [[0, 0]]),
    "square": (lambda m, x: m.square(x), [[0.0, -3.0]], [[0, -6]]),
    "frac": (lambda m, x: m.frac(x), [[1.5, -0.5, 2.0]], [[1, 1, 1]]),
}


@pytest.mark.parametrize("name", CASES)
def test_gradient_at_the_branch_point(name):
    f, xs, want = CASES[name]
    for got, expected in zip(gradients(f, *xs), want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-15, atol=1e-300)


@pytest.mark.parametrize("name", CASES)
def test_as_in_pytorch(name):
    torch = pytest.importorskip("torch")
    f, xs, _ = CASES[name]
    for got, expected in zip(
        gradients(f, *xs), gradients(f, *xs, library=torch), strict=True
    ):  # PyTorch has 1 / 6 in float32
        np.testing.assert_allclose(got, expected, rtol=1e-7, atol=1e-300)


@pytest.mark.parametrize("name", CASES)
def test_the_second_derivative_is_finite(name):
    f, xs, _ = CASES[name]
    leaves = [rabbet.tensor(np.nan_to_num(x), dtype=rabbet.float64, requires_grad=True) for x in xs]
    first = rabbet.autograd.grad(f(rabbet, *leaves).sum(), leaves, create_graph=True)
    total = sum((g.sum() for g in first[1:]), first[0].sum())
    if total.requires_grad:
        for g in rabbet.autograd.grad(total, leaves, allow_unused=True):
            assert g is None or np.isfinite(g.numpy()).all()


def test_equal_infinities_share_the_gradient_of_logaddexp():
    got = gradients(lambda m, x, y: m.logaddexp(x, y), [INF, -INF], [INF, -INF])
    assert got == [[0.5, 0.5], [0.5, 0.5]]


def test_nan_stays_nan_in_the_smooth_ones():
    for f in (
        lambda m, x: functional(m).softplus(x),
        lambda m, x: functional(m).logsigmoid(x),
        lambda m, x: m.logaddexp(x, x),
    ):
        assert math.isnan(gradients(f, [NAN])[0][0])
