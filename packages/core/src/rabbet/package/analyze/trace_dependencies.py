"""Finds the modules that a call uses."""

import sys
from collections.abc import Callable, Iterable
from typing import Any


def trace_dependencies(
    callable: Callable[..., Any], inputs: Iterable[tuple[Any, ...]]
) -> list[str]:
    """Call `callable` with each of the inputs and return the names of the modules whose functions run, in order of first use.

    Args:
        callable: the function to call.
        inputs: the positional arguments of each call.
    """
    found: dict[str, None] = {}

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            name = frame.f_globals.get("__name__")
        elif event == "c_call":
            name = getattr(argument, "__module__", None)
        else:
            return
        if name is not None and name != __name__:
            found[name] = None

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        for arguments in inputs:
            callable(*arguments)
    finally:
        sys.setprofile(before)
    return list(found)
