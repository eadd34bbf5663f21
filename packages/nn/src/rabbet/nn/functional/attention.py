"""Attention."""

from __future__ import annotations

from rabbet import Op, ops

scaled_dot_product_attention: Op = ops.scaled_dot_product_attention
