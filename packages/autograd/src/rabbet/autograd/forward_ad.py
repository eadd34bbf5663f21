"""Forward mode: dual numbers, which carry a tangent along with every value.

    with dual_level():
        y = f(make_dual(x, t))
        primal, tangent = unpack_dual(y)   # f(x) and the derivative of f at x in the direction t

Levels nest, among themselves and with `rabbet.func`'s transforms. Duals belong to their level: they
must be unpacked before it is left.
"""

import threading
from typing import NamedTuple

from rabbet import Tensor

from . import _C

__all__ = [
    "UnpackedDualTensor",
    "dual_level",
    "enter_dual_level",
    "exit_dual_level",
    "make_dual",
    "unpack_dual",
]


class _Levels(threading.local):
    def __init__(self) -> None:
        self.entered: list[int] = []


_levels = _Levels()


class UnpackedDualTensor(NamedTuple):
    """What a dual tensor stands for. `tangent` is None where the primal has none, which is zero."""

    primal: Tensor
    tangent: Tensor | None


def enter_dual_level() -> int:
    """Enter a level of forward mode; returns its number."""
    level = _C.dual_enter()
    _levels.entered.append(level)
    return level


def exit_dual_level(*, level: int | None = None) -> None:
    """Leave the last level. Its duals cannot be used any more.

    Raises:
        RuntimeError: if there is none, or `level` is not the last one.
    """
    last = _current(level, "exit_dual_level")
    if not _levels.entered or last != _levels.entered[-1]:
        raise RuntimeError(f"exit_dual_level: level {last} is not the last one entered")
    _C.dual_exit(last)
    _levels.entered.pop()


def _current(level: int | None, what: str) -> int:
    if level is not None:
        if isinstance(level, bool) or not isinstance(level, int):
            raise TypeError(f"{what}: level must be an int, got {type(level).__name__}")
        return level
    if not _levels.entered:
        raise RuntimeError(f"{what}: no level is entered; use it inside `with dual_level():`")
    return _levels.entered[-1]


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """Return a dual of `tensor` with that tangent, which has its shape, dtype and device.

    Args:
        level: which level it belongs to; defaults to the innermost.

    Raises:
        RuntimeError: outside of a level, or if `tensor` is a dual of it already.
        TypeError: for a tangent of another dtype.
        ValueError: for a tensor of integers, or a tangent of another shape.
    """
    for name, value in (("tensor", tensor), ("tangent", tangent)):
        if not isinstance(value, Tensor):
            raise TypeError(f"make_dual: {name} must be a Tensor, got {type(value).__name__}")
        if not (value.is_floating_point() or value.is_complex()):
            kind = "primal" if name == "tensor" else name
            raise ValueError(
                f"Expected {kind} to be floating point or complex, but got: {value.dtype}"
            )
    return _C.dual_make(_current(level, "make_dual"), tensor, tangent, True)


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """Return the primal and the tangent (None: zero) of a dual; any other tensor is its own primal.

    Raises:
        RuntimeError: for a dual of a level that was left.
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"unpack_dual: expected a Tensor, got {type(tensor).__name__}")
    if level is None and not _levels.entered:
        return UnpackedDualTensor(tensor, None)
    return UnpackedDualTensor(*_C.dual_unpack(_current(level, "unpack_dual"), tensor))


class dual_level:
    """Context manager: a level of forward mode. Gives its number."""

    def __enter__(self) -> int:
        self._level = enter_dual_level()
        return self._level

    def __exit__(self, *exc: object) -> None:
        exit_dual_level(level=self._level)
