"""The parts of an operator's record that graphs use."""

from __future__ import annotations

import difflib
from typing import Any, NamedTuple

import rabbet

from .. import _C


class Parameter(NamedTuple):
    """A parameter of a record. `type` is its type in the record language, such as "Tensor" or "size[]"."""

    name: str
    type: str
    optional: bool
    mutated: bool
    has_default: bool
    default: Any
    takes_number: bool


class Record(NamedTuple):
    """The signature and the effects of an operator.

    Attributes:
        rets: names of the results.
        returns_list: whether its one result is a list of tensors.
        is_view, may_be_view: whether results share the memory of the first tensor, always or depending on strides.
        has_data_shape: whether the shapes of the results depend on values.
        is_random: whether it draws random numbers.
        detached: whether its results never have a gradient.
    """

    name: str
    schema: str
    params: tuple[Parameter, ...]
    rets: tuple[str, ...]
    returns_list: bool
    is_view: bool
    may_be_view: bool
    has_data_shape: bool
    is_random: bool
    detached: bool

    @property
    def has_effect(self) -> bool:
        """Whether a call has effects beyond its results."""
        return self.is_random or not self.rets or any(p.mutated for p in self.params)


class UnknownOperator(KeyError):
    """Raised for a name without a record."""

    def __str__(self) -> str:
        return str(self.args[0])


_records: dict[str, Record] = {}  # not cached: the program may define and remove operators


def record(name: str) -> Record:
    """The record of an operator.

    Raises:
        UnknownOperator: naming similar ones.
    """
    found = _records.get(name)
    if found is not None:
        return found
    try:
        info = _C.op_info(name)
    except KeyError:
        _load_pack(name)
        info = _C.op_info(name)
    made = _made(info)
    if "::" not in name:
        _records[name] = made
    return made


def _load_pack(name: str) -> None:
    try:
        if "::" in name and rabbet.ops(name) is not None and name in _C.record_names():
            return
    except KeyError:
        pass
    near = difflib.get_close_matches(name, _C.record_names(), 2)
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
    raise UnknownOperator(f"there is no operator '{name}'{hint}")


def _may_draw(info: dict[str, Any]) -> bool:
    """Whether an operator that is decomposed by a Python function draws random numbers there."""
    draws = any(p["type"] == "Generator" for p in info["params"])
    return draws or any(word in info["name"] for word in ("dropout", "attention", "rrelu"))


def _made(info: dict[str, Any]) -> Record:
    params = tuple(
        Parameter(
            p["name"],
            p["type"],
            p["optional"],
            p["mutated"],
            p["has_default"],
            p["default"],
            p["name"] in info["numbers"],
        )
        for p in info["params"]
    )
    return Record(
        info["name"],
        info["schema"],
        params,
        tuple(info["rets"]),
        info["returns_list"],
        info["view"],
        info["maybe_view"],
        info["data_shape"],
        info["random"] or _may_draw(info),
        info["detached"],
    )
