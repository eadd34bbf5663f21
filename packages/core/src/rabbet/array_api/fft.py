"""The standard's extension of discrete Fourier transforms.

`norm` says which way is divided: 'backward': the inverse by n; 'forward': the forward one by n; 'ortho': both by sqrt(n).
Results of float32 are complex64, of float64 complex128.
"""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import rabbet

from .._C import Tensor
from ._arguments import Device, DType, need_tensors, several_axes

__all__ = [
    "fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft", "irfft", "irfftn", "rfft",
    "rfftfreq", "rfftn",
]  # fmt: skip

Norm: TypeAlias = Literal["backward", "ortho", "forward"]
Axes: TypeAlias = Sequence[int] | None


def _check(function: str, x: Any, norm: Any) -> None:
    need_tensors(function, x=x)
    if norm not in ("backward", "ortho", "forward"):
        raise ValueError(f"{function}: norm must be 'backward', 'ortho' or 'forward', got {norm!r}")


def fft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """The transform along `axis`.

    Args:
        n: the length of the transform; None: that of the axis. What is longer is cut, what is shorter gets zeros.

    Raises:
        ValueError: for another `norm`.
        IndexError: if there is no such axis.
    """
    _check("fft.fft", x, norm)
    return rabbet.fft.fft(x, n, axis, norm)


def ifft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """The inverse of `fft`.

    Args:
        n: the length of the transform; None: that of the axis. What is longer is cut, what is shorter gets zeros.

    Raises:
        ValueError: for another `norm`.
        IndexError: if there is no such axis.
    """
    _check("fft.ifft", x, norm)
    return rabbet.fft.ifft(x, n, axis, norm)


def fftn(x: Tensor, /, *, s: Axes = None, axes: Axes = None, norm: Norm = "backward") -> Tensor:
    """The transform along several axes, all by default.

    Args:
        s: the lengths along `axes`; None: the sizes of `x`.
        axes: None: all axes; with `s` as many of the last ones.

    Raises:
        ValueError: for another `norm`, or different numbers of lengths and axes.
        IndexError: if there is no such axis.
    """
    _check("fft.fftn", x, norm)
    return rabbet.fft.fftn(x, s, axes, norm)


def ifftn(x: Tensor, /, *, s: Axes = None, axes: Axes = None, norm: Norm = "backward") -> Tensor:
    """The inverse of `fftn`.

    Args:
        s: the lengths along `axes`; None: the sizes of `x`.
        axes: None: all axes; with `s` as many of the last ones.

    Raises:
        ValueError: for another `norm`, or different numbers of lengths and axes.
        IndexError: if there is no such axis.
    """
    _check("fft.ifftn", x, norm)
    return rabbet.fft.ifftn(x, s, axes, norm)


def rfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """The transform of real numbers along `axis`: the n // 2 + 1 frequencies that are not negative.

    Args:
        n: the length of the transform; None: that of the axis. What is longer is cut, what is shorter gets zeros.

    Raises:
        ValueError: for another `norm`.
        IndexError: if there is no such axis.
    """
    _check("fft.rfft", x, norm)
    return rabbet.fft.rfft(x, n, axis, norm)


def irfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """The inverse of `rfft`, of real results; `n` is twice the number of frequencies less 2 unless it is given.

    Args:
        n: the length of the transform; None: that of the axis. What is longer is cut, what is shorter gets zeros.

    Raises:
        ValueError: for another `norm`.
        IndexError: if there is no such axis.
    """
    _check("fft.irfft", x, norm)
    return rabbet.fft.irfft(x, n, axis, norm)


def rfftn(x: Tensor, /, *, s: Axes = None, axes: Axes = None, norm: Norm = "backward") -> Tensor:
    """The transform of real numbers along several axes; the last one has n // 2 + 1 frequencies.

    Args:
        s: the lengths along `axes`; None: the sizes of `x`.
        axes: None: all axes; with `s` as many of the last ones.

    Raises:
        ValueError: for another `norm`, or different numbers of lengths and axes.
        IndexError: if there is no such axis.
    """
    _check("fft.rfftn", x, norm)
    return rabbet.fft.rfftn(x, s, axes, norm)


def irfftn(x: Tensor, /, *, s: Axes = None, axes: Axes = None, norm: Norm = "backward") -> Tensor:
    """The inverse of `rfftn`, of real results.

    Args:
        s: the lengths along `axes`; None: the sizes of `x`.
        axes: None: all axes; with `s` as many of the last ones.

    Raises:
        ValueError: for another `norm`, or different numbers of lengths and axes.
        IndexError: if there is no such axis.
    """
    _check("fft.irfftn", x, norm)
    return rabbet.fft.irfftn(x, s, axes, norm)


def hfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """The transform of a signal of which the first half is given, the other is its conjugate; real results.

    Args:
        n: the length of the transform; None: that of the axis. What is longer is cut, what is shorter gets zeros.

    Raises:
        ValueError: for another `norm`.
        IndexError: if there is no such axis.
    """
    _check("fft.hfft", x, norm)
    return rabbet.fft.hfft(x, n, axis, norm)


def ihfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """The inverse of `hfft`.

    Args:
        n: the length of the transform; None: that of the axis. What is longer is cut, what is shorter gets zeros.

    Raises:
        ValueError: for another `norm`.
        IndexError: if there is no such axis.
    """
    _check("fft.ihfft", x, norm)
    return rabbet.fft.ihfft(x, n, axis, norm)


def fftfreq(
    n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: Device = None
) -> Tensor:
    """The frequencies (n) of a transform of `n` numbers that lie `d` apart: 0, rising, then negative.

    Raises:
        ValueError: if `dtype` is not a real floating dtype.
    """
    _need_real("fft.fftfreq", dtype)
    return rabbet.fft.fftfreq(n, d, dtype=dtype, device=device)


def rfftfreq(
    n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: Device = None
) -> Tensor:
    """The frequencies (n // 2 + 1) of a transform of `n` real numbers that lie `d` apart.

    Raises:
        ValueError: if `dtype` is not a real floating dtype.
    """
    _need_real("fft.rfftfreq", dtype)
    return rabbet.fft.rfftfreq(n, d, dtype=dtype, device=device)


def _need_real(function: str, dtype: Any) -> None:
    if dtype is not None and not dtype.is_floating_point:
        raise ValueError(f"{function}: dtype must be a real floating dtype, got {dtype.name}")


def fftshift(x: Tensor, /, *, axes: int | Axes = None) -> Tensor:
    """The frequencies along `axes`, all by default, with 0 moved to the middle.

    Raises:
        IndexError: if there is no such axis.
    """
    need_tensors("fft.fftshift", x=x)
    return rabbet.fft.fftshift(
        x, axes if axes is None else several_axes("fft.fftshift", axes, x.ndim, "axes")
    )


def ifftshift(x: Tensor, /, *, axes: int | Axes = None) -> Tensor:
    """The inverse of `fftshift`.

    Raises:
        IndexError: if there is no such axis.
    """
    need_tensors("fft.ifftshift", x=x)
    return rabbet.fft.ifftshift(
        x, axes if axes is None else several_axes("fft.ifftshift", axes, x.ndim, "axes")
    )
