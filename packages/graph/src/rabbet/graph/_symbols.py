"""Symbolic numbers, which stand for sizes while a program is captured."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from .. import _C
from .._C import Tensor
from .._settings import SymInt
from ..overrides import TorchFunctionMode
from ._ir import GraphError, Value
from ._sizes import RELATIONS, Constraint, Number, Size, binary, const, function


class CaptureError(GraphError):
    """Raised for a program that cannot be captured. The message names the operator or the read, and its line."""


def source_line() -> str:
    """The line of the program that runs, "file.py:12 in name"."""
    return _C.source() or "an unknown line"


def _asked_by_rabbet(depth: int) -> bool:
    """Whether the Python function that asks for a number is one of Rabbet's own."""
    name = sys._getframe(depth + 1).f_globals.get("__name__", "")
    return name == "rabbet" or name.startswith("rabbet.")


class SymbolicNumber(SymInt):
    """A size, or a number computed from sizes. Comparisons become constraints of the graph.

    Uses that Python cannot follow (range(), keys of dicts, math functions) need a fixed number: they are refused, with
    the line, where the size is to stay dynamic.
    """

    __slots__ = ("_guards", "expression", "value")

    expression: Size
    value: Any
    _guards: Callable[[Constraint], None]

    def __new__(cls, expression: Size, value: Any, guards: Callable[[Constraint], None]) -> Any:
        made = object.__new__(cls)
        made.expression = expression
        made.value = value
        made._guards = guards
        return made

    def __init__(self, *args: Any) -> None:
        pass

    # ---- arithmetic

    def _combined(self, op: str, other: Any, reflected: bool = False) -> Any:
        number = _expression(other)
        if number is None:
            return NotImplemented
        a, b = (number, self.expression) if reflected else (self.expression, number)
        x, y = (_value(other), self.value) if reflected else (self.value, _value(other))
        return self._made(binary(op, a, b), _OPERATORS[op](x, y))

    def _made(self, expression: Size, value: Any) -> Any:
        if expression.op == "const":
            return value
        return type(self)(expression, value, self._guards)

    def _compared(self, relation: str, other: Any) -> Any:
        number = _expression(other)
        if number is None:
            return NotImplemented
        holds = RELATIONS[relation](self.value, _value(other))
        wanted = relation if holds else _OPPOSITE[relation]
        self._guards(Constraint(self.expression, wanted, number, source_line()))
        return holds

    def __add__(self, other: Any) -> Any:
        return self._combined("+", other)

    def __radd__(self, other: Any) -> Any:
        return self._combined("+", other, True)

    def __sub__(self, other: Any) -> Any:
        return self._combined("-", other)

    def __rsub__(self, other: Any) -> Any:
        return self._combined("-", other, True)

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, (list, tuple, str)):
            return other * self._fixed("a repetition", 1)
        return self._combined("*", other)

    def __rmul__(self, other: Any) -> Any:
        if isinstance(other, (list, tuple, str)):
            return other * self._fixed("a repetition", 1)
        return self._combined("*", other, True)

    def __floordiv__(self, other: Any) -> Any:
        return self._combined("//", other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._combined("//", other, True)

    def __truediv__(self, other: Any) -> Any:
        return self._combined("/", other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._combined("/", other, True)

    def __mod__(self, other: Any) -> Any:
        return self._combined("%", other)

    def __rmod__(self, other: Any) -> Any:
        return self._combined("%", other, True)

    def __pow__(self, other: Any) -> Any:
        return self._combined("**", other)

    def __rpow__(self, other: Any) -> Any:
        return self._combined("**", other, True)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __neg__(self) -> Any:
        return self._combined("-", 0, True)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self._made(function("abs", self.expression), abs(self.value))

    def __floor__(self) -> Any:
        return self._made(function("floor", self.expression), int(self.value // 1))

    def __ceil__(self) -> Any:
        return self._made(function("ceil", self.expression), -int(-self.value // 1))

    # ---- comparisons

    def __eq__(self, other: Any) -> Any:
        return self._compared("==", other)

    def __ne__(self, other: Any) -> Any:
        return self._compared("!=", other)

    def __lt__(self, other: Any) -> Any:
        return self._compared("<", other)

    def __le__(self, other: Any) -> Any:
        return self._compared("<=", other)

    def __gt__(self, other: Any) -> Any:
        return self._compared(">", other)

    def __ge__(self, other: Any) -> Any:
        return self._compared(">=", other)

    def __bool__(self) -> bool:
        return bool(self._compared("!=", 0))

    # ---- as a plain number

    def _fixed(self, what: str, depth: int) -> Any:
        if _asked_by_rabbet(
            depth + 1
        ):  # operators get numbers; captures at other sizes show which results depend on them
            return self.value
        raise CaptureError(
            f"{what} at {source_line()} needs a fixed number, but {self.expression} = {self.value} follows from sizes that "
            "are dynamic; make the dimension static, or compute with the size itself"
        )

    def __index__(self) -> int:
        return operator.index(self._fixed("a use as an index or in range()", 1))

    def __int__(self) -> int:
        return int(self._fixed("int()", 1))

    def __float__(self) -> float:
        return float(self._fixed("float() or a function of math", 1))

    def __hash__(self) -> int:
        return hash(self._fixed("a use as a key", 1))

    def __repr__(self) -> str:
        return repr(self.value)

    def __format__(self, spec: str) -> str:
        return format(self.value, spec)


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "/": operator.truediv,
    "%": operator.mod, "**": operator.pow,
}  # fmt: skip
_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def _expression(number: Any) -> Size | None:
    if isinstance(number, SymbolicNumber):
        return number.expression
    if isinstance(number, (int, float)):
        return const(number)
    return None


def _value(number: Any) -> Number:
    value: Number = number.value if isinstance(number, SymbolicNumber) else number
    return value


class UnknownSize:
    """A size that depends on data, such as that of nonzero(). A graph cannot store it as a number."""

    __slots__ = ("_why",)

    def __init__(self, why: str) -> None:
        self._why = why

    def _refuse(self, *args: Any) -> NoReturn:
        raise CaptureError(
            f"a size is used as a number at {source_line()}, but it depends on values: {self._why}"
        )

    __index__ = __int__ = __float__ = __bool__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse
    __floordiv__ = __rfloordiv__ = __truediv__ = __rtruediv__ = __mod__ = __rmod__ = _refuse
    __pow__ = __rpow__ = __neg__ = __abs__ = __divmod__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __hash__ = __repr__ = __format__ = _refuse


# Functions that create tensors from Python data: each call creates new ones.
_FROM_DATA = {"tensor", "new_tensor", "as_tensor", "asarray", "Tensor"}


class SizeMode(TorchFunctionMode):
    """Presents sizes as symbolic numbers to the program and as plain numbers to operators.

    Args:
        shape_of: the sizes of a tensor as the program is to see them; None: as they are.
        fresh: called with a tensor that was made of Python's data.
    """

    def __init__(self, shape_of: Callable[[Tensor], Any], fresh: Callable[[Tensor], None]) -> None:
        super().__init__()
        self._shape_of = shape_of
        self._fresh = fresh
        self.crossed: dict[Size, None] = {}  # expressions that operators got

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "__get__":
            name = getattr(func.__self__, "__name__", "")
        question = _QUESTIONS.get(name)
        if question is not None and args and isinstance(args[0], Tensor):
            sizes = self._shape_of(args[0])
            if sizes is not None:
                found = question(sizes, *args[1:], **kwargs)
                if found is not NotImplemented:
                    return found
        args = self._plain(args)
        kwargs = {key: self._plain(value) for key, value in kwargs.items()}
        if isinstance(func, _C.overridable) and callable(getattr(func, "__wrapped__", None)):
            with self:  # its questions are answered, too
                result = func.__wrapped__(*args, **kwargs)
        else:
            result = func(*args, **kwargs)
        if name in _FROM_DATA and isinstance(result, Tensor):
            self._fresh(result)
        return result

    def _plain(self, value: Any) -> Any:
        """Replace symbolic numbers in a value by plain ones."""
        if isinstance(value, SymbolicNumber):
            self.crossed[value.expression] = None
            return value.value
        kind = type(value)
        if kind in (list, tuple):
            return kind(self._plain(item) for item in value)
        if kind is dict:
            return {key: self._plain(item) for key, item in value.items()}
        if kind is slice:
            return slice(self._plain(value.start), self._plain(value.stop), self._plain(value.step))
        if isinstance(value, UnknownSize):
            value._refuse()
        return value


class SymbolicShape(tuple[Any, ...]):
    """A shape with symbolic sizes."""

    __slots__ = ()

    def numel(self) -> Any:
        """The number of elements."""
        return _numel(self)


# ---- the questions about sizes, answered out of a tuple of them


def _size(sizes: tuple[Any, ...], *args: Any, dim: Any = None) -> Any:
    at = args[0] if args else dim
    if at is None:
        return sizes
    return sizes[at] if isinstance(at, int) and -len(sizes) <= at < len(sizes) else NotImplemented


def _shape(sizes: tuple[Any, ...], *args: Any, **kwargs: Any) -> Any:
    return sizes


def _numel(sizes: tuple[Any, ...], *args: Any, **kwargs: Any) -> Any:
    count: Any = 1
    for n in sizes:
        count = count * n
    return count


def _length(sizes: tuple[Any, ...], *args: Any) -> Any:
    if not sizes:
        return NotImplemented
    if isinstance(sizes[0], (SymbolicNumber, UnknownSize)):
        raise CaptureError(
            f"len() at {source_line()} needs a fixed number, but the size of dimension 0 is dynamic: use .shape[0]"
        )
    return sizes[0]


_QUESTIONS: dict[str, Callable[..., Any]] = {
    "shape": _shape,
    "size": _size,
    "numel": _numel,
    "nelement": _numel,
    "__len__": _length,
}


def expressions_of(value: Value) -> tuple[Size, ...]:
    """The sizes of a value as expressions; unknown ones appear as dimensions of the value."""
    return tuple(
        Size("dim", value, d) if size is None else size for d, size in enumerate(value.shape)
    )
