"""Devices, streams, copies, late errors and graphs, on the simulator. Each test is a process of its own."""

import os

import pytest

# Frees a tensor's segment behind core's back: who reads it then makes the device fail.
BREAK = """
import ctypes, os, rabbet
def broken(device="cuda:0"):
    x = rabbet.ones(64, device=device)
    x.tolist()
    (segment,) = [s for s in rabbet.accelerator.memory_snapshot() if s["address"] <= x.data_ptr() < s["address"] + s["total_size"]]
    assert ctypes.CDLL(os.environ["RABBET_CUDA_DRIVER"]).cuMemFree_v2(ctypes.c_uint64(segment["address"])) == 0
    return x
def error(f):
    try: f()
    except Exception as failed: return str(failed).replace(chr(10), " ")
    return "nothing"
"""


def test_devices_tell_what_they_are(run, simulator):
    code = """
import rabbet
from rabbet import accelerator
for index in range(2):
    p = accelerator.get_device_properties(f"cuda:{index}")
    assert p.name == "simulated device" and p.total_memory == 1 << 30 and p.warp_size == 32
    assert p.major == 9 and p.multi_processor_count > 0 and p.max_threads_per_block == 1024
    assert p.is_integrated is False and p.pci_bus_id == index + 1
    assert [len(part) for part in p.uuid.split("-")] == [8, 4, 4, 4, 12], p.uuid
for name in ("minor", "max_threads_per_multi_processor", "shared_memory_per_block", "shared_memory_per_multiprocessor",
             "regs_per_multiprocessor", "L2_cache_size", "clock_rate", "memory_clock_rate", "memory_bus_width",
             "is_multi_gpu_board", "pci_device_id", "pci_domain_id"):
    assert hasattr(p, name), name
free, total = accelerator.get_memory_info("cuda:1")
x = rabbet.ones(3 << 20, device="cuda:1")
assert total == 1 << 30 and free - accelerator.get_memory_info("cuda:1")[0] >= 12 << 20
assert accelerator.get_memory_info("cuda:0") == (total, total)
assert accelerator.can_device_access_peer("cuda:0", "cuda:1")
print("ok")
"""
    assert run(code, CUSIM_DEVICES="2", **simulator) == "ok\n"


def test_pinned_and_managed_memory(run, simulator):
    code = """
import rabbet
x = rabbet.arange(10.0)
pinned = x.pin_memory("cuda")
assert pinned.is_pinned() and not x.is_pinned() and pinned.device.type == "cpu"
there = pinned.to("cuda")
pinned.zero_()
assert there.tolist() == x.tolist()
pinned[2:].copy_(there[2:])
assert pinned.tolist() == [0, 0, *x.tolist()[2:]]
kept = []
for k in range(4):   # the copy is behind what the device does; the host's block is not given again before
    pinned.fill_(k)
    again = pinned.clone().pin_memory("cuda")
    kept.append(again.to("cuda", non_blocking=True))
    del again
assert [y.tolist() for y in kept] == [[k] * 10 for k in range(4)]
back = (kept[3] + 1).to("cpu", non_blocking=True)
rabbet.accelerator.synchronize("cuda")
assert back.tolist() == [4] * 10 and back.is_pinned()
del pinned, back
rabbet.accelerator.empty_cache()
print("ok")
"""
    assert run(code, **simulator) == "ok\n"


def test_a_copy_that_waits_has_arrived_for_all_streams(run, simulator):
    """No event orders the second stream behind the copy."""
    code = """
import rabbet
x = rabbet.arange(1000.0).to("cuda")
with rabbet.cuda.Stream():
    print((x + 1).sum().item())
"""
    assert run(code, CUSIM_CHECK="all", **simulator) == "500500.0\n"


def test_pageable_memory_is_read_before_the_copy_returns(run, simulator):
    """Some megabytes, of which the host's memory is written again at once."""
    code = """
import rabbet
n = (5 << 20) // 4 + 17
kept = []
for k in range(4):
    host = rabbet.arange(n) + k
    kept.append(host.to("cuda"))
    host.fill_(-1)
small = rabbet.tensor([0.0])
for k in range(12):
    small.fill_(k)
    kept.append(small.to("cuda"))
    small.fill_(-1)
for k in range(4):
    assert rabbet.equal(kept[k].cpu(), rabbet.arange(n) + k), k
assert [x.item() for x in kept[4:]] == list(range(12))
print("ok")
"""
    assert run(code, **simulator) == "ok\n"


def test_copies_between_devices_follow_both_streams(run, simulator):
    code = """
import rabbet
for k in range(3):
    one, two = rabbet.Stream("cuda:0"), rabbet.Stream("cuda:1")
    with one, two:
        x = rabbet.full((1000,), float(k), device="cuda:0")
        for _ in range(5): x += 1
        y = x.to("cuda:1")      # behind the additions
        x.fill_(-1)             # not before the copy has read it
        y += 1
        z = y.to("cuda:0")
        del y
        spoilt = rabbet.full((1000,), -2.0, device="cuda:1")
        assert z.tolist() == [k + 6.0] * 1000, z[:3].tolist()
        assert x.tolist() == [-1.0] * 1000
a = rabbet.ones(3, device="cuda:0"); b = rabbet.ones(3, device="cuda:1")
b.copy_(a * 2); assert b.tolist() == [2, 2, 2]
assert b.to("cuda:0").device == a.device
print("ok")
"""
    assert run(code, CUSIM_DEVICES="2", **simulator) == "ok\n"


def test_streams_have_priorities_and_threads_their_own(run, simulator):
    code = """
import ctypes, os, threading, rabbet
sim = ctypes.CDLL(os.environ["RABBET_CUDA_DRIVER"])
def priority(stream):
    value = ctypes.c_int(99)
    assert sim.cuStreamGetPriority(ctypes.c_void_p(stream.stream_id), ctypes.byref(value)) == 0
    return value.value
rabbet.ones(1, device="cuda").tolist()
assert priority(rabbet.Stream("cuda")) == 0
assert priority(rabbet.Stream("cuda", priority=-1)) == -1
assert priority(rabbet.Stream("cuda", priority=-100)) == -5
results = {}
def work(k):
    with rabbet.Stream("cuda"):
        x = rabbet.full((500,), float(k), device="cuda")
        for _ in range(20): x = x * 1 + 1
        results[k] = x.tolist()
threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
assert results == {k: [k + 20.0] * 500 for k in range(4)}
print("ok")
"""
    assert run(code, **simulator) == "ok\n"


def test_kernels_know_their_dtypes(run, simulator):
    code = """
import rabbet
for dtype in (rabbet.float32, rabbet.int64, rabbet.float64, rabbet.int8):
    x = rabbet.arange(5).to("cuda").to(dtype)
    assert (x + x).tolist() == [0, 2, 4, 6, 8] and (x + x).dtype is dtype
print("ok")
"""
    assert run(code, **simulator) == "ok\n"


def test_streams_wait_for_each_other_and_for_events(run, simulator):
    code = """
import rabbet
one, two = rabbet.Stream("cuda"), rabbet.Stream("cuda")
for k in range(3):
    with one:
        x = rabbet.full((300,), float(k), device="cuda")
        for _ in range(4): x = x + 1
        event = one.record_event()
    two.wait_event(event)
    with two:
        y = x * 2
        x.record_stream(two)
        del x
        event = two.record_event()
    with one: spoilt = [rabbet.full((300,), -1.0, device="cuda") for _ in range(3)]
    if k: one.synchronize()   # what spoils runs first, unless it waits for the other stream
    event.synchronize()
    with one: assert event.query()
    with two: assert y.tolist() == [2.0 * (k + 4)] * 300, y[:3].tolist()
print("ok")
"""
    assert run(code, **simulator) == "ok\n"


def test_a_late_error_names_what_was_in_flight_and_lasts(run, simulator):
    code = """
y = rabbet.ones(4, device="cuda:1")
event = rabbet.Event("cuda:0"); event.record()
x = broken()
x.exp()
x.cos()
said = error(lambda: rabbet.accelerator.synchronize("cuda:0"))
assert "illegal memory access" in said and "cuda:0" in said and "exp" in said, said
assert "RABBET_CUDA_LAUNCH_BLOCKING=1" in said
again = error(lambda: x + 1)
assert "cannot be used any more" in again and "exp" in again, again
del event
assert (y + 1).tolist() == [2.0] * 4
print("ok")
"""
    assert run(BREAK + code, CUSIM_DEVICES="2", RABBET_CUDA_EXPANDABLE="0", **simulator) == "ok\n"


def test_what_is_done_is_not_named(run, simulator):
    code = """
rabbet.ones(4, device="cuda").sin().tolist()
x = broken()
x.exp()
said = error(lambda: rabbet.accelerator.synchronize("cuda:0"))
assert "exp" in said and "sin" not in said, said
print("ok")
"""
    assert run(BREAK + code, RABBET_CUDA_EXPANDABLE="0", **simulator) == "ok\n"


@pytest.mark.parametrize("variable", ["RABBET_CUDA_LAUNCH_BLOCKING", "CUDA_LAUNCH_BLOCKING"])
def test_the_error_of_a_blocking_launch_names_operator_and_line(run, simulator, variable, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(BREAK + "x = broken()\nx.neg\ny = x.exp()  # here\n")
    line = program.read_text().splitlines().index("y = x.exp()  # here") + 1
    code = f"""
import runpy
try: runpy.run_path({str(program)!r})
except RuntimeError as failed: print(str(failed).replace(chr(10), " "))
"""
    env = {variable: "1", "RABBET_CUDA_EXPANDABLE": "0", **simulator}
    said = run(code, **env)
    assert "exp" in said and f"program.py:{line}" in said and "illegal memory access" in said, said


GRAPH = """
import rabbet
from rabbet import accelerator
def error(f):
    try: f()
    except Exception as failed: return str(failed).replace(chr(10), " ")
    return "nothing"
"""


def test_a_graph_replays_a_training_step(run, simulator):
    code = """
def step(w, x):
    y = (x * w).relu()
    loss = (y * y).sum()
    loss.backward()
    with rabbet.no_grad():
        w -= 0.01 * w.grad
        w.grad.zero_()
    return loss
def start(device):
    w = (rabbet.arange(6.0).reshape(2, 3) / 3 - 0.5).to(device).requires_grad_()
    w.grad = rabbet.zeros_like(w)
    return w
data = [rabbet.arange(6.0).reshape(2, 3) * k for k in range(1, 5)]
here = start("cpu"); wanted = [step(here, x).item() for x in data]
w, x = start("cuda"), data[0].to("cuda")
graph = accelerator.Graph()
stream = rabbet.Stream("cuda")
stream.wait_stream(accelerator.current_stream("cuda"))
with stream:
    with graph: loss = step(w, x)
    got = []
    for batch in data:
        x.copy_(batch)
        graph.replay()
        got.append(loss.item())
assert rabbet.allclose(rabbet.tensor(got), rabbet.tensor(wanted)), (got, wanted)
assert rabbet.allclose(w.detach().cpu(), here.detach())
graph.reset()
print("ok")
"""
    assert run(GRAPH + code, RABBET_CUDA_FALLBACK="error", **simulator) == "ok\n"


def test_what_cannot_be_captured_is_named(run, simulator):
    code = """
x = rabbet.arange(4.0).to("cuda")
graph = accelerator.Graph()
def on_the_default_stream():
    with graph: x + 1
said = error(on_the_default_stream)
assert "the default stream cannot be captured" in said and "rabbet.Stream" in said, said
def with_item():
    with rabbet.Stream("cuda"), graph: (x + 1).sum().item()
said = error(with_item)
assert "cannot be captured" in said, said
def over_the_cpu():
    with rabbet.Stream("cuda"), graph: rabbet.histc(x)
said = error(over_the_cpu)
assert said != "nothing", said
stream = rabbet.Stream("cuda")
stream.wait_stream(accelerator.current_stream("cuda"))
with stream, graph: y = (x * 3).sigmoid()   # a kernel that was never compiled before; memory that is new
with stream:
    assert not y.data_ptr() == x.data_ptr()
    graph.replay()
    assert rabbet.allclose(y.cpu(), (rabbet.arange(4.0) * 3).sigmoid())
assert (x + 1).tolist() == [1, 2, 3, 4]
print("ok")
"""
    assert run(GRAPH + code, **simulator) == "ok\n"


def test_a_graphs_memory_is_its_own(run, simulator):
    code = """
x = rabbet.arange(1000.0).to("cuda")
stream = rabbet.Stream("cuda")
stream.wait_stream(accelerator.current_stream("cuda"))
graph = accelerator.Graph()
with stream:
    with graph:
        y = x * 2
        z = y + 1
        del y
    spoilt = [rabbet.full((1000,), -1.0, device="cuda") for _ in range(8)]
    graph.replay()
    assert rabbet.equal(z.cpu(), rabbet.arange(1000.0) * 2 + 1)
    assert all(s.eq(-1).all().item() for s in spoilt)
print("ok")
"""
    assert run(GRAPH + code, **simulator) == "ok\n"


def test_a_graph_draws_the_numbers_that_calls_would(run, simulator):
    code = """
stream = rabbet.Stream("cuda")
graph = accelerator.Graph()
with stream:
    rabbet.manual_seed(5)
    wanted = [rabbet.rand(50, device="cuda").tolist() for _ in range(3)]
    with graph: x = rabbet.rand(50, device="cuda")
    rabbet.manual_seed(5)
    got = []
    for _ in range(3):
        graph.replay()
        got.append(x.tolist())
assert got == wanted and got[0] != got[1]
print("ok")
"""
    assert run(GRAPH + code, RABBET_CUDA_FALLBACK="error", **simulator) == "ok\n"


WAITS = """
import ctypes, os
def waits():
    \"\"\"How often streams were told to wait, and the host has waited.\"\"\"
    counts = ctypes.c_uint64(), ctypes.c_uint64()
    ctypes.CDLL(os.environ["RABBET_CUDA_DRIVER"]).cusim_wait_counts(*map(ctypes.byref, counts))
    return [c.value for c in counts]
"""


@pytest.mark.parametrize("joins", [False, True])
def test_memory_that_other_streams_use_is_freed_in_a_capture(run, simulator, joins):
    """The other stream is captured, too, or not. What was freed is given again after the capture."""
    code = f"""
x = rabbet.arange(1000.0).to("cuda")
stream, side = rabbet.Stream("cuda"), rabbet.Stream("cuda")
stream.wait_stream(accelerator.current_stream("cuda"))
graph = accelerator.Graph()
with stream:
    outside = x + 0
    before = outside.data_ptr()
    with graph:
        y = x * 2
        if {joins}:
            side.wait_stream(stream)
            with side: z = y + 1
        else:
            z = y + 1
        for t in (y, outside): t.record_stream(side)
        used = y.data_ptr()
        del y, outside, t
        v = x * 0
        assert v.data_ptr() != used  # which the other stream may still read
        if {joins}: stream.wait_stream(side)
        w = z + v + 1
    for k in range(3):
        x.fill_(k)
        graph.replay()
        assert w.tolist() == [2.0 * k + 2] * 1000, (k, w[:3].tolist())
    kept = [rabbet.empty(1000, device="cuda")]  # from now on the other stream is asked
    side.synchronize()
    kept += [rabbet.empty(1000, device="cuda") for _ in range(3)]
    assert before in [t.data_ptr() for t in kept]
print("ok")
"""
    assert run(GRAPH + code, CUSIM_CHECK="all", **simulator) == "ok\n"


def test_another_thread_s_capture_lives_on_when_memory_is_freed(run, simulator):
    code = """
import threading
x = rabbet.arange(1000.0).to("cuda")
stream, side = rabbet.Stream("cuda"), rabbet.Stream("cuda")
stream.wait_stream(accelerator.current_stream("cuda"))
other = rabbet.ones(1000, device="cuda")
def free():
    global other
    other.record_stream(stream)  # which is captured
    other.record_stream(side)
    del other
    rabbet.zeros(1000, device="cuda")
graph = accelerator.Graph()
with stream, graph:
    y = x * 2
    thread = threading.Thread(target=free); thread.start(); thread.join()
    z = y + 1
with stream:
    graph.replay()
    assert rabbet.equal(z.cpu(), rabbet.arange(1000.0) * 2 + 1)
print("ok")
"""
    assert run(GRAPH + code, **simulator) == "ok\n"


def test_freed_memory_that_a_stream_uses_makes_nobody_wait(run, simulator):
    """As where batches are fetched ahead. It is given again when the stream is found to have done with it."""
    code = """
import rabbet
side = rabbet.Stream("cuda")
def use(n):
    x = rabbet.ones(n, device="cuda")
    side.wait_stream(rabbet.cuda.current_stream())
    with side: y = x + 1
    x.record_stream(side)
    return x, y
x, y = use(1000)
before, address = waits(), x.data_ptr()
del x
assert waits() == before
z = rabbet.zeros(1000, device="cuda")
assert z.data_ptr() != address and waits() == before
held = rabbet.cuda.memory_allocated()
side.synchronize()
w = rabbet.zeros(1000, device="cuda")
assert w.data_ptr() == address and rabbet.cuda.memory_allocated() - held == z.numel() * 4 // 512 * 512 + 512
assert y.tolist() == [2.0] * 1000
del w, z, y
# Where memory is short, the block's own stream waits, and not the host.
x, y = use(6 << 20)                     # 24 MiB each, of 64
del x
before = waits()
z = rabbet.zeros(6 << 20, device="cuda")
assert waits()[0] > before[0] and y[-1].item() == 2
print("ok")
"""
    env = {"CUSIM_MEMORY": str(64 << 20), **simulator}
    assert run(WAITS + code, CUSIM_CHECK="all", **env) == "ok\n"


def test_replays_with_random_numbers_do_not_wait(run, simulator):
    """Many of them are ahead of the device, and each has numbers of its own."""
    code = """
stream, other = rabbet.Stream("cuda"), rabbet.Stream("cuda")
graph = accelerator.Graph()
with stream:
    with graph: x = rabbet.rand(50, device="cuda")
    graph.replay()
    x.tolist()
    rabbet.manual_seed(5)
    wanted = [rabbet.rand(50, device="cuda").tolist() for _ in range(300)]
    rabbet.manual_seed(5)
    before, got = waits(), []
    for _ in range(300):
        graph.replay()
        got.append(x.clone())
    assert waits() == before
    assert [y.tolist() for y in got] == wanted
    rabbet.manual_seed(5)
    graph.replay()
    first = x.clone()
# The numbers of a launch on another stream are not written before the last launch has read its own.
with other:
    graph.replay()
    second = x.clone()
accelerator.synchronize("cuda")
assert [first.tolist(), second.tolist()] == wanted[:2]
print("ok")
"""
    code = WAITS + GRAPH + code
    for schedule in ("lazy", "random:3"):
        env = {"CUSIM_CHECK": "all", "CUSIM_SCHEDULE": schedule, **simulator}
        assert run(code, RABBET_CUDA_FALLBACK="error", **env) == "ok\n"


def test_memory_is_unmapped_behind_the_work_that_uses_it(run, simulator):
    """Free ends of segments, and whole ones."""
    code = """
from rabbet import accelerator
import rabbet
MB = (1 << 20) // 4
def add_one(x):
    for _ in range(3): x.add_(1)
rabbet.ones(1, device="cuda").item()
rabbet.cuda.empty_cache()
before = accelerator.get_memory_info("cuda")[0]
a, b = rabbet.ones(12 * MB, device="cuda"), rabbet.ones(14 * MB, device="cuda")
add_one(b)
del b
rabbet.cuda.empty_cache()
add_one(a)
del a
rabbet.cuda.empty_cache()
accelerator.synchronize("cuda")
assert accelerator.get_memory_info("cuda")[0] == before
print("ok")
"""
    assert run(code, **simulator) == "ok\n"


@pytest.mark.parametrize("expandable", ["0", "1"])
def test_lack_of_memory_says_what_holds_it_and_the_program_goes_on(run, simulator, expandable):
    code = """
from rabbet import accelerator
import rabbet
kept = [rabbet.ones(4 << 20, device="cuda")]                     # 16 MiB of 64
with rabbet.Stream("cuda"):
    other = rabbet.ones(4 << 20, device="cuda")
    del other
big = rabbet.ones(10 << 20, device="cuda")                       # fits when the cache went back
assert accelerator.memory_stats("cuda")["num_alloc_retries"] == 1
try: rabbet.ones(12 << 20, device="cuda")
except MemoryError as error: said = str(error)
for part in ("could not allocate 50331648 bytes", "the largest blocks in use: 41943040, 16777216",  "are in use", "of the device's 67108864 are free", "cuda:0"):
    assert part in said, said
assert accelerator.memory_stats("cuda")["num_ooms"] == 1
assert kept[0][:2].tolist() == [1.0, 1.0]
del big, kept
assert rabbet.ones(12 << 20, device="cuda")[-1].item() == 1
print("ok")
"""
    env = {"CUSIM_MEMORY": str(64 << 20), "RABBET_CUDA_EXPANDABLE": expandable}
    assert run(code, **env, **simulator) == "ok\n"


def test_segments_grow_and_shrink_in_place(run, simulator):
    """Sizes that vary: without growth the holes would not hold the last block. It works the other way, too."""
    code = """
import os, rabbet
from rabbet import accelerator
MB = 1 << 20
def ones(n): return rabbet.ones(n * MB // 4, device="cuda")
def segments(): return [s["total_size"] // MB for s in accelerator.memory_snapshot() if s["backend"] == "cuda"]
def used():
    free, total = accelerator.get_memory_info("cuda")
    return (total - free) // MB
a, b, c = ones(12), ones(14), ones(16)
grows = os.environ.get("RABBET_CUDA_EXPANDABLE") != "0"
assert segments() == ([42] if grows else [16, 14, 12]) and used() == 42, segments()
del b, c
x = ones(28)              # what b and c left
if grows: assert segments() == [42] and used() == 42, segments()
assert x.sum().item() == 28 * MB // 4 and a.sum().item() == 12 * MB // 4
del x
accelerator.synchronize("cuda"); accelerator.empty_cache()
assert segments() == [12] and used() == 12, segments()
b = ones(30)
assert b.sum().item() == 30 * MB // 4 and a.sum().item() == 12 * MB // 4
from rabbet import _C
try: handle = _C.ipc_export(a)
except NotImplementedError as error: assert ("RABBET_CUDA_EXPANDABLE=0" in str(error)) == grows, error
else: assert not grows
del a, b
accelerator.synchronize("cuda"); accelerator.empty_cache()
assert segments() == [] and used() == 0
print("ok")
"""
    for env in ({}, {"RABBET_CUDA_EXPANDABLE": "0"}):
        assert run(code, CUSIM_MEMORY=str(64 << 20), **env, **simulator) == "ok\n"


def test_wrong_devices_are_named(run, simulator):
    code = """
import rabbet
def said(f):
    try: f()
    except Exception as error: return type(error).__name__ + " " + str(error).replace(chr(10), " ")
x, y = rabbet.ones(3, device="cuda:0"), rabbet.ones(3, device="cuda:1")
for f, want in ((lambda: x + rabbet.ones(3), "'input' is on cuda"), (lambda: x + y, "'other' is on cuda:1"),
                (lambda: rabbet.zeros(1, device="cuda:5"), "there is no device cuda:5"),
                (lambda: rabbet.Stream("cuda:2"), "cuda:2"), (lambda: x.to("cuda:-1"), "-1")):
    assert want in said(f), said(f)
assert (x + 1).tolist() == [2, 2, 2]
print("ok")
"""
    assert run(code, CUSIM_DEVICES="2", **simulator) == "ok\n"


def test_the_process_ends_with_work_in_flight(run, simulator):
    code = """
import rabbet
with rabbet.Stream("cuda"):
    x = rabbet.ones(1000, device="cuda")
    for _ in range(50): x = x + 1
graph = rabbet.accelerator.Graph()
print("ok", flush=True)
"""
    assert run(code, **simulator) == "ok\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
def test_a_forked_child_is_told_what_to_do(run, simulator):
    code = """
import os, rabbet
x = rabbet.ones(3, device="cuda"); x.tolist()
p = rabbet.ones(3).pin_memory("cuda")
event = rabbet.Event("cuda"); event.record()
child = os.fork()
if child == 0:
    try: x + 1
    except RuntimeError as error:
        del x, p, event
        rabbet.accelerator.empty_cache()
        os._exit(7 if "start processes by 'spawn'" in str(error) else 1)
    os._exit(2)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), (x + 1).tolist())
"""
    assert run(code, **simulator) == "7 [2.0, 2.0, 2.0]\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
def test_a_child_uses_the_device_where_nobody_has_opened_the_driver_before(run, simulator):
    code = """
import os, rabbet
x = rabbet.ones(3)
child = os.fork()
if child == 0: os._exit(7 if (x.to("cuda") + 1).tolist() == [2.0] * 3 else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), (x.to("cuda") + 1).tolist())
"""
    assert run(code, **simulator) == "7 [2.0, 2.0, 2.0]\n"


def test_other_libraries_may_change_the_thread_s_context(run, simulator):
    """As PyTorch does when it goes to another device."""
    code = """
import ctypes, os, rabbet
x, y = (rabbet.ones(3, device=f"cuda:{i}") for i in range(2))
driver, contexts = ctypes.CDLL(os.environ["RABBET_CUDA_DRIVER"]), [ctypes.c_void_p(), ctypes.c_void_p()]
for i in range(2): assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(contexts[i]), i) == 0
for i in (0, 1, 0):
    assert driver.cuCtxSetCurrent(contexts[1 - i]) == 0
    assert ((x, y)[i] + 1).tolist() == [2.0] * 3
assert driver.cuCtxSetCurrent(None) == 0
print((x + x).tolist(), rabbet.zeros(1 << 20, device="cuda:0").sum().item())
"""
    assert run(code, CUSIM_DEVICES="2", **simulator) == "[2.0, 2.0, 2.0] 0.0\n"


def test_plain_memory_serves_where_virtual_memory_is_refused(run, simulator):
    """As the runtime of a container may, though the device has it."""
    code = """
import rabbet
x = [rabbet.full((1 << 16,), float(k), device="cuda") for k in range(40)]
assert [int(t[0]) for t in x] == list(range(40))
del x; rabbet.cuda.empty_cache(); print(rabbet.cuda.memory_reserved())
"""
    assert run(code, CUSIM_NO_VIRTUAL_MEMORY="1", **simulator) == "0\n"


def test_another_process_reads_and_writes_a_tensor(simulator, run):
    run(
        """
import subprocess, sys, rabbet
from rabbet import _C, cuda
OTHER = '''
import sys, rabbet
from rabbet import _C, cuda
there = _C.ipc_open(bytes.fromhex(sys.argv[1]), int(sys.argv[2]), "cuda", rabbet.float32, [2, 2], [1, 2])
assert there.cpu().tolist() == [[4, 6], [5, 7]]
there[0].mul_(10)
cuda.synchronize()
'''
x = rabbet.arange(8.0).to("cuda")
handle, offset = _C.ipc_export(x[4:])
cuda.synchronize()
subprocess.run([sys.executable, "-c", OTHER, handle.hex(), str(offset)], check=True)
assert x.cpu().tolist() == [0, 1, 2, 3, 40, 5, 60, 7]
""",
        **simulator,
        RABBET_CUDA_EXPANDABLE="0",
    )
