"""Device memory that processes share: handles of the driver, and leases by which the sender knows what is still used.

The sender of a tensor keeps its memory until the receiver has dropped the last tensor that shows it, or has ended. Each
message has a lease for that: a pair of connected sockets, of which the receiver gets one. It is shut when the memory is
dropped, and the system closes it when the receiver ends.
"""

from __future__ import annotations

import atexit
import functools
import itertools
import os
import select
import socket
import threading
import warnings
import weakref
from multiprocessing import reduction
from multiprocessing.context import get_spawning_popen
from typing import Any

from . import _C
from ._C import Tensor
from .storage import _whole

__all__ = ["Place", "can_share", "collect", "make_shareable", "opened", "remember", "share"]


@functools.cache
def can_share(kind: str) -> bool:
    """Whether processes can share memory of devices of this type."""
    if kind in ("cpu", "meta"):
        return False
    try:
        _C.ipc_export(_C.shared_like(_C.tensor([0], _C.uint8), _C.device(kind)))
    except NotImplementedError:
        return False
    return True


class _Lease:
    """In the sender: the memory that a message shares, until the receiver drops it."""

    def __init__(self, memory: Tensor, event: Any) -> None:
        self.memory, self.event = memory, event
        self.ours, self.theirs = socket.socketpair()
        self.starting: weakref.ref[Any] | None = None  # the process that inherits `theirs`

    def give(self) -> Any:
        """What the receiver gets its end from, by `detach()`."""
        given = reduction.DupFd(self.theirs.fileno())
        popen: Any = get_spawning_popen()
        if popen is None:
            self.theirs.close()  # the message has a duplicate
        else:
            self.starting = weakref.ref(popen)
        return given

    def forget_theirs(self) -> None:
        """Close the receiver's end once the process that inherits it runs."""
        if self.starting is None:
            return
        popen = self.starting()
        if popen is None or getattr(popen, "pid", None) is not None:
            self.starting = None
            self.theirs.close()


_lock = threading.RLock()
_sent: dict[int, _Lease] = {}  # by number
_numbers = itertools.count(1)


def collect() -> None:
    """Drop the memory that receivers have dropped."""
    with _lock:
        poll = select.poll()
        numbers = {}
        for number, lease in _sent.items():
            lease.forget_theirs()
            numbers[lease.ours.fileno()] = number
            poll.register(lease.ours, select.POLLIN)
        for fd, _ in poll.poll(0) if numbers else ():
            _sent.pop(numbers[fd]).ours.close()


def _after_fork() -> None:
    """The child can use no device that its parent has used, so that its copies keep nothing."""
    global _lock
    _lock = threading.RLock()
    for lease in _sent.values():
        lease.ours.close()
        lease.theirs.close()
    _sent.clear()
    _opened.clear()
    _moved.clear()


os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def _warn_at_end() -> None:
    collect()
    if _sent:
        warnings.warn(
            f"The process ends while other processes use {len(_sent)} tensors that it has sent: their memory goes with "
            "it. Let it live until they have dropped them.",
            stacklevel=1,
        )


class _End:
    """In a message: the receiver's end of a lease."""

    def __init__(self, df: Any, number: int) -> None:
        self._df, self._sender, self.number = df, os.getpid(), number

    @property
    def is_mine(self) -> bool:
        """Whether the sender is this process."""
        return self._sender == os.getpid()

    def detach(self) -> int:
        """The descriptor; -1 if the sender has ended."""
        try:
            fd: int = self._df.detach()
        except (ConnectionError, EOFError, FileNotFoundError):
            return -1
        if _is_shut(fd):
            os.close(fd)
            return -1
        return fd


def _is_shut(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


class Place:
    """Where another process finds the memory of a tensor.

    Attributes:
        device: the sender's.
        handle: of the segment, which the driver opens.
        offset, nbytes: of the tensor's storage in the segment.
        event: the handle of the event that the sender's work on the tensor comes before, or None.
        end: of the lease.
    """

    def __init__(
        self, device: Any, handle: bytes, offset: int, nbytes: int, event: bytes | None, end: _End
    ) -> None:
        self.device, self.handle, self.offset, self.nbytes = device, handle, offset, nbytes
        self.event, self.end = event, end


# ---- in the sender


class _Moved:
    """Former memory that views may still show: as they are sent they follow, if nothing was written to it in between."""

    def __init__(self, former: Tensor) -> None:
        self.former, self.version = former, former._version
        self.viewers: list[weakref.ref[Tensor]] = []

    def memory(self) -> Tensor | None:
        """All of the new memory, if something still shows it."""
        for viewer in self.viewers:
            known = viewer()
            if known is not None:
                return _whole(known, _C.uint8)
        return None


_moved: dict[int, _Moved] = {}  # by former storage


def _move(tensor: Tensor) -> None:
    """Move a tensor to memory that other processes can open."""
    for storage in [s for s, moved in _moved.items() if moved.memory() is None]:
        del _moved[storage]
    former = tensor.detach()
    storage = former._storage_id()
    moved = _moved.get(storage)
    target = None if moved is None or former._version != moved.version else moved.memory()
    if target is None:
        everything = _whole(former, _C.uint8)
        target = _C.shared_like(everything, tensor.device)
        target.copy_(everything)
        moved = _Moved(former)
        del everything
    tensor.data = _whole(target, tensor.dtype).as_strided(
        list(tensor.shape), list(tensor.stride()), tensor.storage_offset()
    )
    del target
    assert moved is not None
    moved.viewers.append(weakref.ref(tensor))
    if former._storage_users() > 1:
        _moved[storage] = moved


def make_shareable(tensor: Tensor) -> None:
    """Move a tensor, unless other processes can open its memory where it is."""
    try:
        _C.ipc_export(tensor)
    except NotImplementedError:
        _move(tensor)


def _event_behind(device: Any) -> tuple[Any, bytes | None]:
    """An event behind what the current stream has been given, with its handle; without such events it waits."""
    stream = _C.stream_get(device)
    try:
        event = _C.Event(device, False, True)
    except NotImplementedError:
        _C.stream_synchronize(device, stream)
        return None, None
    event.record(stream)
    return event, event.handle()


def share(tensor: Tensor) -> Place:
    """Let another process open the memory of a tensor, which moves if it cannot be opened where it is.

    Raises:
        RuntimeError: for a tensor that another process has sent.
    """
    collect()
    storage = tensor._storage_id()
    if any(known._storage_id() == storage for known in _received(tensor.device)):
        raise RuntimeError(
            f"Attempted to send a tensor of {tensor.device} that another process has sent; this is not currently "
            "supported. Consider cloning before sending."
        )
    make_shareable(tensor)
    memory = _whole(tensor, _C.uint8)
    handle, offset = _C.ipc_export(memory)
    event, event_handle = _event_behind(tensor.device)
    lease = _Lease(memory, event)
    with _lock:
        number = next(_numbers)
        end = _End(lease.give(), number)
        _sent[number] = lease
    return Place(tensor.device, handle, offset, memory.numel(), event_handle, end)


# ---- in the receiver


class _Received:
    """Memory of another process that this one uses: what owns the storage that shows it. The lease ends with it."""

    def __init__(self, device: Any, segment: Tensor, fd: int) -> None:
        self._device, self._segment, self._fd, self._pid = device, segment, fd, os.getpid()

    def __del__(self) -> None:
        if os.getpid() != self._pid:  # a forked child has a copy; the lease is its parent's
            os.close(self._fd)
            return
        del self._segment
        try:
            # Other streams than that of the receiver may use it. The segment is closed behind its work.
            _C.synchronize(self._device)
        finally:
            with socket.socket(fileno=self._fd) as end:
                end.shutdown(socket.SHUT_RDWR)


_opened: dict[tuple[bytes, int], list[weakref.ref[Tensor]]] = {}  # tensors by segment and offset


def _received(device: Any) -> list[Tensor]:
    """Tensors of a device that show memory of other processes."""
    found = (reference() for known in _opened.values() for reference in known)
    return [t for t in found if t is not None and t.device == device]


def remember(place: Place, tensor: Tensor) -> None:
    """Note a tensor that shows memory of another process: what comes from the same memory next joins its storage."""
    if place.end.is_mine:
        return
    for key in [k for k, known in _opened.items() if all(r() is None for r in known)]:
        del _opened[key]
    known = _opened.setdefault((place.handle, place.offset), [])
    known[:] = [r for r in known if r() is not None]
    known.append(weakref.ref(tensor))


def opened(place: Place, device: Any) -> Tensor:
    """The bytes of a storage that another process has sent.

    Raises:
        RuntimeError: if that process has ended.
    """
    if place.end.is_mine:
        with _lock:
            lease = _sent.get(place.end.number)
        if lease is not None:
            os.close(place.end.detach())
            return lease.memory.view(-1)
    fd = place.end.detach()
    if fd < 0:
        _fail_without_sender(device)
    if place.event is not None:
        _C.Event.open(device, place.event).wait(device, _C.stream_get(device))
    for reference in _opened.get((place.handle, place.offset), []):
        known = reference()
        if known is not None:
            os.close(fd)  # the first lease holds
            return _whole(known, _C.uint8)
    try:
        segment = _C.ipc_open(place.handle, place.offset, device, _C.uint8, [place.nbytes], [1])
    except Exception:
        gone = _is_shut(fd)
        os.close(fd)
        if gone:
            _fail_without_sender(device)
        raise
    owner = _Received(device, segment, fd)
    return _C.adopt_memory(segment.data_ptr(), device, _C.uint8, [place.nbytes], None, False, owner)


def _fail_without_sender(device: Any) -> None:
    raise RuntimeError(
        f"multiprocessing: the process that sent a tensor of {device} has ended, and its memory with it: it has to live "
        "until the receiver has dropped the tensor"
    )
