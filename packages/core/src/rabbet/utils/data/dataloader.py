"""DataLoader: batches of a dataset, made in the loop that reads them, by processes or by threads."""

from __future__ import annotations

import functools
import itertools
import multiprocessing
import multiprocessing.context
import os
import queue
import sys
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter_ns
from typing import Any, Generic, TypeVar, cast

from ... import accelerator
from ..._C import Generator, default_generator, range_begin, range_end
from ._utils.collate import default_collate, default_convert
from ._utils.errors import ExceptionWrapper
from ._utils.fetch import Fetcher
from ._utils.pin_memory import pin_memory
from ._utils.processes import Processes, Work
from ._utils.stats import Counters, LoaderStats
from ._utils.worker import (
    MP_STATUS_CHECK_INTERVAL,
    EndOfStream,
    Threads,
    WorkerInfo,
    get_worker_info,
)
from .dataset import Dataset, IterableDataset
from .sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    iter_from,
    random_seed,
)

__all__ = ["DataLoader", "WorkerInfo", "default_collate", "default_convert", "get_worker_info"]

T_co = TypeVar("T_co", covariant=True)


_collate_fn_t = Callable[[list[Any]], Any]


class _DatasetKind:
    """The kinds of datasets as numbers."""

    Map = 0
    Iterable = 1

    @staticmethod
    def create_fetcher(
        kind: int, dataset: Any, auto_collation: bool, collate_fn: Any, drop_last: bool
    ) -> Fetcher:
        """What reads the batches."""
        return Fetcher(
            dataset, kind == _DatasetKind.Iterable, auto_collation, collate_fn, drop_last
        )


class _EndlessSampler(Sampler[None]):
    """What a stream of samples needs of a sampler: one more, for ever."""

    def __iter__(self) -> Iterator[None]:
        return itertools.repeat(None)


def _check_numbers(
    num_workers: Any, timeout: float, prefetch_factor: int | None, persistent: bool, context: Any
) -> None:
    if isinstance(num_workers, bool) or not isinstance(num_workers, int):
        raise TypeError(f"DataLoader: num_workers must be an int, got {num_workers!r}")
    if num_workers < 0:
        raise ValueError(
            "num_workers option should be non-negative; use num_workers=0 to disable multiprocessing."
        )
    if timeout < 0:
        raise ValueError("timeout option should be non-negative")
    if num_workers == 0 and prefetch_factor is not None:
        raise ValueError(
            "prefetch_factor option could only be specified in multiprocessing.let num_workers > 0 to enable "
            "multiprocessing, otherwise set prefetch_factor to None."
        )
    if prefetch_factor is not None and prefetch_factor < 0:
        raise ValueError("prefetch_factor option should be non-negative")
    if persistent and num_workers == 0:
        raise ValueError("persistent_workers option needs num_workers > 0")
    if context is not None and num_workers == 0:
        raise ValueError(
            "multiprocessing_context can only be used with multi-process loading (num_workers > 0), but got "
            f"num_workers={num_workers}"
        )


def _check_stream(shuffle: Any, sampler: Any, batch_sampler: Any) -> None:
    if shuffle not in (False, None):
        raise ValueError(
            f"DataLoader with IterableDataset: expected unspecified shuffle option, but got shuffle={shuffle}"
        )
    for name, given in (("sampler", sampler), ("batch_sampler", batch_sampler)):
        if given is not None:
            raise ValueError(
                f"DataLoader with IterableDataset: expected unspecified {name} option, but got {name}={given}"
            )


class DataLoader(Generic[T_co]):
    """Batches of a dataset.

    Args:
        dataset: samples by index, or a stream (`IterableDataset`).
        batch_size: samples per batch; None: single samples, as `collate_fn` makes them.
        shuffle: a new random order each time.
        sampler: indices instead of the order of the samples; batch_sampler: lists of them.
        num_workers: processes or threads that make batches ahead; 0: the loop that reads them makes them.
        collate_fn: makes a batch of a list of samples.
        pin_memory: batches in memory that an accelerator copies from quickly; without one a warning says so.
        drop_last: leave out a last batch that is shorter.
        timeout: seconds to wait for a batch of a worker; 0: for ever.
        worker_init_fn: called in each worker with its number.
        multiprocessing_context: how processes start: 'fork', 'spawn', 'forkserver', or a context of multiprocessing.
        generator: of the random order and the workers' seeds.
        prefetch_factor: batches that each worker makes ahead, 2 by default.
        persistent_workers: keep the workers for the next epoch.
        in_order: batches in the order of their indices; False: as they come.
        kind: of workers. 'processes' have copies of the dataset and generators seeded with the loader's seed plus their
            number. 'threads' share the dataset's contents and the random number generators: they start at once, and run
            in parallel where the samples' code leaves Python's lock. 'auto' takes threads on a Python without that lock,
            else processes.
    """

    __initialized = False

    def __init__(
        self,
        dataset: Dataset[T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        kind: str = "auto",
    ) -> None:
        _check_numbers(
            num_workers, timeout, prefetch_factor, persistent_workers, multiprocessing_context
        )
        if kind not in ("auto", "processes", "threads"):
            raise ValueError(
                f"DataLoader: kind must be 'auto', 'processes' or 'threads', got {kind!r}"
            )
        if kind == "threads" and multiprocessing_context is not None:
            raise ValueError(
                "DataLoader: multiprocessing_context is of kind='processes', got kind='threads'"
            )
        self.kind = kind
        self._told_length: int | None = None
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = 2 if num_workers and prefetch_factor is None else prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.in_order = in_order
        self._is_stream = isinstance(dataset, IterableDataset)
        if self._is_stream:
            _check_stream(shuffle, sampler, batch_sampler)
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError(
                    "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last"
                )
            batch_size = None
        elif batch_size is None and drop_last:
            raise ValueError(
                "batch_size=None option disables auto-batching and is mutually exclusive with drop_last"
            )
        if sampler is None:
            sampler = self._sampler_for(bool(shuffle), generator)
        if batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.generator = generator
        if collate_fn is None:
            collate_fn = default_collate if self._auto_collation else default_convert
        self.collate_fn = collate_fn
        self.persistent_workers = persistent_workers
        self._iterator: _ParallelIter | None = None
        self._pass: weakref.ref[_BaseDataLoaderIter] | None = None
        self._counters = Counters()
        self.__initialized = True

    def _sampler_for(self, shuffle: bool, generator: Generator | None) -> Sampler[Any]:
        if self._is_stream:
            return _EndlessSampler()
        data: Any = self.dataset
        return RandomSampler(data, generator=generator) if shuffle else SequentialSampler(data)

    def __setattr__(self, name: str, value: Any) -> None:
        fixed = (
            "batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers",
        )  # fmt: skip
        if self.__initialized and name in fixed:
            raise ValueError(
                f"{name} attribute should not be set after {type(self).__name__} is initialized"
            )
        super().__setattr__(name, value)

    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Any:
        return self.batch_sampler if self._auto_collation else self.sampler

    @property
    def _dataset_kind(self) -> int:
        return _DatasetKind.Iterable if self._is_stream else _DatasetKind.Map

    @property
    def multiprocessing_context(self) -> Any:
        """How processes start: a context, or None for Python's default."""
        return self._context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context: Any) -> None:
        if context is not None:
            if self.num_workers == 0:
                raise ValueError(
                    "multiprocessing_context can only be used with multi-process loading (num_workers > 0), but got "
                    f"num_workers={self.num_workers}"
                )
            if isinstance(context, str):
                methods = multiprocessing.get_all_start_methods()
                if context not in methods:
                    raise ValueError(
                        f"multiprocessing_context option should specify a valid start method in {methods!r}, but got "
                        f"multiprocessing_context={context!r}"
                    )
                context = multiprocessing.get_context(context)
            if not isinstance(context, multiprocessing.context.BaseContext):
                raise TypeError(
                    "multiprocessing_context option should be a valid context object or a string specifying the start "
                    f"method, but got multiprocessing_context={context}"
                )
        self._context = context

    def _uses_threads(self) -> bool:
        if self.kind == "auto":
            return self._context is None and not getattr(sys, "_is_gil_enabled", lambda: True)()
        return self.kind == "threads"

    def _get_iterator(self) -> Iterator[Any]:
        if self.num_workers == 0:
            return _SingleProcessDataLoaderIter(self)
        if self._uses_threads():
            return _ThreadDataLoaderIter(self)
        self.check_worker_number_rationality()
        return _MultiProcessingDataLoaderIter(self)

    def check_worker_number_rationality(self) -> None:
        """Warn of more processes than processors."""
        processors = len(os.sched_getaffinity(0))
        if self.num_workers > processors:
            warnings.warn(
                f"This DataLoader will create {self.num_workers} worker processes in total. Our suggested max number of "
                f"worker in current system is {processors}, which is smaller than what this DataLoader is going to "
                "create. Please be aware that excessive worker creation might get DataLoader running slow or even "
                "freeze, lower the worker number to avoid potential slowness/freeze if necessary.",
                stacklevel=4,
            )

    def state_dict(self) -> dict[str, Any]:
        """Where the latest pass is, for load_state_dict() of a loader of the same data and sampler.

        The number of workers and their kind may differ. What the samples draw from random generators is not part of it.

        Raises:
            RuntimeError: for a stream, or batches that come as they are ready: nothing tells which are left.
        """
        self._check_resumable("state_dict")
        running = None if self._pass is None else self._pass()
        if running is None or running._is_over:
            states = [g.get_state() for g in _generators(self)]
            return {"batches": 0, "generators": states, "draws_seed": True}
        return {"batches": running._num_yielded, **running._began}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next pass give the batches that were left when state_dict() was called, in their order.

        It sets the random generators of the order (the default one, if the loader has none) as they were when that pass
        began.

        Raises:
            ValueError: for what state_dict() did not make, or the state of a loader with other generators.
            RuntimeError: for a stream, or batches that come as they are ready.
        """
        self._check_resumable("load_state_dict")
        if not isinstance(state, dict) or set(state) != {"batches", "generators", "draws_seed"}:
            raise ValueError("DataLoader.load_state_dict: expected what state_dict() makes")
        count = len(_generators(self))
        if len(state["generators"]) != count:
            raise ValueError(
                f"DataLoader.load_state_dict: this loader's order comes from {count} generators, that of the state from "
                f"{len(state['generators'])}"
            )
        self._resumed = dict(state)

    def stats(self) -> LoaderStats:
        """Statistics of the latest pass so far: how long the loop waited for batches, and where the workers spent their time.

        It counts the batches that the loop has received. `str()` of the result is a table. Before the first pass all
        values are 0.

        Example:
            >>> loader = DataLoader(range(100), batch_size=10)
            >>> for batch in loader: pass
            >>> loader.stats().samples
            100
        """
        return self._counters.stats()

    def _check_resumable(self, name: str) -> None:
        if self._is_stream or not self.in_order:
            what = "an IterableDataset" if self._is_stream else "in_order=False"
            raise RuntimeError(
                f"DataLoader.{name}: a pass with {what} does not tell which samples are left"
            )

    def __iter__(self) -> Iterator[Any]:
        started = self._started()
        self._pass = weakref.ref(started)
        self._counters = started._counters
        return started

    def _started(self) -> Any:
        if not (self.persistent_workers and self.num_workers):
            return self._get_iterator()
        if self._iterator is None or self._iterator._pool.is_stopped:
            self._iterator = cast("_ParallelIter", self._get_iterator())
        else:
            self._iterator._reset(self)
        return self._iterator

    def __len__(self) -> int:
        if not self._is_stream:
            return len(self._index_sampler)
        length = self._told_length = len(self.dataset)  # type: ignore[arg-type]
        if self.batch_size is None:
            return length
        return length // self.batch_size if self.drop_last else -(-length // self.batch_size)


def _fetcher(loader: Any, dataset: Any) -> Fetcher:
    """What reads the batches: of a loader only what PyTorch's have, as packages have loaders of their own."""
    return _DatasetKind.create_fetcher(
        loader._dataset_kind, dataset, loader._auto_collation, loader.collate_fn, loader.drop_last
    )


def _pinning(loader: DataLoader[Any]) -> bool:
    device = getattr(loader, "pin_memory_device", "")
    if loader.pin_memory and device:
        warnings.warn(
            "pin_memory_device is deprecated, the current accelerator will be used as the device,"
            f"ignore pin_memory_device='{device}'.",
            stacklevel=4,
        )
    if loader.pin_memory and not accelerator.is_available():
        warnings.warn(
            "'pin_memory' argument is set as true but no accelerator is found, then device pinned memory won't be "
            "used.",
            stacklevel=4,
        )
        return False
    return loader.pin_memory


def _generators(loader: Any) -> list[Generator]:
    """What decides about the order of the indices."""
    found = [loader.generator or default_generator("cpu")]
    sampler: Any = loader._index_sampler
    while sampler is not None:
        own = getattr(sampler, "generator", None)
        if isinstance(own, Generator) and all(own is not g for g in found):
            found.append(own)
        sampler = getattr(sampler, "sampler", None)
    return found


class _BaseDataLoaderIter:
    """One pass over the data."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._loader = loader
        self._pin_memory = _pinning(loader)
        self._index_sampler = loader._index_sampler
        self._base_seed = 0
        self._start(loader, draws_seed=True)

    def _start(self, loader: DataLoader[Any], draws_seed: bool) -> None:
        """Begin a pass over the indices, or go on with one that load_state_dict() gave."""
        resumed = loader.__dict__.pop("_resumed", None)
        generators = _generators(loader)
        if resumed is not None:
            if draws_seed and not resumed["draws_seed"]:
                self._base_seed = random_seed(loader.generator)
            draws_seed = resumed["draws_seed"]
            for generator, state in zip(generators, resumed["generators"], strict=True):
                generator.set_state(state)
        self._began = {
            "generators": [g.get_state() for g in generators],
            "draws_seed": draws_seed,
        }
        self._is_over = False
        self._counters = Counters(loader.num_workers, getattr(loader, "prefetch_factor", None) or 0)
        self._num_yielded = 0 if resumed is None else resumed["batches"]
        if self._num_yielded:
            self._sampler_iter = iter_from(loader._index_sampler, self._num_yielded)
        else:
            self._sampler_iter = iter(loader._index_sampler)
        if draws_seed:
            self._base_seed = random_seed(loader.generator)
        if self._num_yielded:  # draw the order now, as far as it is not drawn yet
            first = list(itertools.islice(self._sampler_iter, 1))
            self._sampler_iter = itertools.chain(first, self._sampler_iter)

    def __iter__(self) -> Iterator[Any]:
        return self

    def _reset(self, loader: DataLoader[Any], first_iter: bool = False) -> None:
        """Begin a pass."""
        self._loader = loader
        if not first_iter:
            self._start(loader, draws_seed=False)

    def _next_index(self) -> Any:
        return next(self._sampler_iter)

    def _next_data(self) -> Any:
        raise NotImplementedError

    def __next__(self) -> Any:
        begin = perf_counter_ns()
        seen = range_begin(f"enumerate(DataLoader)#{type(self).__name__}.__next__", True)
        try:
            data = self._next_data()
        except StopIteration:
            self._is_over = True
            raise
        finally:
            range_end(seen)
            self._counters.end(begin)
        self._num_yielded += 1
        told = getattr(self._loader, "_told_length", None)
        if told is not None and self._num_yielded > told:
            self._warn_of_length(told)
        return data

    def _warn_of_length(self, told: int) -> None:
        text = (
            f"Length of IterableDataset {self._loader.dataset} was reported to be {told}(when accessing "
            f"len(dataloader)), but {self._num_yielded} samples have been fetched. "
        )
        if self._loader.num_workers:
            text += (
                "For multiprocessing data-loading, this could be caused by not properly configuring the "
                "IterableDataset replica at each worker: each makes all of the samples unless it asks "
                "get_worker_info() for its part."
            )
        warnings.warn(text, stacklevel=3)

    def __len__(self) -> int:
        return len(self._loader)

    def __getstate__(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} cannot be pickled")


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    """One pass over the data, made where it is read."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        if loader.timeout:
            raise AssertionError(
                f"DataLoader: timeout needs num_workers > 0, got timeout={loader.timeout}"
            )
        self._fetch = _fetcher(loader, loader.dataset)

    def _next_data(self) -> Any:
        batch = self._fetch(self._next_index())
        self._counters.batch(0, self._fetch.took)
        return pin_memory(batch) if self._pin_memory else batch


class _ParallelIter(_BaseDataLoaderIter):
    """One pass over the data, made ahead by workers."""

    _pool: Any  # of workers

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        if not loader.prefetch_factor or loader.prefetch_factor < 0:
            raise AssertionError(
                f"prefetch_factor must be greater than 0 with workers, got {loader.prefetch_factor}"
            )
        self._epoch = -1
        self._pool = self._make_pool(loader)
        self._reset(loader, first_iter=True)

    def _make_pool(self, loader: DataLoader[Any]) -> Any:
        raise NotImplementedError

    def _reset(self, loader: DataLoader[Any], first_iter: bool = False) -> None:
        """Begin a pass; what is left of the one before is dropped when it comes."""
        super()._reset(loader, first_iter)
        self._epoch += 1
        self._sent = 0  # batches asked for so far
        self._owner: dict[int, int] = {}  # worker of a batch that was asked for
        self._ready: dict[int, Any] = {}
        self._alive = list(range(loader.num_workers))
        self._turn = 0
        self._pool.begin(self._epoch)
        for _ in range(loader.num_workers * (loader.prefetch_factor or 0)):
            self._try_put_index()

    def _try_put_index(self) -> None:
        """Ask the next worker that still has samples for the next batch."""
        if not self._alive:
            return
        try:
            indices = self._next_index()
        except StopIteration:
            return
        if self._loader.in_order:
            worker = self._alive[self._turn % len(self._alive)]
            self._turn = (self._turn + 1) % len(self._alive)
        else:
            busy = list(self._owner.values())
            worker = min(self._alive, key=busy.count)
        self._owner[self._sent] = worker
        self._pool.send(worker, self._epoch, self._sent, indices)
        self._sent += 1

    def _receive(self) -> None:
        timeout = self._loader.timeout
        try:
            epoch, number, answer, took = self._pool.receive(timeout or None)
        except queue.Empty:
            slow = self._pool.describe(self._owner[min(self._owner)])
            self._shutdown_workers(0)
            raise RuntimeError(
                f"DataLoader timed out after {timeout} seconds: {slow} made no batch"
            ) from None
        except BaseException:
            self._shutdown_workers(0)
            raise
        if epoch != self._epoch:
            return
        self._ready[number] = answer, took
        worker = self._owner[number]
        if isinstance(answer, EndOfStream) and worker in self._alive:
            self._alive.remove(worker)
            self._try_put_index()

    def _next_number(self) -> int | None:
        """The number of the batch to give, once it is there; None at the end."""
        while self._owner:
            if self._loader.in_order:
                wanted = min(self._owner)
                if wanted in self._ready:
                    return wanted
            elif self._ready:
                return next(iter(self._ready))
            self._receive()
        return None

    def _next_data(self) -> Any:
        while (number := self._next_number()) is not None:
            worker = self._owner.pop(number)
            answer, took = self._ready.pop(number)
            if isinstance(answer, EndOfStream):
                continue
            self._try_put_index()
            if isinstance(answer, ExceptionWrapper):
                answer.reraise()
            self._counters.batch(worker, took)
            return pin_memory(answer) if self._pin_memory else answer
        if not self._loader.persistent_workers:
            self._shutdown_workers()
        raise StopIteration

    def _shutdown_workers(self, patience: float = MP_STATUS_CHECK_INTERVAL) -> None:
        """End the workers; the pass has no more batches."""
        self._owner, self._ready = {}, {}
        self._pool.stop(patience)


class _MultiProcessingDataLoaderIter(_ParallelIter):
    """One pass over the data, made ahead by processes."""

    def _make_pool(self, loader: Any) -> Processes:
        work = Work(
            loader.dataset,
            loader._dataset_kind == _DatasetKind.Iterable,
            loader._auto_collation,
            loader.collate_fn,
            loader.drop_last,
            self._base_seed,
            loader.worker_init_fn,
            loader.num_workers,
        )
        context = getattr(loader, "multiprocessing_context", None)
        return Processes(work, context, loader.prefetch_factor or 0)

    @property
    def _workers(self) -> list[Any]:
        return self._pool.processes


class _ThreadDataLoaderIter(_ParallelIter):
    """One pass over the data, made ahead by threads."""

    def _make_pool(self, loader: DataLoader[Any]) -> Threads:
        return Threads(
            loader.dataset,
            loader.num_workers,
            self._base_seed,
            loader.worker_init_fn,
            functools.partial(_fetcher, loader),
        )
