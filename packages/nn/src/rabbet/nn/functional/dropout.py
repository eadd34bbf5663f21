"""Dropout: training with random elements or channels left out (Srivastava et al. 2014)."""

from __future__ import annotations

import math
import warnings
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


def _need_features(input: Tensor, leading: int) -> None:
    if input.ndim < leading:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")


def _channels(input: Tensor, p: float, training: bool, inplace: bool, leading: int) -> Tensor:
    """Zero whole channels: the first `leading` dimensions draw, the others share."""
    if not training or p == 0 or input.numel() == 0:
        return input
    _need_features(input, leading)
    shape = [*input.shape[:leading], *([1] * (input.ndim - leading))]
    mask = _mask(input, shape, p)
    return input.mul_(mask) if inplace else input * mask


def feature_dropout(input: Tensor, p: float, training: bool, inplace: bool) -> Tensor:
    """Zero whole channels, dimension 1 of any input that has one."""
    check_probability(p)
    return _channels(input, p, training, inplace, 2)


def _purpose(name: str, spatial: int) -> str:
    plural = "s" if spatial > 1 else ""
    return (
        f"Note that {name} exists to provide channel-wise dropout on inputs with {spatial} spatial dimension{plural}, "
        f"a channel dimension, and an optional batch dimension (i.e. {spatial + 1}D or {spatial + 2}D inputs)."
    )


def _warn_unless_images(input: Tensor, name: str, spatial: int) -> None:
    if input.ndim not in (spatial + 1, spatial + 2):
        warnings.warn(
            f"{name}: Received a {input.ndim}-D input to {name}, which is deprecated and will result in an error in a "
            "future release. To retain the behavior and silence this warning, please use dropout instead. "
            + _purpose(name, spatial),
            stacklevel=3,
        )


def dropout1d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Zero whole channels of (N, C, L) or (C, L).

    Raises:
        RuntimeError: for other numbers of dimensions.
    """
    check_probability(p)
    if input.ndim not in (2, 3):
        raise RuntimeError(
            f"dropout1d: Expected 2D or 3D input, but received a {input.ndim}D input. "
            + _purpose("dropout1d", 1)
        )
    return _channels(input, p, training, inplace, input.ndim - 1)


def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Zero whole channels, dimension 1 of (N, C, H, W).

    Inputs of 3 dimensions are taken as (N, C, L), and those of 2, 5 and more have their channels in dimension 1
    too, as in PyTorch, which announces by a warning that this will change.

    Raises:
        RuntimeError: in training, for fewer than 2 dimensions.
    """
    _warn_unless_images(input, "dropout2d", 2)
    if input.ndim == 3:
        warnings.warn(
            "dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D dropout behavior is "
            "desired - input is interpreted as shape (N, C, L), where C is the channel dim. This behavior will change "
            "in a future release to interpret the input as one without a batch dimension, i.e. shape (C, H, W). To "
            "maintain the 1D channel-wise dropout behavior, please switch to using dropout1d instead.",
            stacklevel=2,
        )
    return feature_dropout(input, p, training, inplace)


def dropout3d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Zero whole channels: dimension 1 of (N, C, D, H, W), dimension 0 of inputs without a batch, (C, D, H, W).

    Inputs of other numbers of dimensions count as those without a batch, with a warning, as in PyTorch.

    Raises:
        RuntimeError: in training, for tensors without dimensions.
    """
    check_probability(p)
    leading = 2 if input.ndim == 5 else 1
    _warn_unless_images(input, "dropout3d", 3)
    return _channels(input, p, training, inplace, leading)


def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Dropout that keeps mean 0 and variance 1 after SELU (Klambauer et al. 2017)."""
    return _alpha(input, p, training, inplace, features=False)


def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """`alpha_dropout` of whole channels of (N, C, *)."""
    return _alpha(input, p, training, inplace, features=True)


# SELU's value at minus infinity, with its sign turned.
_SELU_FLOOR = 1.7580993408473766


def _alpha(input: Tensor, p: float, training: bool, inplace: bool, *, features: bool) -> Tensor:
    check_probability(p)
    if not training or p == 0 or input.numel() == 0:
        return input
    if p == 1:
        return input.mul_(0) if inplace else input * 0
    shape = list(input.shape)
    if features:
        _need_features(input, 2)
        shape[2:] = [1] * (input.ndim - 2)
    scale = 1 / math.sqrt((_SELU_FLOOR**2 * p + 1) * (1 - p))
    keep = rabbet.empty(shape, dtype=input.dtype, device=input.device).bernoulli_(1 - p)
    shift = (keep - 1) * (_SELU_FLOOR * scale) + _SELU_FLOOR * scale * p
    factor = keep * scale
    return input.mul_(factor).add_(shift) if inplace else input * factor + shift
