"""Losses."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import rabbet
from rabbet import Tensor, ops

from .._accumulate import accumulated

_mean = rabbet.mean
_float32, _int64 = rabbet.float32, rabbet.int64
_squared_error = ops.squared_error
_cross_entropy = ops.cross_entropy_loss
_nll = ops.nll_loss


def holds(condition: Tensor) -> bool:
    """Whether a condition holds everywhere; True where values cannot be read: inside `vmap`, on meta."""
    if condition.device.type == "meta":
        return True
    try:
        return bool(condition.all())
    except rabbet.StateError:
        return True


def reduction_name(reduction: str, size_average: bool | None, reduce: bool | None) -> str:
    """The reduction that the arguments mean; the two flags are PyTorch's former way to say it."""
    if size_average is not None or reduce is not None:
        if reduce is False:
            return "none"
        return "sum" if size_average is False else "mean"
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return reduction


def _reduced(loss: Tensor, reduction: str) -> Tensor:
    if reduction == "mean":
        return _mean(loss)
    return rabbet.sum(loss) if reduction == "sum" else loss


def _unweighted(
    error: Callable[..., Tensor],
    loss: Callable[..., Tensor],
    reduction: str,
    input: Tensor,
    target: Tensor,
    *option: float,
) -> Tensor:
    """`error` of each element, reduced.

    The operator `loss` does both at once, in the accumulation dtype. float32 is its own, and two calls are quicker.
    """
    if reduction == "none" or input.dtype is _float32:
        return _reduced(error(input, target, *option), reduction)
    return loss(input, target, reduction, *option)


@accumulated
def _weighted_reduced(
    error: Callable[..., Tensor], weight: Tensor, reduction: str, *args: Any
) -> Tensor:
    """Reduce `error(*args) * weight`."""
    return _reduced(error(*args) * weight, reduction)


@accumulated
def _mean_by_weight(
    error: Callable[..., Tensor], weight: Tensor, reduction: str, *args: Any
) -> Tensor:
    """Reduce `error(*args) * weight`; the mean divides by the sum of the weights."""
    loss = error(*args)
    _check_weight(loss, weight)
    if reduction == "mean":
        return rabbet.sum(loss * weight) / rabbet.sum(weight)
    return _reduced(loss * weight, reduction)


def _check_weight(loss: Tensor, weight: Tensor) -> None:
    if tuple(weight.shape) != tuple(loss.shape):
        raise ValueError(
            f"Inputs and weights must have the same size, got {tuple(loss.shape)} and {tuple(weight.shape)}"
        )


def _warn_if_broadcast(name: str, input: Tensor, target: Tensor) -> None:
    if input.shape != target.shape:
        warnings.warn(
            f"{name}: the target size {tuple(target.shape)} differs from the input size "
            f"{tuple(input.shape)}, which broadcasts and is rarely what was meant",
            stacklevel=3,
        )


# ---- classes


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Return the negative log likelihood of classes under `softmax(input)`.

    Args:
        input: scores (N, C), (C,) or (N, C, *).
        target: int64 classes (N,), () or (N, *), or probabilities in the shape of `input`.
        weight: one factor per class.
        ignore_index: a class that does not count.
        reduction: 'mean' (over the weights of the targets), 'sum' or 'none'.
        label_smoothing: the part of the target that is spread over all classes.
    """
    if size_average is not None or reduce is not None:
        reduction = reduction_name(reduction, size_average, reduce)
    if target.dtype is not _int64:
        if target.is_floating_point() and target.shape == input.shape:
            if ignore_index >= 0:
                raise RuntimeError(
                    f"ignore_index is not supported for floating point target, got {ignore_index}"
                )
            return _probability_loss(input, target, weight, reduction, label_smoothing)
        target = _int64_classes(target)
    if weight is not None and weight.requires_grad:
        return ops.cross_entropy_steps(
            input, target, weight, reduction, ignore_index, label_smoothing
        )
    return _cross_entropy(input, target, weight, reduction, ignore_index, label_smoothing)[0]


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Return `-input` at the classes of `target`; as `cross_entropy`, with log-probabilities as input."""
    if size_average is not None or reduce is not None:
        reduction = reduction_name(reduction, size_average, reduce)
    if target.dtype is not _int64:
        target = _int64_classes(target)
    if weight is not None and weight.requires_grad:
        return ops.nll_loss_steps(input, target, weight, reduction, ignore_index)
    return _nll(input, target, weight, reduction, ignore_index)[0]


def _int64_classes(target: Tensor) -> Tensor:
    """Classes in uint8 as int64; anything else goes on as it is, and the operator refuses it."""
    return target.to(dtype=_int64) if target.dtype is rabbet.uint8 else target


@accumulated
def _probability_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: str,
    smoothing: float,
) -> Tensor:
    """Cross-entropy of scores `input` at class probabilities."""
    reduction = reduction_name(reduction, None, None)
    if not 0.0 <= smoothing <= 1.0:
        raise ValueError(f"label_smoothing must be between 0.0 and 1.0. Got: {smoothing}")
    if input.ndim == 0:
        raise ValueError(
            "cross_entropy: expected input with a dimension of classes, got a 0-d tensor"
        )
    class_dim = 0 if input.ndim == 1 else 1
    classes = input.shape[class_dim]
    if weight is not None and tuple(weight.shape) != (classes,):
        raise RuntimeError(
            "cross_entropy: weight tensor should be defined either for all "
            f"{classes} classes or no classes but got weight tensor of shape: {list(weight.shape)}"
        )
    if smoothing:
        target = target * (1 - smoothing) + smoothing / classes
    loss = rabbet.log_softmax(input, class_dim) * target
    if weight is not None:
        loss = loss * weight.reshape([-1] + [1] * (input.ndim - 1 - class_dim))
    loss = -loss.sum(class_dim)
    if reduction == "mean":
        return loss.sum() / max(loss.numel(), 1)
    return loss.sum() if reduction == "sum" else loss


# ---- distances


def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """Return `(input - target) ** 2`, reduced."""
    if input.shape != target.shape:
        _warn_if_broadcast("mse_loss", input, target)
    plain = reduction == "mean" and weight is None and size_average is None and reduce is None
    if plain and input.dtype is _float32:
        return _mean(_squared_error(input, target))
    reduction = reduction_name(reduction, size_average, reduce)
    if weight is None:
        return _unweighted(_squared_error, ops.squared_loss, reduction, input, target)
    return _mean_by_weight(_squared_error, weight, reduction, input, target)


def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """Return `|input - target|`, reduced."""
    _warn_if_broadcast("l1_loss", input, target)
    name = reduction_name(reduction, size_average, reduce)
    if weight is None:
        return _unweighted(ops.absolute_error, ops.absolute_loss, name, input, target)
    return _mean_by_weight(ops.absolute_error, weight, name, input, target)


def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """Return `gap ** 2 / (2 * beta)` where the gap is below `beta`, else `gap - beta / 2`, reduced."""
    if beta < 0:
        raise RuntimeError(f"smooth_l1_loss does not support negative values for beta, got {beta}")
    _warn_if_broadcast("smooth_l1_loss", input, target)
    name = reduction_name(reduction, size_average, reduce)
    if beta == 0:
        return _unweighted(ops.absolute_error, ops.absolute_loss, name, input, target)
    return _unweighted(ops.smooth_l1_error, ops.smooth_l1_loss, name, input, target, beta)


def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """Return `gap ** 2 / 2` where the gap is at most `delta`, else `delta * (gap - delta / 2)`, reduced."""
    if delta <= 0:
        raise RuntimeError(
            f"huber_loss does not support non-positive values for delta, got {delta}"
        )
    _warn_if_broadcast("huber_loss", input, target)
    name = reduction_name(reduction, None, None)
    if weight is None:
        return _unweighted(ops.huber_error, ops.huber_loss, name, input, target, delta)
    _check_weight(rabbet.broadcast_tensors(input, target)[0], weight)
    return _weighted_reduced(ops.huber_error, weight, name, input, target, delta)


# ---- probabilities


def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Return `-(target * log(input) + (1 - target) * log(1 - input))`, reduced; logarithms end at -100."""
    name = reduction_name(reduction, size_average, reduce)
    if input.shape != target.shape:
        raise ValueError(
            f"Using a target size ({target.shape}) that is different to the input size "
            f"({input.shape}) is deprecated. Please ensure they have the same size."
        )
    if input.is_cpu and not holds((input >= 0) & (input <= 1)):
        raise RuntimeError("binary_cross_entropy: all elements of input should be between 0 and 1")
    if weight is None:
        return _unweighted(ops.binary_error, ops.binary_loss, name, input, target)
    return _weighted_reduced(ops.binary_error, weight, name, input, target)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Return `binary_cross_entropy(sigmoid(input), target)` without overflow.

    Args:
        input: scores.
        target: probabilities in the same shape.
        weight: factor of each element.
        reduction: 'mean', 'sum' or 'none'.
        pos_weight: factor of the part for target 1.
    """
    name = reduction_name(reduction, size_average, reduce)
    if input.shape != target.shape:
        raise ValueError(
            f"Target size ({target.shape}) must be the same as input size ({input.shape})"
        )
    if pos_weight is None and weight is None:
        return _unweighted(ops.logistic_error, ops.logistic_loss, name, input, target)
    return _weighted_logistic(input, target, weight, pos_weight, name)


@accumulated
def _weighted_logistic(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    pos_weight: Tensor | None,
    reduction: str,
) -> Tensor:
    if pos_weight is None:
        loss = ops.logistic_error(input, target)
    else:
        log_p = rabbet.logsigmoid(input) * ((pos_weight - 1) * target + 1)
        loss = (1 - target) * input - log_p
    return _reduced(loss if weight is None else loss * weight, reduction)


@accumulated
def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """Return `target * (log(target) - input)`, reduced; `input` holds log-probabilities.

    Args:
        input: log-probabilities.
        target: probabilities, or their logarithms with `log_target`.
        reduction: 'batchmean' (the sum divided by the first size), 'sum', 'none' or 'mean'.
        log_target: whether `target` holds logarithms.

    Raises:
        RuntimeError: if `input` or `target` holds integers.
    """
    for what, given in (("input", input), ("target", target)):
        if not (given.is_floating_point() or given.is_complex()):
            raise RuntimeError(
                f"kl_div: Integral inputs not supported: {what} has dtype {given.dtype}"
            )
    batch_mean = reduction == "batchmean"
    name = reduction_name("sum" if batch_mean else reduction, size_average, reduce)
    if name == "mean":
        warnings.warn(
            "kl_div: reduction 'mean' divides by the number of elements; "
            "'batchmean' is the mathematical divergence per item",
            stacklevel=3,
        )
    if log_target:
        loss = rabbet.exp(target) * (target - input)
    else:
        loss = rabbet.xlogy(target, target) - target * input
    total = _reduced(loss, name)
    return total / input.shape[0] if batch_mean and input.ndim else total
