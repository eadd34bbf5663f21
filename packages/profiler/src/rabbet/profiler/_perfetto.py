"""Perfetto's own format (https://perfetto.dev/docs/reference/trace-packet-proto): an eighth of the size of Chrome's JSON.

Each track has its own sequence of packets. The defaults of a sequence name the track. Times are relative to those of the
previous packet. Each sequence contains the name of an event once.
"""

from __future__ import annotations

import gzip
import os
from typing import BinaryIO, cast

from ._nesting import Tree
from ._trace import Trace

# Numbers of fields and values in perfetto_trace.proto.
_PACKET = 1
_CLOCKS, _TIMESTAMP, _SEQUENCE, _TRACK_EVENT, _INTERNED, _FLAGS = 6, 8, 10, 11, 12, 13
_CLOCK, _DEFAULTS, _TRACK = 58, 59, 60
_UUID, _NAME, _PROCESS, _THREAD, _PARENT, _COUNTER = 1, 2, 3, 4, 5, 8
_TYPE, _NAME_IID, _TRACK_UUID, _COUNTER_VALUE, _FLOWS, _LAST_FLOWS = 9, 10, 11, 30, 47, 48
_BEGIN, _END, _COUNT = 1, 2, 4
_CLEARED, _NEEDS_STATE = 1, 2
_SIZE_IN_BYTES = 3
# Clocks: that of traces, and the first of those that a sequence may define.
_BOOT_TIME, _OF_SEQUENCE = 6, 64


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _fixed64(field: int, value: int) -> bytes:
    return _varint(field << 3 | 1) + value.to_bytes(8, "little")


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _text(field: int, text: str) -> bytes:
    return _message(field, text.encode())


class _Sequence:
    """The packets of one track."""

    def __init__(self, file: BinaryIO, uuid: int, content: bytes, start: int) -> None:
        self._file = file
        self._names: dict[str, int] = {}
        self._time = start
        self._tail = _number(_FLAGS, _NEEDS_STATE) + _number(_SEQUENCE, uuid)
        self._end = _message(_TRACK_EVENT, _number(_TYPE, _END)) + self._tail
        snapshot = _message(1, _number(1, _BOOT_TIME) + _number(2, start))
        snapshot += _message(1, _number(1, _OF_SEQUENCE) + _number(2, start) + _number(3, 1))
        defaults = _number(_CLOCK, _OF_SEQUENCE) + _message(
            _TRACK_EVENT, _number(_TRACK_UUID, uuid)
        )
        self._packet(
            _message(_CLOCKS, snapshot)
            + _message(_DEFAULTS, defaults)
            + _message(_TRACK, _number(_UUID, uuid) + content)
            + _number(_FLAGS, _CLEARED | _NEEDS_STATE)
            + _number(_SEQUENCE, uuid)
            + _number(_TIMESTAMP, start)
            + _number(_CLOCK, _BOOT_TIME)
        )

    def _packet(self, content: bytes) -> None:
        self._file.write(_message(_PACKET, content))

    def _passed(self, time: int) -> bytes:
        """The time since the previous packet."""
        passed, self._time = time - self._time, time
        return _number(_TIMESTAMP, passed)

    def begin(self, time: int, name: str, flows: bytes = b"") -> None:
        """The begin of a slice."""
        interned, number = b"", self._names.get(name)
        if number is None:
            number = self._names[name] = len(self._names) + 1
            entry = _number(1, number) + _text(2, name)
            interned = _message(_INTERNED, _message(2, entry))
        content = _number(_TYPE, _BEGIN) + _number(_NAME_IID, number) + flows
        self._packet(self._passed(time) + interned + _message(_TRACK_EVENT, content) + self._tail)

    def end(self, time: int) -> None:
        """The end of the slice that began last."""
        self._packet(self._passed(time) + self._end)

    def count(self, time: int, value: int) -> None:
        """A value of a counter."""
        content = _number(_TYPE, _COUNT) + _number(_COUNTER_VALUE, value)
        self._packet(self._passed(time) + _message(_TRACK_EVENT, content) + self._tail)


class _Tracks:
    """Creates tracks. The first is the process; all others are nested in it."""

    def __init__(self, file: BinaryIO, start: int, process: bytes) -> None:
        self._file = file
        self._start = start
        self._count = 0
        self._add(process)

    def _add(self, content: bytes) -> _Sequence:
        self._count += 1
        return _Sequence(self._file, self._count, content, self._start)

    def add(self, name: str = "", kind: bytes = b"") -> _Sequence:
        """A track; `kind` says what it shows."""
        return self._add(kind + _number(_PARENT, 1) + (_text(_NAME, name) if name else b""))


def write_perfetto(path: str, trace: Trace) -> None:
    """Write a recording; `.gz` at the end of the path compresses."""
    opened = gzip.open if str(path).endswith(".gz") else open
    with cast(BinaryIO, opened(path, "wb")) as file:
        _write(file, trace)


def _write(file: BinaryIO, trace: Trace) -> None:
    pid = os.getpid()
    tracks = _Tracks(file, trace.start, _message(_PROCESS, _number(1, pid) + _text(6, "python")))
    flows: dict[int, list[int]] = {}
    for i, launch in enumerate(trace.launches, 1):
        flows.setdefault(launch.span, []).append(i)
    tree = Tree(trace)
    for tid, tops in zip(trace.threads, tree.tops, strict=True):
        numbers = _number(1, pid) + _number(2, tid) + _text(5, f"thread {tid}")
        thread = tracks.add(kind=_message(_THREAD, numbers))
        for opens, nested in tree.edges(tops, trace.start, trace.end):
            if opens:
                ids = b"".join(_fixed64(_FLOWS, f) for f in flows.get(nested.number, []))
                thread.begin(nested.begin, trace.label(nested.span), ids)
            else:
                thread.end(nested.end)
    _write_devices(tracks, trace)
    if trace.memory:
        _write_memory(tracks, trace)


def _write_devices(tracks: _Tracks, trace: Trace) -> None:
    streams = {}
    for place, number in trace.streams().items():
        backend, device, _ = place
        name = f"stream {number}" if number else "default stream"
        streams[place] = tracks.add(f"{backend}:{device} {name}")
    ends: dict[tuple[str, int, int], int] = {}
    work = sorted(enumerate(trace.launches, 1), key=lambda pair: pair[1].begin)
    for i, launch in work:
        place = launch.backend, launch.device, launch.stream
        begin = max(launch.begin, ends.get(place, 0))  # one piece after the other in a stream
        ends[place] = max(launch.end, begin)
        streams[place].begin(begin, trace.work(launch), _fixed64(_LAST_FLOWS, i))
        streams[place].end(ends[place])


def _write_memory(tracks: _Tracks, trace: Trace) -> None:
    unit = _message(_COUNTER, _number(3, _SIZE_IN_BYTES))
    for which, name in enumerate(("CPU", "devices")):
        counter = tracks.add(f"bytes of tensors: {name}", unit)
        before = None
        for at, *sizes in trace.memory:
            value = sizes[which] + (0 if which else trace.live_bytes)
            if value != before:
                counter.count(at, value)
            before = value
