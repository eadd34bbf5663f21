"""The order of layers and its reasons, for people."""

from collections.abc import Collection
from textwrap import wrap
from typing import Any

_Layer = dict[str, Any]


def reason(first: _Layer, second: _Layer) -> str:
    """Which declaration made `first` run before `second`, its neighbour."""
    declared = []
    if second["name"] in first["before"]:
        declared.append(f"{first['name']} declares to run before {second['name']}")
    if first["name"] in second["after"]:
        declared.append(f"{second['name']} declares to run after {first['name']}")
    if first["phase"] != second["phase"]:
        declared.insert(0, f"phase {first['phase']} runs before phase {second['phase']}")
    if declared:
        return ", and ".join(declared)
    if first["name"] < second["name"]:
        return f"both have phase {first['phase']}, and the names decide"
    return (
        f"both have phase {first['phase']}; by name it would be the other way round, but no place for that "
        f"was left when the later one was loaded"
    )


def _neighbours(layer: _Layer, loaded: Collection[str], installed: Collection[str]) -> str:
    def known(name: str) -> str:
        if name in loaded:
            return name
        return f"{name} (not loaded)" if name in installed else f"{name} (not installed)"

    parts = []
    for word in ("before", "after"):
        names = [known(name) for name in layer[word]]
        if names:
            parts.append(f"; {word} {', '.join(names)}")
    return "".join(parts)


def lines(
    layers: list[_Layer],
    phases: list[dict[str, Any]],
    backends: list[dict[str, Any]],
    installed: Collection[str],
) -> list[str]:
    """The picture from the first layer down to the devices.

    Args:
        layers: as `_C.layers()` gives them.
        phases: as `_C.layer_phases()` gives them.
        backends: as `_C.backends()` gives them.
        installed: names of layers that installed plugins provide, loaded or not.
    """
    loaded = {layer["name"] for layer in layers}
    static = [layer for layer in layers if not layer["transform"]]
    stack = sorted((layer for layer in layers if layer["transform"]), key=lambda x: x["name"])
    out = ["A call passes the layers that are on for it from top to bottom, then the device."]
    above: _Layer | None = None
    for phase in phases:
        head = f"{phase['first']}-{phase['last']} {phase['name']}: {phase['meaning']}"
        out += wrap(head, 100, subsequent_indent=" " * 8)
        for layer in static:
            if not phase["first"] <= layer["phase"] <= phase["last"]:
                continue
            if above:
                out += wrap(f"    | {reason(above, layer)}", 100, subsequent_indent=" " * 6)
            text = f"phase {layer['phase']}{_neighbours(layer, loaded, installed)}"
            out.append(f"  {layer['name']:<12} [{layer['provider']}]  {text}")
            above = layer
            if layer["name"] == "transforms":
                out += [f"      {t['name']:<8} [{t['provider']}]" for t in stack]
    out.append("devices: run the operator's kernel, or its decomposition where they have none")
    if above:
        out.append("    | every layer runs before the devices")
    out += [f"  {b['name']:<12} [{b['provider']}]" for b in backends]
    return out
