"""Triangular factors and solutions, column by column from ordinary operators: differentiable to any order."""

import rabbet
from rabbet import Tensor


def _columns(a: Tensor) -> Tensor:
    """The Cholesky factor of the symmetric part of (..., n, n); NaN from the first pivot on that is negative."""
    rest = (a + a.mT) / 2
    columns = []
    for j in range(a.shape[-1]):
        column = rest[..., 0] / rest[..., :1, 0].sqrt()
        columns.append(rabbet.cat([column.new_zeros(column.shape[:-1] + (j,)), column], -1))
        below = column[..., 1:]
        rest = rest[..., 1:, 1:] - below.unsqueeze(-1) * below.unsqueeze(-2)
    return rabbet.stack(columns, -1) if columns else a


def is_positive_definite(a: Tensor) -> Tensor:
    """Whether each symmetric (..., n, n) is positive definite."""
    with rabbet.no_grad():
        pivots = _columns(a.detach()).diagonal(dim1=-2, dim2=-1)
    return ((pivots > 0) & pivots.isfinite()).all(-1)


def is_positive_semidefinite(a: Tensor) -> Tensor:
    """Whether each symmetric (..., n, n) has no negative eigenvalue, up to rounding."""
    n = a.shape[-1]
    scale = a.detach().diagonal(dim1=-2, dim2=-1).abs().sum(-1) + rabbet.finfo(a.dtype).tiny
    shift = (n * rabbet.finfo(a.dtype).eps) * scale
    return is_positive_definite(a + shift[..., None, None] * identity(a))


def cholesky(a: Tensor) -> Tensor:
    """The lower triangular L with L @ L.mT == a, of symmetric positive definite (..., n, n).

    Raises:
        RuntimeError: if a matrix is not positive definite.
    """
    factor = _columns(a)
    pivots = factor.detach().diagonal(dim1=-2, dim2=-1)
    if not ((pivots > 0) & pivots.isfinite()).all():
        raise RuntimeError(
            f"cholesky: expected positive definite matrices, got one of shape {tuple(a.shape)} that is not"
        )
    return factor


def solve_lower(factor: Tensor, b: Tensor) -> Tensor:
    """x with factor @ x == b, of lower triangular (..., n, n) and (..., n, k); dimensions in front broadcast."""
    rows = []
    for j in range(factor.shape[-1]):
        row = b[..., 0, :] / factor[..., j, j].unsqueeze(-1)
        rows.append(row)
        b = b[..., 1:, :] - factor[..., j + 1 :, j].unsqueeze(-1) * row.unsqueeze(-2)
    return rabbet.stack(rows, -2) if rows else b


def identity(like: Tensor) -> Tensor:
    """The identity matrix of the size and dtype of (..., n, n)."""
    return rabbet.eye(like.shape[-1], dtype=like.dtype, device=like.device)


def inverse_from_cholesky(factor: Tensor) -> Tensor:
    """inverse(L @ L.mT)."""
    inverse = solve_lower(factor, identity(factor))
    return inverse.mT @ inverse


def log_determinant(factor: Tensor) -> Tensor:
    """log(det(L)) of triangular matrices with a positive diagonal."""
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def scale_tril_of_precision(precision: Tensor) -> Tensor:
    """The lower triangular L with inverse(L @ L.mT) == precision."""
    # With J the reversal: J P J = F F.mT, so inverse(L) = J F.mT J is lower triangular.
    reversed_factor = cholesky(precision.flip((-2, -1)))
    return solve_lower(reversed_factor.flip((-2, -1)).mT, identity(precision))


def mahalanobis(factor: Tensor, x: Tensor) -> Tensor:
    """x.mT @ inverse(L @ L.mT) @ x of vectors (..., n); dimensions in front broadcast."""
    return solve_lower(factor, x.unsqueeze(-1)).square().sum((-2, -1))
