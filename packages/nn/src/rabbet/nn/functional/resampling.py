"""Weights of separable resampling, and its fixed-point form for uint8 images."""

from __future__ import annotations

import math

import rabbet
from rabbet import Tensor
from rabbet._interpolation import KEYS, along, far, near

_KEYS_ANTIALIAS = -0.5  # of the cubic filter that is stretched (as Pillow's)


def source_step(n: int, out: int, scale: float | None, align_corners: bool) -> float:
    """Distance in the input between neighbours of the output."""
    if align_corners:
        return (n - 1) / (out - 1) if out > 1 else 0.0
    return 1.0 / scale if scale is not None and scale > 0 else n / out


def _line(n: int) -> Tensor:
    return rabbet.arange(n, dtype=rabbet.float64, device="cpu")


def _kernel(d: Tensor, cubic: bool, a: float) -> Tensor:
    """The value at the distance `d` >= 0 of Keys' cubic kernel or of the linear one."""
    if not cubic:
        return rabbet.clamp(1 - d, min=0.0)
    return rabbet.where(d < 1, near(d, a), far(d, a)).masked_fill(d >= 2, 0.0)


def antialias_windows(
    n: int, out: int, scale: float | None, align_corners: bool, cubic: bool
) -> tuple[Tensor, Tensor]:
    """The filter of each output, stretched by the step: indices (out, taps) and float64 weights."""
    step = source_step(n, out, scale, align_corners)
    stretch = max(step, 1.0)
    support = (2.0 if cubic else 1.0) * stretch
    taps = math.ceil(support) * 2 + 1
    centers = ((_line(out) + 0.5) * step).reshape([-1, 1])
    low = rabbet.clamp(rabbet.trunc(centers - support + 0.5), min=0.0)
    high = rabbet.clamp(rabbet.trunc(centers + support + 0.5), max=float(n))
    places = low + _line(taps)
    d = rabbet.abs((places - centers + 0.5) * (1.0 / stretch))
    weights = _kernel(d, cubic, _KEYS_ANTIALIAS).masked_fill(places >= high, 0.0)
    total = weights.sum(1, keepdim=True)
    weights = weights / total.masked_fill(total == 0, 1.0)
    return rabbet.clamp(places, max=n - 1.0).to(rabbet.int64), weights


def _interpolation_windows(
    n: int, out: int, scale: float | None, align_corners: bool, cubic: bool
) -> tuple[Tensor, Tensor, float]:
    """The neighbours of each output: indices (out, 2 or 4), float64 weights and their maximum.

    Neighbours beyond an edge add their weights to the element at the edge, one after the other;
    the maximum is that of the partial sums.
    """
    step = source_step(n, out, scale, align_corners)
    places = _line(out).reshape([-1, 1])
    source = places * step if align_corners else (places + 0.5) * step - 0.5
    if not cubic:
        source = rabbet.clamp(source, min=0.0)
    first = rabbet.clamp(rabbet.floor(source), max=n - 1.0)
    part = rabbet.clamp(source - first, 0.0, 1.0)
    taps = 4 if cubic else 2
    order = _line(taps)
    offsets = order - (taps // 2 - 1)
    weights = _kernel(rabbet.abs(offsets - part), cubic, KEYS)
    indices = rabbet.clamp(first + offsets, 0.0, n - 1.0)
    same = indices.unsqueeze(2) == indices.unsqueeze(1)
    before = order.unsqueeze(0) <= order.unsqueeze(1)
    sums = (weights.unsqueeze(1) * (same & before)).sum(2)
    is_last = ~(same & ~before).any(2)
    return indices.to(rabbet.int64), sums * is_last, sums.max().item()


def resize_uint8(
    x: Tensor,
    dim: int,
    out: int,
    scale: float | None,
    align_corners: bool,
    cubic: bool,
    antialias: bool,
) -> Tensor:
    """Resample a uint8 tensor along `dim` in fixed point: weights are 16-bit integers, and sums are
    rounded to nearest and clamped to 0..255. These are the numbers of PyTorch's CPU kernels (and of
    Pillow's `ImagingResample`), which use the most fraction bits (up to 22) with which the largest
    weight is below 2**15.
    """
    n = x.shape[dim]
    if antialias:
        indices, weights = antialias_windows(n, out, scale, align_corners, cubic)
        largest = weights.max().item()
    else:
        indices, weights, largest = _interpolation_windows(n, out, scale, align_corners, cubic)
    bits = 0
    while bits < 22 and int(0.5 + largest * 2 ** (bits + 1)) < 2**15:
        bits += 1
    scaled = weights * float(2**bits)
    whole = rabbet.trunc(rabbet.where(scaled < 0, scaled - 0.5, scaled + 0.5)).to(rabbet.int32)
    indices, whole = indices.to(x.device), whole.to(x.device)
    total = None
    for k in range(indices.shape[1]):
        values = x.index_select(dim, indices[:, k]).to(rabbet.int32)
        term = values.mul_(along(whole[:, k], dim, x.ndim))
        total = term.add_(2**bits >> 1) if total is None else total.add_(term)
    assert total is not None
    return rabbet.clamp(total >> bits, 0, 255).to(rabbet.uint8)
