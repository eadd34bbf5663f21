"""Statistics of a pass of a data loader: counters that cost a few microseconds per batch."""

from __future__ import annotations

import math
import os
from collections import UserDict
from time import perf_counter_ns
from typing import Any, NamedTuple

from ...._C import Tensor

__all__ = ["Counters", "LoaderStats", "NOTHING", "Took", "WorkerStats", "nbytes"]

_LEAVES = {int, float, bool, complex, str, bytes, type(None)}
_FREE = 0.05  # share of the loop's time below which workers are not worth their start


# The cost of one batch: samples, bytes, nanoseconds to read, collate and write it, and when it was finished. All
# processes share the clock.
Took = tuple[int, int, int, int, int, int]
NOTHING: Took = (0, 0, 0, 0, 0, 0)


def nbytes(batch: Any) -> int:
    """Bytes of the tensors and NumPy arrays of a batch, in dicts, lists and tuples.

    Other mappings may compute what they hold, and are not asked. A batch that contains itself counts as 0.
    """
    try:
        return _nbytes(batch)
    except RecursionError:
        return 0


def _nbytes(batch: Any) -> int:
    kind = type(batch)
    if kind is Tensor:
        return batch.nbytes
    if isinstance(batch, (list, tuple)):
        return 0 if _LEAVES.issuperset(map(type, batch)) else sum(map(_nbytes, batch))
    if isinstance(batch, (dict, UserDict)):
        return sum(map(_nbytes, batch.values()))
    if isinstance(batch, Tensor) or kind.__module__ == "numpy":
        return int(getattr(batch, "nbytes", 0))
    return 0


class WorkerStats(NamedTuple):
    """One worker's share of the batches that the loop has received.

    Attributes:
        batches, samples: how many.
        bytes: of the tensors and NumPy arrays in them.
        read: seconds in the dataset.
        collate: seconds in `collate_fn`.
        write: seconds to put finished batches into shared memory; 0 without processes.
    """

    batches: int = 0
    samples: int = 0
    bytes: int = 0
    read: float = 0.0
    collate: float = 0.0
    write: float = 0.0

    @property
    def busy(self) -> float:
        """Seconds in which the worker made batches."""
        return self.read + self.collate + self.write


class LoaderStats(NamedTuple):
    """Statistics of a pass of a DataLoader: sums over all workers, and each worker.

    Attributes:
        batches, samples, bytes, read, collate, write, busy: as of WorkerStats, summed.
        wait: seconds that the loop spent in `next()`.
        loop: seconds that the loop spent between two batches.
        ready: finished batches that waited to be taken, on average over the pass.
        capacity: batches that the workers make ahead: `num_workers * prefetch_factor`.
        workers: one entry for each worker; empty with `num_workers=0`.
    """

    batches: int = 0
    samples: int = 0
    bytes: int = 0
    read: float = 0.0
    collate: float = 0.0
    write: float = 0.0
    wait: float = 0.0
    loop: float = 0.0
    ready: float = 0.0
    capacity: int = 0
    workers: tuple[WorkerStats, ...] = ()

    @property
    def busy(self) -> float:
        """Seconds in which the workers made batches."""
        return self.read + self.collate + self.write

    @property
    def suggested_workers(self) -> int:
        """Workers that keep up with the loop, at most one for each processor.

        0 if making a batch takes less than a twentieth of the loop's own time. It assumes that workers run in parallel:
        threads do only where the dataset's code releases Python's lock.
        """
        if self.busy <= _FREE * self.loop:
            return 0
        processors = len(os.sched_getaffinity(0))
        return min(math.ceil(self.busy / self.loop), processors) if self.loop else processors

    def __str__(self) -> str:
        total = self.wait + self.loop
        share = 100 * self.wait / total if total else 0.0
        lines = [
            f"{self.batches} batches, {self.samples} samples, {self.bytes / 1e6:.1f} MB in {total:.3f} s",
            f"waited {self.wait:.3f} s ({share:.0f} %), {self.ready:.1f} of {self.capacity} batches ready, "
            f"suggested workers: {self.suggested_workers}",
            f"{'worker':>6} {'batches':>8} {'samples':>9} {'read s':>8} {'collate s':>9} {'write s':>8}",
        ]
        rows: list[tuple[str, Any]] = [(str(n), w) for n, w in enumerate(self.workers)]
        for name, w in [*rows, ("total", self)]:
            lines.append(
                f"{name:>6} {w.batches:8} {w.samples:9} {w.read:8.3f} {w.collate:9.3f} {w.write:8.3f}"
            )
        return "\n".join(lines)


class Counters:
    """Counts one pass, in the thread that reads its batches."""

    def __init__(self, workers: int = 0, prefetch: int = 0) -> None:
        self._capacity = workers * prefetch
        self._sums = [[0] * 6 for _ in range(max(workers, 1))]  # as the fields of WorkerStats
        self._has_workers = workers > 0
        self._wait = self._loop = self._ready = 0
        self._first = self._left = 0  # when next() was first called, and last returned

    def batch(self, worker: int, took: Took) -> None:
        """Count a batch that is about to be given to the loop."""
        sums = self._sums[worker]
        samples, size, read, collate, write, finished = took
        sums[0] += 1
        sums[1] += samples
        sums[2] += size
        sums[3] += read
        sums[4] += collate
        sums[5] += write
        if self._has_workers and self._first:  # the loop waits for the first batch at once
            self._ready += max(perf_counter_ns() - max(finished, self._first), 0)

    def end(self, begin: int) -> None:
        """Count a call of next() that began at `begin` and returns now."""
        now = perf_counter_ns()
        self._wait += now - begin
        if self._left:
            self._loop += begin - self._left
        else:
            self._first = begin
        self._left = now

    def stats(self) -> LoaderStats:
        """The pass so far."""
        workers = [_stats(sums) for sums in self._sums]
        total = _stats([sum(column) for column in zip(*self._sums, strict=True)])
        elapsed = self._wait + self._loop
        return LoaderStats(
            *total,
            wait=self._wait / 1e9,
            loop=self._loop / 1e9,
            ready=self._ready / elapsed if elapsed else 0.0,
            capacity=self._capacity,
            workers=tuple(workers) if self._has_workers else (),
        )


def _stats(sums: list[int]) -> WorkerStats:
    return WorkerStats(*sums[:3], *(ns / 1e9 for ns in sums[3:]))
