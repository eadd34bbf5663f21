"""Cross entropy of linearly transformed input, of which the scores need not exist all at once."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, Literal

import rabbet
from rabbet import Tensor

from .linear import linear
from .loss import cross_entropy

_DTYPES = ("float16", "bfloat16", "float32", "float64")


@dataclass(slots=True, frozen=True)
class LinearCrossEntropyOptions:
    """How `linear_cross_entropy` cuts the batch into chunks, of which one at a time has its scores in memory.

    The scores of a chunk are computed anew in backward, so that a graph may be kept, and derivatives of any order and
    mode exist, whatever `allow_retain_graph` says.

    Args:
        allow_retain_graph: taken for PyTorch's sake.
        batch_chunk_size: rows of a chunk; None: what `chunking_method` gives, or all.
        chunking_method: 'aspect_ratio' (the scores of a chunk are as large as the input), 'aspect_ratio:N' (the
            N-th part of it), 'auto' ('aspect_ratio:2' unless `batch_chunk_size` is given) or None.
        acc_policy: 'accurate' computes the scores in `acc_dtype`, 'balanced', 'compact' and 'auto' in the dtype
            of the input; the losses of chunks are added in `acc_dtype` by all.
        acc_dtype: None: float32 where the input is float16 or bfloat16, else the dtype of the input.
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: Literal["accurate", "balanced", "compact", "auto"] = "auto"
    acc_dtype: Any = None

    def __post_init__(self) -> None:
        if self.acc_policy not in ("accurate", "balanced", "compact", "auto"):
            raise ValueError(f"invalid acc_policy: {self.acc_policy!r}")
        method, size = self.chunking_method, self.batch_chunk_size
        if method not in (None, "auto") and not _factor(method):
            raise ValueError(f"invalid chunking_method: {method!r}")
        if size is not None and not (isinstance(size, int) and size > 0):
            raise ValueError(f"batch_chunk_size must be positive int or None, got {size!r}")
        if self.acc_dtype is not None and str(self.acc_dtype).partition(".")[2] not in _DTYPES:
            raise ValueError(
                f"acc_dtype must be None or one of {', '.join(_DTYPES)}, got {self.acc_dtype!r}"
            )

    def rows(self, batch: int, features: int, classes: int) -> int:
        """The rows of a chunk.

        Raises:
            ValueError: where `batch_chunk_size` and a `chunking_method` that is named give different numbers.
        """
        method = self.chunking_method
        if method is None or (method == "auto" and self.batch_chunk_size is not None):
            return min(self.batch_chunk_size or batch, max(batch, 1))
        least = math.ceil(batch / max(1, math.ceil(classes / max(features, 1))))
        whole = 1 << max(least - 1, 0).bit_length()
        found = max(1, min(whole // (2 if method == "auto" else _factor(method)), max(batch, 1)))
        if self.batch_chunk_size not in (None, found):
            raise ValueError(
                f"batch_chunk_size={self.batch_chunk_size} and chunking_method={method!r}, which gives {found}, disagree"
            )
        return found


def _factor(method: Any) -> int:
    """N of 'aspect_ratio:N', or 0."""
    name, colon, digits = str(method).partition(":")
    digits = digits if colon else "1"
    return int(digits) if name == "aspect_ratio" and digits.isdigit() else 0


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: LinearCrossEntropyOptions | None = None,
) -> Tensor:
    """Return `cross_entropy(linear(input, linear_weight, linear_bias), target, ...)`.

    Args:
        input: (in_features) or (N, in_features).
        linear_weight: (C, in_features), or (C, *, in_features), which gives scores (N, C, *).
        target: int64 classes (), (N) or (N, *), or probabilities in the shape of the scores.
        linear_bias: (C) or (C, *).
        weight: one factor per class.
        reduction: 'mean', 'sum' or 'none'.
        ignore_index: a class that does not count; None: -100.
        label_smoothing: the part of the target that is spread over all classes.
        options: cuts the batch into chunks; where their scores do not stand alone it is ignored with a warning.
    """
    if input.ndim not in (1, 2):
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {input.ndim}")
    if linear_weight.ndim < 2:
        raise RuntimeError(
            f"expected linear_weight with dimensionality at least 2, got {linear_weight.ndim}"
        )
    classes, *more, features = linear_weight.shape
    if input.shape[-1] != features:
        raise RuntimeError(
            "expected equal input and linear_weight last dimensions (in_features), "
            f"got {input.shape[-1]} and {features}, respectively"
        )
    if linear_bias is not None and list(linear_bias.shape) != [classes, *more]:
        raise RuntimeError(
            f"expected linear_bias shape {(classes, *more)}, got {tuple(linear_bias.shape)}"
        )
    if more and input.ndim == 1:
        raise RuntimeError(
            f"K-dimensional loss defined by linear_weight shape {tuple(linear_weight.shape)} requires batched input, "
            f"(N, {features}), got unbatched input with shape {tuple(input.shape)}"
        )
    scores_shape = [*input.shape[:-1], classes, *more]
    if list(target.shape) == scores_shape and ignore_index is not None:
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")
    ignored = -100 if ignore_index is None else ignore_index
    if options is not None:
        alone = reduction in ("mean", "sum", "none") and label_smoothing == 0.0
        if alone and target.dtype is rabbet.int64 and not more:
            chunks = _chunked(
                input.reshape([-1, features]), linear_weight, target.reshape([-1]),
                linear_bias, weight, reduction, ignored, options,
            )  # fmt: skip
            return chunks.reshape(target.shape) if reduction == "none" else chunks
        warnings.warn(
            "linear_cross_entropy: `options` ignored; chunks need reduction in {'mean','sum','none'}, label_smoothing "
            f"== 0, target.dtype == int64 and a weight of 2 dimensions. Got reduction={reduction!r}, "
            f"label_smoothing={label_smoothing}, target.dtype={target.dtype}, linear_weight of shape "
            f"{tuple(linear_weight.shape)}.",
            stacklevel=2,
        )
    flat_bias = linear_bias.reshape([-1]) if linear_bias is not None else None
    scores = linear(input, linear_weight.reshape([-1, features]), flat_bias).reshape(scores_shape)
    return cross_entropy(
        scores,
        target,
        weight,
        ignore_index=ignored,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )


def _chunked(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    linear_bias: Tensor | None,
    weight: Tensor | None,
    reduction: str,
    ignored: int,
    options: LinearCrossEntropyOptions,
) -> Tensor:
    """Losses of chunks of the batch, whose scores are computed anew in backward."""
    from rabbet.utils.checkpoint import checkpoint

    low = input.dtype in (rabbet.float16, rabbet.bfloat16)
    wide = options.acc_dtype or (rabbet.float32 if low else input.dtype)
    scores_dtype = wide if options.acc_policy == "accurate" else input.dtype
    per_chunk = "none" if reduction == "none" else "sum"

    def losses(x: Tensor, of: Tensor) -> Tensor:
        bias = linear_bias.to(scores_dtype) if linear_bias is not None else None
        scores = linear(x.to(scores_dtype), linear_weight.to(scores_dtype), bias)
        factors = weight.to(scores_dtype) if weight is not None else None
        return cross_entropy(scores, of, factors, ignore_index=ignored, reduction=per_chunk).to(
            wide
        )

    rows = options.rows(input.shape[0], *reversed(linear_weight.shape))
    parts = [
        checkpoint(losses, x, of, use_reentrant=False, preserve_rng_state=False)
        for x, of in zip(input.split(rows), target.split(rows), strict=True)
    ]
    if reduction == "none":
        return rabbet.cat(parts).to(input.dtype)
    total = rabbet.stack(parts).sum()
    if reduction == "mean":
        counted = target != ignored
        if weight is None:
            total = total / counted.sum()
        else:
            of_target = weight.gather(0, rabbet.where(counted, target, 0))
            total = total / rabbet.where(counted, of_target, 0.0).sum().to(wide)
    return total.to(input.dtype)
