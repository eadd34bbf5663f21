"""Linear algebra: factorisations, systems of equations, eigenvalues and singular values, norms and products."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import rabbet

from . import _C, _destinations, _op_modules
from ._C import Tensor
from ._functions import accumulation_dtype

Order = int | float | str | None

_OPERATORS = _C.ops_of_module("linalg")


class LinAlgError(RuntimeError):
    """What linear algebra raises for matrices that it cannot take."""


def _checked(what: str, x: Any) -> Tensor:
    if not isinstance(x, Tensor):
        raise TypeError(f"{what}: expected a Tensor, got {type(x).__name__}")
    if not (x.is_floating_point() or x.is_complex()):
        raise RuntimeError(
            f"{what}: Expected a floating point or complex tensor as input. Got {x.dtype}"
        )
    return x


def _converted(what: str, x: Tensor, dtype: Any) -> Tensor:
    """The tensor in `dtype`, which may be wider and must keep complex numbers."""
    if dtype is None or dtype is x.dtype:
        return x
    if not (dtype.is_floating_point or dtype.is_complex):
        raise RuntimeError(f"{what}: dtype should be floating point or complex. Got {dtype}")
    if x.is_complex() and not dtype.is_complex:
        raise RuntimeError(f"{what}: dtype should be complex for complex inputs. Got {dtype}")
    if rabbet.promote_types(x.dtype, dtype) is not dtype:
        raise RuntimeError(
            f"{what}: the dtype of the input ({x.dtype}) should be convertible without narrowing to the specified "
            f"dtype ({dtype})"
        )
    return x.to(dtype)


def vector_norm(
    x: Tensor,
    ord: int | float = 2,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
    out: Tensor | None = None,
) -> Tensor:
    """The norm of order `ord` of the vectors along `dim`, of the whole tensor by default.

    Args:
        x: floating or complex, of any shape.
        ord: any number; inf and -inf are the largest and smallest absolute values, 0 counts what is not zero.
        dtype: computes in this dtype.

    Raises:
        RuntimeError: for other dtypes, and for vectors without elements that have no such norm.

    Example:
        >>> rabbet.linalg.vector_norm(rabbet.tensor([3.0, 4.0]))
        tensor(5.)
    """
    what = "linalg.vector_norm"
    _checked(what, x)
    if isinstance(ord, (bool, str)) or not isinstance(ord, (int, float)):
        raise TypeError(f"{what}: ord must be a number, got {ord!r}")
    if dim is not None and not isinstance(dim, int) and len(dim) == 0:
        dim = None
    found: Tensor = rabbet.norm(_converted(what, x, dtype), ord, dim, keepdim)
    return _destinations.write(what, found, out)


def _two_dims(what: str, A: Tensor, dim: Any) -> tuple[int, int]:
    if isinstance(dim, int) or len(dim) != 2:
        raise RuntimeError(f"{what}: dim must be a 2-tuple. Got {dim!r}")
    if A.ndim < 2:
        raise RuntimeError(f"{what}: The input tensor A must have at least 2 dimensions.")
    for d in dim:
        if not -A.ndim <= d < A.ndim:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-A.ndim}, {A.ndim - 1}], but got {d})"
            )
    first, second = (d % A.ndim for d in dim)
    if first == second:
        raise RuntimeError(f"{what}: dims must be different. Got ({dim[0]}, {dim[1]})")
    return first, second


def _extreme(values: Tensor, dim: int, largest: bool) -> Tensor:
    """The largest or the smallest of the values along `dim`; 0 where there are none."""
    if values.shape[dim] == 0:
        return values.sum(dim)
    return values.amax(dim) if largest else values.amin(dim)


def matrix_norm(
    A: Tensor,
    ord: int | float | str = "fro",
    dim: Sequence[int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: Any = None,
    out: Tensor | None = None,
) -> Tensor:
    """The norm of matrices (..., m, n).

    Args:
        ord: 'fro'; 1, -1: the largest, smallest sum of a column's absolute values; inf, -inf: of a row's.
            2, -2 and 'nuc': the largest and the smallest singular value, and their sum.
        dim: the dims of the rows and the columns.

    Raises:
        RuntimeError: for other orders, dtypes and dims.
    """
    what = "linalg.matrix_norm"
    _checked(what, A)
    rows, columns = _two_dims(what, A, dim)
    if isinstance(ord, str):
        if ord not in ("fro", "nuc"):
            raise RuntimeError(f"{what}: Order {ord} not supported.")
    elif abs(ord) not in (1, 2, float("inf")):
        raise RuntimeError(f"{what}: Order {ord} not supported.")
    x = _converted(what, A, dtype)
    if ord in (2, -2, "nuc"):
        values = _OPERATORS["svdvals"](x.movedim((rows, columns), (-2, -1)))
        found = values.sum(-1) if ord == "nuc" else _extreme(values, -1, ord == 2)
        for d in sorted((rows, columns)) if keepdim else ():
            found = found.unsqueeze(d)
        return _destinations.write(what, found, out)
    if ord == "fro":
        return _destinations.write(what, rabbet.norm(x, 2, (rows, columns), keepdim), out)
    assert not isinstance(ord, str)
    summed, other = (rows, columns) if abs(ord) == 1 else (columns, rows)
    sums = rabbet.norm(x, 1, summed, True)
    found = _extreme(sums, other, ord > 0).unsqueeze(other)
    if not keepdim:
        found = found.squeeze((rows, columns))
    return _destinations.write(what, found, out)


def norm(
    A: Tensor,
    ord: Order = None,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    out: Tensor | None = None,
    dtype: Any = None,
) -> Tensor:
    """The norm of a vector or a matrix: matrix_norm() for two dims, or of a whole matrix with `ord`; else vector_norm().

    Raises:
        RuntimeError: for other dtypes, dims and orders.
    """
    what = "linalg.norm"
    _checked(what, A)
    if ord is None:
        return vector_norm(A, 2, dim, keepdim, dtype=dtype, out=out)
    dims = (dim,) if isinstance(dim, int) else dim
    if dims is None and A.ndim not in (1, 2):
        raise RuntimeError(
            f"{what}: If dim is not specified but ord is, the input must be 1D or 2D. Got {A.ndim}D."
        )
    if dims is not None and len(dims) not in (1, 2):
        raise RuntimeError(
            f"{what}: If dim is specified, it must be of length 1 or 2. Got {list(dims)}"
        )
    if len(dims) == 2 if dims is not None else A.ndim == 2:
        return matrix_norm(A, ord, dims or (-2, -1), keepdim, dtype=dtype, out=out)
    if isinstance(ord, str):
        raise RuntimeError(
            f"{what}: order {ord!r} is a norm of matrices; expected two dims, got a vector"
        )
    return vector_norm(A, ord, dims, keepdim, dtype=dtype, out=out)


def cross(input: Tensor, other: Tensor, *, dim: int = -1, out: Tensor | None = None) -> Tensor:
    """The cross products of the vectors of length 3 along `dim`; the other dims broadcast."""
    found: Tensor = rabbet.cross(input, other, dim)
    return _destinations.write("linalg.cross", found, out)


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonals of matrices, a view: `Tensor.diagonal` of the last two dims."""
    found: Tensor = rabbet.diagonal(A, offset, dim1, dim2)
    return found


def matmul(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The product of matrices: `rabbet.matmul`."""
    found: Tensor = rabbet.matmul(input, other, out=out)
    return found


def vecdot(x: Tensor, y: Tensor, *, dim: int = -1, out: Tensor | None = None) -> Tensor:
    """The dot products of the vectors along `dim`; of complex ones with `x` conjugated."""
    for value in (x, y):
        _checked("linalg.vecdot", value)
    if x.dtype is not y.dtype:
        raise RuntimeError(
            f"linalg.vecdot: Expected x and y to have the same dtype, got {x.dtype} and {y.dtype}"
        )
    wide = accumulation_dtype(x.dtype)
    products = x.conj().to(wide) * y.to(wide)
    return _destinations.write("linalg.vecdot", products.sum(dim).to(x.dtype), out)


def multi_dot(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """The product of two or more matrices in the order that needs the fewest multiplications.

    Args:
        tensors: 2-d; the first and the last may be vectors, a row and a column.

    Raises:
        RuntimeError: for fewer than two tensors, and for shapes that do not fit.

    The order is by dynamic programming: Cormen, Leiserson, Rivest, Stein, Introduction to Algorithms, 15.2.
    """
    what = "linalg.multi_dot"
    if len(tensors) < 2:
        raise RuntimeError(f"multi_dot(): expected at least 2 tensors but got {len(tensors)}")
    matrices = list(tensors)
    is_row, is_column = matrices[0].ndim == 1, matrices[-1].ndim == 1
    if is_row:
        matrices[0] = matrices[0].unsqueeze(0)
    if is_column:
        matrices[-1] = matrices[-1].unsqueeze(1)
    for i, matrix in enumerate(matrices):
        if matrix.ndim != 2:
            raise RuntimeError(f"multi_dot(): tensor {i} must be 2D but got {matrix.ndim}D")
        if i and matrix.shape[0] != matrices[i - 1].shape[1]:
            raise RuntimeError(
                f"multi_dot(): tensors {i - 1} and {i} with shapes {list(matrices[i - 1].shape)} and "
                f"{list(matrix.shape)} cannot be multiplied"
            )
    found = _chain(matrices, _best_splits([m.shape[0] for m in matrices] + [matrices[-1].shape[1]]))
    if is_row:
        found = found.squeeze(0)
    if is_column:
        found = found.squeeze(-1)
    return _destinations.write(what, found, out)


def _best_splits(sizes: list[int]) -> dict[tuple[int, int], int]:
    """Where to split each run of matrices; matrix i has the sizes i and i + 1."""
    count = len(sizes) - 1
    cost = {(i, i): 0 for i in range(count)}
    split: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            cost[i, j], split[i, j] = min(
                (cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                for k in range(i, j)
            )
    return split


def _chain(
    matrices: list[Tensor], split: dict[tuple[int, int], int], first: int = 0, last: int = -1
) -> Tensor:
    last %= len(matrices)
    if first == last:
        return matrices[first]
    at = split[first, last]
    found: Tensor = _chain(matrices, split, first, at) @ _chain(matrices, split, at + 1, last)
    return found


def matrix_power(A: Tensor, n: int, *, out: Tensor | None = None) -> Tensor:
    """The `n`-th power of square matrices (..., m, m) by repeated squaring.

    Raises:
        RuntimeError: if the matrices are not square, or singular where `n` is negative.
    """
    what = "linalg.matrix_power"
    _checked(what, A)
    if A.ndim < 2 or A.shape[-1] != A.shape[-2]:
        raise RuntimeError(
            f"{what}: A must be batches of square matrices, but they have shape {list(A.shape)}"
        )
    if n < 0:
        return matrix_power(_OPERATORS["inv"](A), -n, out=out)
    if n == 0:
        identity = rabbet.eye(A.shape[-1], dtype=A.dtype, device=A.device)
        # Written over a copy of A, the result requires grad if A does, as in PyTorch.
        return _destinations.write(what, A.clone().copy_(identity), out)
    found: Tensor | None = None
    square = A
    while True:
        if n & 1:
            found = square if found is None else found @ square
        n >>= 1
        if n == 0:
            break
        square = square @ square
    assert found is not None
    return _destinations.write(what, found.clone() if found is A else found, out)


def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """The powers 0 to N - 1 of the numbers along the last dim, each in a row: (..., n) to (..., n, N).

    Raises:
        RuntimeError: if `N` is less than 2.
    """
    if x.ndim == 0:
        x = x.unsqueeze(-1)
    count = x.shape[-1] if N is None else N
    if count <= 1:
        raise RuntimeError(f"linalg.vander: N must be greater than 1, got {count}")
    if not (x.is_floating_point() or x.is_complex()):
        x = x.to(rabbet.int64)
    columns = x.unsqueeze(-1).expand(*x.shape, count - 1)
    first = rabbet.ones((*x.shape, 1), dtype=x.dtype, device=x.device)
    found: Tensor = rabbet.cat([first, columns.cumprod(-1)], -1)
    return found


__all__ = [
    "LinAlgError", "cross", "diagonal", "matmul", "matrix_norm", "matrix_power", "multi_dot", "norm", "vander", "vecdot",
    "vector_norm",
]  # fmt: skip

if TYPE_CHECKING:
    from ._ops_of_linalg import *  # noqa: F403
else:
    _op_modules.add_to(globals())
