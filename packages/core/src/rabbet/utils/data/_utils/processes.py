"""The processes of a data loader."""

from __future__ import annotations

import gc
import multiprocessing
import multiprocessing.connection
import os
import pickle
import queue
import random
import signal
import struct
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import rabbet

# Messages then share the tensors of datasets; by value they would hold up the start of the next worker.
from ....multiprocessing import reductions as _reductions  # noqa: F401
from . import slots, worker
from .errors import ExceptionWrapper
from .fetch import Fetcher
from .stats import NOTHING, Took
from .worker import MP_STATUS_CHECK_INTERVAL, EndOfStream, WorkerInfo, _generate_state

__all__ = ["Processes", "Work"]

_HEAD = struct.Struct(
    "<i?6q"
)  # of a message: the slot, whether the worker still uses it, what the batch took


class Work(NamedTuple):
    """What a worker needs to make batches."""

    dataset: Any
    is_stream: bool
    batches: bool
    collate: Callable[[Any], Any]
    drop_last: bool
    base_seed: int
    init: Callable[[int], None] | None
    workers: int


def _seed(base_seed: int, number: int) -> None:
    random.seed(base_seed + number)
    rabbet.manual_seed(base_seed + number)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(_generate_state(base_seed, number))


def _read_tasks(connection: Any, tasks: queue.SimpleQueue[Any]) -> None:
    """The thread that takes tasks, so that the program never waits for a worker; it ends the worker with its parent."""
    parent = os.getppid()
    while True:
        try:
            if not connection.poll(MP_STATUS_CHECK_INTERVAL):
                if os.getppid() != parent:
                    os._exit(1)
                continue
            task = connection.recv()
        except (EOFError, OSError):
            os._exit(1)  # the program is gone
        tasks.put(task)
        if task is None:
            return


def _message(epoch: int, number: int, answer: Any, slot: slots.Slot | None, where: str) -> bytes:
    try:
        return slots.dumps((epoch, number, answer), slot)
    except Exception:
        failed = ExceptionWrapper(where=where)
    try:
        pickle.dumps(failed)
    except Exception:  # a class that only the worker has
        failed.exc_type = RuntimeError
    return slots.dumps((epoch, number, failed), None)


def _answer(fetcher: Fetcher, indices: Any, where: str) -> Any:
    try:
        return fetcher(indices)
    except StopIteration:
        if fetcher.is_stream:
            return EndOfStream()
        return ExceptionWrapper(where=where)
    except Exception:
        return ExceptionWrapper(where=where)


def _sent_as(error: ExceptionWrapper) -> ExceptionWrapper:
    """The error, with a class that the program has, too."""
    try:
        pickle.dumps(error)
    except Exception:
        error.exc_type = RuntimeError
    return error


def _with_write(took: Took) -> Took:
    """The cost of a batch that was written to its slot after it was collated."""
    now = time.perf_counter_ns()
    *counted, _, finished = took
    return (*counted, now - finished, now)  # type: ignore[return-value]


def _make_batches(
    work: Work, number: int, tasks: queue.SimpleQueue[Any], results: Any, ring: list[slots.Slot]
) -> None:
    where = f"in DataLoader worker process {number}"
    broken = None
    fetcher: Fetcher | None = None
    largest, is_direct = 0, True
    try:
        if work.init is not None:
            work.init(number)
    except Exception:
        broken = _sent_as(ExceptionWrapper(where=where))
    while (task := tasks.get()) is not None:
        epoch, batch, indices, place = task
        if epoch is None:
            ring[place].close()
            ring[place] = indices
            continue
        if batch is None:
            fetcher = None
            continue
        slot = None if place is None else ring[place]
        if slot is not None:
            slot.begin(largest)
        try:
            if broken is None and fetcher is None:
                fetcher = Fetcher(
                    work.dataset, work.is_stream, work.batches, work.collate, work.drop_last
                )
        except Exception:
            answer: Any = ExceptionWrapper(where=where)
        else:
            if broken is not None:
                answer = broken
            else:
                assert fetcher is not None
                with slots.write_to(slot if is_direct else None):
                    answer = _answer(fetcher, indices, where)
        if isinstance(answer, ExceptionWrapper):
            answer = _sent_as(answer)
        is_made = not isinstance(answer, (ExceptionWrapper, EndOfStream))
        data = _message(epoch, batch, answer, slot, where)
        del answer, task, indices
        is_kept = slot is not None and slot.is_kept()
        if slot is not None:
            largest = max(largest, slot.used)
        if is_kept:  # the dataset or collate_fn keeps batches: write to memory of its own first
            is_direct = False
        took = _with_write(fetcher.took) if is_made and fetcher is not None else NOTHING
        results.send_bytes(_HEAD.pack(-1 if place is None else place, is_kept, *took) + data)


def run(
    work: Work,
    number: int,
    connection: Any,
    results: Any,
    ring: list[slots.Slot],
    others: list[Any],
) -> None:
    """The body of a worker: tasks (epoch, batch, indices, place of a slot) come, batches go; None ends it.

    A task without a batch begins an epoch; one without an epoch brings another slot for a place.
    """
    gc.freeze()  # else collections write to each object of the parent, whose pages are then copied
    for end in others:
        end.close()
    try:
        rabbet.set_num_threads(1)
        _seed(work.base_seed, number)
        info = WorkerInfo(number, work.workers, work.base_seed + number, work.dataset)
        worker._worker_info = info
        tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=_read_tasks, args=(connection, tasks), daemon=True).start()
        _make_batches(work, number, tasks, results, ring)
    except KeyboardInterrupt:
        pass  # the program raises its own
    except (BrokenPipeError, ConnectionResetError):
        pass  # the program needs no more batches


def _prepare(method: str) -> None:
    """Import once, in the process that workers are forked from, what each of them would import."""
    if method == "fork" and "numpy" in sys.modules:
        import numpy.random  # noqa: F401
    if method == "forkserver":
        from multiprocessing import forkserver

        server: Any = forkserver._forkserver
        if server._preload_modules == ["__main__"]:  # the program has not chosen
            forkserver.set_forkserver_preload(["__main__", __name__])


class Processes:
    """Processes that make batches."""

    def __init__(self, work: Work, context: Any, prefetch: int) -> None:
        self._pid = os.getpid()
        self.processes: list[Any] = []
        self._tasks: list[Any] = []
        self._results: list[Any] = []
        self.ring = slots.Ring(work.workers * prefetch + 2)
        self._end = weakref.finalize(
            self, _end, self._pid, self.processes, self._tasks, self._results, self.ring,
            MP_STATUS_CHECK_INTERVAL,
        )  # fmt: skip
        context = multiprocessing if context is None else context
        method = context.get_start_method()
        is_fork = method == "fork"
        _prepare(method)
        try:
            for number in range(work.workers):
                self._start(work, context, number, is_fork)
        except BaseException:
            self.stop()
            raise

    def _start(self, work: Work, context: Any, number: int, is_fork: bool) -> None:
        theirs, ours = context.Pipe(duplex=False)
        self._tasks.append(ours)
        read, write = context.Pipe(duplex=False)
        self._results.append(read)
        # A pipe ends with its last descriptor: forked workers drop those of the program.
        others = [*self._tasks, *self._results] if is_fork else []
        process = context.Process(
            target=run, args=(work, number, theirs, write, self.ring.slots, others), daemon=True
        )
        try:
            process.start()
        except (TypeError, AttributeError, pickle.PicklingError):
            warnings.warn(
                "Got pickle error when attempting to start a worker Process. This might be because the worker Process "
                "arguments are not picklable. You can also try multiprocessing.set_start_method('fork').",
                stacklevel=2,
            )
            raise
        finally:
            theirs.close()
            write.close()
        self.processes.append(process)

    def begin(self, epoch: int) -> None:
        """Let the workers begin a pass."""
        for number in range(len(self.processes)):
            self._send(number, (epoch, None, None, None))

    def send(self, number: int, epoch: int, batch: int, indices: Any) -> None:
        """Ask a worker for a batch."""
        for place, slot in self.ring.renewed():
            for each in range(len(self.processes)):
                self._send(each, (None, None, slot, place))
        self._send(number, (epoch, batch, indices, self.ring.take()))

    def _send(self, number: int, task: Any) -> None:
        try:
            self._tasks[number].send(task)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it died, which receive() tells

    def receive(self, timeout: float | None) -> tuple[int, int, Any, Took]:
        """The next batch of any worker, as (epoch, number, batch, took).

        Raises:
            queue.Empty: after so many seconds.
            RuntimeError: if a worker died.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if end is None else max(0.0, end - time.monotonic())
            ready = multiprocessing.connection.wait(self._results, left)
            if not ready:
                raise queue.Empty
            for connection in ready:
                try:
                    data = connection.recv_bytes()  # type: ignore[union-attr]
                except (EOFError, ConnectionResetError):
                    self._tell_death(self._results.index(connection))
                return self._opened(data)

    def _opened(self, data: bytes) -> tuple[int, int, Any, Took]:
        place, is_kept, *numbers = _HEAD.unpack_from(data)
        took = cast(Took, tuple(numbers))
        body = memoryview(data)[_HEAD.size :]
        if place < 0:
            return (*slots.loads(body, None), took)
        slot = self.ring.slots[place]
        try:
            return (*slots.loads(body, slot), took)
        finally:
            slot.is_asked = False
            if is_kept:
                self.ring.retire(place)

    def _tell_death(self, number: int) -> None:
        process = self.processes[number]
        process.join(MP_STATUS_CHECK_INTERVAL)
        code = process.exitcode
        if code is not None and code < 0:
            how = f"was killed by signal: {signal.strsignal(-code)} ({-code})"
        else:
            how = f"ended with exit code {code}"
        raise RuntimeError(
            f"DataLoader worker (pid(s) {process.pid}) exited unexpectedly: worker {number} {how}"
        )

    def describe(self, number: int) -> str:
        """A worker, for messages."""
        return f"worker {number} (pid {self.processes[number].pid})"

    @property
    def is_stopped(self) -> bool:
        """Whether stop() was called."""
        return not self._end.alive

    def stop(self, patience: float = MP_STATUS_CHECK_INTERVAL) -> None:
        """End the workers: those that do not end by themselves in so many seconds are terminated."""
        if self._end.detach() is not None:
            _end(self._pid, self.processes, self._tasks, self._results, self.ring, patience)


def _end(
    pid: int,
    processes: list[Any],
    tasks: list[Any],
    results: list[Any],
    ring: slots.Ring,
    patience: float,
) -> None:
    """Not a method: it runs when a pool is collected, before what the pool refers to is."""
    if os.getpid() != pid:
        return
    for connection in tasks:
        try:
            connection.send(None)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it died
    for connection in (*tasks, *results):
        connection.close()
    until = time.monotonic() + patience
    for process in processes:
        process.join(max(0.0, until - time.monotonic()))
        if process.is_alive():
            process.terminate()
            process.join(MP_STATUS_CHECK_INTERVAL)
        if process.is_alive():
            process.kill()
            process.join()
    ring.close()
