"""Normalisation over parts of a batch, a layer or a group of channels."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rabbet import Tensor, ops

from .._accumulate import accumulated
from .convolution import pad
from .pooling import avg_pool2d

layer_norm = ops.layer_norm
_batch_norm_train = ops.batch_norm_train
_batch_norm_eval = ops.batch_norm_eval
_group_norm = ops.group_norm
_rms_norm = ops.rms_norm


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel (dimension 1) over the batch and all positions (Ioffe and Szegedy 2015).

    Args:
        input: (N, C) or (N, C, *).
        running_mean, running_var: used in evaluation, updated in training; may be None in training.
        weight, bias: scale and shift per channel.
        training: use the statistics of `input`.
        momentum: the part of the new statistics in the running ones.
        eps: added to the variance.
    """
    if eps <= 0.0:
        raise ValueError(f"batch_norm eps must be positive, got {eps}")
    if input.numel() == 0 and input.ndim < 2:
        return input.clone()
    if not training:
        if running_mean is None or running_var is None:
            raise RuntimeError(
                "batch_norm: Expected running_mean and running_var to be defined when training=False"
            )
        return _batch_norm_eval(input, running_mean, running_var, weight, bias, eps)
    if _values_per_channel("batch_norm", input, running_mean, running_var) == 1:
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {list(input.shape)}"
        )
    return trained_batch_norm(input, running_mean, running_var, weight, bias, momentum, eps)[0]


def trained_batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The input normalised by its own statistics, its means and variances; the running statistics are updated."""
    count = _values_per_channel("batch_norm", input, running_mean, running_var)
    y, mean, var = _batch_norm_train(input, weight, bias, eps)
    if running_mean is not None and count:
        _blend(running_mean, mean, momentum, 1.0)
    if running_var is not None and count:
        _blend(running_var, var, momentum, count / (count - 1) if count > 1 else math.nan)
    return y, mean, var


def _values_per_channel(
    op: str, input: Tensor, running_mean: Tensor | None, running_var: Tensor | None
) -> int:
    """How many elements each channel has; the running statistics must fit the channels."""
    if input.ndim < 2:
        raise RuntimeError(f"{op}: expected (N, C, *), got shape {tuple(input.shape)}")
    channels = input.shape[1]
    for name, value in (("running_mean", running_mean), ("running_var", running_var)):
        if value is not None and value.numel() != channels:
            raise RuntimeError(
                f"{op}: {name} should contain {channels} elements, not {value.numel()}"
            )
    return input.numel() // channels if channels else 0


def _blend(running: Tensor, new: Tensor, momentum: float, factor: float) -> None:
    """Move `running` towards `factor * new` by the part `momentum`."""
    running.mul_(1 - momentum).add_(new.detach(), alpha=momentum * factor)


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel of each item of (N, C, *) over its positions."""
    if input.ndim < 3:
        raise RuntimeError(f"instance_norm: expected (N, C, *), got shape {tuple(input.shape)}")
    input = input.contiguous()  # the result is row-major in every memory format
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    _values_per_channel("instance_norm", input, running_mean, running_var)
    batch, channels = input.shape[0], input.shape[1]
    count = input.numel() // (batch * channels) if input.numel() else 0
    if count <= 1:
        raise ValueError(
            f"Expected more than 1 spatial element when training, got input size {list(input.shape)}"
        )
    if running_mean is None and running_var is None:
        return _group_norm(input, channels, weight, bias, eps)
    # Every channel of every item as a channel of one item.
    rows = input.reshape([1, batch * channels, *input.shape[2:]])
    repeated = [None if v is None else v.repeat([batch]) for v in (weight, bias)]
    y, mean, var = _batch_norm_train(rows, *repeated, eps)
    if running_mean is not None:
        _blend(running_mean, mean.reshape([batch, channels]).mean(0), momentum, 1.0)
    if running_var is not None:
        factor = count / (count - 1)
        _blend(running_var, var.reshape([batch, channels]).mean(0), momentum, factor)
    return y.reshape(input.shape)


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise groups of channels of each item of (N, C, *) (Wu and He 2018)."""
    return _group_norm(input, num_groups, weight, bias, eps)


def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """Divide by the root of the mean square over the last dimensions (Zhang and Sennrich 2019).

    Args:
        input: ends with `normalized_shape`.
        normalized_shape: sizes of the dimensions to normalise over.
        weight: scale, of shape `normalized_shape`.
        eps: added to the mean square; the dtype's machine epsilon if None.
    """
    if eps is None:
        eps = _MACHINE_EPSILON.get(str(input.dtype).rpartition(".")[2], 2.0**-23)
    return _rms_norm(input, normalized_shape, weight, eps)


# Half precision computes its statistics in float32.
_MACHINE_EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23}


@accumulated
def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """Divide by `(k + alpha * mean of squares of size channels around) ** beta` (Krizhevsky et al. 2012)."""
    if input.ndim < 3:
        raise ValueError(
            f"Expected 3D or higher dimensionality input (got {input.ndim} dimensions)"
        )
    if input.numel() == 0:
        return input
    lines = (input * input).reshape([input.shape[0], 1, input.shape[1], -1])
    lines = pad(lines, (0, 0, size // 2, (size - 1) // 2))
    means = avg_pool2d(lines, (size, 1), stride=1).reshape(input.shape)
    return input / (means * alpha + k) ** beta
