"""python -m rabbet doctor: what is installed, what works, and what to do about what does not."""

import platform
import sys
from typing import Any

from . import _C, _layers, _plugins


def report(load: bool = True) -> dict[str, Any]:
    """Collect the report; with `load` every plugin is loaded, which shows failures."""
    found = _plugins.plugins()
    if load:
        for plugin in found.values():
            if plugin.manifest.get("kind") == "transform":
                _plugins._ensure_active(plugin)
            else:
                _plugins.load(plugin)
    records = _C.record_names()
    coverage = {}
    for backend in _C.backends():
        name = backend["name"]
        infos = [_C.op_info(r) for r in records]
        kernels = sum(name in i["kernels"] for i in infos)
        needed = [
            i for i in infos if not i["has_decomp"] and not i["view"] and i["kind"] != "composite"
        ]
        coverage[name] = {
            "kernels": kernels,
            "primitives": len(needed),
            "primitives_with_kernel": sum(name in i["kernels"] for i in needed),
        }
    return {
        "core": _C.__version__,
        "abi": ".".join(map(str, _C.abi)),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "plugins": [
            {
                "name": p.name, "wheel": p.wheel, "version": p.version, "kind": p.manifest.get("kind", "?"),
                "provides": p.provides, "stage": p.stage, "failed_at": p.failed_at,
                "cause": str(p.cause) if p.cause else "", "fix": p.fix if p.cause else "",
            }
            for p in found.values()
        ],
        "loaded": _C.plugins(),
        "backends": _C.backends(),
        "layers": _C.layers(),
        "phases": _C.layer_phases(),
        "pending": [k for k in _C.registered_kernels() if k["pending"]],
        "operators": len(records),
        "coverage": coverage,
        "live": _C.live_counts(),
        "threads": _C.get_num_threads(),
    }  # fmt: skip


def _plugin_lines(plugin: dict[str, Any]) -> list[str]:
    head = f"  {plugin['name']:<12} {plugin['wheel']} {plugin['version']}  {plugin['kind']}  {plugin['stage']}"
    if plugin["stage"] != "FAILED":
        return [head]
    return [
        head,
        f"      failed at {plugin['failed_at']}: {plugin['cause']}",
        f"      fix: {plugin['fix']}",
    ]


def _layer_lines(data: dict[str, Any]) -> list[str]:
    provided = {name for p in data["plugins"] if p["kind"] == "transform" for name in p["provides"]}
    return [
        "Layers, first to run first:",
        *_layers.lines(data["layers"], data["phases"], data["backends"], provided),
    ]


def text(data: dict[str, Any], layers_only: bool = False) -> str:
    """The report for people."""
    if layers_only:
        failed = [p for p in data["plugins"] if p["stage"] == "FAILED"]
        trouble = [line for p in failed for line in _plugin_lines(p)]
        return "\n".join(
            [*_layer_lines(data), *(["Plugins that failed:"] if trouble else []), *trouble]
        )
    lines = [
        f"rabbet-core {data['core']}, plugin ABI {data['abi']}, Python {data['python']}, {data['platform']}",
        "Plugins:",
    ]
    lines += [line for p in data["plugins"] for line in _plugin_lines(p)] or ["  none installed"]
    lines.append("Devices:")
    for b in data["backends"]:
        cover = data["coverage"][b["name"]]
        lines.append(
            f"  {b['name']:<12} {b['devices']} device(s), {cover['primitives_with_kernel']} of {cover['primitives']} "
            f"primitives, {cover['kernels']} kernels, {b['bytes_in_use']} bytes in use, {b['bytes_cached']} cached  "
            f"[{b['provider']}]"
        )
    lines += _layer_lines(data)
    if data["pending"]:
        lines.append("Waiting for a device, a layer or an operator that is not loaded:")
        lines += [f"  '{k['op']}' for '{k['target']}'  [{k['provider']}]" for k in data["pending"]]
    live = data["live"]
    lines.append(
        f"{data['operators']} operators, {live['tensors']} live tensors ({live['bytes']} bytes), "
        f"{data['threads']} threads"
    )
    return "\n".join(lines)


def _import(names: list[str]) -> None:
    """Import modules, so that what they register is in the report; the current folder counts."""
    import importlib

    sys.path.insert(0, "")
    for name in names:
        importlib.import_module(name)


def main(arguments: list[str]) -> int:
    """Run the command; the exit code is 1 if a plugin failed."""
    modules = [a.partition("=")[2] for a in arguments if a.startswith("--import=")]
    unknown = {a for a in arguments if not a.startswith("--import=")} - {"--json", "--layers"}
    if unknown:
        print(
            f"rabbet doctor: unknown option {sorted(unknown)[0]}; options: --json, --layers, --import=MODULE",
            file=sys.stderr,
        )
        return 2
    _import(modules)
    data = report()
    if "--json" in arguments:
        import json

        print(json.dumps(data, indent=2))
    else:
        print(text(data, layers_only="--layers" in arguments))
    return int(any(p["stage"] == "FAILED" for p in data["plugins"]))
