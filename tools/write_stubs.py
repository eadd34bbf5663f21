"""Write (or, with --check, compare) packages/core/src/rabbet/_ops.pyi: signatures of all public operators.

The file is golden: each change of the public surface shows in a diff.
"""

import sys
from pathlib import Path

from rabbet import _C

TARGET = Path(__file__).resolve().parent.parent / "packages/core/src/rabbet/_ops.pyi"
TYPES = {
    "Tensor": "Tensor", "Tensor[]": "Sequence[Tensor]", "Scalar": "Number", "int": "int", "float": "float",
    "bool": "builtins.bool", "str": "str", "dtype": "dtype", "device": "Device", "Generator": "Generator",
    "dim": "int", "newdim": "int", "dim[]": "int | Sequence[int]", "perm": "int | Sequence[int]",
    "size[]": "int | Sequence[int]", "bsize[]": "int | Sequence[int]", "int[]": "int | Sequence[int]",
    "float[]": "Sequence[float]",
}  # fmt: skip
HEADER = '''"""Public operators, written by tools/write_stubs.py from the records. Do not edit."""

import builtins
from collections.abc import Sequence
from typing import Any, TypeAlias, overload

from ._C import Generator, Tensor, device, dtype

Number: TypeAlias = builtins.bool | int | float | complex
Device: TypeAlias = device | str | int
'''


def parameter(info: dict, elementwise: bool) -> str:
    """One parameter with its annotation and default."""
    kind = TYPES[info["type"]]
    if elementwise and info["type"] == "Tensor":
        kind = "Tensor | Number"
    if info["optional"]:
        kind += " | None"
    name = info["name"] + "_" if info["name"] in ("from", "lambda") else info["name"]
    return f"{name}: {kind}" + (f" = {info['default']!r}" if info["has_default"] else "")


def result(info: dict) -> str:
    """The annotation of the result."""
    if info["returns_list"]:
        return "tuple[Tensor, ...]"
    count = len(info["rets"])
    return (
        "Tensor"
        if count == 1
        else "None"
        if count == 0
        else f"tuple[{', '.join(['Tensor'] * count)}]"
    )


def function(name: str, info: dict, several: bool) -> list[str]:
    """The lines of one signature."""
    parts, keyword_only = [], False
    elementwise = info["kind"] == "elementwise"
    for p in info["params"]:
        if p["keyword_only"] and not keyword_only:
            parts.append("*")
            keyword_only = True
        parts.append(parameter(p, elementwise))
    parts += [] if keyword_only else ["*"]
    parts.append("out: Any = None")
    lines = ["@overload"] if several else []
    return [*lines, f"def {name}({', '.join(parts)}) -> {result(info)}: ..."]


def text() -> str:
    """The whole stub."""
    lines = [HEADER]
    public = set(_C.op_names())
    for name in sorted(public):
        infos = [_C.op_info(r) for r in _C.op(name).overloads]
        infos = [i for i in infos if i["function"]]
        for info in infos:
            lines += function(name, info, len(infos) > 1)
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """Write the file; with --check, say whether it is up to date."""
    if arguments == ["--check"]:
        if TARGET.read_text() == text():
            return 0
        print(
            f"{TARGET} is out of date: run tools/write_stubs.py and read the diff", file=sys.stderr
        )
        return 1
    TARGET.write_text(text())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
