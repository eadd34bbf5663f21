"""Sizes as expressions: numbers that follow from the sizes of a graph's inputs."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ._ir import Value

Number = int | float

# Operator to (function, precedence); those of two operands.
_BINARY: dict[str, tuple[Callable[[Any, Any], Any], int]] = {
    "+": (operator.add, 1),
    "-": (operator.sub, 1),
    "*": (operator.mul, 2),
    "//": (operator.floordiv, 2),
    "/": (operator.truediv, 2),
    "%": (operator.mod, 2),
    "**": (operator.pow, 4),
}
_NEUTRAL = {("+", 0), ("-", 0), ("*", 1), ("//", 1), ("**", 1)}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "abs": abs,
    "float": float,
    "int": int,
    "sqrt": math.sqrt,
    "floor": math.floor,
    "ceil": math.ceil,
    "log": math.log,
}
RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Size:
    """An expression over sizes. Immutable; equal where it is written alike.

    Attributes:
        op: "const", "symbol", "dim" (of a value's shape), an arithmetic operator, or a function such as "min".
        args: the number, the symbol's name, (value, dimension), or the operands.
    """

    __slots__ = ("args", "op")

    def __init__(self, op: str, *args: Any) -> None:
        self.op = op
        self.args = args

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self.op == other.op and self.args == other.args

    def __hash__(self) -> int:
        return hash((self.op, self.args))

    def __str__(self) -> str:
        return self._text(0)

    def __repr__(self) -> str:
        return f"Size({self})"

    def _text(self, outer: int) -> str:
        if self.op == "const":
            text = repr(self.args[0])
            return f"({text})" if text.startswith("-") and outer else text
        if self.op == "symbol":
            return str(self.args[0])
        if self.op == "dim":
            return f"dim(%{self.args[0].name}, {self.args[1]})"
        if self.op in _BINARY:
            level = _BINARY[self.op][1]
            left = 5 if self.op == "**" else level
            text = f"{self.args[0]._text(left)} {self.op} {self.args[1]._text(level + 1)}"
            return f"({text})" if level < outer else text
        return f"{self.op}({', '.join(arg._text(0) for arg in self.args)})"

    def evaluate(
        self, symbols: Mapping[str, Number], shape_of: Callable[[Value], Any] | None = None
    ) -> Number:
        """Evaluate the expression for these values of the symbols.

        Args:
            shape_of: gives the shape of a value, for expressions with "dim".
        """
        if self.op == "const":
            number: Number = self.args[0]
            return number
        if self.op == "symbol":
            return symbols[self.args[0]]
        if self.op == "dim":
            if shape_of is None:
                raise ValueError(f"{self} has a number only while the graph runs")
            return int(shape_of(self.args[0])[self.args[1]])
        operands = [arg.evaluate(symbols, shape_of) for arg in self.args]
        function = _BINARY[self.op][0] if self.op in _BINARY else _FUNCTIONS[self.op]
        result: Number = function(*operands)
        return result

    def leaves(self) -> Iterator[Size]:
        """The symbols and dimensions in the expression."""
        if self.op in ("symbol", "dim"):
            yield self
        elif self.op != "const":
            for arg in self.args:
                yield from arg.leaves()

    def needs_run(self) -> bool:
        """Whether it names the shape of a value, which only a run knows."""
        return any(leaf.op == "dim" for leaf in self.leaves())

    def replace(self, change: Callable[[Size], Size]) -> Size:
        """The expression with `change` applied to its symbols and dimensions."""
        if self.op in ("symbol", "dim"):
            return change(self)
        if self.op == "const":
            return self
        return Size(self.op, *(arg.replace(change) for arg in self.args))


def const(number: Number) -> Size:
    """A number as an expression."""
    return Size("const", number)


def symbol(name: str) -> Size:
    """A symbol as an expression."""
    return Size("symbol", name)


def binary(op: str, a: Size, b: Size) -> Size:
    """Return `a op b`, evaluated if both are numbers, and simplified for neutral operands."""
    if a.op == b.op == "const":
        return const(_BINARY[op][0](a.args[0], b.args[0]))
    if op in ("+", "*") and a.op == "const":  # numbers come last
        a, b = b, a
    if b.op == "const" and type(b.args[0]) is int and (op, b.args[0]) in _NEUTRAL:
        return a
    return Size(op, a, b)


def function(name: str, *args: Size) -> Size:
    """Apply a function to expressions, and evaluate it if all of them are numbers."""
    if all(arg.op == "const" for arg in args):
        return const(_FUNCTIONS[name](*(arg.args[0] for arg in args)))
    return Size(name, *args)


def is_function(name: str) -> bool:
    """Whether expressions know a function of this name."""
    return name in _FUNCTIONS


class Constraint(NamedTuple):
    """A condition on the sizes of a graph's inputs, and the line of the program that requires it."""

    left: Size
    relation: str
    right: Size
    source: str | None = None

    def holds(self, symbols: Mapping[str, Number], shape_of: Any = None) -> bool:
        """Whether it holds for these values of the symbols."""
        left, right = self.left.evaluate(symbols, shape_of), self.right.evaluate(symbols, shape_of)
        return RELATIONS[self.relation](left, right)

    def __str__(self) -> str:
        return f"{self.left} {self.relation} {self.right}"

    def made_values(self) -> list[Value]:
        """The results of nodes whose sizes it names: it can be checked once they are there."""
        leaves = [*self.left.leaves(), *self.right.leaves()]
        values = [leaf.args[0] for leaf in leaves if leaf.op == "dim"]
        return [value for value in values if value.node is not None]


class Symbol:
    """A size of an input that may differ from call to call.

    Attributes:
        name: as it is printed.
        hint: the size when the graph was captured.
        low, high: the least and the largest size that the graph takes; `high` None: any.
        origin: the input and the dimension whose size it is; None for sizes that follow from values.
    """

    __slots__ = ("high", "hint", "low", "name", "origin")

    def __init__(
        self,
        name: str,
        hint: int,
        low: int = 2,
        high: int | None = None,
        origin: tuple[Value, int] | None = None,
    ) -> None:
        self.name = name
        self.hint = hint
        self.low = low
        self.high = high
        self.origin = origin

    def __repr__(self) -> str:
        high = "" if self.high is None else self.high
        return f"Symbol({self.name} = {self.hint} in {self.low}..{high})"


class Dim:
    """A dimension of inputs whose size may change, for `capture(dynamic=...)`.

    The same object, or the same name, for several dimensions says that their sizes are equal.

    Args:
        name: an identifier.
        min, max: the sizes that the graph is to take.
    """

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError(f"Dim: the name must be an identifier, got {name!r}")
        low = 2 if min is None else operator.index(min)
        high = None if max is None else operator.index(max)
        if low < 0 or (high is not None and high < low):
            raise ValueError(
                f"Dim: expected 0 <= min <= max for '{name}', got min={min}, max={max}"
            )
        self.__name__ = name
        self.min = low
        self.max = high

    def __repr__(self) -> str:
        return f"Dim({self.__name__!r}, min={self.min}, max={self.max})"
