"""Dropout: training with random elements or channels left out (Srivastava et al. 2014)."""

from __future__ import annotations

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
