"""Checks of arguments that the functions of the namespace share."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import rabbet

from .._C import Tensor

DType: TypeAlias = rabbet.dtype
Device: TypeAlias = rabbet.device | str | None
Number: TypeAlias = bool | int | float | complex
Axis: TypeAlias = int | tuple[int, ...] | None

NUMBERS = (bool, int, float, complex)


def need_tensors(function: str, **given: Any) -> None:
    """Check that every value is a Tensor.

    Raises:
        TypeError: naming the argument that is not.
    """
    for name, value in given.items():
        if not isinstance(value, Tensor):
            raise TypeError(f"{function}: {name} must be a Tensor, got {type(value).__name__}")


def need_matrices(function: str, **given: Any) -> None:
    """Check that every value is a Tensor with at least two dimensions.

    Raises:
        TypeError: for a value that is not a Tensor.
        ValueError: for fewer dimensions.
    """
    need_tensors(function, **given)
    for name, value in given.items():
        if value.ndim < 2:
            raise ValueError(
                f"{function}: {name} must have at least 2 dimensions, got shape {tuple(value.shape)}"
            )


def need_dtype(function: str, dtype: Any) -> None:
    """Check that `dtype` is a dtype.

    Raises:
        TypeError: if it is not.
    """
    if not isinstance(dtype, rabbet.dtype):
        raise TypeError(f"{function}: expected a rabbet.dtype, got {dtype!r}")


def one_axis(function: str, axis: Any, ndim: int, name: str = "axis") -> int:
    """The axis counted from the front.

    Raises:
        TypeError: if it is not an int.
        IndexError: if there is no such axis.
    """
    if isinstance(axis, bool) or not hasattr(axis, "__index__"):
        raise TypeError(f"{function}: {name} must be an int, got {axis!r}")
    index = axis.__index__()
    if not -ndim <= index < ndim:
        raise IndexError(
            f"{function}: {name} must be in [{-ndim}, {ndim - 1}] for {ndim} dimensions, got {index}"
        )
    return int(index % ndim)


def several_axes(function: str, axes: Any, ndim: int, name: str = "axis") -> list[int]:
    """The axes, one or a sequence of them, counted from the front.

    Raises:
        TypeError: if they are not ints.
        IndexError: if there is no such axis.
        ValueError: if an axis occurs twice.
    """
    listed = axes if isinstance(axes, Sequence) and not isinstance(axes, str) else (axes,)
    found = [one_axis(function, axis, ndim, name) for axis in listed]
    if len(set(found)) < len(found):
        raise ValueError(f"{function}: {name} must not repeat an axis, got {tuple(listed)}")
    return found
