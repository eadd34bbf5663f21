"""Handles that take a hook away again."""

from __future__ import annotations

import itertools
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["RemovableHandle"]

_ids = itertools.count()


class RemovableHandle:
    """Takes a hook away again, by `remove()` or at the end of a `with` block.

    Args:
        hooks_dict: holds the hook under `id` of the handle.
        extra_dict: another dict, or several, with an entry of the same id.
    """

    id: int

    def __init__(
        self,
        hooks_dict: Mapping[int, Any],
        *,
        extra_dict: Mapping[int, Any] | Sequence[Mapping[int, Any]] | None = None,
    ) -> None:
        self.id = next(_ids)
        more = [extra_dict] if isinstance(extra_dict, Mapping) else list(extra_dict or ())
        self._dicts: list[Any] = [weakref.ref(d) for d in (hooks_dict, *more)]

    def remove(self) -> None:
        """Take the hook away; a second call does nothing."""
        for ref in self._dicts:
            hooks = ref()
            if hooks is not None:
                hooks.pop(self.id, None)

    def __getstate__(self) -> tuple[Any, ...]:
        hooks, *more = [ref() for ref in self._dicts]
        return (hooks, self.id, tuple(more)) if more else (hooks, self.id)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        # The dicts of a copied module are copies too; None: gone when the handle was copied.
        hooks, self.id, *more = state
        dicts = [hooks, *(more[0] if more else ())]
        self._dicts = [weakref.ref(OrderedDict() if d is None else d) for d in dicts]

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def add_hook(
    hooks: dict[int, Any],
    hook: Callable[..., Any],
    what: str,
    *,
    prepend: bool = False,
    flags: tuple[dict[int, Any], ...] = (),
) -> RemovableHandle:
    """Register `hook` in `hooks` and its id in each dict of `flags`."""
    if not callable(hook):
        raise TypeError(f"{what}: expected a callable hook, got {type(hook).__name__}")
    handle = RemovableHandle(hooks, extra_dict=flags)
    hooks[handle.id] = hook
    for flag in flags:
        flag[handle.id] = True
    if prepend and isinstance(hooks, OrderedDict):
        hooks.move_to_end(handle.id, last=False)
    return handle
