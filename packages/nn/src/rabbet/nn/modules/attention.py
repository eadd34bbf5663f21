"""Attention with several heads (Vaswani et al. 2017)."""

from __future__ import annotations

from typing import Any

import rabbet
from rabbet import Tensor

from .. import functional as F
from .. import init
from ..parameter import Parameter
from .linear import NonDynamicallyQuantizableLinear
from .module import Module


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


class MultiheadAttention(Module):
    """Attention of `num_heads` heads between projections of query, key and value.

    Args:
        embed_dim: size of the query and of the result, a multiple of `num_heads`.
        num_heads: number of heads.
        dropout: probability of leaving a weight out in training.
        bias: whether the projections have biases.
        add_bias_kv: add a learned key and value to each sequence.
        add_zero_attn: add a key and a value of zeros to each sequence.
        kdim, vdim: sizes of key and value, `embed_dim` if None.
        batch_first: whether the batch comes before the sequence.
    """

    in_proj_weight: Parameter | None
    q_proj_weight: Parameter | None
    k_proj_weight: Parameter | None
    v_proj_weight: Parameter | None
    in_proj_bias: Parameter | None
    bias_k: Parameter | None
    bias_v: Parameter | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                f"embed_dim and num_heads must be greater than 0, got embed_dim={embed_dim} "
                f"and num_heads={num_heads} instead"
            )
        if embed_dim % num_heads:
            raise ValueError(
                f"embed_dim must be divisible by num_heads, got {embed_dim} and {num_heads}"
            )
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.dropout = dropout
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.batch_first = batch_first

        def parameter(*shape: int) -> Parameter:
            return Parameter(rabbet.empty(list(shape), device=device, dtype=dtype))

        joint = self._qkv_same_embed_dim
        self.register_parameter(
            "in_proj_weight", parameter(3 * embed_dim, embed_dim) if joint else None
        )
        for name, size in (("q", embed_dim), ("k", self.kdim), ("v", self.vdim)):
            self.register_parameter(
                f"{name}_proj_weight", None if joint else parameter(embed_dim, size)
            )
        self.register_parameter("in_proj_bias", parameter(3 * embed_dim) if bias else None)
        self.out_proj = NonDynamicallyQuantizableLinear(
            embed_dim, embed_dim, bias=bias, device=device, dtype=dtype
        )
        for name in ("bias_k", "bias_v"):
            self.register_parameter(name, parameter(1, 1, embed_dim) if add_bias_kv else None)
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            weight = getattr(self, name)
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)  # type: ignore[arg-type]
        for bias in (self.bias_k, self.bias_v):
            if bias is not None:
                init.xavier_normal_(bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the result, in the layout of `query`, and the weights (or None).

        Args:
            query: (L, N, E), (N, L, E) with `batch_first`, or (L, E).
            key, value: (S, N, kdim) and (S, N, vdim), laid out likewise.
            key_padding_mask: (N, S) or (S,); True, or minus infinity, leaves a key out.
            need_weights: also return the weights, which costs speed.
            attn_mask: (L, S) or (N * num_heads, L, S); True, or minus infinity, leaves a pair out.
            average_attn_weights: whether the weights are averaged over the heads.
            is_causal: says that `attn_mask` is the causal mask.
        """
        if is_causal and attn_mask is None:
            raise RuntimeError(
                "Need attn_mask if specifying the is_causal hint. You may use the "
                "Transformer module method `generate_square_subsequent_mask` to create this mask."
            )
        single = query.ndim == 2
        query, key, value = self._batches(query, key, value)
        batch, length, _ = query.shape
        mask = self._mask(batch, length, key.shape[1], attn_mask, key_padding_mask, query.dtype)
        projected = self._projected(query, key, value)
        added = (self.bias_k is not None) + self.add_zero_attn
        if added:
            projected = self._extended(*projected)
            mask = None if mask is None else F.pad(mask, (0, added))
        q, k, v = (self._heads(x) for x in projected)

        p = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            scores = (q * self.head_dim**-0.5) @ k.transpose(-2, -1)
            weights = F.softmax(scores if mask is None else scores + mask, -1)
            weights = F.dropout(weights, p) if p else weights
            result = weights @ v
        elif is_causal and key_padding_mask is None and not added:
            result = F.scaled_dot_product_attention(q, k, v, None, p, True)
        else:
            result = F.scaled_dot_product_attention(q, k, v, mask, p)

        result = result.transpose(1, 2).reshape([batch, length, self.embed_dim])
        result = self.out_proj(result)
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if single:
            return result.squeeze(0), None if weights is None else weights.squeeze(0)
        return result if self.batch_first else result.transpose(0, 1), weights

    def _batches(self, *inputs: Tensor) -> list[Tensor]:
        """Query, key and value as (N, L, E)."""
        ndim = inputs[0].ndim
        sizes = (self.embed_dim, self.kdim, self.vdim)
        for name, x, size in zip(("query", "key", "value"), inputs, sizes, strict=True):
            if x.ndim not in (2, 3) or x.ndim != ndim:
                raise RuntimeError(
                    f"MultiheadAttention: expected {ndim if ndim in (2, 3) else '2 or 3'} dimensions "
                    f"in {name}, got shape {tuple(x.shape)}"
                )
            if x.shape[-1] != size:
                raise RuntimeError(
                    f"MultiheadAttention: expected last size {size} in {name}, got {tuple(x.shape)}"
                )
        if ndim == 2:
            return [x.unsqueeze(0) for x in inputs]
        return list(inputs) if self.batch_first else [x.transpose(0, 1) for x in inputs]

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
        if self.in_proj_weight is not None and query is key and key is value:
            return list(F.linear(query, self.in_proj_weight, self.in_proj_bias).chunk(3, -1))
        biases: Any = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        if self.in_proj_weight is not None:
            weights: Any = self.in_proj_weight.chunk(3)
        else:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        inputs = (query, key, value)
        return [F.linear(x, w, b) for x, w, b in zip(inputs, weights, biases, strict=True)]

    def _extended(self, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
        """The projections, with the keys and values that stand in no input."""
        batch = key.shape[0]
        if self.bias_k is not None and self.bias_v is not None:
            key = rabbet.cat([key, self.bias_k.expand([batch, 1, -1])], 1)
            value = rabbet.cat([value, self.bias_v.expand([batch, 1, -1])], 1)
        if self.add_zero_attn:
            key, value = F.pad(key, (0, 0, 0, 1)), F.pad(value, (0, 0, 0, 1))
        return [query, key, value]

    def _heads(self, x: Tensor) -> Tensor:
        return x.reshape([x.shape[0], x.shape[1], self.num_heads, self.head_dim]).transpose(1, 2)

    def _mask(
        self,
        batch: int,
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
                expected: tuple[int, ...] = (batch * self.num_heads, length, keys)
            else:
                expected = (length, keys)
            if tuple(mask.shape) != expected:
                raise RuntimeError(
                    f"The shape of the attn_mask is {tuple(mask.shape)}, but should be {expected}."
                )
            if mask.ndim == 3:
                mask = mask.reshape([batch, self.num_heads, length, keys])
        padding = additive_mask(key_padding_mask, "key_padding_mask", dtype)
        if padding is None:
            return mask
        if tuple(padding.shape) not in ((batch, keys), (keys,) if batch == 1 else (batch, keys)):
            raise RuntimeError(
                f"key_padding_mask: expected shape {(batch, keys)}, got {tuple(padding.shape)}"
            )
        padding = padding.reshape([batch, 1, 1, keys])
        return padding if mask is None else mask + padding
