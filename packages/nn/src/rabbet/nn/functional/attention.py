"""Attention."""

from __future__ import annotations

from rabbet import ops

scaled_dot_product_attention = ops.scaled_dot_product_attention
