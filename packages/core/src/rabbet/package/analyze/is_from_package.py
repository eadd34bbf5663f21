"""Tells objects of packages from those of the program."""

from types import ModuleType
from typing import Any

from .. import _mangling


def is_from_package(obj: Any) -> bool:
    """Whether a PackageImporter imported the object's class, or the object itself if it is a module."""
    if isinstance(obj, ModuleType):
        return _mangling.is_mangled(obj.__name__)
    name = getattr(type(obj), "__module__", None)
    return isinstance(name, str) and _mangling.is_mangled(name)
