"""Functions that are made of other operators: refusals, ends of the ranges, gradients where they are special."""

import math

import numpy as np
import pytest
import rabbet

inf, nan = math.inf, math.nan


@pytest.mark.parametrize("dtype", [rabbet.float32, rabbet.float64])
def test_inverse_hyperbolic_functions_from_end_to_end(dtype):
    numbers = [0.0, -0.0, 1e-30, -1e-5, 0.3, -0.7, 1.0, 2.5, 1e6, -3e7, 1e15, 1e30, inf, -inf, nan]
    x = rabbet.tensor(numbers, dtype=dtype)
    a = x.double().numpy()
    tolerance = 1e-6 if dtype is rabbet.float32 else 1e-13
    with np.errstate(all="ignore"):
        for name in ("arcsinh", "arccosh", "arctanh"):
            got = getattr(rabbet, name)(x).double().numpy()
            np.testing.assert_allclose(got, getattr(np, name)(a), tolerance, err_msg=name)
    assert math.copysign(1, rabbet.asinh(x)[1].item()) == -1


def test_larger_and_smaller_numbers_beside_nan():
    x = rabbet.tensor([1.0, nan, nan, 2.0], requires_grad=True)
    y = rabbet.tensor([nan, 3.0, nan, 2.0], requires_grad=True)
    for f, ref in ((rabbet.fmax, np.fmax), (rabbet.fmin, np.fmin)):
        z = f(x, y)
        np.testing.assert_array_equal(
            z.detach().numpy(), ref(x.detach().numpy(), y.detach().numpy())
        )
        dx, dy = rabbet.autograd.grad(z, (x, y), rabbet.ones(4))
        assert (dx + dy).tolist() == [1, 1, 1, 1] and dx.tolist() == [1, 0, 1, 1]


def test_signs_are_copied_from_zeros_too():
    x, y = rabbet.tensor([1.0, -2.0, 0.0]), rabbet.tensor([-0.0, 0.0, -3.0])
    assert rabbet.copysign(x, y).tolist() == [-1, 2, 0]
    assert math.copysign(1, rabbet.copysign(x, y)[2].item()) == -1
    assert rabbet.copysign(rabbet.tensor([1, 2]), -1).dtype is rabbet.float32


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_copysign_takes_the_sign_bit_of_nan(dtype):
    """As PyTorch: also into the sign bit of a NaN, and the gradient is that of the result's sign."""
    minus_nan = np.copysign(np.nan, -1.0)
    signs = rabbet.tensor(np.array([minus_nan, np.nan, minus_nan, -0.0, minus_nan, minus_nan])).to(
        getattr(rabbet, dtype)
    )
    sizes = rabbet.tensor(
        [1.5, -2.0, 0.0, np.nan, -np.inf, -3.0], dtype=getattr(rabbet, dtype), requires_grad=True
    )
    for order in (slice(None), slice(None, None, 2)):  # without gaps, and with them
        got = rabbet.copysign(sizes[order], signs[order])
        assert got.signbit().tolist() == [True, False, True, True, True, True][order]
        assert got.isnan().tolist() == sizes[order].isnan().tolist()
    (gradient,) = rabbet.autograd.grad(rabbet.copysign(sizes, signs).sum(), sizes)
    assert gradient[:3].tolist() == [-1, -1, 0] and gradient[3:5].isnan().all() and gradient[5] == 1
    assert rabbet.copysign(sizes.detach(), minus_nan).signbit().all()


def test_beta_of_zero_does_not_read_the_input():
    bad, m, v = rabbet.full((3,), nan), rabbet.ones(3, 2), rabbet.ones(2)
    assert rabbet.addmv(bad, m, v, beta=0).tolist() == [2, 2, 2]
    assert rabbet.addr(rabbet.full((3, 2), nan), bad.fill_(1), v, beta=0).tolist() == [[1, 1]] * 3
    full = rabbet.full((3, 4), nan)
    assert bool(
        (rabbet.addbmm(full, rabbet.ones(2, 3, 5), rabbet.ones(2, 5, 4), beta=0) == 10).all()
    )
    x = rabbet.zeros(3)
    assert x.addmv_(m, v) is x and x.tolist() == [2, 2, 2]


def test_repetitions():
    x = rabbet.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    a = x.detach().numpy()
    np.testing.assert_array_equal(x.repeat_interleave(2).detach().numpy(), np.repeat(a, 2))
    y = rabbet.repeat_interleave(x, rabbet.tensor([3, 0]), dim=1)
    np.testing.assert_array_equal(y.detach().numpy(), np.repeat(a, [3, 0], 1))
    y.sum().backward()
    assert x.grad.tolist() == [[3, 0], [3, 0]]
    assert rabbet.repeat_interleave(rabbet.tensor([2, 0, 1])).tolist() == [0, 0, 2]
    assert rabbet.tensor(5.0).repeat_interleave(2).tolist() == [5, 5]
    assert x.repeat_interleave(rabbet.tensor(2), 0, output_size=4).shape == (4, 2)


def test_indices_from_the_end_are_taken():
    x = rabbet.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert rabbet.take_along_dim(x, rabbet.tensor([[-1, 0]]), 0).tolist() == [[3, 2]]
    assert rabbet.take_along_dim(x, rabbet.tensor([-1, 1])).tolist() == [4, 2]
    with pytest.raises(IndexError):
        rabbet.take_along_dim(x, rabbet.tensor([[-3, 0]]), 0)


def test_distances_between_equal_points_have_no_gradient():
    x = rabbet.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    d = rabbet.cdist(x, x)
    np.testing.assert_allclose(d.detach().numpy(), [[0, 8**0.5], [8**0.5, 0]], 1e-6)
    d.sum().backward()
    assert bool(rabbet.isfinite(x.grad).all())


def test_diagonals_of_new_dimensions():
    x = rabbet.arange(6.0).reshape(2, 3)
    want = np.stack([np.diag(row, 1) for row in x.numpy()])
    np.testing.assert_array_equal(rabbet.diag_embed(x, 1).numpy(), want)
    np.testing.assert_array_equal(
        rabbet.diag_embed(x, 1, 0, 2).numpy(), np.moveaxis(want, [1, 2], [0, 2])
    )


three = rabbet.tensor([1.0, 2.0, 3.0])
REFUSED = {
    "repeats": lambda: three.repeat_interleave(-1),
    "repeats tensor": lambda: three.repeat_interleave(rabbet.tensor([1, -1, 0])),
    "repeats dtype": lambda: three.repeat_interleave(rabbet.tensor([1.0, 1, 0])),
    "repeats size": lambda: three.repeat_interleave(rabbet.tensor([1, 2])),
    "repeats of matrices": lambda: rabbet.repeat_interleave(rabbet.ones(2, 2).long()),
    "output size": lambda: three.repeat_interleave(2, output_size=5),
    "take_along_dim dtype": lambda: rabbet.take_along_dim(three, rabbet.tensor([0.0]), 0),
    "take_along_dim dims": lambda: rabbet.take_along_dim(three, rabbet.tensor([[0]]), 0),
    "diag_embed dims": lambda: rabbet.diag_embed(three, 0, 1, 1),
    "diag_embed range": lambda: rabbet.diag_embed(three, 0, 0, 2),
    "cross size": lambda: rabbet.cross(rabbet.ones(2, 4), rabbet.ones(2, 4)),
    "cross dim": lambda: rabbet.cross(rabbet.ones(2, 3), rabbet.ones(2, 3), 0),
    "cross dims": lambda: rabbet.cross(rabbet.ones(2, 3), three),
    "cdist columns": lambda: rabbet.cdist(rabbet.ones(2, 3), rabbet.ones(2, 4)),
    "cdist p": lambda: rabbet.cdist(rabbet.ones(2, 3), rabbet.ones(2, 3), -1.0),
    "cdist dims": lambda: rabbet.cdist(three, three),
    "cdist mode": lambda: rabbet.cdist(rabbet.ones(2, 3), rabbet.ones(2, 3), compute_mode="x"),
    "inner": lambda: rabbet.inner(three, rabbet.ones(4)),
    "fliplr": lambda: rabbet.fliplr(three),
    "flipud": lambda: rabbet.flipud(rabbet.tensor(1.0)),
    "addmv": lambda: rabbet.addmv(rabbet.ones(4), rabbet.ones(3, 2), rabbet.ones(2)),
    "vdot": lambda: rabbet.vdot(three, rabbet.ones(4)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(name):
    with pytest.raises((RuntimeError, IndexError)) as error:
        REFUSED[name]()
    assert name.split()[0].replace("repeats", "repeat").replace("output", "repeat") in str(
        error.value
    )
