"""Operators on lists of tensors, one by one: `_foreach_add(xs, ys)` is (x + y for x, y in zip(xs, ys)).

What follows the list is a list with a tensor or a number for each tensor, or a number or a tensor without dimensions
for all of them. Names with `_` at the end write the tensors and return the list that they were given.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from . import _C
from ._C import Tensor

_ops = _C.op
_UNARY = [
    "abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "frac", "lgamma", "log",
    "log10", "log1p", "log2", "neg", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "tan",
    "tanh", "trunc",
]  # fmt: skip
_SCALED = ["add", "sub"]  # those that take alpha=
_BINARY = [*_SCALED, "clamp_max", "clamp_min", "div", "maximum", "minimum", "mul"]
_POINTWISE = ["addcdiv", "addcmul"]
_OPERAND = ("other", "scalar", "scalars")  # keywords of the operand of a binary operator
_Run = Callable[..., Tensor]


def _is_list(x: Any) -> bool:
    return isinstance(x, (list, tuple))


def _need_list(name: str, argument: str, tensors: Any) -> None:
    if not _is_list(tensors):
        raise TypeError(
            f"{name}(): argument '{argument}' must be tuple of Tensors, not {type(tensors).__name__}"
        )
    for i, x in enumerate(tensors):
        if not isinstance(x, Tensor):
            raise TypeError(
                f"{name}(): expected Tensor as element {i} in argument '{argument}', but got {type(x).__name__}"
            )
    if not tensors:
        raise RuntimeError(f"{name}: Tensor list must have at least one tensor.")


def _need_as_many(name: str, tensors: Sequence[Tensor], others: Sequence[Tensor]) -> None:
    if len(others) != len(tensors):
        raise RuntimeError(
            f"{name}: Tensor lists must have the same number of tensors, got {len(tensors)} and {len(others)}"
        )


def _is_number(x: Any) -> bool:
    if isinstance(x, Tensor):
        return x.ndim == 0
    return (
        isinstance(x, (int, float, complex)) or hasattr(x, "__index__") or hasattr(x, "__float__")
    )


def _column(name: str, argument: str, tensors: Sequence[Tensor], operand: Any) -> Sequence[Any]:
    """The operand of each tensor."""
    if _is_list(operand):
        if any(isinstance(x, Tensor) for x in operand):
            _need_list(name, argument, operand)
            _need_as_many(name, tensors, operand)
        elif not all(map(_is_number, operand)):
            wrong = next(x for x in operand if not _is_number(x))
            raise TypeError(
                f"{name}(): argument '{argument}' must be tensors or numbers, but an element is {type(wrong).__name__}"
            )
        elif len(operand) != len(tensors):
            raise RuntimeError(
                f"{name}: Tensor list must have same number of elements as scalar list, got {len(tensors)} and "
                f"{len(operand)}"
            )
        found: Sequence[Any] = operand
        return found
    if isinstance(operand, Tensor) and operand.ndim > 0:
        raise RuntimeError(
            f"{name}: scalar tensor expected to be 0 dim but it has {operand.ndim} dimensions and "
            f"{operand.numel()} elements."
        )
    if not _is_number(operand):
        raise TypeError(
            f"{name}(): argument '{argument}' must be a number, a tensor or a list of them, not "
            f"{type(operand).__name__}"
        )
    return [operand] * len(tensors)


def _factors(name: str, tensors: Sequence[Tensor], operand: Any) -> Sequence[Any]:
    """The factor of each tensor: one for all, a list, or a tensor of one dimension."""
    if isinstance(operand, Tensor):
        if operand.ndim != 1:
            raise RuntimeError(
                f"{name}: Expected packed scalar Tensor to be of dimension 1. Got {operand.ndim} instead."
            )
        if len(operand) != len(tensors):
            raise RuntimeError(
                f"{name}: Expected length of scalars to match input of length {len(tensors)} but got {len(operand)} "
                "instead."
            )
        numbers: list[Any] = operand.tolist()
        return numbers
    return _column(name, "scalars", tensors, operand)


def _only(name: str, given: Sequence[Any], named: dict[str, Any], keywords: Sequence[str]) -> Any:
    """The one operand, by position or by one of its keywords, which are taken out of `named`."""
    found = [*given, *(named.pop(k) for k in keywords if k in named)]
    if len(found) != 1:
        raise TypeError(f"{name}() takes one operand ({', '.join(keywords)}), got {len(found)}")
    return found[0]


def _no_more(name: str, named: dict[str, Any]) -> None:
    if named:
        raise TypeError(f"{name}() got an unexpected keyword argument '{next(iter(named))}'")


def _runner(operator: str, writes: bool) -> _Run:
    """What computes one tensor: the operator, or what writes its result to the tensor."""
    run: _Run = _ops(operator)
    if not writes:
        return run
    inplace: _Run | None = getattr(Tensor, operator + "_", None)
    return inplace or (lambda x, *args, **options: x.copy_(run(x, *args, **options)))


def _finished(self: Any, results: Iterator[Tensor], writes: bool) -> Any:
    made = tuple(results)
    return self if writes else made


def _unary(operator: str, writes: bool) -> Callable[..., Any]:
    name, run = _name(operator, writes), _runner(operator, writes)

    def function(self: Any) -> Any:
        _need_list(name, "self", self)
        return _finished(self, (run(x) for x in self), writes)

    return function


def _binary(operator: str, writes: bool) -> Callable[..., Any]:
    name, run = _name(operator, writes), _runner(operator, writes)

    def function(self: Any, *operand: Any, **named: Any) -> Any:
        _need_list(name, "self", self)
        other = _only(name, operand, named, _OPERAND)
        takes_alpha = isinstance(other, Tensor) or (
            _is_list(other) and isinstance(other[0], Tensor)
        )
        options = {}
        if operator in _SCALED and takes_alpha:
            options = {"alpha": named.pop("alpha", 1)}
        _no_more(name, named)
        column = _column(name, "other", self, other)
        pairs = zip(self, column, strict=True)
        return _finished(self, (run(x, y, **options) for x, y in pairs), writes)

    return function


def _pow(operator: str, writes: bool) -> Callable[..., Any]:
    name, run = _name(operator, writes), _runner(operator, writes)

    def function(self: Any, exponent: Any) -> Any:
        if not writes and _is_number(self):
            _need_list(name, "exponent", exponent)
            return tuple(run(self, x) for x in exponent)
        _need_list(name, "self", self)
        pairs = zip(self, _column(name, "exponent", self, exponent), strict=True)
        return _finished(self, (run(x, y) for x, y in pairs), writes)

    return function


def _lerp(operator: str, writes: bool) -> Callable[..., Any]:
    name, run = _name(operator, writes), _runner(operator, writes)

    def function(self: Any, tensors1: Any, *weight: Any, **named: Any) -> Any:
        _need_list(name, "self", self)
        _need_list(name, "tensors1", tensors1)
        _need_as_many(name, self, tensors1)
        column = _column(name, "weight", self, _only(name, weight, named, ("weight", "weights")))
        _no_more(name, named)
        rows = zip(self, tensors1, column, strict=True)
        return _finished(self, (run(x, end, w) for x, end, w in rows), writes)

    return function


def _pointwise(operator: str, writes: bool) -> Callable[..., Any]:
    name, run = _name(operator, writes), _runner(operator, writes)

    def function(self: Any, tensor1: Any, tensor2: Any, *factor: Any, **named: Any) -> Any:
        _need_list(name, "self", self)
        for argument, given in (("tensor1", tensor1), ("tensor2", tensor2)):
            _need_list(name, argument, given)
            _need_as_many(name, self, given)
        if not factor and not named:
            factor = (1,)
        factors = _factors(name, self, _only(name, factor, named, ("value", "scalars")))
        _no_more(name, named)
        rows = zip(self, tensor1, tensor2, factors, strict=True)
        return _finished(self, (run(x, a, b, value=v) for x, a, b, v in rows), writes)

    return function


def _foreach_mm(self: Any, mat2: Any) -> tuple[Tensor, ...]:
    """The product of each matrix and that of `mat2`."""
    _need_list("_foreach_mm", "self", self)
    _need_list("_foreach_mm", "mat2", mat2)
    _need_as_many("_foreach_mm", self, mat2)
    return tuple(_ops("mm")(a, b) for a, b in zip(self, mat2, strict=True))


def _foreach_max(self: Any) -> tuple[Tensor, ...]:
    """The largest element of each tensor.

    Raises:
        RuntimeError: if a tensor has none.
    """
    _need_list("_foreach_max", "self", self)
    if not all(x.numel() for x in self):
        raise RuntimeError(
            "_foreach_max cannot compute the maximum of an empty tensor; max over zero elements is undefined."
        )
    return tuple(_ops("max")(x) for x in self)


def _foreach_zero_(self: Any) -> Any:
    """0 at every place of each tensor."""
    _need_list("_foreach_zero_", "self", self)
    for x in self:
        x.zero_()
    return self


def _foreach_copy_(self: Any, src: Any, non_blocking: bool = False) -> Any:
    """Copy each tensor of `src` to that of `self`."""
    _need_list("_foreach_copy_", "self", self)
    _need_list("_foreach_copy_", "src", src)
    _need_as_many("_foreach_copy_", self, src)
    for x, other in zip(self, src, strict=True):
        x.copy_(other, non_blocking=non_blocking)
    return self


def _need_inexact(name: str, tensors: Sequence[Tensor]) -> None:
    for x in tensors:
        if not (x.is_floating_point() or x.is_complex()):
            raise _C.DTypeError(
                f"{name}: Expected a floating point or complex tensor as input. Got {x.dtype}"
            )


def _foreach_norm(self: Any, ord: Any = 2, dtype: Any = None) -> tuple[Tensor, ...]:
    """The `ord`-norm of the elements of each tensor, computed in `dtype` where that is given.

    Raises:
        TypeError: for dtypes that are neither floating nor complex.
        RuntimeError: for the infinity norm of a tensor without elements.
    """
    _need_list("_foreach_norm", "self", self)
    _need_inexact("_foreach_norm", self)
    if ord == float("inf") and not all(x.numel() for x in self):
        raise RuntimeError(
            "_foreach_norm cannot compute the infinity norm on an empty tensor because the operation does not have an "
            "identity"
        )
    return tuple(_ops("norm")(x, ord, dtype=dtype) for x in self)


def _foreach_powsum(self: Any, ord: Any = 2, dtype: Any = None) -> tuple[Tensor, ...]:
    """The sum of the absolute values to the power `ord` of each tensor, in `dtype` where that is given."""
    _need_list("_foreach_powsum", "self", self)
    _need_inexact("_foreach_powsum", self)
    return tuple(_power_sum(x, ord, dtype) for x in self)


def _power_sum(x: Tensor, ord: Any, dtype: Any) -> Tensor:
    """Computed in float32 at least, and rounded once."""
    wide = dtype or (_C.float64 if x.dtype in (_C.float64, _C.complex128) else _C.float32)
    total: Tensor = _ops("pow")(x.abs().to(wide), ord).sum()
    return total.to(dtype or x.dtype.to_real())


def _foreach_clone(self: Any, *, memory_format: Any = None) -> tuple[Tensor, ...]:
    """A copy of each tensor."""
    _need_list("_foreach_clone", "self", self)
    return tuple(x.clone(memory_format=memory_format) for x in self)


def _name(operator: str, writes: bool) -> str:
    return f"_foreach_{operator}{'_' * writes}"


_FAMILIES = [
    (_unary, _UNARY), (_binary, _BINARY), (_pow, ["pow"]), (_lerp, ["lerp"]), (_pointwise, _POINTWISE),
]  # fmt: skip
_MADE: dict[str, Callable[..., Any]] = {}
for _family, _operators in _FAMILIES:
    for _operator in _operators:
        for _writes in (False, True):
            _function = _family(_operator, _writes)
            _function.__name__ = _function.__qualname__ = _name(_operator, _writes)
            _function.__doc__ = f"`{_operator}` of each tensor{', in place' * _writes}."
            _MADE[_function.__name__] = _function
globals().update(_MADE)
__all__ = [
    *_MADE, "_foreach_clone", "_foreach_copy_", "_foreach_max", "_foreach_mm", "_foreach_norm", "_foreach_powsum",
    "_foreach_zero_",
]  # fmt: skip
