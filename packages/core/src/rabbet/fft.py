"""Discrete Fourier transforms, their frequencies and the order of those."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import rabbet

from . import _destinations, _op_modules
from ._C import Tensor


def _frequencies(indices: Tensor, n: int, d: float, out: Tensor | None) -> Tensor:
    found = indices * (1.0 / (n * d))
    return _destinations.write("fftfreq", found, out, cast=True)


def _indices(start: int, end: int, dtype: Any, device: Any) -> Tensor:
    found: Tensor = rabbet.arange(
        start, end, dtype=rabbet.get_default_dtype() if dtype is None else dtype, device=device
    )
    return found


def fftfreq(
    n: int,
    d: float = 1.0,
    *,
    out: Tensor | None = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """The frequencies of a transform of `n` numbers that lie `d` apart, in its order: 0, rising, then negative.

    Example:
        >>> rabbet.fft.fftfreq(4)
        tensor([ 0.0000,  0.2500, -0.5000, -0.2500])
    """
    half = (n + 1) // 2
    whole = rabbet.cat([_indices(0, half, dtype, device), _indices(half - n, 0, dtype, device)])
    return _frequencies(whole, n, d, out).requires_grad_(requires_grad)


def rfftfreq(
    n: int,
    d: float = 1.0,
    *,
    out: Tensor | None = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """The frequencies of a transform of `n` real numbers that lie `d` apart: 0 to half the rate."""
    whole = _indices(0, n // 2 + 1, dtype, device)
    return _frequencies(whole, n, d, out).requires_grad_(requires_grad)


def _dims(input: Tensor, dim: int | Sequence[int] | None) -> list[int]:
    if dim is None:
        return list(range(input.ndim))
    return [dim] if isinstance(dim, int) else list(dim)


def fftshift(input: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """The frequencies of the dims `dim`, all by default, with 0 in the middle."""
    dims = _dims(input, dim)
    found: Tensor = rabbet.roll(input, [input.shape[d] // 2 for d in dims], dims)
    return found


def ifftshift(input: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """The inverse of fftshift()."""
    dims = _dims(input, dim)
    found: Tensor = rabbet.roll(input, [(input.shape[d] + 1) // 2 for d in dims], dims)
    return found


__all__ = ["fftfreq", "fftshift", "ifftshift", "rfftfreq"]

if TYPE_CHECKING:
    from ._ops_of_fft import *  # noqa: F403
else:
    _op_modules.add_to(globals())
