"""The order of layers, from what the manifests of installed wheels declare."""

from collections.abc import Iterable, Mapping
from typing import Any

LAST_PHASE = 799
TRANSFORMS = range(450, 500)  # ordered by the stack of the thread, see rabbet/abi.h


def check_declarations(manifest: Mapping[str, Any]) -> None:
    """Raise ValueError unless the manifest's table `layers`, if there is one, is well formed."""
    declared = manifest.get("layers", {})
    if not isinstance(declared, dict):
        raise ValueError(f"'layers' must be a table, got {declared!r}")
    for name, layer in declared.items():
        phase = layer.get("phase") if isinstance(layer, dict) else None
        if type(phase) is not int or not 0 <= phase <= LAST_PHASE:
            raise ValueError(
                f"'layers.{name}.phase' must be an int from 0 to {LAST_PHASE}, got {phase!r}"
            )
        for word in ("before", "after"):
            names = layer.get(word, [])
            if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
                raise ValueError(f"'layers.{name}.{word}' must be a list of names, got {names!r}")


def order(manifests: Iterable[Mapping[str, Any]]) -> list[tuple[str, int]]:
    """Names and phases of the static layers that manifests declare, the one to run first at the front.

    An earlier phase runs first. In one phase `before` and `after` decide, then the names; of layers that all
    want to run before each other the names decide too: core refuses the one that is loaded last.
    """
    declared = {
        name: layer
        for manifest in manifests
        for name, layer in manifest.get("layers", {}).items()
        if layer["phase"] not in TRANSFORMS
    }
    above: dict[str, set[str]] = {name: set() for name in declared}
    for name, layer in declared.items():
        above[name].update(layer.get("after", []))
        for other in layer.get("before", []):
            above.setdefault(other, set()).add(name)
    left = sorted(declared, key=lambda name: (declared[name]["phase"], name))
    done: list[tuple[str, int]] = []
    while left:
        same = [n for n in left if declared[n]["phase"] == declared[left[0]]["phase"]]
        first = next((n for n in same if not above[n].intersection(same)), same[0])
        left.remove(first)
        done.append((first, declared[first]["phase"]))
    return done
