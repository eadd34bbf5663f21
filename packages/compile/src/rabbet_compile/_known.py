"""Facts about types: immutable ones, standard behaviour of containers, attributes that guards of tensors cover."""

from __future__ import annotations

import functools
import gc
import types
from collections import OrderedDict, defaultdict, deque
from typing import Any

from rabbet import _C, Tensor

from . import _replay
from ._guards import MISSING

__all__ = [
    "ATOMS",
    "BASES",
    "CONTAINERS",
    "DICT_CONTAINS",
    "DICT_STORE",
    "DICT_SUBSCRIPT",
    "GENERIC",
    "HEAP",
    "IMMUTABLE",
    "IMMUTABLE_TYPE",
    "ITERATORS",
    "METADATA",
    "OF_CLASSES",
    "OPERATOR_TYPES",
    "OWN_ITERATION",
    "OWN_LENGTH",
    "READABLE",
    "VIEWS",
    "dict_behind",
    "dict_of",
    "found_in",
    "is_plain_data",
    "is_python_class",
]

ATOMS: frozenset[type] = frozenset(
    {bool, int, float, complex, str, bytes, type(None), type(Ellipsis), type(NotImplemented)}
)

# Their objects never change, nor do their comparisons and their text.
IMMUTABLE: frozenset[type] = ATOMS | {
    range, slice, _C.dtype, _C.device, _C.Size, _C.layout, _C.memory_format, _C.Op,
    types.BuiltinFunctionType, types.CodeType, types.EllipsisType, types.NotImplementedType,
}  # fmt: skip

OPERATOR_TYPES: frozenset[type] = frozenset(
    {
        _C.Op, types.MethodDescriptorType, types.WrapperDescriptorType, _C.overridable, types.ClassMethodDescriptorType,
        staticmethod,
    }
)  # fmt: skip

# Attributes and methods of tensors whose results are fixed by the guard of the tensor.
METADATA: frozenset[str] = frozenset(
    [
        "shape",
        "ndim",
        "dtype",
        "device",
        "layout",
        "itemsize",
        "nbytes",
        "requires_grad",
        "is_leaf",
        "size",
        "stride",
        "dim",
        "ndimension",
        "numel",
        "nelement",
        "element_size",
        "is_contiguous",
        "is_floating_point",
        "is_complex",
        "__len__",
        "is_same_size",
        "is_signed",
        "get_device",
        "T",
        "mT",
        "H",
        "mH",
        "real",
        "imag",
        "__class__",
        "__hash__",
    ]
) | {  # kinds of devices and layouts
    name
    for name, item in vars(Tensor).items()
    if name.startswith("is_") and type(item) is _C.overridable_attribute
}

BASES: frozenset[type] = frozenset(
    {object, dict, list, tuple, str, int, float, set, frozenset, types.ModuleType, type, Tensor}
)

# Flags of classes: Py_TPFLAGS_HEAPTYPE and Py_TPFLAGS_IMMUTABLETYPE.
HEAP, IMMUTABLE_TYPE = 1 << 9, 1 << 8
CONTAINERS: tuple[type[Any], ...] = (list, dict, set, frozenset, deque)
VIEWS: set[type] = {type({}.keys()), type({}.values()), type({}.items())}
VIEWS |= {type(OrderedDict().keys()), type(OrderedDict().values()), type(OrderedDict().items())}
_EMPTY: tuple[Any, ...] = (
    [], (), {}, set(), "", b"", range(0), deque(), {}.values(), {}.items(), OrderedDict(),
)  # fmt: skip
ITERATORS: set[type] = {
    type(iter(x)) for x in _EMPTY
} | {
    enumerate, zip, map, filter, reversed, types.GeneratorType, type(reversed([])), type(reversed({})),
    type(iter(OrderedDict().items())), type(iter(OrderedDict().values())),
}  # fmt: skip
# Types in C with the attribute lookup of `object`.
GENERIC: tuple[type[Any], ...] = (
    types.FunctionType, types.MethodType, types.GeneratorType, types.CodeType, deque, OrderedDict, defaultdict,
    property, types.MappingProxyType, functools.partial, *VIEWS, *ITERATORS,
)  # fmt: skip
# Methods of built-in containers, to tell whether a subclass overrides them.
OWN_ITERATION = {
    k.__iter__ for k in (list, dict, set, frozenset, deque, OrderedDict, tuple, str, range)
}
OWN_LENGTH = {k.__len__ for k in (list, dict, set, frozenset, deque, OrderedDict)}
DICT_SUBSCRIPT = {dict.__getitem__, OrderedDict.__getitem__, defaultdict.__getitem__}
DICT_CONTAINS = {dict.__contains__, OrderedDict.__contains__}
DICT_STORE = {dict.__setitem__, OrderedDict.__setitem__, defaultdict.__setitem__}
_FUNCTION = frozenset(
    {
        "__code__",
        "__defaults__",
        "__kwdefaults__",
        "__name__",
        "__qualname__",
        "__doc__",
        "__module__",
        "__closure__",
    }
)
# Attributes of built-in types that a guard of kind SLOT compares.
READABLE: dict[type, frozenset[str]] = {
    types.FunctionType: _FUNCTION | {"__globals__"},
    types.MethodType: _FUNCTION | {"__func__", "__self__"},
    types.BuiltinFunctionType: frozenset({"__name__", "__qualname__", "__self__"}),
    types.CodeType: frozenset(dir(types.CodeType)),
}
# Attributes that every class has; the guard of the class covers them.
OF_CLASSES = {
    "__mro__",
    "__name__",
    "__qualname__",
    "__module__",
    "__bases__",
    "__base__",
    "__dict__",
    "__doc__",
}

_python_classes: dict[type, bool] = {}


def is_python_class(kind: type) -> bool:
    """Whether Python code or a basic type implements every method of a class."""
    found = _python_classes.get(kind)
    if found is None:
        bases = type.__dict__["__mro__"].__get__(kind)
        found = bool(kind.__flags__ & HEAP) and all(
            _replay.is_python_class(base)
            or base in BASES
            or issubclass(base, BaseException)
            or _is_dict(base)
            for base in bases
        )
        if len(_python_classes) > 10_000:
            _python_classes.clear()
        _python_classes[kind] = found
    return found


def _is_dict(base: type) -> bool:
    return base.__module__ == "collections" and issubclass(base, dict)


def is_plain_data(value: Any) -> bool:
    """Whether a value is a number, a string, or a tuple of such values: equal values are interchangeable."""
    if type(value) is tuple:
        return all(map(is_plain_data, value))
    return type(value) in ATOMS


def found_in(kind: type, name: str) -> Any:
    """The attribute of a class or of its bases, without calling descriptors; MISSING if there is none."""
    for base in type.__dict__["__mro__"].__get__(kind):
        held = type.__dict__["__dict__"].__get__(base)
        if name in held:
            return held[name]
    return MISSING


def dict_of(item: Any) -> dict[str, Any] | None:
    """The attributes of an object; None if it has no `__dict__`."""
    try:
        held = object.__getattribute__(item, "__dict__")
    except AttributeError:
        return None
    return held if isinstance(held, dict) else None


def dict_behind(view: Any) -> Any:
    """The dict of a view or a read-only proxy."""
    return gc.get_referents(view)[0]
