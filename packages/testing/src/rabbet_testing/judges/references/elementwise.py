"""Definitions of elementwise operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special

from .definitions import DEFINITIONS, Array, defines


def _whole(number: Any, like: Array) -> Any:
    """The number as integers take it."""
    return int(number) if like.dtype.kind in "iu" else number


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


@defines("logaddexp")
def _logaddexp(input: Any, other: Any) -> Any:
    if not (np.iscomplexobj(input) or np.iscomplexobj(other)):
        return np.logaddexp(input, other)
    less = np.real(input) < np.real(other)
    low, high = np.where(less, input, other), np.where(less, other, input)
    return high + np.log(1 + np.exp(low - high))


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


def _conj(input: Array) -> Any:
    return np.conj(input) if input.dtype.kind == "c" else input


SCALARS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("conj", "conj_physical"), _conj),
    "sigmoid": lambda input: 1 / (1 + np.exp(-np.asarray(input, np.result_type(input, 1.0)))),
    "square": lambda input: input * input if input.dtype != bool else input.astype(np.int64),
     "pow": lambda input, exponent: _typed(np.power(input, exponent), input, exponent),
    "rsqrt": lambda input: 1 / np.sqrt(input),
    "reciprocal": lambda input: 1 / (np.float64(input) if input.dtype.kind in "biu" else input),
    "frac": lambda input: input - np.trunc(input),
    "signbit": lambda input: np.signbit(input) if input.dtype.kind == "f" else input < 0,
    "relu": lambda input: np.maximum(input, 0),
    "relu_vjp": lambda g, out: np.where(out <= 0, 0, g),
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
    "hardtanh": lambda input, min_val, max_val: np.clip(
        input, _whole(min_val, input), _whole(max_val, input)
    ),
    "hardsigmoid": lambda input: np.clip(input / 6 + 0.5, 0, 1),
    "hardswish": lambda input: input * np.clip(input / 6 + 0.5, 0, 1),
    "threshold": lambda input, threshold, value: np.where(
        input <= _whole(threshold, input), _whole(value, input), input
    ).astype(input.dtype),
    "hardshrink": lambda input, lambd: np.where(np.abs(input) <= lambd, 0.0, input),
    "softshrink": lambda input, lambd: np.where(np.abs(input) <= lambd, 0.0, np.where(input > 0, input - lambd, input + lambd)),
    "softsign": lambda input: input / (1 + np.abs(input)),
    "tanhshrink": lambda input: input - np.tanh(input),
    "prelu": lambda input, weight: np.where(input > 0, input, weight * input),
    "lerp": lambda input, end, weight: (1 - weight) * input + weight * end,
    "addcmul": lambda input, tensor1, tensor2, value: (
        input + _whole(value, input) * (tensor1 * tensor2)
    ),
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
DEFINITIONS.update(SCALARS)


@defines("hurwitz_zeta")
def _hurwitz_zeta(q: Any, s: Any, unit: Any) -> Any:
    return scipy.special.zeta(s, q) * unit**-s


@defines("logit")
def _logit(input: Any, eps: Any) -> Any:
    return scipy.special.logit(input if eps is None else np.clip(input, eps, 1 - eps))
