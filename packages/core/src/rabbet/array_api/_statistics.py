"""Reductions along axes, running sums and products, and differences.

`axis` is one axis, a tuple of axes, or None for all; with `keepdims` reduced axes keep the size 1.
"""

from collections.abc import Callable
from typing import Any

import rabbet

from .._C import Tensor
from ._arguments import Axis, DType, need_tensors, one_axis, several_axes
from ._dtypes import common_dtype, kind_of


def _reduced(
    function: str, x: Tensor, axis: Axis, run: Callable[[Tensor, list[int]], Tensor]
) -> Tensor:
    """The result of `run` on the tensor and its axes; without axes each element is reduced by itself."""
    need_tensors(function, x=x)
    axes = list(range(x.ndim)) if axis is None else several_axes(function, axis, x.ndim)
    if axes:
        return run(x, axes)
    alone = run(x.unsqueeze(-1), [x.ndim])
    return alone.reshape(x.shape)


def _sum_dtype(x: Tensor) -> DType:
    """The dtype of sums and products: of integers 64 bits wide."""
    wide = {"signed integer": rabbet.int64, "bool": rabbet.int64, "unsigned integer": rabbet.uint64}
    return wide.get(kind_of(x.dtype), x.dtype)


def sum(
    x: Tensor, /, *, axis: Axis = None, dtype: DType | None = None, keepdims: bool = False
) -> Tensor:
    """Sum; of integers and bools in int64 or uint64 unless `dtype` is given.

    Raises:
        IndexError: if there is no such axis.
        ValueError: for an axis that occurs twice.
    """
    need_tensors("sum", x=x)
    wanted = _sum_dtype(x) if dtype is None else dtype
    return _reduced("sum", x, axis, lambda t, axes: rabbet.sum(t, axes, keepdims, dtype=wanted))


def prod(
    x: Tensor, /, *, axis: Axis = None, dtype: DType | None = None, keepdims: bool = False
) -> Tensor:
    """Product; of integers and bools in int64 or uint64 unless `dtype` is given.

    Raises:
        IndexError: if there is no such axis.
        ValueError: for an axis that occurs twice.
    """
    need_tensors("prod", x=x)
    wanted = _sum_dtype(x) if dtype is None else dtype

    def run(t: Tensor, axes: list[int]) -> Tensor:
        found = t.to(wanted)
        for place in sorted(axes, reverse=True):
            found = rabbet.prod(found, place, keepdims, dtype=wanted)
        return found

    return _reduced("prod", x, axis, run)


def mean(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Arithmetic mean of floating or complex numbers; NaN of none.

    Raises:
        IndexError: if there is no such axis.
        ValueError: for an axis that occurs twice.
    """
    return _reduced("mean", x, axis, lambda t, axes: rabbet.mean(t, axes, keepdims))


def var(
    x: Tensor, /, *, axis: Axis = None, correction: int | float = 0.0, keepdims: bool = False
) -> Tensor:
    """Variance of floating numbers: the sum of squared deviations from the mean, divided by N - `correction`.

    Raises:
        IndexError: if there is no such axis.
        ValueError: for an axis that occurs twice.
    """
    return _reduced(
        "var", x, axis, lambda t, axes: rabbet.var(t, axes, correction=correction, keepdim=keepdims)
    )


def std(
    x: Tensor, /, *, axis: Axis = None, correction: int | float = 0.0, keepdims: bool = False
) -> Tensor:
    """Standard deviation of floating numbers: the square root of `var`.

    Raises:
        IndexError: if there is no such axis.
        ValueError: for an axis that occurs twice.
    """
    return _reduced(
        "std", x, axis, lambda t, axes: rabbet.std(t, axes, correction=correction, keepdim=keepdims)
    )


def max(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Largest element; NaN if one of them is.

    Raises:
        IndexError: if there is no such axis.
        ValueError: for an axis that occurs twice.
        RuntimeError: of no elements.
    """
    return _reduced("max", x, axis, lambda t, axes: rabbet.amax(t, axes, keepdims))


def min(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Smallest element; NaN if one of them is.

    Raises:
        IndexError: if there is no such axis.
        ValueError: for an axis that occurs twice.
        RuntimeError: of no elements.
    """
    return _reduced("min", x, axis, lambda t, axes: rabbet.amin(t, axes, keepdims))


def all(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Whether all elements are not zero; bool, True of none.

    Raises:
        IndexError: if there is no such axis.
        ValueError: for an axis that occurs twice.
    """
    return _reduced("all", x, axis, lambda t, axes: rabbet.all(t != 0, axes, keepdims))


def any(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Whether at least one element is not zero; bool, False of none.

    Raises:
        IndexError: if there is no such axis.
        ValueError: for an axis that occurs twice.
    """
    return _reduced("any", x, axis, lambda t, axes: rabbet.any(t != 0, axes, keepdims))


def _cumulative(
    function: str, x: Tensor, axis: int | None, dtype: DType | None, first: int | None, run: Any
) -> Tensor:
    """Running results along `axis`; `first` is put before them."""
    need_tensors(function, x=x)
    if axis is None:
        if x.ndim != 1:
            raise ValueError(
                f"{function}: axis may be None for 1 dimension only, got shape {tuple(x.shape)}"
            )
        axis = 0
    place = one_axis(function, axis, x.ndim)
    wanted = _sum_dtype(x) if dtype is None else dtype
    found: Tensor = run(x, place, dtype=wanted)
    if first is None:
        return found
    shape = [1 if d == place else size for d, size in enumerate(x.shape)]
    start = rabbet.full(shape, first, dtype=wanted, device=x.device)
    return rabbet.cat([start, found], place)


def cumulative_sum(
    x: Tensor,
    /,
    *,
    axis: int | None = None,
    dtype: DType | None = None,
    include_initial: bool = False,
) -> Tensor:
    """Running sums along `axis`, which may be None for a vector; with `include_initial` they start with 0.

    The dtype is that of `sum`.

    Raises:
        ValueError: if `axis` is None for several dimensions.
        IndexError: if there is no such axis.
    """
    first = 0 if include_initial else None
    return _cumulative("cumulative_sum", x, axis, dtype, first, rabbet.cumsum)


def cumulative_prod(
    x: Tensor,
    /,
    *,
    axis: int | None = None,
    dtype: DType | None = None,
    include_initial: bool = False,
) -> Tensor:
    """Running products along `axis`, which may be None for a vector; with `include_initial` they start with 1.

    The dtype is that of `prod`.

    Raises:
        ValueError: if `axis` is None for several dimensions.
        IndexError: if there is no such axis.
    """
    first = 1 if include_initial else None
    return _cumulative("cumulative_prod", x, axis, dtype, first, rabbet.cumprod)


def diff(
    x: Tensor,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    """The `n`-th differences of neighbours along `axis`, of `x` between `prepend` and `append`.

    Raises:
        IndexError: if there is no such axis.
        ValueError: if `n` is negative.
    """
    need_tensors("diff", x=x)
    if n < 0:
        raise ValueError(f"diff: n must not be negative, got {n}")
    given = {"prepend": prepend, "append": append}
    need_tensors("diff", **{name: t for name, t in given.items() if t is not None})
    dtype = common_dtype("diff", *(t for t in (x, prepend, append) if t is not None))
    ends = [None if t is None else t.to(dtype) for t in (prepend, append)]
    return rabbet.diff(x.to(dtype), n, one_axis("diff", axis, x.ndim), *ends)
