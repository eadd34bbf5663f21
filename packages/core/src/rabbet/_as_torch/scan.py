"""`rabbet run --scan`: which torch names programs use, and which of them are missing."""

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from .. import _C
from .names import resolve
from .ops import OpOverload, OpOverloadPacket


class Use(NamedTuple):
    """A dotted torch name at one place in a file, and how the program uses it there.

    keywords: the arguments by name, where it is called.
    role: 'context' in a `with` statement, 'base' among the bases of a class, else ''.
    """

    name: str
    file: str
    line: int
    keywords: tuple[str, ...] = ()
    role: str = ""


class _Names(ast.NodeVisitor):
    """Collects torch names of one file: imports, and attributes of what they bind."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.bound: dict[str, str] = {}
        self.uses: list[Use] = []

    def _add(self, name: str, line: int, keywords: tuple[str, ...] = (), role: str = "") -> None:
        self.uses.append(Use(name, self.file, line, keywords, role))

    def _name_of(self, node: ast.expr) -> str | None:
        """The torch name that an expression is; None for any other."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Name) and node.id in self.bound:
            return ".".join([self.bound[node.id], *reversed(parts)])
        return None

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.name.split(".")[0] == "torch":
                self.bound[alias.asname or "torch"] = alias.name if alias.asname else "torch"
                self._add(alias.name, node.lineno)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level or (node.module or "").split(".")[0] != "torch":
            return
        for alias in node.names:
            name = f"{node.module}.{alias.name}" if alias.name != "*" else str(node.module)
            self._add(name, node.lineno)
            self.bound[alias.asname or alias.name] = name

    def visit_Attribute(self, node: ast.Attribute) -> None:
        name = self._name_of(node)
        if name is not None:
            self._add(name, node.lineno)
        else:
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = self._name_of(node.func)
        keywords = tuple(k.arg for k in node.keywords if k.arg is not None)
        if name is not None and keywords:
            self._add(name, node.lineno, keywords)
        self.generic_visit(node)

    def _visit_with(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            entered = item.context_expr
            called = entered.func if isinstance(entered, ast.Call) else entered
            name = self._name_of(called)
            if name is not None:
                self._add(name, entered.lineno, role="context" if called is not entered else "")
        self.generic_visit(node)

    visit_With = visit_AsyncWith = _visit_with

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for base in node.bases:
            plain = base.value if isinstance(base, ast.Subscript) else base
            name = self._name_of(plain)
            if name is not None:
                self._add(name, base.lineno, role="base")
        self.generic_visit(node)


def torch_names(source: str, file: str) -> list[Use]:
    """The torch names in a source text.

    Raises:
        SyntaxError: if the source is not valid Python.
    """
    tree = ast.parse(source, file)
    names = _Names(file)
    for node in ast.walk(
        tree
    ):  # imports first: a function may stand above the import that binds its names
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names.visit(node)
    imports, names.uses = names.uses, []
    names.visit(tree)
    return sorted({*imports, *names.uses}, key=lambda use: use.line)


def missing_part(name: str) -> str | None:
    """The shortest beginning of a dotted name that rabbet lacks; None if it has the whole name."""
    try:
        resolve(name)
    except (AttributeError, ImportError):
        parts = name.split(".")
        for count in range(2, len(parts) + 1):
            shorter = ".".join(parts[:count])
            try:
                resolve(shorter)
            except (AttributeError, ImportError):
                return shorter
    return None


def _refusal(name: str) -> str | None:
    """Why an existing name refuses to work; None if it works."""
    reason: str | None = getattr(resolve(name), "__refused__", None)
    return reason


def _accepted(found: Any) -> set[str] | None:
    """The names of a function's or class's arguments; None if it accepts any, or if they are unknown."""
    if isinstance(found, _C.Op):
        records = [_C.op_info(name) for name in found.overloads]
        return {p["name"] for record in records for p in record["params"]} | _OF_OPERATORS
    if isinstance(found, (OpOverload, OpOverloadPacket)):
        return None
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return {p.name for p in parameters if p.kind is not p.POSITIONAL_ONLY}


# Keywords that operators accept in addition to those of their schemas.
_OF_OPERATORS = {
    "out", "requires_grad", "pin_memory", "layout", "memory_format", "non_blocking", "device", "dtype", "generator",
    "axis", "axes", "keepdims", "x", "x1", "x2",
}  # fmt: skip


def _is_context(found: Any) -> bool | None:
    """Whether the result of a call is a context manager; None if unknown."""
    if isinstance(found, type):
        return hasattr(found, "__enter__")
    return False if isinstance(found, _C.Op) else None


def problem(use: Use) -> str | None:
    """What is wrong with a use of an existing name: a keyword, a `with` statement or a base class."""
    found = resolve(use.name)
    if getattr(found, "__refused__", None) is not None:
        return None  # reported for the name itself
    if use.keywords and callable(found):
        accepted = _accepted(found)
        unknown = [k for k in use.keywords if accepted is not None and k not in accepted]
        if unknown:
            return f"takes no argument {', '.join(unknown)}"
    if use.role == "context" and _is_context(found) is False:
        return "cannot be used in a `with` statement"
    if use.role == "base" and not (isinstance(found, type) and found.__flags__ & _CAN_BE_BASE):
        return "cannot be the base of a class"
    return None


_CAN_BE_BASE = 1 << 10  # Py_TPFLAGS_BASETYPE


def _python_files(paths: Iterable[str]) -> Iterator[Path]:
    for path in map(Path, paths):
        if path.is_dir():
            yield from sorted(path.rglob("*.py"))
        else:
            yield path


def main(paths: list[str]) -> int:
    """Print the report; 0 if nothing is missing, 1 if a name is, 2 if a file cannot be read."""
    uses: list[Use] = []
    failed = False
    for path in _python_files(paths):
        try:
            uses += torch_names(path.read_text(encoding="utf-8"), str(path))
        except (OSError, SyntaxError, ValueError) as error:
            print(f"rabbet run --scan: {path}: {error}", file=sys.stderr)
            failed = True
    names = {use.name for use in uses}
    missing: dict[str, list[Use]] = {}
    refused: dict[str, str] = {}
    wrong: dict[tuple[str, str], list[Use]] = {}
    for use in uses:
        part = missing_part(use.name)
        if part is not None:
            missing.setdefault(part, []).append(use)
        elif reason := _refusal(use.name):
            refused[use.name] = reason
        elif why := problem(use):
            wrong.setdefault((use.name, why), []).append(use)
    print(
        f"{len(names)} torch names, {len(missing)} missing, {len(refused)} that refuse to work, "
        f"{len(wrong)} used in a way that does not work"
    )
    for name in sorted(names):
        if name not in refused and missing_part(name) is None:
            print(f"  there    {name}")
    for name, reason in sorted(refused.items()):
        print(f"  refuses  {name}: {reason}")
    for (name, why), places in sorted(wrong.items()):
        print(f"  wrong    {name} {why} ({_where(places)})")
    for name, places in sorted(missing.items()):
        print(f"  missing  {name} ({_where(places)})")
    return 2 if failed else 1 if missing or wrong else 0


def _where(places: list[Use]) -> str:
    lines = {(use.file, use.line) for use in places}
    first = min(places, key=lambda use: use.line)
    return f"{first.file}:{first.line}" + (f", {len(lines)} uses" if len(lines) > 1 else "")
