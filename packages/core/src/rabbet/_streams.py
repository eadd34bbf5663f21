"""Streams and events of devices that have them; rabbet.Stream and rabbet.Event, with PyTorch's semantics."""

import threading
from types import TracebackType
from typing import Any, Self, TypeVar

from . import _C
from ._accelerators import Device, chosen_device

__all__ = ["Event", "ExternalStream", "Stream"]


class _Entered(threading.local):
    """The streams that `with` replaced on a thread, innermost last."""

    def __init__(self) -> None:
        self.before: list[Stream] = []


_entered = _Entered()


class Stream:
    """A queue of work on a device, in order by itself: what comes to different streams may run at once.

    As a context manager it is the thread's stream of its device. Core's allocator gives the memory of a tensor again
    on the stream that was current when the tensor was made; a tensor that is used on another one, too, needs
    `Tensor.record_stream`. `backward` runs each operator on the stream of its forward, and waits between streams
    where gradients pass from one to another.

    Streams come from a pool of 32 for each device and priority, which are given in turn, and are never destroyed.

    Args:
        device: of a backend with streams, or an index of the current accelerator; None: its current device.
        priority: a lower number is a higher priority, if the backend has any; 0 is the usual one.

    Raises:
        DeviceError: if there is no such device.
        NotImplementedError: if the backend has no streams.
    """

    __slots__ = ("__weakref__", "device", "stream_id")

    def __init__(self, device: Device = None, *, priority: int = 0) -> None:
        self.device = chosen_device("Stream", device)
        self.stream_id = _C.stream_new(self.device, priority)

    @classmethod
    def _current(cls, device: _C.device) -> Self:
        stream = cls.__new__(cls)
        stream.device = device
        stream.stream_id = _C.stream_get(device)
        return stream

    @property
    def device_index(self) -> int:
        return self.device.index or 0

    @property
    def native_handle(self) -> int:
        """The backend's own pointer to it; 0 for the default stream."""
        return self.stream_id

    def query(self) -> bool:
        """Whether all work in it is done."""
        return _C.stream_query(self.device, self.stream_id)

    def synchronize(self) -> None:
        """Wait until all work in it is done."""
        _C.stream_synchronize(self.device, self.stream_id)

    def record_event(self, event: "Event | None" = None) -> "Event":
        """Put `event`, or a new one, behind the work in it, and return it."""
        event = Event(self.device) if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: "Event") -> None:
        """Let what comes to it later wait for `event`."""
        _checked("Stream.wait_event", "event", event, Event).wait(self)

    def wait_stream(self, stream: "Stream") -> None:
        """Let what comes to it later wait for the work in `stream`."""
        if _checked("Stream.wait_stream", "stream", stream, Stream) != self:
            self.wait_event(stream.record_event())

    def __enter__(self) -> Self:
        _entered.before.append(Stream._current(self.device))
        _C.stream_set(self.device, self.stream_id)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        before = _entered.before.pop()
        _C.stream_set(before.device, before.stream_id)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stream):
            return NotImplemented
        return (self.device.type, self.device_index, self.stream_id) == (
            other.device.type,
            other.device_index,
            other.stream_id,
        )

    def __hash__(self) -> int:
        return hash((self.device.type, self.device_index, self.stream_id))

    def __repr__(self) -> str:
        return f"rabbet.Stream(device={str(self.device)!r}, stream_id={self.stream_id:#x})"


class ExternalStream(Stream):
    """A stream that another library made, by its address; that library has to keep it.

    Args:
        stream_ptr: the backend's own pointer to it.
        device: of the stream; None: the accelerator's current device.
    """

    __slots__ = ()

    def __init__(self, stream_ptr: int, device: Device = None) -> None:
        if isinstance(stream_ptr, bool) or not isinstance(stream_ptr, int):
            raise TypeError(
                f"ExternalStream: stream_ptr must be an int, not {type(stream_ptr).__name__}"
            )
        self.device = chosen_device("ExternalStream", device)
        self.stream_id = stream_ptr


class Event:
    """A mark in a stream, to wait for and to measure times by.

    Args:
        device: of a backend with streams, or an index of the current accelerator; None: its current device.
        enable_timing: it notes when it was passed, for `elapsed_time`.
        blocking: taken for PyTorch's sake: how `synchronize` waits is the backend's choice.
        interprocess: other processes can wait for it by `ipc_handle()`; without enable_timing.

    Raises:
        DeviceError: if there is no such device.
        NotImplementedError: if the backend has no events, they do not tell times, or no other process can open them.
        ValueError: for `interprocess` with `enable_timing`.
    """

    __slots__ = ("__weakref__", "_event", "_interprocess", "_recorded", "_timing", "device")

    def __init__(
        self,
        device: Device = None,
        *,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
    ) -> None:
        if interprocess and enable_timing:
            raise ValueError(
                "Event: an event with interprocess=True tells no times, expected enable_timing=False"
            )
        self.device = chosen_device("Event", device)
        self._event = _C.Event(self.device, enable_timing, interprocess)
        self._timing, self._recorded, self._interprocess = enable_timing, False, interprocess

    @classmethod
    def from_ipc_handle(cls, device: Device, handle: bytes) -> Self:
        """The event of another process of the machine, by the handle that `ipc_handle()` gave there.

        Raises:
            ValueError: for a handle that is none.
            DeviceError: if that process has ended, or is this one.
        """
        if not isinstance(handle, bytes):
            raise TypeError(
                f"Event.from_ipc_handle: handle must be bytes, not {type(handle).__name__}"
            )
        event = cls.__new__(cls)
        event.device = chosen_device("Event.from_ipc_handle", device)
        event._event = _C.Event.open(event.device, handle)
        event._timing, event._recorded, event._interprocess = False, True, True
        return event

    def ipc_handle(self) -> bytes:
        """What another process opens the event by with `from_ipc_handle`. The event has to live until it has done so.

        Raises:
            StateError: for an event without `interprocess=True`.
        """
        if not self._interprocess:
            raise _C.StateError("Event.ipc_handle: the event was made without interprocess=True")
        return self._event.handle()

    def record(self, stream: Stream | None = None) -> None:
        """Put it behind the work in `stream` (None: the thread's one of its device); it may have been elsewhere."""
        stream = self._stream("record", stream)
        if _place(stream.device) != _place(self.device):
            raise _C.DeviceError(
                f"Event.record: an event of {self.device} cannot be recorded in a stream of {stream.device}"
            )
        self._event.record(stream.stream_id)
        self._recorded = True

    def wait(self, stream: Stream | None = None) -> None:
        """Let what comes to `stream` later wait for it; nothing happens if it was never recorded."""
        stream = self._stream("wait", stream)
        if stream.device.type != self.device.type:
            raise _C.DeviceError(
                f"Event.wait: a stream of {stream.device} cannot wait for an event of {self.device}"
            )
        if self._recorded:
            self._event.wait(stream.device, stream.stream_id)

    def query(self) -> bool:
        """Whether the work before it is done; True if it was never recorded."""
        return not self._recorded or self._event.query()

    def synchronize(self) -> None:
        """Wait until the work before it is done."""
        if self._recorded:
            self._event.synchronize()

    def elapsed_time(self, end_event: "Event") -> float:
        """Milliseconds from this event to `end_event`.

        Raises:
            StateError: if one of them has no enable_timing, was not recorded, or is not passed yet.
        """
        _checked("Event.elapsed_time", "end_event", end_event, Event)
        if _place(self.device) != _place(end_event.device):
            raise _C.DeviceError(
                f"Event.elapsed_time: one event is of {self.device}, the other of {end_event.device}"
            )
        for what, event in (("this event", self), ("end_event", end_event)):
            if not event._timing:
                raise _C.StateError(f"Event.elapsed_time: {what} was made without enable_timing")
            if not event._recorded:
                raise _C.StateError(f"Event.elapsed_time: {what} was not recorded")
            if not event.query():
                raise _C.StateError(
                    f"Event.elapsed_time: {what} is not passed yet; synchronize before"
                )
        return self._event.elapsed(end_event._event)

    def _stream(self, function: str, stream: Stream | None) -> Stream:
        if stream is None:
            return Stream._current(self.device)
        return _checked(f"Event.{function}", "stream", stream, Stream)

    def __repr__(self) -> str:
        return f"rabbet.Event(device={str(self.device)!r}, enable_timing={self._timing})"


def _place(device: _C.device) -> tuple[str, int]:
    return device.type, device.index or 0


_T = TypeVar("_T")


def _checked(function: str, name: str, value: Any, expected: type[_T]) -> _T:
    if not isinstance(value, expected):
        raise TypeError(
            f"{function}: {name} must be {'an' if expected is Event else 'a'} {expected.__name__}, "
            f"not {type(value).__name__}"
        )
    return value


def record_stream(self: _C.Tensor, stream: Stream) -> None:
    """The tensor's memory is used on `stream`, too: it is not given again before the work in it by then is done.

    Args:
        stream: of the tensor's device.

    Raises:
        DeviceError: if it is of another one.
    """
    _checked("record_stream", "stream", stream, Stream)
    if _place(stream.device) != _place(self.device):
        raise _C.DeviceError(
            f"record_stream: the tensor is on {self.device}, the stream of {stream.device}"
        )
    _C.record_stream(self, stream.stream_id)
