"""Definitions of matrix products and convolutions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.special

from .definitions import Array, NoReference, defines
from .elementwise import SCALARS


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


@defines("_int_mm")
def _product_of_bytes(input: Array, mat2: Array) -> Any:
    return input.astype(np.int32) @ mat2.astype(np.int32)


@defines("_scaled_mm")
def _scaled_product(
    input: Array, mat2: Array, scale_a: Array, scale_b: Array, bias: Any, scale_result: Any
) -> Any:
    if scale_result is not None:
        raise NoReference("whether it is divided depends on the dtype of the result")
    product = input @ mat2 * scale_a * scale_b
    return product + (0 if bias is None else bias)


@defines("_scaled_mm_v2")
def _product_by_recipe(
    input: Array, mat2: Array, scale_a: list[Array], scale_b: list[Array], bias: Any
) -> Any:
    return _scaled_product(input, mat2, scale_a[0], scale_b[0], bias, None)


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
        return SCALARS["gelu"](y, "none" if activation == "gelu" else "tanh")
    return {
        "relu": SCALARS["relu"],
        "silu": SCALARS["silu"],
        "tanh": np.tanh,
        "sigmoid": scipy.special.expit,
    }[activation](y)


def each(values: Any, n: int) -> list[int]:
    """A number for each of `n` directions."""
    given = np.atleast_1d(values).tolist()
    return given * n if len(given) == 1 else given


def _taps(
    kernel: Any, out: Any, stride: Any, padding: Any, dilation: Any
) -> Iterator[tuple[Any, Any]]:
    """Each place in the kernel, and where the padded input meets it for all results."""
    n = len(kernel)
    stride, padding, dilation = each(stride, n), each(padding, n), each(dilation, n)
    for k in np.ndindex(*kernel):
        yield k, tuple(slice(d * i, d * i + s * (o - 1) + 1, s)
                       for d, i, s, o in zip(dilation, k, stride, out, strict=True))  # fmt: skip


def _padded(x: Array, padding: Any) -> Array:
    return np.pad(x, [(0, 0), (0, 0), *((p, p) for p in each(padding, x.ndim - 2))])


@defines("convolution")
def _convolution(
    input: Array, weight: Array, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Any:
    x, n = _padded(input, padding), input.ndim - 2
    steps = zip(x.shape[2:], weight.shape[2:], each(stride, n), each(dilation, n), strict=True)
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
    inner = zip(each(padding, x.ndim - 2), shape[2:], strict=True)
    kept: tuple[Any, ...] = (..., *(slice(p, p + n) for p, n in inner))
    return grouped.reshape(x.shape)[kept]


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
