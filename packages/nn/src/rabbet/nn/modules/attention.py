"""Attention with several heads (Vaswani et al. 2017)."""

from __future__ import annotations

from typing import Any

import rabbet
from rabbet import Tensor

from .. import init
from ..functional.multi_head import attend
from ..parameter import Parameter
from .linear import NonDynamicallyQuantizableLinear
from .module import Module


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
        weights: Any = (self.in_proj_weight,)
        if self.in_proj_weight is None:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        return attend(
            query, key, value, self.embed_dim, self.num_heads, weights, self.in_proj_bias, (self.bias_k, self.bias_v),
            self.add_zero_attn, self.dropout if self.training else 0.0, self.out_proj.weight, self.out_proj.bias,
            key_padding_mask, need_weights, attn_mask, average=average_attn_weights, is_causal=is_causal,
            batch_first=self.batch_first,
        )  # fmt: skip
