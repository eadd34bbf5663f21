"""Signatures of operators as Python's functions have them: `inspect.signature`, annotations and defaults.

They follow from the records; the operators' attributes `__signature__`, `__annotations__`, `__defaults__` and
`__kwdefaults__` ask here.
"""

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from inspect import Parameter, Signature
from types import GenericAlias
from typing import Any, Literal

from . import _C
from ._C import Op, Tensor

_Number = bool | int | float | complex
_Device = _C.device | str | int
_Ints = int | Sequence[int]
_TYPES: dict[str, Any] = {
    "Tensor": Tensor, "Tensor[]": Sequence[Tensor], "Scalar": _Number, "int": int, "float": float, "bool": bool,
    "str": str, "dtype": _C.dtype, "device": _Device, "Generator": _C.Generator, "dim": int, "newdim": int,
    "dim[]": _Ints, "perm": _Ints, "size[]": _Ints, "bsize[]": _Ints, "int[]": _Ints, "float[]": Sequence[float],
    "bool[]": Sequence[bool], "str[]": Sequence[str], "Scalar[]": Sequence[_Number], "layout": _C.layout,
    "callable": Callable[..., object],
}  # fmt: skip
# Keywords that no record mentions.
_EXTRAS: dict[str, tuple[Any, Any]] = {
    "requires_grad": (bool, False),
    "pin_memory": (bool, False),
    "layout": (_C.layout | None, None),
    "memory_format": (_C.memory_format | None, None),
    "out": (Tensor | None, None),
}


def extra_keywords(info: dict[str, Any], method: bool, inplace: bool) -> list[str]:
    """The keywords that a call of a record takes beside its schema."""
    creation = info["creation"] and not inplace
    names = ["requires_grad", "pin_memory", "layout"] if creation else []
    names += ["memory_format"] if info["memory_format"] and not inplace else []
    return names + (["out"] if len(info["rets"]) == 1 and not (method or inplace) else [])


def _annotation(parameter: dict[str, Any], numbers: list[str]) -> Any:
    kind = _TYPES[parameter["type"]]
    if parameter["choices"]:
        kind = Literal[tuple(parameter["choices"])]
    if parameter["name"] in numbers:
        kind = Tensor | _Number
    return kind | None if parameter["optional"] else kind


def _parameters(op: Op, info: dict[str, Any]) -> list[Parameter]:
    """The parameters of one record; `from` is spelled `from_`."""
    made = []
    for p in info["params"]:
        name = p["name"] + "_" if p["name"] in ("from", "lambda") else p["name"]
        kind = Parameter.KEYWORD_ONLY if p["keyword_only"] else Parameter.POSITIONAL_OR_KEYWORD
        default = p["default"] if p["has_default"] else Parameter.empty
        annotation = _annotation(p, info["numbers"])
        made.append(Parameter(name, kind, default=default, annotation=annotation))
    if op.self_index:
        made.insert(0, made.pop(op.self_index))
    for name in extra_keywords(info, op.self_index > 0, op.inplace):
        annotation, default = _EXTRAS[name]
        made.append(Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation))
    return made


def _joined(forms: list[list[Parameter]]) -> list[Parameter]:
    """Parameters that take the calls of all forms: those that a form lacks or may leave out have a default."""
    by_name: dict[str, list[Parameter]] = {}
    longest = max(map(len, forms))
    for i in range(longest):
        for form in forms:
            if i < len(form):
                by_name.setdefault(form[i].name, []).append(form[i])
    positional: list[Parameter] = []
    keywords: list[Parameter] = []
    optional = False
    for name, found in by_name.items():
        defaults = [p.default for p in found if p.default is not Parameter.empty]
        is_positional = any(p.kind is Parameter.POSITIONAL_OR_KEYWORD for p in found)
        required = len(found) == len(forms) and not defaults and not (is_positional and optional)
        default = Parameter.empty if required else defaults[0] if defaults else None
        kind = Parameter.POSITIONAL_OR_KEYWORD if is_positional else Parameter.KEYWORD_ONLY
        types = [p.annotation for p in found] + [None] * (default is None)
        annotation = reduce(operator.or_, types)
        made = Parameter(name, kind, default=default, annotation=annotation)
        (positional if is_positional else keywords).append(made)
        optional = optional or (is_positional and not required)
    return positional + keywords


def _answer(info: dict[str, Any]) -> Any:
    if info["returns_list"]:
        return tuple[Tensor, ...]
    if len(info["rets"]) > 1:
        return GenericAlias(tuple, (Tensor,) * len(info["rets"]))
    return Tensor if info["rets"] else None


def signature(op: Op) -> Signature:
    """The signature of an operator; of one with overloads a signature that takes the calls of all of them."""
    infos = [_C.op_info(record) for record in op.overloads]
    forms = [_parameters(op, info) for info in infos]
    answers = dict.fromkeys(map(_answer, infos))
    return Signature(
        forms[0] if len(forms) == 1 else _joined(forms),
        return_annotation=reduce(operator.or_, answers),
    )


def annotations(op: Op) -> dict[str, Any]:
    """`__annotations__`: the types of the parameters, and of the result as 'return'."""
    found = signature(op)
    return {p.name: p.annotation for p in found.parameters.values()} | {
        "return": found.return_annotation
    }


def defaults(op: Op) -> tuple[Any, ...] | None:
    """`__defaults__`: the defaults of the positional parameters, None where there are none."""
    return tuple(_defaults(op, Parameter.POSITIONAL_OR_KEYWORD).values()) or None


def kwdefaults(op: Op) -> dict[str, Any] | None:
    """`__kwdefaults__`: the defaults of the parameters that are given by keyword only, None where there are none."""
    return _defaults(op, Parameter.KEYWORD_ONLY) or None


def _defaults(op: Op, kind: Any) -> dict[str, Any]:
    parameters = signature(op).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is kind and p.default is not p.empty}
