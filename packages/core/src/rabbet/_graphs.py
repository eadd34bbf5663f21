"""Private memory pools and captured graphs; rabbet.accelerator.MemPool, use_mem_pool and Graph."""

import contextlib
from collections.abc import Iterator
from types import TracebackType
from typing import Literal, Self

from . import _C
from ._accelerators import Device, accelerator_name, chosen_device

_ErrorMode = Literal["default", "global", "thread_local", "relaxed"]
_MODES = ("default", "global", "thread_local", "relaxed")


class MemPool:
    """A private pool of device memory: its segments serve `use_mem_pool` of it only, and stay as long as it lives.

    Blocks of tensors that outlive the pool go back to the device when the tensors are gone. The arguments are
    PyTorch's; only their defaults are supported: the memory comes from the device's backend, in segments that are split.

    Raises:
        NotImplementedError: for other values than the defaults.
    """

    __slots__ = ("_pool",)

    def __init__(
        self, allocator: object = None, use_on_oom: bool = False, no_split: bool = False
    ) -> None:
        for name, value in (
            ("allocator", allocator),
            ("use_on_oom", use_on_oom),
            ("no_split", no_split),
        ):
            if value:
                raise NotImplementedError(f"MemPool: {name}={value!r} is not supported")
        self._pool = _C.MemoryPool()

    @property
    def id(self) -> tuple[int, int]:
        """Names the pool, as in `memory_snapshot` and for `Graph(pool=...)`."""
        return 0, self._pool.id

    def __repr__(self) -> str:
        return f"rabbet.accelerator.MemPool(id={self.id})"


@contextlib.contextmanager
def use_mem_pool(pool: MemPool, device: Device = None) -> Iterator[None]:
    """What the calling thread allocates on the device inside comes from `pool`.

    Args:
        pool: of which memory is taken.
        device: of any backend, or an index of the current accelerator; None: its current device.

    Raises:
        TypeError: if `pool` is no MemPool.
        NotImplementedError: for memory of the host, which has no pools.
    """
    if not isinstance(pool, MemPool):
        raise TypeError(f"use_mem_pool: pool must be a MemPool, not {type(pool).__name__}")
    place = chosen_device("use_mem_pool", device)
    pool._pool.enter(place)
    try:
        yield
    finally:
        pool._pool.leave(place)


class Graph:
    """Work of a device that is captured once and launched again as a whole.

    As a context manager it captures what the calling thread gives to the current stream of the device. Captured work
    does not run before `replay`. Its tensors come from a private pool, which lives as long as the graph: a replay
    reads its inputs and writes its results where they were at the capture. Tensors that the graph reads must be kept
    by the caller. Random operators give new numbers at each replay, as if they were called again.

    What needs a value on the host (`item`, printing, a copy to the CPU) cannot be captured.

    Args:
        keep_graph: keep the graph at the end of the capture; `instantiate` or the first replay make it executable.
        pool: id of the pool of another graph or MemPool, to share it.
        capture_error_mode: taken for PyTorch's sake: what a backend refuses in a capture is its choice.
        device: of a backend that captures, or an index of the current accelerator; None: its current device.

    Raises:
        ValueError: for an unknown `capture_error_mode`, or a `pool` that is not there.

    Example:
        >>> with rabbet.Stream(), graph:  # doctest: +SKIP
        ...     x += 1
        >>> graph.replay()  # doctest: +SKIP
    """

    __slots__ = ("_device", "_graph")

    def __init__(
        self,
        keep_graph: bool = False,
        *,
        pool: tuple[int, int] | None = None,
        capture_error_mode: _ErrorMode = "default",
        device: Device = None,
    ) -> None:
        if capture_error_mode not in _MODES:
            raise ValueError(
                f"Graph: capture_error_mode must be one of {', '.join(_MODES)}, got {capture_error_mode!r}"
            )
        self._device = device
        self._graph = _C.Graph(keep_graph, None if pool is None else pool_number(pool))

    def capture_begin(self) -> None:
        """Record what the calling thread gives to the current stream of the device from now on.

        Raises:
            NotImplementedError: if the backend cannot capture.
            StateError: if the thread captures already, or the graph holds a capture.
        """
        device = self._device
        if device is None and accelerator_name() is not None:
            device = _C.device(str(accelerator_name()))
        self._graph.capture_begin(chosen_device("Graph.capture_begin", device))

    def capture_end(self) -> None:
        """End the capture, by the thread that began it."""
        self._graph.capture_end()

    def instantiate(self) -> None:
        """Make a kept graph executable (again)."""
        self._graph.instantiate()

    def replay(self) -> None:
        """Put the captured work behind what the current stream of the device has been given."""
        self._graph.replay()

    def reset(self) -> None:
        """Drop the captured work; the graph can capture again."""
        self._graph.reset()

    def pool(self) -> tuple[int, int]:
        """The id of its memory pool."""
        return 0, self._graph.pool

    def __enter__(self) -> Self:
        self.capture_begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.capture_end()
            return
        with contextlib.suppress(RuntimeError):  # the error of the body is the one to be told
            self.capture_end()
        self.reset()


class GraphTensors:
    """Tensors that a graph reads and writes, of the memory of the stream it was captured on, and what else uses them.

    Their memory must not go back to the device before the work on them is done that the streams of launches were given.
    """

    def __init__(self, tensors: list[_C.Tensor]) -> None:
        self._tensors = tensors
        self._streams: set[int] = set()

    def used_now(self, device: _C.device) -> None:
        """The thread's stream of the device uses them."""
        stream = _C.stream_get(device)
        if stream not in self._streams:
            self._streams.add(stream)
            for tensor in self._tensors:
                _C.record_stream(tensor, stream)


def check_pool_id(what: str, pool: object) -> None:
    """Raise a TypeError that names `what` unless `pool` is a pair of ints."""
    if not (
        isinstance(pool, tuple) and len(pool) == 2 and all(isinstance(part, int) for part in pool)
    ):
        raise TypeError(
            f"{what} must be a pair of ints, as MemPool.id and Graph.pool() give it, got {pool!r}"
        )


def pool_number(pool: tuple[int, int]) -> int:
    """The number of a pool in its id."""
    check_pool_id("Graph: pool", pool)
    if pool[0] != 0 or pool[1] < 1:
        raise ValueError(f"Graph: there is no memory pool {pool}")
    return pool[1]
