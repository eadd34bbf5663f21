"""Block-quantized weights: int8 or int4 codes with a scale for each block of a row, as one tensor."""

import struct
from typing import Any

import rabbet
from rabbet import Tensor
from rabbet.composite import compose
from rabbet.library import require_layer

require_layer("blockq")


def quantize(weight: Tensor, *, bits: int = 8, block: int = 32) -> Tensor:
    """A tensor of the shape and dtype of `weight` that keeps its rows in blocks of `bits`-bit codes.

    Args:
        weight: (..., n), floating; n is a multiple of `block`.
        bits: 8 or 4.
        block: elements that share a scale, even.

    Raises:
        ValueError: naming what does not fit.
    """
    if bits not in (8, 4):
        raise ValueError(f"quantize: bits must be 8 or 4, got {bits}")
    if not (weight.ndim and weight.is_floating_point() and weight.numel()):
        raise ValueError(f"quantize: weight must be floating and not empty, got {weight.dtype}")
    if block < 2 or block % 2 or weight.shape[-1] % block:
        raise ValueError(
            f"quantize: block must be even and divide the last of {tuple(weight.shape)}, got {block}"
        )
    split = weight.detach().unflatten(-1, (-1, block))
    scales = split.abs().amax(-1) / (127 if bits == 8 else 7)
    codes = (split / scales.clamp(min=1e-30).unsqueeze(-1)).round().flatten(-2)
    if bits == 8:
        codes = codes.to(rabbet.int8)
    else:  # two in a byte, the first in the lower half; 8 is zero
        low, high = (codes + 8).to(rabbet.uint8).unflatten(-1, (-1, 2)).unbind(-1)
        codes = low | high << 4
    blob = struct.pack("=II", bits, block)
    return compose("blockq", weight.shape, weight.dtype, (codes, scales), blob)


def quantize_linears(module: Any, *, bits: int = 8, block: int = 32) -> Any:
    """Replace the weight of every `nn.Linear` in `module` by a quantized one that is not trained; returns it."""
    for child in module.modules():
        if type(child).__name__ == "Linear":
            weight = quantize(child.weight.detach(), bits=bits, block=block)
            child.weight = rabbet.nn.Parameter(weight, requires_grad=False)
    return module


def rabbet_conformance_params(level: str) -> dict[str, object]:
    """For the conformance kit (`--layer=blockq`): how it gets a tensor of this layer, where there is one."""

    def make(x: Tensor) -> Tensor | None:
        whole = x.ndim and x.is_floating_point() and x.numel() and x.shape[-1] % 2 == 0
        return quantize(x, bits=8 if x.numel() % 4 else 4, block=2) if whole else None

    return {"make": make, "changes": "rounding"} if level == "layer" else {}
