"""Write (or, with --check, compare) packages/core/src/rabbet/_ops.pyi: signatures of all public operators.

Functions first, then the methods that operators give to Tensor. The file is golden: each change of the public surface
shows in a diff.
"""

import sys
from pathlib import Path

import rabbet
from rabbet import _C
from rabbet._signatures import extra_keywords

TARGET = Path(__file__).resolve().parent.parent / "packages/core/src/rabbet/_ops.pyi"
# Names of types that no function or method here hides (there are operators `complex` and `all`).
TYPES = {
    "Tensor": "_Tensor", "Tensor[]": "_Sequence[_Tensor]", "Scalar": "_Number", "int": "_int", "float": "_float",
    "bool": "_bool", "str": "_str", "dtype": "_dtype", "device": "_Device", "Generator": "_Generator",
    "dim": "_int", "newdim": "_int", "dim[]": "_Ints", "perm": "_Ints", "size[]": "_Ints", "bsize[]": "_Ints",
    "int[]": "_Ints", "float[]": "_Sequence[_float]",
    "bool[]": "_Sequence[_bool]", "str[]": "_Sequence[_str]", "Scalar[]": "_Sequence[_Number]", "layout": "_layout",
    "callable": "_Callable[..., object]",
}  # fmt: skip
HEADER = '''"""Public operators, written by tools/write_stubs.py from the records. Do not edit."""

from builtins import bool as _bool, complex as _complex, float as _float, int as _int, str as _str
from collections.abc import Callable as _Callable, Sequence as _Sequence
from typing import Literal as _Literal, NamedTuple as _NamedTuple, Self as _Self, TypeAlias as _TypeAlias, overload as _overload

from ._C import Generator as _Generator, Tensor as _Tensor, device as _device, dtype as _dtype
from ._C import layout as _layout, memory_format as _memory_format

_Number: _TypeAlias = _bool | _int | _float | _complex
_Device: _TypeAlias = _device | _str | _int
_Ints: _TypeAlias = _int | _Sequence[_int]
'''
KEYWORDS = {
    "requires_grad": "requires_grad: _bool = False",
    "pin_memory": "pin_memory: _bool = False",
    "layout": "layout: _layout | None = None",
    "memory_format": "memory_format: _memory_format | None = None",
    "out": "out: _Tensor | None = None",
}


def parameter(info: dict, spread: bool, numbers: bool) -> str:
    """One parameter with its annotation and default; `spread` ints or tensors come one by one."""
    kind = TYPES[info["type"]]
    if info["choices"]:
        kind = f"_Literal[{', '.join(repr(choice) for choice in info['choices'])}]"
    if numbers and info["type"] == "Tensor":
        kind = "_Tensor | _Number"
    if info["type"] == "Tensor[]" and info["name"] == "indices":
        kind = "_Sequence[_Tensor | None]"
    name = info["name"] + "_" if info["name"] in ("from", "lambda") else info["name"]
    if spread:
        return f"*{name}: {'_Tensor' if info['type'] == 'Tensor[]' else '_int'}"
    if info["optional"]:
        kind += " | None"
    return f"{name}: {kind}" + (f" = {info['default']!r}" if info["has_default"] else "")


def named_tuple(info: dict) -> str:
    """The name of the class of several results."""
    return "_" + "".join(r.capitalize() for r in info["rets"])


def result(info: dict) -> str:
    """The annotation of the result."""
    if info["returns_list"]:
        return "tuple[_Tensor, ...]"
    if not info["rets"]:
        return "None"
    return "_Tensor" if len(info["rets"]) == 1 else named_tuple(info)


def parameters(info: dict, method: bool, inplace: bool) -> list[str]:
    """The ways to pass the parameters, with those that every operator of the kind takes."""
    params = list(info["params"])
    if method:  # the tensor itself; `where` alone has it second
        params.remove(next((p for p in params if p["name"] == "input"), params[0]))
    positional = [p for p in params if not p["keyword_only"]]
    tensors = [p for p in info["params"] if not p["keyword_only"] and p["type"] == "Tensor"]
    alone = len(positional) == 1 if method else len(positional) - len(tensors[:1]) == 1
    last = positional[-1] if positional else None
    spreads = alone and not last["has_default"] and TYPES[last["type"]] == "_Ints"
    spreads = spreads or (last is not None and f"*{last['name']}" in info["schema"])
    extra = [KEYWORDS[name] for name in extra_keywords(info, method, inplace)]
    numbers = info["numbers"]
    ways = []
    for one_by_one in (False, True) if spreads else (False,):
        parts = ["self"] if method else []
        parts += [parameter(p, one_by_one and p is last, numbers) for p in positional]
        rest = [parameter(p, False, numbers) for p in params if p["keyword_only"]] + extra
        ways.append(", ".join(parts + ["*"] * (bool(rest) and not one_by_one) + rest))
    return ways


def signatures(name: str, op: object, method: bool) -> list[str]:
    """The lines of one name; overloads of one form are told apart by typing."""
    infos = [_C.op_info(r) for r in op.overloads]
    kind = "inplace" if op.inplace else "method" if method else "function"
    infos = [i for i in infos if i[kind]]
    # The general form comes last, as type checkers take the first that fits.
    infos.sort(key=lambda i: -len([p for p in i["params"] if not p["has_default"]]))
    found = []
    for info in infos:
        answer = "_Self" if op.inplace and method else result(info)
        for way in parameters(info, method, op.inplace):
            found.append(f"def {name}({way}) -> {answer}: ...")
    return found if len(found) == 1 else [line for way in found for line in ("@_overload", way)]


def text() -> str:
    """The whole stub."""
    names = sorted(_C.op_names())
    tuples = {}
    for name in names:
        for info in map(_C.op_info, _C.op(name).overloads):
            if len(info["rets"]) > 1:
                tuples[named_tuple(info)] = info["rets"]
    lines = [HEADER]
    for name, fields in sorted(tuples.items()):
        lines += [f"class {name}(_NamedTuple):", *(f"    {f}: _Tensor" for f in fields), ""]
    for name in names:
        lines += signatures(name, _C.op(name), False)
    for name in sorted(rabbet._WRITING):
        if isinstance(op := getattr(rabbet, name), _C.Op):
            lines += signatures(name, op, False)
    lines += ["", "class Methods:", '    """What operators give to Tensor."""', ""]
    for name, op in sorted(vars(_C.Tensor).items()):
        if isinstance(op, _C.Op):
            lines += ["    " + line for line in signatures(name, op, True)]
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
