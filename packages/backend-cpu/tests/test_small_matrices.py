"""Batches of small matrices, which kernels compute several at a time, beside NumPy."""

import math

import numpy as np
import pytest
import rabbet
from rabbet import linalg

SIZES = [1, 2, 3, 4, 5, 8, 13, 16, 31, 32, 33]
COUNTS = [1, 2, 16, 37]
DTYPES = [rabbet.float32, rabbet.float64]


def tolerance(dtype):
    return 2e-4 if dtype is rabbet.float32 else 1e-10


def matrices(*shape, seed=0):
    """Well-conditioned square matrices, whose determinants are far from overflow."""
    a = np.random.default_rng(seed).standard_normal(shape)
    return a / (3 * math.sqrt(shape[-1])) + np.eye(shape[-1])


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def layouts(a, dtype):
    """A batch of matrices row by row, column by column, and strided."""
    yield rabbet.tensor(a, dtype=dtype)
    yield rabbet.tensor(np.swapaxes(a, -1, -2).copy(), dtype=dtype).mT
    wide = np.zeros((*a.shape[:-1], 2 * a.shape[-1]))
    wide[..., ::2] = a
    yield rabbet.tensor(wide, dtype=dtype)[..., ::2]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_systems_determinants_and_inverses(n, count, dtype):
    a, b = matrices(count, n, n), random(count, n, 3, seed=1)
    near = {"rtol": tolerance(dtype), "atol": tolerance(dtype)}
    sign, log = np.linalg.slogdet(a)
    for given in layouts(a, dtype):
        for right in layouts(b, dtype):
            found = linalg.solve(given, right)
            np.testing.assert_allclose(found.numpy(), np.linalg.solve(a, b), **near)
        np.testing.assert_allclose(linalg.inv(given).numpy(), np.linalg.inv(a), **near)
        det = linalg.det(given).numpy()
        np.testing.assert_allclose(det / np.linalg.det(a), np.ones(count), **near)
        ours = linalg.slogdet(given)
        np.testing.assert_array_equal(ours[0].numpy(), sign)
        np.testing.assert_allclose(ours[1].numpy(), log, **near)


@pytest.mark.parametrize("shape", [(5, 5), (7, 4), (3, 9), (32, 32), (32, 5), (1, 6), (6, 1)])
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_are_exchanged(shape, count, dtype):
    a = random(count, *shape)
    for given in layouts(a, dtype):
        P, L, U = linalg.lu(given)
        np.testing.assert_allclose((P @ L @ U).numpy(), a, 0, tolerance(dtype))
        assert float(L.abs().max()) <= 1
        assert rabbet.equal(L, L.tril()) and rabbet.equal(U, U.triu())


def test_singular_matrices_among_others():
    a = matrices(20, 4, 4)
    a[3] = 0.0
    a[7, :, 2] = 0.0
    a[11, 1] = 2 * a[11, 0]
    a[11, 2] = 4 * a[11, 0]
    given = rabbet.tensor(a)
    info = linalg.lu_factor_ex(given)[2].tolist()
    assert info[3] == 1 and info[7] == 3 and info[11] > 0
    assert [i for i, x in enumerate(info) if x] == [3, 7, 11]
    assert linalg.inv_ex(given)[1].tolist() == info
    np.testing.assert_allclose(linalg.det(given).numpy(), np.linalg.det(a), 1e-12, 1e-12)
    sign, log = linalg.slogdet(given)
    assert sign[3] == 0 and log[3] == -math.inf
    with pytest.raises(linalg.LinAlgError, match="Batch element 3"):
        linalg.solve(given, rabbet.ones(4, 1, dtype=rabbet.float64))
    good = [i for i, x in enumerate(info) if not x]
    found = linalg.inv_ex(given)[0][good].numpy()
    np.testing.assert_allclose(found, np.linalg.inv(a[good]), 1e-10, 1e-10)


def test_tiny_and_huge_pivots():
    for scale in (1e-40, 1e-38, 1e-30, 1e30):
        a = (matrices(3, 5, 5) * scale).astype(np.float32)
        right = np.full((3, 5, 1), scale, np.float32)
        want = np.linalg.solve(a.astype(np.float64), right.astype(np.float64))
        found = linalg.solve(rabbet.tensor(a), rabbet.tensor(right)).numpy()
        # Subnormal numbers have few digits.
        np.testing.assert_allclose(found, want, 0, 1e-2 if scale < 1e-37 else 1e-4)


def test_matrices_and_right_sides_broadcast():
    a, b = matrices(3, 1, 4, 4), random(5, 4, 2, seed=1)
    found = linalg.solve(rabbet.tensor(a), rabbet.tensor(b))
    np.testing.assert_allclose(found.numpy(), np.linalg.solve(a, b), 1e-10)
    one = rabbet.tensor(a[0, 0]).expand(40, 4, 4)
    np.testing.assert_allclose(linalg.det(one).numpy(), np.full(40, np.linalg.det(a[0, 0])))


@pytest.mark.parametrize("shape", [(0, 4, 4), (3, 0, 0), (0, 0, 0), (2, 0, 3)])
def test_batches_of_nothing(shape):
    a = rabbet.zeros(*shape)
    assert linalg.qr(a)[1].shape == (shape[0], min(shape[1:]), shape[2])
    assert linalg.svd(a, False)[1].shape == (shape[0], min(shape[1:]))
    if shape[1] == shape[2]:
        assert linalg.det(a).tolist() == [1.0] * shape[0]
        assert linalg.inv(a).shape == linalg.cholesky(a).shape == shape
        assert linalg.eigvalsh(a).shape == shape[:2]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("upper", [False, True])
def test_cholesky_factors(n, count, dtype, upper):
    x = random(count, n, n)
    a = x @ np.swapaxes(x, -1, -2) + n * np.eye(n)
    half = np.triu(a) if upper else np.tril(a)  # the other triangle is not read
    want = np.linalg.cholesky(a)
    for given in layouts(half, dtype):
        found = linalg.cholesky(given, upper=upper).numpy()
        found = np.swapaxes(found, -1, -2) if upper else found
        np.testing.assert_allclose(found, want, tolerance(dtype), tolerance(dtype))
        inverse = rabbet.cholesky_inverse(rabbet.tensor(want, dtype=dtype)).numpy()
        np.testing.assert_allclose(inverse, np.linalg.inv(a), 0, tolerance(dtype))


def test_a_matrix_that_is_not_positive_among_others():
    a = np.stack([np.eye(6)] * 20)
    a[4, 2, 2] = -1.0
    a[9, 0, 0] = math.nan
    a[15] = 0.0
    info = linalg.cholesky_ex(rabbet.tensor(a))[1].tolist()
    assert {i: x for i, x in enumerate(info) if x} == {4: 3, 9: 1, 15: 1}
    with pytest.raises(linalg.LinAlgError, match="Batch element 4"):
        linalg.cholesky(rabbet.tensor(a))


@pytest.mark.parametrize("upper", [False, True])
def test_inverses_from_complex_factors(upper):
    x = random(3, 4, 4) + 1j * random(3, 4, 4, seed=1)
    a = x @ np.conj(np.swapaxes(x, -1, -2)) + 4 * np.eye(4)
    factor = np.linalg.cholesky(a)
    factor = np.conj(np.swapaxes(factor, -1, -2)) if upper else factor
    found = rabbet.cholesky_inverse(rabbet.tensor(factor), upper)
    np.testing.assert_allclose(found.numpy(), np.linalg.inv(a), 1e-10, 1e-10)


@pytest.mark.parametrize(
    "shape", [(1, 1), (2, 2), (4, 4), (7, 3), (3, 7), (32, 32), (32, 9), (1, 5), (5, 1), (33, 4)]
)
@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_orthogonal_factors(shape, mode, count, dtype):
    a = random(count, *shape)
    for given in layouts(a, dtype):
        Q, R = linalg.qr(given, mode)
        assert rabbet.equal(R, R.triu())
        want = np.linalg.qr(a, "r")
        np.testing.assert_allclose(
            R[:, : want.shape[1]].abs().numpy(), abs(want), tolerance(dtype), tolerance(dtype)
        )
        if mode == "r":
            continue
        np.testing.assert_allclose((Q @ R).numpy(), a, 0, tolerance(dtype))
        identity = np.eye(Q.shape[-1])[None].repeat(count, 0)
        np.testing.assert_allclose((Q.mT @ Q).numpy(), identity, 0, tolerance(dtype))


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1.0, 1e30])
def test_orthogonal_factors_of_columns_of_any_size(scale):
    a = random(18, 6, 4).astype(np.float32)
    a[5, :, 1] *= np.float32(scale)
    a[7, 2:, :] *= np.float32(scale)
    Q, R = linalg.qr(rabbet.tensor(a))
    sizes = np.abs(a).max((1, 2), keepdims=True)
    np.testing.assert_allclose((Q @ R).numpy() / sizes, a / sizes, 0, 1e-5)
    np.testing.assert_allclose((Q.mT @ Q).numpy(), np.eye(4)[None].repeat(18, 0), 0, 1e-5)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("uplo", ["L", "U"])
def test_eigenvalues_of_symmetric_matrices(n, count, dtype, uplo):
    x = random(count, n, n)
    a = x + np.swapaxes(x, -1, -2)
    half = np.triu(a) if uplo == "U" else np.tril(a)
    want = np.linalg.eigvalsh(a)
    for given in layouts(half, dtype):
        values, vectors = linalg.eigh(given, uplo)
        np.testing.assert_allclose(values.numpy(), want, 0, tolerance(dtype))
        product = vectors.numpy() * values.numpy()[:, None]
        np.testing.assert_allclose(a @ vectors.numpy(), product, 0, tolerance(dtype))
        identity = np.eye(n)[None].repeat(count, 0)
        np.testing.assert_allclose((vectors.mT @ vectors).numpy(), identity, 0, tolerance(dtype))
        alone = linalg.eigvalsh(given, uplo).numpy()
        np.testing.assert_allclose(alone, want, 0, tolerance(dtype))


@pytest.mark.parametrize("scale", [1e-38, 1e-20, 1e20, 1e37])
def test_eigenvalues_and_singular_values_of_any_size(scale):
    x = random(9, 5, 5)
    a = ((x + np.swapaxes(x, -1, -2)) * scale).astype(np.float32)
    want = np.linalg.eigvalsh(a.astype(np.float64)) / scale
    found = linalg.eigvalsh(rabbet.tensor(a)).double().numpy() / scale
    np.testing.assert_allclose(found, want, 0, 1e-3 if scale < 1e-37 else 1e-5)
    want = np.linalg.svd(a.astype(np.float64), compute_uv=False) / scale
    found = linalg.svdvals(rabbet.tensor(a)).double().numpy() / scale
    np.testing.assert_allclose(found, want, 0, 1e-3 if scale < 1e-37 else 1e-5)


def test_equal_eigenvalues_and_diagonal_matrices():
    a = rabbet.eye(8).repeat(20, 1, 1) * 3.0
    a[3] = rabbet.diag(rabbet.tensor([2.0, -1, 5, 0, 0, 7, -3, 1]))
    values, vectors = linalg.eigh(a)
    assert values[3].tolist() == [-3, -1, 0, 0, 1, 2, 5, 7] and values[0].tolist() == [3.0] * 8
    assert rabbet.equal(vectors.abs().sum(-1), rabbet.ones(20, 8))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_matrices_that_are_not_finite_among_others(value):
    a = rabbet.eye(4).repeat(20, 1, 1)
    a[6, 2, 1] = value
    for function in (linalg.eigh, linalg.eigvalsh, linalg.svd, linalg.svdvals):
        with pytest.raises(linalg.LinAlgError, match="Batch element 6"):
            function(a)
    assert bool(linalg.det(a)[rabbet.arange(20) != 6].eq(1).all())


@pytest.mark.parametrize(
    "shape", [(1, 1), (2, 2), (4, 4), (7, 3), (3, 7), (32, 32), (32, 9), (1, 5), (5, 1), (33, 4)]
)
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_singular_values(shape, full, count, dtype):
    a = random(count, *shape)
    want = np.linalg.svd(a, compute_uv=False)
    k = min(shape)
    for given in layouts(a, dtype):
        U, S, Vh = linalg.svd(given, full)
        np.testing.assert_allclose(S.numpy(), want, 0, tolerance(dtype))
        product = (U[..., :k] * S[:, None]) @ Vh[:, :k]
        np.testing.assert_allclose(product.numpy(), a, 0, tolerance(dtype))
        for vectors in (U, Vh.mT):
            identity = np.eye(vectors.shape[-1])[None].repeat(count, 0)
            np.testing.assert_allclose(
                (vectors.mT @ vectors).numpy(), identity, 0, tolerance(dtype)
            )
        np.testing.assert_allclose(linalg.svdvals(given).numpy(), want, 0, tolerance(dtype))


def test_singular_vectors_of_matrices_of_low_rank_among_others():
    a = random(20, 6, 6)
    a[3] = 0.0
    a[5, :, 4] = a[5, :, 1]
    a[8] = np.outer(np.arange(6), np.ones(6))
    U, S, Vh = linalg.svd(rabbet.tensor(a))
    np.testing.assert_allclose(S.numpy(), np.linalg.svd(a, compute_uv=False), 0, 1e-12)
    np.testing.assert_allclose(((U * S[:, None]) @ Vh).numpy(), a, 0, 1e-12)
    for vectors in (U, Vh):
        identity = np.eye(6)[None].repeat(20, 0)
        np.testing.assert_allclose((vectors.mT @ vectors).numpy(), identity, 0, 1e-12)


def test_gradients_of_batches():
    a = rabbet.tensor(matrices(3, 4, 4), requires_grad=True)
    b = rabbet.tensor(random(3, 4, 2), requires_grad=True)
    for function in (
        linalg.solve,
        lambda a, b: linalg.det(a),
        lambda a, b: linalg.slogdet(a)[1],
        lambda a, b: linalg.inv(a),
    ):
        rabbet.autograd.gradcheck(function, (a, b))
