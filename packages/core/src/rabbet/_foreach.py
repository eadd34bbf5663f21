"""Operators on lists of tensors, one by one: `_foreach_add(xs, ys)` is [x + y for x, y in zip(xs, ys)].

What follows the list is a list with an item for each tensor, a number, or a tensor for all of them.
"""

from collections.abc import Callable, Sequence
from typing import Any

from . import _C
from ._C import Tensor

_ops = _C.op
_ONE = [
    "abs",
    "acos",
    "asin",
    "atan",
    "ceil",
    "cos",
    "cosh",
    "erf",
    "erfc",
    "exp",
    "expm1",
    "floor",
    "frac",
    "lgamma",
    "log",
    "log10",
    "log1p",
    "log2",
    "neg",
    "reciprocal",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
]
_MORE = [
    "add",
    "addcdiv",
    "addcmul",
    "clamp_max",
    "clamp_min",
    "div",
    "lerp",
    "maximum",
    "minimum",
    "mul",
    "pow",
    "sub",
]


def _need_list(name: str, tensors: Any) -> None:
    if not isinstance(tensors, (list, tuple)) or not all(isinstance(t, Tensor) for t in tensors):
        raise TypeError(f"{name}(): argument 'self' must be a tuple of Tensors")
    if not tensors:
        raise RuntimeError(f"{name}: Tensor list must have at least one tensor.")


def _rows(name: str, tensors: Sequence[Tensor], operands: Sequence[Any]) -> list[tuple[Any, ...]]:
    """For each tensor its operands."""
    columns: list[Sequence[Any]] = []
    for given in operands:
        spread = isinstance(given, Tensor) and given.ndim == 1 and len(operands) == 3
        items = given.unbind() if spread else given
        if not isinstance(items, (list, tuple)):
            items = [items] * len(tensors)
        if len(items) != len(tensors):
            raise RuntimeError(
                f"{name}: Tensor lists must have the same number of tensors, got {len(tensors)} and {len(items)}"
            )
        columns.append(items)
    return list(zip(*columns, strict=True)) if columns else [()] * len(tensors)


def _applied(run: Callable[..., Tensor], x: Any, row: tuple[Any, ...], options: Any) -> Tensor:
    if len(row) == 3:  # addcmul and addcdiv take the factor by keyword
        first, second, factor = row
        return run(x, first, second, value=factor)
    return run(x, *row, **options)


def _new(operator: str) -> Callable[..., Any]:
    """The function of an operator that makes new tensors."""
    name, run = f"_foreach_{operator}", _ops(operator)

    def function(self: Any, *operands: Any, **options: Any) -> tuple[Tensor, ...]:
        if operator == "pow" and not isinstance(self, (list, tuple)):
            _need_list(name, *operands)
            return tuple(run(self, exponent) for exponent in operands[0])
        _need_list(name, self)
        rows = _rows(name, self, operands)
        return tuple(_applied(run, x, row, options) for x, row in zip(self, rows, strict=True))

    function.__name__ = name
    function.__doc__ = f"`{operator}` of each tensor."
    return function


def _writing(operator: str) -> Callable[..., Any]:
    """The function of an operator that writes the tensors."""
    name = f"_foreach_{operator}_"
    run = getattr(Tensor, operator + "_", None)

    def copied(x: Tensor, *row: Any) -> Tensor:
        return x.copy_(_ops(operator)(x, *row))

    def function(self: Any, *operands: Any, **options: Any) -> Any:
        _need_list(name, self)
        for x, row in zip(self, _rows(name, self, operands), strict=True):
            _applied(run or copied, x, row, options)
        return self

    function.__name__ = name
    function.__doc__ = f"`{operator}` of each tensor, in place."
    return function


def _foreach_zero_(self: Any) -> Any:
    """0 at every place of each tensor."""
    _need_list("_foreach_zero_", self)
    for x in self:
        x.zero_()
    return self


def _foreach_copy_(self: Any, src: Any, non_blocking: bool = False) -> Any:
    """Copy each tensor of `src` to that of `self`."""
    _need_list("_foreach_copy_", self)
    for x, (other,) in zip(self, _rows("_foreach_copy_", self, (src,)), strict=True):
        x.copy_(other, non_blocking=non_blocking)
    return self


def _foreach_norm(self: Any, ord: Any = 2, dtype: Any = None) -> tuple[Tensor, ...]:
    """The `ord`-norm of each tensor."""
    _need_list("_foreach_norm", self)
    return tuple(_ops("norm")(x, ord, dtype=dtype) for x in self)


def _foreach_clone(self: Any, *, memory_format: Any = None) -> tuple[Tensor, ...]:
    """A copy of each tensor."""
    _need_list("_foreach_clone", self)
    return tuple(x.clone(memory_format=memory_format) for x in self)


_MADE: dict[str, Callable[..., Any]] = {}
for _operator in [*_ONE, *_MORE, "max", "mm"]:
    _MADE[f"_foreach_{_operator}"] = _new(_operator)
for _operator in [*_ONE, *_MORE]:
    _MADE[f"_foreach_{_operator}_"] = _writing(_operator)
globals().update(_MADE)
__all__ = [*_MADE, "_foreach_clone", "_foreach_copy_", "_foreach_norm", "_foreach_zero_"]
