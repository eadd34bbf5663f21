"""The doctor's report for people: lines of at most 100 columns."""

from collections.abc import Iterable
from textwrap import wrap
from typing import Any

from . import _layers

WIDTH = 100


def wrapped(text: str, indent: int, hang: int = 4) -> list[str]:
    """Lines of `text`, each line of its own kept, with paths and names whole where they fit."""
    out: list[str] = []
    for number, line in enumerate(text.splitlines() or [""]):
        first = " " * (indent if number == 0 else indent + hang)
        out += wrap(
            line, WIDTH, initial_indent=first, subsequent_indent=" " * (indent + hang),
            break_on_hyphens=False,
        )  # fmt: skip
    return out


def _bytes(n: int) -> str:
    size, units = float(n), ["B", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{n} B" if units[0] == "B" else f"{size:.1f} {units[0]}"


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _abi(abi: dict[str, Any]) -> str:
    if not abi:
        return ""
    if abi["built"] is None:
        return f"needs ABI {abi['major']}.{abi['min']}"
    least = "" if abi["min"] is None else f", needs {abi['major']}.{abi['min']}"
    return f"built for ABI {abi['major']}.{abi['built']}{least}"


def _live_parts(live: dict[str, Any]) -> Iterable[str]:
    for name, n in live["devices"].items():
        yield (
            f"on {name}: {_count(n['tensors'], 'tensor')}, {_count(n['storages'], 'storage')}, "
            f"{_bytes(n['bytes'])}"
        )
    for name, tensors in live["slots"].items():
        yield f"slot '{name}' on {_count(tensors, 'tensor')}"
    if live["operators"]:
        yield _count(live["operators"], "operator")
    if live["kernels"]:
        yield f"kernels of {_count(live['kernels'], 'operator')}"
    if live["registrations"]:
        yield _count(live["registrations"], "registration") + " in Python"


def _plugin_lines(plugin: dict[str, Any]) -> list[str]:
    head = f"{plugin['name']:<12} {plugin['wheel']} {plugin['version']}  {plugin['kind']}  {plugin['stage']}"
    if plugin["stage"] == "FAILED":
        head += f"({plugin['failed_at']})"
    lines = wrapped(head, 2, 13)
    if plugin["cause"]:
        lines += wrapped(f"failed at {plugin['failed_at']}: {plugin['cause']}", 6)
        lines += wrapped(f"fix: {plugin['fix']}", 6)
    built = plugin["provider"].rpartition(" ")[2]
    if built and built != plugin["version"] and plugin["version"] != "?":
        lines += wrapped(f"its library says that it is version {built}", 6)
    parts = [part for part in (_abi(plugin["abi"]), *_live_parts(plugin["live"])) if part]
    if plugin["hooks"]:
        parts.append("hooks: " + ", ".join(h.removeprefix("rabbet_") for h in plugin["hooks"]))
    if parts:
        lines += wrapped("; ".join(parts), 6)
    for note in plugin["notes"]:
        lines += wrapped(note, 6)
    return lines


def _problem_lines(data: dict[str, Any]) -> list[str]:
    return [line for p in data["problems"] for line in wrapped(f"problem: {p}", 0)]


def layers_text(data: dict[str, Any]) -> str:
    """The order of layers, and what failed."""
    failed = [p for p in data["plugins"] if p["stage"] == "FAILED"]
    trouble = [line for p in failed for line in _plugin_lines(p)]
    return "\n".join(
        [
            *_problem_lines(data),
            *_layer_lines(data),
            *(["Plugins that failed:"] if trouble else []),
            *trouble,
        ]
    )


def _layer_lines(data: dict[str, Any]) -> list[str]:
    provided = {name for p in data["plugins"] if p["kind"] == "transform" for name in p["provides"]}
    return [
        "Layers, first to run first:",
        *_layers.lines(data["layers"], data["phases"], data["backends"], provided),
    ]


def coverage_text(data: dict[str, Any]) -> str:
    """Which operators each device has kernels for."""
    lines = _problem_lines(data)
    for backend in data["backends"]:
        if backend["name"] == "meta":  # needs none
            continue
        cover = data["coverage"][backend["name"]]
        lines += wrapped(
            f"{backend['name']}: {cover['primitives_with_kernel']} of {cover['primitives']} primitives, "
            f"kernels of {cover['kernels']} operators  [{backend['provider']}]", 0,
        )  # fmt: skip
        counts = [f"{dtype} {n}" for dtype, n in cover["dtypes"].items()]
        lines += wrapped(f"operators by dtype: {', '.join(counts) or 'none'}", 2)
        lines += wrapped(f"primitives without a kernel: {', '.join(cover['missing']) or 'none'}", 2)
    return "\n".join(lines)


def _device_lines(data: dict[str, Any]) -> list[str]:
    lines = []
    for b in data["backends"]:
        cover = data["coverage"][b["name"]]
        kernels = (
            "shapes and dtypes without memory"
            if b["name"] == "meta"
            else f"{cover['primitives_with_kernel']} of {cover['primitives']} primitives, kernels of "
            f"{cover['kernels']} operators, {_bytes(b['bytes_in_use'])} in use, {_bytes(b['bytes_cached'])} cached"
        )
        devices = b["failure"] or _count(b["devices"], "device")
        text = f"{b['name']:<12} {devices}, {kernels}  [{b['provider']}]"
        lines += wrapped(text, 2, 13)
    return lines


def text(data: dict[str, Any]) -> str:
    """The whole report."""
    lines = wrapped(
        f"rabbet-core {data['core']}, plugin ABI {data['abi']}, Python {data['python']}, {data['platform']}", 0
    )  # fmt: skip
    lines += [f"{name}={value}" for name, value in data["environment"].items()]
    lines += _problem_lines(data)
    for warning in data["warnings"]:
        lines += wrapped(f"warning: {warning}", 0)
    lines.append("Plugins:")
    lines += [line for p in data["plugins"] for line in _plugin_lines(p)] or ["  none installed"]
    lines += ["Devices:", *_device_lines(data), *_layer_lines(data)]
    if data["pending"]:
        lines.append("Waiting for a device, a layer or an operator that is not loaded:")
        for k in data["pending"]:
            lines += wrapped(f"'{k['op']}' for '{k['target']}'  [{k['provider']}]", 2)
    live = data["live"]
    lines += wrapped(
        f"{data['operators']} operators, {live['tensors']} live tensors ({live['bytes']} bytes), "
        f"{data['threads']} threads", 0,
    )  # fmt: skip
    return "\n".join(lines)
