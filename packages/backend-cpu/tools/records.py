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
class Definition:
    """`def NAME(PARAMS) = TEXT`; `shared`: of the file, it sees nothing of a record."""

    name: str
    params: list[str]
    text: str
    shared: bool


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
    defs: dict[str, Definition] = field(default_factory=dict)

    def text(self, formula: str) -> str:
        """What core compares with its own record (formula_text in formula_kernel.cpp)."""
        lets = "".join(f"let {name} = {value}\n" for name, value in self.lets)
        body = f"{lets}{formula}\n"
        used: dict[str, Definition] = {}
        known, size = body, -1
        while len(known) != size:  # also those that others use
            size = len(known)
            for d in self.defs.values():
                if d.name not in used and re.search(rf"\b{d.name}\(", known):
                    used[d.name] = d
                    known += d.text
        defs = "".join(
            f"def {d.name}({', '.join(d.params)}) = {d.text}\n" for _, d in sorted(used.items())
        )
        return f"{self.schema}\n{defs}{body}"


def split(text: str) -> list[str]:
    """Split at commas outside brackets."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    return [*parts, text[start:].strip()] if text.strip() else []


def read_param(text: str) -> Param:
    declared, _, default = text.partition("=")
    kind, _, name = declared.strip().rpartition(" ")
    return Param(re.sub(r"\{.*\}", "", kind), name, default or None)


def read_definition(text: str, shared: bool) -> Definition:
    match = re.fullmatch(r"(\w+)\s*\(([^)]*)\)\s*=\s*(.+)", text)
    if not match:
        raise SystemExit(f"cannot read 'def {text}'")
    return Definition(match[1], split(match[2]), match[3].strip(), shared)


def read_lines(path: Path) -> list[tuple[bool, str]]:
    """The lines, whether each is indented; one indented deeper continues the line above."""
    lines: list[tuple[int, str]] = []
    for raw in path.read_text().splitlines():
        text = raw.strip()
        if not text or text.startswith("#"):
            continue
        indent = len(raw) - len(raw.lstrip())
        above, before = lines[-1] if lines else (0, "")
        open_line = above or before.startswith("def ") or "->" not in before
        if lines and open_line and indent > above and not before.startswith("family "):
            lines[-1] = (above, f"{before} {text}")
        else:
            lines.append((indent, text))
    return [(indent > 0, text) for indent, text in lines]


def read_records(folder: Path) -> dict[str, Record]:
    records: dict[str, Record] = {}
    for path in sorted(folder.glob("*.rec")):
        record, family = None, ""
        shared: dict[str, Definition] = {}
        own: list[Record] = []
        for is_field, text in read_lines(path):
            if not is_field:
                if text.startswith("family kind "):
                    family = text.split()[-1]
                    continue
                if text.startswith("def "):
                    made = read_definition(text[4:], True)
                    shared[made.name] = made
                    continue
                match = re.fullmatch(r"([\w.:]+)\((.*)\)\s*->\s*(.+)", text)
                if not match:
                    raise SystemExit(f"{path.name}: cannot read '{text}'")
                params = [read_param(p) for p in split(match[2]) if p != "*"]
                record = Record(match[1], text, params, match[3].strip(), family)
                records[match[1]] = record
                own.append(record)
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
            elif key == "def":
                made = read_definition(value, False)
                record.defs[made.name] = made
        for record in own:
            record.defs = record.defs | shared
    return records


def read_functions(path: Path) -> dict[str, str]:
    """The scalar functions by name, with their list: UNARY, TEST, BINARY, COMPARE or TERNARY."""
    functions = {}
    for kind, body in re.findall(r"#define RB_([A-Z]+)\(X\)((?:.*\\\n)*.*)", path.read_text()):
        functions.update(dict.fromkeys(re.findall(r"X\((\w+)\)", body), kind))
    return functions
