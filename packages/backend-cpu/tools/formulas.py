"""Symbolic evaluation of elementwise formulas: from an op record to C++ statements on scalars."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from records import Definition, Record

# Functions that cost more than memory traffic; they get smaller tasks.
HEAVY = {"exp", "expm1", "log", "log2", "log10", "log1p", "tan", "asin", "acos", "atan", "atan2"}
HEAVY |= {"sinh", "cosh", "tanh", "sigmoid", "erf", "erfc", "pow", "silu"}
HEAVY |= {"gelu", "gelu_tanh", "gelu_vjp", "gelu_tanh_vjp", "fmod", "remainder", "div_floor"}
# Functions that pack.h's vectors go through too; a formula of these alone has a loop over packs.
PACKED = {"neg", "add", "sub", "mul", "div", "exp", "expm1", "log", "log2", "log10", "log1p"}
PACKED |= {"tanh", "sigmoid", "erf", "silu", "gelu", "gelu_tanh", "gelu_vjp", "gelu_tanh_vjp"}
# float32 sine and cosine choose their method per block of elements: not a function of one element.
BLOCKWISE = {"sin", "cos"}
RENAMED = {"sign": "sgn"}


class Unsupported(Exception):
    """The formula, or this way through it, is left to core's interpreter."""


class Choice(Exception):
    """The way through the formula depends on `key`; `options` are (answer, C++ condition)."""

    def __init__(self, key: str, options: list[tuple[object, str]]) -> None:
        super().__init__(key)
        self.key = key
        self.options = options


# ---- values of formulas


@dataclass(frozen=True)
class Tensor:
    """A value per element, in the compute type: a C++ expression, or "@i" for the call's value i."""

    text: str


@dataclass(frozen=True)
class Mask:
    """A bool per element."""

    text: str


@dataclass(frozen=True)
class Number:
    """A real number on the host: a constant, or a C++ expression of type double."""

    text: str
    constant: float | None = None


@dataclass(frozen=True)
class Constant:
    """A string, a bool or None."""

    value: object


@dataclass(frozen=True)
class Argument:
    """A str argument of the call."""

    index: int


class Zero:
    """A gradient known to be zero."""


ZERO = Zero()
Value = Tensor | Mask | Number | Constant | Argument | Zero

ARITHMETIC: dict[type, tuple[str, Callable[[float, float], float]]] = {
    ast.Add: ("+", lambda x, y: x + y),
    ast.Sub: ("-", lambda x, y: x - y),
    ast.Mult: ("*", lambda x, y: x * y),
    ast.Div: ("/", lambda x, y: x / y),
}
OPERATORS: dict[type, str] = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div"}
COMPARISONS: dict[type, tuple[str, str]] = {
    ast.Eq: ("eq", "=="),
    ast.NotEq: ("ne", "!="),
    ast.Lt: ("lt", "<"),
    ast.LtE: ("le", "<="),
    ast.Gt: ("gt", ">"),
    ast.GtE: ("ge", ">="),
}


def number(value: float) -> Number:
    return Number(literal(value), value)


def literal(value: float) -> str:
    value = float(value)
    if math.isinf(value):
        return "-__builtin_inf()" if value < 0 else "__builtin_inf()"
    return repr(value)


@dataclass
class Scope:
    """What the names in a formula mean."""

    record: Record
    values: dict[str, Value]
    lets: dict[str, Value] = field(default_factory=dict)
    around: Scope | None = None  # of a definition in a record: that record's
    closed: bool = False  # of a definition of a file, which sees nothing else


class Evaluation:
    """One way through a formula, as given by `path`; collects operands and statements."""

    def __init__(
        self, records: dict[str, Record], functions: dict[str, str], path: dict[str, object]
    ) -> None:
        self.records = records
        self.functions = functions
        self.path = path
        # By slot: the value of the call, and whether it is a number in the place of a tensor.
        self.inputs: list[tuple[int, bool]] = []
        self.stand_ins: dict[str, int] = {}
        self.numbers: list[str] = []
        self.statements: list[str] = []
        self.known: dict[str, str] = {}
        self.heavy = False
        self.packed = True

    # ---- choices

    def choose(self, key: str, options: list[tuple[object, str]]) -> object:
        if key in self.path:
            return self.path[key]
        raise Choice(key, options)

    def decide(self, condition: str) -> bool:
        return bool(self.choose(condition, [(True, condition), (False, f"!({condition})")]))

    def truth(self, value: Value) -> bool:
        if isinstance(value, Constant):
            return bool(value.value)
        if isinstance(value, Number):
            return (
                bool(value.constant)
                if value.constant is not None
                else self.decide(f"{value.text} != 0")
            )
        raise Unsupported("a condition on tensors")

    # ---- code

    def operand(self, value: Value) -> str:
        """C++ of the compute type."""
        if isinstance(value, Number):
            if value.constant is not None:
                return f"T({value.text})"
            if value.text in self.stand_ins:
                return self.slot(self.stand_ins[value.text], True)
            if value.text not in self.numbers:
                self.numbers.append(value.text)
            return f"p[{self.numbers.index(value.text)}]"
        if not isinstance(value, Tensor):
            raise Unsupported(f"{value} as an operand")
        if not value.text.startswith("@"):
            return value.text
        return self.slot(int(value.text[1:]), False)

    def slot(self, index: int, is_number: bool) -> str:
        if (index, is_number) not in self.inputs:
            self.inputs.append((index, is_number))
        return f"x{self.inputs.index((index, is_number))}"

    def emit(self, code: str, kind: str = "T") -> str:
        if code not in self.known:
            self.known[code] = f"t{len(self.known)}"
            self.statements.append(f"const {kind} {self.known[code]} = {code};")
        return self.known[code]

    def apply(self, name: str, *args: Value) -> Value:
        """One scalar function, as the operator's kernel calls it."""
        if name in BLOCKWISE or name not in self.functions:
            raise Unsupported(name)
        if not any(isinstance(a, Tensor) for a in args):
            raise Unsupported(f"{name} of numbers")
        self.heavy |= name in HEAVY
        self.packed &= name in PACKED
        code = f"op_{name}::f<T>({', '.join(self.operand(a) for a in args)})"
        if self.functions[name] in ("TEST", "COMPARE"):
            return Mask(self.emit(code, "bool"))
        return Tensor(self.emit(code))

    # ---- formulas

    def formula(self, text: str, scope: Scope) -> Value:
        return self.eval(ast.parse(text, mode="eval").body, scope)

    def eval(self, node: ast.expr, scope: Scope) -> Value:
        match node:
            case ast.Constant(value=bool() | None | str()):
                return Constant(node.value)
            case ast.Constant(value=int() | float()):
                return number(node.value)
            case ast.Name():
                return self.name(node.id, scope)
            case ast.UnaryOp(op=ast.Not()):
                return Constant(not self.truth(self.eval(node.operand, scope)))
            case ast.UnaryOp(op=ast.USub()):
                return self.negate(self.eval(node.operand, scope))
            case ast.BinOp():
                return self.binary(
                    type(node.op), self.eval(node.left, scope), self.eval(node.right, scope)
                )
            case ast.Compare(ops=[op], comparators=[right]):
                return self.compare(type(op), self.eval(node.left, scope), self.eval(right, scope))
            case ast.BoolOp():
                for part in node.values:
                    value = self.eval(part, scope)
                    if self.truth(value) == isinstance(node.op, ast.Or):
                        break
                return value
            case ast.IfExp():
                chosen = node.body if self.truth(self.eval(node.test, scope)) else node.orelse
                return self.eval(chosen, scope)
            case ast.Call(func=ast.Name()):
                return self.call(node, scope)
        raise Unsupported(ast.unparse(node))

    def name(self, name: str, scope: Scope) -> Value:
        if name == "inf":
            return number(math.inf)
        if name == "zero":
            return ZERO
        if name in scope.values:
            return self.argument(scope.values[name])
        if scope.around:
            return self.name(name, scope.around)
        for let, text in scope.record.lets:
            if let == name and not scope.closed:
                if name not in scope.lets:
                    scope.lets[name] = self.formula(text, scope)
                return scope.lets[name]
        raise Unsupported(name)

    def argument(self, value: Value) -> Value:
        """A Tensor argument may be a number, an optional one None: which one is a choice."""
        if not isinstance(value, Tensor) or not value.text.startswith("?"):
            return value
        optional, index = value.text.startswith("??"), int(value.text.lstrip("?"))
        options: list[tuple[object, str]] = [
            ("tensor", f"is_tensor(v[{index}])"),
            ("number", f"is_real(v[{index}])"),
        ]
        if optional:
            options.append(("none", f"is_none(v[{index}])"))
        kind = self.choose(f"kind {index}", options)
        if kind == "none":
            return Constant(None)
        if kind == "tensor":
            return Tensor(f"@{index}")
        self.stand_ins[f"number(v[{index}])"] = index
        return Number(f"number(v[{index}])")

    def negate(self, x: Value) -> Value:
        if isinstance(x, Zero):
            return x
        if isinstance(x, Number):
            return number(-x.constant) if x.constant is not None else Number(f"(-{x.text})")
        return self.apply("neg", x)

    def binary(self, op: type, x: Value, y: Value) -> Value:
        if op in (ast.BitAnd, ast.BitOr):
            return self.combine(op is ast.BitAnd, x, y)
        if isinstance(x, Zero) or isinstance(y, Zero):
            return self.with_zero(op, x, y)
        if isinstance(x, Number) and isinstance(y, Number):
            return self.host(op, x, y)
        if op is ast.Pow:
            return self.power(x, y)
        if op not in OPERATORS:
            raise Unsupported(op.__name__)
        if op in (ast.Add, ast.Mult) and isinstance(x, Number):
            x, y = y, x
        return self.apply(OPERATORS[op], x, y)

    def host(self, op: type, x: Number, y: Number) -> Value:
        if op not in ARITHMETIC:
            raise Unsupported(f"{op.__name__} of numbers")
        symbol, fold = ARITHMETIC[op]
        if x.constant is not None and y.constant is not None:
            return number(fold(x.constant, y.constant))
        return Number(f"({x.text} {symbol} {y.text})")

    def with_zero(self, op: type, x: Value, y: Value) -> Value:
        if op is ast.Add:
            return y if isinstance(x, Zero) else x
        if op is ast.Sub:
            return self.negate(y) if isinstance(x, Zero) else x
        if op is ast.Mult or (op is ast.Div and isinstance(x, Zero)):
            return ZERO
        raise Unsupported("a zero gradient here")

    def combine(self, is_and: bool, x: Value, y: Value) -> Value:
        """A host bool says "everywhere" or "nowhere" of a mask."""
        if isinstance(x, Constant) and isinstance(y, Constant):
            return Constant(
                bool(x.value) and bool(y.value) if is_and else bool(x.value) or bool(y.value)
            )
        flag, mask = (x, y) if isinstance(x, Constant) else (y, x)
        if isinstance(flag, Constant):
            return mask if is_and == bool(flag.value) else flag
        if not isinstance(x, Mask) or not isinstance(y, Mask):
            raise Unsupported("bits of numbers")
        return Mask(self.emit(f"{x.text} {'&' if is_and else '|'} {y.text}", "bool"))

    def power(self, x: Value, y: Value) -> Value:
        """As pow_kernel (elementwise.cpp) runs it: squares and reciprocals are those."""
        if isinstance(y, Number):
            if self.equals(y, 2.0):
                return self.apply("mul", x, x)
            if self.equals(y, -1.0):
                return self.apply("reciprocal", x)
        return self.apply("pow", x, y)

    def equals(self, x: Number, value: float) -> bool:
        return (
            x.constant == value
            if x.constant is not None
            else self.decide(f"{x.text} == {literal(value)}")
        )

    def compare(self, op: type, x: Value, y: Value) -> Value:
        if op in (ast.Is, ast.IsNot):
            if not (isinstance(y, Constant) and y.value is None):
                raise Unsupported("is")
            if isinstance(x, Argument):
                none = self.decide(f"is_none(v[{x.index}])")
            else:
                none = isinstance(x, Constant) and x.value is None
            return Constant(none == (op is ast.Is))
        name, symbol = COMPARISONS[op]
        if (
            isinstance(x, Argument)
            and isinstance(y, Constant)
            and isinstance(y.value, str)
            and name in ("eq", "ne")
        ):
            return Constant(self.decide(f'is_text(v[{x.index}], "{y.value}")') == (name == "eq"))
        if isinstance(x, Number) and isinstance(y, Number):
            return Constant(self.decide(f"{x.text} {symbol} {y.text}"))
        return self.apply(name, x, y)

    # ---- calls

    def call(self, node: ast.Call, scope: Scope) -> Value:
        name = node.func.id  # type: ignore[attr-defined]
        if name == "is_complex":
            return Constant(False)  # plain operands are real
        args = [self.eval(a, scope) for a in node.args]
        named = {str(k.arg): self.eval(k.value, scope) for k in node.keywords}
        if name in scope.record.defs:
            return self.inline_definition(scope.record.defs[name], args, named, scope)
        if name in ("conj", "real") and isinstance(args[0], Tensor | Number | Zero):
            return args[0]
        if name == "zeros_like" and not named and isinstance(args[0], Tensor):
            return Tensor("T(0)")
        if name == "where":
            return self.where(*args)
        if any(isinstance(a, Zero) for a in [*args, *named.values()]):
            raise Unsupported("a zero gradient as an argument")
        if name == "clamp" and not named:
            return self.clamp(*args)
        if name == "pow":
            return self.power(*args)
        if name in ("gelu", "gelu_vjp"):
            return self.gelu(name, args, named)
        if name == "div":
            return self.divide(args, named)
        if name in ("add", "sub") and "alpha" in named:
            return self.scaled(name, *args, named["alpha"])
        name = RENAMED.get(name, name)
        if name in self.functions and not named:
            return self.apply(name, *args)
        record = self.records.get(name)
        if record is None or not record.decomp or record.result != "Tensor":
            raise Unsupported(name)
        return self.inline(record, args, named)

    def inline(self, record: Record, args: list[Value], named: dict[str, Value]) -> Value:
        values = dict(zip((p.name for p in record.params), args, strict=False)) | named
        for p in record.params:
            if p.name not in values:
                if p.default is None:
                    raise Unsupported(f"{record.name} without {p.name}")
                values[p.name] = self.eval(
                    ast.parse(p.default, mode="eval").body, Scope(record, {})
                )
        return self.formula(record.decomp, Scope(record, values))

    def inline_definition(
        self, made: Definition, args: list[Value], named: dict[str, Value], scope: Scope
    ) -> Value:
        values = dict(zip(made.params, args, strict=False)) | named
        around = None if made.shared else scope.around or scope
        return self.formula(made.text, Scope(scope.record, values, {}, around, made.shared))

    def where(self, condition: Value, x: Value, y: Value) -> Value:
        if isinstance(condition, Constant):
            return x if condition.value else y
        if not isinstance(condition, Mask):
            raise Unsupported("where on numbers")
        if isinstance(x, Zero) and isinstance(y, Zero):
            return ZERO
        x, y = (number(0.0) if isinstance(a, Zero) else a for a in (x, y))
        for a, b in ((x, y), (y, x)):
            # Of two numbers `where` makes a tensor of the default dtype: the value must fit any.
            if (
                isinstance(a, Number)
                and isinstance(b, Number)
                and a.constant not in (0.0, 0.5, 1.0)
            ):
                raise Unsupported("where of numbers")
        self.packed = False
        return Tensor(self.emit(f"{condition.text} ? {self.operand(x)} : {self.operand(y)}"))

    def clamp(self, x: Value, low: Value, high: Value) -> Value:
        if low == Constant(None):
            return self.apply("minimum", x, high)
        return (
            self.apply("maximum", x, low)
            if high == Constant(None)
            else self.apply("clamp", x, low, high)
        )

    def gelu(self, name: str, args: list[Value], named: dict[str, Value]) -> Value:
        approximate = named.get("approximate", Constant("none"))
        if self.truth(self.compare(ast.Eq, approximate, Constant("tanh"))):
            return self.apply(name.replace("gelu", "gelu_tanh"), *args)
        if not self.truth(self.compare(ast.Eq, approximate, Constant("none"))):
            raise Unsupported("approximate")  # core's call reports it
        return self.apply(name, *args)

    def divide(self, args: list[Value], named: dict[str, Value]) -> Value:
        mode = named.get("rounding_mode", Constant(None))
        if not isinstance(mode, Constant) or mode.value not in (None, "floor", "trunc"):
            raise Unsupported("rounding_mode")
        return self.apply("div" if mode.value is None else f"div_{mode.value}", *args)

    def scaled(self, name: str, x: Value, y: Value, alpha: Value) -> Value:
        if not isinstance(alpha, Number):
            raise Unsupported("alpha")
        return (
            self.apply(name, x, y)
            if self.equals(alpha, 1.0)
            else self.apply(f"{name}_alpha", x, y, alpha)
        )
