"""Windows of M samples: symmetric ones for filters, and for `sym=False` those of periodic signals."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import rabbet

from .. import _windows
from .._C import Tensor

__all__ = [
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "hamming", "hann",
    "kaiser", "nuttall",
]  # fmt: skip


def _window(
    what: str,
    M: int,
    sym: bool,
    weights: Callable[[int, int, Any], Tensor],
    dtype: Any,
    layout: Any,
    device: Any,
    requires_grad: bool,
) -> Tensor:
    """The window of `weights(length, span, dtype)`: span is M for periodic windows, M - 1 for symmetric ones."""
    if M < 0:
        raise ValueError(f"{what} requires non-negative window length, got M={M}")
    if layout is not None and layout is not rabbet.strided:
        raise ValueError(f"{what} is implemented for strided tensors only, got: {layout}")
    dtype = rabbet.get_default_dtype() if dtype is None else dtype
    if dtype not in (rabbet.float32, rabbet.float64):
        raise ValueError(f"{what} expects float32 or float64 dtypes, got: {dtype}")
    if M == 0:
        found = rabbet.empty(0, dtype=dtype, device=device)
    elif M == 1:
        found = rabbet.ones(1, dtype=dtype, device=device)
    else:
        found = weights(M, M - 1 if sym else M, dtype)
    return found.requires_grad_(requires_grad)


def general_cosine(
    M: int,
    *,
    a: Iterable[float],
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """The sum of (-1)^k a_k cos(2 pi k n / N) over the coefficients `a`; N is M - 1, or M if not `sym`.

    Raises:
        TypeError: if `a` is no sequence.
        ValueError: if it is empty; for negative M, and dtypes other than float32 and float64.
    """
    if not isinstance(a, Iterable):
        raise TypeError("Coefficients must be a list/tuple")
    terms = list(a)
    if not terms:
        raise ValueError("Coefficients cannot be empty")
    return _window(
        "general_cosine", M, sym, lambda n, span, t: _windows.cosines(n, span, terms, t, device),
        dtype, layout, device, requires_grad,
    )  # fmt: skip


def general_hamming(
    M: int,
    *,
    alpha: float = 0.54,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """alpha - (1 - alpha) cos(2 pi n / N); N is M - 1, or M if not `sym`."""
    return general_cosine(
        M, a=(alpha, 1 - alpha), sym=sym, dtype=dtype, layout=layout, device=device,
        requires_grad=requires_grad,
    )  # fmt: skip


def hamming(
    M: int,
    *,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """0.54 - 0.46 cos(2 pi n / N); N is M - 1, or M if not `sym`."""
    return general_hamming(
        M, sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad
    )


def hann(
    M: int,
    *,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """0.5 - 0.5 cos(2 pi n / N); N is M - 1, or M if not `sym`."""
    return general_hamming(
        M,
        alpha=0.5,
        sym=sym,
        dtype=dtype,
        layout=layout,
        device=device,
        requires_grad=requires_grad,
    )


def blackman(
    M: int,
    *,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """0.42 - 0.5 cos(2 pi n / N) + 0.08 cos(4 pi n / N); N is M - 1, or M if not `sym`."""
    return general_cosine(
        M, a=(0.42, 0.5, 0.08), sym=sym, dtype=dtype, layout=layout, device=device,
        requires_grad=requires_grad,
    )  # fmt: skip


def nuttall(
    M: int,
    *,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """The four terms 0.3635819, 0.4891775, 0.1365995, 0.0106411 of a cosine series; see general_cosine()."""
    return general_cosine(
        M, a=(0.3635819, 0.4891775, 0.1365995, 0.0106411), sym=sym, dtype=dtype, layout=layout,
        device=device, requires_grad=requires_grad,
    )  # fmt: skip


def bartlett(
    M: int,
    *,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """1 - |2 n / N - 1|, a triangle; N is M - 1, or M if not `sym`."""
    return _window(
        "bartlett", M, sym, lambda n, span, t: _windows._triangle(n, span, t, device),
        dtype, layout, device, requires_grad,
    )  # fmt: skip


def kaiser(
    M: int,
    *,
    beta: float = 12.0,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """I0(beta sqrt(1 - (2 n / N - 1)^2)) / I0(beta); N is M - 1, or M if not `sym`.

    Raises:
        ValueError: for a negative `beta`.
    """
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    return _window(
        "kaiser", M, sym, lambda n, span, t: _windows.kaiser_weights(n, span, beta, t, device),
        dtype, layout, device, requires_grad,
    )  # fmt: skip


def cosine(
    M: int,
    *,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """sin(pi (n + 0.5) / N); N is M, or M + 1 if not `sym`."""

    def weights(n: int, span: int, t: Any) -> Tensor:
        at = rabbet.arange(n, dtype=t, device=device) + 0.5
        return rabbet.sin(at * (rabbet.pi / (span + 1)))

    return _window("cosine", M, sym, weights, dtype, layout, device, requires_grad)


def exponential(
    M: int,
    *,
    center: float | None = None,
    tau: float = 1.0,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """exp(-|n - center| / tau); the center is N / 2 unless given, N being M - 1, or M if not `sym`.

    Raises:
        ValueError: for a `tau` that is not positive, and for a `center` of a symmetric window.
    """
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")

    def weights(n: int, span: int, t: Any) -> Tensor:
        middle = span / 2 if center is None else center
        return rabbet.exp(-(rabbet.arange(n, dtype=t, device=device) - middle).abs() / tau)

    return _window("exponential", M, sym, weights, dtype, layout, device, requires_grad)


def gaussian(
    M: int,
    *,
    std: float = 1.0,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """exp(-((n - N / 2) / std)^2 / 2); N is M - 1, or M if not `sym`.

    Raises:
        ValueError: for a `std` that is not positive.
    """
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")

    def weights(n: int, span: int, t: Any) -> Tensor:
        at = (rabbet.arange(n, dtype=t, device=device) - span / 2) / (std * 2**0.5)
        return rabbet.exp(-at * at)

    return _window("gaussian", M, sym, weights, dtype, layout, device, requires_grad)
