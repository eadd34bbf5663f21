"""Reads the text of a graph."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from .. import _C
from .._C import Tensor
from ._graph import Graph
from ._ir import INPUT_KINDS, Buffer, Call, Gradient, GraphError, If, Node, Object, Value, While
from ._sizes import (
    RELATIONS,
    Constraint,
    Size,
    Symbol,
    binary,
    const,
    function,
    is_function,
    symbol,
)

_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\r]+|\#[^\n]*)
  | (?P<line>\n)
  | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
  | (?P<value>%[A-Za-z0-9_]+)
  | (?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?)
  | (?P<word>[A-Za-z_][\w.]*(?:::[\w.]+)*)
  | (?P<mark>\*\*|//|==|!=|<=|>=|[-+*/%(){}\[\],:=<>?@])
    """,
    re.VERBOSE,
)
_LEVELS = {"+": 1, "-": 1, "*": 2, "//": 2, "/": 2, "%": 2, "**": 4}
_WORDS: dict[str, Any] = {
    "None": None,
    "True": True,
    "False": False,
    "inf": float("inf"),
    "nan": float("nan"),
}


class ParseError(GraphError):
    """Raised for text that is not a valid graph. The message gives the line and column."""


class _Tokens:
    """The text as tokens, with the place of each."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.items: list[tuple[str, str, int]] = []
        at = 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                self.fail_at(at, f"unexpected character {text[at]!r}")
            kind = str(match.lastgroup)
            if kind not in ("space", "line"):
                self.items.append((kind, match.group(), at))
            at = match.end()
        self.items.append(("end", "the end of the text", len(text)))
        self.at = 0

    def fail_at(self, offset: int, message: str) -> NoReturn:
        line = self.text.count("\n", 0, offset) + 1
        column = offset - (self.text.rfind("\n", 0, offset) + 1) + 1
        shown = [*self.text.splitlines(), ""][line - 1].strip()
        raise ParseError(f"line {line}, column {column}: {message}\n  {shown}")

    def fail(self, expected: str) -> NoReturn:
        self.fail_at(self.items[self.at][2], f"expected {expected}, got {self.peek()}")

    def peek(self) -> str:
        return self.items[self.at][1]

    @property
    def kind(self) -> str:
        return self.items[self.at][0]

    def take(self) -> str:
        kind, text, _ = self.items[self.at]
        if kind == "end":
            self.fail("more text")
        self.at += 1
        return text

    def accept(self, text: str) -> bool:
        if self.kind != "string" and self.peek() == text:
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            self.fail(f"'{text}'")

    def of_kind(self, kind: str, what: str) -> str:
        if self.kind != kind:
            self.fail(what)
        return self.take()

    def string(self, what: str = "a string") -> str:
        text = self.of_kind("string", what)
        try:
            return str(json.loads(text if text[0] == '"' else f'"{text[1:-1]}"'))
        except json.JSONDecodeError:
            self.at -= 1
            self.fail(what)

    def integer(self, what: str = "a whole number") -> int:
        negative = self.accept("-")
        text = self.of_kind("number", what)
        if not text.isdigit():
            self.at -= 1
            self.fail(what)
        return -int(text) if negative else int(text)


class _Parser:
    """Reads one graph; graphs inside of it have parsers of their own over the same tokens."""

    def __init__(self, tokens: _Tokens) -> None:
        self.tokens = tokens
        self.values: dict[str, Value] = {}
        self.graph = Graph()

    # ---- expressions

    def size(self, level: int = 0) -> Size:
        left = self.size_operand()
        while self.tokens.kind == "mark" and _LEVELS.get(self.tokens.peek(), 0) > level:
            op = self.tokens.take()
            right = self.size(_LEVELS[op] if op != "**" else 3)
            left = (
                binary(op, left, right) if "const" in (left.op, right.op) else Size(op, left, right)
            )
        return left

    def size_operand(self) -> Size:
        t = self.tokens
        if t.accept("("):
            inner = self.size()
            t.expect(")")
            return inner
        if t.kind == "number" or t.peek() == "-":
            number = self.number()
            return const(number)
        word = t.of_kind("word", "a size")
        if word == "dim":
            t.expect("(")
            value = self.value()
            t.expect(",")
            d = t.integer("a dimension")
            t.expect(")")
            return Size("dim", value, d)
        if t.peek() == "(" and is_function(word):
            t.expect("(")
            args = [self.size()]
            while t.accept(","):
                args.append(self.size())
            t.expect(")")
            return function(word, *args)
        if word not in self.graph.symbols:
            t.at -= 1
            t.fail(f"a symbol of the graph ({', '.join(self.graph.symbols) or 'it has none'})")
        return symbol(word)

    def number(self) -> Any:
        t = self.tokens
        negative = t.accept("-")
        if t.kind == "word" and t.peek() in ("inf", "nan"):
            number: Any = _WORDS[t.take()]
        else:
            text = t.of_kind("number", "a number")
            number = int(text) if text.isdigit() else float(text)
        return -number if negative else number

    # ---- arguments

    def value(self) -> Value:
        name = self.tokens.of_kind("value", "a value")[1:]
        if name not in self.values:
            self.tokens.at -= 1
            self.tokens.fail("a value that is defined before")
        return self.values[name]

    def argument(self) -> Any:
        t = self.tokens
        if t.kind == "value":
            return self.value()
        if t.kind == "string":
            return t.string()
        if t.kind == "number" or t.peek() == "-":
            return self.number()
        if t.accept("["):
            return self.arguments("]")
        if t.accept("{"):
            size = self.size()
            t.expect("}")
            return size
        word = t.of_kind("word", "an argument")
        if word in _WORDS:
            return _WORDS[word]
        if word == "complex":
            t.expect("(")
            real = self.number()
            t.expect(",")
            imag = self.number()
            t.expect(")")
            return complex(real, imag)
        if word in ("device", "layout", "object"):
            t.expect("(")
            text = t.string()
            t.expect(")")
            return self.named(word, text)
        return self.dtype(word)

    def named(self, word: str, text: str) -> Any:
        t = self.tokens
        if word == "object":
            return Object(text)
        try:
            return _C.device(text) if word == "device" else getattr(_C, text)
        except (RuntimeError, AttributeError, ValueError):
            t.at -= 2
            t.fail(f"a {word}")

    def dtype(self, word: str) -> _C.dtype:
        if word not in _C.dtype_names():
            self.tokens.at -= 1
            self.tokens.fail("an argument or a dtype")
        found: _C.dtype = getattr(_C, word)
        return found

    def arguments(self, end: str) -> list[Any]:
        found: list[Any] = []
        while not self.tokens.accept(end):
            if found:
                self.tokens.expect(",")
            found.append(self.argument())
        return found

    # ---- values

    def declaration(self, node: Node | None, kind: str = "made") -> Value:
        t = self.tokens
        name = t.of_kind("value", "a value")[1:]
        if name in self.values:
            t.at -= 1
            t.fail("a name that is new")
        t.expect(":")
        dtype = self.dtype(t.of_kind("word", "a dtype"))
        t.expect("[")
        shape: list[Size | None] = []
        hints: list[int | None] = []
        while not t.accept("]"):
            if shape:
                t.expect(",")
            if t.accept("?"):
                shape.append(None)
                hints.append(t.integer() if t.kind == "number" else None)
                continue
            start = t.at
            size = self.size() if not self.is_later_symbol() else symbol(t.take())
            if size.needs_run():
                t.at = start
                t.fail("a size of symbols and numbers")
            shape.append(size)
            hints.append(None)
        device = _C.device(t.string()) if t.accept("on") else _C.device("cpu")
        buffer = self.value().buffer if t.accept("of") else Buffer(kind)
        made = Value(name, dtype, shape, device, buffer, node=node, kind=kind)
        self.values[name] = made
        self.hints[made] = hints
        return made

    hints: dict[Value, list[int | None]]

    def is_later_symbol(self) -> bool:
        """Whether the size is a symbol that the lines behind the inputs declare."""
        t = self.tokens
        if t.kind != "word" or t.peek() in self.graph.symbols or is_function(t.peek()):
            return False
        return t.items[t.at + 1][1] in (",", "]") and t.peek() != "dim"

    def set_hints(self) -> None:
        symbols = {s.name: s.hint for s in self.graph.symbols.values()}
        for value, hints in self.hints.items():
            known = [
                hint if size is None else size.evaluate(symbols)
                for size, hint in zip(value.shape, hints, strict=True)
            ]
            if None not in known:
                value.hint = tuple(int(n) for n in known if n is not None)

    # ---- lines

    def read_graph(self, word: str) -> Graph:
        t = self.tokens
        self.hints = {}
        t.expect(word)
        self.graph.name = t.string("the graph's name")
        t.expect("{")
        while True:
            if t.accept("return"):
                break
            self.line()
        if not t.accept("}"):
            self.graph.outputs = [self.argument()]
            while t.accept(","):
                self.graph.outputs.append(self.argument())
            t.expect("}")
        undeclared = {
            leaf.args[0]
            for value in self.values.values()
            for size in value.shape
            if size is not None
            for leaf in size.leaves()
        } - self.graph.symbols.keys()
        if undeclared:
            raise ParseError(
                f"graph '{self.graph.name}': no line declares the symbol {', '.join(sorted(undeclared))}"
            )
        self.set_hints()
        return self.graph

    def line(self) -> None:
        t = self.tokens
        word = t.peek() if t.kind == "word" else ""
        if word in INPUT_KINDS and t.items[t.at + 1][0] == "value":
            t.take()
            self.input(word)
        elif word == "symbol" and t.items[t.at + 1][0] == "word":
            t.take()
            self.symbol()
        elif word == "require":
            t.take()
            self.require()
        elif word == "training":
            t.take()
            self.graph.training = bool(self.argument())
        elif word == "opaque":
            t.take()
            t.expect("@")
            self.graph.opaque = t.string()
        elif word == "gradient" and t.items[t.at + 1][0] == "value":
            t.take()
            value = self.value()
            t.expect("=")
            gradient = None if t.accept("None") else self.value()
            self.graph.gradients.append(Gradient(value, gradient, t.accept("replaces")))
        else:
            self.node()

    def input(self, kind: str) -> None:
        t = self.tokens
        value = self.declaration(None, kind)
        if t.kind == "string":
            value.label = t.string()
        value.transient = t.accept("transient")
        if t.accept("strides"):
            t.expect("[")
            value.strides = tuple(int(n) for n in self.arguments("]"))
        self.graph.inputs.append(value)

    def symbol(self) -> None:
        t = self.tokens
        name = t.of_kind("word", "the symbol's name")
        if name in self.graph.symbols:
            t.at -= 1
            t.fail("a new symbol")
        t.expect("=")
        hint = t.integer()
        t.expect("in")
        t.expect("[")
        low = t.integer()
        t.expect(",")
        high = None if t.accept("inf") else t.integer()
        t.expect("]")
        origin = None
        if t.accept("is"):
            t.expect("dim")
            t.expect("(")
            value = self.value()
            t.expect(",")
            origin = (value, t.integer("a dimension"))
            t.expect(")")
        self.graph.symbols[name] = Symbol(name, hint, low, high, origin)

    def require(self) -> None:
        t = self.tokens
        left = self.size()
        relation = t.take()
        if relation not in RELATIONS:
            t.at -= 1
            t.fail(f"a relation ({' '.join(RELATIONS)})")
        right = self.size()
        source = t.string() if t.accept("@") else None
        self.graph.constraints.append(Constraint(left, relation, right, source))

    def declared_results(self, placeholder: Node) -> list[Any]:
        t = self.tokens
        if t.accept("["):
            items: list[Value] = []
            while not t.accept("]"):
                if items:
                    t.expect(",")
                items.append(self.declaration(placeholder))
            return [items]
        if t.accept("("):
            results: list[Any] = []
            while not t.accept(")"):
                if results:
                    t.expect(",")
                results += self.declared_results(placeholder)
            return results
        return [self.declaration(placeholder)]

    def node(self) -> None:
        t = self.tokens
        outs: list[Value] = []
        results: list[Any] = []
        made: list[Value] = []
        before = set(self.values)
        holder = Node("", ())
        if t.accept("write"):
            outs.append(self.value())
            while t.accept(","):
                outs.append(self.value())
            t.expect("=")
        elif t.kind == "value" or t.peek() in ("(", "["):
            results = self.declared_results(holder)
            t.expect("=")
            made = [self.values[name] for name in self.values if name not in before]
        hidden = {
            value.name: self.values.pop(value.name) for value in made
        }  # not its own arguments
        op = t.of_kind("word", "an operator")
        carried = t.integer() if op == "while" else 0
        t.expect("(")
        args = self.arguments(")")
        grad = not t.accept("nograd")
        source = t.string() if t.accept("@") else None
        node = self.made_node(op, args, outs, carried, grad, source)
        self.values.update(hidden)
        node.results = results
        for value in made:
            value.node = node
        self.graph.nodes.append(node)

    def made_node(
        self,
        op: str,
        args: list[Any],
        outs: list[Value],
        carried: int,
        grad: bool,
        source: str | None,
    ) -> Node:
        if op not in ("if", "while", "call") or not self.tokens.accept("{"):
            return Node(op, args, outs=outs, grad=grad, source=source)
        roles = {"if": If, "while": While, "call": Call}[op].roles  # type: ignore[attr-defined]
        graphs = []
        for role in roles:
            graphs.append(_Parser(self.tokens).read_graph(role))
        self.tokens.expect("}")
        if op == "if":
            return If(graphs, args, grad=grad, source=source)
        if op == "while":
            return While(graphs, args, carried, grad=grad, source=source)
        return Call(graphs, args, grad=grad, source=source)


def parse(
    text: str,
    tensors: Mapping[str, Tensor] | None = None,
    objects: Mapping[str, Any] | None = None,
) -> Graph:
    """Read the text of a graph.

    Args:
        text: as `str(graph)` writes it.
        tensors: parameters, buffers and constants by label; they can be bound later (`Graph.bind`).
        objects: what `object("name")` stands for.

    Raises:
        ParseError: with line, column, what was expected and what was found.
    """
    if not isinstance(text, str):
        raise TypeError(f"parse: expected the text of a graph, got {type(text).__name__}")
    tokens = _Tokens(text)
    graph = _Parser(tokens).read_graph("graph")
    if tokens.kind != "end":
        tokens.fail("the end of the text")
    graph.objects.update(objects or {})
    if tensors:
        graph.bind(tensors)
    return graph
