"""Formulas where they change, at infinity and for bools, beside PyTorch's documented results and C's annex G."""

import cmath
import math

import numpy as np
import pytest
import rabbet

INF, NAN = math.inf, math.nan


def _lerp(a, b, w):
    """PyTorch's two formulas, each exact at its end."""
    return a + w * (b - a) if abs(w) < 0.5 else b - (b - a) * (1 - w)


@pytest.mark.parametrize("dtype", [rabbet.float32, rabbet.float64], ids=str)
@pytest.mark.parametrize(
    "weight", [-1.0, -0.5, -0.25, 0.0, 0.25, 0.5 - 2**-26, 0.5, 0.75, 1.0, 3.0]
)
def test_lerp_chooses_its_formula_by_the_weight(weight, dtype):
    a = np.array([0.1, 1e8, 3.0, 0.7], str(dtype).rpartition(".")[2])
    b = np.array([1e8, 0.1, -7.0, 0.3], a.dtype)
    start, end = rabbet.from_numpy(a), rabbet.from_numpy(b)
    want = _lerp(a, b, a.dtype.type(weight))
    for w in (weight, rabbet.tensor(weight, dtype=dtype), rabbet.full((4,), weight, dtype=dtype)):
        got = rabbet.lerp(start, end, w).numpy()
        np.testing.assert_allclose(got, want, 2 * np.finfo(a.dtype).eps)
    if weight in (0, 1):
        assert rabbet.lerp(start, end, weight).equal(end if weight else start)


def test_lerp_from_a_finite_number_to_infinity():
    zero, end = rabbet.tensor(0.0), rabbet.tensor(-INF)
    assert math.isnan(rabbet.lerp(zero, end, 0.5).item())
    assert rabbet.lerp(zero, end, 0.25).item() == -INF
    assert math.isnan(rabbet.lerp(zero, end, rabbet.tensor(0.5)).item())
    with pytest.raises(TypeError, match="'input' and 'end' to have the same dtype"):
        rabbet.lerp(zero, end.double(), 0.5)


@pytest.mark.parametrize("weight", [0.3 + 0.3j, 0.4 - 0.4j, 2j])
def test_lerp_of_complex_numbers_compares_the_magnitude_of_the_weight(weight):
    a, b = rabbet.tensor([1e8 + 1j, 2.0 - 1j]), rabbet.tensor([0.5j, 1e8 + 0j])
    want = [_lerp(x, y, weight) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    np.testing.assert_allclose(rabbet.lerp(a, b, weight).numpy(), want, 1e-6)


def test_derivatives_of_lerp_on_both_sides():
    w = rabbet.tensor([-2.0, 0.2, 0.5, 0.9], dtype=rabbet.float64, requires_grad=True)
    a = rabbet.randn(4, dtype=rabbet.float64, requires_grad=True)
    b = rabbet.randn(4, dtype=rabbet.float64, requires_grad=True)
    assert rabbet.autograd.gradcheck(rabbet.lerp, (a, b, w), check_forward_ad=True)


@pytest.mark.parametrize("part", [0.0, -0.0, 1.0, -2.0, INF, -INF, NAN], ids=str)
@pytest.mark.parametrize("real", [INF, -INF, 0.0, -1500.0, NAN], ids=str)
def test_exp2_of_complex_numbers_is_exp_of_both_parts_scaled(real, part):
    z = complex(real, part)
    got = rabbet.exp2(rabbet.tensor([z], dtype=rabbet.complex128)).item()
    want = rabbet.exp(
        rabbet.tensor([complex(real * math.log(2), part * math.log(2))], dtype=rabbet.complex128)
    ).item()
    np.testing.assert_equal([got.real, got.imag], [want.real, want.imag])
    with np.errstate(all="ignore"):
        if math.isfinite(part):
            c = cmath.exp(complex(real * math.log(2), part * math.log(2)))
            np.testing.assert_allclose([got.real, got.imag], [c.real, c.imag], 1e-12)


def test_addr_of_bools_is_or_and_and():
    matrix = rabbet.tensor([[True, False], [False, False]])
    row = rabbet.tensor([True, False])
    none, other = rabbet.zeros(2, 2, dtype=rabbet.bool), rabbet.tensor([False, True])
    for options in ({}, {"beta": True}, {"beta": 2}, {"alpha": 3}):
        got = rabbet.addr(matrix, row, other, **options)
        assert got.dtype is rabbet.bool
        assert got.tolist() == [[True, True], [False, False]], options
    assert rabbet.addr(matrix, row, row, beta=False).tolist() == [[True, False], [False, False]]
    assert rabbet.addr(matrix, row, other, alpha=0).equal(matrix)
    assert rabbet.addr(none, row, row, alpha=False).equal(none)
    mixed = rabbet.addr(rabbet.ones(2, 2, dtype=rabbet.int32), row, row)
    assert mixed.dtype is rabbet.int32 and mixed.tolist() == [[2, 1], [1, 1]]


@pytest.mark.parametrize("name", ["alpha", "beta"])
@pytest.mark.parametrize("dtype", [rabbet.bool, rabbet.int64], ids=str)
def test_addr_of_integers_refuses_fractions(name, dtype):
    ones = rabbet.ones(2, dtype=dtype)
    message = f"For integral input tensors, argument {name} must not be a floating point number"
    with pytest.raises(TypeError, match=message):
        rabbet.addr(rabbet.ones(2, 2, dtype=dtype), ones, ones, **{name: 0.5})


def test_bools_are_counted_where_they_are_summed_to_a_size():
    x = rabbet.ones(3, 4, dtype=rabbet.bool)
    counts = x.sum_to_size(1, 4)
    assert counts.dtype is rabbet.int64 and counts.tolist() == [[3] * 4]
    assert x.sum_to_size(3, 4).dtype is rabbet.bool


def test_nextafter_passes_the_gradient_where_it_moves():
    x = rabbet.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = rabbet.tensor([5.0, 2.0, 0.0], requires_grad=True)
    out = rabbet.nextafter(x, y)
    assert out.grad_fn is not None
    out.backward(rabbet.tensor([2.0, 3.0, 4.0]))
    assert x.grad.tolist() == [2, 0, 4] and y.grad.tolist() == [0, 0, 0]
    tangents = rabbet.ones(3), rabbet.full((3,), 7.0)
    _, tangent = rabbet.func.jvp(rabbet.nextafter, (x.detach(), y.detach()), tangents)
    assert tangent.tolist() == [1, 0, 1]


@pytest.mark.parametrize("dtype", [rabbet.float16, rabbet.float32, rabbet.float64], ids=str)
@pytest.mark.parametrize("result", [rabbet.float16, rabbet.bfloat16, rabbet.float32], ids=str)
def test_the_gradient_of_a_product_in_another_dtype(dtype, result):
    """Products of some of the factors leave the range of float16, the gradients do not."""
    values = [300.0, 400.0, 0.5, 0.25]
    x = rabbet.tensor(values, dtype=dtype, requires_grad=True)
    for product in (x.prod(dtype=result), x.prod(0, dtype=result)):
        assert product.dtype is result
        (grad,) = rabbet.autograd.grad(product, [x])
        assert grad.dtype is dtype
        want = [math.prod(values) / v for v in values]
        np.testing.assert_allclose(grad.double().numpy(), want, 2e-3)


@pytest.mark.parametrize(
    "function, rate", [(rabbet.logaddexp, 1.0), (rabbet.logaddexp2, math.log(2))]
)
def test_sums_of_equal_exponentials_have_a_second_derivative(function, rate):
    """The first derivative is s(rate (x - y)) with the logistic function s, whose derivative at 0 is 1/4."""
    x, y = (
        rabbet.tensor([0.0, 1.5, INF, -INF], dtype=rabbet.float64, requires_grad=True)
        for _ in range(2)
    )
    first = rabbet.autograd.grad(function(x, y).sum(), [x, y], create_graph=True)
    assert all(g.tolist() == [0.5] * 4 for g in first)
    second = rabbet.autograd.grad(first[0][:2].sum(), [x, y])
    np.testing.assert_allclose(second[0][:2].numpy(), rate / 4, 1e-14)
    np.testing.assert_allclose(second[1][:2].numpy(), -rate / 4, 1e-14)


def test_running_sums_of_equal_exponentials_have_second_derivatives():
    x = rabbet.zeros(4, dtype=rabbet.float64, requires_grad=True)
    assert rabbet.autograd.gradgradcheck(lambda x: rabbet.logcumsumexp(x, 0), (x,))
