"""What operators are compared with: the NumPy or SciPy function that a record names, or a short definition here.

A definition takes arguments by their names in the record, as arrays, and gives the results. `dtype_name` is the dtype
under test: of random numbers it decides how many bits each takes. Nothing here calls an operator.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.special
from rabbet import _C

Array = np.ndarray[Any, Any]
DEFINITIONS: dict[str, Callable[..., Any]] = {}


def defines(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: a definition of the results of operators."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        DEFINITIONS.update(dict.fromkeys(names, function))
        return function

    return add


class NoReference(Exception):
    """The reference has no such call; the message says why."""


def reference(name: str) -> Callable[[dict[str, Any]], tuple[Any, ...]] | None:
    """A function from all arguments by name to the results, or None where nothing is written down."""
    info = _C.op_info(name)
    if name in WHOLE:
        return WHOLE[name]
    if name in DEFINITIONS:
        function = DEFINITIONS[name]
        wanted = list(inspect.signature(function).parameters)

        def defined(given: dict[str, Any]) -> tuple[Any, ...]:
            found = function(**{k: given[k] for k in wanted})
            return found if isinstance(found, tuple) else (found,)

        return defined
    if not info["ref"]:
        return None
    module, attribute = info["ref"].rsplit(".", 1)
    found = getattr(importlib.import_module(module), attribute)
    along = info["kind"] in ("reduction", "along")

    def named(given: dict[str, Any]) -> tuple[Any, ...]:
        values = [given[p["name"]] for p in info["params"] if p["type"] == "Tensor"]
        others = {p["name"]: p for p in info["params"] if p["type"] != "Tensor"}
        kwargs = {}
        if along and "dim" in others:
            kwargs["axis"] = _axis(given["dim"])
            others.pop("dim")
        if along and "keepdim" in others:
            kwargs["keepdims"] = given["keepdim"]
            others.pop("keepdim")
        for other, param in others.items():
            if given[other] != param["default"]:
                raise NoReference(f"{info['ref']} is called without '{other}'")
        return (found(*values, **kwargs),)

    return named


def _axis(dim: Any) -> Any:
    return tuple(dim) if isinstance(dim, (list, tuple)) else dim


# Views of the memory below a tensor, for which it matters how that lies.
OF_STORAGE = {"as_strided", "as_strided_copy"}


# ---- elementwise


def _scaled(value: Any, factor: Any, *others: Any) -> Any:
    """value * factor, in the dtype that the values have together."""
    value = np.asarray(value)
    return (
        value if factor == 1 else np.multiply(factor, value).astype(np.result_type(value, *others))
    )


@defines("add")
def _add(input: Any, other: Any, alpha: Any) -> Any:
    return np.add(input, _scaled(other, alpha, input))


@defines("sub")
def _sub(input: Any, other: Any, alpha: Any) -> Any:
    return np.subtract(input, _scaled(other, alpha, input))


@defines("rsub")
def _rsub(input: Any, other: Any, alpha: Any) -> Any:
    return np.subtract(other, _scaled(input, alpha, other))


def _typed(result: Any, *values: Any) -> Any:
    """In the dtype that the values have together, as whose bools NumPy counts."""
    return np.asarray(result).astype(np.result_type(*values))


@defines("div")
def _div(input: Any, other: Any, rounding_mode: str | None) -> Any:
    if rounding_mode is None:
        return np.true_divide(input, other)
    quotient = np.floor_divide(input, other)
    if rounding_mode == "floor":
        return _typed(quotient, input, other)
    if quotient.dtype.kind == "f":
        return np.trunc(np.true_divide(input, other))
    exact = quotient * other == input  # whole numbers, without a way through floating ones
    apart = (np.asarray(input) < 0) != (np.asarray(other) < 0)
    return _typed(quotient + (~exact & apart), input, other)


@defines("floor_divide")
def _floor_divide(input: Any, other: Any) -> Any:
    return _typed(np.floor_divide(input, other), input, other)


@defines("remainder")
def _remainder(input: Any, other: Any) -> Any:
    return _typed(np.remainder(input, other), input, other)


@defines("fmod")
def _fmod(input: Any, other: Any) -> Any:
    return _typed(np.fmod(input, other), input, other)


@defines("where")
def _where(condition: Array, input: Any, other: Any) -> Any:
    return np.where(condition, input, other)


@defines("masked_fill")
def _masked_fill(input: Array, mask: Array, value: Any) -> Any:
    return np.where(mask, np.asarray(value).astype(input.dtype), input)


@defines("clamp")
def _clamp(input: Any, min: Any, max: Any) -> Any:
    low = input if min is None else np.maximum(input, min)
    return low if max is None else np.minimum(low, max)


@defines("clamp_min")
def _clamp_min(input: Array, min: Any) -> Any:
    return np.maximum(input, min)


@defines("clamp_max")
def _clamp_max(input: Array, max: Any) -> Any:
    return np.minimum(input, max)


@defines("nan_to_num")
def _nan_to_num(input: Array, nan: float | None, posinf: float | None, neginf: float | None) -> Any:
    return np.nan_to_num(input, nan=nan or 0.0, posinf=posinf, neginf=neginf)


@defines("isclose")
def _isclose(input: Array, other: Array, rtol: float, atol: float, equal_nan: bool) -> Any:
    return np.isclose(input, other, rtol, atol, equal_nan)


@defines("round")
def _round(input: Array, decimals: int) -> Any:
    return np.round(input, decimals) if input.dtype.kind == "f" else input


@defines("sign")
def _sign(input: Array) -> Any:
    if input.dtype == np.bool_:
        return input
    return ((input > 0) * 1 - (input < 0) * 1).astype(input.dtype)  # 0 for NaN


@defines("sgn")
def _sgn(input: Array) -> Any:
    return np.sign(input) if input.dtype.kind == "c" else _sign(input)


@defines("angle")
def _angle(input: Array) -> Any:
    return (
        np.where(np.isnan(input), input, np.angle(input))
        if input.dtype.kind == "f"
        else np.angle(input)
    )


def _huber(gap: Any, delta: float) -> Any:
    size = np.abs(gap)
    return np.where(size <= delta, 0.5 * size * size, delta * (size - 0.5 * delta))


_SCALARS: dict[str, Callable[..., Any]] = {
    "conj": lambda input: np.conj(input) if input.dtype.kind == "c" else input,
    "sigmoid": lambda input: 1 / (1 + np.exp(-np.asarray(input, np.result_type(input, 1.0)))),
    "square": lambda input: input * input,
     "pow": lambda input, exponent: _typed(np.power(input, exponent), input, exponent),
    "rsqrt": lambda input: 1 / np.sqrt(input),
    "reciprocal": lambda input: 1 / (np.float64(input) if input.dtype.kind in "biu" else input),
    "frac": lambda input: input - np.trunc(input),
    "signbit": lambda input: np.signbit(input) if input.dtype.kind == "f" else input < 0,
    "relu": lambda input: np.maximum(input, 0),
    "relu_vjp": lambda g, out: np.where(out > 0, g, 0),
    "silu": lambda input: input / (1 + np.exp(-np.asarray(input, np.result_type(input, 1.0)))),
    "gelu": lambda input, approximate: input * (
        scipy.special.ndtr(input) if approximate == "none"
        else 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (input + 0.044715 * np.power(input, 3))))),
    "logsigmoid": lambda input: scipy.special.log_expit(np.asarray(input, np.float64)),
    "softplus": lambda input, beta, threshold: np.where(
        input * beta > threshold, input, np.log1p(np.exp(np.minimum(input * beta, 50))) / beta),
    "leaky_relu": lambda input, negative_slope: np.where(input > 0, input, input * negative_slope),
    "elu": lambda input, alpha: np.where(input > 0, input, alpha * np.expm1(np.minimum(input, 0))),
    "celu": lambda input, alpha: np.where(input > 0, input, alpha * np.expm1(np.minimum(input, 0) / alpha)),
    "selu": lambda input: 1.0507009873554805 * np.where(
        input > 0, input, 1.6732632423543772 * np.expm1(np.minimum(input, 0))),
    "mish": lambda input: input * np.tanh(np.logaddexp(0, input)),
    "hardtanh": lambda input, min_val, max_val: np.clip(input, min_val, max_val),
    "hardsigmoid": lambda input: np.clip(input / 6 + 0.5, 0, 1),
    "hardswish": lambda input: input * np.clip(input / 6 + 0.5, 0, 1),
    "threshold": lambda input, threshold, value: np.where(input <= threshold, value, input),
    "hardshrink": lambda input, lambd: np.where(np.abs(input) <= lambd, 0.0, input),
    "softshrink": lambda input, lambd: np.where(np.abs(input) <= lambd, 0.0, np.where(input > 0, input - lambd, input + lambd)),
    "softsign": lambda input: input / (1 + np.abs(input)),
    "tanhshrink": lambda input: input - np.tanh(input),
    "prelu": lambda input, weight: np.where(input > 0, input, weight * input),
    "lerp": lambda input, end, weight: (1 - weight) * input + weight * end,
    "addcmul": lambda input, tensor1, tensor2, value: input + value * (tensor1 * tensor2),
    "addcdiv": lambda input, tensor1, tensor2, value: input + value * (tensor1 / tensor2),
    "max.other": lambda input, other: np.maximum(input, other),
    "min.other": lambda input, other: np.minimum(input, other),
    "complex": lambda real, imag: real + 1j * imag,
    "copy": lambda input, src: np.broadcast_to(src, input.shape).astype(input.dtype),
    "fill": lambda input, value: np.broadcast_to(np.asarray(value).astype(input.dtype), input.shape),
    "zero": lambda input: np.zeros_like(input),
    "zeros_of": lambda x: np.zeros_like(x),
    "cast": lambda input, dtype: input.astype(dtype),
    "squared_error": lambda input, target: (input - target) ** 2,
    "absolute_error": lambda input, target: np.abs(input - target),
    "huber_error": lambda input, target, delta: _huber(input - target, delta),
    "smooth_l1_error": lambda input, target, beta: _huber(input - target, beta) / beta,
    "binary_error": lambda input, target: -(target * np.log(input) + (1 - target) * np.log1p(-input)),
    "logistic_error": lambda input, target: np.logaddexp(0, input) - target * input,
}  # fmt: skip
DEFINITIONS.update(_SCALARS)


# ---- along one dimension, and reductions


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


def _softmax(x: Array, dim: int) -> Any:
    e = np.exp(x)
    return e / e.sum(dim, keepdims=True)


@defines("softmax")
def _softmax_of(input: Array, dim: int) -> Any:
    return _line(_softmax, input, dim)


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
    return None if x.ndim == 0 else _axis(dim)


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


@defines("bincount")
def _bincount(input: Array, weights: Any, minlength: int) -> Any:
    return np.bincount(input, weights, minlength)


@defines("unique_results")
def _unique(input: Array, return_inverse: bool, return_counts: bool, dim: int | None) -> Any:
    values, inverse, counts = np.unique(
        input, return_inverse=True, return_counts=True, axis=dim, equal_nan=False
    )
    nothing = np.zeros(0, np.int64)
    inverse = inverse.reshape(input.shape if dim is None else -1)
    return values, inverse if return_inverse else nothing, counts if return_counts else nothing


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


# ---- indices


def _grid(index: Array, dim: int) -> tuple[Array, ...]:
    places = list(np.indices(index.shape))
    places[dim] = index
    return tuple(places)


@defines("gather")
def _gather(input: Array, dim: int, index: Array) -> Any:
    return input[_grid(index, dim)]


def _part(src: Array, like: Array) -> Array:
    return src[tuple(slice(n) for n in like.shape)]


@defines("scatter_add")
def _scatter_add(input: Array, dim: int, index: Array, src: Array) -> Any:
    out = input.copy()
    np.add.at(out, _grid(index, dim), _part(src, index))
    return out


@defines("scatter")
def _scatter(input: Array, dim: int, index: Array, src: Array) -> Any:
    out = input.copy()
    out[_grid(index, dim)] = _part(src, index)
    return out


@defines("scatter.value")
def _scatter_value(input: Array, dim: int, index: Array, value: Any) -> Any:
    out = input.copy()
    out[_grid(index, dim)] = value
    return out


@defines("index_select")
def _index_select(input: Array, dim: int, index: Array) -> Any:
    return np.take(input, index, dim)


@defines("index_add")
def _index_add(input: Array, dim: int, index: Array, source: Array, alpha: Any) -> Any:
    out = input.copy()
    added = source * np.asarray(alpha).astype(input.dtype)
    np.add.at(np.moveaxis(out, dim, 0), index, np.moveaxis(added, dim, 0))
    return out


def _places(indices: list[Any]) -> tuple[Any, ...]:
    return tuple(slice(None) if i is None else i for i in indices)


@defines("index")
def _index(input: Array, indices: list[Any]) -> Any:
    return input[_places(indices)]


@defines("index_put")
def _index_put(input: Array, indices: list[Any], values: Any, accumulate: bool) -> Any:
    out = input.copy()
    if accumulate:
        np.add.at(out, _places(indices), values)
    else:
        out[_places(indices)] = values
    return out


@defines("nonzero")
def _nonzero(input: Array) -> Any:
    return np.argwhere(input)


@defines("mask_indices")
def _mask_indices(mask: Array) -> Any:
    return np.nonzero(mask)


@defines("masked_select")
def _masked_select(input: Array, mask: Array) -> Any:
    x, m = np.broadcast_arrays(input, mask)
    return x[m]


@defines("searchsorted")
def _searchsorted(sorted_sequence: Array, input: Array, right: bool) -> Any:
    return np.searchsorted(sorted_sequence, input, "right" if right else "left")


@defines("embedding")
def _embedding(weight: Array, indices: Array) -> Any:
    return weight[indices]


@defines("embedding_backward")
def _embedding_backward(g: Array, indices: Array, shape: Any, padding_idx: int) -> Any:
    out = np.zeros(shape, g.dtype)
    np.add.at(
        out, indices, np.where((indices == padding_idx)[..., None], 0, g) if padding_idx >= 0 else g
    )
    return out


# ---- movement: views, and the same with memory of their own


def _moved(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return defines(name, f"{name}_copy")


@_moved("view")
def _view(input: Array, size: Any) -> Any:
    return input.reshape(size)


@defines("reshape")
def _reshape(input: Array, shape: Any) -> Any:
    return input.reshape(shape)


@_moved("expand")
def _expand(input: Array, size: Any) -> Any:
    lead = len(size) - input.ndim
    return np.broadcast_to(
        input, [input.shape[i - lead] if n == -1 else n for i, n in enumerate(size)]
    )


@_moved("permute")
def _permute(input: Array, dims: Any) -> Any:
    return np.transpose(input, dims)


@_moved("transpose")
def _transpose(input: Array, dim0: int, dim1: int) -> Any:
    return np.swapaxes(input, dim0, dim1) if input.ndim else input


@_moved("t")
def _t(input: Array) -> Any:
    return input.T


@_moved("mT")
def _mt(x: Array) -> Any:
    return np.swapaxes(x, -1, -2)


@defines("movedim")
def _movedim(input: Array, source: Any, destination: Any) -> Any:
    return np.moveaxis(input, source, destination)


@_moved("select")
def _select(input: Array, dim: int, index: int) -> Any:
    return np.take(input, index, dim)


def _section(x: Array, dim: int, *section: Any) -> tuple[slice, ...]:
    places = [slice(None)] * x.ndim
    places[dim] = slice(*section)
    return tuple(places)


@defines("slice")
def _slice(x: Array, dim: int, start: Any, end: Any, step: int) -> Any:
    return x[_section(x, dim, start, end, step)]


@defines("slice_copy")
def _slice_copy(input: Array, dim: int, start: Any, end: Any, step: int) -> Any:
    return _slice(input, dim, start, end, step)


@defines("slice_scatter")
def _slice_scatter(input: Array, src: Array, dim: int, start: Any, end: Any, step: int) -> Any:
    out = input.copy()
    out[_section(input, dim, start, end, step)] = src
    return out


@defines("select_scatter")
def _select_scatter(input: Array, src: Array, dim: int, index: int) -> Any:
    out = input.copy()
    np.moveaxis(out, dim, 0)[index] = src
    return out


@defines("narrow")
def _narrow(input: Array, dim: int, start: int, length: int) -> Any:
    first = start % input.shape[dim] if start < 0 else start
    return _slice(input, dim, first, first + length, 1)


@_moved("unsqueeze")
def _unsqueeze(input: Array, dim: int) -> Any:
    return np.expand_dims(input, dim)


@_moved("squeeze")
def _squeeze(input: Array, dim: Any) -> Any:
    dims = range(input.ndim) if dim is None else np.atleast_1d(dim)
    return np.squeeze(input, tuple(int(d) for d in dims if input.shape[d] == 1))


@defines("flatten")
def _flatten(input: Array, start_dim: int, end_dim: int) -> Any:
    x = np.atleast_1d(input)
    first, last = start_dim % x.ndim, end_dim % x.ndim
    return x.reshape(
        *x.shape[:first], int(np.prod(x.shape[first : last + 1])), *x.shape[last + 1 :]
    )


@defines("unflatten")
def _unflatten(input: Array, dim: int, sizes: Any) -> Any:
    return input.reshape(*input.shape[:dim], *sizes, *input.shape[dim + 1 :])


@_moved("diagonal")
def _diagonal(input: Array, offset: int, dim1: int, dim2: int) -> Any:
    return np.diagonal(input, offset, dim1, dim2)


@defines("diagonal_scatter")
def _diagonal_scatter(input: Array, src: Array, offset: int, dim1: int, dim2: int) -> Any:
    out = input.copy()
    target = np.diagonal(out, offset, dim1, dim2)
    target.flags.writeable = True
    target[...] = src
    return out


@_moved("as_strided")
def _as_strided(input: Array, size: Any, stride: Any, storage_offset: int | None) -> Any:
    flat, at = input.reshape(-1), np.zeros(size, np.int64) + (storage_offset or 0)
    for place, step in zip(np.indices(size), stride, strict=True):
        at = at + place * step
    return flat[at]


@defines("split")
def _split(input: Array, split_size: int, dim: int) -> Any:
    return tuple(np.split(input, range(split_size, input.shape[dim], split_size), dim))


@defines("split.sizes")
def _split_sizes(input: Array, split_sizes: Any, dim: int) -> Any:
    ends = np.cumsum(split_sizes)
    return tuple(
        _slice(input, dim, int(e - n), int(e), 1) for n, e in zip(split_sizes, ends, strict=True)
    )


@defines("chunk")
def _chunk(input: Array, chunks: int, dim: int) -> Any:
    size = -(-input.shape[dim] // chunks)
    return _split(input, size, dim) if size else tuple([input] * chunks)


@defines("unbind")
def _unbind(input: Array, dim: int) -> Any:
    return tuple(np.moveaxis(input, dim, 0))


@defines("detach", "detach_copy", "contiguous", "contiguous_clone", "clone")
def _same(input: Array) -> Any:
    return input


@defines("to_device")
def _to_device(x: Array) -> Any:
    return x


@defines("expand_as")
def _expand_as(input: Array, other: Array) -> Any:
    return np.broadcast_to(input, np.broadcast_shapes(input.shape, other.shape))


@defines("cat")
def _cat(tensors: list[Array], dim: int) -> Any:
    return np.concatenate([t for t in tensors if t.shape != (0,)], dim)


@defines("stack")
def _stack(tensors: list[Array], dim: int) -> Any:
    return np.stack(tensors, dim)


@defines("repeat")
def _repeat(input: Array, repeats: Any) -> Any:
    return np.tile(input, repeats)


@defines("pad_constant")
def _pad(input: Array, pad: Any, value: Any) -> Any:
    pairs = [(0, 0)] * (input.ndim - len(pad) // 2) + [*zip(pad[::2], pad[1::2], strict=True)][::-1]
    kept = input[
        tuple(
            slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(input.shape, pairs, strict=True)
        )
    ]
    return np.pad(kept, [(max(a, 0), max(b, 0)) for a, b in pairs], constant_values=value)


@defines("pad_to")
def _pad_to(x: Array, shape: Any) -> Any:
    return np.pad(x, [(0, n - m) for n, m in zip(shape, x.shape, strict=True)])


@defines("gather_as")
def _gather_as(x: Array, dim: int, index: Array, shape: Any) -> Any:
    return _pad_to(_gather(x, dim, index), shape)


@defines("tril")
def _tril(input: Array, diagonal: int) -> Any:
    return np.tril(input, diagonal)


@defines("triu")
def _triu(input: Array, diagonal: int) -> Any:
    return np.triu(input, diagonal)


@defines("sum_to")
def _sum_to(x: Array, shape: Any) -> Any:
    if list(x.shape) == list(shape):
        return x
    lead = x.ndim - len(shape)
    ones = tuple(i + lead for i, n in enumerate(shape) if n == 1 and x.shape[i + lead] != 1)
    return x.sum((*range(lead), *ones)).reshape(shape)


@defines("restore")
def _restore(x: Array, shape: Any, dim: Any) -> Any:
    reduced = range(len(shape)) if dim is None else dim
    return x.reshape([1 if i in reduced else n for i, n in enumerate(shape)])


# ---- joins, splits and grids


@defines("tile")
def _tile(input: Array, dims: Any) -> Any:
    return np.tile(input, dims)


@defines("broadcast_to")
def _broadcast_to(input: Array, size: Any) -> Any:
    lead = len(size) - input.ndim
    return np.broadcast_to(
        input, [input.shape[i - lead] if n == -1 else n for i, n in enumerate(size)]
    )


@defines("broadcast_tensors")
def _broadcast_tensors(tensors: list[Array]) -> Any:
    return tuple(np.broadcast_arrays(*tensors))


def _split_by(split: Callable[..., Any], *names: str) -> None:
    """Definitions that cut where NumPy does; it takes a number of parts or indices."""
    DEFINITIONS[names[0]] = lambda input, sections: tuple(split(input, sections))
    DEFINITIONS[names[1]] = lambda input, indices: tuple(split(input, indices))


for _name in ("hsplit", "vsplit", "dsplit"):
    _split_by(getattr(np, _name), _name, f"{_name}.indices")
DEFINITIONS.update(
    {
        "hstack": lambda tensors: np.hstack(tensors),
        "vstack": lambda tensors: np.vstack(tensors),
        "dstack": lambda tensors: np.dstack(tensors),
        "column_stack": lambda tensors: np.column_stack(tensors),
        "atleast_1d.tensors": lambda tensors: tuple(map(np.atleast_1d, tensors)),
        "atleast_2d.tensors": lambda tensors: tuple(map(np.atleast_2d, tensors)),
        "atleast_3d.tensors": lambda tensors: tuple(map(np.atleast_3d, tensors)),
        "meshgrid": lambda tensors, indexing: tuple(np.meshgrid(*tensors, indexing=indexing)),
        "tensor_split": lambda input, sections, dim: tuple(np.array_split(input, sections, dim)),
        "tensor_split.indices": lambda input, indices, dim: _cut(input, indices, dim),
    }
)


def _cut(x: Array, indices: Any, dim: int) -> Any:
    return tuple(np.array_split(x, list(indices), dim))


@defines("tensor_split.tensor")
def _tensor_split_tensor(input: Array, tensor_indices_or_sections: Array, dim: int) -> Any:
    return _cut(input, tensor_indices_or_sections.tolist(), dim)


@defines("cartesian_prod")
def _cartesian_prod(tensors: list[Array]) -> Any:
    if len(tensors) == 1:
        return tensors[0]
    rows = list(itertools.product(*tensors))
    return np.array(rows, tensors[0].dtype).reshape(-1, len(tensors))


@defines("block_diag")
def _block_diag(tensors: list[Array]) -> Any:
    parts = [np.atleast_2d(t) for t in tensors]
    made = np.zeros(np.sum([p.shape for p in parts], 0), np.result_type(*parts))
    row, column = 0, 0
    for p in parts:
        made[row : row + len(p), column : column + p.shape[1]] = p
        row, column = row + len(p), column + p.shape[1]
    return made


@defines("diag")
def _diag(input: Array, diagonal: int) -> Any:
    return np.diag(input, diagonal)


# ---- products


@defines("einsum")
def _einsum(equation: str, operands: list[Array]) -> Any:
    if operands[0].dtype == np.bool_:
        raise NoReference("numpy.einsum joins bools by or, where sums count")
    return np.einsum(equation, *operands)


@defines("tensordot_dims")
def _tensordot(a: Array, b: Array, dims_a: Any, dims_b: Any) -> Any:
    return np.tensordot(a, b, (list(dims_a), list(dims_b)))


@defines("cov")
def _cov(input: Array, correction: int, fweights: Any, aweights: Any) -> Any:
    return np.cov(input, ddof=correction, fweights=fweights, aweights=aweights)


@defines("mm", "bmm")
def _product(input: Array, mat2: Array) -> Any:
    return input @ mat2


@defines("mv")
def _mv(input: Array, vec: Array) -> Any:
    return input @ vec


@defines("dot")
def _dot(input: Array, tensor: Array) -> Any:
    return (input * tensor).sum()


@defines("addmm")
def _addmm(input: Array, mat1: Array, mat2: Array, beta: Any, alpha: Any) -> Any:
    return beta * input + alpha * (mat1 @ mat2)


@defines("baddbmm")
def _baddbmm(input: Array, batch1: Array, batch2: Array, beta: Any, alpha: Any) -> Any:
    return beta * input + alpha * np.einsum("bij,bjk->bik", batch1, batch2)


@defines("linear")
def _linear(input: Array, weight: Array, bias: Any) -> Any:
    return np.einsum("...i,oi->...o", input, weight) + (0 if bias is None else bias)


@defines("linear_activation")
def _linear_activation(input: Array, weight: Array, bias: Any, activation: str) -> Any:
    whole = input.dtype.kind in "biu"
    x, w, b = (a.astype(float) if whole and a is not None else a for a in (input, weight, bias))
    y = _linear(x, w, b)
    if activation.startswith("gelu"):
        return _SCALARS["gelu"](y, "none" if activation == "gelu" else "tanh")
    return {
        "relu": _SCALARS["relu"],
        "silu": _SCALARS["silu"],
        "tanh": np.tanh,
        "sigmoid": scipy.special.expit,
    }[activation](y)


def _each(values: Any, n: int) -> list[int]:
    """A number for each of `n` directions."""
    given = np.atleast_1d(values).tolist()
    return given * n if len(given) == 1 else given


def _taps(
    kernel: Any, out: Any, stride: Any, padding: Any, dilation: Any
) -> Iterator[tuple[Any, Any]]:
    """Each place in the kernel, and where the padded input meets it for all results."""
    n = len(kernel)
    stride, padding, dilation = _each(stride, n), _each(padding, n), _each(dilation, n)
    for k in np.ndindex(*kernel):
        yield k, tuple(slice(d * i, d * i + s * (o - 1) + 1, s)
                       for d, i, s, o in zip(dilation, k, stride, out, strict=True))  # fmt: skip


def _padded(x: Array, padding: Any) -> Array:
    return np.pad(x, [(0, 0), (0, 0), *((p, p) for p in _each(padding, x.ndim - 2))])


@defines("convolution")
def _convolution(
    input: Array, weight: Array, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Any:
    x, n = _padded(input, padding), input.ndim - 2
    steps = zip(x.shape[2:], weight.shape[2:], _each(stride, n), _each(dilation, n), strict=True)
    out = [(size - d * (k - 1) - 1) // s + 1 for size, k, s, d in steps]
    w = weight.reshape(groups, -1, *weight.shape[1:])
    x = x.reshape(len(x), groups, -1, *x.shape[2:])
    y: Any = 0
    for k, places in _taps(weight.shape[2:], out, stride, padding, dilation):
        y = y + np.einsum("ngc...,goc->ngo...", x[(..., *places)], w[(..., *k)])
    y = y.reshape(len(x), -1, *out)
    return y if bias is None else y + bias.reshape(-1, *[1] * n)


@defines("convolution_dx")
def _convolution_dx(
    g: Array, w: Array, shape: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Any:
    x = _padded(np.zeros(shape, np.result_type(g, w)), padding)
    grouped = x.reshape(len(x), groups, -1, *x.shape[2:])
    weight, gs = w.reshape(groups, -1, *w.shape[1:]), g.reshape(len(g), groups, -1, *g.shape[2:])
    for k, places in _taps(w.shape[2:], g.shape[2:], stride, padding, dilation):
        grouped[(..., *places)] += np.einsum("ngo...,goc->ngc...", gs, weight[(..., *k)])
    inner = zip(_each(padding, x.ndim - 2), shape[2:], strict=True)
    return grouped.reshape(x.shape)[(..., *(slice(p, p + n) for p, n in inner))]


@defines("convolution_dw")
def _convolution_dw(
    x: Array,
    g: Array,
    shape: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Any:
    xs, gs = (a.reshape(len(a), groups, -1, *a.shape[2:]) for a in (_padded(x, padding), g))
    dw = np.zeros((groups, shape[0] // groups, *shape[1:]), np.result_type(x, g))
    for k, places in _taps(shape[2:], g.shape[2:], stride, padding, dilation):
        met = xs[(..., *places)].reshape(*xs.shape[:3], -1)
        dw[(..., *k)] = np.einsum("ngcp,ngop->goc", met, gs.reshape(*gs.shape[:3], -1))
    return dw.reshape(shape)


# ---- windows


def _windows(size: int, k: int, s: int, p: int, d: int, ceil: bool) -> list[list[int]]:
    """The places of each window in one direction, those in the padding included."""
    room = size + 2 * p - d * (k - 1) - 1
    count = (-(-room // s) if ceil else room // s) + 1
    if ceil and (count - 1) * s >= size + p:
        count -= 1
    return [[i * s - p + d * j for j in range(k)] for i in range(count)]


def _adaptive(size: int, out: int) -> list[list[int]]:
    return [list(range(i * size // out, -(-(i + 1) * size // out))) for i in range(out)]


def _pooled(
    x: Array, windows: list[list[list[int]]], f: Callable[[list[tuple[int, ...]]], Any]
) -> Any:
    """f(the places of a window) for each window."""
    found = [f(list(itertools.product(*w))) for w in itertools.product(*windows)]
    return np.moveaxis(np.array(found), 0, -1).reshape(*np.shape(found[0]), *map(len, windows))


def _inside(places: Any, sizes: Any) -> list[tuple[int, ...]]:
    return [p for p in places if all(0 <= i < n for i, n in zip(p, sizes, strict=True))]


def _largest(x: Array, windows: list[list[list[int]]]) -> Any:
    n = len(windows)
    flat = x.reshape(*x.shape[: x.ndim - n], -1)

    def best(places: Any) -> Any:
        at = np.array(
            [np.ravel_multi_index(p, x.shape[-n:]) for p in _inside(places, x.shape[-n:])]
        )
        return at[np.argmax(flat[..., at], -1)]

    indices = _pooled(x, windows, best)
    values = np.take_along_axis(flat, indices.reshape(*flat.shape[:-1], -1), -1)
    return values.reshape(indices.shape), indices


def _pool_windows(
    sizes: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool
) -> list[list[list[int]]]:
    n = len(kernel)
    parts = zip(
        sizes[-n:],
        kernel,
        _each(stride or kernel, n),
        _each(padding, n),
        _each(dilation, n),
        strict=True,
    )
    return [_windows(*part, ceil) for part in parts]


@defines("max_pool_with_indices")
def _max_pool(
    input: Array, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> Any:
    return _largest(
        input, _pool_windows(input.shape, kernel_size, stride, padding, dilation, ceil_mode)
    )


@defines("adaptive_max_pool_with_indices")
def _adaptive_max_pool(input: Array, output_size: Any) -> Any:
    sizes = input.shape[-len(output_size) :]
    return _largest(input, [_adaptive(n, o) for n, o in zip(sizes, output_size, strict=True)])


@defines("max_pool_dx")
def _max_pool_dx(g: Array, indices: Array, shape: Any, rank: int) -> Any:
    out = np.zeros((int(np.prod(shape[:-rank])), int(np.prod(shape[-rank:]))), g.dtype)
    for row, values, at in zip(
        out, g.reshape(len(out), -1), indices.reshape(len(out), -1), strict=True
    ):
        np.add.at(row, at, values)
    return out.reshape(shape)


def _mean_weights(
    sizes: Any, windows: list[list[list[int]]], padding: Any, whole: bool, divisor: Any
) -> Any:
    """For each window its places, and what their sum is divided by."""
    for window in itertools.product(*windows):
        places = list(itertools.product(*window))
        kept = _inside(places, sizes)
        padded = [
            all(-p <= i < n + p for i, n, p in zip(q, sizes, padding, strict=True)) for q in places
        ]
        yield kept, divisor or (sum(padded) if whole else len(kept))


def _average(
    x: Array, windows: list[list[list[int]]], padding: Any, whole: bool, divisor: Any
) -> Any:
    n = len(windows)
    weights = _mean_weights(x.shape[-n:], windows, padding, whole, divisor)
    found = [sum(x[(..., *p)] for p in kept) / count for kept, count in weights]
    return np.moveaxis(np.array(found), 0, -1).reshape(*x.shape[:-n], *map(len, windows))


def _average_dx(g: Array, shape: Any, windows: Any, padding: Any, whole: bool, divisor: Any) -> Any:
    n, out = len(windows), np.zeros(shape, g.dtype)
    flat = g.reshape(*g.shape[:-n], -1)
    for i, (kept, count) in enumerate(_mean_weights(shape[-n:], windows, padding, whole, divisor)):
        for p in kept:
            out[(..., *p)] += flat[..., i] / count
    return out


@defines("avg_pool")
def _avg_pool(input: Array, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool, count_include_pad: bool,
              divisor_override: Any) -> Any:  # fmt: skip
    windows = _pool_windows(input.shape, kernel_size, stride, padding, [1], ceil_mode)
    return _average(
        input, windows, _each(padding, len(windows)), count_include_pad, divisor_override
    )


@defines("avg_pool_dx")
def _avg_pool_dx(g: Array, shape: Any, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool,
                 count_include_pad: bool, divisor_override: Any) -> Any:  # fmt: skip
    windows = _pool_windows(shape, kernel_size, stride, padding, [1], ceil_mode)
    return _average_dx(
        g, shape, windows, _each(padding, len(windows)), count_include_pad, divisor_override
    )


@defines("adaptive_avg_pool")
def _adaptive_avg_pool(input: Array, output_size: Any) -> Any:
    n = len(output_size)
    windows = [_adaptive(a, b) for a, b in zip(input.shape[-n:], output_size, strict=True)]
    return _average(input, windows, [0] * n, True, None)


@defines("adaptive_avg_pool_dx")
def _adaptive_avg_pool_dx(g: Array, shape: Any, rank: int) -> Any:
    windows = [_adaptive(a, b) for a, b in zip(shape[-rank:], g.shape[-rank:], strict=True)]
    return _average_dx(g, shape, windows, [0] * rank, True, None)


# ---- normalisation, losses, attention


def _normal(x: Array, dims: Any, eps: float) -> Any:
    return (x - x.mean(dims, keepdims=True)) / np.sqrt(x.var(dims, keepdims=True) + eps)


def _affine(y: Array, weight: Any, bias: Any) -> Any:
    return y * (1 if weight is None else weight) + (0 if bias is None else bias)


def _per_channel(value: Any, ndim: int) -> Any:
    return None if value is None else value.reshape(-1, *[1] * (ndim - 2))


@defines("layer_norm")
def _layer_norm(input: Array, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    return _affine(_normal(input, tuple(range(-len(normalized_shape), 0)), eps), weight, bias)


@defines("rms_norm")
def _rms_norm(input: Array, normalized_shape: Any, weight: Any, eps: float) -> Any:
    dims = tuple(range(-len(normalized_shape), 0))
    return _affine(input / np.sqrt(np.mean(input**2, dims, keepdims=True) + eps), weight, None)


@defines("group_norm")
def _group_norm(input: Array, num_groups: int, weight: Any, bias: Any, eps: float) -> Any:
    y = _normal(input.reshape(len(input), num_groups, -1), 2, eps).reshape(input.shape)
    return _affine(y, _per_channel(weight, input.ndim), _per_channel(bias, input.ndim))


@defines("batch_norm_train")
def _batch_norm_train(input: Array, weight: Any, bias: Any, eps: float) -> Any:
    dims = (0, *range(2, input.ndim))
    y = _affine(
        _normal(input, dims, eps), _per_channel(weight, input.ndim), _per_channel(bias, input.ndim)
    )
    return y, input.mean(dims), input.var(dims)


@defines("batch_norm_eval")
def _batch_norm_eval(
    input: Array, running_mean: Array, running_var: Array, weight: Any, bias: Any, eps: float
) -> Any:
    mean, var = _per_channel(running_mean, input.ndim), _per_channel(running_var, input.ndim)
    y = (input - mean) / np.sqrt(var + eps)
    return _affine(y, _per_channel(weight, input.ndim), _per_channel(bias, input.ndim))


def _classes(
    logp: Array, target: Array, weight: Any, reduction: str, ignore: int, smoothing: float
) -> Any:
    """The loss of log-probabilities (item, class, place...), and the total weight."""
    x = logp[None] if logp.ndim == 1 else logp
    t = target[None] if logp.ndim == 1 else target
    w = np.ones(x.shape[1]) if weight is None else weight
    keep = t != ignore
    safe = np.where(keep, t, 0)
    counts = np.where(keep, w[safe], 0)
    hit = np.take_along_axis(x, safe[:, None], 1)[:, 0]
    spread = np.where(keep, (x * w.reshape(1, -1, *[1] * (x.ndim - 2))).sum(1), 0)
    loss = -hit * counts * (1 - smoothing) - spread * smoothing / x.shape[1]
    each = loss[0] if logp.ndim == 1 else loss
    reduced = {"none": each, "sum": loss.sum(), "mean": loss.sum() / counts.sum()}[reduction]
    return reduced, counts.sum()


@defines("nll_loss")
def _nll_loss(input: Array, target: Array, weight: Any, reduction: str, ignore_index: int) -> Any:
    return _classes(input, target, weight, reduction, ignore_index, 0.0)


@defines("nll_loss_steps")
def _nll_loss_steps(
    input: Array, target: Array, weight: Any, reduction: str, ignore_index: int
) -> Any:
    return _classes(input, target, weight, reduction, ignore_index, 0.0)[0]


@defines("cross_entropy_loss")
def _cross_entropy(input: Array, target: Array, weight: Any, reduction: str, ignore_index: int,
                   label_smoothing: float) -> Any:  # fmt: skip
    axis = 0 if input.ndim == 1 else 1
    lse = np.log(np.exp(input).sum(axis))
    logp = input - np.expand_dims(lse, axis)
    loss, total = _classes(logp, target, weight, reduction, ignore_index, label_smoothing)
    return loss, lse, total


@defines("cross_entropy_steps")
def _cross_entropy_steps(input: Array, target: Array, weight: Any, reduction: str, ignore_index: int,
                         label_smoothing: float) -> Any:  # fmt: skip
    return _cross_entropy(input, target, weight, reduction, ignore_index, label_smoothing)[0]


@defines("dropout")
def _dropout(input: Array, p: float, train: bool) -> Any:
    if train and 0 < p < 1:
        raise NoReference("its examples draw no random numbers")
    return input * 0.0 if train and p == 1 else input


@defines("attention")
def _attention(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Any,
    is_causal: bool,
    scale: Any,
    enable_gqa: bool,
) -> Any:
    if enable_gqa:
        times = query.shape[-3] // key.shape[-3]
        key, value = np.repeat(key, times, -3), np.repeat(value, times, -3)
    scores = (
        query @ np.swapaxes(key, -1, -2) * (query.shape[-1] ** -0.5 if scale is None else scale)
    )
    if is_causal:
        scores = np.where(np.tri(*scores.shape[-2:]) > 0, scores, -np.inf)
    if attn_mask is not None:
        scores = (
            np.where(attn_mask, scores, -np.inf)
            if attn_mask.dtype == np.bool_
            else scores + attn_mask
        )
    out = _softmax(scores, -1) @ value
    lse = np.log(np.exp(scores).sum(-1))
    return out, np.broadcast_to(lse, out.shape[:-1])


@defines("scaled_dot_product_attention")
def _sdpa(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Any,
    is_causal: bool,
    scale: Any,
    enable_gqa: bool,
) -> Any:
    return _attention(query, key, value, attn_mask, is_causal, scale, enable_gqa)[0]


# ---- optimizers: what is written, in the order of the arguments


def _step(
    update: Callable[..., tuple[Any, ...]], lists: list[list[Any]], weight_decay: float, maximize: bool, lr: float,
    decoupled: bool = False,
) -> tuple[Any, ...]:  # fmt: skip
    """Weight decay, then update(parameter, gradient, further arrays), which gives the parameter and those."""
    made = []
    for p, g, *state in itertools.zip_longest(*lists):
        grad = -g if maximize else g
        if decoupled:
            p = p * (1 - lr * weight_decay)
        else:
            grad = grad + weight_decay * p
        new, *states = update(p, grad, *state)
        made.append([new, g, *states])
    columns = zip(*made, strict=True)
    return tuple(a for given, column in zip(lists, columns, strict=True) if given for a in column)


@defines("fused_adam")
def _adam(params: Any, grads: Any, exp_avgs: Any, exp_avg_sqs: Any, max_exp_avg_sqs: Any, lr: float, beta1: float,
          beta2: float, eps: float, weight_decay: float, decoupled: bool, maximize: bool, bias_correction1: float,
          bias_correction2: float) -> Any:  # fmt: skip
    def update(p: Any, g: Any, m: Any, v: Any, top: Any) -> Any:
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
        top = None if top is None else np.maximum(top, v)
        size = np.sqrt((v if top is None else top) / bias_correction2) + eps
        return p - lr / bias_correction1 * m / size, m, v, top

    return _step(
        update,
        [params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs],
        weight_decay,
        maximize,
        lr,
        decoupled,
    )


@defines("fused_sgd")
def _sgd(params: Any, grads: Any, momentum_buffers: Any, lr: float, momentum: float, dampening: float,
         weight_decay: float, nesterov: bool, maximize: bool, first_step: bool) -> Any:  # fmt: skip
    def update(p: Any, g: Any, b: Any) -> Any:
        if b is None:
            return p - lr * g, None
        b = g if first_step else momentum * b + (1 - dampening) * g
        return p - lr * (g + momentum * b if nesterov else b), b

    return _step(update, [params, grads, momentum_buffers], weight_decay, maximize, lr)


@defines("fused_rmsprop")
def _rmsprop(params: Any, grads: Any, square_avgs: Any, momentum_buffers: Any, grad_avgs: Any, lr: float, alpha: float,
             eps: float, weight_decay: float, momentum: float, maximize: bool) -> Any:  # fmt: skip
    def update(p: Any, g: Any, s: Any, b: Any, a: Any) -> Any:
        s = alpha * s + (1 - alpha) * g * g
        a = None if a is None else alpha * a + (1 - alpha) * g
        step = g / (np.sqrt(s if a is None else s - a * a) + eps)
        b = None if b is None else momentum * b + step
        return p - lr * (step if b is None else b), s, b, a

    return _step(
        update,
        [params, grads, square_avgs, momentum_buffers, grad_avgs],
        weight_decay,
        maximize,
        lr,
    )


@defines("fused_adagrad")
def _adagrad(
    params: Any,
    grads: Any,
    state_sums: Any,
    lr: float,
    eps: float,
    weight_decay: float,
    maximize: bool,
) -> Any:
    def update(p: Any, g: Any, s: Any) -> Any:
        return p - lr * g / (np.sqrt(s + g * g) + eps), s + g * g

    return _step(update, [params, grads, state_sums], weight_decay, maximize, lr)


@defines("fused_adamax")
def _adamax(params: Any, grads: Any, exp_avgs: Any, exp_infs: Any, lr: float, beta1: float, beta2: float, eps: float,
            weight_decay: float, maximize: bool, bias_correction1: float) -> Any:  # fmt: skip
    def update(p: Any, g: Any, m: Any, u: Any) -> Any:
        m, u = beta1 * m + (1 - beta1) * g, np.maximum(beta2 * u, np.abs(g) + eps)
        return p - lr / bias_correction1 * m / u, m, u

    return _step(update, [params, grads, exp_avgs, exp_infs], weight_decay, maximize, lr)


@defines("fused_nadam")
def _nadam(params: Any, grads: Any, exp_avgs: Any, exp_avg_sqs: Any, lr: float, beta1: float, beta2: float, eps: float,
           weight_decay: float, decoupled: bool, maximize: bool, grad_part: float, mean_part: float,
           bias_correction2: float) -> Any:  # fmt: skip
    def update(p: Any, g: Any, m: Any, v: Any) -> Any:
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
        return (
            p - lr * (grad_part * g + mean_part * m) / (np.sqrt(v / bias_correction2) + eps),
            m,
            v,
        )

    return _step(
        update, [params, grads, exp_avgs, exp_avg_sqs], weight_decay, maximize, lr, decoupled
    )


@defines("fused_radam")
def _radam(params: Any, grads: Any, exp_avgs: Any, exp_avg_sqs: Any, lr: float, beta1: float, beta2: float, eps: float,
           weight_decay: float, decoupled: bool, maximize: bool, bias_correction1: float, rectification: float) -> Any:  # fmt: skip
    def update(p: Any, g: Any, m: Any, v: Any) -> Any:
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
        scale = rectification / (np.sqrt(v) + eps) if rectification else 1.0
        return p - lr / bias_correction1 * m * scale, m, v

    return _step(
        update, [params, grads, exp_avgs, exp_avg_sqs], weight_decay, maximize, lr, decoupled
    )


@defines("foreach_norm")
def _foreach_norm(tensors: Any, ord: float) -> Any:
    return np.array([np.linalg.norm(t.reshape(-1), ord) for t in tensors])


@defines("foreach_scale")
def _foreach_scale(tensors: Any, factor: float) -> Any:
    return tuple(t * factor for t in tensors)


@defines("foreach_clamp")
def _foreach_clamp(tensors: Any, low: float, high: float) -> Any:
    return tuple(np.clip(t, low, high) for t in tensors)


# ---- creation


class Unset(tuple[int, ...]):
    """A result of this shape whose elements may be anything."""


@defines("empty")
def _empty(size: Any) -> Any:
    return (Unset(size),)


@defines("new_empty")
def _new_empty(input: Array, size: Any) -> Any:
    return (Unset(size),)


@defines("empty_like")
def _empty_like(input: Array) -> Any:
    return (Unset(input.shape),)


_CREATED: dict[str, Callable[..., Any]] = {
    "full": lambda size, fill_value, dtype: np.full(size, fill_value, dtype),
    "zeros": lambda size, dtype: np.zeros(size, dtype),
    "ones": lambda size, dtype: np.ones(size, dtype),
    "eye": lambda n, m, dtype: np.eye(n, m, dtype=dtype),
    "linspace": lambda start, end, steps, dtype: np.linspace(start, end, steps).astype(dtype),
    "logspace": lambda start, end, steps, base, dtype: np.logspace(start, end, steps, base=base).astype(dtype),
    "zeros_like": lambda input, dtype: np.zeros(input.shape, dtype or input.dtype),
    "ones_like": lambda input, dtype: np.ones(input.shape, dtype or input.dtype),
    "full_like": lambda input, fill_value, dtype: np.full(input.shape, fill_value, dtype or input.dtype),
}  # fmt: skip
DEFINITIONS.update(_CREATED)


@defines("arange")
def _arange(start: Any, end: Any, step: Any, dtype: str | None) -> Any:
    made = np.arange(0, start, step) if end is None else np.arange(start, end, step)
    return made if dtype is None else made.astype(dtype)


# ---- random numbers: the mapping that rabbet/philox.h promises, from seed 0 on


def _philox(counters: int) -> Array:
    """Four words for each of the counters 0, 1, ...: Philox-4x32-10 with the key 0."""
    c = [np.arange(counters, dtype=np.uint64), *(np.zeros(counters, np.uint64) for _ in range(3))]
    key, low = [np.uint64(0), np.uint64(0)], np.uint64(0xFFFFFFFF)
    for _ in range(10):
        p, q = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [
            (q >> np.uint64(32)) ^ c[1] ^ key[0],
            q & low,
            (p >> np.uint64(32)) ^ c[3] ^ key[1],
            p & low,
        ]
        key = [(key[0] + np.uint64(0x9E3779B9)) & low, (key[1] + np.uint64(0xBB67AE85)) & low]
    return np.stack(c, -1)


def _words(n: int, bits: int) -> Array:
    """A number of 32 or 64 bits for each element."""
    words = _philox(-(-n // (128 // bits))).reshape(-1)
    return words[:n] if bits == 32 else (words[0::2] | words[1::2] << np.uint64(32))[:n]


def _uniform(n: int, dtype_name: str) -> Array:
    if dtype_name == "float64":
        return (_words(n, 64) >> np.uint64(11)) * 2.0**-53
    return (_words(n, 32) >> np.uint64(8)) * 2.0**-24


def _drawn(values: Array, like: Array) -> Array:
    return values.reshape(like.shape)


def _draw_uniform(given: dict[str, Any]) -> Any:
    x = given["input"]
    low, high = given["from"], given["to"]
    return (_drawn(low + (high - low) * _uniform(x.size, given["dtype_name"]), x),)


def _draw_integers(given: dict[str, Any]) -> Any:
    x, span = given["input"], given["to"] - given["from"]
    return (
        _drawn(
            (
                given["from"]
                + (_words(x.size, 32) * np.uint64(span) >> np.uint64(32)).astype(np.int64)
            ),
            x,
        ),
    )


@defines("normal")
def _draw_normal(input: Array, mean: float, std: float, dtype_name: str) -> Any:
    u = _uniform(input.size + input.size % 2, dtype_name).reshape(-1, 2)
    radius, angle = np.sqrt(-2 * np.log(1 - u[:, 0])), 2 * np.pi * u[:, 1]
    pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], -1).reshape(-1)
    return _drawn(mean + std * pairs[: input.size], input)


@defines("bernoulli", "bernoulli.tensor")
def _draw_bernoulli(input: Array, p: Any, dtype_name: str) -> Any:
    return _drawn(_uniform(input.size, dtype_name), input) < p


@defines("exponential")
def _draw_exponential(input: Array, lambd: float, dtype_name: str) -> Any:
    return _drawn(-np.log(1 - _uniform(input.size, dtype_name)) / lambd, input)


def _normal_numbers(shape: Any, dtype_name: str) -> Array:
    return np.asarray(_draw_normal(np.empty(shape), 0.0, 1.0, dtype_name))


@defines("rand")
def _rand(size: Any, dtype_name: str) -> Any:
    return _uniform(int(np.prod(size)), dtype_name).reshape(size)


@defines("rand_like")
def _rand_like(input: Array, dtype_name: str) -> Any:
    return _rand(input.shape, dtype_name)


@defines("randn")
def _randn(size: Any, dtype_name: str) -> Any:
    return _normal_numbers(size, dtype_name)


@defines("randn_like")
def _randn_like(input: Array, dtype_name: str) -> Any:
    return _normal_numbers(input.shape, dtype_name)


def _integers(low: int, high: int, shape: Any) -> Any:
    return _draw_integers({"input": np.empty(shape), "from": low, "to": high})[0]


DEFINITIONS.update(
    {
        "randint": lambda high, size: _integers(0, high, size),
        "randint.low": lambda low, high, size: _integers(low, high, size),
        "randint_like": lambda input, high: _integers(0, high, input.shape),
        "randint_like.low": lambda input, low, high: _integers(low, high, input.shape),
        "normal.means": lambda mean, std, dtype_name: _normal_of(mean, std, dtype_name),
        "normal.stds": lambda mean, std, dtype_name: _normal_of(mean, std, dtype_name),
    }
)


@defines("normal.tensors")
def _normal_of(mean: Any, std: Any, dtype_name: str) -> Any:
    shape = np.broadcast_shapes(np.shape(mean), np.shape(std))
    return mean + std * _normal_numbers(shape, dtype_name)


@defines("normal.sized")
def _normal_sized(mean: float, std: float, size: Any, dtype_name: str) -> Any:
    return mean + std * _normal_numbers(size, dtype_name)


@defines("multinomial")
def _multinomial(input: Array, num_samples: int, replacement: bool) -> Any:
    weights = np.atleast_2d(input)
    if replacement:
        edges = np.cumsum(weights / weights.sum(1, keepdims=True), 1)
        drawn = _uniform(len(weights) * num_samples, "float64").reshape(len(weights), -1)
        picked = (drawn[..., None] >= edges[:, None]).sum(2).clip(max=weights.shape[1] - 1)
    else:
        keys = np.log(_uniform(weights.size, "float64")).reshape(weights.shape) / weights
        picked = np.argsort(-keys, 1)[:, :num_samples]
    return picked.reshape(*input.shape[:-1], num_samples)


@defines("randperm")
def _draw_permutation(n: int) -> Any:
    order, words = np.arange(n), _words(n, 64)
    for k in range(n - 1):
        place = n - 1 - k
        at = int(words[k]) * (place + 1) >> 64
        order[[place, at]] = order[[at, place]]
    return order


# Of these an argument is called by a word of Python: they take all arguments as one.
WHOLE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "uniform": _draw_uniform,
    "random": _draw_integers,
}
