"""Schemas of operators: from the annotations of a function, and from PyTorch's spelling to that of records."""

import collections.abc
import inspect
import itertools
import re
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any, Union

from . import _C
from ._C import Tensor

_SCALARS: dict[Any, str] = {
    Tensor: "Tensor", int: "SymInt", float: "float", bool: "bool", str: "str", complex: "Scalar",
    _C.dtype: "ScalarType", _C.device: "Device",
}  # fmt: skip
_NUMBER = frozenset({int, float, bool})
_RESULTS = ("Tensor", "Tensor[]", "SymInt", "float", "bool", "Scalar")
# PyTorch's names of types, and those of records.
_SPELLINGS = [
    ("SymInt", "int"),
    ("ScalarType", "dtype"),
    ("Device", "device"),
    ("MemoryFormat", "int"),
]


def _alternatives(kind: Any) -> tuple[Any, ...] | None:
    """The types that a union names."""
    is_union = typing.get_origin(kind) is Union or isinstance(kind, types.UnionType)
    return typing.get_args(kind) if is_union else None


def _type_text(kind: Any) -> str | None:
    """The type of an annotation in a schema; None where a schema has none for it."""
    if isinstance(kind, collections.abc.Hashable) and kind in _SCALARS:
        return _SCALARS[kind]
    found = _alternatives(kind)
    if found is not None:
        if frozenset(found) in (_NUMBER, _NUMBER | {complex}):
            return "Scalar"
        rest = [k for k in found if k is not type(None)]
        if len(rest) == len(found):
            return None
        inner = _type_text(rest[0] if len(rest) == 1 else Union[tuple(rest)])
        return None if inner is None or inner.endswith("?") else inner + "?"
    if typing.get_origin(kind) in (list, collections.abc.Sequence):
        (item,) = typing.get_args(kind) or (None,)
        inner = _type_text(item)
        return None if inner is None or inner.endswith("]") else inner + "[]"
    return None


def _default_text(value: Any) -> str | None:
    if value is None or isinstance(value, (bool, int, float)):
        return str(value)
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, _C.dtype):
        return value.name
    return f'"{value}"' if isinstance(value, _C.device) else None


def _result_text(kind: Any, refuse: Callable[[str], Any]) -> str:
    if kind is None or kind is type(None):
        return "()"
    if typing.get_origin(kind) is tuple:
        return f"({', '.join(_result_text(k, refuse) for k in typing.get_args(kind))})"
    text = _type_text(kind)
    if text not in _RESULTS:
        refuse(f"Return has unsupported type {kind}. The valid types are: {', '.join(_RESULTS)}.")
    return str(text)


def infer_schema(
    prototype_function: Callable[..., Any],
    /,
    *,
    mutates_args: str | Iterable[str],
    op_name: str | None = None,
) -> str:
    """The schema of a function, from the annotations of its parameters and of its result.

    Args:
        prototype_function: every parameter and the result are annotated: tensors, numbers, strings, dtypes, devices,
            lists and optionals of them.
        mutates_args: names of the parameters that it writes, or "unknown": all tensors.
        op_name: stands in front of the schema.

    Returns:
        E.g. "(Tensor x, float a=2.0) -> Tensor".

    Raises:
        ValueError: naming the parameter whose annotation or default no schema has.

    Example:
        >>> def scale(x: rabbet.Tensor, a: float = 2.0) -> rabbet.Tensor: ...
        >>> rabbet.library.infer_schema(scale, mutates_args=())
        '(Tensor x, float a=2.0) -> Tensor'
    """
    try:
        signature = inspect.signature(prototype_function, eval_str=True)
    except NameError as error:
        raise ValueError(f"infer_schema(func): an annotation has no meaning: {error}") from None

    def refuse(why: str) -> Any:
        raise ValueError(f"infer_schema(func): {why} Got func with signature {signature}")

    if isinstance(mutates_args, str) and mutates_args != "unknown":
        raise ValueError(
            "mutates_args must either be a sequence of the names of the arguments that are mutated or the string "
            "'unknown'."
        )
    everything = mutates_args == "unknown"
    written = set() if everything else set(mutates_args)
    unknown = written - set(signature.parameters)
    if unknown:
        refuse(
            f"{unknown} in mutates_args were not found in the custom op's signature. mutates_args should contain the "
            "names of all args that the custom op mutates, or just the string 'unknown' if you don't know."
        )
    parts: list[str] = []
    aliases = 0
    keyword_only = False
    for name, parameter in signature.parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            refuse("We do not support positional-only args, varargs, or varkwargs.")
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            parts.append("*")
            keyword_only = True
        if parameter.annotation is parameter.empty:
            refuse(f"Parameter {name} must have a type annotation.")
        kind = _type_text(parameter.annotation)
        if kind is None:
            refuse(f"Parameter {name} has unsupported type {parameter.annotation}.")
        text = str(kind)
        if name in written or (everything and text.startswith("Tensor")):
            if not text.startswith("Tensor"):
                refuse(
                    f"Parameter {name} is in mutable_args but only Tensors or collections of Tensors can be mutated."
                )
            text = f"Tensor(a{aliases}!){text.removeprefix('Tensor')}"
            aliases += 1
        text += f" {name}"
        if parameter.default is not parameter.empty:
            default = _default_text(parameter.default)
            if default is None:
                refuse(
                    f"Parameter {name} has an unsupported default value type {type(parameter.default)}."
                )
            text += f"={default}"
        parts.append(text)
    if signature.return_annotation is signature.empty:
        refuse("No return type annotation was provided. Please add one.")
    result = _result_text(signature.return_annotation, refuse)
    return f"{op_name or ''}({', '.join(parts)}) -> {result}"


def record_schema(name: str, schema: str) -> str:
    """The schema of an operator as a record has it, from PyTorch's spelling of it without the name.

    Several results of which some are optional become a list, which Python sees as a tuple, too.

    Raises:
        NotImplementedError: for results that are no tensors, and for a single optional one.
    """
    arguments, _, result = schema.partition("->")
    for theirs, ours in _SPELLINGS:
        arguments = re.sub(rf"\b{theirs}\b", ours, arguments)
    fresh = itertools.count()
    arguments = re.sub(r"\bTensor!", lambda _: f"Tensor(written{next(fresh)}!)", arguments)
    result = re.sub(r"Tensor\(\w+!?\)", "Tensor", result.strip())
    kinds = [k.split()[0] for k in result.strip("()").split(",") if k.strip()]
    several = result.startswith("(")
    if any(k not in ("Tensor", "Tensor[]") and not (several and k == "Tensor?") for k in kinds):
        raise _C.NotImplementedForError(
            f"{name}: operators return tensors, rabbet has none that returns {result}"
        )
    if "Tensor?" in kinds:
        result = "Tensor?[]"
    elif several:
        result = f"({', '.join(f'{k} out{i}' for i, k in enumerate(kinds))})"
    return f"{name}{arguments.strip()} -> {result}"
