"""Activation functions."""

from __future__ import annotations

import warnings
from typing import Any

import rabbet
from rabbet import Tensor, ops

from .._accumulate import accumulated
from ._dtypes import require_floating

gelu = rabbet.gelu
logsigmoid = rabbet.logsigmoid
sigmoid = rabbet.sigmoid
softplus = rabbet.softplus
hardshrink = rabbet.hardshrink
softshrink = ops.softshrink
tanh = rabbet.tanh

_relu = rabbet.relu
_relu_in_place = Tensor.relu_
_silu = rabbet.silu
_softmax = rabbet.softmax
_log_softmax = rabbet.log_softmax
_celu = ops.celu
_selu = ops.selu
_mish = ops.mish
_hardsigmoid = ops.hardsigmoid
_hardswish = ops.hardswish
_threshold = ops.threshold
_softsign = ops.softsign
_tanhshrink = ops.tanhshrink
_prelu = ops.prelu


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """Return the larger of `input` and 0."""
    return _relu_in_place(input) if inplace else _relu(input)


def relu_(input: Tensor) -> Tensor:
    """Replace `input` by the larger of it and 0."""
    return _relu_in_place(input)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """Return `input` where positive, else `negative_slope * input`."""
    if inplace:
        return Tensor.leaky_relu_(input, negative_slope)
    return rabbet.leaky_relu(input, negative_slope)


def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """Replace `input` by its `leaky_relu`."""
    return Tensor.leaky_relu_(input, negative_slope)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """Return `input` where positive, else `alpha * (exp(input) - 1)`."""
    return Tensor.elu_(input, alpha) if inplace else rabbet.elu(input, alpha)


def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """Replace `input` by its `elu`."""
    return Tensor.elu_(input, alpha)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """Return `input` where positive, else `alpha * (exp(input / alpha) - 1)`."""
    if alpha == 0:
        raise RuntimeError("celu: expected alpha to be nonzero, got 0")
    if inplace:
        return Tensor.celu_(input, alpha)
    return _celu(input, alpha)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """Return the scaled `elu` that keeps mean 0 and variance 1 (Klambauer et al. 2017)."""
    return Tensor.selu_(input) if inplace else _selu(input)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """Return `input * sigmoid(input)`."""
    return Tensor.silu_(input) if inplace else _silu(input)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """Return `input * tanh(softplus(input))`."""
    return Tensor.mish_(input) if inplace else _mish(input)


def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """Return `input` limited to [min_val, max_val]."""
    if min_val > max_val:
        raise ValueError(f"min_val cannot be greater than max_val, got {min_val} and {max_val}")
    if inplace:
        return Tensor.hardtanh_(input, min_val, max_val)
    return rabbet.hardtanh(input, min_val, max_val)


def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """Replace `input` by itself limited to [min_val, max_val]."""
    return hardtanh(input, min_val, max_val, True)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """Return `input` limited to [0, 6]."""
    return hardtanh(input, 0.0, 6.0, inplace)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """Return `relu6(input + 3) / 6`."""
    return Tensor.hardsigmoid_(input) if inplace else _hardsigmoid(input)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """Return `input * hardsigmoid(input)`."""
    return Tensor.hardswish_(input) if inplace else _hardswish(input)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """Return `input` where it passes `threshold`, else `value`."""
    if inplace:
        return input.masked_fill_(input <= threshold, value)
    return _threshold(input, threshold, value)


def softsign(input: Tensor) -> Tensor:
    """Return `input / (1 + |input|)`."""
    return _softsign(input)


def tanhshrink(input: Tensor) -> Tensor:
    """Return `input - tanh(input)`."""
    return _tanhshrink(input)


@accumulated
def glu(input: Tensor, dim: int = -1) -> Tensor:
    """Return the first half of `input` along `dim` times the sigmoid of the second."""
    require_floating("glu", input)
    size = input.shape[dim]
    if size % 2:
        raise RuntimeError(f"glu: expected an even size in dimension {dim}, got {size}")
    first, second = rabbet.split(input, size // 2, dim) if size else (input, input)
    return first * sigmoid(second)


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """Return `input` where positive, else `weight * input`; one weight, or one per channel (dimension 1)."""
    count = weight.numel()
    if weight.ndim > 1:
        raise RuntimeError(f"prelu: expected a weight with at most 1 dimension, got {weight.ndim}")
    if count != 1:
        channels = input.shape[1] if input.ndim > 1 else 1
        if count != channels:
            raise RuntimeError(
                f"prelu: expected 1 weight or one for each of {channels} channels, got {count}"
            )
        weight = weight.reshape([-1] + [1] * (input.ndim - 2))
    return _prelu(input, weight if input.ndim else weight.reshape([]))


def _given_dim(name: str, input: Tensor, dim: int | None) -> int:
    if dim is not None:
        return dim
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument.",
        stacklevel=3,
    )
    return 0 if input.ndim in (0, 1, 3) else 1


def softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    """Return `exp(input) / sum(exp(input))` along `dim`, computed in `dtype` if given."""
    if dim is None:
        dim = _given_dim("softmax", input, dim)
    return _softmax(input, dim) if dtype is None else _softmax(input, dim, dtype=dtype)


def log_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    """Return `log(softmax(input))` along `dim`, computed in `dtype` if given."""
    if dim is None:
        dim = _given_dim("log_softmax", input, dim)
    return _log_softmax(input, dim) if dtype is None else _log_softmax(input, dim, dtype=dtype)


def softmin(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    """Return `softmax(-input)` along `dim`."""
    return softmax(-input, _given_dim("softmin", input, dim), dtype=dtype)


def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """Replace `input` by its `celu`."""
    return celu(input, alpha, inplace=True)


def selu_(input: Tensor) -> Tensor:
    """Replace `input` by its `selu`."""
    return selu(input, inplace=True)


def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
    """Replace `input` by `value` where it is at most `threshold`."""
    return Tensor.threshold_(input, threshold, value)


def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """Return `input` where positive, else scaled by a random slope (Xu et al. 2015).

    In training each slope is uniform on [lower, upper), in evaluation it is their mean.
    """
    if lower > upper:
        raise RuntimeError(
            f"rrelu: Lower bound should be less than or equal to the upper bound, got {lower} and {upper}"
        )
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    with rabbet.no_grad():
        slopes = rabbet.empty_like(input).uniform_(lower, upper)
        slopes = rabbet.where(input <= 0, slopes, rabbet.ones_like(slopes))
    return input.mul_(slopes) if inplace else input * slopes


def rrelu_(
    input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False
) -> Tensor:
    """Replace `input` by its `rrelu`."""
    return rrelu(input, lower, upper, training, inplace=True)


def gumbel_softmax(
    logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """Return a sample of the relaxed categorical distribution (Jang et al. 2017).

    With `hard` the value is one-hot and the gradient that of the soft sample. `eps` has no effect.
    """
    if eps != 1e-10:
        warnings.warn("`eps` parameter is deprecated and has no effect.", stacklevel=2)
    with rabbet.no_grad():
        noise = -rabbet.log(rabbet.empty_like(logits).exponential_())
    soft = _softmax((logits + noise) / tau, dim)
    if not hard:
        return soft
    index = rabbet.argmax(soft, dim, True)
    one_hot = rabbet.zeros_like(logits).scatter_(dim, index, 1.0)
    return one_hot.detach() - soft.detach() + soft
