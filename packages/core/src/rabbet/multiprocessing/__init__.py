"""Python's `multiprocessing` under PyTorch's names: everything but the sharing of tensors by messages.

A process that is forked sees the tensors of its parent; those on which `share_memory_()` was called are shared with
it. A tensor in a message (a queue, a pipe, the arguments of a spawned process) refuses.
"""

import multiprocessing as _python
from multiprocessing import *  # noqa: F403
from typing import Any

from .. import _C
from . import reductions
from ._contexts import context_with_checked_queues
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
    """A queue among processes; `put` of a tensor refuses at once."""
    return context_with_checked_queues(None).Queue(maxsize)


def JoinableQueue(maxsize: int = 0) -> Any:  # type: ignore[no-redef]
    """A queue whose items are marked as done; `put` of a tensor refuses at once."""
    return context_with_checked_queues(None).JoinableQueue(maxsize)


def get_all_sharing_strategies() -> set[str]:
    """How tensors in messages can be shared: in no way yet."""
    return set()


def get_sharing_strategy() -> str:
    """How tensors in messages are shared.

    Raises:
        NotImplementedError: always, as they are not.
    """
    raise _C.NotImplementedForError(f"get_sharing_strategy: {reductions.REASON}")


def set_sharing_strategy(new_strategy: str) -> None:
    """Choose how tensors in messages are shared; kept nowhere, as such tensors refuse."""
