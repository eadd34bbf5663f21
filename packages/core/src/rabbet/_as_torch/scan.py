"""`rabbet run --scan`: which torch names programs use, and which of them are missing."""

import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from .names import resolve


class Use(NamedTuple):
    """A dotted torch name where it stands in a file."""

    name: str
    file: str
    line: int


class _Names(ast.NodeVisitor):
    """Collects torch names of one file: imports, and attributes of what they bind."""

    def __init__(self) -> None:
        self.bound: dict[str, str] = {}
        self.uses: list[tuple[str, int]] = []

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.name.split(".")[0] == "torch":
                self.bound[alias.asname or "torch"] = alias.name if alias.asname else "torch"
                self.uses.append((alias.name, node.lineno))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level or (node.module or "").split(".")[0] != "torch":
            return
        for alias in node.names:
            name = f"{node.module}.{alias.name}" if alias.name != "*" else str(node.module)
            self.uses.append((name, node.lineno))
            self.bound[alias.asname or alias.name] = name

    def visit_Attribute(self, node: ast.Attribute) -> None:
        parts: list[str] = []
        root: ast.expr = node
        while isinstance(root, ast.Attribute):
            parts.append(root.attr)
            root = root.value
        if isinstance(root, ast.Name) and root.id in self.bound:
            self.uses.append((".".join([self.bound[root.id], *reversed(parts)]), node.lineno))
        else:
            self.visit(root)


def torch_names(source: str, file: str) -> list[Use]:
    """The torch names in a source text.

    Raises:
        SyntaxError: if it is no Python.
    """
    tree = ast.parse(source, file)
    names = _Names()
    for node in ast.walk(
        tree
    ):  # imports first: a function may stand above the import that binds its names
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names.visit(node)
    imports, names.uses = names.uses, []
    names.visit(tree)
    ordered = sorted({*imports, *names.uses}, key=lambda use: use[1])
    return [Use(name, file, line) for name, line in ordered]


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
    """Why a name that is there refuses to work."""
    reason: str | None = getattr(resolve(name), "__refused__", None)
    return reason


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
    for use in uses:
        part = missing_part(use.name)
        if part is not None:
            missing.setdefault(part, []).append(use)
        elif reason := _refusal(use.name):
            refused[use.name] = reason
    print(f"{len(names)} torch names, {len(missing)} missing, {len(refused)} that refuse to work")
    for name in sorted(names):
        if name not in refused and missing_part(name) is None:
            print(f"  there    {name}")
    for name, reason in sorted(refused.items()):
        print(f"  refuses  {name}: {reason}")
    for name, places in sorted(missing.items()):
        first = places[0]
        count = f", {len(places)} uses" if len(places) > 1 else ""
        print(f"  missing  {name} ({first.file}:{first.line}{count})")
    return 2 if failed else 1 if missing else 0
