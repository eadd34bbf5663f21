"""Products of matrices and vectors that are in the namespace itself as well as in `linalg`."""

from collections.abc import Sequence
from typing import Any

import rabbet

from .._C import Tensor
from ._arguments import need_matrices, need_tensors, several_axes
from ._dtypes import promoted


def pair(function: str, x1: Any, x2: Any) -> tuple[Tensor, Tensor]:
    """Two tensors in their common dtype.

    Raises:
        TypeError: if one is not a tensor.
    """
    need_tensors(function, x1=x1, x2=x2)
    dtype = promoted(function, x1.dtype, x2.dtype)
    return x1.to(dtype), x2.to(dtype)


def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The products of matrices (..., M, K) and (..., K, N); a vector (K) is a row on the left and a column on the right.

    Raises:
        ValueError: for a tensor without dimensions, or sizes K that differ.
    """
    x1, x2 = pair("matmul", x1, x2)
    for name, x in (("x1", x1), ("x2", x2)):
        if x.ndim == 0:
            raise ValueError(f"matmul: {name} must have at least 1 dimension, got shape ()")
    rows = x2.shape[-2] if x2.ndim > 1 else x2.shape[0]
    if x1.shape[-1] != rows:
        raise ValueError(
            f"matmul: the last size of x1 must be the number of rows of x2, got shapes {tuple(x1.shape)} and "
            f"{tuple(x2.shape)}"
        )
    return rabbet.matmul(x1, x2)


def matrix_transpose(x: Tensor, /) -> Tensor:
    """The matrices (..., M, N) transposed to (..., N, M); a view.

    Raises:
        ValueError: for fewer than two dimensions.
    """
    need_matrices("matrix_transpose", x=x)
    return x.mT


def tensordot(
    x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2
) -> Tensor:
    """Sum of products over axes of both tensors.

    Args:
        axes: N: the last N axes of `x1` and the first N of `x2`; or the axes of both.

    Raises:
        IndexError: if there is no such axis.
        ValueError: if the numbers of axes or their sizes differ.
    """
    x1, x2 = pair("tensordot", x1, x2)
    if isinstance(axes, int):
        if not 0 <= axes <= min(x1.ndim, x2.ndim):
            raise ValueError(
                f"tensordot: axes must be 0 to {min(x1.ndim, x2.ndim)} for {x1.ndim} and {x2.ndim} dimensions, "
                f"got {axes}"
            )
        left, right = list(range(x1.ndim - axes, x1.ndim)), list(range(axes))
    else:
        left = several_axes("tensordot", axes[0], x1.ndim, "axes[0]")
        right = several_axes("tensordot", axes[1], x2.ndim, "axes[1]")
    sizes = [x1.shape[d] for d in left], [x2.shape[d] for d in right]
    if sizes[0] != sizes[1]:
        raise ValueError(
            f"tensordot: the axes must have equal sizes, got {sizes[0]} and {sizes[1]}"
        )
    return rabbet.tensordot(x1, x2, (left, right))


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The dot products of vectors along `axis`, with `x1` conjugated; the other axes broadcast.

    Args:
        axis: negative: it counts from the end of both tensors.

    Raises:
        IndexError: if a tensor has no such axis.
        ValueError: if the sizes of the axis differ.
    """
    x1, x2 = pair("vecdot", x1, x2)
    for name, x in (("x1", x1), ("x2", x2)):
        if not -x.ndim <= axis < x.ndim:
            raise IndexError(
                f"vecdot: axis {axis} is out of range for {name} of shape {tuple(x.shape)}"
            )
    if x1.shape[axis] != x2.shape[axis]:
        raise ValueError(
            f"vecdot: axis {axis} must have the same size in both tensors, got shapes {tuple(x1.shape)} and "
            f"{tuple(x2.shape)}"
        )
    first, second = x1.movedim(axis, -1), x2.movedim(axis, -1)
    found = rabbet.matmul(first.conj().unsqueeze(-2), second.unsqueeze(-1))
    return found.squeeze((-2, -1))
