"""Normalisation over parts of a batch, a layer or a group of channels."""

from __future__ import annotations

from collections.abc import Sequence

import rabbet
from rabbet import Tensor, ops

layer_norm = ops.layer_norm
_moments = ops.normalize_moments


def _per_channel(values: Tensor, ndim: int) -> Tensor:
    return values if ndim == 2 else values.reshape([-1] + [1] * (ndim - 2))


def _affine(y: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    if weight is not None:
        y = y * _per_channel(weight, y.ndim)
    return y if bias is None else y + _per_channel(bias, y.ndim)


def _check_channels(op: str, input: Tensor, **values: Tensor | None) -> None:
    for name, value in values.items():
        if value is not None and value.numel() != input.shape[1]:
            raise RuntimeError(
                f"{op}: {name} should contain {input.shape[1]} elements, not {value.numel()}"
            )


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
    if input.ndim < 2:
        raise RuntimeError(f"batch_norm: expected (N, C, *), got shape {tuple(input.shape)}")
    _check_channels(
        "batch_norm",
        input,
        running_mean=running_mean,
        running_var=running_var,
        weight=weight,
        bias=bias,
    )
    if not training:
        if running_mean is None or running_var is None:
            raise RuntimeError(
                "batch_norm: Expected running_mean and running_var to be defined when training=False"
            )
        # Two operations per element instead of four.
        scale = rabbet.rsqrt(running_var + eps)
        if weight is not None:
            scale = scale * weight
        shift = -running_mean * scale
        return _affine(input, scale, shift if bias is None else shift + bias)
    count = input.numel() // input.shape[1] if input.shape[1] else 0
    if count <= 1:
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {list(input.shape)}"
        )
    y, mean, var = _moments(input, [0, *range(2, input.ndim)], eps)
    if running_mean is not None:
        _blend(running_mean, mean, momentum, 1.0)
    if running_var is not None:
        _blend(running_var, var, momentum, count / (count - 1))
    return _affine(y, weight, bias)


def _blend(running: Tensor, new: Tensor, momentum: float, factor: float) -> None:
    """Move `running` towards `factor * new` by the part `momentum`."""
    running.mul_(1 - momentum).add_(new.detach().reshape([-1]), alpha=momentum * factor)


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
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    _check_channels(
        "instance_norm",
        input,
        running_mean=running_mean,
        running_var=running_var,
        weight=weight,
        bias=bias,
    )
    count = input.numel() // (input.shape[0] * input.shape[1]) if input.numel() else 0
    if count <= 1:
        raise ValueError(
            f"Expected more than 1 spatial element when training, got input size {list(input.shape)}"
        )
    y, mean, var = _moments(input, list(range(2, input.ndim)), eps)
    if running_mean is not None:
        _blend(running_mean, mean.detach().mean(0), momentum, 1.0)
    if running_var is not None:
        _blend(running_var, var.detach().mean(0), momentum, count / (count - 1))
    return _affine(y, weight, bias)


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise groups of channels of each item of (N, C, *) (Wu and He 2018)."""
    if input.ndim < 2:
        raise RuntimeError(f"group_norm: expected (N, C, *), got shape {tuple(input.shape)}")
    batch, channels = input.shape[0], input.shape[1]
    if num_groups < 1 or channels % num_groups:
        raise RuntimeError(
            "Expected number of channels in input to be divisible by num_groups, "
            f"but got input of shape {list(input.shape)} and num_groups={num_groups}"
        )
    _check_channels("group_norm", input, weight=weight, bias=bias)
    per_group = input.numel() // (batch * num_groups) if batch else 1
    groups = input.reshape([batch, num_groups, per_group])
    y = _moments(groups, [2], eps)[0].reshape(input.shape)
    return _affine(y, weight, bias)


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
    sizes = tuple(normalized_shape)
    if not sizes or tuple(input.shape[-len(sizes) :]) != sizes:
        raise RuntimeError(
            f"rms_norm: expected input with shape [*, {', '.join(map(str, sizes))}], got {tuple(input.shape)}"
        )
    if weight is not None and tuple(weight.shape) != sizes:
        raise RuntimeError(f"rms_norm: expected weight of shape {sizes}, got {tuple(weight.shape)}")
    if eps is None:
        eps = _MACHINE_EPSILON.get(str(input.dtype).rpartition(".")[2], 2.0**-23)
    dims = list(range(-len(sizes), 0))
    y = input * rabbet.rsqrt(rabbet.mean(input * input, dims, True) + eps)
    return y if weight is None else y * weight


# Half precision computes its statistics in float32.
_MACHINE_EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23}
