"""Losses."""

from __future__ import annotations

import warnings

import rabbet
from rabbet import Tensor

_log_softmax = rabbet.log_softmax
_gather = rabbet.gather
_mean = rabbet.mean
_neg = rabbet.neg
_unsqueeze = rabbet.unsqueeze
_int64 = rabbet.int64


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


def _weighted_reduced(loss: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    return _reduced(loss if weight is None else loss * weight, reduction)


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
    if (
        reduction == "mean"
        and weight is None
        and not label_smoothing
        and ignore_index < 0
        and size_average is None
        and reduce is None
        and target.dtype is _int64
        and input.ndim == 2
        and target.ndim == 1
        and input.shape[0] == target.shape[0]
        and target.is_cpu
    ):
        # The usual case in the fewest operators. A gather on the CPU refuses every index that is not a
        # class, ignore_index among them; the general way below then sorts out which it is.
        scores = _log_softmax(input, 1)
        try:
            picked = _gather(scores, 1, _unsqueeze(target, 1))
        except IndexError:
            return _class_loss("cross_entropy", scores, target, None, ignore_index, "mean", 0.0)
        return _neg(_mean(picked))

    reduction = reduction_name(reduction, size_average, reduce)
    if not 0.0 <= label_smoothing <= 1.0:
        raise ValueError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    if input.ndim == 0:
        raise ValueError(
            "cross_entropy: expected input with a dimension of classes, got a 0-d tensor"
        )
    class_dim = 0 if input.ndim == 1 else 1
    scores = _log_softmax(input, class_dim)
    if target.is_floating_point():
        return _probability_loss(scores, target, weight, reduction, label_smoothing, class_dim)
    return _class_loss(
        "cross_entropy", scores, target, weight, ignore_index, reduction, label_smoothing
    )


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
    reduction = reduction_name(reduction, size_average, reduce)
    if input.ndim == 0:
        raise ValueError("nll_loss: expected input with a dimension of classes, got a 0-d tensor")
    return _class_loss("nll_loss", input, target, weight, ignore_index, reduction, 0.0)


def _class_loss(
    op: str,
    scores: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
    smoothing: float,
) -> Tensor:
    """Loss of log-probabilities `scores` at int64 classes, with all options."""
    target = _checked_target(op, scores, target)
    if scores.ndim == 1:
        scores = _unsqueeze(scores, 0)
        single = True
        target = _unsqueeze(target, 0)
    else:
        single = False
    classes = scores.shape[1]
    _check_weight(op, weight, classes)
    keep = target != ignore_index
    safe = rabbet.where(keep, target, 0)
    if target.is_cpu and not bool(((safe >= 0) & (safe < classes)).all()):
        bad = target[keep & ((target < 0) | (target >= classes))]
        raise IndexError(f"{op}: Target {int(bad[0])} is out of bounds for {classes} classes.")
    loss = -_gather(scores, 1, _unsqueeze(safe, 1)).squeeze(1)
    counts = keep.to(dtype=scores.dtype)
    if weight is not None:
        counts = counts * weight.index_select(0, safe.reshape([-1])).reshape(safe.shape)
    # A masked element is 0 even where the score is infinite.
    loss = rabbet.where(keep, loss * counts, 0.0)
    if smoothing:
        spread = scores
        if weight is not None:
            spread = scores * weight.reshape([-1] + [1] * (scores.ndim - 2))
        spread = rabbet.where(keep, -spread.sum(1), 0.0)
        loss = loss * (1 - smoothing) + spread * (smoothing / classes)
    if reduction == "mean":
        return loss.sum() / counts.sum()
    if reduction == "sum":
        return loss.sum()
    return loss.squeeze(0) if single else loss


def _checked_target(op: str, scores: Tensor, target: Tensor) -> Tensor:
    if target.is_floating_point() or target.is_complex() or target.dtype == rabbet.bool:
        raise RuntimeError(f"{op}: expected a target of integer classes, got {target.dtype}")
    expected = [n for d, n in enumerate(scores.shape) if d != (0 if scores.ndim == 1 else 1)]
    if list(target.shape) == expected:
        return target if target.dtype == _int64 else target.to(dtype=_int64)
    if target.ndim == len(expected) and expected and target.shape[0] != expected[0]:
        raise ValueError(
            f"Expected input batch_size ({expected[0]}) to match target batch_size ({target.shape[0]})."
        )
    raise RuntimeError(
        f"{op}: expected target of shape {tuple(expected)} for input {tuple(scores.shape)}, got {tuple(target.shape)}"
    )


def _check_weight(op: str, weight: Tensor | None, classes: int) -> None:
    if weight is not None and tuple(weight.shape) != (classes,):
        raise RuntimeError(
            f"{op}: weight tensor should be defined either for all {classes} classes or no classes "
            f"but got weight tensor of shape: {list(weight.shape)}"
        )


def _probability_loss(
    scores: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: str,
    smoothing: float,
    class_dim: int,
) -> Tensor:
    """Loss of log-probabilities `scores` at class probabilities."""
    if tuple(target.shape) != tuple(scores.shape):
        raise RuntimeError(
            "cross_entropy: expected class probabilities in the shape of the input "
            f"{tuple(scores.shape)}, got {tuple(target.shape)}"
        )
    classes = scores.shape[class_dim]
    _check_weight("cross_entropy", weight, classes)
    if smoothing:
        target = target * (1 - smoothing) + smoothing / classes
    loss = scores * target
    if weight is not None:
        loss = loss * weight.reshape([-1] + [1] * (scores.ndim - 1 - class_dim))
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
    gap = input - target
    if reduction == "mean" and weight is None and size_average is None and reduce is None:
        return _mean(gap * gap)
    name = reduction_name(reduction, size_average, reduce)
    loss = gap * gap
    if weight is None:
        return _reduced(loss, name)
    return _mean_by_weight(loss, weight, name)


def _mean_by_weight(loss: Tensor, weight: Tensor, reduction: str) -> Tensor:
    """Reduce `loss * weight`; the mean divides by the sum of the weights."""
    if tuple(weight.shape) != tuple(loss.shape):
        raise ValueError(
            f"Inputs and weights must have the same size, got {tuple(loss.shape)} and {tuple(weight.shape)}"
        )
    if reduction == "mean":
        return rabbet.sum(loss * weight) / rabbet.sum(weight)
    return _reduced(loss * weight, reduction)


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
    loss = rabbet.abs(input - target)
    return _reduced(loss, name) if weight is None else _mean_by_weight(loss, weight, name)


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
    gap = rabbet.abs(input - target)
    if beta == 0:
        return _reduced(gap, name)
    return _reduced(rabbet.where(gap < beta, gap * gap * (0.5 / beta), gap - 0.5 * beta), name)


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
    gap = rabbet.abs(input - target)
    loss = rabbet.where(gap <= delta, gap * gap * 0.5, (gap - 0.5 * delta) * delta)
    return _reduced(loss, name) if weight is None else _mean_by_weight(loss, weight, name)


# ---- probabilities


def _floored_log(p: Tensor) -> Tensor:
    """Logarithm, at least -100; at 0 its slope is 1e12, as PyTorch's loss has it, not infinite."""
    at_zero = p == 0
    log = rabbet.clamp(rabbet.log(rabbet.where(at_zero, 1.0, p)), min=-100.0)
    return rabbet.where(at_zero, p * 1e12 - 100.0, log)


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
    if input.is_cpu and not bool(((input >= 0) & (input <= 1)).all()):
        raise RuntimeError("binary_cross_entropy: all elements of input should be between 0 and 1")
    loss = -(target * _floored_log(input) + (1 - target) * _floored_log(1 - input))
    return _weighted_reduced(loss, weight, name)


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
    log_p = rabbet.logsigmoid(input)
    if pos_weight is not None:
        log_p = log_p * ((pos_weight - 1) * target + 1)
    return _weighted_reduced((1 - target) * input - log_p, weight, name)


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
    """
    batch_mean = reduction == "batchmean"
    name = reduction_name("sum" if batch_mean else reduction, size_average, reduce)
    if name == "mean":
        warnings.warn(
            "kl_div: reduction 'mean' divides by the number of elements; "
            "'batchmean' is the mathematical divergence per item",
            stacklevel=2,
        )
    if log_target:
        loss = rabbet.exp(target) * (target - input)
    else:
        positive = target > 0
        log = rabbet.log(rabbet.where(positive, target, 1.0))
        loss = rabbet.where(positive, target * log, 0.0) - target * input
    total = _reduced(loss, name)
    return total / input.shape[0] if batch_mean and input.ndim else total
