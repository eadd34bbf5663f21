"""The results of a profiler: single events, and averages of events with the same key."""

from __future__ import annotations

import enum
import warnings
from typing import Any, NamedTuple

from ._format import format_time


class DeviceType(enum.IntEnum):
    """Kinds of devices, with PyTorch's numbers."""

    CPU = 0
    CUDA = 1


class RecordScope(enum.IntEnum):
    """The values of an event's `scope`."""

    FUNCTION = 0
    BACKWARD_FUNCTION = 1
    USER_SCOPE = 7


class Interval:
    """A begin and an end in microseconds."""

    def __init__(self, start: float, end: float) -> None:
        self.start = start
        self.end = end

    def elapsed_us(self) -> float:
        """Length of the interval in microseconds."""
        return self.end - self.start

    def __repr__(self) -> str:
        return f"Interval({self.start}, {self.end})"


class Kernel(NamedTuple):
    """A kernel that an event launched on a device."""

    name: str
    device: int
    duration: float


def _of_device(name: str) -> Any:
    """A property under the name that PyTorch had for CUDA; it warns."""
    old = name.replace("device", "cuda")

    def value(self: Any) -> Any:
        warnings.warn(
            f"`{old}` is deprecated, please use `{name}` instead.", FutureWarning, stacklevel=2
        )
        return getattr(self, name)

    value.__doc__ = f"`{name}` under its former name."
    return property(value)


def _as_text(name: str) -> Any:
    def text(self: Any) -> str:
        return format_time(getattr(self, name))

    text.__doc__ = f"`{name}` as text."
    return property(text)


class FormattedTimesMixin:
    """Averages of an event's times, and its times as text."""

    count: int
    cpu_time_total: float
    device_time_total: float

    cpu_time_str = _as_text("cpu_time")
    device_time_str = _as_text("device_time")
    cpu_time_total_str = _as_text("cpu_time_total")
    device_time_total_str = _as_text("device_time_total")
    self_cpu_time_total_str = _as_text("self_cpu_time_total")
    self_device_time_total_str = _as_text("self_device_time_total")
    cuda_time = _of_device("device_time")
    cuda_time_total = _of_device("device_time_total")
    self_cuda_time_total = _of_device("self_device_time_total")
    self_cuda_memory_usage = _of_device("self_device_memory_usage")

    @property
    def cpu_time(self) -> float:
        """Microseconds on the CPU per call."""
        return 0.0 if self.count == 0 else self.cpu_time_total / self.count

    @property
    def device_time(self) -> float:
        """Microseconds on a device per call."""
        return 0.0 if self.count == 0 else self.device_time_total / self.count


class FunctionEvent(FormattedTimesMixin):
    """One call, range or backward node: its times in microseconds, its memory, its place in the tree."""

    def __init__(
        self,
        id: int,
        name: str,
        thread: int,
        start_us: float,
        end_us: float,
        overload_name: str | None = None,
        fwd_thread: int | None = None,
        input_shapes: list[Any] | None = None,
        stack: list[str] | None = None,
        scope: int = 0,
        use_device: str | None = None,
        cpu_memory_usage: int = 0,
        device_memory_usage: int = 0,
        is_async: bool = False,
        is_remote: bool = False,
        sequence_nr: int = -1,
        node_id: int = -1,
        device_type: DeviceType = DeviceType.CPU,
        device_index: int = 0,
        device_resource_id: int | None = None,
        is_legacy: bool = False,
        flops: int | None = None,
        trace_name: str | None = None,
        concrete_inputs: list[Any] | None = None,
        kwinputs: dict[str, Any] | None = None,
        is_user_annotation: bool = False,
        metadata_json: str | None = None,
    ) -> None:
        self.id = id
        self.node_id = node_id
        self.name = name
        self.overload_name = overload_name or ""
        self.trace_name = name if trace_name is None else trace_name
        self.time_range = Interval(start_us, end_us)
        self.thread = thread
        self.fwd_thread = fwd_thread
        self.kernels: list[Kernel] = []
        self.count = 1
        self.cpu_children: list[FunctionEvent] = []
        self.cpu_parent: FunctionEvent | None = None
        self.input_shapes = [] if input_shapes is None else input_shapes
        self.concrete_inputs = [] if concrete_inputs is None else concrete_inputs
        self.kwinputs = {} if kwinputs is None else kwinputs
        self.stack = [] if stack is None else stack
        self.scope = scope
        self.use_device = use_device
        self.cpu_memory_usage = cpu_memory_usage
        self.device_memory_usage = device_memory_usage
        self.is_async = is_async
        self.is_remote = is_remote
        self.sequence_nr = sequence_nr
        self.device_type = device_type
        self.device_index = device_index
        self.device_resource_id = thread if device_resource_id is None else device_resource_id
        self.is_legacy = is_legacy
        self.flops = flops
        self.is_user_annotation = is_user_annotation
        self.metadata_json = metadata_json

    def append_kernel(self, name: str, device: int, duration: float) -> None:
        """Note a kernel that the event launched, with its microseconds."""
        self.kernels.append(Kernel(name, device, duration))

    def append_cpu_child(self, child: FunctionEvent) -> None:
        """Note an event that ran inside of this one."""
        self.cpu_children.append(child)

    def set_cpu_parent(self, parent: FunctionEvent) -> None:
        """Note the event around this one."""
        self.cpu_parent = parent

    @property
    def key(self) -> str:
        """The key by which events are averaged: the name."""
        return self.name

    @property
    def cpu_time_total(self) -> float:  # type: ignore[override]
        """Microseconds from begin to end."""
        return self.time_range.elapsed_us() if self.device_type == DeviceType.CPU else 0.0

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds outside of all events inside of this one; of a child that ends later, what overlaps."""
        mine = self.time_range
        return self.cpu_time_total - sum(
            max(0.0, min(mine.end, c.time_range.end) - c.time_range.start)
            for c in self.cpu_children
        )

    @property
    def device_time_total(self) -> float:  # type: ignore[override]
        """Microseconds of the work of devices that the event and those inside of it launched, or of this work."""
        return self.self_device_time_total + sum(c.device_time_total for c in self.cpu_children)

    @property
    def self_device_time_total(self) -> float:
        """Microseconds of the work that the event itself launched, or of this work."""
        if self.device_type != DeviceType.CPU:
            return self.time_range.elapsed_us()
        return sum(kernel.duration for kernel in self.kernels)

    @property
    def self_cpu_memory_usage(self) -> int:
        """Bytes on the CPU that were made less those freed, outside of all events inside of this one."""
        return self.cpu_memory_usage - sum(c.cpu_memory_usage for c in self.cpu_children)

    @property
    def self_device_memory_usage(self) -> int:
        """As `self_cpu_memory_usage`, on devices."""
        return self.device_memory_usage - sum(c.device_memory_usage for c in self.cpu_children)

    def __repr__(self) -> str:
        return (
            f"<FunctionEvent id={self.id} name={self.name} device_type={self.device_type.name} "
            f"cpu_time={self.cpu_time_str} start_us={self.time_range.start} end_us={self.time_range.end} "
            f"cpu_children={[c.id for c in self.cpu_children]} thread={self.thread} "
            f"input_shapes={self.input_shapes} cpu_memory_usage={self.cpu_memory_usage} "
            f"is_async={self.is_async} is_remote={self.is_remote} seq_nr={self.sequence_nr}>"
        )


class FunctionEventAvg(FormattedTimesMixin):
    """Sums over events with the same key; `cpu_time` and `device_time` are averages over `count` events."""

    def __init__(self) -> None:
        self.key: str | None = None
        self.count = 0
        self.node_id = 0
        self.is_async = False
        self.is_remote = False
        self.use_device: str | None = None
        self.cpu_time_total: float = 0
        self.device_time_total: float = 0
        self.self_cpu_time_total: float = 0
        self.self_device_time_total: float = 0
        self.input_shapes: Any = None
        self.overload_name: str | None = None
        self.stack: list[str] | None = None
        self.scope: int | None = None
        self.cpu_memory_usage = 0
        self.device_memory_usage = 0
        self.self_cpu_memory_usage = 0
        self.self_device_memory_usage = 0
        self.cpu_children: list[FunctionEvent] | None = None
        self.cpu_parent: FunctionEvent | None = None
        self.device_type = DeviceType.CPU
        self.is_legacy = False
        self.flops = 0
        self.is_user_annotation = False

    def add(self, other: FunctionEvent | FunctionEventAvg) -> FunctionEventAvg:
        """Add an event with the same key, or the sums over some.

        Raises:
            AssertionError: for something else, or another key.
        """
        assert isinstance(other, (FunctionEvent, FunctionEventAvg)), (
            f"FunctionEventAvg.add: expected an event or an average, got {type(other).__name__}"
        )
        if self.key is None:
            for name in (
                "key", "node_id", "is_async", "is_remote", "use_device", "cpu_parent", "cpu_children", "overload_name",
                "input_shapes", "stack", "scope", "device_type", "is_legacy", "is_user_annotation",
            ):  # fmt: skip
                setattr(self, name, getattr(other, name))
        assert other.key == self.key, (
            f"FunctionEventAvg.add: expected the key {self.key!r}, got {other.key!r}"
        )
        for name in (
            "cpu_time_total", "device_time_total", "self_cpu_time_total", "self_device_time_total", "cpu_memory_usage",
            "device_memory_usage", "self_cpu_memory_usage", "self_device_memory_usage", "count",
        ):  # fmt: skip
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.flops += other.flops or 0
        return self

    def __iadd__(self, other: FunctionEvent | FunctionEventAvg) -> FunctionEventAvg:
        return self.add(other)

    def __repr__(self) -> str:
        return (
            f"<FunctionEventAvg key={self.key} count={self.count} self_cpu_time={self.self_cpu_time_total_str} "
            f"cpu_time={self.cpu_time_str} self_device_time={self.self_device_time_total_str} "
            f"device_time={self.device_time_str} input_shapes={self.input_shapes} "
            f"cpu_memory_usage={self.cpu_memory_usage} device_memory_usage={self.device_memory_usage}>"
        )
