"""Perfetto's own format, read by its messages where the package `perfetto` is installed, and byte by byte where it is not."""

import gzip
import time

import pytest
import rabbet
from rabbet import nn, optim
from rabbet.profiler import profile, record_function


@pytest.fixture(scope="module")
def prof():
    net, x = nn.Linear(3, 4), rabbet.ones(5, 3)
    with profile(profile_memory=True) as prof:
        for _ in range(3):
            with record_function("a part with ümlauts"):
                net(x).sum().backward()
    return prof


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def fields(data):
    """(number, value) of the fields of a message, as the encoding of protocol buffers has them."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 1:
            value, at = int.from_bytes(data[at : at + 8], "little"), at + 8
        else:
            assert key & 7 == 2
            size, at = varint(data, at)
            value, at = data[at : at + size], at + size
        yield key >> 3, value


def slices(data):
    """(begin, end, name, depth) of all slices, out of the packets' bytes."""
    sequences, found = {}, []
    for number, packet in fields(data):
        assert number == 1
        packet = dict(fields(packet))
        if (
            packet[10] not in sequences
        ):  # the first packet has the clock, the defaults and the track
            assert packet[13] == 3 and packet[58] == 6
            clocks = [dict(fields(clock)) for _, clock in fields(packet[6])]
            assert clocks == [{1: 6, 2: packet[8]}, {1: 64, 2: packet[8], 3: 1}]
            defaults = dict(fields(packet[59]))
            track = dict(fields(packet[60]))[1]
            assert defaults[58] == 64 and dict(fields(defaults[11])) == {11: track}
            sequences[packet[10]] = {"time": packet[8], "names": {}, "open": []}
            continue
        assert packet[13] == 2 and 58 not in packet
        sequence = sequences[packet[10]]
        sequence["time"] += packet[8]
        if 12 in packet:
            entry = dict(fields(dict(fields(packet[12]))[2]))
            assert entry[1] not in sequence["names"]
            sequence["names"][entry[1]] = entry[2].decode()
        event = dict(fields(packet[11]))
        if event[9] == 1:
            sequence["open"].append((sequence["time"], sequence["names"][event[10]]))
        elif event[9] == 2:
            begin, name = sequence["open"].pop()
            found.append((begin, sequence["time"], name, len(sequence["open"])))
    assert not any(sequence["open"] for sequence in sequences.values())
    return found


@pytest.mark.parametrize("name", ["t.perfetto-trace", "t.perfetto-trace.gz"])
def test_slices_are_the_events(prof, tmp_path, name):
    path = tmp_path / name
    prof.export_perfetto(str(path))
    data = path.read_bytes()
    found = slices(gzip.decompress(data) if name.endswith(".gz") else data)
    start = prof.profiler.trace.start
    events = [e for e in prof.events() if e.name != "[memory]"]

    def depth(event):
        return 0 if event.cpu_parent is None else 1 + depth(event.cpu_parent)

    expected = sorted((round(e.time_range.start * 1e3), e.trace_name, depth(e)) for e in events)
    assert sorted((b - start, n, d) for b, _, n, d in found) == expected
    lengths = sum(e - b for b, e, _, d in found if d == 0) / 1e3
    assert lengths == pytest.approx(
        sum(e.cpu_time_total for e in events if e.cpu_parent is None), rel=1e-6
    )
    assert sum(n == "a part with ümlauts" for _, _, n, _ in found) == 3


def test_sixty_seconds_of_training_fit_into_twenty_megabytes(tmp_path):
    """Sizes are scaled by processor time, so that other work on the machine does not matter."""
    block = nn.TransformerEncoderLayer(96, 4, 384, batch_first=True)
    net = nn.Sequential(nn.Embedding(100, 96), block, nn.Linear(96, 100))
    optimizer = optim.AdamW(net.parameters())
    x = rabbet.randint(0, 100, (16, 64))

    def step():
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x).flatten(0, 1), x.flatten()).backward()
        optimizer.step()

    step()
    with profile() as prof:
        begin = time.thread_time()
        for _ in range(30):
            step()
        seconds = time.thread_time() - begin
    sizes = {}
    for name, export in (
        ("p", prof.export_perfetto),
        ("p.gz", prof.export_perfetto),
        ("c", prof.export_chrome_trace),
        ("h", prof.export_html),
    ):
        export(str(tmp_path / name))
        sizes[name] = (tmp_path / name).stat().st_size
    assert sizes["p"] < sizes["c"] / 7
    assert sizes["p.gz"] / seconds * 60 < 20e6 and sizes["h"] < 1e6, (sizes, seconds)


def test_perfetto_s_own_messages_read_it(prof, tmp_path):
    messages = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    prof.export_perfetto(str(tmp_path / "t"))
    trace = messages.Trace.FromString((tmp_path / "t").read_bytes())
    tracks = {
        p.track_descriptor.uuid: p.track_descriptor
        for p in trace.packet
        if p.HasField("track_descriptor")
    }
    threads = [t for t in tracks.values() if t.HasField("thread")]
    assert {t.thread.tid for t in threads} == set(prof.profiler.trace.threads)
    assert all(tracks[t.parent_uuid].process.process_name == "python" for t in threads)
    begins = [p for p in trace.packet if p.track_event.type == messages.TrackEvent.TYPE_SLICE_BEGIN]
    ends = [p for p in trace.packet if p.track_event.type == messages.TrackEvent.TYPE_SLICE_END]
    assert (
        len(begins)
        == len(ends)
        == len(prof.profiler.trace.spans) - sum(s.kind == 5 for s in prof.profiler.trace.spans)
    )
    names = [n.name for p in trace.packet for n in p.interned_data.event_names]
    assert "aten::linear" in names and len(names) == len(set(names))
    counters = {u: t for u, t in tracks.items() if t.HasField("counter")}
    assert {t.name for t in counters.values()} == {
        "bytes of tensors: CPU",
        "bytes of tensors: devices",
    }
    assert all(
        t.counter.unit == messages.CounterDescriptor.UNIT_SIZE_BYTES for t in counters.values()
    )
    values = [
        p.track_event.counter_value
        for p in trace.packet
        if p.track_event.type == messages.TrackEvent.TYPE_COUNTER
    ]
    sizes = [host for _, host, _ in prof.profiler.trace.memory]
    changes = sum(a != b for a, b in zip([None, *sizes], sizes, strict=False))
    assert len(values) == changes + 1 and max(values) > 0  # the counter of devices stays 0


def test_it_waits_for_the_end():
    prof = profile()
    prof.start()
    with pytest.raises(RuntimeError, match="it is still running"):
        prof.export_perfetto("never")
    prof.stop()
