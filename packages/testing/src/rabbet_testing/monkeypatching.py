"""Does loading a plugin change what is not its own? Rabbet has hooks for what a plugin adds; patching breaks others.

    python -m rabbet_testing.monkeypatching NAME    # in a process of its own; prints each change, exit code 1 if any

`changes_of(load)` judges any function that loads something.
"""

import contextlib
import importlib
import pkgutil
import sys
from collections.abc import Callable, Collection, Iterator
from types import FunctionType, ModuleType
from typing import Any

__all__ = ["changes_of", "changes_of_plugin", "main"]

PACKAGE = "rabbet"
# What users may have imported before the plugin loads.
_PARTS = (
    "accelerator",
    "library",
    "serialization",
    "autograd",
    "func",
    "vmap",
    "amp",
    "nn",
    "optim",
)
_OF_PYTHON = {"__warningregistry__", "__builtins__", "__cached__"}


def _modules() -> dict[str, ModuleType]:
    return {
        name: module
        for name, module in list(sys.modules.items())
        if isinstance(module, ModuleType) and f"{name}.".startswith(f"{PACKAGE}.")
    }


def _classes(modules: dict[str, ModuleType]) -> dict[str, type]:
    """Classes of the package by a name; each once."""
    found: dict[type, str] = {}
    for name, module in modules.items():
        for attribute, value in list(vars(module).items()):
            if isinstance(value, type) and f"{value.__module__}.".startswith(f"{PACKAGE}."):
                found.setdefault(value, f"{name}.{attribute}")
    return {name: cls for cls, name in found.items()}


def _parts_of(function: FunctionType) -> dict[str, Any]:
    return {
        part: getattr(function, part)
        for part in ("__code__", "__defaults__", "__kwdefaults__", "__wrapped__")
        if getattr(function, part, None) is not None
    }


class Snapshot:
    """The attributes of all modules of Rabbet, of their classes, and what their functions run."""

    def __init__(self) -> None:
        modules = _modules()
        self.owners: dict[str, Any] = {**modules, **_classes(modules)}
        self.attributes = {name: dict(vars(owner)) for name, owner in self.owners.items()}
        self.functions = {
            f"{name}.{attribute}": (value, _parts_of(value))
            for name, attributes in self.attributes.items()
            for attribute, value in attributes.items()
            if isinstance(value, FunctionType)
        }

    def changes(self, declared: Collection[str]) -> Iterator[str]:
        """What is another one now. `declared`: names of attributes of Tensor that may be."""
        for name, owner in self.owners.items():
            before, after = self.attributes[name], vars(owner)
            tensor = isinstance(owner, type) and owner.__name__ == "Tensor"
            for attribute in before.keys() | dict(after).keys():
                if attribute in _OF_PYTHON or (tensor and attribute in declared):
                    continue
                if attribute not in after:
                    yield f"{name}.{attribute} was removed"
                elif attribute not in before:
                    if after[attribute] is not sys.modules.get(f"{name}.{attribute}"):
                        yield f"{name}.{attribute} was added"
                elif after[attribute] is not before[attribute]:
                    yield f"{name}.{attribute} was replaced"
        for name, (function, parts) in self.functions.items():
            now = _parts_of(function)
            for part in parts.keys() | now.keys():
                if parts.get(part) is not now.get(part):
                    yield f"{part} of {name} was changed"


def changes_of(load: Callable[[], Any], declared: Collection[str] = ()) -> list[str]:
    """What `load()` changes of Rabbet, one line each, sorted: attributes added, replaced or removed.

    Looked at are the modules of Rabbet that are imported before, their classes, Tensor among them, and the code of
    their functions. A module that `load` imports may appear in its package.

    Args:
        load: loads the plugin; what it raises is raised.
        declared: names of attributes that may change on Tensor: the `attributes` of the plugin's manifest.
    """
    from rabbet import _plugins

    _plugins.plugins()  # core's own state, which the first plugin with hooks would set up
    with contextlib.suppress(ImportError):
        _plugins._hook_manager()
    before = Snapshot()
    load()
    return sorted(before.changes(declared))


def changes_of_plugin(name: str) -> list[str]:
    """What loading the plugin with the entry point `name` and importing its module changes, see `changes_of`.

    Call it in a process that has not loaded the plugin yet. All other parts of Rabbet that are installed are
    imported first.

    Raises:
        RuntimeError: if there is no such plugin, if it is loaded already, or if it fails.
    """
    from rabbet import _plugins

    plugin = _plugins.plugins().get(name)
    if plugin is None:
        have = ", ".join(sorted(_plugins.plugins()))
        raise RuntimeError(f"no plugin '{name}' is installed; there are: {have}")
    # What is built on one of Rabbet's own plugins would load it: then core's modules alone.
    own = f"{plugin.module}.".startswith(f"{PACKAGE}.")
    for part in (*_modules_of_core(), *(() if own else _PARTS)):
        with contextlib.suppress(ImportError):
            importlib.import_module(f"{PACKAGE}.{part}")
    if plugin.stage not in ("MANIFEST_OK", "FAILED"):
        raise RuntimeError(f"plugin '{name}' is loaded already: judge it in a process of its own")

    def load() -> None:
        _plugins.activate_plugin(plugin)
        if plugin.stage == "FAILED":
            raise RuntimeError(plugin.explain()) from plugin.cause
        try:
            importlib.import_module(plugin.module)
        except Exception as error:
            kind = type(error).__name__
            raise RuntimeError(f"importing '{plugin.module}' raised {kind}: {error}") from error

    return changes_of(load, plugin.manifest.get("attributes", []))


def _modules_of_core() -> list[str]:
    """Its modules are files; the folders are other wheels'."""
    import rabbet

    found = pkgutil.iter_modules(rabbet.__path__)
    return [m.name for m in found if not m.ispkg and m.name != "__main__"]


def main(arguments: list[str]) -> int:
    """Print what loading the plugin named by the argument changes; the exit code is 1 if it changes something."""
    if len(arguments) != 1:
        print("usage: python -m rabbet_testing.monkeypatching NAME", file=sys.stderr)
        return 2
    try:
        found = changes_of_plugin(arguments[0])
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 2
    for line in found:
        print(line)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
