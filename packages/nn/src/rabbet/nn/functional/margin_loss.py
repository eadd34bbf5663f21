"""Losses of margins, rankings, counts and sequences."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import rabbet
from rabbet import Tensor

from .._accumulate import accumulated
from ._dtypes import INTEGERS, refuse, require_floating
from .activation import logsigmoid
from .distance import pairwise_distance
from .loss import _reduced, holds, reduction_name


def _positive(x: Tensor) -> Tensor:
    return rabbet.clamp(x, min=0)


def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Return `input` where the target is 1 and `max(0, margin - input)` where it is -1."""
    reduction = reduction_name(reduction, size_average, reduce)
    refuse("hinge_embedding_loss", input, rabbet.bool)
    if input.dtype in INTEGERS:
        margin = int(margin)
    return _hinge_embedding_loss(input, target != 1, target != -1, margin, reduction)


@accumulated
def _hinge_embedding_loss(
    input: Tensor, far: Tensor, near: Tensor, margin: float, reduction: str
) -> Tensor:
    zeros = rabbet.zeros_like(input)
    loss = rabbet.where(far, _positive(margin - input), zeros)
    return _reduced(loss + rabbet.where(near, input, zeros), reduction)


@accumulated
def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Return `1 - cos` where the target is 1 and `max(0, cos - margin)` where it is -1."""
    reduction = reduction_name(reduction, size_average, reduce)
    if target.ndim not in (0, 1):
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    if target.ndim == 1 and (input1.ndim != 2 or input2.ndim != 2):
        raise RuntimeError(
            "1D target tensor expects 2D input tensors, but found inputs with sizes "
            f"{list(input1.shape)} and {list(input2.shape)}."
        )
    if target.ndim == 0 and (input1.ndim != 1 or input2.ndim != 1):
        raise RuntimeError(
            "0D target tensor expects 1D input tensors, but found inputs with sizes "
            f"{list(input1.shape)} and {list(input2.shape)}."
        )
    dim = target.ndim
    eps = 1e-12
    product = (input1 * input2).sum(dim)
    lengths = ((input1 * input1).sum(dim) + eps) * ((input2 * input2).sum(dim) + eps)
    cos = product / rabbet.sqrt(lengths)
    zeros = rabbet.zeros_like(cos)
    loss = rabbet.where(target == 1, 1 - cos, zeros)
    return _reduced(loss + rabbet.where(target == -1, _positive(cos - margin), zeros), reduction)


@accumulated
def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Return `max(0, -target * (input1 - input2) + margin)`, reduced."""
    reduction = reduction_name(reduction, size_average, reduce)
    if not input1.ndim == input2.ndim == target.ndim:
        raise RuntimeError(
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: "
            f"input1: {input1.shape}, input2: {input2.shape}, target: {target.shape} "
        )
    return _reduced(_positive(-target * (input1 - input2) + margin), reduction)


@accumulated
def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Return `log(1 + exp(-target * input))`, reduced."""
    reduction = reduction_name(reduction, size_average, reduce)
    return _reduced(-logsigmoid(target * input), reduction)


@accumulated
def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Return the binary cross-entropy of scores (N, C), the mean over the classes."""
    reduction = reduction_name(reduction, size_average, reduce)
    loss = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    if weight is not None:
        loss = loss * weight
    return _reduced(loss.sum(input.ndim - 1) / input.shape[-1], reduction)


def _check_scores(input: Tensor) -> None:
    if input.ndim > 2 or (input.ndim > 0 and input.shape[-1] == 0):
        raise RuntimeError(
            "Expected non-empty vector or matrix with optional 0-dim batch size, "
            f"but got: {list(input.shape)}"
        )


@accumulated
def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Return `sum_i max(0, margin - input[y] + input[i]) ** p / C` over the classes i other than y."""
    reduction = reduction_name(reduction, size_average, reduce)
    require_floating("multi_margin_loss", input)
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    input = input.reshape([1]) if input.ndim == 0 else input
    _check_scores(input)
    scores = input if input.ndim == 2 else input.unsqueeze(0)
    classes = target.reshape([-1])
    if target.ndim > 1 or classes.shape[0] != scores.shape[0]:
        raise RuntimeError(
            f"target tensor should be 1-D with size equal to the batch. Expected target size {[scores.shape[0]]}, "
            f"but got {list(target.shape)}"
        )
    count = scores.shape[1]
    if weight is not None and weight.ndim != 1:
        raise ValueError(
            f"multi_margin_loss: weight must be one-dimensional, got shape {tuple(weight.shape)}"
        )
    if weight is not None and tuple(weight.shape) != (count,):
        raise RuntimeError(
            f"multi_margin_loss: inconsistent weight size, expected weight of shape {(count,)}, got {tuple(weight.shape)}"
        )
    own = scores.gather(1, classes.unsqueeze(1))
    loss = _positive(margin - own + scores) ** p
    if weight is not None:
        loss = loss * weight.index_select(0, classes).unsqueeze(1)
    others = rabbet.arange(count, device=input.device) != classes.unsqueeze(1)
    loss = rabbet.where(others, loss, rabbet.zeros_like(loss)).sum(1) / count
    return _reduced(loss if input.ndim == 2 or target.ndim else loss.squeeze(0), reduction)


@accumulated
def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Return `sum_ij max(0, 1 - input[j] + input[i]) / C`: labels j, other classes i.

    A row of `target` lists its labels up to the first -1.
    """
    reduction = reduction_name(reduction, size_average, reduce)
    require_floating("multilabel_margin_loss", input)
    _check_scores(input)
    # One class and its label may be scalars.
    flat = input.ndim < 2 and target.ndim < 2
    same = input.numel() == target.numel() if flat else input.shape == target.shape
    if input.ndim > 2 or not same:
        raise RuntimeError(
            f"inconsistent target size: {list(target.shape)} for input of size: {list(input.shape)}"
        )
    scores = input.reshape([1, -1]) if flat else input
    labels = (target.reshape([1, -1]) if flat else target).to(rabbet.int64)
    batch, count = scores.shape
    listed = rabbet.cumsum((labels < 0).to(rabbet.int64), 1) == 0
    places = rabbet.where(labels == -1, rabbet.zeros_like(labels), labels)
    is_label = rabbet.zeros([batch, count], dtype=rabbet.int64, device=input.device)
    try:
        is_label = is_label.scatter_add(1, places, listed.to(rabbet.int64)) > 0
    except IndexError as error:
        raise RuntimeError(
            f"multilabel_margin_loss: expected labels from -1 to {count - 1}: {error}"
        ) from error
    own = scores.gather(1, places)
    gaps = _positive(1 - own.unsqueeze(2) + scores.unsqueeze(1))
    counted = listed.unsqueeze(2) & ~is_label.unsqueeze(1)
    loss = rabbet.where(counted, gaps, rabbet.zeros_like(gaps)).sum([1, 2]) / count
    return _reduced(loss.squeeze(0) if flat else loss, reduction)


@accumulated
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Return `max(0, d(anchor, positive) - d(anchor, negative) + margin)`, reduced.

    With `swap` the smaller of d(anchor, negative) and d(positive, negative) counts.
    """
    reduction = reduction_name(reduction, size_average, reduce)
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    return _triplet(
        anchor,
        positive,
        negative,
        lambda a, b: pairwise_distance(a, b, p, eps),
        margin,
        swap,
        reduction,
        "triplet_margin_loss",
    )


@accumulated
def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """As `triplet_margin_loss`, with a distance function of one's own."""
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    return _triplet(
        anchor,
        positive,
        negative,
        distance_function or pairwise_distance,
        margin,
        swap,
        reduction_name(reduction, None, None),
        "triplet_margin_with_distance_loss",
    )


def _triplet(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    distance: Callable[[Tensor, Tensor], Tensor],
    margin: float,
    swap: bool,
    reduction: str,
    name: str,
) -> Tensor:
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise RuntimeError(
            f"{name}: The anchor, positive, and negative tensors are expected to have the same "
            f"number of dimensions, but got: anchor {anchor.ndim}D, positive {positive.ndim}D, "
            f"and negative {negative.ndim}D inputs"
        )
    far = distance(anchor, negative)
    if swap:
        far = rabbet.minimum(far, distance(positive, negative))
    return _reduced(_positive(margin + distance(anchor, positive) - far), reduction)


@accumulated
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Return the negative log likelihood of counts `target` under Poisson distributions.

    Args:
        input: logarithms of the means, or with `log_input=False` the means.
        target: counts.
        log_input: what `input` holds.
        full: add Stirling's approximation of `log(target!)` where the target is above 1.
        eps: added to a mean before its logarithm.
    """
    reduction = reduction_name(reduction, size_average, reduce)
    for factor in (input, target):
        refuse("poisson_nll_loss", factor, rabbet.bool)
    if log_input:
        loss = rabbet.exp(input) - target * input
    else:
        loss = input - target * rabbet.log(input + eps)
    if full:
        large = target > 1
        safe = rabbet.where(large, target, rabbet.ones_like(target))
        stirling = safe * rabbet.log(safe) - safe + 0.5 * rabbet.log(2 * math.pi * safe)
        loss = loss + rabbet.where(large, stirling, rabbet.zeros_like(stirling))
    return _reduced(loss, reduction)


@accumulated
def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """Return `(log(var) + (input - target) ** 2 / var) / 2`, reduced; `var` counts at least `eps`.

    With `full` plus `log(2 pi) / 2`. `var` has the shape of `input`, or its last size is 1 or missing.
    """
    if isinstance(var, (int, float)):
        if var < 0:
            raise ValueError("var has negative entry/entries")
        var = rabbet.ones_like(input) * var
    require_floating("gaussian_nll_loss", var)
    if not holds((var < 0).logical_not()):
        raise ValueError("var has negative entry/entries")
    if tuple(var.shape) != tuple(input.shape):
        if tuple(input.shape[:-1]) == tuple(var.shape):
            var = var.unsqueeze(-1)
        elif not (
            input.ndim == var.ndim
            and all(b in (a, 1) for a, b in zip(input.shape, var.shape, strict=True))
        ):
            raise ValueError("var is of incorrect size")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(reduction + " is not valid")
    # The gradient passes where the variance was raised to eps, as PyTorch's does.
    var = var + (rabbet.clamp(var, min=eps) - var).detach()
    loss = 0.5 * (rabbet.log(var) + (input - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return _reduced(loss, reduction)


@accumulated
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int],
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Return the connectionist temporal classification loss (Graves et al. 2006).

    Args:
        log_probs: log-probabilities (T, N, C) or (T, C).
        targets: classes (N, S), or all of them one after another.
        input_lengths: steps of each sequence.
        target_lengths: classes of each target.
        blank: the class that stands for none.
        reduction: 'mean' (of the losses over their target lengths), 'sum' or 'none'.
        zero_infinity: let a target that no path gives count 0.
    """
    reduction = reduction_name(reduction, None, None)
    require_floating("ctc_loss", log_probs)
    single = log_probs.ndim == 2
    if log_probs.ndim not in (2, 3):
        raise RuntimeError(
            f"ctc_loss: expected log_probs of 2 or 3 dimensions, got {tuple(log_probs.shape)}"
        )
    probs = log_probs.unsqueeze(1) if single else log_probs
    steps, batch, classes = probs.shape
    if not 0 <= blank < classes:
        raise RuntimeError(f"blank must be in label range, got {blank} of {classes} classes")
    lengths = _lengths(input_lengths, "input_lengths", batch)
    sizes = _lengths(target_lengths, "target_lengths", batch)
    if max(lengths, default=0) > steps or min(lengths, default=0) < 0:
        raise RuntimeError(
            f"Expected input_lengths to have value at most {steps}, but got {lengths}"
        )
    labels = _label_rows(targets, sizes, batch)
    longest = max(sizes, default=0)
    device = probs.device
    padded = [row + [blank] * (longest - len(row)) for row in labels]
    states = [[blank] + [c for label in row for c in (label, blank)] for row in padded]
    skips = [
        [s > 1 and row[s] not in (blank, row[s - 2]) for s in range(len(row))] for row in states
    ]
    index = rabbet.tensor(states, dtype=rabbet.int64, device=device).reshape([batch, -1])
    may_skip = rabbet.tensor(skips, dtype=rabbet.bool, device=device).reshape([batch, -1])
    # A number that stands for log(0): minus infinity has no usable derivative.
    never = -1e30
    count = index.shape[1]
    size = rabbet.tensor(sizes, dtype=rabbet.int64, device=device)
    length = rabbet.tensor(lengths, dtype=rabbet.int64, device=device)

    def shifted(a: Tensor, by: int) -> Tensor:
        edge = rabbet.full([batch, min(by, count)], never, dtype=a.dtype, device=device)
        return rabbet.cat([edge, a.narrow(1, 0, max(count - by, 0))], 1)

    place = rabbet.arange(count, device=device)
    start = rabbet.where(place < 1, 0.0, never).to(probs.dtype).expand([batch, count])
    alpha = start
    for t in range(steps):
        skipped = rabbet.where(may_skip, shifted(alpha, 2), rabbet.full_like(alpha, never))
        reached = rabbet.logsumexp(rabbet.stack([alpha, shifted(alpha, 1), skipped]), 0)
        if t == 0:
            reached = rabbet.where(place < 2, 0.0, never).to(probs.dtype).expand([batch, count])
        emitted = probs.select(0, t).gather(1, index)
        following = rabbet.clamp(reached + emitted, min=never)
        alpha = rabbet.where((t < length).unsqueeze(1), following, alpha)
    ends = rabbet.stack([2 * size, rabbet.clamp(2 * size - 1, min=0)], 1)
    final = alpha.gather(1, ends)
    no_label = rabbet.stack([size < 0, size == 0], 1)
    loss = -rabbet.logsumexp(final.masked_fill(no_label, never), 1)
    possible = loss < -never / 2
    # PyTorch's gradient is that of log_probs which a log_softmax gives: the probabilities less the posteriors.
    seen = rabbet.arange(steps, device=device).unsqueeze(1) < length
    mass = rabbet.where(seen & possible, probs.exp().sum(-1), 0.0).sum(0)
    loss = loss + (mass - mass.detach())
    missed = 0.0 if zero_infinity else math.inf
    loss = rabbet.where(possible, loss, rabbet.full_like(loss, missed))
    if single:
        loss = loss.squeeze(0)
    if reduction == "mean":
        return (loss / rabbet.clamp(size, min=1).to(loss.dtype).reshape(loss.shape)).mean()
    return _reduced(loss, reduction)


def _lengths(given: Any, name: str, batch: int) -> list[int]:
    if isinstance(given, Tensor):
        if given.is_floating_point() or given.is_complex():
            raise RuntimeError(f"{name} must be integral")
        values = given.reshape([-1]).tolist()
    else:
        values = [int(n) for n in given]
    if len(values) != batch:
        raise RuntimeError(f"{name} must be of size batch_size, got {len(values)} of {batch}")
    return values


def _label_rows(targets: Tensor, sizes: list[int], batch: int) -> list[list[int]]:
    """The labels of each sequence."""
    if targets.is_floating_point() or targets.is_complex():
        raise RuntimeError(f"ctc_loss: expected targets of integers, got {targets.dtype}")
    if targets.ndim == 2:
        if targets.shape[0] != batch or max(sizes, default=0) > targets.shape[1]:
            raise RuntimeError(
                f"ctc_loss: expected targets for lengths {sizes}, got {tuple(targets.shape)}"
            )
        rows = targets.tolist()
        return [row[:n] for row, n in zip(rows, sizes, strict=True)]
    flat = targets.reshape([-1]).tolist()
    if sum(sizes) > len(flat) or targets.ndim > 2:
        raise RuntimeError(
            f"ctc_loss: expected {sum(sizes)} labels for lengths {sizes}, got {tuple(targets.shape)}"
        )
    rows, start = [], 0
    for n in sizes:
        rows.append(flat[start : start + n])
        start += n
    return rows
