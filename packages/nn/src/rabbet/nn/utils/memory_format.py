"""Weights of convolutions in a memory format."""

from __future__ import annotations

from typing import Any, TypeVar

from ..modules.conv import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d
from ..modules.module import Module

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]

T = TypeVar("T", bound=Module)


def _convert(module: T, kinds: tuple[type[Module], ...], memory_format: Any) -> T:
    for layer in module.modules():
        if isinstance(layer, kinds):
            layer.weight.data = layer.weight.detach().clone(memory_format=memory_format)
    return module


def convert_conv2d_weight_memory_format(module: T, memory_format: Any) -> T:
    """Bring the weights of `Conv2d` and `ConvTranspose2d` in `module` to `memory_format`; returns `module`."""
    return _convert(module, (Conv2d, ConvTranspose2d), memory_format)


def convert_conv3d_weight_memory_format(module: T, memory_format: Any) -> T:
    """Bring the weights of `Conv3d` and `ConvTranspose3d` in `module` to `memory_format`; returns `module`."""
    return _convert(module, (Conv3d, ConvTranspose3d), memory_format)
