"""Dropout: training with random elements or channels left out (Srivastava et al. 2014)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import rabbet
from rabbet import Tensor, ops

_dropout = ops.dropout


def check_probability(p: float) -> None:
    """Raise ValueError unless 0 <= p <= 1."""
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero each element with probability `p` and scale the rest by `1 / (1 - p)`; only in training."""
    if not 0.0 <= p <= 1.0:
        check_probability(p)
    if not inplace:
        return _dropout(input, p, training)
    if training and p > 0:
        input.mul_(_mask(input, input.shape, p))
    return input


def _mask(input: Tensor, shape: Sequence[int], p: float) -> Tensor:
    mask = rabbet.empty(shape, dtype=input.dtype, device=input.device).bernoulli_(1 - p)
    return mask if p == 1 else mask.mul_(1 / (1 - p))


def _channels(input: Tensor, p: float, training: bool, inplace: bool, leading: int) -> Tensor:
    """Zero whole channels: the first `leading` dimensions draw, the others share."""
    check_probability(p)
    if not training or p == 0:
        return input
    shape = [*input.shape[:leading], *([1] * (input.ndim - leading))]
    mask = _mask(input, shape, p)
    return input.mul_(mask) if inplace else input * mask


def _expect_ndim(input: Tensor, name: str, allowed: tuple[int, ...]) -> None:
    if input.ndim not in allowed:
        wanted = " or ".join(str(n) for n in allowed)
        raise RuntimeError(f"{name}: expected {wanted} dimensions, got shape {tuple(input.shape)}")


def dropout1d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Zero whole channels of (N, C, L) or (C, L)."""
    _expect_ndim(input, "dropout1d", (2, 3))
    return _channels(input, p, training, inplace, input.ndim - 1)


def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Zero whole channels of (N, C, H, W); three dimensions are taken as (N, C, L)."""
    _expect_ndim(input, "dropout2d", (3, 4))
    return _channels(input, p, training, inplace, 2)


def dropout3d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Zero whole channels of (N, C, D, H, W) or (C, D, H, W)."""
    _expect_ndim(input, "dropout3d", (4, 5))
    return _channels(input, p, training, inplace, input.ndim - 3)


def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Dropout that keeps mean 0 and variance 1 after SELU (Klambauer et al. 2017)."""
    return _alpha(input, p, training, inplace, input.shape)


def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """`alpha_dropout` of whole channels of (N, C, *)."""
    if input.ndim < 2 and training and p > 0:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
    return _alpha(input, p, training, inplace, [*input.shape[:2], *[1] * (input.ndim - 2)])


# SELU's value at minus infinity, with its sign turned.
_SELU_FLOOR = 1.7580993408473766


def _alpha(input: Tensor, p: float, training: bool, inplace: bool, shape: Sequence[int]) -> Tensor:
    check_probability(p)
    if not training or p == 0:
        return input
    if p == 1:
        return input.mul_(0) if inplace else input * 0
    scale = 1 / math.sqrt((_SELU_FLOOR**2 * p + 1) * (1 - p))
    keep = rabbet.empty(shape, dtype=input.dtype, device=input.device).bernoulli_(1 - p)
    shift = (keep - 1) * (_SELU_FLOOR * scale) + _SELU_FLOOR * scale * p
    factor = keep * scale
    return input.mul_(factor).add_(shift) if inplace else input * factor + shift
