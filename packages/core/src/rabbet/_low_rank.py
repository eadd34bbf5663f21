"""Low-rank approximations of matrices: their largest singular values and principal components."""

from collections.abc import Callable

import rabbet

from . import _C, linalg
from ._C import Tensor

__all__ = ["pca_lowrank", "svd_lowrank"]


def _basis(A: Tensor, q: int, niter: int, M: Tensor | None) -> Tensor:
    """Orthonormal columns that span most of the range of A - M: algorithm 4.4 of Halko, Martinsson and Tropp."""
    multiply = _difference(A, M)
    R = rabbet.randn(A.shape[-1], q, dtype=A.dtype, device=A.device)
    Q: Tensor = linalg.qr(multiply(R, False))[0]
    for _ in range(niter):
        Q = linalg.qr(multiply(Q, True))[0]
        Q = linalg.qr(multiply(Q, False))[0]
    return Q


def _difference(A: Tensor, M: Tensor | None) -> Callable[[Tensor, bool], Tensor]:
    """A function that multiplies by A - M, or by its adjoint."""

    def multiply(X: Tensor, adjoint: bool) -> Tensor:
        found: Tensor = (A.mH if adjoint else A) @ X
        return found if M is None else found - (M.mH if adjoint else M) @ X

    return multiply


def svd_lowrank(
    A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The `q` largest singular values of matrices (*, m, n) and their vectors, by random projections.

    Args:
        q: a little more than the rank; 6 if it is None.
        niter: iterations of the subspace, 2 if it is None.
        M: subtracted from A, a matrix that broadcasts, such as means of columns.

    Returns:
        (U, S, V) with A - M close to U @ diag(S) @ V.mT, of the shapes (*, m, q), (*, q), (*, n, q).

    Source: N. Halko, P. Martinsson, J. Tropp, Finding structure with randomness, 2009.

    Example:
        >>> U, S, V = rabbet.svd_lowrank(rabbet.eye(3), q=2)
        >>> S
        tensor([1., 1.])
    """
    q = 6 if q is None else q
    niter = 2 if niter is None else niter
    m, n = A.shape[-2:]
    if M is not None:
        M = M.broadcast_to(A.shape)
    if m < n:  # of fewer columns
        U, S, V = svd_lowrank(A.mH, q, niter, None if M is None else M.mH)
        return V, S, U
    Q = _basis(A, q, niter, M)
    B = _difference(A, M)(Q, True).mH
    U, S, Vh = linalg.svd(B, full_matrices=False)
    return Q @ U, S, Vh.mH


def pca_lowrank(
    A: Tensor, q: int | None = None, center: bool = True, niter: int = 2
) -> tuple[Tensor, Tensor, Tensor]:
    """Linear principal components of rows (*, m, n) by `svd_lowrank`: (U, S, V), the columns of V are directions.

    Args:
        q: how many components, min(6, m, n) if it is None.
        center: whether the mean of each column is subtracted.

    Raises:
        ValueError: for `q` that is not from 0 to min(m, n), and for a negative `niter`.

    Example:
        >>> U, S, V = rabbet.pca_lowrank(rabbet.tensor([[0.0, 1.0], [0.0, 3.0]]), q=1)
        >>> V.abs()
        tensor([[0.],
                [1.]])
    """
    if not A.is_floating_point() and not A.is_complex():
        raise _C.ArgumentError(f"pca_lowrank: expected a floating or complex dtype, got {A.dtype}")
    m, n = A.shape[-2:]
    if q is None:
        q = min(6, m, n)
    elif not 0 <= q <= min(m, n):
        raise ValueError(
            f"q(={q}) must be non-negative integer and not greater than min(m, n)={min(m, n)}"
        )
    if not niter >= 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    mean = A.mean(-2, True) if center else None
    return svd_lowrank(A, q, niter, mean)
