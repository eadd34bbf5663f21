"""Linear algebra: reconstruction from factors, derivatives in both modes and of second order, vmap, errors."""

import itertools
import math
import subprocess
import sys
import warnings

import numpy as np
import pytest
import rabbet
from hypothesis import given, settings
from hypothesis import strategies as st
from rabbet import linalg
from rabbet.autograd import gradcheck, gradgradcheck

DTYPES = [rabbet.float32, rabbet.float64, rabbet.complex64, rabbet.complex128]


def draw(*shape, dtype=rabbet.float64, seed=0):
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape)
    if dtype.is_complex:
        values = values + 1j * rng.standard_normal(shape)
    return rabbet.tensor(values, dtype=dtype)


def spd(x):
    return x @ x.mH + 3 * rabbet.eye(x.shape[-1], dtype=x.dtype)


def hermitian(x):
    return x + x.mH


def close(got, wanted, scale=1.0):
    single = got.dtype in (rabbet.float32, rabbet.complex64)
    tolerance = (2e-4 if single else 1e-10) * scale
    assert got.dtype == wanted.dtype and got.shape == wanted.shape
    assert rabbet.allclose(got, wanted, tolerance, tolerance), (got - wanted).abs().max()


# ---- factorisations give back the matrix


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", [(), (3,), (2, 0), (2, 3)])
@pytest.mark.parametrize("size", [(4, 4), (5, 3), (3, 5), (1, 1), (0, 3), (3, 0), (0, 0)])
def test_factors_give_back_the_matrix(size, batch, dtype):
    A = draw(*batch, *size, dtype=dtype)
    m, n = size
    k = min(size)
    Q, R = linalg.qr(A)
    close(Q @ R, A)
    close(Q.mH @ Q, rabbet.eye(k, dtype=dtype).expand(*batch, k, k))
    Q, R = linalg.qr(A, "complete")
    assert Q.shape == (*batch, m, m) and R.shape == (*batch, m, n)
    close(Q @ R, A)
    assert rabbet.equal(R.triu(), R)
    P, L, U = linalg.lu(A)
    close(P @ L @ U, A)
    U, S, Vh = linalg.svd(A, full_matrices=False)
    close((U * S.unsqueeze(-2)) @ Vh, A)
    assert (S.diff() <= 0).all() and (S >= 0).all()
    U, _, Vh = linalg.svd(A)
    close(U @ U.mH, rabbet.eye(m, dtype=dtype).expand(*batch, m, m))
    close(Vh @ Vh.mH, rabbet.eye(n, dtype=dtype).expand(*batch, n, n))
    close(linalg.svdvals(A), S)
    close(A @ linalg.pinv(A) @ A, A)


def test_the_pseudoinverse_of_nothing_keeps_the_graph():
    A = rabbet.zeros(2, 0, 3, requires_grad=True)
    inverse = linalg.pinv(A)
    assert inverse.shape == (2, 3, 0) and inverse.requires_grad
    assert rabbet.autograd.grad(inverse.sum(), A)[0].shape == A.shape


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", [(), (3,), (0,), (2, 3)])
def test_factors_of_square_matrices(batch, dtype):
    A, B = draw(*batch, 4, 4, dtype=dtype), draw(*batch, 4, 2, dtype=dtype, seed=1)
    S = spd(A)
    L = linalg.cholesky(S)
    close(L @ L.mH, S, 10)
    U = linalg.cholesky(S, upper=True)
    close(U.mH @ U, S, 10)
    close(S @ rabbet.cholesky_solve(B, L), B, 10)
    close(rabbet.cholesky_inverse(U, True) @ S, rabbet.eye(4, dtype=dtype).expand(S.shape), 10)
    w, V = linalg.eigh(S)
    close(S @ V, V * w.unsqueeze(-2), 30)
    close(linalg.eigvalsh(S, UPLO="U"), w, 30)
    w, V = linalg.eig(A)
    close(A.to(w.dtype) @ V, V * w.unsqueeze(-2), 30)
    close(linalg.eigvals(A), w)
    LD, pivots = linalg.ldl_factor(S, hermitian=True)
    close(S @ linalg.ldl_solve(LD, pivots, B, hermitian=True), B, 10)
    close(A @ linalg.solve(A, B), B, 30)
    close(linalg.inv(A) @ A, rabbet.eye(4, dtype=dtype).expand(A.shape), 30)
    sign, logabs = linalg.slogdet(A)
    close(sign * logabs.exp(), linalg.det(A), 10)


@pytest.mark.parametrize(
    ("left", "adjoint", "upper", "unit"), list(itertools.product([True, False], repeat=4))
)
@pytest.mark.parametrize("dtype", [rabbet.float64, rabbet.complex128])
def test_triangular_systems_and_factors(left, adjoint, upper, unit, dtype):
    A = draw(2, 3, 3, dtype=dtype)
    B = draw(3, 2, dtype=dtype, seed=1) if left else draw(2, 3, dtype=dtype, seed=1)
    X = linalg.lu_solve(*linalg.lu_factor(A), B, left=left, adjoint=adjoint)
    M = A.mH if adjoint else A
    close(M @ X if left else X @ M, B.expand(X.shape))
    T = A.triu(1 if unit else 0) if upper else A.tril(-1 if unit else 0)
    T = T + rabbet.eye(3, dtype=dtype) if unit else T
    spread = rabbet.zeros(2, 3, 6, dtype=dtype)
    spread[..., ::2] = A
    for matrix in (A, A.mT.contiguous().mT, spread[..., ::2]):
        X = linalg.solve_triangular(matrix, B, upper=upper, left=left, unitriangular=unit)
        close(T @ X if left else X @ T, B.expand(X.shape), 100)


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_strided_matrices_and_broadcast_batches(data):
    n = data.draw(st.integers(1, 5))
    batch = data.draw(st.lists(st.integers(1, 3), max_size=2))
    kept = [data.draw(st.sampled_from([1, b])) for b in batch]
    step = data.draw(st.sampled_from([1, 2, 3]))
    whole = draw(*batch, n, n * step, seed=data.draw(st.integers(0, 99))) + 4 * rabbet.eye(
        n, n * step, dtype=rabbet.float64
    )
    A = whole[..., ::step]
    A = A.mT if data.draw(st.booleans()) else A
    A = A + 3 * rabbet.eye(n, dtype=A.dtype)
    B = (
        draw(*kept, n, 2, seed=1).expand(*batch, n, 2)
        if data.draw(st.booleans())
        else draw(*kept, n, 2)
    )
    close(A @ linalg.solve(A, B), B.expand(*batch, n, 2).contiguous(), 1e4)
    np.testing.assert_allclose(linalg.det(A).numpy(), np.linalg.det(A.numpy()), rtol=1e-8)
    np.testing.assert_allclose(
        linalg.svdvals(A).numpy(), np.linalg.svd(A.numpy(), compute_uv=False), rtol=1e-8, atol=1e-10
    )


def test_results_are_column_major():
    A = draw(2, 4, 4)
    for result in (linalg.cholesky(spd(A)), linalg.lu_factor(A)[0], linalg.inv(A), linalg.qr(A)[0]):
        assert result.stride() == (16, 1, 4)


@pytest.mark.parametrize("driver", [None, "gels", "gelsy", "gelsd", "gelss"])
@pytest.mark.parametrize("size", [(5, 3), (3, 5), (3, 3)])
def test_least_squares(driver, size):
    A, B = draw(2, *size), draw(2, size[0], 2, seed=1)
    found = linalg.lstsq(A, B, driver=driver)
    for a, b, x in zip(A, B, found.solution, strict=True):
        np.testing.assert_allclose(
            x.numpy(), np.linalg.lstsq(a.numpy(), b.numpy(), rcond=None)[0], atol=1e-10
        )
    if driver in ("gels", "gelsd", "gelss") and size == (5, 3):
        close(found.residuals, (A @ found.solution - B).square().sum(-2))
    else:
        assert found.residuals.shape == (0,)
    assert found.rank.tolist() == ([] if driver == "gels" else [3, 3])
    wanted = linalg.svdvals(A).tolist() if driver in ("gelsd", "gelss") else []
    np.testing.assert_allclose(found.singular_values.tolist(), wanted, atol=1e-10)


def test_products_of_reflections():
    A = draw(2, 5, 3)
    a, tau = rabbet.geqrf(A)
    Q = linalg.householder_product(a, tau)
    close(Q @ a.triu()[..., :3, :], A)
    close(rabbet.ormqr(a, tau, A, True, True)[..., :3, :], a.triu()[..., :3, :])
    close(rabbet.orgqr(a, tau), Q)


def test_numbers_of_matrices():
    A = draw(3, 4, 4)
    for p in (None, 1, -1, 2, -2, math.inf, -math.inf, "fro", "nuc"):
        np.testing.assert_allclose(linalg.cond(A, p).numpy(), np.linalg.cond(A.numpy(), p))
        if p is not None:
            wanted = np.linalg.norm(A.numpy(), p, (-2, -1))
            np.testing.assert_allclose(linalg.matrix_norm(A, p).numpy(), wanted)
            np.testing.assert_allclose(
                linalg.matrix_norm(A, p, keepdim=True)[:, 0, 0].numpy(), wanted
            )
    low = draw(4, 2) @ draw(2, 4, seed=1)
    assert linalg.matrix_rank(low) == 2 and linalg.matrix_rank(low, hermitian=False, atol=1e9) == 0
    assert linalg.matrix_rank(A, 1e9).tolist() == [0, 0, 0]
    assert linalg.cond(rabbet.zeros(3, 3), 1) == math.inf


@pytest.mark.parametrize("scale", [0.0, 1e-3, 1.0, 30.0])
@pytest.mark.parametrize("dtype", [rabbet.float64, rabbet.complex128])
def test_exponentials(scale, dtype):
    scipy = pytest.importorskip("scipy.linalg")
    A = draw(2, 4, 4, dtype=dtype) * scale
    wanted = np.stack([scipy.expm(a) for a in A.numpy()])
    np.testing.assert_allclose(
        linalg.matrix_exp(A).numpy(), wanted, rtol=1e-9, atol=1e-12 * np.abs(wanted).max()
    )
    assert rabbet.matrix_exp(A.real.half()).dtype == rabbet.float16


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("dtype", [rabbet.float64, rabbet.complex128])
def test_gradients_of_cholesky_factors_are_those_of_the_whole_matrix(dtype, upper):
    """As in PyTorch, the gradient covers every element of the factor, including those of the empty triangle."""
    factor = linalg.cholesky(spd(draw(3, 3, dtype=dtype)), upper=upper)
    B = draw(2, 3, 2, dtype=dtype, seed=1)

    def product(x):
        return x.mH @ x if upper else x @ x.mH

    pairs = [
        (lambda x: rabbet.cholesky_solve(B, x, upper), lambda x: linalg.solve(product(x), B)),
        (lambda x: rabbet.cholesky_inverse(x, upper), lambda x: linalg.inv(product(x))),
    ]
    for ours, whole in pairs:
        got, wanted = (rabbet.func.vjp(f, factor) for f in (ours, whole))
        direction = draw(*got[0].shape, dtype=dtype, seed=2)
        close(got[1](direction)[0], wanted[1](direction)[0], 10)
        tangent = draw(3, 3, dtype=dtype, seed=3)
        got, wanted = (rabbet.func.jvp(f, (factor,), (tangent,))[1] for f in (ours, whole))
        close(got, wanted, 10)


def test_low_rank():
    A = draw(2, 8, 3) @ draw(2, 3, 6, seed=1)
    U, S, V = rabbet.svd_lowrank(A, 4)
    close((U * S.unsqueeze(-2)) @ V.mH, A)
    U, S, V = rabbet.pca_lowrank(A, 4)
    close((U * S.unsqueeze(-2)) @ V.mH, A - A.mean(-2, True))
    with pytest.raises(ValueError, match=r"q\(=7\) must be non-negative integer"):
        rabbet.pca_lowrank(A, 7)


# ---- derivatives and vmap

L = linalg
FUNCTIONS = {
    "cholesky": (lambda x: L.cholesky(spd(x)), (2, 3, 3)),
    "cholesky_upper": (lambda x: L.cholesky(spd(x), upper=True), (3, 3)),
    "cholesky_solve": (lambda x, b: rabbet.cholesky_solve(b, L.cholesky(spd(x))), (3, 3), (3, 2)),
    "cholesky_inverse": (lambda x: rabbet.cholesky_inverse(L.cholesky(spd(x))), (3, 3)),
    "triangular": (lambda a, b: L.solve_triangular(a + 3 * rabbet.eye(3, dtype=a.dtype), b, upper=True), (3, 3), (2, 3, 2)),
    "triangular_right": (lambda a, b: L.solve_triangular(a, b, upper=False, left=False, unitriangular=True), (3, 3), (2, 3)),
    "lu_factor": (lambda a: L.lu_factor(a)[0], (2, 3, 3)),
    "lu_wide": (lambda a: L.lu(a)[1:], (2, 3, 5)),
    "lu_tall": (lambda a: L.lu(a)[1:], (5, 3)),
    "lu_solve": (lambda a, b: L.lu_solve(*L.lu_factor(a), b), (3, 3), (3, 2)),
    "lu_solve_adjoint": (lambda a, b: L.lu_solve(*L.lu_factor(a), b, left=False, adjoint=True), (3, 3), (2, 3)),
    "solve": (L.solve, (2, 3, 3), (2, 3, 2)),
    "solve_vector": (L.solve, (2, 3, 3), (2, 3)),
    "solve_right": (lambda a, b: L.solve(a, b, left=False), (3, 3), (2, 3)),
    "inv": (L.inv, (2, 3, 3)),
    "det": (L.det, (2, 3, 3)),
    "slogdet": (lambda a: list(L.slogdet(a)), (2, 3, 3)),
    "logdet": (lambda a: rabbet.logdet(spd(a)), (3, 3)),
    "qr": (L.qr, (2, 4, 3)),
    "qr_square": (L.qr, (3, 3)),
    "qr_wide": (L.qr, (2, 3, 5)),
    "eigh": (lambda a: (lambda w, V: (w, V.abs()))(*L.eigh(hermitian(a))), (2, 3, 3)),
    "eigvalsh": (lambda a: L.eigvalsh(hermitian(a)), (2, 3, 3)),
    "eig": (lambda a: (lambda w, V: (w.abs(), V.abs()))(*L.eig(a)), (2, 3, 3)),
    "eigvals": (lambda a: L.eigvals(a).abs(), (3, 3)),
    "svd": (lambda a: (lambda u, s, v: (u @ v, s))(*L.svd(a, full_matrices=False)), (2, 3, 3)),
    "svd_tall": (lambda a: (lambda u, s, v: (u.abs(), s, v.abs()))(*L.svd(a, full_matrices=False)), (4, 3)),
    "svd_wide": (lambda a: (lambda u, s, v: (u.abs(), s, v.abs()))(*L.svd(a, full_matrices=False)), (3, 4)),
    "svd_full": (lambda a: (lambda u, s, v: (s, v.abs()))(*L.svd(a)), (4, 3)),
    "svdvals": (L.svdvals, (2, 4, 3)),
    "pinv": (L.pinv, (2, 4, 3)),
    "pinv_wide": (L.pinv, (3, 4)),
    "pinv_hermitian": (lambda a: L.pinv(hermitian(a), hermitian=True), (3, 3)),
    "lstsq": (lambda a, b: L.lstsq(a, b)[0], (2, 4, 3), (2, 4, 2)),
    "lstsq_wide": (lambda a, b: L.lstsq(a, b)[0], (3, 4), (3, 2)),
    "cond": (L.cond, (3, 3)),
    "cond_1": (lambda a: L.cond(a, 1), (3, 3)),
    "nuclear": (lambda a: L.matrix_norm(a, "nuc"), (4, 3)),
    "norm_2": (lambda a: L.norm(a, 2), (4, 3)),
    "tensorinv": (L.tensorinv, (2, 3, 6)),
    "tensorsolve": (L.tensorsolve, (2, 3, 6), (2, 3)),
    "matrix_exp": (L.matrix_exp, (2, 3, 3)),
    "householder_product": (L.householder_product, (4, 3), (3,)),
    "ormqr": (lambda a, t, o: rabbet.ormqr(a, t, o), (4, 3), (3,), (4, 2)),
    "matrix_power": (lambda a: L.matrix_power(a, -2), (3, 3)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [rabbet.float64, rabbet.complex128])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives(name, dtype):
    function, *shapes = FUNCTIONS[name]
    inputs = [draw(*s, dtype=dtype, seed=i).requires_grad_() for i, s in enumerate(shapes)]
    assert gradcheck(function, inputs)
    assert gradcheck(function, inputs, check_forward_ad=True, check_backward_ad=False)
    assert gradgradcheck(function, inputs)


@pytest.mark.parametrize("dtype", [rabbet.float64, rabbet.complex128])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_vmap_is_the_loop(name, dtype):
    function, *shapes = FUNCTIONS[name]
    inputs = [draw(3, *s, dtype=dtype, seed=i) for i, s in enumerate(shapes)]

    def flat(results):
        return list(results) if isinstance(results, (tuple, list)) else [results]

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no operator runs once per example
        found = flat(rabbet.vmap(function)(*inputs))
    wanted = [flat(function(*(x[i] for x in inputs))) for i in range(3)]
    for k, result in enumerate(found):
        close(result, rabbet.stack([w[k] for w in wanted]), 100)


def test_the_determinant_of_a_singular_matrix_has_a_gradient():
    x = rabbet.tensor([[1.0, 2.0], [2.0, 4.0]], dtype=rabbet.float64, requires_grad=True)
    linalg.det(x).backward()
    assert rabbet.allclose(
        x.grad, rabbet.tensor([[4.0, -2.0], [-2.0, 1.0]], dtype=x.dtype), atol=1e-9
    )


def test_losses_that_depend_on_phases_are_refused():
    A = draw(3, 3, dtype=rabbet.complex128).requires_grad_()
    for loss, what in [
        (lambda: linalg.eigh(hermitian(A))[1].sum().real, "eigenvectors in the complex case"),
        (lambda: linalg.eig(A)[1].sum().real, "eigenvectors in the complex case"),
        (lambda: linalg.svd(A)[0].sum().real, "singular vectors in the complex case"),
    ]:
        with pytest.raises(RuntimeError, match=what):
            loss().backward()


def test_factors_without_a_derivative():
    A = draw(4, 3).requires_grad_()
    with pytest.raises(RuntimeError, match="mode='complete' and nrows > ncols"):
        linalg.qr(A, "complete")[0].sum().backward()
    with pytest.raises(RuntimeError, match="depends on Q, which is not computed when mode='r'"):
        linalg.qr(A, "r")[1].sum().backward()


# ---- what cannot be


def test_singular_matrices_are_named_with_their_place():
    good, zero = rabbet.eye(3), rabbet.zeros(3, 3)
    both = rabbet.stack([good, zero])
    for call, what in [
        (lambda: linalg.solve(both, rabbet.ones(2, 3, 1)), r"linalg.solve: \(Batch element 1\): The solver failed"),
        (lambda: linalg.inv(both), r"linalg.inv: \(Batch element 1\): The diagonal element 1 is zero"),
        (lambda: linalg.inv(zero), "linalg.inv: The diagonal element 1 is zero"),
        (lambda: linalg.cholesky(-both), r"\(Batch element 0\).*leading minor of order 1"),
        (lambda: linalg.cholesky_ex(-good, check_errors=True), "linalg.cholesky_ex: .*not positive-definite"),
        (lambda: linalg.solve_ex(zero, good, check_errors=True), "linalg.solve_ex: "),
        (lambda: linalg.svd(good * math.nan), "linalg.svd: .*non-finite"),
        (lambda: linalg.cholesky(good * math.nan), "linalg.cholesky: "),
        (lambda: linalg.eig(good * math.nan), "linalg.eig: "),
    ]:  # fmt: skip
        with pytest.raises(linalg.LinAlgError, match=what):
            call()
    assert issubclass(linalg.LinAlgError, RuntimeError)
    assert linalg.solve_ex(zero, good).info == 1 and linalg.inv_ex(both).info.tolist() == [0, 1]
    with pytest.raises(linalg.LinAlgError, match=r"\(Batch element 1\)"):
        rabbet.vmap(linalg.inv)(both)


I3 = rabbet.eye(3)
BAD = [
    (lambda: linalg.inv(rabbet.ones(2, 3)), RuntimeError, "linalg.inv: A must be batches of square matrices, but they are 2 by 3"),
    (lambda: linalg.inv(rabbet.ones(3)), RuntimeError, "must have at least 2 dimensions"),
    (lambda: linalg.cholesky(I3.int()), TypeError, "expected float or complex dtypes, got int32"),
    (lambda: linalg.cholesky(I3.half()), NotImplementedError, "got float16"),
    (lambda: linalg.svd(I3, driver="gesvd"), RuntimeError, "driver=.*not supported on this device"),
    (lambda: linalg.qr(I3, "full"), RuntimeError, "unrecognized mode 'full'"),
    (lambda: linalg.eigh(I3, "X"), RuntimeError, "Expected UPLO argument to be 'L' or 'U', but got X"),
    (lambda: linalg.solve(I3, rabbet.ones(2, 2)), RuntimeError, r"Incompatible shapes of A and B for the equation AX = B \(3x3 and 2x2\)"),
    (lambda: linalg.solve(I3, rabbet.ones(3).double()), RuntimeError, "Expected A and B to have the same dtype"),
    (lambda: linalg.solve(I3, rabbet.ones(3), left=False), RuntimeError, "Vector broadcasting of the left hand side"),
    (lambda: linalg.solve_triangular(I3, rabbet.ones(2, 2), upper=True), RuntimeError, "Incompatible shapes of A and B for the equation AX = B"),
    (lambda: linalg.lu_factor(I3, pivot=False), NotImplementedError, "LU without pivoting is not implemented on the CPU"),
    (lambda: linalg.lu_solve(I3, rabbet.tensor([1, 2, 3]), I3), RuntimeError, "pivots should be a Tensor of scalar type torch.int32"),
    (lambda: linalg.lu_solve(I3, rabbet.tensor([1, 2, 9], dtype=rabbet.int32), I3), IndexError, "between 1 and the number of rows 3, got 9"),
    (lambda: linalg.ldl_solve(I3, rabbet.tensor([1, 0, 3], dtype=rabbet.int32), I3), IndexError, "a pivot is 0"),
    (lambda: rabbet.lu_unpack(I3, rabbet.tensor([1, 2, 3])), RuntimeError, "torch.int32 dtype"),
    (lambda: linalg.lstsq(I3, rabbet.ones(2, 2)), RuntimeError, r"input.size\(-2\) should match other.size\(-2\)"),
    (lambda: linalg.lstsq(I3, I3, driver="x"), RuntimeError, "`driver` should be one of"),
    (lambda: linalg.cond(rabbet.ones(2, 3), 1), RuntimeError, "square matrices"),
    (lambda: linalg.pinv(rabbet.ones(2, 3), hermitian=True), RuntimeError, "square matrices"),
    (lambda: linalg.pinv(I3, atol=rabbet.tensor(1j)), TypeError, "atol tensor of complex type"),
    (lambda: linalg.tensorinv(rabbet.ones(2, 3)), RuntimeError, "prod"),
    (lambda: linalg.tensorinv(rabbet.ones(2, 2), ind=0), RuntimeError, "strictly positive integer for 'ind'"),
    (lambda: linalg.tensorsolve(rabbet.ones(2, 3, 5), rabbet.ones(2, 3)), RuntimeError, "prod"),
    (lambda: linalg.householder_product(rabbet.ones(2, 3), rabbet.ones(2)), RuntimeError, "greater than or equal to input.shape"),
    (lambda: rabbet.ormqr(I3, rabbet.ones(3), rabbet.ones(2, 2)), RuntimeError, "torch.ormqr: other.shape"),
    (lambda: linalg.matrix_exp(rabbet.ones(2, 3)), RuntimeError, "n differs|square matrices"),
    (lambda: linalg.matrix_power(rabbet.zeros(2, 2), -1), linalg.LinAlgError, "singular"),
    (lambda: linalg.det(rabbet.ones(2, 3)), RuntimeError, "square matrices"),
]  # fmt: skip


@pytest.mark.parametrize("call, error, said", BAD, ids=range(len(BAD)))
def test_what_does_not_fit_is_refused(call, error, said):
    with pytest.raises(error, match=said):
        call()


def test_results_are_written_to_destinations():
    A, B = spd(draw(3, 3)), draw(3, 2)
    out = rabbet.empty(0, dtype=A.dtype)
    assert linalg.solve(A, B, out=out) is out and rabbet.equal(out, linalg.solve(A, B))
    pair = (rabbet.empty(0, dtype=A.dtype), rabbet.empty(0, dtype=A.dtype))
    values, vectors = linalg.eigh(A, out=pair)
    assert values is pair[0] and vectors is pair[1]
    LU, pivots = rabbet.lu(A)
    assert rabbet.lu(A, get_infos=True)[2] == 0
    targets = (rabbet.empty_like(LU), rabbet.empty_like(pivots))
    assert rabbet.lu(A, out=targets)[0] is targets[0] and rabbet.equal(targets[0], LU)
    with pytest.raises(TypeError, match="must be a tuple of 2 Tensors"):
        rabbet.lu(A, out=targets[0])


def test_shapes_are_known_without_data():
    A = rabbet.empty(2, 4, 3, device="meta")
    assert [r.shape for r in linalg.svd(A)] == [(2, 4, 4), (2, 3), (2, 3, 3)]
    assert [r.shape for r in linalg.lu_factor(A)] == [(2, 4, 3), (2, 3)]
    square = rabbet.empty(3, 3, device="meta")
    assert linalg.inv(square).shape == (3, 3) and linalg.det(square).shape == ()


def test_a_missing_library_is_named(tmp_path):
    code = "import rabbet; rabbet.linalg.inv(rabbet.eye(2))"
    nothing = tmp_path / "none.so"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"RABBET_LAPACK": str(nothing)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and f"RABBET_LAPACK names {nothing}" in done.stderr


def test_nuclear_norms_sum_singular_values():
    a = np.random.RandomState(0).randn(3, 4, 5)
    x = rabbet.tensor(a)
    want = np.linalg.svd(a, compute_uv=False).sum(-1)
    np.testing.assert_allclose(rabbet.norm(x, "nuc", (1, 2)).numpy(), want)
    assert rabbet.norm(x, "nuc", (1, 2), True).shape == (3, 1, 1)
    np.testing.assert_allclose(rabbet.norm(x[0], "nuc").item(), want[0])


@pytest.mark.parametrize("order", [1, -1, 2, -2, float("inf"), "nuc", "fro"])
def test_norms_of_matrices_without_elements_are_zero(order):
    assert rabbet.linalg.matrix_norm(rabbet.ones(2, 0, 3), order).tolist() == [0.0, 0.0]
    assert rabbet.linalg.norm(rabbet.ones(1, 0), order).item() == 0.0


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4)])
@pytest.mark.parametrize("rank", [0, 1])
def test_tangents_of_pseudoinverses_of_low_rank_are_finite_differences(shape, rank):
    m, n = shape
    left, right = draw(m, rank, seed=1), draw(rank, n, seed=2)
    dot_left, dot_right = draw(m, rank, seed=3), draw(rank, n, seed=4)
    out, tangent = rabbet.func.jvp(
        lambda a, b: linalg.pinv(a @ b), (left, right), (dot_left, dot_right)
    )
    assert tangent.isfinite().all()
    h = 1e-6
    later = np.linalg.pinv(((left + h * dot_left) @ (right + h * dot_right)).numpy())
    before = np.linalg.pinv(((left - h * dot_left) @ (right - h * dot_right)).numpy())
    np.testing.assert_allclose(tangent.numpy(), (later - before) / (2 * h), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(out.numpy(), np.linalg.pinv((left @ right).numpy()), atol=1e-12)


def test_least_squares_of_full_rank_inside_vmap_have_residuals():
    A, B = draw(3, 5, 2), draw(3, 5, 4, seed=1)
    found, residuals, *_ = rabbet.vmap(lambda a, b: linalg.lstsq(a, b, driver="gels"))(A, B)
    for a, b, x, r in zip(A.numpy(), B.numpy(), found.numpy(), residuals.numpy(), strict=True):
        want, left_over, *_ = np.linalg.lstsq(a, b, rcond=None)
        np.testing.assert_allclose(x, want, 1e-10)
        np.testing.assert_allclose(r, left_over, 1e-10)


@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 3)])
def test_triangular_solve_copies_the_matrices_column_by_column_for_each_right_hand_side(shape):
    A = draw(*shape).triu() + 3 * rabbet.eye(3, dtype=rabbet.float64)
    B = draw(2, 3, 2, seed=1)
    found, copied = rabbet.triangular_solve(B, A)
    np.testing.assert_allclose((A @ found).numpy(), B.numpy(), atol=1e-12)
    assert copied.shape == (2, 3, 3) and copied.stride() == (9, 1, 3)
    assert rabbet.equal(copied, A.expand(2, 3, 3))
