"""Core's allocator of device memory on the backend `lazy`, whose devices have 64 MiB each: segments that split and
join, lack of memory, pools, the other kinds of memory, and devices that break."""

import ctypes
import gc
import itertools
import os
import random
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import rabbet
from plugin_wheels import BACKEND, compile_library, run
from rabbet import _C, accelerator

MB = 1 << 20
X = np.array([1.0, 2.0, 3.0], np.float32)


pytestmark = pytest.mark.usefixtures("lazy")


@pytest.fixture(autouse=True)
def clean():
    def settle():
        gc.collect()
        _C.synchronize(rabbet.device("lazy"))
        _C.empty_cache()

    settle()
    accelerator.reset_peak_memory_stats("lazy")
    accelerator.reset_accumulated_memory_stats("lazy")
    yield
    settle()
    assert segments() == []


def block(nbytes, device="lazy"):
    assert nbytes % 4 == 0
    return rabbet.empty(nbytes // 4, device=device)


def segments(backend="lazy"):
    return [s for s in accelerator.memory_snapshot() if s["backend"] == backend]


def stat(key, device="lazy"):
    return accelerator.memory_stats(device)[key]


def states():
    """For each segment what lies in it: sizes in KiB, negative where free."""
    return [
        [b["size"] // 1024 * (1 if b["state"] == "active_allocated" else -1) for b in s["blocks"]]
        for s in segments()
    ]


# ---- segments and blocks


def test_blocks_split_and_join():
    a, b, c = block(300 * 1024), block(500 * 1024), block(200 * 1024)
    assert states() == [[300, 500, 200, -1048]]
    place = b.data_ptr()
    del b
    assert states() == [[300, -500, 200, -1048]]
    d = block(100 * 1024)  # the smallest that fits is split
    assert d.data_ptr() == place and states() == [[300, 100, -400, 200, -1048]]
    del a
    assert states() == [[-300, 100, -400, 200, -1048]]
    del d
    assert states() == [[-800, 200, -1048]]
    del c
    assert states() == [[-2048]]


def test_small_blocks_wait_for_the_next_request_of_their_size_and_join_at_need():
    blocks = [block(32 * 1024) for _ in range(4)]
    place = blocks[1].data_ptr()
    del blocks[1]
    held = [block(16 * 1024)]
    assert held[0].data_ptr() >= place + 3 * 32 * 1024, "what waits is not split"
    again = block(32 * 1024)
    assert again.data_ptr() == place
    del again, blocks[1]  # its right neighbour
    held += block(1024 * 1024), block(880 * 1024)  # the rest of the segment
    held.append(block(64 * 1024))
    assert held[-1].data_ptr() == place, "the two are one now"
    assert stat("allocation.all.current") == len(blocks) + len(held)


def test_sizes_of_segments():
    """2 MiB for blocks of up to 1 MiB, 20 MiB for those of up to 10, then multiples of 2 MiB."""
    kept = [block(4), block(MB), block(MB + 512), block(10 * MB), block(11 * MB - 4)]
    sizes = sorted((s["total_size"] // MB, s["segment_type"]) for s in segments())
    assert sizes == [(2, "small"), (12, "large"), (20, "large")]
    assert stat("segment.small_pool.current") == 1 and stat("segment.large_pool.current") == 2
    assert stat("reserved_bytes.all.current") == 34 * MB
    del kept


def test_statistics_follow_the_snapshot():
    kept = [block(1000), block(3000), block(3 * MB)]
    del kept[0]
    found = accelerator.memory_stats("lazy")
    blocks = [b for s in segments() for b in s["blocks"]]
    used = [b for b in blocks if b["state"] == "active_allocated"]
    free = [b for b in blocks if b["state"] == "inactive"]
    assert found["allocation.all.current"] == len(used) == 2
    assert found["allocated_bytes.all.current"] == sum(b["size"] for b in used) == 3072 + 3 * MB
    assert found["requested_bytes.all.current"] == sum(b["requested_size"] for b in used)
    assert found["requested_bytes.all.current"] == 3000 + 3 * MB
    assert found["inactive_split.all.current"] == len(free) == 3
    assert found["inactive_split_bytes.all.current"] == sum(b["size"] for b in free)
    assert found["reserved_bytes.all.current"] == sum(s["total_size"] for s in segments())
    for quantity in ("allocation", "allocated_bytes", "segment", "inactive_split_bytes"):
        parts = [found[f"{quantity}.{pool}.current"] for pool in ("small_pool", "large_pool")]
        assert sum(parts) == found[f"{quantity}.all.current"]
    assert (found["num_device_alloc"], found["num_device_free"]) == (2, 0)


def test_a_snapshot_has_the_form_of_pytorch():
    s = rabbet.Stream("lazy")
    with s:
        kept = block(700)
    (segment,) = segments()
    assert set(segment) == {"device", "backend", "kind", "address", "total_size", "allocated_size", "active_size",
                            "requested_size", "stream", "segment_type", "segment_pool_id", "blocks"}  # fmt: skip
    assert segment["stream"] == s.stream_id and segment["segment_pool_id"] == (0, 0)
    assert segment["blocks"][0] == {"address": kept.data_ptr(), "size": 1024, "requested_size": 700,
                                    "state": "active_allocated"}  # fmt: skip
    at = segment["address"]
    for b in segment["blocks"]:
        assert b["address"] == at
        at += b["size"]
    assert at == segment["address"] + segment["total_size"]


def test_an_uneven_load_does_not_fragment():
    """What is kept of random blocks takes at most twice its bytes, and all of it joins again."""
    draw = random.Random(0)
    kept = []
    for _ in range(4000):
        if len(kept) > 60 or (kept and draw.random() < 0.4):
            kept.pop(draw.randrange(len(kept)))
        else:
            size = draw.choice([600, 5000, 40_000, 300_000, 1_200_000])
            kept.append(block(4 * int(size * draw.uniform(0.5, 1.5) // 4)))
    peak = stat("allocated_bytes.all.peak")
    assert stat("reserved_bytes.all.peak") <= 2 * peak + 20 * MB, (
        stat("reserved_bytes.all.peak"),
        peak,
    )
    assert stat("num_device_alloc") < 12 and stat("num_ooms") == 0
    places = sorted((t.data_ptr(), 4 * t.numel()) for t in kept)
    assert all(a + n <= b for (a, n), (b, _) in itertools.pairwise(places))
    kept.clear()
    assert all(len(s["blocks"]) == 1 for s in segments())
    assert stat("inactive_split.all.current") == 0


def test_threads_get_blocks_of_their_own():
    """Each thread writes its number into blocks of many sizes and finds it there again."""
    wrong = []

    def work(number):
        draw, kept = random.Random(number), []
        for _ in range(150):
            t = rabbet.zeros(draw.choice([3, 300, 30_000, 300_000]), device=f"lazy:{number % 2}")
            t += number
            kept.append(t)
            if len(kept) > 3:
                last = kept.pop(draw.randrange(len(kept)))
                if not (last[:64].cpu().numpy() == number).all():
                    wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 7)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    for device in ("lazy:0", "lazy:1"):
        assert stat("allocation.all.current", device) == 0
        assert stat("allocated_bytes.all.current", device) == 0


def test_the_lock_is_not_held_while_the_backend_allocates(lazy):
    """A thread that waits for a new segment leaves the cache to others."""
    kept = block(1000)
    slow = ctypes.CDLL(lazy).lazy_be_slow
    slow(400)
    try:
        other = threading.Thread(target=lambda: block(30 * MB))
        other.start()
        time.sleep(0.1)
        start = time.perf_counter()
        for _ in range(100):
            block(1000)
        assert time.perf_counter() - start < 0.2
        other.join()
    finally:
        slow(0)
    del kept


# ---- lack of memory


def test_free_segments_go_back_before_memory_is_short():
    for _ in range(3):
        a = block(20 * MB)
        b = block(38 * MB)
        del a, b
        c = block(60 * MB)  # only if both have gone back
        del c
    assert stat("num_ooms") == 0 and stat("num_alloc_retries") >= 1


def test_a_segment_of_the_size_alone_where_a_whole_one_is_too_much():
    kept = [block(40 * MB), block(16 * MB)]
    small = block(4 * MB)
    assert segments()[0]["total_size"] == 4 * MB
    del kept, small


def test_free_blocks_of_another_stream_serve_where_memory_is_short():
    s, x = rabbet.Stream("lazy"), rabbet.tensor(X).to("lazy")
    s.wait_stream(accelerator.current_stream("lazy"))
    with s:
        held = rabbet.zeros(15 * MB // 4, device="lazy")  # keeps its segment alive
        y = rabbet.zeros(40 * MB // 4, device="lazy")
    with s:
        view = y[:3]
        view.add_(x)
        z = view * 2  # reads y, and has not run yet
        del view, y
    big = rabbet.zeros(39 * MB // 4, device="lazy")  # y's memory: waits for what s was given
    s.synchronize()
    _C.synchronize("lazy")
    assert (z.cpu().numpy() == 2 * X).all() and not big.cpu().numpy().any()
    del held, big, z


def test_a_free_part_of_another_streams_segment_serves_behind_its_work():
    """A part of a segment cannot go back; who gets it comes after the stream, whichever runs first."""
    s, x = rabbet.Stream("lazy"), rabbet.tensor(X).to("lazy")
    s.wait_stream(accelerator.current_stream("lazy"))
    with s:
        held, y = (rabbet.zeros(9 * MB // 4, device="lazy") for _ in range(2))
    filler = block(41 * MB)
    with s:
        view = y[:3]
        view.add_(x)
        z = view * 2
        place = y.data_ptr()
        del view, y
    part = rabbet.zeros(9 * MB // 4, device="lazy")
    assert part.data_ptr() == place
    assert not part.cpu().numpy().any()
    assert (z.cpu().numpy() == 2 * X).all()
    del held, filler, part, z


def test_the_smallest_block_that_fits_is_taken():
    small, between, large, last = (block(n * 1024) for n in (520, 4, 570, 4))
    place = small.data_ptr()
    del small, large  # the last one comes first in its list
    assert block(516 * 1024).data_ptr() == place
    del between, last


def test_the_error_says_what_there_is():
    kept = block(40 * MB)
    gap = block(12 * MB)
    with pytest.raises(MemoryError) as error:
        block(30 * MB)
    text = str(error.value)
    assert "out of memory on lazy: could not allocate 31457280 bytes" in text
    assert "(54525952 are in use, at most 54525952 were, 0 are cached in parts of segments" in text
    assert "12582912 of the device's 67108864 are free" in text
    assert "hint: drop tensors" in text and "the backend says: lazy: no memory" in text
    assert stat("num_ooms") == 1
    assert block(8 * MB).numel() == 2 * MB  # life goes on
    del kept, gap


def test_a_fraction_limits_the_process():
    accelerator.set_per_process_memory_fraction(0.5, "lazy")
    try:
        kept = block(20 * MB)
        with pytest.raises(
            MemoryError,
            match="the limit of this process is 33554432 bytes, of which it holds 20971520",
        ):
            block(14 * MB)
        block(12 * MB)
        del kept
        block(32 * MB)
    finally:
        accelerator.set_per_process_memory_fraction(1, "lazy")
    block(50 * MB)
    for value, error, text in (
        (1.5, ValueError, "fraction must lie between 0 and 1, got 1.5"),
        (-0.1, ValueError, "between 0 and 1"),
        (float("nan"), ValueError, "between 0 and 1"),
        ("all", TypeError, "fraction must be a number, not str"),
    ):
        with pytest.raises(error, match=text):
            accelerator.set_per_process_memory_fraction(value, "lazy")
    with pytest.raises(NotImplementedError, match="'cpu' does not tell how much memory"):
        accelerator.set_per_process_memory_fraction(0.5, "cpu")


def test_a_child_after_fork_allocates(lazy):
    code = """
import os, sys, threading, rabbet
from rabbet import _C
_C.load_plugin(sys.argv[1])
rabbet.ones(1).to("lazy")
stop = []
def churn():
    while not stop: rabbet.empty(3000, device="lazy"), rabbet.empty(300000)
threads = [threading.Thread(target=churn) for _ in range(3)]
for t in threads: t.start()
for _ in range(20):
    child = os.fork()
    if child == 0:
        rabbet.empty(5000, device="lazy"), rabbet.empty(500000)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
stop.append(1)
print("ok")
"""
    done = subprocess.run(
        [sys.executable, "-c", code, lazy], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


# ---- pools


def test_a_pool_keeps_its_memory_to_itself():
    pool = accelerator.MemPool()
    with accelerator.use_mem_pool(pool, "lazy"):
        a = block(1000)
        place = a.data_ptr()
        del a
        again = block(1000)
        assert again.data_ptr() == place
    outside = block(1000)
    assert outside.data_ptr() != place
    del again
    assert [s["segment_pool_id"] for s in accelerator.memory_snapshot(pool.id)] == [pool.id]
    assert accelerator.memory_snapshot((0, 987654)) == []
    pools = sorted(s["segment_pool_id"] for s in segments())
    assert pools == [(0, 0), pool.id]
    _C.empty_cache()  # the pool lives
    assert pool.id in [s["segment_pool_id"] for s in segments()]
    with accelerator.use_mem_pool(pool, "lazy"):
        assert block(1000).data_ptr() == place
    del pool
    assert [s["segment_pool_id"] for s in segments()] == [(0, 0)]
    del outside


def test_tensors_outlive_their_pool():
    pool = accelerator.MemPool()
    with accelerator.use_mem_pool(pool, "lazy"):
        a, b = rabbet.tensor(X).to("lazy"), block(1000)
    del pool, b
    assert len(segments()) == 1 and (a.cpu().numpy() == X).all()
    del a
    assert segments() == []


def test_pools_are_a_threads_own():
    pool, found = accelerator.MemPool(), []
    with accelerator.use_mem_pool(pool, "lazy"):
        thread = threading.Thread(target=lambda: found.append(block(1000)))
        thread.start()
        thread.join()
        assert [s["segment_pool_id"] for s in segments()] == [(0, 0)]
    found.clear()


def test_bad_pools():
    for word in ("use_on_oom", "no_split"):
        with pytest.raises(NotImplementedError, match=f"MemPool: {word}=True is not supported"):
            accelerator.MemPool(**{word: True})
    with pytest.raises(NotImplementedError, match="MemPool: allocator=3 is not supported"):
        accelerator.MemPool(3)
    for bad in (3, (1,), "ab", [0, 0]):
        with pytest.raises(TypeError, match="memory_snapshot: mempool_id must be a pair of ints"):
            accelerator.memory_snapshot(bad)
    with (
        pytest.raises(TypeError, match="use_mem_pool: pool must be a MemPool, not int"),
        accelerator.use_mem_pool(3),
    ):
        pass
    with (
        pytest.raises(NotImplementedError, match="the memory of 'cpu' has no private pools"),
        accelerator.use_mem_pool(accelerator.MemPool(), "cpu"),
    ):
        pass
    with pytest.raises(ValueError, match=r"no memory pool \(0, 987654\)"):
        accelerator.Graph(pool=(0, 987654), device="lazy")
    with pytest.raises(ValueError, match=r"no memory pool \(1, 1\)"):
        accelerator.Graph(pool=(1, 1))
    with pytest.raises(TypeError, match="pool must be a pair of ints"):
        accelerator.Graph(pool=7)


# ---- kinds of memory, and what a backend tells


def test_pinned_memory():
    x = rabbet.tensor(X)
    assert not x.is_pinned()
    p = x.pin_memory("lazy")
    assert p.is_pinned() and p[1:].is_pinned() and p.device.type == "cpu"
    assert (p.numpy() == X).all() and p.data_ptr() % 512 == 0
    assert p.pin_memory("lazy") is p and not (p + 1).is_pinned()
    assert (p.to("lazy").cpu().numpy() == X).all()
    assert [s["kind"] for s in segments() if s["kind"] != "device"] == ["pinned"]
    place = p.data_ptr()
    del p
    assert rabbet.ones(2, 1).pin_memory("lazy").data_ptr() == place
    with pytest.raises(
        RuntimeError, match="only tensors of the CPU can be pinned, this one is on lazy:0"
    ):
        x.to("lazy").pin_memory()
    with pytest.raises(NotImplementedError, match="the backend 'cpu' offers no pinned memory"):
        x.pin_memory("cpu")
    with pytest.raises(rabbet.DeviceError):
        x.pin_memory("lazy:9")


def test_managed_memory():
    m = _C.managed_like(rabbet.tensor(X), "lazy:1")
    assert m.device == rabbet.device("lazy:1") and m.shape == (3,)
    m.copy_(rabbet.tensor(X))
    _C.synchronize("lazy:1")
    assert list((ctypes.c_float * 3).from_address(m.data_ptr())) == list(X)
    assert "managed" in [s["kind"] for s in segments()]
    with pytest.raises(NotImplementedError, match="the backend 'cpu' offers no managed memory"):
        _C.managed_like(rabbet.tensor(X), "cpu")
    with pytest.raises(TypeError, match="expected a tensor, not int"):
        _C.managed_like(3, "lazy")


def test_memory_for_other_processes_is_that_of_the_device_where_a_backend_has_no_other():
    m = _C.shared_like(rabbet.tensor(X), "lazy:1")
    assert m.device == rabbet.device("lazy:1") and m.shape == (3,)
    m.copy_(rabbet.tensor(X))
    assert m.cpu().tolist() == list(X) and "shared" in [s["kind"] for s in segments()]
    handle, offset = _C.ipc_export(m)
    assert _C.ipc_open(handle, offset, "lazy:1", rabbet.float32, [3], [1]).cpu().tolist() == list(X)
    _C.synchronize("lazy:1")


def test_memory_info_properties_and_peers():
    assert accelerator.get_memory_info("lazy") == (64 * MB, 64 * MB)
    kept = block(30 * MB)
    assert accelerator.get_memory_info("lazy:0") == (34 * MB, 64 * MB)
    assert accelerator.get_memory_info("lazy:1")[0] == 64 * MB
    properties = accelerator.get_device_properties("lazy:1")
    assert vars(properties) == {
        "name": "Lazy 1",
        "total_memory": 64 * MB,
        "hurries": False,
        "speed": 0.5,
    }
    assert accelerator.can_device_access_peer("lazy:0", "lazy:1") is True
    assert accelerator.can_device_access_peer("lazy:1", "lazy:0") is False
    assert accelerator.can_device_access_peer("lazy", "cpu") is False
    for function, text in (
        (accelerator.get_memory_info, "'cpu' does not tell how much memory"),
        (accelerator.get_device_properties, "'cpu' tells no properties"),
    ):
        with pytest.raises(NotImplementedError, match=text):
            function("cpu")
    del kept


def test_memory_of_another_process(lazy):
    """Core's part: the segment's handle with the offset in it, opened once, closed with its last tensor."""
    opened = ctypes.CDLL(lazy).lazy_segments_open
    first, x = block(5000), rabbet.arange(12.0).reshape(3, 4).to("lazy")
    handle, offset = _C.ipc_export(x[1])
    assert len(handle) > 0 and offset == 5120 + 16
    y = _C.ipc_open(handle, offset, "lazy", rabbet.float32, [2, 3], [4, 1])
    z = _C.ipc_open(handle, offset - 16, "lazy", rabbet.float32, [3, 4], [4, 1])
    assert opened() == 1 and y.cpu().tolist() == [[4, 5, 6], [8, 9, 10]]
    y += 1
    assert z.cpu().tolist() == x.cpu().tolist() != rabbet.arange(12.0).reshape(3, 4).tolist()
    del y
    _C.synchronize("lazy")
    assert opened() == 1
    del z
    _C.synchronize("lazy")  # deleters are in the order of the stream
    assert opened() == 0
    for arguments, error, text in (
        ((b"", 0, "lazy", rabbet.float32, [1], [1]), ValueError, "has 1 to 256 bytes, got 0"),
        ((b"x" * 300, 0, "lazy", rabbet.float32, [1], [1]), ValueError, "has 1 to 256 bytes, got 300"),
        ((b"x", 0, "lazy", rabbet.float32, [1], [1]), ValueError, "lazy: no such handle"),
        ((handle, 2 * MB, "lazy", rabbet.float32, [1], [1]), ValueError, "bytes 2097152 to 2097156 lie outside of a segment of 2097152"),
        ((handle, 1 << 60, "lazy", rabbet.float32, [1], [1]), ValueError, "lie outside of a segment"),
        ((handle, 0, "lazy", rabbet.float32, [2, 2], [1 << 62, 1 << 62]), ValueError, "the strides reach too far"),
        ((handle, 0, "lazy", rabbet.float32, [2], [-1]), ValueError, "must not be negative"),
        ((handle, 0, "lazy", rabbet.float32, [2], []), ValueError, "a stride for each of 1 dimensions, got 0"),
        ((handle, 0, "lazy", 3, [2], [1]), TypeError, "expected a dtype, not int"),
        ((handle, 0, "cpu", rabbet.float32, [1], [1]), NotImplementedError, "'cpu' cannot share its memory"),
    ):  # fmt: skip
        with pytest.raises(error, match=text):
            _C.ipc_open(*arguments)
    _C.synchronize("lazy")
    assert opened() == 0
    for tensor, error in (
        (rabbet.ones(3), NotImplementedError),
        (rabbet.ones(3, device="meta"), NotImplementedError),
    ):
        with pytest.raises(error, match="is not shared with other processes"):
            _C.ipc_export(tensor)
    with pytest.raises(ValueError, match="only device memory of core's allocator"):
        _C.ipc_export(_C.managed_like(x, "lazy"))
    del first


TABLES = {  # statements of `init` before it returns, what is asked, the error
    "a short table": (
        'static RbDeviceTable t; t.struct_size = 4; host->publish("far.device", 1, &t);',
        "accelerator.get_memory_info('far')", r"PluginError the table 'far.device' of far 1 is too short: it has 4 bytes",
    ),
    "an older table": (
        'static RbDeviceTable t; t.struct_size = RB_SIZE(RbDeviceTable, self); t.memory_info = (void*)1; host->publish("far.device", 1, &t);',
        "accelerator.get_memory_info('far')", "NotImplementedForError the backend 'far' does not tell how much memory",
    ),
    "no allocator of pinned memory": (
        'static RbDeviceTable t; t.struct_size = sizeof t; host->publish("far.device", 1, &t);',
        "rabbet.ones(2).pin_memory('far')", "NotImplementedForError the backend 'far' offers no pinned memory",
    ),
    "a short allocator": (
        'static RbDeviceTable t; static RbAllocator a; a.struct_size = 8; t.struct_size = sizeof t; t.pinned = &a; '
        'host->publish("far.device", 1, &t);',
        "rabbet.ones(2).pin_memory('far')", "NotImplementedForError the backend 'far' offers no pinned memory",
    ),
    "a short capture": (
        'static RbCapture c; c.struct_size = RB_SIZE(RbCapture, graph_launch); host->publish("far.capture", 1, &c);',
        "accelerator.Graph(device='far').capture_begin()", "PluginError the table 'far.capture' of far 1 is too short, or a member of it is null",
    ),
    "a capture of nulls": (
        'static RbCapture c; c.struct_size = sizeof c; host->publish("far.capture", 1, &c);',
        "accelerator.Graph(device='far').capture_begin()", "PluginError the table 'far.capture' of far 1 is too short, or a member of it is null",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", TABLES)
def test_wrong_tables_are_refused(kind, tmp_path):
    body, call, message = TABLES[kind]
    source = BACKEND.replace("core = host;", f"core = host; {body}")
    source = '#include "rabbet/capture.h"\n#include "rabbet/device.h"\n' + source
    library = compile_library(tmp_path, "far", source, "-DKEY=0x41", '-DNAME="far"')
    code = f"""
import rabbet
from rabbet import accelerator
rabbet._C.load_plugin({str(library)!r})
try:
    {call}
except Exception as error:
    print(type(error).__name__, error)
print((rabbet.ones(3).to("far")).cpu().tolist())
"""
    error, after = run(tmp_path, code).splitlines()
    assert error.startswith(message) and after == "[1.0, 1.0, 1.0]", error


def test_a_wrong_property_and_a_wrong_handle_are_refused(lazy):
    code = """
import sys, rabbet
rabbet._C.load_plugin(sys.argv[1])
for call in (lambda: rabbet._C.ipc_export(rabbet.zeros(3, device="lazy")), lambda: rabbet.accelerator.get_device_properties("lazy")):
    try:
        call()
    except RuntimeError as error:
        print(type(error).__name__, str(error).splitlines()[0])
"""
    found = []
    for mischief in ("handle", "property"):
        done = subprocess.run(
            [sys.executable, "-c", code, lazy], capture_output=True, text=True, timeout=120,
            env={**os.environ, "LAZY_MISCHIEF": mischief},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found += done.stdout.splitlines()
    assert found == [
        "PluginError ipc_export of the backend 'lazy': a handle has 1 to 256 bytes, got 300",
        "PluginError properties of a device: 'speed' is no bool, int, float or text",
    ]


def test_adopted_memory_goes_in_the_order_of_the_stream(lazy):
    """Its deleter runs when the device has done what was given before."""
    handle, offset = _C.ipc_export(rabbet.zeros(3, device="lazy"))
    opened = ctypes.CDLL(lazy).lazy_segments_open
    y = _C.ipc_open(handle, offset, "lazy", rabbet.float32, [3], [1])
    z = y + 1
    del y
    assert opened() == 1  # the addition has not run
    z.cpu()
    assert opened() == 0


# ---- kernels that decline


def test_a_kernel_may_leave_a_call_to_the_decomposition():
    """The kernel of `rsub` takes matrices only, where it writes 77."""
    x = rabbet.tensor(X).to("lazy")
    assert (rabbet.rsub(x, x * 3).cpu().numpy() == 2 * X).all()
    m = x.reshape(1, 3).contiguous()
    assert (rabbet.rsub(m, m).cpu().numpy() == 77).all()
    out = rabbet.zeros(3, device="lazy")
    assert rabbet.rsub(x, x * 3, out=out) is out and (out.cpu().numpy() == 2 * X).all()
    x.requires_grad_()
    rabbet.rsub(x, x * 3).sum().backward()
    assert (x.grad.cpu().numpy() == 2).all()


def test_a_declined_call_without_a_decomposition_is_an_error():
    x = rabbet.tensor(X).to("lazy")
    for call in (lambda: rabbet.sin(x), lambda: x.sin_(), lambda: rabbet.sin(x[::2])):
        with pytest.raises(
            NotImplementedError,
            match=r"sin: the kernel for lazy \[lazy-plugin 1.0\] declined the call, and the operator has no decomposition",
        ):
            call()
    assert (x.cpu().numpy() == X).all()


# ---- devices that break


def test_after_a_sticky_error_the_device_is_refused(lazy):
    code = """
import sys, rabbet
from rabbet import _C, accelerator
_C.load_plugin(sys.argv[1])
x, other = rabbet.ones(3).to("lazy"), rabbet.ones(3).to("lazy:1")
y = x + x
s = rabbet.Stream("lazy")
for call in (
    lambda: rabbet.exp(x), lambda: x + x, lambda: x.add_(1), lambda: x.cpu(), lambda: x.copy_(rabbet.ones(3)),
    lambda: accelerator.synchronize("lazy:0"), lambda: s.synchronize(), lambda: rabbet.empty(5, device="lazy"),
    lambda: rabbet.Stream("lazy"),
):
    try:
        call()
        print("nothing")
    except rabbet.DeviceError as error:
        print(str(error).splitlines()[0])
print((other + 1).cpu().tolist())
accelerator.synchronize("lazy:1")
del x, y
_C.empty_cache()
"""
    done = subprocess.run(
        [sys.executable, "-c", code, lazy], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    *errors, last = done.stdout.splitlines()
    said = "the device lazy:0 has failed and cannot be used any more in this process: lazy: it fell asleep"
    assert errors == [said] * 9 and last == "[2.0, 2.0, 2.0]"
