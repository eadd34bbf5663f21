"""The standard's extension of linear algebra; products are those of the namespace itself.

Unless a function says otherwise, matrices are (..., M, N) of a floating or complex dtype.
"""

from typing import Any, Literal, NamedTuple

import rabbet

from .._C import Tensor
from ._arguments import Axis, DType, need_matrices, need_tensors, one_axis, several_axes
from ._products import matmul, matrix_transpose, pair, tensordot, vecdot
from ._statistics import sum as _sum

__all__ = [
    "cholesky", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "matmul", "matrix_norm",
    "matrix_power", "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals",
    "tensordot", "trace", "vecdot", "vector_norm",
]  # fmt: skip


class EigResult(NamedTuple):
    """The result of `eig`."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class EighResult(NamedTuple):
    """The result of `eigh`."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class QRResult(NamedTuple):
    """The result of `qr`."""

    Q: Tensor
    R: Tensor


class SlogdetResult(NamedTuple):
    """The result of `slogdet`."""

    sign: Tensor
    logabsdet: Tensor


class SVDResult(NamedTuple):
    """The result of `svd`."""

    U: Tensor
    S: Tensor
    Vh: Tensor


def _square(function: str, **given: Any) -> None:
    need_matrices(function, **given)
    for name, x in given.items():
        if x.shape[-1] != x.shape[-2]:
            raise ValueError(
                f"{function}: {name} must hold square matrices, got shape {tuple(x.shape)}"
            )


def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """The Cholesky factors of positive definite matrices (..., M, M): lower triangular L with x = L @ L^H, or `upper`.

    Raises:
        ValueError: if the matrices are not square.
        rabbet.linalg.LinAlgError: if one is not positive definite.
    """
    _square("linalg.cholesky", x=x)
    return rabbet.linalg.cholesky(x, upper=upper)


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The cross products of the vectors of three elements along `axis`; the other axes broadcast.

    Raises:
        IndexError: if a tensor has no such axis.
        ValueError: if the axis has another size than 3.
    """
    x1, x2 = pair("linalg.cross", x1, x2)
    for name, x in (("x1", x1), ("x2", x2)):
        if x.shape[one_axis("linalg.cross", axis, x.ndim)] != 3:
            raise ValueError(
                f"linalg.cross: axis {axis} of {name} must have size 3, got shape {tuple(x.shape)}"
            )
    return rabbet.linalg.cross(*rabbet.broadcast_tensors(x1, x2), dim=axis)


def det(x: Tensor, /) -> Tensor:
    """The determinants (...) of square matrices.

    Raises:
        ValueError: if the matrices are not square.
    """
    _square("linalg.det", x=x)
    return rabbet.linalg.det(x)


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """The diagonals (..., K) of matrices of any dtype, `offset` above the main one; a view.

    Raises:
        ValueError: for fewer than two dimensions.
    """
    need_matrices("linalg.diagonal", x=x)
    return rabbet.diagonal(x, offset, -2, -1)


def eig(x: Tensor, /) -> EigResult:
    """The eigenvalues (..., M) and eigenvectors, in columns, of square matrices; both are complex.

    Raises:
        ValueError: if the matrices are not square.
    """
    _square("linalg.eig", x=x)
    return EigResult(*rabbet.linalg.eig(x))


def eigh(x: Tensor, /) -> EighResult:
    """The real eigenvalues (..., M), ascending, and eigenvectors, in columns, of Hermitian matrices.

    Only the lower triangle is read.

    Raises:
        ValueError: if the matrices are not square.
    """
    _square("linalg.eigh", x=x)
    return EighResult(*rabbet.linalg.eigh(x))


def eigvals(x: Tensor, /) -> Tensor:
    """The eigenvalues (..., M) of square matrices; complex.

    Raises:
        ValueError: if the matrices are not square.
    """
    _square("linalg.eigvals", x=x)
    return rabbet.linalg.eigvals(x)


def eigvalsh(x: Tensor, /) -> Tensor:
    """The real eigenvalues (..., M), ascending, of Hermitian matrices; only the lower triangle is read.

    Raises:
        ValueError: if the matrices are not square.
    """
    _square("linalg.eigvalsh", x=x)
    return rabbet.linalg.eigvalsh(x)


def inv(x: Tensor, /) -> Tensor:
    """The inverses of square matrices.

    Raises:
        ValueError: if the matrices are not square.
        rabbet.linalg.LinAlgError: if one is singular.
    """
    _square("linalg.inv", x=x)
    return rabbet.linalg.inv(x)


def matrix_norm(
    x: Tensor,
    /,
    *,
    keepdims: bool = False,
    ord: int | float | Literal["fro", "nuc"] | None = "fro",
) -> Tensor:
    """The norms (...) of matrices; real.

    Args:
        ord: 'fro', None: the Frobenius norm; 'nuc': the sum of the singular values; 1, -1: the largest, smallest sum
            of a column's absolute values; inf, -inf: of a row's; 2, -2: the largest, smallest singular value.

    Raises:
        ValueError: for fewer than two dimensions.
        RuntimeError: for another order.
    """
    need_matrices("linalg.matrix_norm", x=x)
    return rabbet.linalg.matrix_norm(x, "fro" if ord is None else ord, (-2, -1), keepdims)


def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """The `n`-th powers of square matrices; negative powers are of the inverses.

    Raises:
        ValueError: if the matrices are not square.
        rabbet.linalg.LinAlgError: if one is singular and `n` is negative.
    """
    _square("linalg.matrix_power", x=x)
    return rabbet.linalg.matrix_power(x, n)


def matrix_rank(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """The ranks (...) of matrices: how many singular values exceed `rtol` times the largest one; int64.

    Args:
        rtol: a number, or a tensor that broadcasts to (...); None: max(M, N) times eps of the dtype.

    Raises:
        ValueError: for fewer than two dimensions.
    """
    need_matrices("linalg.matrix_rank", x=x)
    return rabbet.linalg.matrix_rank(x, rtol=rtol)


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The products (N, M) of each element of the vector `x1` (N) and each of `x2` (M).

    Raises:
        ValueError: for other than one dimension.
    """
    x1, x2 = pair("linalg.outer", x1, x2)
    for name, x in (("x1", x1), ("x2", x2)):
        if x.ndim != 1:
            raise ValueError(
                f"linalg.outer: {name} must have 1 dimension, got shape {tuple(x.shape)}"
            )
    return rabbet.outer(x1, x2)


def pinv(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """The Moore-Penrose inverses (..., N, M) of matrices.

    Args:
        rtol: singular values up to `rtol` times the largest one count as 0: a number, or a tensor that broadcasts to
            (...); None: max(M, N) times eps of the dtype.

    Raises:
        ValueError: for fewer than two dimensions.
    """
    need_matrices("linalg.pinv", x=x)
    return rabbet.linalg.pinv(x, rtol=rtol)


def qr(x: Tensor, /, *, mode: Literal["reduced", "complete"] = "reduced") -> QRResult:
    """Q with orthonormal columns and upper triangular R with x = Q @ R.

    Args:
        mode: 'reduced': Q (..., M, K), R (..., K, N) with K = min(M, N); 'complete': Q (..., M, M), R (..., M, N).

    Raises:
        ValueError: for another mode, and for fewer than two dimensions.
    """
    need_matrices("linalg.qr", x=x)
    if mode not in ("reduced", "complete"):
        raise ValueError(f"linalg.qr: mode must be 'reduced' or 'complete', got {mode!r}")
    return QRResult(*rabbet.linalg.qr(x, mode))


def slogdet(x: Tensor, /) -> SlogdetResult:
    """The signs (...) of the determinants of square matrices, and the logarithms (...) of their absolute values.

    Raises:
        ValueError: if the matrices are not square.
    """
    _square("linalg.slogdet", x=x)
    return SlogdetResult(*rabbet.linalg.slogdet(x))


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The solutions X of x1 @ X = x2 for square matrices `x1` (..., M, M).

    Args:
        x2: one vector (M), or matrices (..., M, K) whose first dimensions broadcast with those of `x1`.

    Raises:
        ValueError: if the matrices are not square, or `x2` has another number of rows.
        rabbet.linalg.LinAlgError: if a matrix is singular.
    """
    x1, x2 = pair("linalg.solve", x1, x2)
    _square("linalg.solve", x1=x1)
    is_vector = x2.ndim == 1
    right = x2.unsqueeze(-1) if is_vector else x2
    if right.ndim < 2 or right.shape[-2] != x1.shape[-1]:
        raise ValueError(
            f"linalg.solve: x2 must have {x1.shape[-1]} rows as x1 has, got shapes {tuple(x1.shape)} and "
            f"{tuple(x2.shape)}"
        )
    # PyTorch's solve takes (..., M) for a batch of vectors where the shape allows it: equal batches leave no doubt.
    batch = rabbet.broadcast_shapes(x1.shape[:-2], right.shape[:-2])
    found: Tensor = rabbet.linalg.solve(
        x1.expand(*batch, *x1.shape[-2:]), right.expand(*batch, *right.shape[-2:])
    )
    return found.squeeze(-1) if is_vector else found


def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVDResult:
    """U, the singular values S (..., K) in descending order, and Vh, with x = U @ diag(S) @ Vh and K = min(M, N).

    Args:
        full_matrices: U is (..., M, M) and Vh (..., N, N); else (..., M, K) and (..., K, N).

    Raises:
        ValueError: for fewer than two dimensions.
    """
    need_matrices("linalg.svd", x=x)
    return SVDResult(*rabbet.linalg.svd(x, full_matrices))


def svdvals(x: Tensor, /) -> Tensor:
    """The singular values (..., min(M, N)) in descending order; real.

    Raises:
        ValueError: for fewer than two dimensions.
    """
    need_matrices("linalg.svdvals", x=x)
    return rabbet.linalg.svdvals(x)


def trace(x: Tensor, /, *, offset: int = 0, dtype: DType | None = None) -> Tensor:
    """The sums (...) of diagonals of matrices of any dtype, `offset` above the main one; their dtype is that of `sum`.

    Raises:
        ValueError: for fewer than two dimensions.
    """
    need_matrices("linalg.trace", x=x)
    return _sum(rabbet.diagonal(x, offset, -2, -1), axis=-1, dtype=dtype)


def vector_norm(
    x: Tensor,
    /,
    *,
    axis: Axis = None,
    keepdims: bool = False,
    ord: int | float = 2,
) -> Tensor:
    """The norms of the vectors along `axis`, or of all elements; real.

    Args:
        ord: any number; inf, -inf: the largest, smallest absolute value; 0: how many elements are not 0.

    Raises:
        IndexError: if there is no such axis.
        RuntimeError: for other than floating and complex dtypes.
    """
    need_tensors("linalg.vector_norm", x=x)
    axes = list(range(x.ndim)) if axis is None else several_axes("linalg.vector_norm", axis, x.ndim)
    if axes:
        return rabbet.linalg.vector_norm(x, ord, axes, keepdims)
    return rabbet.linalg.vector_norm(x.unsqueeze(-1), ord, -1)
