"""Decompositions of discrete Fourier transforms into transforms of the last dimensions."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from .. import _C
from .._C import Tensor

_op = _C.op


# ---- along any dimensions


def _by_stride(input: Tensor, dims: Sequence[int]) -> list[int]:
    """The dimensions in the order of falling strides, in which PyTorch lays out its results."""
    strides = input.stride()
    return sorted(dims, key=lambda d: -strides[d])


def _signal_last(input: Tensor, dims: list[int]) -> list[int]:
    """An order of the dimensions that ends with those of the signal."""
    return _by_stride(input, [d for d in range(input.ndim) if d not in dims]) + dims


def _transformed(input: Tensor, dims: list[int], transform: Any) -> Tensor:
    """`transform(x)` of the tensor whose last dimensions are `dims`, in the order of the input."""
    order = _signal_last(input, dims)
    if order == sorted(order):
        return transform(input)
    found = transform(input.permute(order))
    return found.permute([order.index(d) for d in range(input.ndim)])


def c2c(input: Tensor, dim: list[int], normalization: int, forward: bool) -> Tensor:
    if not dim:
        return input.clone()
    dims = _by_stride(input, dim)
    return _transformed(input, dims, lambda x: _op("fourier")(x, len(dims), normalization, forward))


def r2c(input: Tensor, dim: list[int], normalization: int, onesided: bool) -> Tensor:
    if not onesided:
        return c2c(input.to(_complex(input.dtype)), dim, normalization, True)
    dims = [*_by_stride(input, dim[:-1]), dim[-1]]
    return _transformed(input, dims, lambda x: _op("half_fourier")(x, len(dims), normalization))


def c2r(input: Tensor, dim: list[int], normalization: int, last_dim_size: int) -> Tensor:
    dims = [*_by_stride(input, dim[:-1]), dim[-1]]
    return _transformed(
        input,
        dims,
        lambda x: _op("fourier_to_real")(x, len(dims), last_dim_size, normalization),
    )


# ---- arguments of the functions


def _complex(dtype: Any) -> Any:
    return _C.complex128 if dtype is _C.float64 else _C.complex64


def _promoted(name: str, input: Tensor, *, to_complex: bool) -> Tensor:
    """Integers as the default dtype; float16 and bfloat16 have no transforms on the CPU."""
    dtype = input.dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        dtype = _C.get_default_dtype()
    if dtype not in (_C.float32, _C.float64, _C.complex64, _C.complex128):
        raise _C.DTypeError(f"{name}: Unsupported dtype {dtype}")
    if to_complex and not dtype.is_complex:
        dtype = _complex(dtype)
    return input if dtype is input.dtype else input.to(dtype)


def _real(name: str, input: Tensor) -> Tensor:
    if input.is_complex():
        raise _C.DTypeError(f"{name} expects a real input tensor, but got {input.dtype}")
    return _promoted(name, input, to_complex=False)


# The normalization of forward and backward transforms, by mode.
_MODES = {None: (0, 2), "backward": (0, 2), "forward": (2, 0), "ortho": (1, 1)}


def _normalization(name: str, norm: str | None, forward: bool) -> int:
    if norm not in _MODES:
        raise _C.ArgumentError(
            f'{name}: Invalid normalization mode: "{norm}"; expected "forward", "backward" or "ortho"'
        )
    return _MODES[norm][not forward]


def _check_points(name: str, n: int) -> None:
    if n < 1:
        raise _C.ArgumentError(f"{name}: Invalid number of data points ({n}) specified")


def _wrapped(name: str, input: Tensor, dim: int) -> int:
    if input.ndim == 0:
        raise _C.OutOfRangeError(
            f"{name}: Dimension specified as {dim} but tensor has no dimensions"
        )
    return dim % input.ndim


def _resized(input: Tensor, dims: Sequence[int], sizes: Sequence[int]) -> Tensor:
    """The input cut or filled with zeros at the end of each of `dims`."""
    widths = [0] * (2 * input.ndim)
    for d, n in zip(dims, sizes, strict=True):
        if n < input.shape[d]:
            input = input.narrow(d, 0, n)
        widths[2 * (input.ndim - 1 - d) + 1] = n - input.shape[d]
    return _op("pad_constant")(input, widths) if any(widths) else input


def _one_dim(
    name: str, input: Tensor, n: int | None, dim: int, norm: str | None, forward: bool
) -> Tensor:
    dim = _wrapped(name, input, dim)
    x = _promoted(name, input, to_complex=True)
    _check_points(name, x.shape[dim] if n is None else n)
    if n is not None:
        x = _resized(x, [dim], [n])
    return c2c(x, [dim], _normalization(name, norm, forward), forward)


def fft(input: Tensor, n: int | None, dim: int, norm: str | None) -> Tensor:
    return _one_dim("fft", input, n, dim, norm, True)


def ifft(input: Tensor, n: int | None, dim: int, norm: str | None) -> Tensor:
    return _one_dim("ifft", input, n, dim, norm, False)


def _half(
    name: str, input: Tensor, n: int | None, dim: int, norm: str | None, forward: bool
) -> Tensor:
    dim = _wrapped(name, input, dim)
    x = _real(name, input)
    _check_points(name, x.shape[dim] if n is None else n)
    if n is not None:
        x = _resized(x, [dim], [n])
    return r2c(x, [dim], _normalization(name, norm, forward), True)


def rfft(input: Tensor, n: int | None, dim: int, norm: str | None) -> Tensor:
    return _half("rfft", input, n, dim, norm, True)


def ihfft(input: Tensor, n: int | None, dim: int, norm: str | None) -> Tensor:
    return _half("ihfft", input, n, dim, norm, False).conj().resolve_conj()


def _whole(
    name: str, input: Tensor, n: int | None, dim: int, norm: str | None, forward: bool
) -> Tensor:
    dim = _wrapped(name, input, dim)
    x = _promoted(name, input, to_complex=True)
    size = 2 * (x.shape[dim] - 1) if n is None else n
    _check_points(name, size)
    if n is not None:
        x = _resized(x, [dim], [n // 2 + 1])
    return c2r(x.conj() if forward else x, [dim], _normalization(name, norm, forward), size)


def irfft(input: Tensor, n: int | None, dim: int, norm: str | None) -> Tensor:
    return _whole("irfft", input, n, dim, norm, False)


def hfft(input: Tensor, n: int | None, dim: int, norm: str | None) -> Tensor:
    return _whole("hfft", input, n, dim, norm, True)


def _shape_and_dims(
    name: str, input: Tensor, s: list[int] | None, dim: list[int] | None
) -> tuple[list[int], list[int]]:
    """The sizes of the signal and its dimensions."""
    rank = input.ndim
    for d in dim or ():
        if not -rank <= d < rank:
            raise _C.OutOfRangeError(
                f"{name}: Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {d})"
            )
    dims = None if dim is None else [d % rank for d in dim]
    if dims is not None and len(set(dims)) < len(dims):
        raise _C.ArgumentError(f"{name}: FFT dims must be unique, got {tuple(dim or ())}")
    if s is not None:
        if dims is not None and len(dims) != len(s):
            raise _C.ArgumentError(
                f"{name}: When given, dim and shape arguments must have the same length, got dim {tuple(dim or ())} and s "
                f"{tuple(s)}"
            )
        if len(s) > rank:
            raise _C.ArgumentError(
                f"{name}: Got shape with {len(s)} values but input tensor only has {rank} dimensions."
            )
        if dims is None:
            dims = list(range(rank - len(s), rank))
        sizes = [input.shape[d] if n == -1 else n for d, n in zip(dims, s, strict=True)]
    else:
        dims = list(range(rank)) if dims is None else dims
        sizes = [input.shape[d] for d in dims]
    for n in sizes:
        _check_points(name, n)
    return sizes, dims


def _many_dims(
    name: str,
    input: Tensor,
    s: list[int] | None,
    dim: list[int] | None,
    norm: str | None,
    forward: bool,
) -> Tensor:
    sizes, dims = _shape_and_dims(name, input, s, dim)
    x = _resized(_promoted(name, input, to_complex=True), dims, sizes)
    return c2c(x, dims, _normalization(name, norm, forward), forward)


def fftn(input: Tensor, s: list[int] | None, dim: list[int] | None, norm: str | None) -> Tensor:
    return _many_dims("fftn", input, s, dim, norm, True)


def ifftn(input: Tensor, s: list[int] | None, dim: list[int] | None, norm: str | None) -> Tensor:
    return _many_dims("ifftn", input, s, dim, norm, False)


def _real_signal(
    name: str, input: Tensor, s: list[int] | None, dim: list[int] | None
) -> tuple[Tensor, list[int]]:
    x = _real(name, input)
    sizes, dims = _shape_and_dims(name, x, s, dim)
    if not dims:
        raise _C.ArgumentError(f"{name} must transform at least one axis")
    return _resized(x, dims, sizes), dims


def rfftn(input: Tensor, s: list[int] | None, dim: list[int] | None, norm: str | None) -> Tensor:
    x, dims = _real_signal("rfftn", input, s, dim)
    return r2c(x, dims, _normalization("rfftn", norm, True), True)


def ihfftn(input: Tensor, s: list[int] | None, dim: list[int] | None, norm: str | None) -> Tensor:
    x, dims = _real_signal("ihfftn", input, s, dim)
    normalization = _normalization("ihfftn", norm, False)
    half = r2c(x, dims[-1:], normalization, True).conj().resolve_conj()
    return c2c(half, dims[:-1], normalization, False) if len(dims) > 1 else half


def _whole_of_many(
    name: str,
    input: Tensor,
    s: list[int] | None,
    dim: list[int] | None,
    norm: str | None,
    forward: bool,
) -> Tensor:
    x = _promoted(name, input, to_complex=True)
    sizes, dims = _shape_and_dims(name, x, s, dim)
    if not dims:
        raise _C.ArgumentError(f"{name} must transform at least one axis")
    last = 2 * (x.shape[dims[-1]] - 1) if s is None or s[-1] == -1 else s[-1]
    _check_points(name, last)
    x = _resized(x, dims, [*sizes[:-1], last // 2 + 1])
    return c2r(x.conj() if forward else x, dims, _normalization(name, norm, forward), last)


def irfftn(input: Tensor, s: list[int] | None, dim: list[int] | None, norm: str | None) -> Tensor:
    return _whole_of_many("irfftn", input, s, dim, norm, False)


def hfftn(input: Tensor, s: list[int] | None, dim: list[int] | None, norm: str | None) -> Tensor:
    return _whole_of_many("hfftn", input, s, dim, norm, True)


# ---- spectrograms


def _check_window(
    name: str, input: Tensor, window: Tensor | None, hop_length: int, win_length: int, n_fft: int
) -> None:
    if hop_length <= 0:
        raise _C.ArgumentError(f"{name}: expected hop_length > 0, but got hop_length={hop_length}")
    if not 0 < win_length <= n_fft:
        raise _C.ArgumentError(
            f"{name}: expected 0 < win_length <= n_fft, but got win_length={win_length} and n_fft={n_fft}"
        )
    if window is None:
        return
    if window.device != input.device:
        raise _C.ArgumentError(
            f"{name} input and window must be on the same device but got input on {input.device} and window on "
            f"{window.device}"
        )
    if window.ndim != 1 or window.shape[0] != win_length:
        raise _C.ArgumentError(
            f"{name}: expected a 1D window tensor of size equal to win_length={win_length}, but got window with size "
            f"{list(window.shape)}"
        )


def _padded_window(
    window: Tensor | None, win_length: int, n_fft: int, dtype: Any, device: Any
) -> Tensor | None:
    """The window in the middle of n_fft numbers, the others 0; None where it is all ones."""
    if win_length == n_fft:
        return window
    if window is None:
        window = _op("ones")([win_length], dtype=dtype, device=device)
    left = (n_fft - win_length) // 2
    return _op("pad_constant")(window, [left, n_fft - win_length - left])


def stft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None,
    win_length: int | None,
    window: Tensor | None,
    center: bool,
    pad_mode: str,
    normalized: bool,
    onesided: bool | None,
    return_complex: bool | None,
    align_to_window: bool | None,
) -> Tensor:
    if center and align_to_window is not None:
        raise _C.ArgumentError("stft align_to_window should only be set when center = false")
    hop = n_fft // 4 if hop_length is None else hop_length
    width = n_fft if win_length is None else win_length
    if not (input.is_floating_point() or input.is_complex()):
        raise _C.DTypeError(
            f"stft: expected a tensor of floating point or complex values, got {input.dtype}"
        )
    of_complex = input.is_complex() or (window is not None and window.is_complex())
    if return_complex is None and not of_complex:
        raise _C.ArgumentError(
            "stft requires the return_complex parameter be given for real inputs, and will further require that "
            "return_complex=True in a future PyTorch release."
        )
    if return_complex is False:
        warnings.warn(
            "stft with return_complex=False is deprecated. In a future pytorch release, stft will return complex tensors "
            "for all inputs, and return_complex=False will raise an error.\n"
            "Note: you can still call torch.view_as_real on the complex output to recover the old return format.",
            UserWarning,
            stacklevel=2,
        )
    if input.ndim not in (1, 2):
        raise _C.ArgumentError(f"stft: expected a 1D or 2D tensor, got shape {tuple(input.shape)}")
    x = input if input.ndim == 2 else input.unsqueeze(0)
    if center:
        from rabbet.nn.functional import pad

        x = pad(x.unsqueeze(0), [n_fft // 2, n_fft // 2], pad_mode).squeeze(0)
    if not 0 < n_fft <= x.shape[1]:
        raise _C.ArgumentError(
            f"stft: expected 0 < n_fft <= {x.shape[1]}, the length of the signal, but got n_fft={n_fft}"
        )
    _check_window("stft", input, window, hop, width, n_fft)
    if not center and align_to_window:
        left = (n_fft - width) // 2
        frames = (x.shape[1] - width) // hop + 1
        x = _op("pad_constant")(x, [left, left + n_fft])
        x = x.narrow(1, 0, n_fft + hop * (frames - 1))
    weights = _padded_window(window, width, n_fft, x.dtype, x.device)
    pieces = x.unfold(1, n_fft, hop)
    if weights is not None:
        pieces = pieces * weights
    onesided = not pieces.is_complex() if onesided is None else onesided
    normalization = 1 if normalized else 0
    if not pieces.is_complex():
        found = r2c(pieces, [2], normalization, onesided)
    elif onesided:
        raise _C.ArgumentError("stft: Cannot have onesided output if window or input is complex")
    else:
        found = c2c(pieces, [2], normalization, True)
    found = found.transpose(1, 2)
    found = found if input.ndim == 2 else found.squeeze(0)
    return _op("view_as_real")(found) if return_complex is False else found


def _overlapped(pieces: Tensor, hop: int, length: int) -> Tensor:
    """The sum of pieces (batch, count, size) that begin `hop` apart: (batch, length)."""
    batch, count, size = pieces.shape
    starts = _op("arange")(count, device=pieces.device) * hop
    places = starts.unsqueeze(1) + _op("arange")(size, device=pieces.device)
    line = pieces.new_zeros([batch, length])
    return line.index_add(1, places.reshape(-1), pieces.reshape([batch, count * size]))


def istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None,
    win_length: int | None,
    window: Tensor | None,
    center: bool,
    normalized: bool,
    onesided: bool | None,
    length: int | None,
    return_complex: bool,
) -> Tensor:
    if input.numel() == 0:
        raise _C.ArgumentError("istft: input tensor cannot be empty.")
    if input.ndim not in (2, 3):
        raise _C.ArgumentError(
            f"istft: expected a tensor with 2 or 3 dimensions, but got shape {tuple(input.shape)}"
        )
    hop = n_fft // 4 if hop_length is None else hop_length
    width = n_fft if win_length is None else win_length
    rows = input.shape[-2]
    onesided = rows != n_fft if onesided is None else onesided
    expected = n_fft // 2 + 1 if onesided else n_fft
    if rows != expected:
        meant = "n_fft / 2 + 1 when onesided=True" if onesided else "n_fft when onesided=False"
        raise _C.ArgumentError(
            f"istft: expected the frequency dimension (2nd to the last) of the input tensor to match {meant}, "
            f"{expected}, but got {rows}"
        )
    _check_window("istft", input, window, hop, width, n_fft)
    if hop > width:
        raise _C.ArgumentError(
            f"istft: expected 0 < hop_length <= win_length, but got hop_length={hop} and win_length={width}"
        )
    real = input.real.dtype
    weights = _padded_window(window, width, n_fft, real, input.device)
    if weights is None:
        weights = _op("ones")([n_fft], dtype=real, device=input.device)
    x = (input if input.ndim == 3 else input.unsqueeze(0)).transpose(1, 2)
    normalization = 1 if normalized else 2
    if return_complex:
        if onesided:
            raise _C.ArgumentError(
                "istft: Cannot have onesided output if window or input is complex"
            )
        pieces = c2c(x, [2], normalization, False)
    else:
        if weights.is_complex():
            raise _C.ArgumentError(
                "istft: Complex windows are incompatible with return_complex=False"
            )
        if not onesided:
            x = x.narrow(2, 0, n_fft // 2 + 1)
        pieces = c2r(x, [2], normalization, n_fft)
    count = pieces.shape[1]
    total = n_fft + hop * (count - 1)
    signal = _overlapped(pieces * weights, hop, total)
    squares = (weights * weights).expand([1, count, n_fft])
    envelope = _overlapped(squares, hop, total)
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else total - start
    signal, envelope = (t[:, start : min(end, total)] for t in (signal, envelope))
    _op("assert_all")(
        envelope.abs() > 1e-11,
        "istft: window overlap add min: the squared windows sum to less than 1e-11 somewhere",
    )
    signal = signal / envelope
    if end > total:
        warnings.warn(
            "The length of signal is shorter than the length parameter. Result is being padded with zeros in the tail. "
            "Please check your center and hop_length settings.",
            UserWarning,
            stacklevel=2,
        )
        signal = _op("pad_constant")(signal, [0, end - total])
    return signal if input.ndim == 3 else signal.squeeze(0)
