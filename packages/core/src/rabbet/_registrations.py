"""What rabbet.library registers: where it came from, what takes its place, how it is taken back."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from . import _C


class Place(NamedTuple):
    """Where a registration was made: the calling module, the file and line, the name of what was given."""

    module: str
    file: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.module} ({self.file}:{self.line})"

    @property
    def interactive(self) -> bool:
        """Whether it is a prompt or a notebook's cell, which people run again after a change."""
        return self.file.startswith("<") or "ipykernel" in self.file

    def replaces(self, other: Place) -> bool:
        """Whether a definition here is a new version of one there: a module or a cell that runs again."""
        if self.interactive and other.interactive:
            return True
        return (self.module, self.file, self.what) == (other.module, other.file, other.what)


def caller(what: str) -> Place:
    """The place of the first frame outside rabbet.library."""
    frame = sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(_OWN):
        frame = frame.f_back
    return Place(
        frame.f_globals.get("__name__", "?"), frame.f_code.co_filename, frame.f_lineno, what
    )


_OWN = ("rabbet.library", "rabbet._registrations", "rabbet._custom_ops")


class Registration:
    """A registration: revoke() takes it back, as does leaving it as a context manager.

    It is called as its function is. `name`: the operator; `target`: the device, layer or rule;
    `place`: who registered it.
    """

    def __init__(
        self,
        name: str,
        target: str,
        place: Place,
        function: Any,
        undo: Iterable[Callable[[], Any]],
        parts: Iterable[Registration] = (),
    ) -> None:
        self.parts = list(parts)  # made with it: they go when it goes
        self.name, self.target, self.place, self.function = name, target, place, function
        self._undo = list(undo)
        self.active = True
        if callable(function):
            functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def revoke(self) -> None:
        """Take it back; does nothing the second time, or when a newer definition has replaced it."""
        if not self.active:
            return
        self.active = False
        if _registered.get((self.name, self.target)) is self:
            del _registered[self.name, self.target]
        for part in reversed(self.parts):
            part.revoke()
        for undo in reversed(self._undo):
            undo()

    def __enter__(self) -> Registration:
        return self

    def __exit__(self, *exception: object) -> None:
        self.revoke()

    def __repr__(self) -> str:
        state = "" if self.active else ", revoked"
        return f"<{described(self.target)} of '{self.name}' by {self.place}{state}>"


_registered: dict[tuple[str, str], Registration] = {}
_RULES = {
    "operator": "definition",
    "decomp": "decomposition",
    "shape": "shape function",
    "vjp": "vjp function",
    "jvp": "jvp function",
    "vmap": "batching rule",
    "autocast": "autocast policy",
}


def described(target: str) -> str:
    """What a registration for `target` is, in words."""
    return _RULES.get(target, f"kernel for '{target}'")


def replaces(name: str, target: str, place: Place) -> bool:
    """Whether a registration at `place` takes the place of an older one.

    Raises:
        PluginError: naming both places, if it is another one's.
    """
    old = _registered.get((name, target))
    if old is None:
        return False
    if place.replaces(old.place):
        return True
    raise _C.PluginError(
        f"the {described(target)} of '{name}' is registered already, by {old.place}; "
        f"this is a second one, by {place}; revoke() the first, or choose another name"
    )


def keep(registration: Registration) -> Registration:
    """Note it as the current one; what it replaces counts as taken back."""
    key = registration.name, registration.target
    old = _registered.get(key)
    if old is not None:
        old.active = False
    _registered[key] = registration
    on_rollback(registration.revoke)
    return registration


_undo: contextvars.ContextVar[list[Callable[[], Any]] | None] = contextvars.ContextVar(
    "undo", default=None
)


@contextlib.contextmanager
def recording(undo: list[Callable[[], Any]]) -> Iterator[None]:
    """While entered, what this thread registers puts into `undo` how to take it back."""
    token = _undo.set(undo)
    try:
        yield
    finally:
        _undo.reset(token)


def on_rollback(step: Callable[[], Any]) -> None:
    """Tell who records, if anyone, how to take back what was just registered."""
    steps = _undo.get()
    if steps is not None:
        steps.append(step)


def registrations() -> list[Registration]:
    """All that are current."""
    return list(_registered.values())


def find(name: str, target: str) -> Registration | None:
    """The current registration, if there is one."""
    return _registered.get((name, target))
