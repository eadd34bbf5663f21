"""Where memory was allocated: the line of the program and the module, noted while `record` is active."""

from __future__ import annotations

import importlib
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple, Self

from .._C import Tensor
from ._find import live_tensors, storage_of

__all__ = ["Origin", "origin_of", "record"]

_PACKAGE = str(Path(__file__).parent.parent)
_MOST = 100_000  # entries, of which those of freed memory are dropped when there are more


class Origin(NamedTuple):
    """Where memory came from."""

    line: str
    module: str
    serial: int


_origins: dict[tuple[str, int], Origin] = {}
_lock = threading.Lock()
_serial = 0


def origin_of(device: str, address: int) -> Origin | None:
    """The record of an allocation at an address."""
    return _origins.get((device, address))


def _line() -> str:
    """The innermost line of the program outside of this package."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    code = frame.f_code
    return f"{code.co_filename}:{frame.f_lineno} in {code.co_name}"


def _places(values: Any) -> list[tuple[str, int]]:
    places = []
    for value in values:
        if isinstance(value, (list, tuple)):
            places += _places(value)
        elif isinstance(value, Tensor):
            found = storage_of(value)
            if found is not None:
                places.append(found[:2])
    return places


def _note(origin_module: str, args: Any, results: Any) -> None:
    global _serial
    read = set(_places(args))
    made = [place for place in _places(results) if place not in read]  # others are views
    if not made:
        return
    line = _line()
    with _lock:
        for place in made:
            _serial += 1
            _origins[place] = Origin(line, origin_module, _serial)
        is_full = len(_origins) > _MOST
    if is_full:
        _drop_freed()


def _drop_freed() -> None:
    live = {found[:2] for f in live_tensors() if (found := storage_of(f.tensor)) is not None}
    with _lock:
        for place in [p for p in _origins if p not in live]:
            del _origins[place]


class record:
    """Context manager: note the line, and the module of `rabbet.nn`, in which this thread allocates memory.

    Snapshots, leak reports and the report of an OutOfMemoryError then name them, also after the context has ended. Each
    operator call takes some microseconds longer. Memory that is not the result of an operator is not noted, such as that of
    files and NumPy arrays. Backward passes are noted with the line that started them.

    Raises:
        ImportError: on entry, without the wheel rabbet-autograd.
        RuntimeError: if the context is entered twice.

    Example:
        >>> with memory.record():
        ...     loss = model(x).sum()
        >>> print(memory.snapshot())
    """

    def __init__(self) -> None:
        self._modes: list[Any] = []

    def __enter__(self) -> Self:
        if self._modes:
            raise RuntimeError("memory.record: the context is active already; use another one")
        graph = importlib.import_module("rabbet.autograd.graph")
        tracker = importlib.import_module("rabbet.utils.module_tracker").ModuleTracker()

        def note(op: str, args: Any, targets: Any, run: Any) -> None:
            results = run()
            if targets is None:
                _note(tracker.innermost, args, results)
                return results
            return None

        for mode in (tracker, graph.call_mode(note)):
            mode.__enter__()
            self._modes.append(mode)
        return self

    def __exit__(self, *exc: object) -> None:
        while self._modes:
            self._modes.pop().__exit__(*exc)
