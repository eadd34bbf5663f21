"""Functions whose calls are recorded and then replayed without their Python code."""

from __future__ import annotations

import functools
import importlib.util
import threading
from collections.abc import Callable
from typing import Any

from rabbet import Tensor, compiler
from rabbet._settings import warn_once

from . import _C, _replay
from ._guards import MISSING, Kind, describe
from ._numbers import is_number
from ._region import in_region, region
from ._watch import place_of

__all__ = ["Replayed", "replayed", "state_of"]

MOST_VARIANTS = 8
MOST_REFUSALS = 3  # a first call may set up state, which makes it unlike the later ones
_FAILED = _replay.FAILED
_lock = threading.Lock()  # one recording at a time in the process
_here = threading.local()


class Replayed:
    """A function with its recorded variants.

    Attributes:
        fn: the function.
        in_region: the function with its calls in a region.
        variants: the recorded programs.
        reason: why no further call will be recorded; None while calls are.
        refusal: why the last recorded call cannot be replayed; None if it can.
        last: "recorded" if the last call that was not replayed became a variant, otherwise "run".
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        self.in_region = in_region(fn)
        self.variants = _replay.Variants()
        self.reason: str | None = None
        self.refusal: str | None = None
        self.last = "run"
        if not _replay.CAN_WATCH:
            self.reason = "this version of Python cannot show its instructions to rabbet_compile"
        elif importlib.util.find_spec("rabbet.graph") is None:
            self.reason = "it needs the wheel 'rabbet-graph': pip install rabbet-graph"
        self._guards: list[list[Any]] = []
        self._found: Any = None
        self._varying: dict[Any, Any] = {}  # dicts with numbers that change, by place
        self._seen: set[Any] = set()
        self._refusals = 0

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function because no variant fits, and record the call if it is due."""
        if not self._is_due(args, kwargs) or not _lock.acquire(blocking=False):
            self.last = "run"
            return self.in_region(*args, **kwargs)
        _here.recording, self.last = True, "run"
        try:
            with region():
                return self._record(args, kwargs)
        finally:
            _here.recording = False
            _lock.release()
            self._add()

    def _is_due(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether to record the call: the structure of its arguments has occurred before."""
        if self.reason is not None or _C.is_on():
            return False
        key = _structure((args, kwargs))
        if key in self._seen:
            return True
        if len(self._seen) < 64:
            self._seen.add(key)
        return False

    def _record(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        from ._record import record

        self.refusal = "it raised an error"
        self._refusals += 1
        if self._refusals >= MOST_REFUSALS:
            self.reason = self.refusal
        self._note_varying()
        found = record(self.fn, args, kwargs, self._varying)
        self.refusal = found.reason
        if found.spec is None:
            if self._refusals >= MOST_REFUSALS:
                self.reason = found.reason
            return found.result
        self._refusals, self.reason = 0, None
        if found.varying:
            self._varying.update(found.varying)
            self.refusal = "it computes with numbers that change; the next recording follows them"
        else:
            self._found = found
        return found.result

    def _note_varying(self) -> None:
        """Note the places whose numbers differ from those that the newest variant expects."""
        for kind, *parts in self._guards[-1] if self._guards else ():
            if kind == Kind.ENTRY and is_number(parts[2]):
                held, key, before = parts
                now = dict.get(held, key)
                if type(now) is type(before) and now != before:
                    self._varying[place_of(held, key)] = held

    def _add(self) -> None:
        """Add the recorded variant, outside of the region: its guards take the state of the thread from here."""
        found, self._found = self._found, None
        if found is None:
            return
        if len(self.variants) == MOST_VARIANTS:
            self._give_up()
            return
        self.variants.add(found.spec)
        self._guards.append(found.guards)
        self.last = "recorded"

    def _give_up(self) -> None:
        name = getattr(self.fn, "__qualname__", type(self.fn).__name__)
        self.reason = (
            f"what it depends on changes from call to call: {self.why_missed() or 'its arguments'}"
        )
        warn_once(
            f"compile: {name} runs as Python code from now on, since {self.reason}; rabbet_compile.explain says more",
            stacklevel=5,
        )

    def report(self, runs: int) -> str:
        """Whether the last call was replayed, and if not, why.

        Args:
            runs: the number of replays before that call.
        """
        count = len(self.variants)
        if self.variants.runs > runs:
            first = self.variants.failed()[0][0]
            return f"replayed: {len(self._guards[first])} guards; {count} variants, {self.variants.runs} replays so far"
        if self.last == "recorded":
            return f"recorded: {len(self._guards[-1])} guards; later calls are replayed"
        why = self.reason or self.refusal
        if why is not None:
            return f"not replayed: {why}"
        missed = self.why_missed() if count else None
        return f"not replayed: {'it no longer holds that ' + missed if missed else 'no call like this one was recorded'}"

    def why_missed(self) -> str | None:
        """The text of the guard that failed in the last call, of the newest variant with one; None without any."""
        for number, at in self.variants.failed():
            if 0 <= at < len(self._guards[number]):
                return describe(self._guards[number][at])
        return None


def _structure(item: Any) -> Any:
    """A hashable description of arguments. Calls with equal ones are likely to run the same program."""
    kind = type(item)
    if isinstance(item, Tensor):
        return kind, item.dtype, tuple(item.shape)
    if kind in (list, tuple):
        return kind, tuple(map(_structure, item))
    if kind is dict:
        return kind, tuple((_structure(key), _structure(value)) for key, value in item.items())
    if kind in (int, float, str, bool, type(None)):
        return kind, item
    return kind, id(item)


def replayed(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn`, whose calls are replayed if the guards of a variant hold, and otherwise run in a region."""
    state = Replayed(fn)
    call, run = state.variants.call, state.run

    @functools.wraps(fn)
    def compiled(*args: Any, **kwargs: Any) -> Any:
        if compiler._stance == "force_eager":
            return fn(*args, **kwargs)
        if getattr(_here, "recording", False):
            return fn(*args, **kwargs)
        result = call(args, kwargs)
        if result is MISSING:
            return run(args, kwargs)
        if result is _FAILED:
            return state.in_region(*args, **kwargs)
        return result

    compiled._rabbet_replayed = state  # type: ignore[attr-defined]
    return compiled


def state_of(fn: Any) -> Replayed | None:
    """The state of a function that `replayed` has made; None for other functions."""
    return getattr(fn, "_rabbet_replayed", None)
