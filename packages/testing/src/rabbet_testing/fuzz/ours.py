"""The child that runs rabbet: calls in their contexts, damaged files, wrong plugins in Python and C++."""

from __future__ import annotations

from typing import Any

from rabbet_testing.fuzz import child, contexts, files, native, plugins


def answer(lib: Any, call: dict[str, Any]) -> dict[str, Any]:
    """What came of a call, and what is wrong with it in its context."""
    alone = {"file": files, "plugin": plugins, "native": native}.get(call["form"])
    if alone is not None:
        return alone.run(call)
    said = child.run(lib, call)
    if "result" in said and call["context"] != "plain":
        said["context"] = contexts.judge(lib, call)
    return said


if __name__ == "__main__":
    child.serve(answer, 4)
