"""Handles that take a hook away again."""

from __future__ import annotations

import itertools
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

_ids = itertools.count()


class RemovableHandle:
    """Takes a hook away again, by `remove()` or at the end of a `with` block."""

    def __init__(self, hooks: OrderedDict[int, Any]) -> None:
        self.id = next(_ids)
        self._hooks = weakref.ref(hooks)

    def remove(self) -> None:
        """Take the hook away; a second call does nothing."""
        hooks = self._hooks()
        if hooks is not None:
            hooks.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def add_hook(
    hooks: OrderedDict[int, Any], hook: Callable[..., Any], what: str, prepend: bool = False
) -> RemovableHandle:
    """Register `hook` in `hooks`."""
    if not callable(hook):
        raise TypeError(f"{what}: expected a callable hook, got {type(hook).__name__}")
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle
