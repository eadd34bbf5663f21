"""Whether something was imported from a package."""

from types import ModuleType
from typing import Any

from .. import _mangling


def is_from_package(obj: Any) -> bool:
    """Whether an object, or a module, comes from a package that a PackageImporter read."""
    if isinstance(obj, ModuleType):
        return _mangling.is_mangled(obj.__name__)
    name = getattr(type(obj), "__module__", None)
    return isinstance(name, str) and _mangling.is_mangled(name)
