"""Norms and products of `rabbet.linalg` against NumPy; frequencies of `rabbet.fft`; what they refuse."""

import numpy as np
import pytest
import rabbet
from rabbet import fft, linalg

RNG = np.random.default_rng(0)
MATRICES = RNG.standard_normal((2, 3, 4))
INF = float("inf")


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("ord", [2, 1, 0, 3, 0.5, -1, INF, -INF])
@pytest.mark.parametrize("dim", [None, 0, -1, (0, 2)])
def test_vector_norms(ord, dim, keepdim):
    x = rabbet.tensor(MATRICES, dtype=rabbet.float64)
    axis = dim
    values = (
        np.moveaxis(MATRICES, dim, (0, 1)).reshape(8, 3) if isinstance(dim, tuple) else MATRICES
    )
    if dim is None:
        values, axis = MATRICES.reshape(-1), 0
    elif isinstance(dim, tuple):
        axis = 0
    expected = np.linalg.norm(values, ord, axis)
    found = linalg.vector_norm(x, ord, dim, keepdim)
    if keepdim:
        assert found.ndim == 3
    np.testing.assert_allclose(found.numpy().reshape(-1), expected.reshape(-1), rtol=1e-12)


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("ord", ["fro", 1, -1, INF, -INF])
@pytest.mark.parametrize("dim", [(-2, -1), (0, 1), (2, 0)])
def test_matrix_norms(ord, dim, keepdim):
    x = rabbet.tensor(MATRICES, dtype=rabbet.float64)
    expected = np.linalg.norm(MATRICES, ord, dim, keepdim)
    np.testing.assert_allclose(
        linalg.matrix_norm(x, ord, dim, keepdim).numpy(), expected, rtol=1e-12
    )
    np.testing.assert_allclose(linalg.norm(x, ord, dim, keepdim).numpy(), expected, rtol=1e-12)


def test_norm_chooses_by_the_dims():
    matrix = rabbet.tensor(MATRICES[0])
    assert linalg.norm(matrix).item() == pytest.approx(np.linalg.norm(MATRICES[0]))
    assert linalg.norm(matrix, 1).item() == pytest.approx(np.linalg.norm(MATRICES[0], 1))
    assert linalg.norm(matrix[0], 1).item() == pytest.approx(abs(MATRICES[0, 0]).sum())
    assert linalg.norm(rabbet.tensor(MATRICES)).item() == pytest.approx(
        np.linalg.norm(MATRICES.reshape(-1))
    )
    assert linalg.norm(matrix.float(), dtype=rabbet.float64).dtype is rabbet.float64
    out = rabbet.empty(0, dtype=rabbet.float64)
    assert linalg.norm(matrix, dim=1, out=out) is out and out.shape == (3,)
    complex_one = rabbet.tensor([3 + 4j, 0])
    assert linalg.vector_norm(complex_one).item() == 5 and not linalg.norm(complex_one).is_complex()


def test_norms_have_gradients():
    pytest.importorskip("rabbet.autograd")
    from rabbet.autograd import gradcheck

    x = rabbet.tensor(MATRICES, requires_grad=True)
    for ord in ("fro", 1, -INF):
        assert gradcheck(lambda t, ord=ord: linalg.matrix_norm(t, ord), (x,))
    assert gradcheck(lambda t: linalg.vector_norm(t, 3, 1), (x,))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: linalg.vector_norm(x.long()), RuntimeError, "Expected a floating point or complex tensor"),
        (lambda x: linalg.vector_norm([1.0]), TypeError, "expected a Tensor, got list"),
        (lambda x: linalg.vector_norm(x, "fro"), TypeError, "ord must be a number, got 'fro'"),
        (lambda x: linalg.vector_norm(x, dtype=rabbet.int64), RuntimeError, "dtype should be floating point"),
        (lambda x: linalg.vector_norm(x, dtype=rabbet.float16), RuntimeError, "without narrowing"),
        (lambda x: linalg.vector_norm(x.cfloat(), dtype=rabbet.float64), RuntimeError, "should be complex"),
        (lambda x: linalg.vector_norm(x, out=rabbet.empty(0, dtype=rabbet.int64)), RuntimeError, "out tensor"),
        (lambda x: linalg.matrix_norm(x, "abc"), RuntimeError, "Order abc not supported"),
        (lambda x: linalg.matrix_norm(x, 3), RuntimeError, "Order 3 not supported"),
        (lambda x: linalg.matrix_norm(x[0, 0]), RuntimeError, "at least 2 dimensions"),
        (lambda x: linalg.matrix_norm(x, dim=(0, 0)), RuntimeError, "dims must be different"),
        (lambda x: linalg.matrix_norm(x, dim=(0, 5)), IndexError, "out of range"),
        (lambda x: linalg.norm(x, 1), RuntimeError, "the input must be 1D or 2D. Got 3D"),
        (lambda x: linalg.norm(x, 1, (0, 1, 2)), RuntimeError, "of length 1 or 2"),
        (lambda x: linalg.norm(x, "fro", 0), RuntimeError, "norm of matrices"),
        (lambda x: linalg.multi_dot([x[0]]), RuntimeError, "at least 2 tensors but got 1"),
        (lambda x: linalg.multi_dot([x[0], x[0]]), RuntimeError, "cannot be multiplied"),
        (lambda x: linalg.multi_dot([x[0], x]), RuntimeError, "tensor 1 must be 2D but got 3D"),
        (lambda x: linalg.matrix_power(x, 2), RuntimeError, "square matrices"),
        (lambda x: linalg.vander(x, N=1), RuntimeError, "N must be greater than 1"),
        (lambda x: linalg.vander(x[0, 0, 0]), RuntimeError, "N must be greater than 1"),
        (lambda x: linalg.vecdot(x, x.float()), RuntimeError, "same dtype"),
    ],
)  # fmt: skip
def test_wrong_arguments_and_what_is_not_there(call, error, text):
    with pytest.raises(error, match=text):
        call(rabbet.tensor(MATRICES))


def test_products():
    x = rabbet.tensor(MATRICES)
    square = x[:, :, :3]
    for n in (0, 1, 2, 5, 8):
        expected = np.linalg.matrix_power(MATRICES[:, :, :3], n)
        np.testing.assert_allclose(
            linalg.matrix_power(square, n).numpy(), expected, rtol=1e-10, atol=1e-12
        )
        np.testing.assert_allclose(
            rabbet.matrix_power(square, n).numpy(), expected, rtol=1e-10, atol=1e-12
        )
    parts = [RNG.standard_normal(s) for s in ((5, 10), (10, 2), (2, 30), (30, 3))]
    expected = np.linalg.multi_dot(parts)
    np.testing.assert_allclose(
        linalg.multi_dot([rabbet.tensor(p) for p in parts]).numpy(), expected
    )
    row, column = rabbet.ones(5, dtype=rabbet.float64), rabbet.ones(3, dtype=rabbet.float64)
    whole = linalg.multi_dot([row, *(rabbet.tensor(p) for p in parts), column])
    assert whole.shape == () and whole.item() == pytest.approx(expected.sum())
    with pytest.warns(UserWarning, match="chain_matmul is deprecated"):
        found = rabbet.chain_matmul(*(rabbet.tensor(p) for p in parts))
    np.testing.assert_allclose(found.numpy(), expected)
    np.testing.assert_allclose(linalg.vecdot(x, x, dim=1).numpy(), (MATRICES**2).sum(1))
    z = rabbet.tensor([1 + 2j, 3j])
    assert linalg.vecdot(z, z).item() == 14 and linalg.diagonal(x).shape == (2, 3)
    np.testing.assert_allclose(
        linalg.vander(x[0]).numpy()[1], np.vander(MATRICES[0, 1], increasing=True)
    )
    assert linalg.vander(rabbet.tensor([2, 3]), N=4).tolist() == [[1, 2, 4, 8], [1, 3, 9, 27]]
    a, b = MATRICES[:, :, :1], RNG.standard_normal((1, 3, 4))
    found = linalg.cross(rabbet.tensor(a), rabbet.tensor(b), dim=1)
    np.testing.assert_allclose(found.numpy(), np.cross(np.broadcast_to(a, (2, 3, 4)), b, axis=1))


def test_the_matrices_of_a_chain_are_multiplied_in_the_best_order():
    # (10 x 100) (100 x 5) (5 x 50): the example of Cormen et al., section 15.2; the first two first.
    splits = linalg._best_splits([10, 100, 5, 50])
    assert splits[0, 2] == 1


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_frequencies_and_their_order(n):
    np.testing.assert_allclose(
        fft.fftfreq(n, 0.5, dtype=rabbet.float64).numpy(), np.fft.fftfreq(n, 0.5)
    )
    np.testing.assert_allclose(
        fft.rfftfreq(n, 2.0, dtype=rabbet.float64).numpy(), np.fft.rfftfreq(n, 2.0)
    )
    x = RNG.standard_normal((n, 3))
    for name in ("fftshift", "ifftshift"):
        for dim in (None, 0, (0, 1)):
            found = getattr(fft, name)(rabbet.tensor(x), dim)
            np.testing.assert_array_equal(found.numpy(), getattr(np.fft, name)(x, dim))
