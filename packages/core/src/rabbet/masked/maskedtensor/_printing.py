"""Masked tensors as text: `--` in the place of elements that the mask leaves out."""

from __future__ import annotations

from typing import Any

from ..._C import Tensor


def masked_tensor_text(data: Tensor, mask: Tensor) -> str:
    """`MaskedTensor(...)` of plain data and mask."""
    if data.ndim == 0:
        text = _number(data.item()) if mask.item() else "--"
        return f"MaskedTensor({text}, {mask.item()})"
    return "MaskedTensor(\n" + _indented(_rows(data.tolist(), mask.tolist(), data.ndim)) + "\n)"


def _number(value: Any) -> str:
    return f"{value:8.4f}" if isinstance(value, float) else str(value)


def _indented(text: str) -> str:
    return "\n".join("  " + line for line in text.split("\n"))


def _rows(data: list[Any], mask: list[Any], ndim: int) -> str:
    if ndim > 1:
        parts = [_indented(_rows(d, m, ndim - 1)) for d, m in zip(data, mask, strict=True)]
        return "[\n" + ",\n".join(parts) + "\n]"
    numbers = [_number(value) for value in data]
    width = max(
        (len(text) if kept else 8 for text, kept in zip(numbers, mask, strict=True)), default=8
    )
    shown = [text if kept else "--".rjust(width) for text, kept in zip(numbers, mask, strict=True)]
    return "[" + ", ".join(shown) + "]"
