"""Definitions of operators along one dimension and of reductions."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from .definitions import Array, axis_of, defines


def _cast(x: Array, dtype: str | None) -> Array:
    return x if dtype is None else x.astype(dtype)


def _line(f: Callable[[Array, int], Any], x: Array, dim: int) -> Any:
    """f along a dimension; a number has one element."""
    return f(x.reshape(1), 0).reshape(()) if x.ndim == 0 else f(x, dim)


@defines("cumsum")
def _cumsum(input: Array, dim: int, dtype: str | None) -> Any:
    return _line(np.cumsum, _cast(input, dtype), dim)


@defines("cumprod")
def _cumprod(input: Array, dim: int, dtype: str | None) -> Any:
    return _line(np.cumprod, _cast(input, dtype), dim)


def softmax(x: Array, dim: int) -> Any:
    e = np.exp(x)
    return e / e.sum(dim, keepdims=True)


@defines("softmax")
def _softmax_of(input: Array, dim: int) -> Any:
    return _line(softmax, input, dim)


@defines("log_softmax")
def _log_softmax(input: Array, dim: int) -> Any:
    return _line(lambda x, d: x - np.log(np.exp(x).sum(d, keepdims=True)), input, dim)


@defines("affine_scan")
def _affine_scan(a: Array, b: Array, dim: int) -> Any:
    a, b = np.moveaxis(a, dim, 0), np.moveaxis(b, dim, 0)
    rows = list(itertools.accumulate(zip(a, b, strict=True), lambda r, ab: (None, ab[0] * r[1] + ab[1]),
                                     initial=(None, np.zeros_like(b[0]))))  # fmt: skip
    return np.moveaxis(np.array([r for _, r in rows[1:]]), 0, dim)


def _order(x: Array, dim: int, descending: bool) -> Array:
    """Indices that sort stably, NaN as the largest."""
    if not descending:
        return np.argsort(x, dim, kind="stable")
    turned = np.argsort(np.flip(x, dim), dim, kind="stable")
    return np.flip(x.shape[dim] - 1 - turned, dim)


@defines("sort")
def _sort(input: Array, dim: int, descending: bool) -> Any:
    x = np.atleast_1d(input)
    order = _order(x, dim, descending)
    return np.take_along_axis(x, order, dim).reshape(input.shape), order.reshape(input.shape)


@defines("argsort")
def _argsort(input: Array, dim: int, descending: bool) -> Any:
    return _sort(input, dim, descending)[1]


@defines("topk")
def _topk(input: Array, k: int, dim: int, largest: bool) -> Any:
    if input.ndim == 0:
        return input, np.int64(0)
    values, order = _sort(input, dim, largest)
    return np.take(values, range(k), dim), np.take(order, range(k), dim)


@defines("flip")
def _flip(input: Array, dims: Any) -> Any:
    return np.flip(input, tuple(dims))


@defines("roll")
def _roll(input: Array, shifts: Any, dims: Any) -> Any:
    return np.roll(input, shifts, dims) if dims else np.roll(input, shifts[0])


def _all(x: Array, dim: Any) -> Any:
    """The axes of NumPy; a number has none."""
    return None if x.ndim == 0 else axis_of(dim)


@defines("sum")
def _sum(input: Array, dim: Any, keepdim: bool, dtype: str | None) -> Any:
    return np.sum(_cast(input, dtype), _all(input, dim), keepdims=keepdim)


@defines("mean")
def _mean(input: Array, dim: Any, keepdim: bool, dtype: str | None) -> Any:
    return np.mean(_cast(input, dtype), _all(input, dim), keepdims=keepdim)


@defines("prod")
def _prod(input: Array, dtype: str | None) -> Any:
    return np.prod(_cast(input, dtype))


@defines("prod.dim")
def _prod_dim(input: Array, dim: int, keepdim: bool, dtype: str | None) -> Any:
    return np.prod(_cast(input, dtype), _all(input, dim), keepdims=keepdim)


@defines("var")
def _var(input: Array, dim: Any, correction: Any, keepdim: bool) -> Any:
    return np.var(input, _all(input, dim), ddof=correction, keepdims=keepdim)


@defines("std")
def _std(input: Array, dim: Any, correction: Any, keepdim: bool) -> Any:
    return np.sqrt(_var(input, dim, correction, keepdim))


def _with_index(name: str) -> None:
    best = getattr(np, name)
    where = getattr(np, "arg" + name)

    @defines(f"{name}.dim")
    def _extreme(input: Array, dim: int, keepdim: bool) -> Any:
        axis = _all(input, dim)
        return best(input, axis, keepdims=keepdim), where(input, axis, keepdims=keepdim)

    @defines(f"arg{name}")
    def _place(input: Array, dim: int | None, keepdim: bool) -> Any:
        return where(input, _all(input, dim), keepdims=keepdim)

    @defines(f"a{name}")
    def _value(input: Array, dim: Any, keepdim: bool) -> Any:
        return best(input, _all(input, dim), keepdims=keepdim)


_with_index("max")
_with_index("min")


@defines("std_mean")
def _std_mean(input: Array, dim: Any, correction: Any, keepdim: bool) -> Any:
    axes = _all(input, dim)
    return np.std(input, axes, ddof=correction, keepdims=keepdim), np.mean(
        input, axes, keepdims=keepdim
    )


@defines("var_mean")
def _var_mean(input: Array, dim: Any, correction: Any, keepdim: bool) -> Any:
    std, mean = _std_mean(input, dim, correction, keepdim)
    return std**2, mean


@defines("norm", "norm.name")
def _norm(input: Array, p: Any, dim: Any, keepdim: bool, dtype: str | None) -> Any:
    size, axes = np.abs(_cast(input, dtype)), _all(input, dim)
    if p in (np.inf, -np.inf):
        return (np.max if p > 0 else np.min)(size, axes, keepdims=keepdim)
    if p == 0:
        return (size != 0).sum(axes, keepdims=keepdim).astype(size.dtype)
    order = 2 if p == "fro" else p
    return (size**order).sum(axes, keepdims=keepdim) ** (1 / order)


@defines("trace")
def _trace(input: Array) -> Any:
    return np.trace(input)


@defines("diff")
def _diff(input: Array, n: int, dim: int, prepend: Any, append: Any) -> Any:
    more = {"prepend": prepend, "append": append}
    return np.diff(input, n, dim, **{k: v for k, v in more.items() if v is not None})


@defines("any")
def _any(input: Array, dim: Any, keepdim: bool) -> Any:
    return np.any(input, _all(input, dim), keepdims=keepdim)


@defines("all")
def _every(input: Array, dim: Any, keepdim: bool) -> Any:
    return np.all(input, _all(input, dim), keepdims=keepdim)


@defines("count_nonzero")
def _count_nonzero(input: Array, dim: Any) -> Any:
    return np.count_nonzero(input, _all(input, dim))


@defines("logsumexp")
def _logsumexp(input: Array, dim: Any, keepdim: bool) -> Any:
    return np.log(np.sum(np.exp(input), _all(input, dim), keepdims=keepdim))
