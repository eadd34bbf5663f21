"""Faults planted into core's allocator of device memory and its graphs: for each there is a test that fails.

Only the file with the fault is compiled again; it is linked with the other objects of core's build folder, and the library
stands in the place of the installed one while the named test runs."""

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
CORE = ROOT / "packages" / "core"
SOURCES = CORE / "csrc" / "core"
HEAP, GROWTH, CAPTURE = "heap.cpp", "heap_growth.cpp", "capture.cpp"
CUDA = "../packages/backend-cuda/tests/test_device.py::"


class Fault(NamedTuple):
    file: str
    text: str  # in the file, once
    instead: str
    test: str  # of tests/


FAULTS = {
    "blocks do not join their left neighbours": Fault(
        HEAP, "left && !left->used &&", "false && left &&", "test_device_memory.py::test_blocks_split_and_join"),
    "blocks do not join their right neighbours": Fault(
        HEAP, "right && !right->used &&", "false && right &&", "test_device_memory.py::test_blocks_split_and_join"),
    "blocks join their neighbours in use": Fault(
        HEAP, "left && !left->used &&", "left &&", "test_device_memory.py::test_blocks_split_and_join"),
    "blocks that wait do not join": Fault(
        HEAP, "if (!kept_bytes_) return false;", "return false;", "test_device_memory.py::test_small_blocks_wait_for_the_next_request_of_their_size_and_join_at_need"),
    "what waits is lost": Fault(
        HEAP, "insert(join(block));\n      }", "}", "test_device_memory.py::test_small_blocks_wait_for_the_next_request_of_their_size_and_join_at_need"),
    "blocks wait in no list": Fault(
        HEAP, "  if (__builtin_expect(keep(block), 1)) return;", "", "test_device_memory.py::test_small_blocks_wait_for_the_next_request_of_their_size_and_join_at_need"),
    "what is split off is lost": Fault(
        HEAP, "    block->size = size;\n    insert(tail);", "    block->size = size;", "test_device_memory.py::test_blocks_split_and_join"),
    "the block that fits first is taken": Fault(
        HEAP, "b->size < best->size", "false", "test_device_memory.py::test_the_smallest_block_that_fits_is_taken"),
    "blocks are given to other streams": Fault(
        HEAP, "a->stream == stream && a->pool == pool", "a->pool == pool", "test_streams.py::test_a_block_is_given_again_on_its_own_stream"),
    "record_stream notes nothing": Fault(
        HEAP, "others.push_back(use);", "return;", "test_streams.py::test_record_stream_keeps_a_block_while_it_is_used"),
    "what is noted is not waited for": Fault(
        HEAP, "if (event_query(backend, use.device, w.events[i])) continue;", "continue;",
        "test_streams.py::test_record_stream_keeps_a_block_while_it_is_used"),
    "what is noted is never given again": Fault(
        HEAP, "if (event_query(backend, use.device, w.events[i])) continue;", "",
        "test_streams.py::test_record_stream_keeps_a_block_while_it_is_used"),
    "events are recorded while somebody captures": Fault(
        HEAP, "if (captures_under_way()) return;", "",
        f"{CUDA}test_memory_that_other_streams_use_is_freed_in_a_capture"),
    "events are recorded while another thread captures": Fault(
        HEAP, "if (captures_under_way()) return;", "if (thread_state().capture) return;",
        f"{CUDA}test_another_thread_s_capture_lives_on_when_memory_is_freed"),
    "where memory is short what streams use is not asked for": Fault(
        HEAP, "wait_on_streams();\n  std::vector<Segment*> detached;", "std::vector<Segment*> detached;",
        f"{CUDA}test_freed_memory_that_a_stream_uses_makes_nobody_wait"),
    "where memory is short nobody waits for what streams use": Fault(
        HEAP, "event_wait(backend, device, own, w.events[i]);", "",
        f"{CUDA}test_freed_memory_that_a_stream_uses_makes_nobody_wait"),
    "random numbers of a launch are written over before they are copied": Fault(
        CAPTURE, "heap_of_block(staged).record_stream(staged, {device_, stream});", "",
        f"{CUDA}test_replays_with_random_numbers_do_not_wait"),
    "a launch that draws waits": Fault(
        CAPTURE, "base_->data, stream, staged != nullptr);", "base_->data, stream, false);",
        f"{CUDA}test_replays_with_random_numbers_do_not_wait"),
    "random numbers of another stream's launch are written over": Fault(
        CAPTURE, "if (launched_ && stream != last_stream_)", "if (false)",
        f"{CUDA}test_replays_with_random_numbers_do_not_wait"),
    "blocks are given to other pools": Fault(
        HEAP, "a->stream == stream && a->pool == pool", "a->stream == stream", "test_device_memory.py::test_a_pool_keeps_its_memory_to_itself"),
    "segments of a pool that is gone stay": Fault(
        HEAP, "if (a->pool == pool) a->closed = true;", "if (false) a->closed = true;", "test_device_memory.py::test_tensors_outlive_their_pool"),
    "segments with blocks in use go back": Fault(
        HEAP, "free = !b->used;", "free = true;", "test_growing_segments.py::test_values_stay_while_segments_change"),
    "nothing goes back where memory is short": Fault(
        HEAP, "rc != RB_OK && !thread_state().capture", "false", "test_device_memory.py::test_free_segments_go_back_before_memory_is_short"),
    "a segment is never of the size alone": Fault(
        HEAP, "rc != RB_OK && wanted != size ?", "false ?", "test_device_memory.py::test_a_segment_of_the_size_alone_where_a_whole_one_is_too_much"),
    "blocks of other streams do not serve": Fault(
        HEAP, "if (a->pool != pool) continue;", "continue;", "test_device_memory.py::test_a_free_part_of_another_streams_segment_serves_behind_its_work"),
    "another stream's work is not waited for": Fault(
        HEAP, "const int32_t rc = guarded([&] { stream_wait(backend, device, stream, other); });\n  if (rc == RB_OK) return block;",
        "return block;\n  const int32_t rc = RB_OK;", "test_device_memory.py::test_a_free_part_of_another_streams_segment_serves_behind_its_work"),
    "the limit is not looked at": Fault(
        HEAP, "held > limit_ || nbytes > limit_ - held", "false", "test_device_memory.py::test_a_fraction_limits_the_process"),
    "pinned memory is given again at once": Fault(
        HEAP, "if (event_query(backend, use.device, w.events[i])) continue;", "continue;",
        f"{CUDA}test_pinned_and_managed_memory"),
    "segments do not grow": Fault(
        GROWTH, "if (kind != MemoryKind::kDevice || !split_ || host_) return RB_E_NOTIMPL;", "return RB_E_NOTIMPL;", "test_growing_segments.py::test_a_stream_has_one_segment_that_grows"),
    "the free end does not become longer": Fault(
        GROWTH, "if (free && last->arena == &owner) {", "if (false) {", "test_growing_segments.py::test_a_stream_has_one_segment_that_grows"),
    "free ends stay": Fault(
        GROWTH, "if (s->busy || s->last->used ||", "if (true || s->last->used ||", "test_growing_segments.py::test_empty_cache_gives_free_ends_back"),
    "ends that went back are still counted": Fault(
        GROWTH, "  last->size -= nbytes;\n", "  nbytes = 0;\n", "test_growing_segments.py::test_empty_cache_gives_free_ends_back"),
}  # fmt: skip


def objects_of_core() -> list[Path]:
    """What the installed core was linked from, in the build folder of this Python."""
    tag = sys.implementation.cache_tag.replace("cpython-", "cp")
    folder = CORE / "build" / f"{tag}-{tag}-linux_x86_64"
    target = folder / "CMakeFiles" / "rabbet_core.dir"
    # Objects of sources that have moved stay in the folder.
    gone = {
        path
        for path in target.rglob("csrc/**/*.o")
        if not (CORE / path.relative_to(target).with_suffix("")).exists()
    }
    found = sorted(set(target.rglob("*.o")) - gone)
    if not found:
        pytest.skip(f"core was not built in {folder}")
    return found


def library(changed: dict[str, Path], folder: Path) -> Path:
    """Core with other texts of some sources of `device`."""
    objects = objects_of_core()
    jobs = []
    for name, text in changed.items():
        own = folder / f"{name}.o"
        objects = [own if path.parts[-2:] == ("device", own.name) else path for path in objects]
        assert own in objects, name
        command = ["g++", "-std=c++17", "-O1", "-fPIC", f"-I{CORE / 'include'}", f"-I{SOURCES}"]
        jobs.append(subprocess.Popen([*command, "-c", str(text), "-o", str(own)]))
    assert all(job.wait() == 0 for job in jobs)
    target = folder / "librabbet_core.so"
    command = ["g++", "-shared", "-Wl,-Bsymbolic-functions", f"-Wl,-soname,{target.name}"]
    subprocess.run([*command, *map(str, objects), "-o", str(target), "-ldl"], check=True)
    return target


def passes(core: Path, *tests: str) -> bool:
    """Loaded before, the library is the one that Python's module asks for by name."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    command += [str(ROOT / "tests" / test) for test in tests]
    done = subprocess.run(
        command,
        env={**os.environ, "LD_PRELOAD": str(core)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode in (0, 1) or done.returncode < 0, done.stdout + done.stderr
    return done.returncode == 0


def test_without_a_fault_all_tests_pass(tmp_path):
    core = library({name: SOURCES / "device" / name for name in (HEAP, GROWTH, CAPTURE)}, tmp_path)
    assert passes(core, *dict.fromkeys(fault.test for fault in FAULTS.values()))


# A third of them in each run, all of them in `make test-full`.
CHOSEN = [
    name if i % 3 == 0 else pytest.param(name, marks=pytest.mark.slow)
    for i, name in enumerate(FAULTS)
]


@pytest.mark.parametrize("name", CHOSEN)
def test_a_fault_is_found(name, tmp_path):
    fault = FAULTS[name]
    source = SOURCES / "device" / fault.file
    text = source.read_text()
    assert text.count(fault.text) == 1, f"{fault.file} has {fault.text!r} not once"
    changed = tmp_path / source.name
    changed.write_text(text.replace(fault.text, fault.instead))
    assert not passes(library({fault.file: changed}, tmp_path), fault.test), f"not noticed: {name}"
