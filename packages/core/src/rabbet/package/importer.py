"""Importers find modules in the program or in packages."""

import functools
import importlib
import pickle
from abc import ABC, abstractmethod
from types import ModuleType
from typing import Any

from . import _mangling

__all__ = ["Importer", "ObjMismatchError", "ObjNotFoundError", "OrderedImporter", "sys_importer"]


class ObjNotFoundError(Exception):
    """The module that an object names as its own does not contain it."""


class ObjMismatchError(Exception):
    """The module that an object names as its own has a different object under its name."""


class Importer(ABC):
    """Finds modules by name and the modules that define objects."""

    modules: dict[str, Any]

    @abstractmethod
    def import_module(self, module_name: str) -> ModuleType:
        """The module with this name.

        Raises:
            ModuleNotFoundError: if there is no such module.
        """

    def whichmodule(self, obj: Any, name: str) -> str:
        """The name of the module that defines an object, by the rules of pickle."""
        return pickle.whichmodule(obj, name)  # type: ignore[attr-defined]

    def get_name(self, obj: Any, name: str | None = None) -> tuple[str, str]:
        """The names of an object's module and of the object in that module.

        Args:
            name: the object's name; by default its __qualname__.

        Raises:
            ObjNotFoundError: if the module has no object with that name.
            ObjMismatchError: if the name refers to another object.
        """
        name = name or getattr(obj, "__qualname__", None) or getattr(obj, "__name__", None)
        if name is None:
            raise ObjNotFoundError(f"{obj!r} has no name by which it could be imported")
        module_name = self.whichmodule(obj, name)
        origin = _mangling.prefix_of(module_name)
        try:
            module = self.import_module(_mangling.demangled(module_name))
            found = functools.reduce(getattr, name.split("."), module)
        except (ImportError, AttributeError):
            raise ObjNotFoundError(
                f"{obj!r} was not found as {module_name}.{name}"
                + (_ADVICE if origin else "")
            ) from None  # fmt: skip
        if found is not obj:
            raise ObjMismatchError(
                f"{obj!r} is not the same object as {module_name}.{name}, which comes from {_origin_of(found)}{_ADVICE}"
            )
        return module_name, name


_ADVICE = (
    ": give the exporter the importers of its objects, in order of search, as in "
    "PackageExporter(f, importer=(package_importer, sys_importer))"
)


def _origin_of(obj: Any) -> str:
    prefix = _mangling.prefix_of(getattr(obj, "__module__", None) or "")
    return f"the package {prefix}" if prefix else "the program"


class _SysImporter(Importer):
    """Imports the program's own modules."""

    def import_module(self, module_name: str) -> ModuleType:
        """Import a module as an import statement does."""
        return importlib.import_module(module_name)


sys_importer = _SysImporter()


class OrderedImporter(Importer):
    """Asks several importers in order; the first that has a module provides it.

    Raises:
        TypeError: if an argument is not an importer.
    """

    def __init__(self, *args: Importer) -> None:
        for importer in args:
            if not isinstance(importer, Importer):
                raise TypeError(
                    f"OrderedImporter: expected importers, got {type(importer).__name__}"
                )
        self._importers = list(args)

    def import_module(self, module_name: str) -> ModuleType:
        """Import a module from the first importer that has it."""
        for importer in self._importers:
            try:
                return importer.import_module(module_name)
            except ModuleNotFoundError as error:
                if error.name is not None and not _is_part(error.name, module_name):
                    raise  # the module exists, but something it imports does not
        raise ModuleNotFoundError(f"no importer has the module {module_name!r}", name=module_name)

    def whichmodule(self, obj: Any, name: str) -> str:
        """The name of the module that defines an object, from the first importer that knows it."""
        for importer in self._importers:
            found = importer.whichmodule(obj, name)
            if found != "__main__":
                return found
        return "__main__"


def _is_part(name: str, module_name: str) -> bool:
    return f"{module_name}.".startswith(f"{_mangling.demangled(name)}.")
