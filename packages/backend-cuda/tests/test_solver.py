"""Linear algebra by cuSOLVER and cuBLAS, on the simulator's stand-ins: factors, errors, captures, streams, failures."""

import pytest

MATRICES = """
linalg = rabbet.linalg
C32, C64 = rabbet.complex64, rabbet.complex128
DTYPES = [F32, F64, C32, C64]
def matrix(*shape, dtype=F64):
    x = numbers.standard_normal(shape)
    if dtype.is_complex: x = x + 1j * numbers.standard_normal(shape)
    return rabbet.tensor(x).to(dtype)
def positive(*shape, dtype=F64):
    x = matrix(*shape, dtype=dtype)
    return x @ x.mH + rabbet.eye(shape[-1], dtype=dtype)
def close(dtype): return 1e-10 if dtype in (F64, C64) else 2e-3
# Layouts: row-major, column-major, with gaps, one matrix for the whole batch.
def forms(x):
    yield x
    yield x.mT.contiguous().mT
    yield rabbet.stack([x, x], -1).flatten(-2)[..., ::2]
    if x.ndim > 2: yield x[:1].expand(x.shape)
def there(*given): return [x.to("cuda") for x in given]
def equal(got, want, dtype, what=""):
    assert got.device.type == "cuda" and got.shape == want.shape, (what, got.shape, want.shape)
    got = got.cpu().numpy()
    size = np.abs(want.numpy()).max(initial=1)
    assert np.abs(got - want.numpy()).max(initial=0) <= close(dtype) * size, (what, dtype, got, want)
"""
SHAPES = "[(1, 1), (4, 4), (3, 5, 5), (2, 2, 3, 3), (0, 3, 3), (0, 0), (2, 0, 0)]"


def test_cholesky(compared):
    compared(
        MATRICES
        + f"""
for shape in {SHAPES}:
    for dtype in DTYPES:
        for upper in (False, True):
            for x in forms(positive(*shape, dtype=dtype)):
                got = linalg.cholesky(x.to("cuda"), upper=upper)
                equal(got, linalg.cholesky(x, upper=upper), dtype, "cholesky")
                assert not shape[-1] or got.stride(-2) == 1 or shape[-1] == 1
"""
    )


def test_triangular_solves(compared):
    compared(
        MATRICES
        + f"""
def well(x): return x + 4 * rabbet.eye(x.shape[-1], dtype=x.dtype)
for shape in {SHAPES}:
    for dtype in DTYPES:
        for x in forms(well(matrix(*shape, dtype=dtype))):
            for left in (True, False):
                b = matrix(*shape[:-2], *((shape[-1], 2) if left else (2, shape[-1])), dtype=dtype)
                for upper in (True, False):
                    for unit in (True, False):
                        how = dict(upper=upper, left=left, unitriangular=unit)
                        equal(linalg.solve_triangular(*there(x, b), **how), linalg.solve_triangular(x, b, **how), dtype, how)
a, b = well(matrix(4, 4)), matrix(3, 4, 2)
equal(linalg.solve_triangular(*there(a, b), upper=True), linalg.solve_triangular(a, b, upper=True), F64)
a, b = well(matrix(2, 1, 4, 4)), matrix(1, 3, 4, 2)
equal(linalg.solve_triangular(*there(a, b), upper=False), linalg.solve_triangular(a, b, upper=False), F64)
"""
    )


def test_lu_factors_solutions_inverses_and_determinants(compared):
    compared(
        MATRICES
        + f"""
for shape in [*{SHAPES}, (2, 3), (3, 2), (4, 2, 5), (2, 0, 3), (300, 2, 2)]:
    for dtype in DTYPES:
        for x in forms(matrix(*shape, dtype=dtype)):
            (LU, pivots), (want, places) = linalg.lu_factor(x.to("cuda")), linalg.lu_factor(x)
            equal(LU, want, dtype, "LU")
            assert pivots.dtype == rabbet.int32 and pivots.tolist() == places.tolist()
            P, L, U = linalg.lu(x.to("cuda"))
            equal(P @ L @ U, x, dtype, "P L U")
            if shape[-1] != shape[-2]: continue
            x = x + 3 * rabbet.eye(shape[-1], dtype=dtype)
            b = matrix(*shape[:-1], 3, dtype=dtype)
            X = x.to("cuda")
            equal(x.to("cuda") @ linalg.solve(X, b.to("cuda")), b, dtype, "solve")
            equal(linalg.solve(X, b.mT.contiguous().to("cuda"), left=False), linalg.solve(x, b.mT, left=False), dtype)
            equal(linalg.inv(X), linalg.inv(x), dtype, "inv")
            equal(linalg.det(X), linalg.det(x), dtype, "det")
            for got, want in zip(linalg.slogdet(X), linalg.slogdet(x)): equal(got, want, dtype, "slogdet")
            for adjoint in (False, True):
                equal(linalg.lu_solve(*linalg.lu_factor(X), b.to("cuda"), adjoint=adjoint), linalg.lu_solve(*linalg.lu_factor(x), b, adjoint=adjoint), dtype)
"""
    )


def test_lu_without_exchanges_of_rows(compared):
    """The CPU has no LU factors without them."""
    compared(
        MATRICES
        + """
for shape in ((3, 3), (2, 4, 4), (4, 2)):
    for dtype in DTYPES:
        x = matrix(*shape, dtype=dtype) + 5 * rabbet.eye(*shape[-2:], dtype=dtype)
        LU, pivots = linalg.lu_factor(x.to("cuda"), pivot=False)
        k = min(shape[-2:])
        L = LU[..., :k].tril(-1) + rabbet.eye(shape[-2], k, dtype=dtype, device="cuda")
        equal(L @ LU[..., :k, :].triu(), x, dtype)
        assert (pivots.cpu() == rabbet.arange(1, k + 1)).all()
"""
    )


def test_qr_and_reflections(compared):
    compared(
        MATRICES
        + """
for shape in ((1, 1), (4, 4), (5, 3), (3, 5), (2, 4, 3), (2, 3, 4, 4), (0, 3, 2), (3, 0), (0, 3), (2, 0, 0)):
    for dtype in DTYPES:
        for x in forms(matrix(*shape, dtype=dtype)):
            X = x.to("cuda")
            for mode in ("reduced", "complete", "r"):
                for got, want in zip(linalg.qr(X, mode), linalg.qr(x, mode)): equal(got, want, dtype, mode)
            (a, tau), want = rabbet.geqrf(X), rabbet.geqrf(x)
            equal(a, want[0], dtype, "geqrf"), equal(tau, want[1], dtype, "tau")
            if shape[-2] >= shape[-1]:
                equal(linalg.householder_product(a, tau), linalg.householder_product(*want), dtype, "householder_product")
                equal(linalg.householder_product(a, tau[..., :1]), linalg.householder_product(want[0], want[1][..., :1]), dtype)
            for left in (True, False):
                c = matrix(*shape[:-2], *((shape[-2], 2) if left else (2, shape[-2])), dtype=dtype)
                for transpose in (True, False):
                    equal(rabbet.ormqr(a, tau, c.to("cuda"), left, transpose), rabbet.ormqr(*want, c, left, transpose), dtype, "ormqr")
"""
    )


def test_eigenvalues_of_hermitian_matrices(compared):
    compared(
        MATRICES
        + f"""
for shape in [*{SHAPES}, (2, 40, 40)]:
    for dtype in DTYPES:
        for x in forms(matrix(*shape, dtype=dtype)):
            for uplo in "LU":
                values, vectors = linalg.eigh(x.to("cuda"), uplo)
                equal(values, linalg.eigvalsh(x, uplo), dtype, "values")
                equal(linalg.eigvalsh(x.to("cuda"), uplo), linalg.eigvalsh(x, uplo), dtype, "eigvalsh")
                half = x.tril(-1) if uplo == "L" else x.triu(1)
                diagonal = rabbet.diag_embed(x.diagonal(0, -2, -1).real if dtype.is_complex else x.diagonal(0, -2, -1)).to(dtype)
                equal(vectors * values.unsqueeze(-2) @ vectors.mH, half + half.mH + diagonal, dtype, "whole")
                equal(vectors.mH @ vectors, rabbet.eye(shape[-1], dtype=dtype).expand(shape), dtype, "orthonormal")
"""
    )


def test_singular_values(compared):
    compared(
        MATRICES
        + """
for shape in ((1, 1), (4, 4), (5, 3), (3, 5), (2, 4, 3), (2, 3, 4), (0, 3, 2), (3, 0), (0, 3), (2, 0, 4), (40, 3)):
    for dtype in DTYPES:
        for x in forms(matrix(*shape, dtype=dtype)):
            X = x.to("cuda")
            equal(linalg.svdvals(X), linalg.svdvals(x), dtype, "svdvals")
            for full in (True, False):
                U, S, Vh = linalg.svd(X, full)
                assert [tuple(t.shape) for t in (U, S, Vh)] == [tuple(t.shape) for t in linalg.svd(x, full)]
                k = S.shape[-1]
                equal(U[..., :k] * S.unsqueeze(-2) @ Vh[..., :k, :], x, dtype, "whole")
                for Q in (U, Vh.mH): equal(Q.mH @ Q, rabbet.eye(Q.shape[-1], dtype=dtype).expand(*shape[:-2], Q.shape[-1], Q.shape[-1]), dtype, "orthonormal")
x = matrix(5, 3)
x[:, 2] = x[:, 0]
U, S, Vh = linalg.svd(x.to("cuda"))
equal(U.mH @ U, rabbet.eye(5, dtype=F64), F64), equal(U[:, :3] * S @ Vh, x, F64)
equal(linalg.pinv(x.to("cuda")), linalg.pinv(x), F64)
assert linalg.matrix_rank(x.to("cuda")).item() == 2
"""
    )


def test_gradients_and_destinations(compared):
    compared(
        MATRICES
        + """
def gradient(f, x):
    x = x.detach().requires_grad_()
    made = f(x)
    made = made if isinstance(made, tuple) else (made,)
    sum((t.abs().square().sum() for t in made), 0).backward()
    return x.grad
for f in (linalg.cholesky, linalg.inv, linalg.det, linalg.qr, linalg.eigvalsh, linalg.svdvals, lambda x: linalg.solve(x, x.mT), lambda x: linalg.lu_factor(x)[0]):
    both(lambda x: gradient(f, x), positive(3, 3), close=1e-8)
    both(lambda x: gradient(f, x), positive(2, 3, 3, dtype=C64), close=1e-8)
x = positive(3, 3)
out = rabbet.empty(3, 6, dtype=F64, device="cuda")[:, ::2]
linalg.inv(x.to("cuda"), out=out)
equal(out, linalg.inv(x), F64)
"""
    )


@pytest.mark.parametrize("schedule", ["lazy", "random:1"])
def test_streams_are_followed_and_nothing_races(compared, schedule):
    compared(
        MATRICES
        + """
x, b = positive(3, 4, 4), matrix(3, 4, 2)
wide = matrix(5, 3)
def all_of(x, b, wide):
    return linalg.cholesky(x), linalg.solve(x, b), linalg.inv(x[0]), linalg.qr(wide)[1], linalg.eigvalsh(x), linalg.svdvals(wide), linalg.lu_factor(x)[0]
want, made = all_of(x, b, wide), []
for _ in range(2):
    with rabbet.Stream("cuda"): made.append(all_of(*there(x, b, wide)))
rabbet.cuda.synchronize()
for found in made:
    for a, c in zip(want, found): equal(c, a, F64)
""",
        CUSIM_CHECK="all",
        CUSIM_SCHEDULE=schedule,
        RABBET_CUDA_EXACT="1",
    )


# ---- errors

START = """
import os, rabbet
linalg = rabbet.linalg
eye = rabbet.eye(3, device="cuda")
"""


@pytest.fixture
def program(logged):
    """Run code; return the names of routines that the stand-ins log, and the warnings."""

    def run(code, **env):
        return logged(START + code, ["CUBLAS", "CUSOLVER"], **env)

    return run


def test_singular_matrices_are_errors_with_the_place_in_the_batch(program):
    program(
        """
bad = rabbet.stack([eye, -eye, eye])
refused(linalg.LinAlgError, "linalg.cholesky: (Batch element 1): The factorization could not be completed because the input is not positive-definite (the leading minor of order 1", lambda: linalg.cholesky(bad))
assert linalg.cholesky_ex(bad)[1].tolist() == [0, 1, 0]
one = eye.clone(); one[2, 2] = -1
refused(linalg.LinAlgError, "linalg.cholesky: The factorization could not be completed because the input is not positive-definite (the leading minor of order 3", lambda: linalg.cholesky(one))
bad[1, 1] = bad[1, 0]
refused(linalg.LinAlgError, "linalg.inv: (Batch element 1): The diagonal element 2 is zero", lambda: linalg.inv(bad))
refused(linalg.LinAlgError, "linalg.solve: (Batch element 1): The solver failed because the input matrix is singular", lambda: linalg.solve(bad, bad))
refused(linalg.LinAlgError, "linalg.inv: The diagonal element 2 is zero", lambda: linalg.inv(bad[1]))
refused(linalg.LinAlgError, "linalg.lu_factor: (Batch element 1): U[2,2] is zero", lambda: linalg.lu_factor(bad))
for f in (linalg.inv_ex, linalg.lu_factor_ex, lambda x: linalg.solve_ex(x, x)): assert f(bad)[-1].tolist() == [0, 2, 0]
assert linalg.det(bad).tolist() == [1, 0, 1]
""",
        RABBET_CUDA_FALLBACK="error",
    )


def test_numbers_that_are_not_finite_are_errors(program):
    """Iterations might not converge for them. Results are those of the CPU."""
    program(
        """
nan = float("nan")
bad = rabbet.stack([eye, eye, eye]); bad[1, 2, 0] = nan; bad[2, 0, 0] = float("inf")
refused(linalg.LinAlgError, "linalg.eigh: (Batch element 1): The algorithm failed to converge", lambda: linalg.eigh(bad))
refused(linalg.LinAlgError, "linalg.svd: (Batch element 1): The algorithm failed to converge", lambda: linalg.svd(bad))
values, _, info = rabbet.ops("_linalg_eigh")(bad, "L", True)
assert info.tolist() == [0, -4, -4] and values[0].tolist() == [1, 1, 1] and values[1:].isnan().all()
_, values, _, info = rabbet.ops("_linalg_svd")(bad.to(rabbet.complex64), True, True)
assert info.tolist() == [0, -4, -4] and values[0].tolist() == [1, 1, 1] and values[1:].isnan().all()
bad = rabbet.stack([eye, eye]); bad[1, 1, 1] = nan
assert linalg.cholesky_ex(bad)[1].tolist() == [0, 2] and linalg.cholesky_ex(bad[1])[1].item() == 2
""",
        RABBET_CUDA_FALLBACK="error",
    )


def test_shapes_and_dtypes_that_do_not_fit(program):
    program(
        """
x = rabbet.ones(2, 3, device="cuda")
for f in (linalg.cholesky, linalg.inv, linalg.eigh, linalg.det):
    refused(RuntimeError, "must be batches of square matrices", lambda: f(x))
refused(RuntimeError, "at least 2 dimensions", lambda: linalg.svd(x[0]))
refused((RuntimeError, TypeError), "", lambda: linalg.inv(eye.to(rabbet.float16)))
refused(RuntimeError, "Incompatible shapes", lambda: linalg.solve(eye, x))
pivots = rabbet.tensor([1, 7], dtype=rabbet.int32, device="cuda")
def bad(): rabbet.ops("_lu_rows")(pivots, 3, False); rabbet.cuda.synchronize()
refused(IndexError, "", bad)
"""
    )


def test_small_batches_are_one_call_and_others_more(program):
    names, _ = program(
        """
x = rabbet.stack([eye, 2 * eye])
linalg.cholesky(x), linalg.inv(x), linalg.eigh(x), linalg.solve_triangular(x, x, upper=True)
linalg.cholesky(eye), linalg.inv(eye), linalg.eigh(eye), linalg.solve_triangular(eye, eye, upper=True)
linalg.qr(x), linalg.svd(x)
""",
        RABBET_CUDA_FALLBACK="error",
    )
    batched = ["potrfBatched", "getrfBatched", "getrsBatched", "syevjBatched", "trsmBatched"]
    single = ["potrf", "getrf", "getrs", "syevd", "trsm", *["geqrf"] * 2, *["orgqr"] * 2]
    assert names == [*batched, *single, "gesvd", "gesvd"]


# ---- captures


def test_triangular_solves_are_captured_and_factorisations_refused(program):
    program(
        """
a, b = rabbet.randn(4, 4, device="cuda") + 5 * rabbet.eye(4, device="cuda"), rabbet.randn(4, 2, device="cuda")
stream, graph = rabbet.Stream("cuda"), rabbet.accelerator.Graph()
rabbet.cuda.synchronize()
with stream, graph: y = linalg.solve_triangular(a, b, upper=True)
for _ in range(2):
    b.copy_(rabbet.randn(4, 2)); graph.replay(); rabbet.cuda.synchronize()
    assert rabbet.allclose(a.triu() @ y, b, atol=1e-5)
def capture():
    with stream, rabbet.accelerator.Graph(): linalg.cholesky_ex(a)
refused(RuntimeError, "_linalg_cholesky", capture)
assert linalg.inv(eye).tolist() == eye.tolist()
""",
        RABBET_CUDA_FALLBACK="error",
    )


# ---- failures


@pytest.mark.parametrize(
    "library,where,call,said",
    [
        ("CUSOLVER", "create:1", "linalg.inv(eye)", "linalg_solve on 'cuda:0': cusolverDnCreate failed: the library could not start"),
        ("CUSOLVER", "potrf:7", "linalg.cholesky(eye)", "linalg_cholesky on 'cuda:0': cusolverDnXpotrf failed: an internal error (cuSOLVER status 7)"),
        ("CUSOLVER", "gesvd:6", "linalg.svd(eye)", "linalg_svd on 'cuda:0': cusolverDnXgesvd failed: the execution failed (cuSOLVER status 6)"),
        ("CUSOLVER", "syevjBatched:6", "linalg.eigh(eye.expand(2, 3, 3))", "cusolverDnsyevjBatched failed"),
        ("CUBLAS", "trsm:14", "linalg.solve_triangular(eye, eye, upper=True)", "linalg_solve_triangular on 'cuda:0': cublastrsm failed: an internal error (cuBLAS status 14)"),
        ("CUBLAS", "create:1", "linalg.solve_triangular(eye, eye, upper=True)", "cublasCreate failed"),
        ("CUBLAS", "getrfBatched:13", "linalg.inv(eye.expand(2, 3, 3))", "cublasgetrfBatched failed"),
    ],
)  # fmt: skip
def test_a_failure_names_the_operator_and_the_routine(program, library, where, call, said):
    program(
        f"""
os.environ["CUSIM_{library}_FAIL"] = "{where}"
refused(RuntimeError, {said!r}, lambda: {call})
del os.environ["CUSIM_{library}_FAIL"]
{call}
"""
    )


@pytest.mark.parametrize(
    "library,call,operator,said",
    [
        ("CUSOLVER", "linalg.cholesky(eye)", "_linalg_cholesky", "cuSOLVER was not found: pip install 'rabbet-backend-cuda[linalg]'"),
        ("CUBLAS", "linalg.solve_triangular(eye, eye, upper=True)", "linalg_solve_triangular", "cuBLAS was not found: pip install 'rabbet-backend-cuda[cuda13]'"),
    ],
)  # fmt: skip
def test_without_a_library_calls_run_on_the_cpu_with_one_warning(
    program, library, call, operator, said
):
    _, warned = program(
        f"for _ in range(2): assert {call}.tolist() == eye.tolist()",
        **{f"RABBET_CUDA_{library}": ""},
    )
    assert warned.count(said) == 1 and f"{operator}: no kernel for 'cuda' takes this call" in warned


def test_batches_go_without_cublas(program):
    names, _ = program(
        "assert linalg.inv(eye.expand(2, 3, 3)).tolist() == [eye.tolist()] * 2",
        RABBET_CUDA_CUBLAS="",
        RABBET_CUDA_FALLBACK="error",
    )
    assert names == ["getrf"] * 2 + ["getrs"] * 2
