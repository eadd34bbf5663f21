"""Structures of trees as JSON text, which other processes and PyTorch read."""

import importlib
import json
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from typing import Any, NamedTuple

from .. import _pytree
from .._pytree import LEAF, TreeSpec

__all__ = [
    "DEFAULT_TREESPEC_SERIALIZATION_PROTOCOL", "SERIALIZED_TYPE_TO_PYTHON_TYPE", "SUPPORTED_SERIALIZED_TYPES",
    "register_text", "treespec_dumps", "treespec_loads",
]  # fmt: skip

DEFAULT_TREESPEC_SERIALIZATION_PROTOCOL = 1


class _Form(NamedTuple):
    """How a type is written: its name, and how its context becomes what JSON takes, and back."""

    typ: Any
    serialized_type_name: str
    to_dumpable_context: Callable[[Any], Any] | None
    from_dumpable_context: Callable[[Any], Any] | None


SUPPORTED_SERIALIZED_TYPES: dict[Any, _Form] = {}
SERIALIZED_TYPE_TO_PYTHON_TYPE: dict[str, Any] = {}
_named_tuples: dict[type, str] = {}


def register_text(
    kind: Any,
    name: str | None,
    to_dumpable: Callable[[Any], Any] | None,
    from_dumpable: Callable[[Any], Any] | None,
) -> None:
    """Name a type for treespec_dumps(); without a name its structures have no text."""
    old = SUPPORTED_SERIALIZED_TYPES.pop(kind, None)
    if old is not None:
        del SERIALIZED_TYPE_TO_PYTHON_TYPE[old.serialized_type_name]
    if name is not None:
        SUPPORTED_SERIALIZED_TYPES[kind] = _Form(kind, name, to_dumpable, from_dumpable)
        SERIALIZED_TYPE_TO_PYTHON_TYPE[name] = kind


def _register_namedtuple(cls: type, *, serialized_type_name: str) -> None:
    """Name a class of named tuples for treespec_dumps()."""
    _named_tuples[cls] = serialized_type_name


def _named_tuple_name(kind: type) -> str:
    if kind not in _named_tuples:
        raise NotImplementedError(
            f"Can't serialize TreeSpec of namedtuple class {kind} because we didn't register a "
            "serializated_type_name. Please register using `_register_namedtuple`."
        )
    return _named_tuples[kind]


def _named_tuple_class(name: str) -> type:
    for kind, known in _named_tuples.items():
        if known == name:
            return kind
    raise NotImplementedError(
        f"Can't deserialize TreeSpec of namedtuple class {name} because we couldn't find a "
        "serializated name."
    )


def _written_factory(context: Any) -> dict[str, Any]:
    factory, keys = context
    return {
        "default_factory_module": factory.__module__,
        "default_factory_name": factory.__qualname__,
        "dict_context": keys,
    }


def _read_factory(written: Any) -> list[Any]:
    """The context of a defaultdict. Only classes are taken: a text cannot name any function to call."""
    module = importlib.import_module(written["default_factory_module"])
    factory = getattr(module, written["default_factory_name"])
    if not isinstance(factory, type):
        raise ValueError(
            f"treespec_loads: the factory of a defaultdict is not a class: {factory!r}"
        )
    return [factory, written["dict_context"]]


register_text(tuple, "builtins.tuple", None, None)
register_text(list, "builtins.list", None, None)
register_text(dict, "builtins.dict", None, None)
register_text(namedtuple, "collections.namedtuple", _named_tuple_name, _named_tuple_class)
register_text(OrderedDict, "collections.OrderedDict", None, None)
register_text(defaultdict, "collections.defaultdict", _written_factory, _read_factory)
register_text(deque, "collections.deque", None, None)


def _written(spec: TreeSpec) -> dict[str, Any]:
    if spec.is_leaf():
        return {"type": None, "context": None, "children_spec": []}
    form = SUPPORTED_SERIALIZED_TYPES.get(spec.type)
    if form is None:
        raise NotImplementedError(
            f"No registered serialization name for {spec.type} found. Please update your _register_pytree_node "
            "call with a `serialized_type_name` kwarg."
        )
    if form.to_dumpable_context is not None:
        context = form.to_dumpable_context(spec.context)
    else:
        try:
            context = json.dumps(spec.context)
        except TypeError as error:
            raise TypeError(
                "Unable to serialize context. Please make the context json dump-able, or register a custom "
                "serializer using _register_pytree_node."
            ) from error
    return {
        "type": form.serialized_type_name,
        "context": context,
        "children_spec": [_written(child) for child in spec.children()],
    }


def _read(written: Any) -> TreeSpec:
    name = written["type"]
    if name is None and written["context"] is None and not written["children_spec"]:
        return LEAF
    if name not in SERIALIZED_TYPE_TO_PYTHON_TYPE:
        raise NotImplementedError(f"Deserializing {name!r} in TreeSpec is not registered.")
    form = SUPPORTED_SERIALIZED_TYPES[SERIALIZED_TYPE_TO_PYTHON_TYPE[name]]
    read = form.from_dumpable_context or json.loads
    children = [_read(child) for child in written["children_spec"]]
    return TreeSpec(form.typ, read(written["context"]), children)


def treespec_dumps(treespec: TreeSpec, protocol: int | None = None) -> str:
    """A structure as JSON text.

    Raises:
        TypeError: if `treespec` is not a TreeSpec, or a context has no form in JSON.
        ValueError: for another protocol than 1.
        NotImplementedError: for a type without a name in texts.

    Example:
        >>> from rabbet.utils import _pytree as pytree
        >>> spec = pytree.tree_structure({"a": [1, 2]})
        >>> pytree.treespec_loads(pytree.treespec_dumps(spec)) == spec
        True
    """
    spec = _pytree.checked_spec(treespec)
    if protocol is None:
        protocol = DEFAULT_TREESPEC_SERIALIZATION_PROTOCOL
    if protocol != DEFAULT_TREESPEC_SERIALIZATION_PROTOCOL:
        raise ValueError(f"Unknown protocol {protocol}. Available protocols: [1]")
    return json.dumps([protocol, _written(spec)])


def treespec_loads(serialized: str) -> TreeSpec:
    """The structure that treespec_dumps() wrote.

    Raises:
        ValueError: if it is no such text.
        NotImplementedError: for a type whose name is not registered.
    """
    try:
        protocol, written = json.loads(serialized)
        if protocol == DEFAULT_TREESPEC_SERIALIZATION_PROTOCOL:
            return _read(written)
    except (KeyError, TypeError) as error:
        raise ValueError(f"treespec_loads: the text is no structure: {error!r}") from error
    raise ValueError(f"Unknown protocol {protocol}. Available protocols: [1]")
