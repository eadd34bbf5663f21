"""Write (or, with --check, compare) the stubs of operators: signatures of all that records expose.

packages/core/src/rabbet/_ops.pyi has the functions of rabbet, then the methods that operators give to Tensor. Of a
module such as rabbet.special, which only records fill, the stub has the module's name; a module that is also written by
hand imports its operators from the stub _ops_of_MODULE, for type checkers only. NumPy's names of keywords stand beside the record's:
one that may be left out is a keyword of the same signature, one that is required makes an overload. The files are golden:
each change of the public surface shows in a diff.
"""

import sys
from itertools import product
from pathlib import Path

import rabbet
from rabbet import _C
from rabbet._signatures import extra_keywords

PACKAGES = Path(__file__).resolve().parent.parent / "packages"
CORE = PACKAGES / "core/src/rabbet"
# Names of types that no function or method here hides (there are operators `complex` and `all`).
TYPES = {
    "Tensor": "_Tensor", "Tensor[]": "_Sequence[_Tensor]", "Scalar": "_Number", "int": "_int", "float": "_float",
    "bool": "_bool", "str": "_str", "dtype": "_dtype", "device": "_Device", "Generator": "_Generator",
    "dim": "_int", "newdim": "_int", "dim[]": "_Ints", "perm": "_Ints", "size[]": "_Ints", "bsize[]": "_Ints",
    "int[]": "_Ints", "float[]": "_Sequence[_float]",
    "bool[]": "_Sequence[_bool]", "str[]": "_Sequence[_str]", "Scalar[]": "_Sequence[_Number]", "layout": "_layout",
    "callable": "_Callable[..., object]",
}  # fmt: skip
FIRST_LINE = '"""{}, written by tools/write_stubs.py from the records. Do not edit."""\n'
HEADER = """
from builtins import bool as _bool, complex as _complex, float as _float, int as _int, str as _str
from collections.abc import Callable as _Callable, Sequence as _Sequence
from typing import Literal as _Literal, NamedTuple as _NamedTuple, Self as _Self, TypeAlias as _TypeAlias, overload as _overload

from ._C import Generator as _Generator, Tensor as _Tensor, device as _device, dtype as _dtype
from ._C import layout as _layout, memory_format as _memory_format

_Number: _TypeAlias = _bool | _int | _float | _complex
_Device: _TypeAlias = _device | _str | _int
_Ints: _TypeAlias = _int | _Sequence[_int]
"""
KEYWORDS = {
    "requires_grad": "requires_grad: _bool = False",
    "pin_memory": "pin_memory: _bool = False",
    "layout": "layout: _layout | None = None",
    "memory_format": "memory_format: _memory_format | None = None",
    "out": "out: _Tensor | None = None",
}


# The other names of keywords that stubs show: those of NumPy.
NUMPY = ("axis", "keepdims", "x", "a", "a_min", "a_max", "ddof")


def other_names(info: dict, params: list[dict]) -> list[str]:
    """NumPy's names of a parameter, as far as no other parameter of the operator has them."""
    taken = {p["name"] for p in params}
    pairs = _C.keyword_aliases()
    names = [alias for alias, name in pairs if name == info["name"] and alias in NUMPY]
    return [name for name in names if name not in taken]


def parameter(info: dict, spread: bool, numbers: list[str]) -> str:
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
    keywords = [p for p in params if p["keyword_only"]]
    extra = [KEYWORDS[name] for name in extra_keywords(info, method, inplace)]
    numbers = info["numbers"]
    renamed = {p["name"]: other_names(p, info["params"]) for p in params}
    optional = [
        parameter({**p, "name": alias}, False, numbers)
        for p in params
        if p["has_default"]
        for alias in renamed[p["name"]]
    ]

    def way(names: tuple[str, ...], one_by_one: bool) -> str:
        """The parameters where the positional ones are called `names`; from another name on they are keywords."""
        parts = ["self"] if method else []
        is_keyword = False
        for p, name in zip(positional, names):
            if name != p["name"] and not is_keyword:
                parts.append("*")
                is_keyword = True
            parts.append(parameter({**p, "name": name}, one_by_one and p is last, numbers))
        rest = [parameter(p, False, numbers) for p in keywords] + extra + optional
        star = ["*"] * (bool(rest) and not one_by_one and not is_keyword)
        return ", ".join(parts + star + rest)

    own = tuple(p["name"] for p in positional)
    required = [[p["name"]] + ([] if p["has_default"] else renamed[p["name"]]) for p in positional]
    ways = [way(own, one_by_one) for one_by_one in ((False, True) if spreads else (False,))]
    return ways + [way(names, False) for names in product(*required) if names != own]


def signatures(name: str, op: object, method: bool, module: str = "") -> list[str]:
    """The lines of one name; overloads of one form are told apart by typing."""
    infos = [_C.op_info(r) for r in op.overloads]
    kind = "inplace" if op.inplace else "method" if method else "function"
    infos = [i for i in infos if (module in i["modules"] if module else i[kind])]
    # The general form comes last, as type checkers take the first that fits.
    infos.sort(key=lambda i: -len([p for p in i["params"] if not p["has_default"]]))
    found = []
    for info in infos:
        answer = "_Self" if op.inplace and method else result(info)
        for way in parameters(info, method, op.inplace):
            found.append(f"def {name}({way}) -> {answer}: ...")
    return found if len(found) == 1 else [line for way in found for line in ("@_overload", way)]


def tuples(ops: list[object]) -> list[str]:
    """The classes of several results."""
    found = {}
    for info in (_C.op_info(record) for op in ops for record in op.overloads):
        if len(info["rets"]) > 1:
            found[named_tuple(info)] = info["rets"]
    lines = []
    for name, fields in sorted(found.items()):
        lines += [f"class {name}(_NamedTuple):", *(f"    {f}: _Tensor" for f in fields), ""]
    return lines


def main_stub() -> str:
    """The stub of rabbet's own functions and methods."""
    names = sorted(_C.op_names())
    lines = [FIRST_LINE.format("Public operators") + HEADER, *tuples([_C.op(n) for n in names])]
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


def module_stub(module: str) -> str:
    """The stub of the operators that records expose in a module."""
    ops = _C.ops_of_module(module)
    first = FIRST_LINE.format(f"Operators of rabbet.{module}")
    lines = [first + HEADER.replace("from ._C", "from rabbet._C"), *tuples(list(ops.values()))]
    for name, op in ops.items():
        lines += signatures(name, op, False, module)
    return "\n".join(lines) + "\n"


def place(module: str) -> Path:
    """Where the stub of a module lies."""
    path = module.replace(".", "/")
    by_hand = [
        *PACKAGES.glob(f"*/src/rabbet/{path}.py"),
        *PACKAGES.glob(f"*/src/rabbet/{path}/*.py"),
    ]
    if by_hand:
        return CORE / f"_ops_of_{module.replace('.', '_')}.pyi"
    is_package = any(other.startswith(f"{module}.") for other in _C.op_modules())
    return CORE / (f"{path}/__init__.pyi" if is_package else f"{path}.pyi")


def main(arguments: list[str]) -> int:
    """Write the files; with --check, say which are out of date."""
    stubs = {CORE / "_ops.pyi": main_stub()}
    stubs |= {place(module): module_stub(module) for module in _C.op_modules()}
    old = [path for path, text in stubs.items() if not path.exists() or path.read_text() != text]
    old += sorted({*CORE.glob("_ops_of_*.pyi")} - {*stubs})
    if arguments == ["--check"]:
        for path in old:
            print(
                f"{path} is out of date: run tools/write_stubs.py and read the diff",
                file=sys.stderr,
            )
        return len(old) > 0
    for path in old:
        if path in stubs:
            path.parent.mkdir(exist_ok=True)
            path.write_text(stubs[path])
        else:
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
