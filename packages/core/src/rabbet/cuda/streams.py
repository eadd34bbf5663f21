"""Streams and events of CUDA devices."""

from typing import Any

from .. import _C, _streams
from . import _devices

__all__ = [
    "Event", "ExternalStream", "Stream", "StreamContext", "current_stream", "default_stream", "get_stream_from_external",
    "set_stream", "stream",
]  # fmt: skip

_LOWEST, _HIGHEST = 0, -5


class Stream(_streams.Stream):
    """A queue of work on a CUDA device, in order by itself; see `rabbet.Stream`.

    Args:
        device: a CUDA device or its index; None: the current one.
        priority: 0 is the usual one, a lower number is a higher priority.
    """

    __slots__ = ()

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
        if kwargs:
            raise TypeError(f"Stream() got an unexpected keyword argument {next(iter(kwargs))!r}")
        super().__init__(_devices.checked("Stream", device), priority=priority)

    @property
    def cuda_stream(self) -> int:
        """The driver's pointer to it; 0 for the default stream."""
        return self.stream_id

    @property
    def _as_parameter_(self) -> Any:
        import ctypes

        return ctypes.c_void_p(self.cuda_stream)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """The lowest and the highest priority."""
        return _LOWEST, _HIGHEST

    def record_event(self, event: Any = None) -> Any:
        """Put `event`, or a new one, behind the work in it, and return it."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def __repr__(self) -> str:
        return f"<rabbet.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"


class ExternalStream(Stream):
    """A stream that another library made, by its address; that library has to keep it.

    Args:
        stream_ptr: the driver's pointer to it.
        device: of the stream; None: the current one.
    """

    __slots__ = ()

    def __init__(self, stream_ptr: int, device: Any = None, **kwargs: Any) -> None:
        if isinstance(stream_ptr, bool) or not isinstance(stream_ptr, int):
            raise TypeError(
                f"ExternalStream: stream_ptr must be an int, not {type(stream_ptr).__name__}"
            )
        self.device = _devices.checked("ExternalStream", device)
        self.stream_id = stream_ptr


class Event(_streams.Event):
    """A mark in a stream, to wait for and to measure times by. Its device is that of the stream where it is recorded first.

    Args:
        enable_timing: `elapsed_time` can be asked.
        blocking: taken for PyTorch's sake: who waits sleeps as the driver chooses.
        interprocess: other processes can wait for it by `ipc_handle()`; without enable_timing.
        external: taken for PyTorch's sake.

    Raises:
        ValueError: for `interprocess` with `enable_timing`.
    """

    def __init__(
        self,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
    ) -> None:
        super().__init__(
            _devices.checked("Event"),
            enable_timing=enable_timing,
            blocking=blocking,
            interprocess=interprocess,
        )

    def record(self, stream: _streams.Stream | None = None) -> None:
        """Put it behind the work in `stream` (None: the current one); it may have been elsewhere."""
        stream = current_stream() if stream is None else stream
        elsewhere = isinstance(stream, _streams.Stream) and stream.device != self.device
        if elsewhere and not self._recorded and stream.device.type == self.device.type:
            self.device = stream.device
            self._event = _C.Event(self.device, self._timing, self._interprocess)
        super().record(stream)

    def wait(self, stream: _streams.Stream | None = None) -> None:
        """Let what comes to `stream` (None: the current one) later wait for it; nothing happens if it was never recorded."""
        super().wait(current_stream() if stream is None else stream)

    def __repr__(self) -> str:
        return f"<rabbet.cuda.Event device={self.device} enable_timing={self._timing}>"


def _cuda_stream(function: str, stream: Any) -> _streams.Stream:
    if not isinstance(stream, _streams.Stream):
        raise TypeError(f"cuda.{function}: stream must be a Stream, not {type(stream).__name__}")
    if stream.device.type != "cuda":
        raise ValueError(f"cuda.{function}: expected a stream of a CUDA device, got {stream!r}")
    return stream


def _of(device: _C.device, handle: int) -> Stream:
    stream: Stream = Stream.__new__(Stream)
    stream.device, stream.stream_id = device, handle
    return stream


def current_stream(device: Any = None) -> Stream:
    """The thread's stream of a device, or of the current one."""
    place = _devices.checked("current_stream", device)
    return _of(place, _C.stream_get(place))


def default_stream(device: Any = None) -> Stream:
    """The default stream of a device, or of the current one."""
    return _of(_devices.checked("default_stream", device), 0)


def get_stream_from_external(data_ptr: int, device: Any = None) -> ExternalStream:
    """The stream of another library, by its address."""
    return ExternalStream(data_ptr, device)


def set_stream(stream: Stream | None) -> None:
    """Make a stream the thread's one of its device, and that device the current one; None changes nothing."""
    if stream is None:
        return
    chosen = _cuda_stream("set_stream", stream)
    _C.set_current_device(chosen.device)
    _C.stream_set(chosen.device, chosen.stream_id)


class StreamContext:
    """Make a stream the thread's one, and its device the current one, for a while; None changes nothing."""

    def __init__(self, stream: Any) -> None:
        self.stream = None if stream is None else _cuda_stream("stream", stream)
        self._before: list[Stream] = []  # of the device that was current, and of the stream's

    def __enter__(self) -> None:
        if self.stream is None:
            return
        self._before += [current_stream(), current_stream(self.stream.device)]
        set_stream(self.stream)  # type: ignore[arg-type]

    def __exit__(self, *_: Any) -> None:
        if self.stream is None:
            return
        outer, inner = self._before[-2:]
        del self._before[-2:]
        set_stream(inner)
        set_stream(outer)


def stream(stream: Any) -> StreamContext:
    """`StreamContext(stream)`: send work to a stream for a while; None changes nothing."""
    return StreamContext(stream)
