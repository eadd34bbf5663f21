"""Op records (packages/core/ops/*.rec) as far as their elementwise formulas need them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Param:
    type: str
    name: str
    default: str | None


@dataclass
class Record:
    name: str
    schema: str
    params: list[Param]
    result: str
    kind: str
    lets: list[tuple[str, str]] = field(default_factory=list)
    vjps: list[tuple[str, str]] = field(default_factory=list)
    decomp: str = ""

    def text(self, formula: str) -> str:
        """What core compares with its own record (formula_text in formula_kernel.cpp)."""
        lets = "".join(f"let {name} = {value}\n" for name, value in self.lets)
        return f"{self.schema}\n{lets}{formula}\n"


def split(text: str) -> list[str]:
    """Split at commas outside brackets."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([") - (c in ")]")
        if c == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    return [*parts, text[start:].strip()] if text.strip() else []


def read_param(text: str) -> Param:
    declared, _, default = text.partition("=")
    kind, _, name = declared.strip().rpartition(" ")
    return Param(kind, name, default or None)


def read_records(folder: Path) -> dict[str, Record]:
    records: dict[str, Record] = {}
    for path in sorted(folder.glob("*.rec")):
        record, family = None, ""
        for line in path.read_text().splitlines():
            text = line.strip()
            if text.startswith("family kind "):
                family = text.split()[-1]
            if not text or text.startswith(("#", "family ")):
                continue
            if not line[0].isspace():
                match = re.fullmatch(r"([\w.:]+)\((.*)\)\s*->\s*(.+)", text)
                if not match:
                    raise SystemExit(f"{path.name}: cannot read '{text}'")
                params = [read_param(p) for p in split(match[2]) if p != "*"]
                record = Record(match[1], text, params, match[3].strip(), family)
                records[match[1]] = record
                continue
            key, _, value = text.partition(" ")
            value = value.strip()
            if record is None:
                raise SystemExit(f"{path.name}: a field before the first record: '{text}'")
            if key == "let":
                name, _, formula = value.partition("=")
                record.lets.append((name.strip(), formula.strip()))
            elif key == "vjp":
                name, _, formula = value.partition(" ")
                record.vjps.append((name, formula.strip()))
            elif key == "kind":
                record.kind = value
            elif key == "decomp":
                record.decomp = value
    return records


def read_functions(path: Path) -> dict[str, str]:
    """The scalar functions by name, with their list: UNARY, TEST, BINARY, COMPARE or TERNARY."""
    functions = {}
    for kind, body in re.findall(r"#define RB_([A-Z]+)\(X\)((?:.*\\\n)*.*)", path.read_text()):
        functions.update(dict.fromkeys(re.findall(r"X\((\w+)\)", body), kind))
    return functions
