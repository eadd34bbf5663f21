"""Attention with several heads between projections (Vaswani et al. 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rabbet
from rabbet import Tensor

from .activation import softmax
from .attention import scaled_dot_product_attention
from .convolution import pad
from .dropout import dropout
from .linear import linear


def additive_mask(mask: Tensor | None, name: str, dtype: Any) -> Tensor | None:
    """A mask as numbers to add to scores: minus infinity where a bool mask is True."""
    if mask is None:
        return None
    if mask.dtype == rabbet.bool:
        zeros = rabbet.zeros(mask.shape, dtype=dtype, device=mask.device)
        return zeros.masked_fill(mask, float("-inf"))
    if not mask.is_floating_point():
        raise TypeError(f"{name}: expected a bool or floating mask, got {mask.dtype}")
    return mask


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Return attention of `num_heads` heads (L, N, E) and its weights (N, L, S), or None.

    Args:
        query: (L, N, E), or (L, E) without a batch.
        key, value: (S, N, Ek) and (S, N, Ev), or without N.
        embed_dim_to_check: E, which the query must have.
        num_heads: number of heads, which divides E.
        in_proj_weight: (3 E, E), of query, key and value.
        in_proj_bias: (3 E).
        bias_k, bias_v: (1, 1, E), a key and value added to each sequence.
        add_zero_attn: whether a key and a value of zeros are added to each sequence.
        dropout_p: probability of leaving a weight out in training.
        out_proj_weight, out_proj_bias: (E, E) and (E), of the result.
        training: whether weights are left out.
        key_padding_mask: (N, S) or (S); True, or minus infinity, leaves a key out.
        need_weights: also return the weights, which costs speed.
        attn_mask: (L, S) or (N * num_heads, L, S); True, or minus infinity, leaves a pair out.
        use_separate_proj_weight: take q_proj_weight (E, E), k_proj_weight (E, Ek) and v_proj_weight (E, Ev).
        static_k, static_v: (N * num_heads, S, E / num_heads), in place of the projections of key and value.
        average_attn_weights: whether the weights are averaged over the heads, else (N, num_heads, L, S).
        is_causal: says that `attn_mask` is the causal mask.

    Raises:
        AssertionError: for sizes that do not fit each other.
    """
    weights: Sequence[Tensor | None] = (in_proj_weight,)
    if use_separate_proj_weight:
        weights = (q_proj_weight, k_proj_weight, v_proj_weight)
    return attend(
        query, key, value, embed_dim_to_check, num_heads, weights, in_proj_bias, (bias_k, bias_v), add_zero_attn,
        dropout_p if training else 0.0, out_proj_weight, out_proj_bias, key_padding_mask, need_weights, attn_mask,
        (static_k, static_v), average_attn_weights, is_causal,
    )  # fmt: skip


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    size: int,
    num_heads: int,
    weights: Sequence[Tensor | None],
    in_bias: Tensor | None,
    added: Sequence[Tensor | None],
    add_zero: bool,
    dropout_p: float,
    out_weight: Tensor,
    out_bias: Tensor | None,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    static: Sequence[Tensor | None] = (None, None),
    average: bool = True,
    is_causal: bool = False,
    batch_first: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """`multi_head_attention_forward`; with `batch_first` of (N, L, E), (N, S, Ek) and (N, S, Ev)."""
    _check(query, key, value, size, num_heads)
    if is_causal and attn_mask is None:
        raise RuntimeError(
            "Need attn_mask if specifying the is_causal hint. You may use the "
            "Transformer module method `generate_square_subsequent_mask` to create this mask."
        )
    single = query.ndim == 2
    first = batch_first or single
    if single:
        same = query is key and key is value
        query = query.unsqueeze(0)
        key, value = (query, query) if same else (key.unsqueeze(0), value.unsqueeze(0))
    batch, length = query.shape[0 if first else 1], query.shape[1 if first else 0]
    projected = _projected(query, key, value, weights, in_bias)

    def heads(x: Tensor) -> Tensor:
        parted = x.reshape([*x.shape[:2], num_heads, size // num_heads])
        return parted.transpose(1, 2) if first else parted.permute([1, 2, 0, 3])

    q, k, v = (heads(x) for x in projected)
    k, v = (
        now if given is None else _static(given, name, batch * num_heads, size // num_heads, now)
        for now, given, name in zip((k, v), static, ("static_k", "static_v"), strict=True)
    )
    mask = _mask(batch, num_heads, length, k.shape[2], attn_mask, key_padding_mask, q.dtype)
    extra = (added[0] is not None) + add_zero
    if added[0] is not None:
        k, v = (rabbet.cat([x, _one(x, b)], 2) for x, b in zip((k, v), added, strict=True))
    if add_zero:
        k, v = pad(k, (0, 0, 0, 1)), pad(v, (0, 0, 0, 1))
    if extra and mask is not None:
        mask = pad(mask, (0, extra))

    found = None
    if need_weights:
        scores = (q * (size // num_heads) ** -0.5) @ k.transpose(-2, -1)
        found = softmax(scores if mask is None else scores + mask, -1)
        found = dropout(found, dropout_p) if dropout_p else found
        result = found @ v
    elif is_causal and key_padding_mask is None and not extra:
        result = scaled_dot_product_attention(q, k, v, None, dropout_p, True)
    else:
        result = scaled_dot_product_attention(q, k, v, mask, dropout_p)

    result = result.transpose(1, 2) if first else result.permute([2, 0, 1, 3])
    result = linear(result.reshape([*result.shape[:2], size]), out_weight, out_bias)
    if found is not None and average:
        found = found.mean(1)
    if single:
        return result.squeeze(0), None if found is None else found.squeeze(0)
    return result, found


def _check(query: Tensor, key: Tensor, value: Tensor, size: int, num_heads: int) -> None:
    if query.ndim not in (2, 3):
        raise AssertionError(
            f"query should be unbatched 2D or batched 3D tensor but received {query.ndim}-D query tensor"
        )
    for name, x in (("key", key), ("value", value)):
        if x.ndim != query.ndim:
            raise AssertionError(
                f"For {'batched (3-D)' if query.ndim == 3 else 'unbatched (2-D)'} `query`, expected `key` and `value` "
                f"to be {query.ndim}-D but found a {x.ndim}-D `{name}`"
            )
    if query.shape[-1] != size:
        raise AssertionError(
            f"was expecting embedding dimension of {size}, but got {query.shape[-1]}"
        )
    if size % num_heads:
        raise AssertionError(f"embed_dim {size} not divisible by num_heads {num_heads}")
    if key.shape[:-1] != value.shape[:-1]:
        raise AssertionError(
            f"key's sequence and batch dims {tuple(key.shape[:-1])} do not match value's {tuple(value.shape[:-1])}"
        )


def _projected(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    weights: Sequence[Tensor | None],
    bias: Tensor | None,
) -> list[Tensor]:
    """Projections by one weight (3 E, E), or by three."""
    joint = weights[0] if len(weights) == 1 else None
    names = ("in_proj_weight",) if len(weights) == 1 else ("q_proj_weight", "k_proj_weight", "v_proj_weight")  # fmt: skip
    for name, weight in zip(names, weights, strict=True):
        if weight is None:
            raise AssertionError(f"multi_head_attention_forward: {name} is None")
    for name, x, w in zip(
        ("query", "key", "value"), (query, key, value), weights if joint is None else [joint] * 3, strict=True
    ):  # fmt: skip
        if w is not None and x.shape[-1] != w.shape[-1]:
            raise AssertionError(
                f"expecting {name}'s last size to be {w.shape[-1]}, but got shape {tuple(x.shape)}"
            )
    if joint is not None and query is key and key is value:
        return list(linear(query, joint, bias).chunk(3, -1))
    parts: Any = weights if joint is None else joint.chunk(3)
    biases: Any = (None,) * 3 if bias is None else bias.chunk(3)
    return [linear(x, w, b) for x, w, b in zip((query, key, value), parts, biases, strict=True)]


def _static(given: Tensor, name: str, rows: int, size: int, like: Tensor) -> Tensor:
    """A given key or value of all heads (N * num_heads, S, E / num_heads) as (N, num_heads, S, E / num_heads)."""
    if given.ndim != 3 or given.shape[0] != rows or given.shape[2] != size:
        raise AssertionError(
            f"expecting {name} of shape ({rows}, S, {size}), but got {tuple(given.shape)}"
        )
    return given.reshape([*like.shape[:2], given.shape[1], size])


def _one(x: Tensor, bias: Tensor | None) -> Tensor:
    """A key or value (1, 1, E) for every sequence and head of x."""
    if bias is None:
        raise AssertionError("multi_head_attention_forward: bias_k and bias_v belong together")
    return bias.reshape([1, x.shape[1], 1, x.shape[3]]).expand([x.shape[0], -1, -1, -1])


def _mask(
    batch: int,
    num_heads: int,
    length: int,
    keys: int,
    attn_mask: Tensor | None,
    key_padding_mask: Tensor | None,
    dtype: Any,
) -> Tensor | None:
    """Both masks as numbers to add to scores (N, heads, L, S)."""
    mask = additive_mask(attn_mask, "attn_mask", dtype)
    if mask is not None:
        if mask.ndim == 3:
            expected: tuple[int, ...] = (batch * num_heads, length, keys)
        else:
            expected = (length, keys)
        if tuple(mask.shape) != expected:
            raise RuntimeError(
                f"The shape of the attn_mask is {tuple(mask.shape)}, but should be {expected}."
            )
        if mask.ndim == 3:
            mask = mask.reshape([batch, num_heads, length, keys])
    padding = additive_mask(key_padding_mask, "key_padding_mask", dtype)
    if padding is None:
        return mask
    if tuple(padding.shape) not in ((batch, keys), (keys,) if batch == 1 else (batch, keys)):
        raise RuntimeError(
            f"key_padding_mask: expected shape {(batch, keys)}, got {tuple(padding.shape)}"
        )
    padding = padding.reshape([batch, 1, 1, keys])
    return padding if mask is None else mask + padding
