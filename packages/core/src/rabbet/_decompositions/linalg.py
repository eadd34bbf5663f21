"""Decompositions of linear algebra: checks, and what follows from the factorisations that backends compute."""

import math
from typing import Any

import rabbet

from .. import _C
from .._C import Tensor
from ..linalg import LinAlgError, matrix_norm

_op = _C.op


# ---- checks


def _square(what: str, A: Tensor, name: str = "A") -> None:
    _matrices(what, A, name)
    if A.shape[-1] != A.shape[-2]:
        raise _C.ArgumentError(
            f"{what}: {name} must be batches of square matrices, but they are {A.shape[-2]} by {A.shape[-1]} matrices"
        )


def _matrices(what: str, A: Tensor, name: str = "A") -> None:
    if A.ndim < 2:
        raise _C.ArgumentError(
            f"{what}: The input tensor {name} must have at least 2 dimensions, got shape {tuple(A.shape)}"
        )
    if not (A.is_floating_point() or A.is_complex()):
        raise _C.DTypeError(
            f"{what}: Expected a floating point or complex tensor as input. Got {A.dtype}"
        )


_EIGENVECTOR_PHASES = (
    "The eigenvectors in the complex case are specified up to multiplication by e^{{i phi}}. The specified loss function "
    "depends on this quantity, so it is ill-defined."
)
# Messages of the checks of `info`, by the kind of failure; {0} is the number in `info`.
_FAILURES = {
    "cholesky": "The factorization could not be completed because the input is not positive-definite (the leading minor "
    "of order {0} is not positive-definite).",
    "lu_factor": "U[{0},{0}] is zero and using it on lu_solve would result in a division by zero. If you still want to "
    "perform the factorization, consider calling linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)",
    "inv": "The diagonal element {0} is zero, the inversion could not be completed because the input matrix is singular.",
    "solve": "The solver failed because the input matrix is singular.",
    "eigh": "The algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated "
    "eigenvalues (error code: {0}).",
    "svd": "The algorithm failed to converge because the input matrix contained non-finite values or is ill-conditioned "
    "(error code: {0}).",
    "eig": "The algorithm failed to converge (error code: {0}).",
    "ldl_factor": "The factor D is singular at element {0}.",
    "lstsq": "The least squares solution could not be computed because the input matrix does not have full rank (error "
    "code: {0}).",
    "eigh_gauge": _EIGENVECTOR_PHASES,
    "eig_gauge": _EIGENVECTOR_PHASES,
    "svd_gauge": "The singular vectors in the complex case are specified up to multiplication by e^{{i phi}}. The specified "
    "loss function depends on this phase term, making it ill-defined.",
}


def check_info(info: Tensor, what: str, failure: str) -> Tensor:
    """Return a copy of `info`, or raise a LinAlgError for the first matrix whose number is not 0."""
    failed = info.reshape(-1).nonzero()
    if len(failed):
        at = int(failed[0])
        number = int(info.reshape(-1)[at])
        which = f"(Batch element {at}): " if info.ndim else ""
        raise LinAlgError(f"{what}: {which}{_FAILURES[failure].format(number)}")
    return info.clone()


def _checked(info: Tensor, what: str, failure: str) -> None:
    if info.device.type != "meta":
        _op("_linalg_check_info")(info, what, failure)


def _run(
    what: str, failure: str, name: str, *args: Any, check: bool = True, **options: Any
) -> tuple[Tensor, ...]:
    """The results of an operator of which the last is `info`; a LinAlgError if that is to be checked and not 0."""
    results: tuple[Tensor, ...] = tuple(_op(name)(*args, **options))
    if check:
        _checked(results[-1], what, failure)
    return results


def _same_dtype(what: str, A: Tensor, B: Tensor, name: str = "A") -> None:
    if A.dtype is not B.dtype:
        raise _C.DTypeError(
            f"{what}: Expected {name} and B to have the same dtype, but found {name} of type {A.dtype} and B of type "
            f"{B.dtype} instead"
        )


def _compatible(what: str, A: Tensor, B: Tensor, left: bool) -> None:
    """B has the sizes for A @ X = B, or X @ A = B."""
    if B.shape[-2 if left else -1] != A.shape[-1]:
        raise _C.ArgumentError(
            f"{what}: Incompatible shapes of A and B for the equation {'AX = B' if left else 'XA = B'} "
            f"({A.shape[-2]}x{A.shape[-1]} and {B.shape[-2]}x{B.shape[-1]})"
        )


# ---- Cholesky


def cholesky_ex(A: Tensor, *, upper: bool, check_errors: bool) -> tuple[Tensor, ...]:
    what = "linalg.cholesky_ex"
    _square(what, A)
    return _run(what, "cholesky", "_linalg_cholesky", A, upper=upper, check=check_errors)


def cholesky(A: Tensor, *, upper: bool) -> Tensor:
    _square("linalg.cholesky", A)
    return _run("linalg.cholesky", "cholesky", "_linalg_cholesky", A, upper=upper)[0]


# ---- LU


def lu_factor_ex(A: Tensor, *, pivot: bool, check_errors: bool) -> tuple[Tensor, ...]:
    what = "linalg.lu_factor_ex"
    _matrices(what, A)
    return _run(what, "lu_factor", "_linalg_lu_factor", A, pivot=pivot, check=check_errors)


def lu_factor(A: Tensor, *, pivot: bool) -> tuple[Tensor, ...]:
    _matrices("linalg.lu_factor", A)
    return _run("linalg.lu_factor", "lu_factor", "_linalg_lu_factor", A, pivot=pivot)[:2]


def lu_unpack(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool, unpack_pivots: bool
) -> tuple[Tensor, Tensor, Tensor]:
    m, n = LU_data.shape[-2:]
    k = min(m, n)
    if unpack_pivots and LU_pivots.dtype is not rabbet.int32:
        raise _C.ArgumentError(
            "torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype. Note: this function "
            f"is intended to be used with the output produced by torch.linalg.lu_factor, got {LU_pivots.dtype}"
        )
    empty = LU_data.new_empty(0)
    P = L = U = empty
    if unpack_data:
        lower = LU_data[..., :, :k]
        ones = rabbet.eye(m, k, dtype=LU_data.dtype, device=LU_data.device)
        L = lower.tril(-1) + ones
        U = LU_data[..., :k, :].triu()
    if unpack_pivots:
        rows = _op("_lu_rows")(LU_pivots, m, True)
        P = (rows.unsqueeze(-1) == rabbet.arange(m, device=rows.device)).to(LU_data.dtype)
    return P, L, U


def lu(A: Tensor, *, pivot: bool) -> tuple[Tensor, Tensor, Tensor]:
    _matrices("linalg.lu", A)
    LU, pivots, _ = _op("_linalg_lu_factor")(A, pivot=pivot)
    P, L, U = _op("lu_unpack")(LU, pivots, True, pivot)
    return P, L, U


def _by_columns(x: Tensor) -> Tensor:
    """A column-major copy of matrices."""
    return x.mT.clone(memory_format=rabbet.contiguous_format).mT


def lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool, adjoint: bool) -> Tensor:
    what = "linalg.lu_solve"
    _square(what, LU, "LU")
    _matrices(what, B, "B")
    _same_dtype(what, LU, B, "LU")
    if pivots.dtype is not rabbet.int32:
        raise _C.DTypeError(
            f"{what}: pivots should be a Tensor of scalar type torch.int32, got {pivots.dtype}"
        )
    _compatible(what, LU, B, left)
    if pivots.shape != LU.shape[:-1]:
        raise _C.ArgumentError(
            f"{what}: Number of pivots per batch should be same as the dimension of the matrix, got {tuple(pivots.shape)} "
            f"for {tuple(LU.shape)}"
        )
    if not left:  # X @ A = B is A.mH @ X.mH = B.mH
        found = lu_solve(LU, pivots, B.mH, left=True, adjoint=not adjoint)
        return found.mH
    batch = rabbet.broadcast_shapes(LU.shape[:-2], B.shape[:-2])
    solve = _op("linalg_solve_triangular")
    permuted = _op("_lu_permuted")
    pivots = pivots.expand(*batch, LU.shape[-1])
    if adjoint:  # A.mH = U.mH @ L.mH @ P.mT
        y = solve(LU.triu().mH, B, upper=False)
        y = solve(LU.mH, y, upper=True, unitriangular=True)
        return _by_columns(permuted(y.expand(*batch, *y.shape[-2:]), pivots, True))
    y = permuted(B.expand(*batch, *B.shape[-2:]), pivots, False)
    y = solve(LU, y, upper=False, unitriangular=True)
    return solve(LU, y, upper=True)


def lu_regular(LU: Tensor) -> Tensor:
    zeros = LU.diagonal(0, -2, -1) == 0
    return LU + (zeros * rabbet.finfo(LU.dtype).eps).to(LU.dtype).diag_embed()


# ---- systems of equations


def _is_vector(A: Tensor, B: Tensor) -> bool:
    """Whether `linalg.solve` treats B as a vector, or as a batch of vectors."""
    return B.ndim == 1 or (A.ndim - 1 == B.ndim and B.shape == A.shape[:-1])


def _solved(what: str, A: Tensor, B: Tensor, left: bool, check: bool) -> tuple[Tensor, Tensor]:
    _square(what, A)
    _same_dtype(what, A, B)
    vector = _is_vector(A, B)
    if vector and not left:
        raise _C.ArgumentError(
            f"{what}: Vector broadcasting of the left hand side is not supported for left=False. In this case linalg.solve "
            "is equivalent to B / A.squeeze(-1)"
        )
    right = B.unsqueeze(-1) if vector else B
    _matrices(what, right, "B")
    _compatible(what, A, right, left)
    sides = (A, right) if left else (A.mT, right.mT)
    found, info = _run(what, "solve", "_linalg_solve", *sides, check=check)
    found = found if left else found.mT
    return (found.squeeze(-1) if vector else found), info


def solve_ex(A: Tensor, B: Tensor, *, left: bool, check_errors: bool) -> tuple[Tensor, Tensor]:
    return _solved("linalg.solve_ex", A, B, left, check_errors)


def solve(A: Tensor, B: Tensor, *, left: bool) -> Tensor:
    return _solved("linalg.solve", A, B, left, True)[0]


def _inverse(what: str, A: Tensor, check: bool) -> tuple[Tensor, ...]:
    _square(what, A)
    identity = rabbet.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    return _run(what, "inv", "_linalg_solve", A, identity, check=check)


def inv_ex(A: Tensor, *, check_errors: bool) -> tuple[Tensor, ...]:
    return _inverse("linalg.inv_ex", A, check_errors)


def inv(A: Tensor) -> Tensor:
    return _inverse("linalg.inv", A, True)[0]


def _is_odd(pivots: Tensor) -> Tensor:
    """Whether an odd number of rows is exchanged."""
    rows = rabbet.arange(1, pivots.shape[-1] + 1, dtype=pivots.dtype, device=pivots.device)
    return (pivots != rows).sum(-1) % 2 == 1


def lu_det(LU: Tensor, pivots: Tensor) -> Tensor:
    product = LU.diagonal(0, -2, -1).prod(-1)
    return rabbet.where(_is_odd(pivots), -product, product)


def det(A: Tensor) -> Tensor:
    LU, pivots, _ = _op("_linalg_lu_factor")(A)
    found: Tensor = _op("_lu_det")(LU, pivots)
    return found


def slogdet(A: Tensor) -> tuple[Tensor, Tensor]:
    LU, pivots, _ = _op("_linalg_lu_factor")(A)
    diagonal = LU.diagonal(0, -2, -1)
    sign = diagonal.sgn().prod(-1)
    return rabbet.where(_is_odd(pivots), -sign, sign), diagonal.abs().log().sum(-1)


def logdet(input: Tensor) -> Tensor:
    _square("logdet", input)
    sign, logabsdet = _op("linalg_slogdet")(input)
    return logabsdet + sign.log()


# ---- QR


def requires(x: Tensor, holds: bool, message: str) -> Tensor:
    if not holds:
        raise _C.StateError(message)
    return x


def qr(A: Tensor, mode: str) -> tuple[Tensor, Tensor]:
    _matrices("linalg.qr", A)
    if mode not in ("reduced", "complete", "r"):
        raise _C.ArgumentError(
            f"linalg.qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'"
        )
    Q, R = _op("_linalg_qr")(A, mode)
    return (A.new_empty(0) if mode == "r" else Q), R


def householder_product(input: Tensor, tau: Tensor) -> Tensor:
    what = "linalg.householder_product"
    _matrices(what, input, "input")
    m, n = input.shape[-2:]
    if m < n:
        raise _C.ArgumentError(
            f"{what}: input.shape[-2] must be greater than or equal to input.shape[-1]"
        )
    if n < tau.shape[-1]:
        raise _C.ArgumentError(
            f"{what}: input.shape[-1] must be greater than or equal to tau.shape[-1]"
        )
    if input.ndim - tau.ndim != 1:
        raise _C.ArgumentError(
            f"{what}: Expected tau to have one dimension less than input, but got tau.ndim equal to {tau.ndim} and "
            f"input.ndim is equal to {input.ndim}"
        )
    if tau.shape[:-1] != input.shape[:-2]:
        raise _C.ArgumentError(
            f"{what}: Expected batch dimensions of tau to be equal to input.shape[:-2], but got {tuple(tau.shape[:-1])}"
        )
    if tau.dtype is not input.dtype:
        raise _C.DTypeError(
            f"{what}: tau dtype {tau.dtype} does not match input dtype {input.dtype}"
        )
    if input.numel() == 0 or tau.shape[-1] == 0:
        # The identity; like PyTorch's result, it requires grad if the input does.
        return input.clone().copy_(rabbet.eye(m, n, dtype=input.dtype, device=input.device))
    return _op("_linalg_householder_product")(input, tau)


def reflections(input: Tensor, tau: Tensor) -> Tensor:
    return _product(input, tau, input.shape[-1])


def _product(input: Tensor, tau: Tensor, columns: int) -> Tensor:
    """The first columns of (I - tau_1 v_1 v_1^H) (I - tau_2 v_2 v_2^H) ..., by operators that have derivatives."""
    m = input.shape[-2]
    Q = rabbet.eye(m, columns, dtype=input.dtype, device=input.device).expand(
        *input.shape[:-2], m, columns
    )
    unit = rabbet.eye(m, input.shape[-1], dtype=input.dtype, device=input.device)
    vectors = input.tril(-1) + unit
    for i in reversed(range(tau.shape[-1])):
        v = vectors[..., i : i + 1]
        Q = Q - tau[..., i, None, None] * (v @ (v.mH @ Q))
    return Q


def reflected(input: Tensor, tau: Tensor, other: Tensor, left: bool, transpose: bool) -> Tensor:
    Q = _product(input, tau, input.shape[-2])
    Q = Q.mH if transpose else Q
    return Q @ other if left else other @ Q


def ormqr(input: Tensor, tau: Tensor, other: Tensor, left: bool, transpose: bool) -> Tensor:
    _matrices("ormqr", input, "input")
    _matrices("ormqr", other, "other")
    side = -2 if left else -1
    if other.shape[side] < tau.shape[-1]:
        raise _C.ArgumentError(
            f"torch.ormqr: other.shape[{side}] must be greater than or equal to tau.shape[-1]"
        )
    if other.shape[side] != input.shape[-2]:
        raise _C.ArgumentError(f"torch.ormqr: other.shape[{side}] must be equal to input.shape[-2]")
    if tau.shape[-1] > input.shape[-1]:
        raise _C.ArgumentError(
            "torch.ormqr: tau.shape[-1] must be less than or equal to input.shape[-1]"
        )
    if not (input.ndim - 1 == tau.ndim and input.ndim == other.ndim):
        raise _C.ArgumentError(
            f"torch.ormqr: Expected tau to have one dimension less than input and other as many, got {tau.ndim}, "
            f"{input.ndim} and {other.ndim}"
        )
    if not (input.dtype is tau.dtype is other.dtype):
        raise _C.DTypeError(
            f"torch.ormqr: Expected input, tau and other to have the same dtype, got {input.dtype}, {tau.dtype} and "
            f"{other.dtype}"
        )
    return _op("_ormqr")(input, tau, other, left, transpose)


# ---- eigenvalues


def gauge(x: Tensor, what: str, failure: str) -> Tensor:
    if x.is_complex():
        phases = x.diagonal(0, -2, -1).imag.abs() > 1e-2
        _checked(phases.to(rabbet.int32), what, failure)
    return x


def _hermitian(what: str, A: Tensor, UPLO: str, vectors: bool) -> tuple[Tensor, Tensor]:
    _square(what, A)
    if UPLO.upper() not in ("L", "U") or len(UPLO) != 1:
        raise _C.ArgumentError(f"{what}: Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    values, found, _ = _run(what, "eigh", "_linalg_eigh", A, UPLO, vectors)
    return values, found


def eigh(A: Tensor, UPLO: str) -> tuple[Tensor, Tensor]:
    return _hermitian("linalg.eigh", A, UPLO, True)


def eigvalsh(A: Tensor, UPLO: str) -> Tensor:
    return _hermitian("linalg.eigvalsh", A, UPLO, False)[0]


def _general(what: str, A: Tensor) -> tuple[Tensor, Tensor]:
    _square(what, A)
    values, vectors, _ = _run(what, "eig", "_linalg_eig", A)
    return values, vectors


def eig(A: Tensor) -> tuple[Tensor, Tensor]:
    return _general("linalg.eig", A)


def eigvals(A: Tensor) -> Tensor:
    return _general("linalg.eigvals", A)[0]


# ---- singular values


def _values(
    what: str, A: Tensor, full: bool, vectors: bool, driver: str | None
) -> tuple[Tensor, Tensor, Tensor]:
    _matrices(what, A)
    if driver is not None:
        raise _C.ArgumentError(
            f"{what}: keyword argument `driver=` is not supported on this device, got {driver!r}"
        )
    U, S, Vh, _ = _run(what, "svd", "_linalg_svd", A, full, vectors)
    return U, S, Vh


def svd(A: Tensor, full_matrices: bool, *, driver: str | None) -> tuple[Tensor, Tensor, Tensor]:
    return _values("linalg.svd", A, full_matrices, True, driver)


def svdvals(A: Tensor, *, driver: str | None) -> Tensor:
    return _values("linalg.svdvals", A, False, False, driver)[1]


def old_svd(input: Tensor, some: bool, compute_uv: bool) -> tuple[Tensor, Tensor, Tensor]:
    if compute_uv:
        U, S, Vh = _values("linalg.svd", input, not some, True, None)
        return U, S, Vh.mH
    m, n = input.shape[-2:]
    S = _values("linalg.svd", input, False, False, None)[1]
    batch = input.shape[:-2]
    return input.new_zeros(*batch, m, m), S, input.new_zeros(*batch, n, n)


def _tolerances(what: str, A: Tensor, atol: Any, rtol: Any) -> tuple[Tensor, Tensor]:
    real = A.real if A.is_complex() else A

    def tensor(value: Any, name: str) -> Tensor:
        if isinstance(value, Tensor) and value.is_complex():
            raise _C.DTypeError(
                f"{what}: {name} tensor of complex type is not supported. Got {value.dtype}"
            )
        return rabbet.as_tensor(value, dtype=real.dtype, device=A.device)

    absolute = tensor(0.0 if atol is None else atol, "atol")
    if rtol is not None:
        return absolute, tensor(rtol, "rtol")
    usual = tensor(rabbet.finfo(A.dtype).eps * max(A.shape[-2:]), "rtol")
    return absolute, usual if atol is None else rabbet.where(
        absolute > 0, tensor(0.0, "rtol"), usual
    )


def pinv_by_values(A: Tensor, atol: Tensor, rtol: Tensor, hermitian: bool) -> Tensor:
    if hermitian:
        S, U = _op("linalg_eigh")(A)
        size = S.abs()
        largest = size.amax(-1, True)
        Vh = U.mH
    else:
        U, S, Vh = _op("linalg_svd")(A, False)
        size = S
        largest = S[..., :1]
    absolute, relative = (t.real if t.is_complex() else t for t in (atol, rtol))
    kept = size > rabbet.maximum(absolute.unsqueeze(-1), relative.unsqueeze(-1) * largest)
    inverted = rabbet.where(kept, 1 / S, 0.0).to(A.dtype)
    return (Vh.mH * inverted.unsqueeze(-2)) @ U.mH


def pinv(A: Tensor, *, atol: Any, rtol: Any, hermitian: bool) -> Tensor:
    what = "linalg.pinv"
    _matrices(what, A)
    if hermitian:
        _square(what, A)
    if A.numel() == 0:
        return A.mH.clone(memory_format=_C.contiguous_format)
    absolute, relative = _tolerances(what, A, atol, rtol)
    return _op("_linalg_pinv")(A, absolute, relative, hermitian)


# ---- indefinite symmetric matrices


def ldl_factor_ex(self: Tensor, *, hermitian: bool, check_errors: bool) -> tuple[Tensor, ...]:
    what = "linalg.ldl_factor_ex"
    _square(what, self, "self")
    return _run(
        what, "ldl_factor", "_linalg_ldl_factor", self, hermitian=hermitian, check=check_errors
    )


def ldl_factor(self: Tensor, *, hermitian: bool) -> tuple[Tensor, ...]:
    what = "linalg.ldl_factor"
    _square(what, self, "self")
    return _run(what, "ldl_factor", "_linalg_ldl_factor", self, hermitian=hermitian)[:2]


# ---- derived functions


def lstsq(
    self: Tensor, b: Tensor, rcond: float | None, *, driver: str | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    what = "torch.linalg.lstsq"
    if self.ndim < 2:
        raise _C.ArgumentError(f"{what}: input must have at least 2 dimensions.")
    if b.ndim < 1:
        raise _C.ArgumentError(f"{what}: other must have at least 1 dimension.")
    if self.dtype is not b.dtype:
        raise _C.DTypeError(
            f"{what}: Expected input and other to have the same dtype, but got input's dtype {self.dtype} and other's "
            f"dtype {b.dtype}"
        )
    drivers = ("gels", "gelsy", "gelsd", "gelss")
    if driver is not None and driver not in drivers:
        raise _C.ArgumentError(
            f"{what}: parameter `driver` should be one of (gels, gelsy, gelsd, gelss), got {driver!r}"
        )
    vector = self.ndim - 1 == b.ndim and self.shape[:-1] == b.shape
    right = b.unsqueeze(-1) if vector else b
    if right.ndim < 2:
        raise _C.ArgumentError(
            f"{what}: input.dim() must be greater or equal to other.dim() and (input.dim() - other.dim()) <= 1"
        )
    m, n = self.shape[-2:]
    if right.shape[-2] != m:
        raise _C.ArgumentError(
            f"{what}: input.size(-2) should match other.size({-1 if vector else -2}), got {m} and {right.shape[-2]}"
        )
    batch = rabbet.broadcast_shapes(self.shape[:-2], right.shape[:-2])
    A = self.expand(*batch, m, n)
    B = right.expand(*batch, *right.shape[-2:])
    used = driver or "gelsy"
    limit = rabbet.finfo(self.dtype).eps * max(m, n) if rcond is None else rcond
    filled = _op("pad_constant")(B.detach(), [0, 0, 0, max(n - m, 0)])
    found, rank, values, _ = _run(
        "linalg.lstsq", "lstsq", "_linalg_lstsq", A.detach(), filled, float(limit), used
    )
    values = values[..., : min(m, n)]
    solution = _op("_linalg_lstsq_solution")(A, B, found, float(limit))
    empty = rabbet.empty(0, dtype=values.dtype, device=self.device)
    # As in PyTorch, residuals without elements require grad if the solution does.
    residuals = solution.abs().flatten()[:0].clone() if solution.requires_grad else empty
    # gels takes full rank for granted; with the other drivers it depends on the data.
    if m > n and used != "gelsy" and (used == "gels" or bool((rank == n).all())):
        residuals = (A @ solution - B).abs().square().sum(-2)
    if vector:
        solution = solution.squeeze(-1)
    no_rank = rabbet.empty(0, dtype=rabbet.int64, device=self.device)
    return (
        solution,
        residuals,
        no_rank if used == "gels" else rank,
        values if used in ("gelsd", "gelss") else empty,
    )


def lstsq_solution(A: Tensor, B: Tensor, found: Tensor, rcond: float) -> Tensor:
    batch = rabbet.broadcast_shapes(A.shape[:-2], B.shape[:-2], found.shape[:-2])
    solution = found[..., : A.shape[-1], :]
    return _by_columns(solution.expand(*batch, *solution.shape[-2:]))


def matrix_rank(A: Tensor, *, atol: Any, rtol: Any, hermitian: bool) -> Tensor:
    what = "linalg.matrix_rank"
    _matrices(what, A)
    if hermitian:
        _square(what, A)
    if A.numel() == 0:
        return rabbet.zeros(A.shape[:-2], dtype=rabbet.int64, device=A.device)
    absolute, relative = _tolerances(what, A, atol, rtol)
    S = _op("linalg_eigvalsh")(A).abs() if hermitian else _op("linalg_svdvals")(A)
    limit = rabbet.maximum(absolute, relative * S.amax(-1))
    return (limit.unsqueeze(-1) < S).sum(-1)


def matrix_rank_tol(A: Tensor, tol: Any, hermitian: bool) -> Tensor:
    return matrix_rank(A, atol=tol, rtol=0.0, hermitian=hermitian)


def cond(self: Tensor, p: Any) -> Tensor:
    what = "linalg.cond"
    _matrices(what, self)
    if p is None or p in (2, -2):
        if self.numel() == 0:
            real = self.real if self.is_complex() else self
            return real.new_zeros(self.shape[:-2])
        S = _op("linalg_svdvals")(self)
        return S[..., -1] / S[..., 0] if p == -2 else S[..., 0] / S[..., -1]
    _square(what, self)
    if p == "nuc":
        S = _op("linalg_svdvals")(self)
        return S.sum(-1) * (1 / S).sum(-1)
    inverse, info = _op("linalg_inv_ex")(self)
    found = matrix_norm(self, p) * matrix_norm(inverse, p)
    return rabbet.where(info == 0, found, float("inf"))


def tensorinv(self: Tensor, ind: int) -> Tensor:
    if ind <= 0:
        raise _C.ArgumentError(
            f"Expected a strictly positive integer for 'ind', but got {ind}: linalg.tensorinv"
        )
    first, last = self.shape[:ind], self.shape[ind:]
    rows, columns = first.numel(), last.numel()
    if rows != columns:
        raise _C.ArgumentError(
            "Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got "
            f"{columns} != {rows}"
        )
    inverse = _op("linalg_inv")(self.reshape(rows, columns))
    return inverse.reshape(*last, *first)


def tensorsolve(self: Tensor, other: Tensor, dims: list[int] | None) -> Tensor:
    A = self
    if dims is not None:
        moved = [d % A.ndim for d in dims]
        A = A.permute([d for d in range(A.ndim) if d not in moved] + moved)
    shape = A.shape[other.ndim :]
    size = shape.numel()
    if A.numel() != size * size or other.numel() != size:
        raise _C.ArgumentError(
            "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim]), but "
            f"got {size} != {other.numel()}"
        )
    found = _op("linalg_solve")(A.reshape(size, size), other.reshape(size))
    return found.reshape(shape)


# Coefficients of the diagonal Pade approximant of degree 13, and the norm up to which it is exact to float64.
_PADE = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0,
    10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
_PADE_NORM = 5.371920351148152


def matrix_exp(self: Tensor) -> Tensor:
    _square("linalg.matrix_exp", self)
    if self.numel() == 0:
        return self.clone()
    if self.dtype in (rabbet.float16, rabbet.bfloat16):
        return matrix_exp(self.float()).to(self.dtype)
    norms = self.detach().abs().sum(-2).amax(-1)
    largest = float(norms.max()) if norms.device.type != "meta" else 0.0
    halvings = max(0, math.ceil(math.log2(largest / _PADE_NORM))) if 0 < largest < math.inf else 0
    A = self / 2.0**halvings
    identity = rabbet.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    A2 = A @ A
    A4 = A2 @ A2
    A6 = A4 @ A2

    def even(b: tuple[float, ...]) -> Tensor:
        """The polynomial in A2 with the coefficients b, from the lowest on."""
        high = A6 @ (b[6] * A6 + b[5] * A4 + b[4] * A2)
        found: Tensor = high + b[3] * A6 + b[2] * A4 + b[1] * A2 + b[0] * identity
        return found

    U, V = A @ even(_PADE[1::2]), even(_PADE[::2])
    found = _op("_linalg_solve")(V - U, V + U)[0].contiguous()
    for _ in range(halvings):
        found = found @ found
    return found
