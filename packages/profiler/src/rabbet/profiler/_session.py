"""The one recording of the process: its begin, its end, and the hooks that name modules and optimizers meanwhile."""

from __future__ import annotations

import importlib
import sys
import threading
from typing import Any

from rabbet import _C as core

from . import _C
from ._trace import MODULE_PREFIX, Options, Trace

_lock = threading.Lock()
_running: Session | None = None


def running() -> Session | None:
    """The recording that runs, if one does."""
    return _running


def caller() -> str:
    """The line of the program that starts a recording, for messages."""
    return core.source() or "an unknown place"


class Session:
    """A recording from `start` to `stop`; there is one at a time, of all threads."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._names = _Names(options.modules or options.stacks)
        self._start = self._live_bytes = 0
        self._where = ""

    def start(self) -> None:
        """Begin to record.

        Raises:
            RuntimeError: if another recording runs.
        """
        global _running
        with _lock:
            if _running is not None:
                raise RuntimeError(
                    "profiler: expected no other profiler to run, but one was started in "
                    f"{_running._where}: stop it first"
                )
            _running = self
        self._where = caller()
        self._live_bytes = core.live_counts()["bytes"]
        self._names.install()
        options = self._options
        self._start = _C.now()
        _C.start(
            shapes=options.shapes or options.flops,
            results=options.flops,
            memory=options.memory,
            stacks=options.stacks,
            devices=options.devices,
        )

    def stop(self) -> Trace:
        """End the recording and return its trace.

        Raises:
            RuntimeError: if it does not run.
            MemoryError: if it ran out of memory, after the recording has ended.
        """
        global _running
        if _running is not self:
            raise RuntimeError("profiler: expected a recording that runs, this one has ended")
        backends = [b["name"] for b in core.backends()]
        raw = _C.stop(backends)
        raw["backends"] = backends
        self._names.remove()
        with _lock:
            _running = None
        if not raw["complete"]:
            raise MemoryError("profiler: there was no memory left to record more calls")
        return Trace(raw, self._start, self._options, self._names.paths, self._live_bytes)


class _Names:
    """Ranges around the calls of modules and the steps of optimizers, as long as a recording runs."""

    def __init__(self, with_modules: bool) -> None:
        self.paths: dict[str, str] = {}  # by the name of the range
        self._with_modules = with_modules
        self._handles: list[Any] = []
        self._open = threading.local()
        self._labels: dict[int, tuple[Any, str]] = {}  # by id; keeps the module alive
        self._counts: dict[str, int] = {}

    def install(self) -> None:
        if "rabbet.optim" in sys.modules:
            optimizer = importlib.import_module("rabbet.optim.optimizer")
            self._handles += [
                optimizer.register_optimizer_step_pre_hook(self._before_step),
                optimizer.register_optimizer_step_post_hook(self._leave),
            ]
        if self._with_modules and "rabbet.nn" in sys.modules:
            module = importlib.import_module("rabbet.nn.modules.module")
            self._handles += [
                module.register_module_forward_pre_hook(self._before_module),
                module.register_module_forward_hook(self._leave, always_call=True),
            ]

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._labels.clear()

    def _ranges(self) -> list[tuple[Any, int]]:
        """The thread's open ranges, with the module or optimizer of each."""
        if not hasattr(self._open, "ranges"):
            self._open.ranges = []
        found: list[tuple[Any, int]] = self._open.ranges
        return found

    def _before_step(self, optimizer: Any, *given: Any) -> None:
        name = f"Optimizer.step#{type(optimizer).__name__}.step"
        self._ranges().append((optimizer, core.range_begin(name, True)))

    def _before_module(self, module: Any, *given: Any) -> None:
        self._ranges().append((module, core.range_begin(self._label(module))))

    def _leave(self, owner: Any, *given: Any) -> None:
        """End the range of a module or optimizer, and those inside of it that an exception has left open."""
        ranges = self._ranges()
        while any(of is owner for of, _ in ranges):
            of, number = ranges.pop()
            core.range_end(number)
            if of is owner:
                return

    def _label(self, module: Any) -> str:
        found = self._labels.get(id(module))
        if found is None:
            kind = type(module).__name__
            number = self._counts.get(kind, 0)
            self._counts[kind] = number + 1
            found = self._labels[id(module)] = (module, f"{MODULE_PREFIX}{kind}_{number}")
            self.paths[found[1]] = self._path(module)
        return found[1]

    def _path(self, module: Any) -> str:
        """The module's attribute path below the module that calls it; its class where it has none."""
        kind = type(module).__name__
        for outer, _ in reversed(self._ranges()):
            if hasattr(outer, "named_modules"):
                below = next((path for path, m in outer.named_modules() if m is module), None)
                return kind if below is None else f"{below} ({kind})"
        return kind
