"""The work of devices in profiles: times by events of the driver, beside the calls that launched it."""

import json

import pytest

pytest.importorskip("rabbet.profiler")

BEGIN = """
import json, sys, time
import rabbet
from rabbet import cuda, nn
from rabbet.profiler import ProfilerActivity, profile, supported_activities

def kernels(prof):
    return [e for e in prof.events() if e.device_type]
"""


def test_a_table_has_device_times_of_calls_and_of_kernels(run, simulator):
    code = """
assert supported_activities() == {ProfilerActivity.CPU, ProfilerActivity.CUDA}
x = rabbet.ones(200, 200, device="cuda")
(x @ x).exp(); cuda.synchronize()
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
    began = time.perf_counter()
    for _ in range(3): y = (x @ x).exp()
    cuda.synchronize()
    wall = (time.perf_counter() - began) * 1e6
rows = {e.key: e for e in prof.key_averages()}
for call, kernel in (("aten::exp", "exp kernel"), ("aten::matmul", "matmul kernel")):
    assert rows[call].count == rows[kernel].count == 3
    assert rows[kernel].cpu_time_total == 0 and rows[kernel].self_device_time_total > 0
    assert abs(rows[call].device_time_total - rows[kernel].self_device_time_total) < 1e-6 * wall, (call, rows)
# On the simulator kernels run one after another on the processor: together they take no longer than the clock.
total = sum(e.self_device_time_total for e in kernels(prof))
assert 0.2 * wall < total < 1.01 * wall, (total, wall)
assert rows["matmul kernel"].self_device_time_total > rows["exp kernel"].self_device_time_total
table = prof.key_averages().table(sort_by="cuda_time_total", row_limit=2)
assert "Self CUDA" in table and "CUDA total" in table and "Self CUDA time total: " in table, table
assert "matmul" in table.splitlines()[3], table
"""
    run(BEGIN + code, **simulator)


def test_kernels_lie_in_the_time_of_the_recording_and_after_their_launch(run, simulator):
    code = """
x = rabbet.ones(1000, device="cuda")
with profile() as prof:
    y = x + 1
    host = y.cpu()
    time.sleep(0.05)
    z = rabbet.ones(1000).to("cuda")
trace = prof.profiler.trace
assert [trace.work(l) for l in trace.launches] == ["add kernel", "copy to the host", "copy from the host"]
for launch in trace.launches:
    assert trace.start <= launch.time <= launch.end <= trace.end and launch.begin <= launch.end, launch
    call = trace.spans[launch.span]
    assert call.begin <= launch.time <= call.end and trace.label(call) in ("aten::add", "aten::_to_copy", "aten::to", "aten::copy_", "aten::cpu"), trace.label(call)
first, second, third = (l.begin for l in trace.launches)
assert first < second < third and third - second > 50e6
assert prof.events().table().count("copy to the host") == 1
"""
    run(BEGIN + code, **simulator)


def test_a_chrome_trace_has_a_track_for_each_stream(run, simulator, tmp_path):
    code = """
side = cuda.Stream()
x = rabbet.ones(1000, device="cuda")
cuda.synchronize()
with profile() as prof:
    y = x + 1
    with cuda.stream(side):
        side.wait_stream(cuda.default_stream())
        z = x * 2
    cuda.synchronize()
prof.export_chrome_trace(sys.argv[1] if len(sys.argv) > 1 else "PATH")
""".replace("PATH", str(tmp_path / "trace.json"))
    run(BEGIN + code, **simulator)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    work = {e["name"]: e for e in events if e.get("cat") == "kernel"}
    add, mul = work["add kernel"], work["mul kernel"]
    assert (add["tid"], mul["tid"]) == (0, 1) and add["pid"] == mul["pid"] == 0
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert tracks[0, 0] == "default stream" and tracks[0, 1] == "stream 1"
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names[0] == "cuda:0"
    calls = {e["args"]["External id"]: e["name"] for e in events if e.get("cat") == "cpu_op"}
    assert calls[add["args"]["External id"]] == "aten::add"
    starts = {e["id"]: e for e in events if e["ph"] == "s" and e["cat"] == "ac2g"}
    ends = {e["id"]: e for e in events if e["ph"] == "f" and e["cat"] == "ac2g"}
    assert set(starts) == set(ends) == {add["args"]["correlation"], mul["args"]["correlation"]}
    assert ends[mul["args"]["correlation"]]["ts"] == pytest.approx(mul["ts"])


def test_many_launches_keep_their_times_and_graphs_are_one_piece(run, simulator):
    code = """
x = rabbet.zeros(8, device="cuda")
x.add_(1); cuda.synchronize()
with profile() as prof:
    for _ in range(2500): x.add_(1)
    cuda.synchronize()
launches = prof.profiler.trace.launches
assert len(launches) == 2500 and all(a.end <= b.begin + 2000 for a, b in zip(launches, launches[1:]))
graph = cuda.CUDAGraph()
with cuda.graph(graph):
    x.add_(1); x.mul_(2)
with profile() as prof:
    graph.replay(); graph.replay()
    cuda.synchronize()
assert [e.name for e in kernels(prof)] == ["a captured graph"] * 2
with profile(activities=[ProfilerActivity.CPU]) as prof:
    x.add_(1)
assert kernels(prof) == [] and len(prof.events()) > 0
with profile() as prof: pass
assert kernels(prof) == []
"""
    run(BEGIN + code, **simulator)


def test_derivatives_and_training_have_device_times(run, simulator):
    code = """
net = nn.Linear(16, 4).to("cuda")
x = rabbet.randn(8, 16, device="cuda")
with profile(with_stack=True, record_shapes=True, profile_memory=True) as prof:
    net(x).sum().backward()
    cuda.synchronize()
rows = {e.key: e for e in prof.key_averages()}
backward = [e for e in prof.events() if e.name.startswith("autograd::engine::evaluate_function")]
assert sum(e.device_time_total for e in backward) > 0
calls = [e for e in prof.events() if not e.device_type]
assert abs(sum(k.duration for e in calls for k in e.kernels) - sum(e.self_device_time_total for e in kernels(prof))) < 1e-3
str(prof.key_averages().table(sort_by="self_cuda_time_total"))
from rabbet.profiler import _page
operators = {row["name"]: row for row in _page._operators(prof.profiler.trace)}
assert operators["aten::linear"]["device"] == rows["aten::linear"].device_time_total > 0
assert operators["sum kernel"]["self"] == 0 and operators["sum kernel"]["device"] > 0
"""
    run(BEGIN + code, **simulator)


def test_a_perfetto_trace_has_a_track_for_each_stream(run, simulator, tmp_path):
    messages = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    code = """
side = cuda.Stream()
x = rabbet.ones(1000, device="cuda")
with profile() as prof:
    y = x + 1
    with cuda.stream(side): z = x * 2
    cuda.synchronize()
prof.export_perfetto("PATH")
""".replace("PATH", str(tmp_path / "trace"))
    run(BEGIN + code, **simulator)
    trace = messages.Trace.FromString((tmp_path / "trace").read_bytes())
    tracks = {  # each track has its own sequence of packets
        p.trusted_packet_sequence_id: p.track_descriptor.name
        for p in trace.packet
        if p.track_descriptor.uuid
    }
    names = {
        (p.trusted_packet_sequence_id, n.iid): n.name
        for p in trace.packet
        for n in p.interned_data.event_names
    }
    flows = [set(p.track_event.flow_ids) for p in trace.packet if p.track_event.flow_ids]
    work = [p for p in trace.packet if p.track_event.terminating_flow_ids]
    sequences = [(p.trusted_packet_sequence_id, p.track_event.name_iid) for p in work]
    assert {(tracks[s], names[s, name]) for s, name in sequences} == {
        ("cuda:0 default stream", "add kernel"),
        ("cuda:0 stream 1", "mul kernel"),
    }
    assert set().union(*flows) == {f for p in work for f in p.track_event.terminating_flow_ids}
