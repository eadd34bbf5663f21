"""Gradients of sampled functions and histograms against NumPy; `erfcx` against SciPy; Sobol points against SciPy."""

import numpy as np
import pytest
import rabbet
from rabbet.quasirandom import SobolEngine

RNG = np.random.default_rng(1)
SAMPLES = RNG.standard_normal((5, 4, 6))


@pytest.mark.parametrize("edge_order", [1, 2])
@pytest.mark.parametrize("dim", [None, 0, -1, (2, 0)])
@pytest.mark.parametrize("kind", ["none", "number", "numbers", "coordinates"])
def test_gradient_of_samples(kind, dim, edge_order):
    axes = [0, 1, 2] if dim is None else [dim % 3] if isinstance(dim, int) else list(dim)
    spacing, steps = 1, ()
    if kind == "number":
        spacing, steps = 0.5, (0.5,)
    elif kind == "numbers":
        spacing = steps = [0.5 + i for i in range(len(axes))]
    elif kind == "coordinates":
        steps = [np.cumsum(RNG.random(SAMPLES.shape[a]) + 0.1) for a in axes]
        spacing = [rabbet.tensor(s) for s in steps]
    found = rabbet.gradient(rabbet.tensor(SAMPLES), spacing=spacing, dim=dim, edge_order=edge_order)
    expected = np.gradient(SAMPLES, *steps, axis=tuple(axes), edge_order=edge_order)
    expected = expected if isinstance(expected, (list, tuple)) else [expected]
    assert isinstance(found, tuple) and len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a.numpy(), b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("bins", "range"),
    [(1, None), (7, None), (1, (-1.0, 1.5)), (7, (-1.0, 1.5)), ([-1.0, -0.5, 0.0, 2.0], None)],
)
def test_histogram(bins, range, weighted, density):
    x = RNG.standard_normal((10, 20))
    weight = RNG.random((10, 20)) if weighted else None
    expected, edges = np.histogram(x, bins, range, weights=weight, density=density)
    given = rabbet.tensor(bins, dtype=rabbet.float64) if isinstance(bins, list) else bins
    found = rabbet.histogram(
        rabbet.tensor(x), given, range=range, weight=None if weight is None else rabbet.tensor(weight), density=density
    )  # fmt: skip
    np.testing.assert_allclose(found.hist.numpy(), expected, rtol=1e-10)
    np.testing.assert_allclose(found.bin_edges.numpy(), edges, rtol=1e-10)


def test_histogram_of_edges_equal_elements_and_nothing():
    hist, edges = rabbet.histogram(rabbet.tensor([0.0, 1.0, 2.0, 2.0, 3.0]), 2, range=(0, 2))
    assert hist.tolist() == [1, 3] and edges.tolist() == [0, 1, 2]
    assert rabbet.histogram(rabbet.tensor([3.0, 3.0]), 2).bin_edges.tolist() == [2.5, 3, 3.5]
    assert rabbet.histogram(rabbet.zeros(0), 2).hist.tolist() == [0, 0]
    outs = rabbet.empty(0), rabbet.empty(0)
    assert rabbet.histogram(rabbet.ones(3), 2, out=outs).hist is outs[0] and outs[0].sum() == 3


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: rabbet.gradient(rabbet.ones(4), edge_order=3), RuntimeError, "edge_order=1 and edge_order=2"),
        (lambda: rabbet.gradient(rabbet.ones(2), edge_order=2), RuntimeError, "at least edge_order"),
        (lambda: rabbet.gradient(rabbet.ones(4, 4), dim=(0, 0)), RuntimeError, "appears multiple times"),
        (lambda: rabbet.gradient(rabbet.ones(4), dim=2), IndexError, "out of range"),
        (lambda: rabbet.gradient(rabbet.ones(4, 4), spacing=[1.0]), RuntimeError, "a list of length 1"),
        (lambda: rabbet.gradient(rabbet.ones(4), spacing=[rabbet.ones(3)]), RuntimeError, "the shape"),
        (lambda: rabbet.gradient(rabbet.ones(4), spacing=rabbet.ones(4)), TypeError, "got a Tensor"),
        (lambda: rabbet.gradient(rabbet.ones(4).byte()), RuntimeError, "uint8"),
        (lambda: rabbet.histogram(rabbet.ones(4).long(), 3), RuntimeError, "expected a floating tensor"),
        (lambda: rabbet.histogram(rabbet.ones(4), 0), RuntimeError, "bins must be > 0"),
        (lambda: rabbet.histogram(rabbet.ones(4), 3, range=(2, 1)), RuntimeError, "min should not exceed max"),
        (lambda: rabbet.histogram(rabbet.ones(4), 3, range=(0, float("inf"))), RuntimeError, "not finite"),
        (lambda: rabbet.histogram(rabbet.ones(4), rabbet.ones(2, 2)), RuntimeError, "one dimension"),
        (lambda: rabbet.histogram(rabbet.ones(4), rabbet.ones(2).double()), RuntimeError, "the same dtype"),
        (lambda: rabbet.histogram(rabbet.ones(4), rabbet.ones(2), range=(0, 1)), TypeError, "range is for"),
        (lambda: rabbet.histogram(rabbet.ones(4), 3, weight=rabbet.ones(3)), RuntimeError, "weight tensor"),
        (lambda: rabbet.empty_permuted((2, 3), (0, 0)), RuntimeError, "a permutation of the 2 dims"),
        (lambda: SobolEngine(0), ValueError, r"\[1, 1111\]"),
        (lambda: SobolEngine(1112), ValueError, r"\[1, 1111\]"),
        (lambda: SobolEngine(2).fast_forward(3).draw_base2(1), ValueError, "balance properties"),
        (lambda: SobolEngine(2).draw(2**30 + 1), ValueError, "at most 1073741824 points"),
    ],
)  # fmt: skip
def test_wrong_arguments(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_erfcx():
    special = pytest.importorskip("scipy.special")
    x = np.concatenate(
        [np.linspace(-20, 40, 601), [1.99999, 2.0, 1e4, 1e200, np.inf, -np.inf, np.nan]]
    )
    found = rabbet.special.erfcx(rabbet.tensor(x)).numpy()
    np.testing.assert_allclose(found, special.erfcx(x), rtol=1e-13)
    assert rabbet.special.erfcx(rabbet.tensor([1])).dtype is rabbet.float32
    pytest.importorskip("rabbet.autograd")
    from rabbet.autograd import gradcheck

    points = rabbet.tensor([-1.5, 0.3, 1.9, 2.1, 30.0], dtype=rabbet.float64, requires_grad=True)
    assert gradcheck(rabbet.special.erfcx, (points,))


def test_products_of_narrow_matrices_are_exact():
    from rabbet._as_torch import functions

    a, b = RNG.integers(-128, 128, (4, 70)), RNG.integers(-128, 128, (70, 3))
    found = functions._int_mm(
        rabbet.tensor(a, dtype=rabbet.int8), rabbet.tensor(b, dtype=rabbet.int8)
    )
    assert found.dtype is rabbet.int32 and (found.numpy() == a @ b).all()
    x, y = rabbet.randn(4, 6), rabbet.randn(6, 3)
    rows, columns = rabbet.rand(4, 1), rabbet.rand(1, 3)
    found = functions._scaled_mm(x, y, rows, columns, bias=rabbet.ones(3), out_dtype=rabbet.float32)
    rabbet.testing.assert_close(found, (rows * x) @ (y * columns) + 1)
    with pytest.raises(RuntimeError, match="scales of the shapes"):
        functions._scaled_mm(x, y, rows, rows)
    with pytest.raises(RuntimeError, match="Expected mat2 dtype to be int8"):
        functions._int_mm(rabbet.tensor(a, dtype=rabbet.int8), y)


def test_products_of_groups_are_those_of_each_group():
    from rabbet._as_torch.functions import _grouped_mm

    ends = rabbet.tensor([2, 2, 5], dtype=rabbet.int32)
    x, y = rabbet.randn(5, 4), rabbet.randn(3, 4, 6)
    found = _grouped_mm(x, y, offs=ends)
    rabbet.testing.assert_close(found, rabbet.cat([x[:2] @ y[0], x[2:] @ y[2]]))
    rabbet.testing.assert_close(_grouped_mm(y.mT, x.mT, offs=ends), found.mT)
    inner = _grouped_mm(x.mT, rabbet.ones(5, 2), offs=ends)
    rabbet.testing.assert_close(inner[2], x[2:].sum(0)[:, None].expand(4, 2))
    assert inner.shape == (3, 4, 2) and not inner[1].any()
    rabbet.testing.assert_close(_grouped_mm(y.mT, y), y.mT @ y)
    with pytest.raises(RuntimeError, match="Have to provide offsets"):
        _grouped_mm(x, y)


@pytest.mark.parametrize("dimension", [1, 2, 40, 1111])
def test_sobol_points_are_those_of_the_published_numbers(dimension):
    qmc = pytest.importorskip("scipy.stats.qmc")
    expected = qmc.Sobol(dimension, scramble=False).random_base2(7)
    engine = SobolEngine(dimension)
    found = rabbet.cat(
        [engine.draw(1, dtype=rabbet.float64), engine.draw(100, dtype=rabbet.float64)]
    )
    assert (found.numpy() == expected[:101]).all()
    engine.reset().fast_forward(90)
    out = rabbet.empty(0, dtype=rabbet.float64)
    assert (
        engine.draw(38, out=out, dtype=rabbet.float64) is out
        and (out.numpy() == expected[90:]).all()
    )
    assert engine.num_generated == 128 and engine.draw_base2(7).shape == (128, dimension)


def test_scrambled_sobol_points_stay_even_and_follow_the_seed():
    engine = SobolEngine(3, scramble=True, seed=5)
    points = engine.draw_base2(8)
    again = SobolEngine(3, scramble=True, seed=5).draw(256)
    other = SobolEngine(3, scramble=True, seed=6).draw(256)
    assert rabbet.equal(points, again) and not rabbet.equal(points, other)
    assert points.min() >= 0 and points.max() < 1
    for d in range(3):  # one point in each of 256 intervals, in every dimension
        assert sorted((points[:, d] * 256).long().tolist()) == list(range(256))
    assert repr(engine) == "SobolEngine(dimension=3, scramble=True, seed=5)"
