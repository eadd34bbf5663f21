"""Definitions of normalisation, losses and attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from .along import softmax
from .definitions import Array, NoReference, defines
from .random import kept_weights


def _normal(x: Array, dims: Any, eps: float) -> Any:
    return (x - x.mean(dims, keepdims=True)) / np.sqrt(x.var(dims, keepdims=True) + eps)


def _affine(y: Array, weight: Any, bias: Any) -> Any:
    return y * (1 if weight is None else weight) + (0 if bias is None else bias)


def _per_channel(value: Any, ndim: int) -> Any:
    return None if value is None else value.reshape(-1, *[1] * (ndim - 2))


@defines("layer_norm")
def _layer_norm(input: Array, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    return _affine(_normal(input, tuple(range(-len(normalized_shape), 0)), eps), weight, bias)


@defines("rms_norm")
def _rms_norm(input: Array, normalized_shape: Any, weight: Any, eps: float) -> Any:
    dims = tuple(range(-len(normalized_shape), 0))
    return _affine(input / np.sqrt(np.mean(input**2, dims, keepdims=True) + eps), weight, None)


@defines("group_norm")
def _group_norm(input: Array, num_groups: int, weight: Any, bias: Any, eps: float) -> Any:
    y = _normal(input.reshape(len(input), num_groups, -1), 2, eps).reshape(input.shape)
    return _affine(y, _per_channel(weight, input.ndim), _per_channel(bias, input.ndim))


@defines("batch_norm_train")
def _batch_norm_train(input: Array, weight: Any, bias: Any, eps: float) -> Any:
    dims = (0, *range(2, input.ndim))
    y = _affine(
        _normal(input, dims, eps), _per_channel(weight, input.ndim), _per_channel(bias, input.ndim)
    )
    return y, input.mean(dims), input.var(dims)


@defines("batch_norm_eval")
def _batch_norm_eval(
    input: Array, running_mean: Array, running_var: Array, weight: Any, bias: Any, eps: float
) -> Any:
    mean, var = _per_channel(running_mean, input.ndim), _per_channel(running_var, input.ndim)
    y = (input - mean) / np.sqrt(var + eps)
    return _affine(y, _per_channel(weight, input.ndim), _per_channel(bias, input.ndim))


def _classes(
    logp: Array, target: Array, weight: Any, reduction: str, ignore: int, smoothing: float
) -> Any:
    """The loss of log-probabilities (item, class, place...), and the total weight."""
    x = logp[None] if logp.ndim == 1 else logp
    t = target[None] if logp.ndim == 1 else target
    w = np.ones(x.shape[1]) if weight is None else weight
    keep = t != ignore
    safe = np.where(keep, t, 0)
    counts = np.where(keep, w[safe], 0)
    hit = np.take_along_axis(x, safe[:, None], 1)[:, 0]
    spread = np.where(keep, (x * w.reshape(1, -1, *[1] * (x.ndim - 2))).sum(1), 0)
    loss = -hit * counts * (1 - smoothing) - spread * smoothing / x.shape[1]
    each = loss[0] if logp.ndim == 1 else loss
    reduced = {"none": each, "sum": loss.sum(), "mean": loss.sum() / counts.sum()}[reduction]
    return reduced, counts.sum()


@defines("nll_loss")
def _nll_loss(input: Array, target: Array, weight: Any, reduction: str, ignore_index: int) -> Any:
    return _classes(input, target, weight, reduction, ignore_index, 0.0)


@defines("nll_loss_steps")
def _nll_loss_steps(
    input: Array, target: Array, weight: Any, reduction: str, ignore_index: int
) -> Any:
    return _classes(input, target, weight, reduction, ignore_index, 0.0)[0]


@defines("cross_entropy_loss")
def _cross_entropy(input: Array, target: Array, weight: Any, reduction: str, ignore_index: int,
                   label_smoothing: float) -> Any:  # fmt: skip
    axis = 0 if input.ndim == 1 else 1
    lse = np.log(np.exp(input).sum(axis))
    logp = input - np.expand_dims(lse, axis)
    loss, total = _classes(logp, target, weight, reduction, ignore_index, label_smoothing)
    return loss, lse, total


@defines("cross_entropy_steps")
def _cross_entropy_steps(input: Array, target: Array, weight: Any, reduction: str, ignore_index: int,
                         label_smoothing: float) -> Any:  # fmt: skip
    return _cross_entropy(input, target, weight, reduction, ignore_index, label_smoothing)[0]


@defines("dropout")
def _dropout(input: Array, p: float, train: bool) -> Any:
    if train and 0 < p < 1:
        raise NoReference("its examples draw no random numbers")
    return input * 0.0 if train and p == 1 else input


@defines("attention")
def _attention(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Any,
    is_causal: bool,
    scale: Any,
    enable_gqa: bool,
    dropout_p: float = 0.0,
    seed: Any = None,
) -> Any:
    if enable_gqa:
        times = query.shape[-3] // key.shape[-3]
        key, value = np.repeat(key, times, -3), np.repeat(value, times, -3)
    scores = (
        query @ np.swapaxes(key, -1, -2) * (query.shape[-1] ** -0.5 if scale is None else scale)
    )
    if is_causal:
        scores = np.where(np.tri(*scores.shape[-2:]) > 0, scores, -np.inf)
    if attn_mask is not None:
        scores = (
            np.where(attn_mask, scores, -np.inf)
            if attn_mask.dtype == np.bool_
            else scores + attn_mask
        )
    weights = softmax(scores, -1)
    if dropout_p:
        leading = np.broadcast_shapes(weights.shape[:-2], value.shape[:-2])
        weights = np.broadcast_to(weights, leading + weights.shape[-2:])
        weights = _attention_dropout(weights, seed, dropout_p)
    out = weights @ value
    lse = np.log(np.exp(scores).sum(-1))
    return out, np.broadcast_to(lse, out.shape[:-1])


@defines("attention_dropout")
def _attention_dropout(weights: Array, seed: Array, p: float) -> Any:
    factor = 1 / (1 - p) if p < 1 else 0.0
    return np.where(kept_weights(weights.shape, np.asarray(seed), p), weights * factor, 0.0)


@defines("scaled_dot_product_attention")
def _sdpa(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Any,
    is_causal: bool,
    scale: Any,
    enable_gqa: bool,
) -> Any:
    return _attention(query, key, value, attn_mask, is_causal, scale, enable_gqa)[0]
