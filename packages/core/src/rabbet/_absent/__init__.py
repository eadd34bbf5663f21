"""Modules of PyTorch that rabbet refuses by name, from one table; each area has its part in a file here.

A program may import them in any form, refer to their classes, and ask whether they are available. Functions and
classes that would do the work raise NotImplementedError with the reason. A name in no table raises AttributeError.
"""

import copy
import enum
import functools
import importlib
import importlib.machinery
import types
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from .. import _C


class Absent(NamedTuple):
    """A missing module: the reason, the names that refuse to work, and the names that still work."""

    reason: str
    functions: str = ""  # raise when they are called; "Class.method" is a method of a class below
    classes: str = ""  # raise when an object is made
    errors: dict[str, type[BaseException]] = {}  # classes of exceptions with their base
    enums: dict[
        str, str | dict[str, Any]
    ] = {}  # constants, which programs use as default arguments
    imports: dict[str, str] = {}  # names from other modules of the table; "*" for all
    answers: dict[str, Any] = {}  # functions and methods that return a value
    others: dict[
        str, Any
    ] = {}  # what works unchanged; "Class.attribute" is an attribute of a class above


# The file of each area, keyed by top-level module.
_AREAS = {
    "_decomp": "graphs",
    "_functorch": "graphs",
    "_guards": "graphs",
    "_higher_order_ops": "graphs",
    "_inductor": "graphs",
    "_prims_common": "graphs",
    "ao": "quantization",
    "classes": "extensions",
    "cuda.sparse": "layouts",
    "distributed": "distributed",
    "export": "exporters",
    "fx": "graphs",
    "masked.maskedtensor": "layouts",
    "mps": "devices",
    "mtia": "devices",
    "nested": "layouts",
    "nn.intrinsic": "quantization",
    "nn.qat": "quantization",
    "nn.quantizable": "quantization",
    "nn.quantized": "quantization",
    "numa": "extensions",
    "onnx": "exporters",
    "quantization": "quantization",
    "sparse": "layouts",
    "utils._sympy": "graphs",
    "utils.data.datapipes": "pipes",
    "utils.data.graph": "pipes",
    "utils.data.graph_settings": "pipes",
    "xpu": "devices",
}


def unchanged(function: Any) -> Any:
    """A decorator that returns the function unchanged: the feature it marks functions for is missing."""
    return function


def marks_nothing(*args: Any, **kwargs: Any) -> Callable[[Any], Any]:
    """A decorator with arguments that returns the function unchanged."""
    return unchanged


def table(area: str) -> dict[str, Absent]:
    """The rows of an area, keyed by module name without the package."""
    found: dict[str, Absent] = importlib.import_module(f"{__name__}.{area}").TABLE
    return found


def _area(name: str) -> str | None:
    while name:
        if name in _AREAS:
            return _AREAS[name]
        name = name.rpartition(".")[0]
    return None


def row(name: str) -> Absent | None:
    """The row of a module, by its name without the package; None if there is none."""
    area = _area(name)
    return None if area is None else table(area).get(name)


def names() -> list[str]:
    """The names of all modules in the table."""
    return [name for area in sorted(set(_AREAS.values())) for name in table(area)]


def refusing_function(module: str, name: str, reason: str) -> Callable[..., Any]:
    """A function that raises NotImplementedError with the reason."""

    def refused(*args: Any, **kwargs: Any) -> Any:
        raise _C.NotImplementedForError(f"{module}.{name}: {reason}")

    refused.__name__ = name.rpartition(".")[2]
    refused.__qualname__ = name
    refused.__module__ = module
    refused.__doc__ = f"Not implemented: {reason}."
    refused.__refused__ = reason  # type: ignore[attr-defined]
    return refused


def refusing_class(module: str, name: str, reason: str) -> type:
    """A class that cannot be instantiated: creating an object, of a subclass too, raises NotImplementedError."""

    def refused(cls: type, *args: Any, **kwargs: Any) -> Any:
        raise _C.NotImplementedForError(f"{module}.{name}: {reason}")

    contents = {
        "__new__": refused,
        "__class_getitem__": classmethod(types.GenericAlias),  # annotations with parameters
        "__module__": module,
        "__doc__": f"Not implemented: {reason}.",
        "__refused__": reason,
    }
    return type(name, (), contents)


def _answering_function(module: str, name: str, answer: Any) -> Callable[..., Any]:
    def answering(*args: Any, **kwargs: Any) -> Any:
        return copy.copy(answer)

    answering.__name__ = answering.__qualname__ = name
    answering.__module__ = module
    answering.__doc__ = f"Always {answer}."
    return answering


def _enumeration(module: str, name: str, members: str | dict[str, Any]) -> type[enum.Enum]:
    make: Any = enum.Enum
    found: type[enum.Enum] = make(name, members, module=module)
    return found


def _put(scope: dict[str, Any], name: str, value: Any) -> None:
    owner, _, attribute = name.rpartition(".")
    if owner:
        setattr(scope[owner], attribute, staticmethod(value) if callable(value) else value)
    else:
        scope[name] = value


def fill(scope: dict[str, Any], what: Absent) -> None:
    """Add the names of a row to a module's namespace; names from other rows come last."""
    module = scope["__name__"]
    for name in what.classes.split():
        scope[name] = refusing_class(module, name, what.reason)
    for name in what.functions.split():
        _put(scope, name, refusing_function(module, name, what.reason))
    for name, base in what.errors.items():
        scope[name] = type(name, (base,), {"__module__": module})
    for name, members in what.enums.items():
        scope[name] = _enumeration(module, name, members)
    for name, answer in what.answers.items():
        _put(scope, name, _answering_function(module, name, answer))
    for name, value in what.others.items():
        _put(scope, name, value)
    for other, wanted in what.imports.items():
        source = importlib.import_module(f"rabbet.{other}")
        for name in source.__all__ if wanted == "*" else wanted.split():
            scope[name] = getattr(source, name)
    scope["__all__"] = sorted(n for n in scope if not n.startswith("_"))


def _below(path: str, name: str) -> Any:
    """A module's `__getattr__`: its submodules in the table load on first access."""
    below = f"{path}.{name}"
    if row(below) is not None:
        return importlib.import_module(f"rabbet.{below}")
    from .._as_torch.names import missing_attribute

    raise missing_attribute(path, name)


class _Loader:
    """Makes a module from its row of the table."""

    def __init__(self, name: str, what: Absent) -> None:
        self._name = name
        self._what = what

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return ModuleType(spec.name, f"Not in rabbet: {self._what.reason}.")

    def exec_module(self, module: ModuleType) -> None:
        scope = vars(module)
        scope["__refused__"] = self._what.reason
        scope["__getattr__"] = functools.partial(_below, self._name)
        fill(scope, self._what)


def spec_of(fullname: str) -> importlib.machinery.ModuleSpec | None:
    """The spec of `rabbet.NAME` if the table has it."""
    name = fullname.removeprefix("rabbet.")
    what = row(name)
    if what is None:
        return None
    loader: Any = _Loader(name, what)
    return importlib.machinery.ModuleSpec(
        fullname, loader, origin="rabbet._absent", is_package=True
    )
