"""Python's `multiprocessing` under PyTorch's names: messages share the memory of tensors.

A tensor in a message (a queue, a pipe, the arguments of a process) is moved to shared memory, and the receiver sees the
same elements. The memory has no name: the system frees it with the last process that uses it, however that ends. The
sender has to live until the receiver has the message. Memory of CUDA devices is shared by handles of the driver: its sender
keeps it, and has to live, until the receiver has dropped the tensor.
"""

import multiprocessing as _python
from multiprocessing import *  # noqa: F403
from typing import Any

from . import reductions
from ._contexts import get_context as get_context
from .spawn import (
    ENV_VAR_PARALLEL_START,
    ProcessContext,
    ProcessException,
    ProcessExitedException,
    ProcessRaisedException,
    SpawnContext,
    spawn,
    start_processes,
)

__all__ = [
    *_python.__all__, "ENV_VAR_PARALLEL_START", "ProcessContext", "ProcessException", "ProcessExitedException",
    "ProcessRaisedException", "SpawnContext", "get_all_sharing_strategies", "get_sharing_strategy",
    "set_sharing_strategy", "spawn", "start_processes",
]  # fmt: skip

reductions.init_reductions()


def Queue(maxsize: int = 0) -> Any:  # type: ignore[no-redef]
    """A queue among processes; `put` raises what pickling raises."""
    return get_context().Queue(maxsize)


def JoinableQueue(maxsize: int = 0) -> Any:  # type: ignore[no-redef]
    """A queue whose items are marked as done; `put` raises what pickling raises."""
    return get_context().JoinableQueue(maxsize)


_strategy = "file_descriptor"


def get_all_sharing_strategies() -> set[str]:
    """The names that set_sharing_strategy() takes."""
    return {"file_descriptor", "file_system"}


def get_sharing_strategy() -> str:
    """The name that was set last; 'file_descriptor' at first."""
    return _strategy


def set_sharing_strategy(new_strategy: str) -> None:
    """Choose how tensors in messages are shared.

    Both strategies send descriptors of memory without a name: 'file_system', which in PyTorch names files that can
    outlive their processes, is there for programs that set it.

    Raises:
        AssertionError: for another name, as in PyTorch.
    """
    global _strategy
    if new_strategy not in get_all_sharing_strategies():
        raise AssertionError(
            f"invalid sharing strategy {new_strategy!r}, expected one of {get_all_sharing_strategies()}"
        )
    _strategy = new_strategy
