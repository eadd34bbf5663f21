"""Functions that select, search and sort elements, and sets of elements."""

from typing import Literal, NamedTuple

import rabbet

from .._C import Tensor
from ._arguments import Axis, need_tensors, one_axis, several_axes
from ._binary import Operand, tensors


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """The slices of `x` along `axis` that `indices` (N) name; negative ones count from the end.

    Raises:
        ValueError: if `axis` is None and `x` has several dimensions, or `indices` is no vector.
        IndexError: if there is no such axis or index.
    """
    need_tensors("take", x=x, indices=indices)
    if axis is None:
        if x.ndim != 1:
            raise ValueError(
                f"take: axis may be None for 1 dimension only, got shape {tuple(x.shape)}"
            )
        axis = 0
    if indices.ndim != 1:
        raise ValueError(f"take: indices must have 1 dimension, got shape {tuple(indices.shape)}")
    found: Tensor = x[(slice(None),) * one_axis("take", axis, x.ndim) + (indices.to(rabbet.int64),)]
    return found


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """Elements of `x` whose places along `axis` are `indices`; the other axes broadcast.

    Raises:
        ValueError: if the numbers of dimensions differ.
        IndexError: if there is no such axis.
    """
    need_tensors("take_along_axis", x=x, indices=indices)
    if x.ndim != indices.ndim:
        raise ValueError(
            f"take_along_axis: x and indices must have as many dimensions, got {x.ndim} and {indices.ndim}"
        )
    axis = one_axis("take_along_axis", axis, x.ndim)
    places = indices.to(rabbet.int64)
    return rabbet.take_along_dim(x, rabbet.where(places < 0, places + x.shape[axis], places), axis)


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the first largest element along `axis`, or in row-major order; int64. NaN is larger than numbers."""
    return rabbet.argmax(x, axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the first smallest element along `axis`, or in row-major order; int64. NaN is smaller than numbers."""
    return rabbet.argmin(x, axis, keepdims)


def count_nonzero(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The number of elements that are not zero, along `axis` or in all; int64.

    Raises:
        IndexError: if there is no such axis.
    """
    need_tensors("count_nonzero", x=x)
    axes = list(range(x.ndim)) if axis is None else several_axes("count_nonzero", axis, x.ndim)
    hits = (x != 0).to(rabbet.int64)
    return rabbet.sum(hits, axes, keepdims) if axes else hits


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """The indices of the elements that are not zero, an int64 vector for each dimension.

    Raises:
        ValueError: for a tensor without dimensions.
    """
    need_tensors("nonzero", x=x)
    if x.ndim == 0:
        raise ValueError("nonzero: x must have at least 1 dimension, got shape ()")
    return tuple(rabbet.nonzero(x, as_tuple=True))


def searchsorted(
    x1: Tensor,
    x2: Tensor | int | float,
    /,
    *,
    side: Literal["left", "right"] = "left",
    sorter: Tensor | None = None,
) -> Tensor:
    """Where to insert `x2`, of any shape, into the ascending vector `x1` so that it stays ascending; int64.

    Args:
        side: 'left': before equal elements; 'right': behind them.
        sorter: indices in whose order `x1` ascends.

    Raises:
        ValueError: for another `side`, or if `x1` is no vector.
    """
    if side not in ("left", "right"):
        raise ValueError(f"searchsorted: side must be 'left' or 'right', got {side!r}")
    need_tensors("searchsorted", x1=x1)
    if x1.ndim != 1:
        raise ValueError(f"searchsorted: x1 must have 1 dimension, got shape {tuple(x1.shape)}")
    if sorter is not None:
        need_tensors("searchsorted", sorter=sorter)
        x1 = x1[sorter.to(rabbet.int64)]
    edges, values = tensors("searchsorted", x1, x2)
    return rabbet.searchsorted(edges, values, side=side)


def where(condition: Tensor, x1: Operand, x2: Operand, /) -> Tensor:
    """Elements of `x1` where `condition` is True, of `x2` elsewhere; shapes broadcast, dtypes promote.

    Raises:
        TypeError: if `condition` is not a tensor of bools, or `x1` and `x2` are both numbers.
    """
    need_tensors("where", condition=condition)
    if condition.dtype is not rabbet.bool:
        raise TypeError(f"where: condition must be bool, got {condition.dtype.name}")
    return rabbet.where(condition, *tensors("where", x1, x2))


def argsort(
    x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> Tensor:
    """The indices that sort `x` along `axis`; int64. NaN is larger than numbers.

    Args:
        stable: whether equal elements keep their order, also if `descending` is set.
    """
    return rabbet.argsort(x, axis, descending, stable)


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The elements in ascending or descending order along `axis`. NaN is larger than numbers."""
    found: Tensor = rabbet.sort(x, axis, descending, stable)[0]
    return found


class UniqueAll(NamedTuple):
    """The result of `unique_all`."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """The result of `unique_counts`."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """The result of `unique_inverse`."""

    values: Tensor
    inverse_indices: Tensor


def _complex_unique(x: Tensor) -> UniqueAll:
    """`unique_all` of complex numbers, in the order of their real parts, then of their imaginary ones."""
    flat = x.reshape([-1])
    order = rabbet.argsort(flat.imag, stable=True)
    order = order[rabbet.argsort(flat.real[order], stable=True)]
    ascending = flat[order]
    starts = rabbet.ones_like(order, dtype=rabbet.bool)
    starts[1:] = ascending[1:] != ascending[:-1]
    group = starts.cumsum(0) - 1
    inverse = rabbet.empty_like(group).scatter_(0, order, group).reshape(x.shape)
    first = rabbet.nonzero(starts).reshape([-1])
    ends = rabbet.cat([first[1:], first.new_full([min(1, len(first))], flat.shape[0])])
    return UniqueAll(ascending[first], order[first], inverse, ends - first)


def unique_all(x: Tensor, /) -> UniqueAll:
    """The different elements in ascending order, with places and counts.

    Complex numbers are in the order of their real parts, then of their imaginary ones. Each NaN is an element of its own.

    Returns:
        `values` (K); `indices` (K), where each first occurs in row-major order; `inverse_indices`, of the shape of
        `x`, where each element of `x` is among the values; `counts` (K). All but `values` are int64.

    Raises:
        TypeError: if `x` is not a Tensor.
    """
    need_tensors("unique_all", x=x)
    if x.is_complex():
        return _complex_unique(x)
    values, inverse, counts = rabbet.unique(x, return_inverse=True, return_counts=True)
    order = rabbet.argsort(inverse.reshape([-1]), stable=True)
    return UniqueAll(values, order[counts.cumsum(0) - counts], inverse, counts)


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """The different elements (K) as `unique_all` orders them, and how often each occurs (K), int64."""
    need_tensors("unique_counts", x=x)
    if x.is_complex():
        found = _complex_unique(x)
        return UniqueCounts(found.values, found.counts)
    return UniqueCounts(*rabbet.unique(x, return_counts=True))


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """The different elements (K) as `unique_all` orders them, and where each element of `x` is among them, int64."""
    need_tensors("unique_inverse", x=x)
    if x.is_complex():
        found = _complex_unique(x)
        return UniqueInverse(found.values, found.inverse_indices)
    return UniqueInverse(*rabbet.unique(x, return_inverse=True))


def unique_values(x: Tensor, /) -> Tensor:
    """The different elements (K) as `unique_all` orders them."""
    need_tensors("unique_values", x=x)
    return _complex_unique(x).values if x.is_complex() else rabbet.unique(x)


def isin(x1: Tensor | int, x2: Tensor | int, /, *, invert: bool = False) -> Tensor:
    """Whether each element of `x1` occurs in `x2`, or with `invert` does not; bool, of the shape of `x1`.

    Raises:
        TypeError: if both are numbers.
    """
    return rabbet.isin(*tensors("isin", x1, x2), invert=invert)
