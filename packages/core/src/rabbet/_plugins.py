"""Plugin discovery and loading: lazy, and isolated, so that a broken plugin breaks only itself.

A plugin wheel has an entry point in the group `rabbet.plugins` and a static manifest `rabbet_plugin.toml` beside
the module that the entry point names. Nothing of a plugin runs before something needs it.
"""

import _thread
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

from . import _C
from ._discovery import Found, Plugin, read_manifest, scan
from ._lazy_attributes import LazyAttribute

_KNOWN_BY_KIND = {
    "backend": {"cpu": "rabbet-backend-cpu", "cuda": "rabbet-backend-cuda"},
    "transform": {
        "autograd": "rabbet-autograd",
        "autocast": "rabbet-autocast",
        "vmap": "rabbet-vmap",
    },
}
KNOWN_WHEELS = {name: wheel for wheels in _KNOWN_BY_KIND.values() for name, wheel in wheels.items()}
# What brings a wheel together with the libraries that it opens, where that is more than its name.
_INSTALL = {"cuda": "'rabbet-backend-cuda[cuda13]', or [cuda12] for a driver of CUDA 12"}
LAZY_ATTRIBUTES = {
    "autograd": (
        "requires_grad", "requires_grad_", "grad", "grad_fn", "is_leaf", "backward", "register_hook",
        "register_post_accumulate_grad_hook", "retain_grad", "retains_grad", "output_nr", "detach_", "_version",
        "is_inference",
    ),
}  # fmt: skip


_found: Found | None = None
_ready = False
_hooks: Any = None
_library: Callable[[], ModuleType]
_loading = _thread.RLock()


def found() -> Found:
    """What is installed, with manifests read; none is loaded by this, but libraries named by RABBET_PLUGINS."""
    if not _ready:
        with _loading:  # another thread waits until all is read
            if _found is None:
                _find()
    assert _found is not None
    return _found


def _find() -> None:
    global _found, _ready
    found = scan()
    for plugin in found.plugins.values():
        read_manifest(plugin)
    sound = [p.manifest for p in found.plugins.values() if p.stage != "FAILED"]
    _C.reserve_layers(
        [
            (name, layer["phase"], layer.get("before", []), layer.get("after", []))
            for manifest in sound
            for name, layer in manifest.get("layers", {}).items()
        ]
    )
    _found = found
    for plugin in list(found.plugins.values()):
        if not plugin.module:
            load(plugin)
    _ready = True


def plugins() -> dict[str, Plugin]:
    """All installed plugins by entry-point name."""
    return found().plugins


def rescan() -> None:
    """Forget what was found; plugins that are loaded stay loaded."""
    global _found, _ready
    _found, _ready = None, False


# ---- loading


def is_plugin(library: str) -> bool:
    """Whether a library exports the entry point of a plugin. The library is not loaded."""
    with open(library, "rb") as file:
        return b"rabbet_plugin_v0\0" in file.read()


def _library_path(plugin: Plugin) -> str:
    library = plugin.manifest["library"]
    path = os.path.join(plugin.folder, library)
    if os.path.exists(path):
        return path
    # Editable installs keep built files apart from the sources.
    import importlib.util
    from importlib.metadata import PackageNotFoundError, files

    spec = importlib.util.find_spec(plugin.module) if plugin.module else None
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if os.path.exists(os.path.join(folder, library)):
            return os.path.join(folder, library)
    try:
        for file in files(plugin.wheel) or []:
            if file.name == library and os.path.exists(str(file.locate())):
                return str(file.locate())
    except PackageNotFoundError:
        pass
    raise _C.PluginError(f"its library is not there: {path}")


def load(plugin: Plugin) -> None:
    """Load a plugin's library and its Python hooks; on failure its stage says so and nothing is raised."""
    if plugin.stage == "LOADED":
        with _loading:  # another thread may be about to register its hooks
            return
    if plugin.stage != "MANIFEST_OK":
        return
    if plugin.has_hooks and not _import(plugin):  # its hooks are checked before its library loads
        return
    with _loading:  # after the import, since that of another thread may wait for this lock
        load_library_only(plugin)
        if plugin.stage != "LOADED":  # failed, or active by its own import
            return
        if plugin.has_hooks:
            _register_hooks(plugin)
        if plugin.stage == "LOADED":
            plugin.stage = "ACTIVE"


def _import(plugin: Plugin) -> ModuleType | None:
    """The plugin's module, its hooks checked; None if it failed."""
    import importlib

    try:
        module = importlib.import_module(plugin.module)
        if plugin.stage == "FAILED":  # in the course of its import
            return None
        _hook_manager().check(plugin, module)
        return module
    except (Exception, SystemExit) as error:
        if plugin.stage != "FAILED":
            cause = error
            if not isinstance(error, _C.PluginError):
                kind = type(error).__name__
                cause = _C.PluginError(f"importing '{plugin.module}' raised {kind}: {error}")
                cause.__cause__ = error
            plugin.fail("hooks", cause)
        return None


def _register_hooks(plugin: Plugin) -> None:
    module = _import(plugin)
    if module is None or plugin.stage == "ACTIVE":
        return
    try:
        _hook_manager().register_plugin(plugin, module)
    except (Exception, SystemExit) as error:
        plugin.fail("hooks", error)


def hooks_of(plugin: Plugin) -> list[str]:
    """Names of the hooks that a loaded plugin implements."""
    return [] if _hooks is None else _hooks.implemented(plugin.name)


def call_hook(plugin: Plugin, hook: str, **arguments: Any) -> Any:
    """Call one hook of one plugin; None if it has no such hook.

    Raises:
        PluginError: naming plugin and hook, if it raises or returns another type than the hook's.
    """
    return None if _hooks is None else _hooks.call(plugin, hook, **arguments)


def conformance_params(name: str, level: str, kind: str = "") -> dict[str, Any]:
    """What the plugin that provides `name` says to the conformance kit about `level`; loads it.

    Args:
        name: a device, a layer, a namespace of operators, or the name of an entry point.
        level: "L0", "L1", ...
        kind: of the plugin, where plugins of several kinds may provide the name.

    Returns:
        The dict of its hook `rabbet_conformance_params`, empty if it has none.

    Raises:
        PluginError: if there is no such plugin, if it failed, or if its hook does.
    """
    fits = (p for p in plugins().values() if name in p.provides and kind in ("", p.kind))
    plugin = next(fits, plugins().get(name))
    if plugin is None:
        raise _C.PluginError(_missing(name, f"plugin for '{name}'"))
    activate_plugin(plugin)
    if plugin.stage == "FAILED":
        raise _C.PluginError(plugin.explain()) from plugin.cause
    if not plugin.module:
        return {}
    import importlib

    module = importlib.import_module(plugin.module)  # the manifest need not name this hook
    return _hook_manager().ask(plugin, module, "rabbet_conformance_params", level=level) or {}


def activate_plugin(plugin: Plugin) -> None:
    """Load a plugin of whatever kind, with its hooks."""
    if plugin.kind == "transform":
        _ensure_active(plugin)
    else:
        load(plugin)


def _hook_manager() -> Any:
    global _hooks
    if _hooks is None:
        from ._hookspecs import HookManager

        _hooks = HookManager(_library)
    return _hooks


def provider(name: str, kind: str) -> Plugin | None:
    """The plugin for a name: of several, Rabbet's own wheel, else the first.

    If none of the kind provides the name, the plugin of that name: it may be of another kind, or its manifest, which
    says the kind, may be broken.
    """
    candidates = [p for p in plugins().values() if name in p.provides and p.kind == kind]
    own = [p for p in candidates if p.wheel == KNOWN_WHEELS.get(name)]
    return next(iter(own + candidates), None) or plugins().get(name)


def has_backend(name: str) -> bool:
    """Whether a plugin for a device name is installed."""
    plugin = provider(name, "backend")
    return plugin is not None and plugin.kind in ("backend", "?")


# What plugins of a kind provide, in messages.
_PROVIDED = {"backend": "devices", "transform": "layers", "ops": "namespaces of operators"}


def _missing(name: str, what: str, kind: str = "") -> str:
    """What to install for a name, or else which names of that kind there are; without a kind those of all kinds."""
    wheel = _KNOWN_BY_KIND.get(kind, {} if kind else KNOWN_WHEELS).get(name)
    if wheel:
        return f"no {what} is installed: pip install {_INSTALL.get(name, wheel)}"
    have = {n for p in plugins().values() if kind in ("", p.kind) for n in p.provides}
    if kind == "backend":
        have.update(b["name"] for b in _C.backends())
    names = ", ".join(sorted(have)) or "none"
    return f"no {what} is installed; installed {_PROVIDED.get(kind, 'plugins provide')}: {names}"


def require_backend(name: str) -> None:
    """Load the backend for a device name; raises PluginError saying what to install or what failed."""
    plugin = provider(name, "backend")
    if plugin is not None:
        load(plugin)
        if plugin.stage == "FAILED":
            raise _C.PluginError(
                f"no backend for device '{name}': {plugin.explain()}"
            ) from plugin.cause
    if plugin is None or plugin.kind != "backend":
        raise _C.PluginError(_missing(name, f"backend for device '{name}'", "backend"))


def require_layer(name: str) -> None:
    """Load the plugin that provides a layer; raises PluginError saying what to install or what failed."""
    if not any(layer["name"] == name for layer in _C.layers()):
        _require_library(name, "transform")


def require_ops(name: str) -> None:
    """Load the plugin that provides a namespace of operators, as `require_layer` does for a layer."""
    _require_library(name, "ops")


def load_ops(space: str) -> None:
    """Load the installed plugin that provides a namespace of operators, if there is one.

    Raises:
        PluginError: if it fails.
    """
    plugin = next((p for p in plugins().values() if p.kind == "ops" and space in p.provides), None)
    if plugin is None:
        plugin = plugins().get(space)  # whose manifest, which says what it provides, may be broken
        if plugin is None or plugin.failed_at != "manifest":
            return
    load(plugin)
    if plugin.stage == "FAILED":
        raise _C.PluginError(f"no operators '{space}::...': {plugin.explain()}") from plugin.cause


def unread() -> str:
    """Which plugins may provide a name that nothing else does, as their manifests cannot be read; "" if none."""
    names = sorted(p.wheel for p in plugins().values() if p.failed_at == "manifest")
    if not names:
        return ""
    return f" (plugins whose manifest is broken may provide it: {', '.join(names)}; see python -m rabbet doctor)"


def _require_library(name: str, kind: str) -> None:
    plugin = provider(name, kind)
    if plugin is not None:
        load_library_only(plugin)
        if plugin.stage == "FAILED":
            raise _C.PluginError(plugin.explain()) from plugin.cause
    if plugin is None or plugin.kind != kind:
        raise _C.PluginError(_missing(name, f"plugin for '{name}'", kind))


def load_library_only(plugin: Plugin) -> None:
    """Load the library while the plugin's own module is being imported; its hooks follow at the end of that."""
    with _loading:  # two threads that ask for one device
        if plugin.stage == "MANIFEST_OK":
            _load_library(plugin)


def _load_library(plugin: Plugin) -> None:
    try:
        if "library" in plugin.manifest:
            path = _library_path(plugin)
            _C.load_plugin(
                path,
                devices_of_others=_of_others(plugin, "backend"),
                layers_of_others=_of_others(plugin, "transform"),
            )
            plugin.library = path
            _check_provided(plugin)
        plugin.stage = "LOADED"
    except Exception as error:
        plugin.fail("load", error)


def _of_others(plugin: Plugin, kind: str) -> dict[str, str]:
    """Names of a kind that belong to other installed plugins, with the wheels that provide them."""
    names = {name for p in plugins().values() if p.kind == kind for name in p.provides}
    owners = {name: provider(name, kind) for name in names}
    return {name: p.wheel for name, p in owners.items() if p is not None and p is not plugin}


def _check_provided(plugin: Plugin) -> None:
    """The manifest promises devices and layers without running anything: the library must keep that."""
    registered = {"backend": _C.backends, "transform": _C.layers}.get(plugin.kind)
    if registered is None:
        return
    names = {entry["name"] for entry in registered()}
    for name in plugin.provides:
        if name not in names:
            what = "device" if plugin.kind == "backend" else "layer"
            raise _C.PluginError(
                f"its manifest provides the {what} '{name}', but its library registered none of that name"
            )


# ---- attributes of Tensor that plugins contribute


def activate(layer: str, attribute: str) -> None:
    """Load a layer's plugin so that its Tensor attributes are there; AttributeError names the missing wheel."""
    plugin = provider(layer, "transform")
    if plugin is None:
        wheel = KNOWN_WHEELS[layer]
        raise AttributeError(f"Tensor.{attribute} needs the wheel '{wheel}': pip install {wheel}")
    _ensure_active(plugin)
    if plugin.stage == "FAILED":
        raise AttributeError(
            f"Tensor.{attribute} needs a plugin that failed: {plugin.explain()}"
        ) from plugin.cause


def _ensure_active(plugin: Plugin) -> None:
    if plugin.stage in ("MANIFEST_OK", "LOADED"):
        load_library_only(plugin)
        if plugin.stage == "LOADED":
            _register_hooks(plugin)
        if plugin.stage == "LOADED":
            plugin.stage = "ACTIVE"


def module_imported(module: ModuleType) -> None:
    """A plugin's module calls this at the end of its import, so that its hooks are registered.

    Args:
        module: `sys.modules[__name__]`. Nothing happens if it is no module that an entry point names.
    """
    for plugin in plugins().values():
        if plugin.module == module.__name__:
            _ensure_active(plugin)


def install(library: Callable[[], ModuleType]) -> None:
    """Set core's loaders and the placeholders on Tensor; `library` returns rabbet.library, for hooks."""
    global _library
    _library = library
    _C.set_backend_loader(require_backend)
    for layer, names in LAZY_ATTRIBUTES.items():
        for name in names:
            setattr(_C.Tensor, name, LazyAttribute(name, layer, activate))
