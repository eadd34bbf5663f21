"""Plugin discovery and loading: lazy, and isolated, so that a broken plugin breaks only itself.

A plugin wheel has an entry point in the group `rabbet.plugins` and a static manifest `rabbet_plugin.toml` beside
the module that the entry point names. Nothing of a plugin runs before something needs it.
"""

import os
import sys
from types import ModuleType
from typing import Any

from . import _C

GROUP = "rabbet.plugins"
MANIFEST = "rabbet_plugin.toml"
KNOWN_WHEELS = {
    "cpu": "rabbet-backend-cpu",
    "cuda": "rabbet-backend-cuda",
    "autograd": "rabbet-autograd",
    "autocast": "rabbet-autocast",
    "vmap": "rabbet-vmap",
}
LAZY_ATTRIBUTES = {
    "autograd": (
        "requires_grad", "requires_grad_", "grad", "grad_fn", "is_leaf", "backward", "register_hook",
        "register_post_accumulate_grad_hook", "retain_grad", "retains_grad", "output_nr", "detach_", "_version",
        "is_inference",
    ),
}  # fmt: skip


class Plugin:
    """One installed plugin and how far it came."""

    def __init__(self, name: str, module: str, wheel: str, version: str) -> None:
        self.name, self.module, self.wheel, self.version = name, module, wheel, version
        self.stage = "DISCOVERED"
        self.manifest: dict[str, Any] = {}
        self.folder = ""
        self.cause: BaseException | None = None
        self.failed_at = ""

    @property
    def provides(self) -> list[str]:
        return self.manifest.get("provides", [])

    @property
    def fix(self) -> str:
        """What a user can do about a failure."""
        text = str(self.cause)
        if "plugin ABI" in text:
            newer = "upgrade rabbet-core" in text
            return (
                "pip install --upgrade rabbet-core"
                if newer
                else f"pip install --upgrade {self.wheel}"
            )
        if self.failed_at == "manifest":
            return f"reinstall it: pip install --force-reinstall {self.wheel}"
        if "cannot be ordered" in text:
            return "uninstall one of the wheels that it names, or ask their authors to drop a declaration"
        if "cannot open shared object" in text:
            return "install the missing library, or set LD_LIBRARY_PATH to where it is"
        return f"report it to the authors of {self.wheel}"

    def fail(self, stage: str, cause: BaseException) -> None:
        self.failed_at, self.cause, self.stage = stage, cause, "FAILED"
        if os.environ.get("RABBET_PLUGINS_STRICT") == "1":
            raise cause

    def explain(self) -> str:
        return (
            f"plugin '{self.name}' (wheel {self.wheel} {self.version}) is installed but failed at stage "
            f"{self.failed_at}: {self.cause}. Fix: {self.fix}"
        )


_found: dict[str, Plugin] | None = None
_hooks: Any = None


# ---- discovery


def _entry_points(folder: str) -> list[tuple[str, str]]:
    """`name = module` lines of the group in one dist-info folder."""
    try:
        with open(os.path.join(folder, "entry_points.txt"), encoding="utf-8") as file:
            text = file.read()
    except OSError:
        return []
    if GROUP not in text:
        return []
    section, found = "", []
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("["):
            section = line.strip("[] ")
        elif section == GROUP and "=" in line:
            name, module = line.split("=", 1)
            found.append((name.strip(), module.split(":")[0].strip()))
    return found


def _scan() -> dict[str, Plugin]:
    found: dict[str, Plugin] = {}
    for entry in sys.path:
        try:
            names = [e.name for e in os.scandir(entry or ".") if e.name.endswith(".dist-info")]
        except OSError:
            continue
        for dist in names:
            wheel, _, version = dist.removesuffix(".dist-info").partition("-")
            for name, module in _entry_points(os.path.join(entry or ".", dist)):
                found.setdefault(name, Plugin(name, module, wheel.replace("_", "-"), version))
    return found


def _chosen(found: dict[str, Plugin]) -> dict[str, Plugin]:
    """Apply RABBET_PLUGINS: 0, names, or paths of libraries."""
    wish = os.environ.get("RABBET_PLUGINS")
    if wish is None:
        return found
    if wish.strip() in ("", "0"):
        return {}
    kept = {}
    for item in (part.strip() for part in wish.split(",")):
        if item.endswith(".so"):
            plugin = Plugin(os.path.basename(item), "", item, "?")
            plugin.manifest = {"library": item, "provides": []}
            plugin.stage = "MANIFEST_OK"
            kept[plugin.name] = plugin
        elif item in found:
            kept[item] = found[item]
    return kept


def _read_manifest(plugin: Plugin) -> None:
    import importlib.util
    import tomllib

    if plugin.stage != "DISCOVERED":
        return
    try:
        spec = importlib.util.find_spec(plugin.module)
        if spec is None or not spec.submodule_search_locations:
            raise ImportError(f"the package '{plugin.module}' is not there")
        for folder in spec.submodule_search_locations:
            path = os.path.join(folder, MANIFEST)
            if os.path.exists(path):
                with open(path, "rb") as file:
                    plugin.manifest = tomllib.load(file)
                plugin.folder = folder
                break
        else:
            raise ImportError(f"'{plugin.module}' has no {MANIFEST}")
        _check_manifest(plugin.manifest)
        if "abi" in plugin.manifest:
            _C.check_abi(f"plugin '{plugin.wheel}' {plugin.version}", *plugin.manifest["abi"])
        plugin.stage = "MANIFEST_OK"
    except Exception as error:  # whatever is wrong with one plugin must not touch the others
        plugin.fail("manifest", error)


def _check_manifest(manifest: dict[str, Any]) -> None:
    for key, kind in (("name", str), ("kind", str), ("provides", list)):
        if not isinstance(manifest.get(key), kind):
            raise ValueError(
                f"{MANIFEST}: '{key}' must be a {kind.__name__}, got {manifest.get(key)!r}"
            )
    if manifest["kind"] not in ("backend", "transform", "ops"):
        raise ValueError(
            f"{MANIFEST}: 'kind' must be backend, transform or ops, got {manifest['kind']!r}"
        )
    abi = manifest.get("abi", [0, 0])  # unsaid, the library alone says it
    if not (isinstance(abi, list) and len(abi) == 2 and all(type(n) is int for n in abi)):
        raise ValueError(
            f"{MANIFEST}: 'abi' must be [major, minor] of the plugin ABI that it needs, got {abi!r}"
        )


def plugins() -> dict[str, Plugin]:
    """All installed plugins by entry-point name, with their manifests read; none is loaded by this."""
    global _found
    if _found is None:
        found = _chosen(_scan())
        for plugin in found.values():
            _read_manifest(plugin)
        _found = found  # whole: other threads may ask meanwhile
        for plugin in list(found.values()):
            if not plugin.module:
                load(plugin)
    return _found


def rescan() -> None:
    """Forget what was found; plugins that are loaded stay loaded."""
    global _found
    _found = None


# ---- loading


def _library_path(plugin: Plugin) -> str:
    library = plugin.manifest["library"]
    if os.path.isabs(library):
        return library
    import importlib.util

    spec = importlib.util.find_spec(plugin.module)
    folders = list(spec.submodule_search_locations or []) if spec else []
    for folder in folders:
        if os.path.exists(os.path.join(folder, library)):
            return os.path.join(folder, library)
    # Editable installs keep built files apart from the sources.
    from importlib.metadata import PackageNotFoundError, files

    try:
        for file in files(plugin.wheel) or []:
            if file.name == library:
                return str(file.locate())
    except PackageNotFoundError:
        pass
    return os.path.join(folders[0] if folders else plugin.folder, library)


def load(plugin: Plugin) -> None:
    """Load a plugin's library and its Python hooks; on failure its stage says so and nothing is raised."""
    if plugin.stage not in ("MANIFEST_OK",):
        return
    try:
        if "library" in plugin.manifest:
            _C.load_plugin(_library_path(plugin))
        plugin.stage = "LOADED"
    except Exception as error:
        plugin.fail("load", error)
        return
    if plugin.manifest.get("hooks", plugin.manifest.get("attributes")):
        _register_hooks(plugin)
    if plugin.stage == "LOADED":
        plugin.stage = "ACTIVE"


def _register_hooks(plugin: Plugin) -> None:
    import importlib

    try:
        module = importlib.import_module(plugin.module)
        _hook_manager().register_plugin(plugin.name, module)
    except Exception as error:
        plugin.fail("hooks", error)


def _hook_manager() -> Any:
    global _hooks
    if _hooks is None:
        from ._hookspecs import HookManager

        _hooks = HookManager()
    return _hooks


def _provider(name: str, kind: str) -> Plugin | None:
    for plugin in plugins().values():
        if name in plugin.provides and plugin.manifest.get("kind") == kind:
            return plugin
    return plugins().get(name)


def _missing(name: str, what: str) -> str:
    wheel = KNOWN_WHEELS.get(name)
    if wheel:
        return f"no {what} is installed: pip install {wheel}"
    have = ", ".join(sorted(n for p in plugins().values() for n in p.provides)) or "none"
    return f"no {what} is installed; installed plugins provide: {have}"


def require_backend(name: str) -> None:
    """Load the backend for a device name; raises PluginError saying what to install or what failed."""
    plugin = _provider(name, "backend")
    if plugin is None:
        raise _C.PluginError(_missing(name, f"backend for device '{name}'"))
    load(plugin)
    if plugin.stage == "FAILED":
        raise _C.PluginError(
            f"no backend for device '{name}': {plugin.explain()}"
        ) from plugin.cause


def require_layer(name: str) -> None:
    """Load the plugin that provides a layer; raises PluginError saying what to install or what failed."""
    if not any(layer["name"] == name for layer in _C.layers()):
        _require_library(name, "transform")


def require_ops(name: str) -> None:
    """Load the plugin that provides a namespace of operators, as `require_layer` does for a layer."""
    _require_library(name, "ops")


def _require_library(name: str, kind: str) -> None:
    plugin = _provider(name, kind)
    if plugin is None:
        raise _C.PluginError(_missing(name, f"plugin for '{name}'"))
    load_library_only(plugin)
    if plugin.stage == "FAILED":
        raise _C.PluginError(plugin.explain()) from plugin.cause


def load_library_only(plugin: Plugin) -> None:
    """Load the library while the plugin's own module is being imported; its hooks follow at the end of that."""
    if plugin.stage != "MANIFEST_OK":
        return
    try:
        _C.load_plugin(_library_path(plugin))
        plugin.stage = "LOADED"
    except Exception as error:
        plugin.fail("load", error)


# ---- attributes of Tensor that plugins contribute


class _LazyAttribute:
    """Stands on Tensor for an attribute of a plugin that is not loaded yet."""

    def __init__(self, name: str, layer: str) -> None:
        self.name, self.layer = name, layer

    def _load(self) -> None:
        activate(self.layer, self.name)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        self._load()
        return getattr(owner if instance is None else instance, self.name)

    def __set__(self, instance: Any, value: Any) -> None:
        self._load()
        setattr(instance, self.name, value)


def activate(layer: str, attribute: str) -> None:
    """Load a layer's plugin so that its Tensor attributes are there; AttributeError names the missing wheel."""
    plugin = _provider(layer, "transform")
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
    """A plugin's module calls this at the end of its import, so that its hooks are registered."""
    for plugin in plugins().values():
        if plugin.module == module.__name__:
            _ensure_active(plugin)


def install() -> None:
    """Set core's loaders and the placeholders on Tensor."""
    _C.set_backend_loader(require_backend)
    for layer, names in LAZY_ATTRIBUTES.items():
        for name in names:
            setattr(_C.Tensor, name, _LazyAttribute(name, layer))
