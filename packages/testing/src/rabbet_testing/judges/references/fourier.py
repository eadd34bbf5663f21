"""Definitions of discrete Fourier transforms."""

from __future__ import annotations

from typing import Any

import numpy as np

from .definitions import Array, defines

_NORMS: Any = ("backward", "ortho", "forward")  # of forward transforms, by normalization
_BACKWARD_NORMS: Any = ("forward", "ortho", "backward")


def _last(rank: int) -> tuple[int, ...]:
    return tuple(range(-rank, 0))


def _whole(input: Array, dims: Any, normalization: int, forward: bool) -> Any:
    if not len(dims) or not input.size:
        return input
    transform = np.fft.fftn if forward else np.fft.ifftn
    norm = (_NORMS if forward else _BACKWARD_NORMS)[normalization]
    return transform(input, axes=tuple(dims), norm=norm)


@defines("fourier")
def _fourier(input: Array, rank: int, normalization: int, forward: bool) -> Any:
    return _whole(input, _last(rank), normalization, forward)


@defines("half_fourier")
def _half_fourier(input: Array, rank: int, normalization: int) -> Any:
    return np.fft.rfftn(input, axes=_last(rank), norm=_NORMS[normalization])


@defines("fourier_to_real")
def _fourier_to_real(input: Array, rank: int, last: int, normalization: int) -> Any:
    return _c2r(input, _last(rank), normalization, last)


@defines("_fft_c2c")
def _c2c(input: Array, dim: Any, normalization: int, forward: bool) -> Any:
    return _whole(input, dim, normalization, forward)


@defines("_fft_r2c")
def _r2c(input: Array, dim: Any, normalization: int, onesided: bool) -> Any:
    if not onesided:
        return _whole(input, dim, normalization, True)
    return np.fft.rfftn(input, axes=tuple(dim), norm=_NORMS[normalization])


@defines("_fft_c2r")
def _c2r(input: Array, dim: Any, normalization: int, last_dim_size: int) -> Any:
    sizes = [input.shape[d] for d in dim]
    sizes[-1] = last_dim_size
    return np.fft.irfftn(input, s=sizes, axes=tuple(dim), norm=_BACKWARD_NORMS[normalization])


def _dims(input: Array, s: Any, dim: Any) -> tuple[int, ...]:
    return tuple(range(-len(s), 0) if dim is None and s is not None else dim or range(input.ndim))


@defines("fft_hfftn", "fft_hfft2")
def _hfftn(input: Array, s: Any, dim: Any, norm: Any) -> Any:
    norm = {"ortho": "ortho", "forward": "backward"}.get(norm, "forward")
    return np.fft.irfftn(np.conj(input), s=s, axes=_dims(input, s, dim), norm=norm)


@defines("fft_ihfftn", "fft_ihfft2")
def _ihfftn(input: Array, s: Any, dim: Any, norm: Any) -> Any:
    norm = {"ortho": "ortho", "forward": "backward"}.get(norm, "forward")
    return np.conj(np.fft.rfftn(input, s=s, axes=_dims(input, s, dim), norm=norm))
