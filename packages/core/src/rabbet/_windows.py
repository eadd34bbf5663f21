"""Windows for the analysis of signals: weights of the samples in a frame.

Sources: F. J. Harris, "On the use of windows for harmonic analysis with the discrete Fourier transform", 1978;
J. F. Kaiser, R. W. Schafer, "On the use of the I0-sinh window for spectrum analysis", 1980.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import rabbet

from ._C import Tensor

__all__ = ["bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window"]


def checked_options(what: str, length: int, dtype: Any, layout: Any) -> Any:
    """The dtype of a window of `length` samples.

    Raises:
        ValueError, RuntimeError: for lengths below 0, other layouts, and dtypes that are not floating.
    """
    if length < 0:
        raise RuntimeError(f"{what}: expected a length of 0 or more, got {length}")
    if layout is not None and layout is not rabbet.strided:
        raise RuntimeError(f"{what} is implemented for strided tensors only, got: {layout}")
    dtype = rabbet.get_default_dtype() if dtype is None else dtype
    if not dtype.is_floating_point:
        raise RuntimeError(f"{what} expects floating point dtypes, got: {dtype}")
    return dtype


def _samples(length: int, dtype: Any, device: Any) -> Tensor:
    return rabbet.arange(length, dtype=dtype, device=device)


def cosines(length: int, span: int, terms: Iterable[float], dtype: Any, device: Any) -> Tensor:
    """The sum of a_k cos(2 pi k n / span) with the signs +, -, +, ... for n = 0 ... length - 1."""
    angles = _samples(length, dtype, device) * (2 * rabbet.pi / max(span, 1))
    total = rabbet.zeros(length, dtype=dtype, device=device)
    for k, a in enumerate(terms):
        total = total + (-1) ** k * a * rabbet.cos(k * angles)
    return total


def _window(
    what: str,
    length: int,
    periodic: bool,
    dtype: Any,
    layout: Any,
    device: Any,
    pin_memory: bool | None,
    requires_grad: bool,
    weights: Any,
) -> Tensor:
    dtype = checked_options(what, length, dtype, layout)
    if length < 2:
        found = rabbet.ones(length, dtype=dtype, device=device)
    else:
        found = weights(length, length if periodic else length - 1, dtype, device)
    if pin_memory:
        found = found.pin_memory()
    return found.requires_grad_(requires_grad)


def hann_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """0.5 - 0.5 cos(2 pi n / N) for n below `window_length`, which is N, or N + 1 if not `periodic`.

    Raises:
        RuntimeError: for a negative length or a dtype that is not floating.

    Example:
        >>> rabbet.hann_window(4)
        tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """
    return _window(
        "hann_window", window_length, periodic, dtype, layout, device, pin_memory, requires_grad,
        lambda n, span, t, d: cosines(n, span, (0.5, 0.5), t, d),
    )  # fmt: skip


def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """alpha - beta cos(2 pi n / N) for n below `window_length`, which is N, or N + 1 if not `periodic`.

    Raises:
        RuntimeError: for a negative length or a dtype that is not floating.
    """
    return _window(
        "hamming_window", window_length, periodic, dtype, layout, device, pin_memory, requires_grad,
        lambda n, span, t, d: cosines(n, span, (alpha, beta), t, d),
    )  # fmt: skip


def blackman_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """0.42 - 0.5 cos(2 pi n / N) + 0.08 cos(4 pi n / N); N is the length, or one less if not `periodic`.

    Raises:
        RuntimeError: for a negative length or a dtype that is not floating.
    """
    return _window(
        "blackman_window", window_length, periodic, dtype, layout, device, pin_memory, requires_grad,
        lambda n, span, t, d: cosines(n, span, (0.42, 0.5, 0.08), t, d),
    )  # fmt: skip


def _triangle(length: int, span: int, dtype: Any, device: Any) -> Tensor:
    return 1 - (_samples(length, dtype, device) * (2.0 / span) - 1).abs()


def bartlett_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """1 - |2 n / N - 1|, a triangle; N is the length, or one less if not `periodic`.

    Raises:
        RuntimeError: for a negative length or a dtype that is not floating.
    """
    return _window(
        "bartlett_window", window_length, periodic, dtype, layout, device, pin_memory, requires_grad, _triangle,
    )  # fmt: skip


def kaiser_weights(length: int, span: int, beta: float, dtype: Any, device: Any) -> Tensor:
    """I0(beta sqrt(1 - (2 n / span - 1)^2)) / I0(beta)."""
    at = _samples(length, dtype, device) * (2.0 / max(span, 1)) - 1
    top = rabbet.i0(rabbet.tensor(beta, dtype=dtype, device=at.device))
    return rabbet.i0(beta * (1 - at * at).clamp(min=0).sqrt()) / top


def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """I0(beta sqrt(1 - (2 n / N - 1)^2)) / I0(beta); N is the length, or one less if not `periodic`.

    Raises:
        RuntimeError: for a negative length or a dtype that is not floating.
    """
    return _window(
        "kaiser_window", window_length, periodic, dtype, layout, device, pin_memory, requires_grad,
        lambda n, span, t, d: kaiser_weights(n, span, beta, t, d),
    )  # fmt: skip
