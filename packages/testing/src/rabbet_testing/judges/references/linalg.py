"""Definitions of factorisations and of systems of equations, one matrix after the other.

Eigenvectors and singular vectors are unique only up to signs or phases, which depend on the precision, and LAPACK's
residuals of least squares are not unique either. Only the shapes of these are compared here. tests/test_linalg.py compares
products of the factors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .definitions import Array, Unset, defines


def _each(f: Callable[..., tuple[Any, ...]], *arrays: tuple[Array, int]) -> tuple[Any, ...]:
    """Apply f to each item of the broadcast leading dimensions. Each array comes with the number of its items' dimensions."""
    batch = np.broadcast_shapes(*(a.shape[: a.ndim - inner] for a, inner in arrays))
    whole = [np.broadcast_to(a, batch + a.shape[a.ndim - inner :]) for a, inner in arrays]
    found = [f(*(a[place] for a in whole)) for place in np.ndindex(*batch)]
    return tuple(np.stack(k).reshape(batch + np.shape(k[0])) for k in zip(*found, strict=True))


def _done(A: Array) -> Array:
    return np.zeros(A.shape[:-2], np.int32)


@defines("_linalg_cholesky")
def _cholesky(A: Array, upper: bool) -> Any:
    lower = np.linalg.cholesky(A.swapaxes(-1, -2).conj() if upper else A)
    return lower.swapaxes(-1, -2).conj() if upper else lower, _done(A)


@defines("linalg_solve_triangular")
def _triangular(A: Array, B: Array, upper: bool, left: bool, unitriangular: bool) -> Any:
    T = np.triu(A, int(unitriangular)) if upper else np.tril(A, -int(unitriangular))
    T = T + np.eye(A.shape[-1]) if unitriangular else T
    if left:
        return np.linalg.solve(T, B)
    return np.linalg.solve(T.swapaxes(-1, -2), B.swapaxes(-1, -2)).swapaxes(-1, -2)


def _lu(A: Array) -> tuple[Any, ...]:
    """Gaussian elimination with the largest pivot of each column."""
    LU, pivots = A.copy(), []
    m, n = A.shape
    for k in range(min(m, n)):
        p = k + int(np.argmax(np.abs(LU[k:, k].real) + np.abs(LU[k:, k].imag)))
        pivots.append(p + 1)
        LU[[k, p]] = LU[[p, k]]
        LU[k + 1 :, k] /= LU[k, k]
        LU[k + 1 :, k + 1 :] -= np.outer(LU[k + 1 :, k], LU[k, k + 1 :])
    return LU, np.array(pivots, np.int32)


@defines("_linalg_lu_factor")
def _lu_factor(A: Array) -> Any:
    return *_each(_lu, (A, 2)), _done(A)


@defines("_lu_rows")
def _lu_rows(pivots: Array, m: int, inverse: bool) -> Any:
    def rows(exchanges: Array) -> tuple[Any, ...]:
        order = np.arange(m)
        for k, p in enumerate(exchanges):
            order[[k, p - 1]] = order[[p - 1, k]]
        return (np.argsort(order) if inverse else order,)

    return _each(rows, (pivots, 1))


@defines("_linalg_solve")
def _solve(A: Array, B: Array) -> Any:
    found = np.linalg.solve(A, B)
    return found, _done(found)


@defines("_linalg_qr")
def _qr(A: Array, mode: Any) -> Any:
    if mode == "r":
        return np.zeros((*A.shape[:-1], 0), A.dtype), np.linalg.qr(A, "r")
    return tuple(np.linalg.qr(A, mode))


@defines("geqrf")
def _geqrf(input: Array) -> Any:
    def raw(x: Array) -> tuple[Any, ...]:
        h, tau = np.linalg.qr(x, "raw")
        return h.T, tau

    return _each(raw, (input, 2))


@defines("_linalg_eigh")
def _eigh(A: Array, UPLO: Any, compute_v: bool) -> Any:
    n = A.shape[-1]
    vectors = Unset((*A.shape[:-1], n if compute_v else 0))
    return np.linalg.eigvalsh(A, UPLO), vectors, _done(A)


@defines("linalg_eigh")
def _eigh_pair(A: Array, UPLO: Any) -> Any:
    return _eigh(A, UPLO, True)[:2]


@defines("_linalg_eig")
def _eig(A: Array) -> Any:
    values = np.linalg.eigvals(A).astype(np.complex128)
    return values, Unset(A.shape), _done(A)


@defines("_linalg_svd")
def _svd(A: Array, full_matrices: bool, compute_uv: bool) -> Any:
    m, n = A.shape[-2:]
    left, right = (m, n) if full_matrices else (min(m, n), min(m, n))
    U = Unset((*A.shape[:-1], left if compute_uv else 0))
    Vh = Unset((*A.shape[:-2], right if compute_uv else 0, n))
    return U, np.linalg.svd(A, compute_uv=False), Vh, _done(A)


@defines("linalg_svd")
def _svd_triple(A: Array, full_matrices: bool) -> Any:
    return _svd(A, full_matrices, True)[:3]


@defines("svd")
def _old_svd(input: Array, some: bool, compute_uv: bool) -> Any:
    """Like `linalg_svd`, but with V instead of Vh. Without vectors, U and V are zeros."""
    if compute_uv:
        U, S, Vh, _ = _svd(input, not some, True)
        return U, S, Unset((*Vh[:-2], Vh[-1], Vh[-2]))
    U, V = (np.zeros((*input.shape[:-2], n, n), input.dtype) for n in input.shape[-2:])
    return U, np.linalg.svd(input, compute_uv=False), V


@defines("_linalg_lstsq")
def _lstsq(A: Array, B: Array) -> Any:
    batch = np.broadcast_shapes(A.shape[:-2], B.shape[:-2])
    rank = np.broadcast_to(np.linalg.matrix_rank(A).astype(np.int64), batch)
    values = Unset((*batch, A.shape[-1]))
    return Unset((*batch, *B.shape[-2:])), rank, values, np.zeros(batch, np.int32)


@defines("_linalg_ldl_factor")
def _ldl_factor(self: Array, hermitian: bool) -> Any:
    return Unset(self.shape), Unset(self.shape[:-1]), _done(self)


@defines("linalg_ldl_solve")
def _ldl_solve(LD: Array, pivots: Array, B: Array, hermitian: bool) -> Any:
    """Solve where no rows are exchanged and all blocks of D are 1 x 1; otherwise give the shape only."""
    if (pivots != np.arange(1, LD.shape[-1] + 1)).any():
        return Unset(B.shape)
    L = np.tril(LD, -1) + np.eye(LD.shape[-1])
    D = LD * np.eye(LD.shape[-1])
    other = L.swapaxes(-1, -2)
    return np.linalg.solve(L @ D @ (other.conj() if hermitian else other), B)
