"""Contexts of Python's whose queues refuse tensors where they are put, not in the thread that sends them."""

import multiprocessing
import multiprocessing.queues
from multiprocessing.reduction import ForkingPickler
from typing import Any


class _CheckedPut:
    """A queue pickles in a thread of its own, whose errors the program does not see: try it first."""

    def put(self, obj: Any, block: bool = True, timeout: float | None = None) -> None:
        ForkingPickler.dumps(obj)
        super().put(obj, block, timeout)  # type: ignore[misc]


class CheckedQueue(_CheckedPut, multiprocessing.queues.Queue):  # type: ignore[type-arg]
    """A queue whose `put` raises what pickling raises."""


class CheckedJoinableQueue(_CheckedPut, multiprocessing.queues.JoinableQueue):  # type: ignore[type-arg]
    """A joinable queue whose `put` raises what pickling raises."""


_made: dict[type, type] = {}


def context_with_checked_queues(method: str | None) -> Any:
    """Python's context of a start method (None: the default one) with such queues."""
    plain = multiprocessing.get_context(method)
    kind = type(plain)
    if kind not in _made:

        def queue(self: Any, maxsize: int = 0) -> Any:
            return CheckedQueue(maxsize, ctx=self.get_context())

        def joinable(self: Any, maxsize: int = 0) -> Any:
            return CheckedJoinableQueue(maxsize, ctx=self.get_context())

        _made[kind] = type(
            kind.__name__, (kind,), {"Queue": queue, "JoinableQueue": joinable, "get_context": _own}
        )
    made = _made[kind]()
    return made


def _own(self: Any, method: str | None = None) -> Any:
    return self if method is None else get_context(method)


def get_context(method: str | None = None) -> Any:
    """The context of a start method: 'fork', 'spawn', 'forkserver'; the default one without a name.

    Raises:
        ValueError: for another name.
    """
    return context_with_checked_queues(method)
