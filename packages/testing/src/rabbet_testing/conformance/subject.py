"""What is judged: a device, a layer or a namespace of operators, found through the plugin manager and core's introspection."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass, field
from typing import Any

import rabbet
from rabbet import _C, _plugins

LEVELS = ("L0", "L1", "L2", "L3", "L4")
KINDS = {"device": "backend", "layer": "transform", "ops": "ops"}  # as manifests call them


def is_installed(module: str) -> bool:
    """Whether a module of another wheel is there; it is not imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


class SubjectError(Exception):
    """The device, layer or namespace cannot be judged; the message says why and what to do."""


@dataclass
class Subject:
    """The plugin that provides the device, layer or namespace of operators `name`.

    Attributes:
        kind: "device", "layer" or "ops".
        wheel, version: of the wheel; `library`: the path of its shared library, "" where there is none.
        manifest: the parsed `rabbet_plugin.toml`, {} where there is none.
        module: the import name of its package, or "".
        registering: modules that registered operators of the namespace where no plugin provides it.
    """

    name: str
    kind: str
    wheel: str = ""
    version: str = ""
    library: str = ""
    manifest: dict[str, Any] = field(default_factory=dict)
    module: str = ""
    registering: tuple[str, ...] = ()
    _params: dict[str, dict[str, Any]] = field(default_factory=dict)

    def params(self, level: str) -> dict[str, Any]:
        """What the plugin's hook `rabbet_conformance_params(level)` returns, {} where it has none."""
        if not self.module:
            return {}
        if level not in self._params:
            try:
                self._params[level] = _plugins.conformance_params(
                    self.name, level, KINDS[self.kind]
                )
            except RuntimeError as error:
                raise SubjectError(str(error)) from error
        return self._params[level]


def _subject(name: str, kind: str, provider: str) -> Subject:
    """`provider`: the wheel and version that core noted at registration."""
    wheel, _, version = provider.rpartition(" ")
    found = Subject(name, kind, wheel, version)
    plugin = _plugins.provider(name, KINDS[kind])
    if plugin is not None:
        found.wheel, found.version, found.module = plugin.wheel, plugin.version, plugin.module
        found.manifest = plugin.manifest
        found.library = plugin.library
    else:
        for loaded in _C.plugins():
            if loaded["name"] == wheel:
                found.library = loaded["path"]
    return found


def find_device(name: str) -> Subject:
    """The backend of a device, loaded; raises SubjectError with what is missing or failed."""
    kind = name.partition(":")[0]
    try:
        if not any(b["name"] == kind for b in _load_given()):
            _plugins.require_backend(kind)
        rabbet.zeros(1, device=name)
    except NotImplementedError:
        pass  # it allocates, and has no kernel `fill`
    except (RuntimeError, MemoryError) as error:
        raise SubjectError(str(error)) from error
    entry = next((b for b in _C.backends() if b["name"] == kind), None)
    if entry is None:
        raise SubjectError(f"the plugin for '{kind}' is loaded, but registers no such backend")
    return _subject(name, "device", entry["provider"])


def find_layer(name: str) -> Subject:
    """The plugin of a layer, loaded; raises SubjectError with what is missing or failed."""
    try:
        _load_given()
        _plugins.require_layer(name)
    except RuntimeError as error:
        raise SubjectError(str(error)) from error
    entry = next((layer for layer in _C.layers() if layer["name"] == name), None)
    if entry is None:
        raise SubjectError(f"the plugin for '{name}' is loaded, but registers no such layer")
    return _subject(name, "layer", entry["provider"])


def find_ops(name: str) -> Subject:
    """The pack with a namespace of operators, loaded and imported; raises SubjectError as the others do.

    The operators may come from a library, from the hook `rabbet_register_ops`, from the import of the plugin's
    module, or, where no plugin provides the namespace, from whatever ran before.
    """
    operators = f"{name}::"
    try:
        _load_given()
        plugin = _plugins.provider(name, "ops")
        known = any(n.startswith(operators) for n in _C.record_names())
        if plugin is None and not known:
            _plugins.require_ops(name)
        if plugin is not None:
            _activate(plugin)
    except RuntimeError as error:
        raise SubjectError(str(error)) from error
    records = [n for n in _C.record_names() if n.startswith(operators)]
    if not records:
        raise SubjectError(
            f"the plugin for '{name}' is loaded, but registers no operator '{operators}...'"
        )
    found = _subject(name, "ops", _C.op_info(records[0])["provider"])
    if plugin is None:
        found.registering = tuple(sorted(set(map(_registering, records)) - {"", "__main__"}))
    return found


def _registering(record: str) -> str:
    """The module that registered a record from Python, "" for those of libraries."""
    module, _, place = _C.op_info(record)["provider"].partition(" (")
    return module if place else ""


def _activate(plugin: Any) -> None:
    """Load a pack, and import its module, which may register more."""
    _plugins.activate_plugin(plugin)
    if plugin.stage == "FAILED":
        raise _C.PluginError(plugin.explain()) from plugin.cause
    if plugin.module:
        try:
            importlib.import_module(plugin.module)
        except Exception as error:
            raise _C.PluginError(
                f"importing '{plugin.module}' raised {type(error).__name__}: {error}"
            ) from error


def _load_given() -> list[dict[str, Any]]:
    """The backends, with the libraries loaded that RABBET_PLUGINS names."""
    _plugins.plugins()
    return _C.backends()
