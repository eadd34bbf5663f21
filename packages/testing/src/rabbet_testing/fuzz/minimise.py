"""The simplest call that still fails in the same way."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from rabbet_testing.fuzz.children import Child
from rabbet_testing.fuzz.judge import Allowed, fault


def minimised(
    call: dict[str, Any], wrong: str, ours: Child, theirs: Child | None, allowed: Allowed
) -> dict[str, Any]:
    """`call` with all that does not matter for the kind of fault made simpler, one change after another."""
    kind, changed = wrong.split(":")[0], True
    while changed:
        changed = False
        for simpler in _simpler(call):
            found = fault(
                simpler, ours.run(simpler), theirs.run(simpler) if theirs else None, allowed
            )
            if found and found.split(":")[0] == kind:
                call, changed = simpler, True
                break
    return call


def _simpler(call: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name in call["kwargs"]:
        yield {**call, "kwargs": {k: v for k, v in call["kwargs"].items() if k != name}}
    if call["args"][1:]:
        yield {**call, "args": call["args"][:-1]}
    for path in _tensors(call):
        spec = _at(call, path)
        for key, plain in (
            ("layout", "plain"),
            ("special", False),
            ("dtype", "float32"),
            ("shape", []),
        ):
            if spec[key] != plain:
                yield _with(call, path, {**spec, key: plain})
        for i, size in enumerate(spec["shape"]):
            yield _with(call, path, {**spec, "shape": spec["shape"][:i] + spec["shape"][i + 1 :]})
            if size > 1:
                yield _with(
                    call,
                    path,
                    {**spec, "shape": [*spec["shape"][:i], size // 2, *spec["shape"][i + 1 :]]},
                )


def _tensors(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the descriptions of tensors are."""
    if isinstance(node, dict) and "layout" in node:
        yield path
    elif isinstance(node, (dict, list)):
        for key, item in node.items() if isinstance(node, dict) else enumerate(node):
            yield from _tensors(item, (*path, key))


def _at(node: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        node = node[key]
    return node


def _with(call: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(call)
    _at(changed, path[:-1])[path[-1]] = value
    return changed
