"""python -m rabbet doctor: what is installed, what works, and what to do about what does not."""

import os
import platform
import re
import sys
from typing import Any

from . import _C, _plugins, _registrations
from ._discovery import Plugin, editable_leftovers

_USAGE = """usage: rabbet doctor [--layers | --coverage] [--json] [--import=MODULE ...]
       rabbet doctor --device NAME --for inference|training [--json] [--import=MODULE ...]

What is installed, what works, and how to fix what does not. The exit code is 1 if something does not work.

  --layers             the order of the layers, each with its reasons
  --coverage           which operators each device has kernels for
  --device NAME --for PURPOSE
                       which operators a device runs by kernels, which by decompositions, and which it lacks
  --json               the report as JSON
  --import=MODULE      import a module first, so that what it registers is in the report"""
_OPTIONS = ("--json", "--layers", "--coverage")
_VARIABLES = (
    "RABBET_PLUGINS",
    "RABBET_PLUGINS_STRICT",
    "RABBET_CHECK_PLUGINS",
    "RABBET_CPU_LEVEL",
)


def report(load: bool = True) -> dict[str, Any]:
    """Collect the report (docs/reference/doctor); with `load` every plugin is loaded, which shows failures."""
    found = _plugins.found()
    if load:
        for plugin in found.plugins.values():
            _plugins.activate_plugin(plugin)
    infos = {name: _C.op_info(name) for name in _C.record_names()}
    return {
        "core": _C.__version__,
        "abi": ".".join(map(str, _C.abi)),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "environment": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
        "problems": _problems(),
        "warnings": _warnings(),
        "plugins": [_describe(p, infos) for p in found.plugins.values()],
        "loaded": _C.plugins(),
        "backends": _C.backends(),
        "layers": _C.layers(),
        "phases": _C.layer_phases(),
        "pending": [k for k in _C.registered_kernels() if k["pending"]],
        "operators": len(infos),
        "coverage": {b["name"]: _coverage(b["name"], infos) for b in _C.backends()},
        "live": _C.live_counts(),
        "threads": _C.get_num_threads(),
    }


# ---- one plugin


def _describe(plugin: Plugin, infos: dict[str, dict[str, Any]]) -> dict[str, Any]:
    native = next((p for p in _C.plugins() if plugin.library and p["path"] == plugin.library), None)
    provider = f"{native['name']} {native['version']}" if native else ""
    notes, details = _hook_report(plugin)
    return {
        "name": plugin.name,
        "wheel": plugin.wheel,
        "version": plugin.version,
        "kind": plugin.kind,
        "provides": plugin.provides,
        "stage": plugin.stage,
        "failed_at": plugin.failed_at,
        "cause": str(plugin.cause) if plugin.cause else "",
        "fix": plugin.fix if plugin.cause else "",
        "provider": provider,
        "library": plugin.library,
        "abi": _abi(plugin, native),
        "hooks": _plugins.hooks_of(plugin),
        "attributes": plugin.manifest.get("attributes", []),
        "live": _live(plugin, provider, infos),
        "notes": notes,
        "details": details,
    }


def _abi(plugin: Plugin, native: dict[str, Any] | None) -> dict[str, Any]:
    """What the library was built for and the least that it needs, as far as that is known."""
    if native:
        major, built = native["abi"]
        return {"major": major, "built": built, "min": native["abi_min"]}
    told = re.search(r"was built for plugin ABI (\d+)\.(\d+)", str(plugin.cause or ""))
    if told:
        return {"major": int(told[1]), "built": int(told[2]), "min": None}
    declared = plugin.manifest.get("abi")
    if declared:
        return {"major": declared[0], "built": None, "min": declared[1]}
    return {}


def _live(plugin: Plugin, provider: str, infos: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What there is of a plugin in this process."""
    # One wheel may hold several libraries, which call themselves the same.
    others = {
        name for p in _plugins.plugins().values() if p is not plugin for name in p.provides
    }.difference(plugin.provides)

    def own(entries: list[dict[str, Any]]) -> list[str]:
        return [
            e["name"]
            for e in entries
            if provider and e["provider"] == provider and e["name"] not in others
        ]

    devices, layers = own(_C.backends()), own(_C.layers())
    kernels = [
        [by for device, by in i["kernels"].items() if not devices or device in devices]
        for i in infos.values()
    ]
    by_backend = _C.live_by_backend()
    handles = [
        r
        for r in _registrations.registrations()
        if plugin.module and f"{r.place.module}.".startswith(f"{plugin.module}.")
    ]
    return {
        "devices": {name: by_backend[name] for name in devices},
        "layers": layers,
        "slots": {
            s["name"]: s["tensors"] for s in _C.slots() if provider and s["provider"] == provider
        },
        "operators": sum(bool(provider) and i["provider"] == provider for i in infos.values())
        + sum(r.target == "operator" for r in handles),
        "kernels": sum(bool(provider) and provider in by for by in kernels),
        "registrations": len(handles),
    }


def _hook_report(plugin: Plugin) -> tuple[list[str], dict[str, Any]]:
    if "rabbet_doctor" not in _plugins.hooks_of(plugin):
        return [], {}
    from ._hookspecs import PluginReport

    own = PluginReport(plugin.name, plugin.stage)
    try:
        _plugins.call_hook(plugin, "rabbet_doctor", report=own)
    except _C.PluginError as error:
        own.add(str(error))
    return own._lines, own._details


# ---- the whole


def _coverage(backend: str, infos: dict[str, dict[str, Any]]) -> dict[str, Any]:
    needed = [
        name
        for name, i in infos.items()
        if not (i["has_decomp"] or i["view"] or i["in_core"] or i["kind"] == "composite")
    ]
    dtypes: dict[str, int] = {}
    for info in infos.values():
        for dtype in info["kernel_dtypes"].get(backend, ()):
            dtypes[dtype] = dtypes.get(dtype, 0) + 1
    missing = [name for name in needed if backend not in infos[name]["kernels"]]
    return {
        "kernels": sum(backend in i["kernels"] for i in infos.values()),
        "dtypes": dtypes,
        "primitives": len(needed),
        "primitives_with_kernel": len(needed) - len(missing),
        "missing": missing,
    }


def _problems() -> list[str]:
    """What keeps rabbet from working though no plugin failed, each with what to do about it."""
    if _plugins.has_backend("cpu"):
        return []
    chosen = os.environ.get("RABBET_PLUGINS")
    fix = f"pip install {_plugins.KNOWN_WHEELS['cpu']}"
    if chosen is not None:
        fix = f"if it is installed, RABBET_PLUGINS={chosen} leaves it out; else {fix}"
    return [
        f"there is no backend for 'cpu', the default device: no operator can run there. Fix: {fix}"
    ]


def _warnings() -> list[str]:
    found = _plugins.found()
    out = [
        f"RABBET_PLUGINS names '{name}', but no installed wheel has an entry point of that name"
        for name in found.unknown
    ]
    for plugin, first in found.shadowed:
        what = "another copy" if plugin.wheel == first.wheel else f"wheel {plugin.wheel}"
        out.append(
            f"entry point '{plugin.name}' of {what} {plugin.version} in {os.path.dirname(plugin.info)} is not "
            f"used: {first.wheel} {first.version} in {os.path.dirname(first.info)} has one of that name"
        )
    for plugin in found.plugins.values():
        for name in plugin.provides:
            used = _plugins.provider(name, plugin.kind)
            if used is not None and used is not plugin:
                out.append(
                    f"plugins '{used.name}' (wheel {used.wheel}) and '{plugin.name}' (wheel {plugin.wheel}) both "
                    f"provide '{name}': the first is used, uninstall one of them"
                )
    out += [f"{path}: {what}; remove it" for path, what in found.leftovers]
    out += [f"{path}: {what}; remove it" for path, what in editable_leftovers(found)]
    return out


def _import(names: list[str]) -> None:
    """Import modules, so that what they register is in the report; the current folder counts."""
    import importlib

    sys.path.insert(0, "")
    for name in names:
        importlib.import_module(name)


def _needs_of(arguments: list[str], modules: list[str]) -> int:
    """`--device NAME --for PURPOSE`; the exit code is 1 if the device cannot run something."""
    from . import _needs

    json_wanted = "--json" in arguments
    words = [a for a in arguments if a != "--json"]
    given = dict(zip(words[::2], words[1::2], strict=False))
    if len(words) != 4 or set(given) != {"--device", "--for"}:
        print(f"rabbet doctor: expected --device NAME --for PURPOSE, got {' '.join(arguments)}", file=sys.stderr)  # fmt: skip
        return 2
    device, purpose = given["--device"], given["--for"]
    if purpose not in _needs.PURPOSES:
        print(f"rabbet doctor: --for is one of {', '.join(_needs.PURPOSES)}, got '{purpose}'", file=sys.stderr)  # fmt: skip
        return 2
    _import(modules)
    try:
        found = _needs.needs(device, purpose)
    except (_C.RabbetError, ImportError) as error:
        print(f"rabbet doctor: {error}", file=sys.stderr)
        return 2
    if json_wanted:
        import json

        print(json.dumps(found, indent=2))
    else:
        print(_needs.text(device, purpose, found))
    return int(any(ways["missing"] for ways in found.values()))


def main(arguments: list[str]) -> int:
    """Run the command and return its exit code: 1 if a plugin failed or a problem was found, else 0."""
    if "-h" in arguments or "--help" in arguments:
        print(_USAGE)
        return 0
    modules = [a.partition("=")[2] for a in arguments if a.startswith("--import=")]
    rest = [a for a in arguments if not a.startswith("--import=")]
    if "--device" in rest or "--for" in rest:
        return _needs_of(rest, modules)
    unknown = set(rest) - set(_OPTIONS)
    if unknown:
        print(
            f"rabbet doctor: unknown option {sorted(unknown)[0]}; options: {', '.join(_OPTIONS)}, "
            f"--import=MODULE, --device NAME --for inference|training",
            file=sys.stderr,
        )
        return 2
    _import(modules)
    data = report()
    if "--json" in arguments:
        import json

        print(json.dumps(data, indent=2))
    else:
        from ._doctor_text import coverage_text, layers_text, text

        show = text
        if "--layers" in arguments:
            show = layers_text
        elif "--coverage" in arguments:
            show = coverage_text
        print(show(data))
    return int(bool(data["problems"]) or any(p["stage"] == "FAILED" for p in data["plugins"]))
