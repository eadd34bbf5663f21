"""Functions and methods that PyTorch keeps for old programs: some warn, some say what took their place."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import rabbet

from ._C import Tensor

__all__ = ["frobenius_norm", "nuclear_norm", "range"]


def range(
    start: float,
    end: float | None = None,
    step: float = 1,
    *,
    out: Tensor | None = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Numbers from `start` to `end` inclusive, `step` apart; use `arange`, which excludes the end.

    Args:
        dtype: None: the default floating dtype, also for integers.

    Returns:
        A tensor of floor((end - start) / step) + 1 numbers.

    Raises:
        TypeError: if `end` is missing.
        RuntimeError: if `step` is 0, leads away from `end`, or a bound is not finite.

    Example:
        >>> rabbet.range(1, 2, 0.5)
        tensor([1.0000, 1.5000, 2.0000])
    """
    if end is None:
        raise TypeError('range() missing 1 required positional arguments: "end"')
    warnings.warn(
        "range is deprecated: it includes its end, unlike Python's range; use arange instead",
        UserWarning,
        stacklevel=2,
    )
    first, last, distance = float(start), float(end), float(step)
    if distance == 0:
        raise RuntimeError("range: step must be nonzero")
    if not (math.isfinite(first) and math.isfinite(last)):
        raise RuntimeError(f"range: unsupported range: {start} -> {end}")
    if (last - first) * distance < 0:
        raise RuntimeError(
            f"range: upper bound and lower bound inconsistent with step sign: {start}, {end}, {step}"
        )
    if dtype is None:
        dtype = rabbet.get_default_dtype() if out is None else out.dtype
    is_whole = all(isinstance(x, int) for x in (start, end, step))
    count = math.floor((end - start) // step if is_whole else (last - first) / distance) + 1
    wide = rabbet.int64 if is_whole else rabbet.float64
    made = (rabbet.arange(count, dtype=wide, device=device) * step + start).to(dtype)
    if out is None:
        return made.requires_grad_(requires_grad)
    if out.dtype is not dtype:
        raise RuntimeError(f"range: dtype {dtype} does not match dtype {out.dtype} of 'out'")
    return out.resize_(made.shape).copy_(made)  # without a warning, as all factories


def frobenius_norm(input: Tensor, dim: int | Sequence[int], keepdim: bool = False) -> Tensor:
    """The square root of the sum of squares over `dim`; `linalg.vector_norm` is the current name."""
    return rabbet.linalg.vector_norm(input, 2, dim, keepdim)


def nuclear_norm(
    input: Tensor, dim: Sequence[int] | bool | None = None, keepdim: bool = False
) -> Tensor:
    """The sum of singular values of matrices; `linalg.matrix_norm(..., "nuc")` is the current name.

    Args:
        input: of shape (m, n), or any shape if `dim` is given.
        dim: the two dimensions of the matrices, or `keepdim` if it is a bool.
    """
    if isinstance(dim, bool):
        return nuclear_norm(input, None, dim)
    if dim is None and input.ndim != 2:
        raise RuntimeError(
            f"nuclear_norm: expected a matrix where no dim is given, got {input.ndim} dimensions"
        )
    return rabbet.linalg.matrix_norm(input, "nuc", (0, 1) if dim is None else tuple(dim), keepdim)


# ---- methods


def resize(self: Tensor, *sizes: Any) -> Tensor:
    """The elements in another shape with as many; deprecated, use `reshape`."""
    warnings.warn("non-inplace resize is deprecated", UserWarning, stacklevel=2)
    shape = sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
    if math.prod(shape) != self.numel():
        raise RuntimeError(
            f"requested resize to {'x'.join(map(str, shape))} ({math.prod(shape)} elements in total), but the "
            f"given tensor has a size of {'x'.join(map(str, self.shape))} ({self.numel()} elements). "
            "autograd's resize can only change the shape of a given tensor, while preserving the number of elements."
        )
    return self.contiguous().view(tuple(shape))


def resize_as(self: Tensor, tensor: Tensor) -> Tensor:
    """The elements in the shape of another tensor; deprecated, use `reshape`."""
    warnings.warn("non-inplace resize_as is deprecated", UserWarning, stacklevel=2)
    return self.contiguous().view(tensor.shape)


def volatile(self: Tensor) -> bool:
    """Always False: `no_grad` took its place."""
    warnings.warn(
        "volatile was removed (Variable.volatile is always False)", UserWarning, stacklevel=2
    )
    return False


def reinforce(self: Tensor, reward: Any) -> None:
    """Removed.

    Raises:
        RuntimeError: always.
    """
    raise RuntimeError(
        "reinforce() was removed: use rabbet.distributions, e.g. "
        "loss = -Categorical(probs).log_prob(action) * reward"
    )


def _removed(name: str, instead: str) -> Any:
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            f"{name}: this function was deprecated since version 1.9 of PyTorch and is now removed; use {instead}"
        )

    method.__name__ = name
    method.__doc__ = f"Removed; use {instead}.\n\nRaises:\n    RuntimeError: always."
    return method


eig = _removed("eig", "linalg.eig or linalg.eigvals")
symeig = _removed("symeig", "linalg.eigh or linalg.eigvalsh, which read the lower triangle")
lstsq = _removed("lstsq", "linalg.lstsq, whose arguments come in the other order")
solve = _removed("solve", "linalg.solve, whose arguments come in the other order")
