"""The threads of a data loader."""

from __future__ import annotations

import copy
import queue
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from .errors import ExceptionWrapper
from .fetch import Fetcher
from .stats import NOTHING, Took

__all__ = ["MP_STATUS_CHECK_INTERVAL", "WorkerInfo", "get_worker_info"]

MP_STATUS_CHECK_INTERVAL = 5.0  # seconds between looks whether the other side lives


class WorkerInfo(NamedTuple):
    """What a worker knows of itself: its number, how many there are, its seed and its dataset."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


class _Thread(threading.local):
    info: WorkerInfo | None = None


_this_thread = _Thread()


def get_worker_info() -> WorkerInfo | None:
    """What this worker of a data loader knows of itself; None outside of one."""
    return _this_thread.info or _worker_info


class EndOfStream:
    """What a worker answers when its stream of samples has ended."""


def _run(
    info: WorkerInfo,
    make_fetcher: Callable[[Any], Fetcher],
    init: Callable[[int], None] | None,
    tasks: queue.SimpleQueue[Any],
    results: queue.SimpleQueue[Any],
) -> None:
    """The loop of a worker: (epoch, number, indices) come, (epoch, number, batch, took) go; None ends it.

    A task without a number begins an epoch.
    """
    _this_thread.info = info
    where = f"in DataLoader worker thread {info.id}"
    broken: ExceptionWrapper | None = None
    fetcher: Fetcher | None = None
    try:
        if init is not None:
            init(info.id)
    except Exception:
        broken = ExceptionWrapper(where=where)
    while (task := tasks.get()) is not None:
        epoch, number, indices = task
        took = NOTHING
        try:
            if number is None:
                fetcher = None
                continue
            if broken is not None:
                answer: Any = broken
            else:
                fetcher = fetcher or make_fetcher(info.dataset)
                answer = fetcher(indices)
                took = fetcher.took
        except StopIteration:
            answer = EndOfStream()
        except Exception:
            answer = ExceptionWrapper(where=where)
        results.put((epoch, number, answer, took))
        del task, indices, answer


class Threads:
    """Threads that make batches. Each works on a shallow copy of the dataset, whose contents they share."""

    def __init__(
        self,
        dataset: Any,
        count: int,
        seed: int,
        init: Callable[[int], None] | None,
        make_fetcher: Callable[[Any], Fetcher],
    ) -> None:
        self.is_stopped = False
        self.results: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.tasks: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in range(count)]
        for number, tasks in enumerate(self.tasks):
            info = WorkerInfo(number, count, seed + number, copy.copy(dataset))
            threading.Thread(
                target=_run,
                args=(info, make_fetcher, init, tasks, self.results),
                name=f"rabbet-data-{number}",
                daemon=True,
            ).start()

    def begin(self, epoch: int) -> None:
        """Let the workers begin a pass."""
        for tasks in self.tasks:
            tasks.put((epoch, None, None))

    def send(self, number: int, epoch: int, batch: int, indices: Any) -> None:
        """Ask a worker for a batch."""
        self.tasks[number].put((epoch, batch, indices))

    def receive(self, timeout: float | None) -> tuple[int, int, Any, Took]:
        """The next batch of any worker, as (epoch, number, batch, took).

        Raises:
            queue.Empty: after so many seconds.
        """
        return self.results.get(timeout=timeout)

    def describe(self, number: int) -> str:
        """A worker, for messages."""
        return f"worker {number} (a thread)"

    def stop(self, patience: float = MP_STATUS_CHECK_INTERVAL) -> None:
        """Let the threads end after the task at hand, for which nobody waits."""
        self.is_stopped = True
        for tasks in self.tasks:
            tasks.put(None)

    def __del__(self) -> None:
        self.stop()


_worker_info: WorkerInfo | None = None  # of a worker process


def _generate_state(base_seed: int, worker_id: int) -> list[int]:
    """Four words to seed NumPy with, from a loader's seed and a worker's number.

    The hashing of NumPy's `SeedSequence`: M. O'Neill, "Developing a seed_seq Alternative", 2015.
    """
    mask = 0xFFFFFFFF
    init_a, mult_a, init_b, mult_b = 0x43B0D7E5, 0x931E8875, 0x8B51F9DD, 0x58F38DED
    mix_mult_l, mix_mult_r = 0xCA01F9DD, 0x4973F715
    entropy = [worker_id, base_seed & mask, base_seed >> 32, 0]
    constant = init_a

    def hashed(value: int) -> int:
        nonlocal constant
        value = (value ^ constant) & mask
        constant = constant * mult_a & mask
        value = value * constant & mask
        return (value ^ value >> 16) & mask

    def mixed(x: int, y: int) -> int:
        found = (mix_mult_l * x & mask) - (mix_mult_r * y & mask) & mask
        return (found ^ found >> 16) & mask

    pool = [hashed(word) for word in entropy]
    for source in range(4):
        for target in range(4):
            if source != target:
                pool[target] = mixed(pool[target], hashed(pool[source]))
    constant = init_b
    state = []
    for value in pool:
        value = (value ^ constant) & mask
        constant = constant * mult_b & mask
        value = value * constant & mask
        state.append((value ^ value >> 16) & mask)
    return state
