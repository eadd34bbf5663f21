"""What is known of types: whose objects never change, and which attributes of tensors follow from what is compared."""

from __future__ import annotations

import types
from typing import Any

from rabbet import _C, Tensor

from . import _replay

__all__ = [
    "ATOMS",
    "BASES",
    "IMMUTABLE",
    "METADATA",
    "OPERATOR_TYPES",
    "is_plain_data",
    "is_python_class",
]

ATOMS: frozenset[type] = frozenset(
    {bool, int, float, complex, str, bytes, type(None), type(Ellipsis), type(NotImplemented)}
)

# Their objects compare and print alike for ever, and hold nothing that changes.
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

# Attributes and methods of tensors that follow from what guards of tensors compare.
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

_python_classes: dict[type, bool] = {}


def is_python_class(kind: type) -> bool:
    """Whether everything that a class does is Python code, or done by a basic type."""
    found = _python_classes.get(kind)
    if found is None:
        bases = type.__dict__["__mro__"].__get__(kind)
        found = bool(kind.__flags__ & 1 << 9) and all(
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
    """Whether equal values are the same for everyone: numbers, strings and tuples of them."""
    if type(value) is tuple:
        return all(map(is_plain_data, value))
    return type(value) in ATOMS
