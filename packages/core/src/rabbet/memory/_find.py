"""All tensors that Python objects and graphs of autograd refer to."""

from __future__ import annotations

import gc
import importlib
import inspect
import sys
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from .. import _C
from .._C import Tensor

__all__ = ["HERE", "Found", "live_tensors", "locals_of", "running_frames", "storage_of"]

HERE = str(Path(__file__).parent)
_FRAME_AND_HERE = (
    3  # references to the dict: of the frame, of the variable, of the call that counts
)
_CHUNK = 100_000  # objects whose referents are listed at once


class Found(NamedTuple):
    """A tensor; whether a graph keeps it for backward; and whether Python objects refer to it, or only C code does."""

    tensor: Tensor
    is_saved: bool
    is_held: bool


def running_frames() -> Iterator[types.FrameType]:
    """The frames of all threads, innermost first, without those of this package."""
    for top in sys._current_frames().values():
        frame: types.FrameType | None = top
        while frame is not None:
            if not frame.f_code.co_filename.startswith(HERE):
                yield frame
            frame = frame.f_back


def locals_of(frame: types.FrameType) -> dict[str, Any]:
    """The local variables of a frame.

    A frame of a function keeps the dict that it makes of them, and with it what it held then. It is emptied here, unless
    the program has that dict from `locals()`. Python 3.13 has views instead.
    """
    found = frame.f_locals
    values = dict(found)
    is_function = frame.f_code.co_flags & inspect.CO_OPTIMIZED
    if is_function and type(found) is dict and sys.getrefcount(found) <= _FRAME_AND_HERE:
        found.clear()
    return values


def _tensors(objects: Iterable[Any]) -> list[Tensor]:
    """The tensors among many objects; no code of their classes runs."""
    objects = list(objects)
    kinds = {t for t in set(map(type, objects)) if Tensor in t.__mro__}
    return [o for o in objects if type(o) in kinds]


def live_tensors() -> list[Found]:
    """Each tensor once.

    Tensors of frames, of containers and of objects that the garbage collector tracks, gradients of these, and what the
    graphs behind them keep for backward. It does not see what only C code holds.
    """
    tracked = gc.get_objects()
    found = {id(t): t for t in _tensors(tracked)}
    for start in range(0, len(tracked), _CHUNK):
        part = gc.get_referents(*tracked[start : start + _CHUNK])
        found.update((id(t), t) for t in _tensors(part))
    del tracked
    for frame in running_frames():
        found.update((id(t), t) for t in _tensors(locals_of(frame).values()))
    gradients = {}
    for t in found.values():
        gradient = _attribute(t, "grad") if _attribute(t, "is_leaf") else None
        if gradient is not None and id(gradient) not in found:
            gradients[id(gradient)] = gradient
    held = list(found.values())
    return [
        *(Found(t, False, True) for t in held),
        *(Found(t, False, False) for t in gradients.values()),
        *(Found(t, True, False) for t in _saved(held)),
    ]


def _attribute(t: Tensor, name: str) -> Any:
    try:
        return getattr(Tensor, name).__get__(t)
    except Exception:
        return None


def _saved(tensors: list[Tensor]) -> list[Tensor]:
    if "rabbet.autograd" not in sys.modules:
        return []
    reports = importlib.import_module("rabbet.autograd._tape_reports")
    outputs = [t for t in tensors if _attribute(t, "grad_fn") is not None]
    kept = {}
    for node in reports._nodes(outputs):
        for _, tensor in reports._kept(node):
            if tensor is not None:
                kept[id(tensor)] = tensor
    return list(kept.values())


def storage_of(t: Tensor) -> tuple[str, int, int] | None:
    """Device, address and bytes of a tensor's memory; None for tensors without memory of their own."""
    if _C.composite(t):
        return None
    try:
        storage = Tensor.untyped_storage(t)
        address, size = storage.data_ptr(), storage.nbytes()
    except (RuntimeError, NotImplementedError):
        return None
    return (str(t.device), address, size) if address and size else None
