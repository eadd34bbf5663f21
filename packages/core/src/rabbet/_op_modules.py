"""Modules that records make: `expose linalg` puts an operator into `rabbet.linalg`, which exists for that reason alone.

A module that is also written by hand calls `add_to(globals())` as its last statement.
"""

import functools
import importlib
import importlib.machinery
from types import ModuleType
from typing import Any

from . import _C


def spec_of(fullname: str) -> importlib.machinery.ModuleSpec | None:
    """The spec of `rabbet.NAME` if a record exposes an operator in it or below it."""
    name = fullname.removeprefix("rabbet.")
    if not any(module == name or module.startswith(f"{name}.") for module in _C.op_modules()):
        return None
    loader: Any = _Loader()
    return importlib.machinery.ModuleSpec(
        fullname, loader, origin="rabbet._op_modules", is_package=True
    )


def add_to(scope: dict[str, Any]) -> None:
    """Add the operators of a module to its names and to `__all__`; those that come later are found when asked for.

    Raises:
        RuntimeError: if the module defines the name of one of them.
    """
    name = scope["__name__"].removeprefix("rabbet.")
    ops = _C.ops_of_module(name)
    if twice := sorted(set(ops) & {n for n in scope if not n.startswith("__")}):
        raise RuntimeError(f"rabbet.{name} defines what records expose there: {', '.join(twice)}")
    scope.update(ops)
    scope["__all__"] = sorted({*scope.get("__all__", ()), *ops})
    scope["__getattr__"] = functools.partial(_added_later, name, scope.get("__getattr__"))
    scope["__dir__"] = functools.partial(_names, name, scope)


def _added_later(module: str, other: Any, name: str) -> Any:
    if (op := _C.ops_of_module(module).get(name)) is not None:
        return op
    below = f"{module}.{name}"
    if any(m == below or m.startswith(f"{below}.") for m in _C.op_modules()):
        return importlib.import_module(f"rabbet.{below}")
    if other is not None:
        return other(name)
    from ._as_torch.names import missing_attribute

    raise missing_attribute(module, name)


def _names(module: str, scope: dict[str, Any]) -> list[str]:
    return sorted({*scope, *_C.ops_of_module(module)})


class _Loader:
    """Makes a module of the operators that records expose in it."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return ModuleType(spec.name, f"The operators that records expose in {spec.name}.")

    def exec_module(self, module: ModuleType) -> None:
        add_to(vars(module))
