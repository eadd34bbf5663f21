"""Masks of causal attention between sequences of different lengths."""

from __future__ import annotations

import enum
import warnings
from typing import Any

import rabbet
from rabbet import Tensor
from rabbet.nn import functional as F
from rabbet.overrides import DisableTorchFunctionSubclass

__all__ = ["CausalBias", "CausalVariant", "causal_lower_right", "causal_upper_left"]


class CausalVariant(enum.IntEnum):
    """Which corner of the mask its diagonal ends in."""

    UPPER_LEFT = 1
    LOWER_RIGHT = 2


class CausalBias(Tensor):
    """A mask (seq_len_q, seq_len_kv) of bools that `scaled_dot_product_attention` takes as `attn_mask`.

    Args:
        variant: the corner of the diagonal.
        seq_len_q, seq_len_kv: lengths of the queries and of the keys.
    """

    variant: CausalVariant
    seq_len_q: int
    seq_len_kv: int

    def __new__(cls, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> CausalBias:
        if not isinstance(variant, CausalVariant):
            raise AssertionError(f"variant must be a CausalVariant, got {type(variant).__name__}")
        offset = seq_len_kv - seq_len_q if variant is CausalVariant.LOWER_RIGHT else 0
        mask = rabbet.ones(seq_len_q, seq_len_kv, dtype=rabbet.bool).tril(offset)
        return Tensor._make_subclass(cls, mask)

    def __init__(self, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> None:
        self.variant = variant
        self.seq_len_q = seq_len_q
        self.seq_len_kv = seq_len_kv
        if variant is CausalVariant.LOWER_RIGHT and seq_len_q > seq_len_kv:
            warnings.warn(
                "Lower right causal bias will produce NaNs in the output when seq_len_q > seq_len_kv!",
                stacklevel=2,
            )

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Return plain tensors from attention, and tensors of this class from other functions."""
        if func is F.scaled_dot_product_attention:
            with DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        return super().__torch_function__(func, types, args, kwargs)

    def _materialize(self, device: Any = None) -> Tensor:
        """The mask as a plain tensor on a device."""
        mask = Tensor._make_subclass(Tensor, self)
        return mask if device is None else mask.to(device)


def _causal(name: str, variant: CausalVariant, size: tuple[int, ...]) -> CausalBias:
    if len(size) != 2:
        raise AssertionError(f"{name} only supports 2D tensors, got size {size}")
    return CausalBias(variant, *size)


def causal_upper_left(*size: int) -> CausalBias:
    """A mask (queries, keys) in which query i sees keys 0 to i."""
    return _causal("causal_upper_left", CausalVariant.UPPER_LEFT, size)


def causal_lower_right(*size: int) -> CausalBias:
    """A mask (queries, keys) in which the last query sees all keys, each earlier one a key less."""
    return _causal("causal_lower_right", CausalVariant.LOWER_RIGHT, size)
