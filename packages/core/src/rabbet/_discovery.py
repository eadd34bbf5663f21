"""Which plugins are installed: entry points and static manifests, read without running anything of a plugin."""

import os
import re
import sys
from typing import Any

from . import _C, _diagnosis

MANIFEST = "rabbet_plugin.toml"


class Plugin:
    """One installed plugin and how far it came: DISCOVERED, MANIFEST_OK, LOADED, ACTIVE, or FAILED(failed_at)."""

    def __init__(self, name: str, module: str, wheel: str, version: str, folder: str) -> None:
        self.name, self.module, self.wheel, self.version = name, module, wheel, version
        self.info = folder  # its dist-info
        self.stage = "DISCOVERED"
        self.manifest: dict[str, Any] = {}
        self.folder = ""
        self.library = ""  # the path of what was loaded
        self.cause: BaseException | None = None
        self.failed_at = ""

    @property
    def kind(self) -> str:
        return str(self.manifest.get("kind", "?"))

    @property
    def provides(self) -> list[str]:
        return self.manifest.get("provides", [])

    @property
    def has_hooks(self) -> bool:
        """Whether the manifest says that the module implements hooks."""
        return bool(self.manifest.get("hooks", self.manifest.get("attributes")))

    @property
    def fix(self) -> str:
        """What a user can do about a failure."""
        if not self.info:  # it is no wheel's
            return f"correct RABBET_PLUGINS, which names it, or build {self.wheel} again"
        return _diagnosis.fix(self.failed_at, str(self.cause), self.wheel, self.editable_source)

    @property
    def editable_source(self) -> str:
        """The project's folder if the wheel is an editable install, else empty."""
        return _editable_source(self.info)

    def fail(self, stage: str, cause: BaseException) -> None:
        self.failed_at, self.cause, self.stage = stage, cause, "FAILED"
        if os.environ.get("RABBET_PLUGINS_STRICT") == "1":
            raise cause

    def explain(self) -> str:
        return (
            f"plugin '{self.name}' (wheel {self.wheel} {self.version}) is installed but failed at stage "
            f"{self.failed_at}: {self.cause}. Fix: {self.fix}"
        )


class Found:
    """What a scan of `sys.path` gave.

    plugins: by entry-point name; the first on the path wins.
    shadowed: entry points that come after one of the same name, as (plugin, the one that wins).
    leftovers: folders that an installation left half done, as (path, what it is).
    unknown: names in RABBET_PLUGINS that nothing has.
    """

    def __init__(self) -> None:
        self.plugins: dict[str, Plugin] = {}
        self.shadowed: list[tuple[Plugin, Plugin]] = []
        self.leftovers: list[tuple[str, str]] = []
        self.unknown: list[str] = []


def _editable_source(info: str) -> str:
    import json

    try:
        with open(os.path.join(info, "direct_url.json"), encoding="utf-8") as file:
            direct = json.load(file)
        if direct["dir_info"]["editable"]:
            return str(direct["url"]).removeprefix("file://")
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return ""


def scan() -> Found:
    """Look through `sys.path` and apply RABBET_PLUGINS; only names of folders and files of entry points are read."""
    found = Found()
    installed = _C.find_installed([str(entry) for entry in sys.path])
    for entry in installed["plugins"]:
        plugin = _plugin(*entry)
        found.plugins[plugin.name] = plugin
    found.shadowed = [(_plugin(*one), _plugin(*first)) for one, first in installed["shadowed"]]
    found.leftovers, found.unknown = installed["leftovers"], installed["unknown"]
    return found


def _plugin(name: str, module: str, wheel: str, version: str, info: str, library: str) -> Plugin:
    plugin = Plugin(name, module, wheel, version, info)
    if library:  # named by RABBET_PLUGINS
        plugin.manifest = {"library": library, "provides": []}
        plugin.stage = "MANIFEST_OK"
    return plugin


_FINDER = re.compile(
    r"__editable__\.([\w.]+?)-.*\.pth$|_(\w+)_editable\.pth$"
)  # setuptools, scikit-build


def editable_leftovers(found: Found) -> list[tuple[str, str]]:
    """Editable installs whose project is gone, and their finders that no wheel has any more."""
    out = []
    for plugin in found.plugins.values():
        source = plugin.editable_source
        if source and not os.path.isdir(source):
            out.append(
                (plugin.info, f"an editable install of {source}, which is not there any more")
            )
    for entry in {os.path.realpath(e or ".") for e in sys.path}:
        try:
            names = sorted(e.name for e in os.scandir(entry))
        except OSError:
            continue
        wheels = {n.partition("-")[0].lower() for n in names if n.endswith(".dist-info")}
        for name in names:
            finder = _FINDER.match(name)
            wheel = (finder[1] or finder[2]).lower() if finder else ""
            if wheel.startswith("rabbet") and wheel not in wheels:
                what = "the finder of an editable install without its wheel"
                out.append((os.path.join(entry, name), what))
    return out


# ---- manifests


def read_manifest(plugin: Plugin) -> None:
    """Find and check the manifest; a failure is the plugin's stage."""
    import importlib.util

    if plugin.stage != "DISCOVERED":
        return
    try:
        spec = importlib.util.find_spec(plugin.module)
        if spec is None or not spec.submodule_search_locations:
            raise ImportError(f"the package '{plugin.module}' is not there")
        for folder in spec.submodule_search_locations:
            path = os.path.join(folder, MANIFEST)
            if os.path.exists(path):
                plugin.manifest = _C.read_manifest(path)
                plugin.folder = folder
                break
        else:
            raise ImportError(f"'{plugin.module}' has no {MANIFEST}")
        if "abi" in plugin.manifest:
            _C.check_abi(f"plugin '{plugin.wheel}' {plugin.version}", *plugin.manifest["abi"])
        plugin.stage = "MANIFEST_OK"
    except (Exception, SystemExit) as error:  # whatever is wrong with one must not touch the others
        plugin.fail("manifest", error)
