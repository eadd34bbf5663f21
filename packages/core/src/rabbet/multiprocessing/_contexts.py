"""Contexts of Python's whose queues pickle where an object is put, not in the thread that sends it."""

import multiprocessing
import multiprocessing.queues
import pickle
from multiprocessing.reduction import ForkingPickler
from typing import Any


class _Pickled:
    """A message that is pickled already."""

    def __init__(self, data: Any) -> None:
        self.data = bytes(data)

    def __reduce__(self) -> Any:
        return pickle.loads, (self.data,)


class _PicklesAtOnce:
    """Python's queue pickles in a thread of its own, whose errors the program does not see.

    Tensors are moved to shared memory by `put`, too, so that the caller knows when they are.
    """

    def put(self, obj: Any, block: bool = True, timeout: float | None = None) -> None:
        super().put(_Pickled(ForkingPickler.dumps(obj)), block, timeout)  # type: ignore[misc]


class Queue(_PicklesAtOnce, multiprocessing.queues.Queue):  # type: ignore[type-arg]
    """A queue whose `put` raises what pickling raises."""


class JoinableQueue(_PicklesAtOnce, multiprocessing.queues.JoinableQueue):  # type: ignore[type-arg]
    """A joinable queue whose `put` raises what pickling raises."""


_made: dict[type, type] = {}


def get_context(method: str | None = None) -> Any:
    """The context of a start method: 'fork', 'spawn', 'forkserver'; the default one without a name.

    Raises:
        ValueError: for another name.
    """
    kind = type(multiprocessing.get_context(method))
    if kind not in _made:

        def queue(self: Any, maxsize: int = 0) -> Any:
            return Queue(maxsize, ctx=self.get_context())

        def joinable(self: Any, maxsize: int = 0) -> Any:
            return JoinableQueue(maxsize, ctx=self.get_context())

        _made[kind] = type(
            kind.__name__, (kind,), {"Queue": queue, "JoinableQueue": joinable, "get_context": _own}
        )
    return _made[kind]()


def _own(self: Any, method: str | None = None) -> Any:
    return self if method is None else get_context(method)
