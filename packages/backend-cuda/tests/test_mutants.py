"""Faults planted into the allocator, streams, copies, errors and graphs of the backend: for each there is a test that fails.

The library is built from its sources, once as it is and once for each fault, of which one file is compiled again. What is
built stands before the installed package while the named test runs."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
import rabbet

HERE = Path(__file__).resolve().parent
SOURCES = HERE.parent / "csrc"


class Fault(NamedTuple):
    file: str
    text: str  # in the file, once
    instead: str
    test: str  # of test_device.py


WAIT = "Mark(from, here).hold_back(to, there);"
HOLD = "Mark(to, there).hold_back(from, here);"
FAULTS = {
    "a copy between devices does not wait for the source": Fault(
        "device/copies.cpp", WAIT, "", "test_copies_between_devices_follow_both_streams"
    ),
    "the source may be written before the copy has read it": Fault(
        "device/copies.cpp", HOLD, "", "test_copies_between_devices_follow_both_streams"
    ),
    "pageable memory counts as pinned and is not waited for": Fault(
        "device/copies.cpp",
        "if (nonblocking && is_pinned(source, nbytes)) return;\n  to.synchronize(stream);",
        "",
        "test_a_copy_that_waits_has_arrived_for_all_streams",
    ),
    "a stream does not wait for an event": Fault(
        "device/streams.cpp",
        "check_cuda(driver().stream_wait(as_stream(stream), e.handle, 0), index,",
        "check_cuda(kSuccess, index,",
        "test_streams_wait_for_each_other_and_for_events",
    ),
    "the host does not wait for an event": Fault(
        "device/streams.cpp",
        'check_cuda(driver().event_synchronize(recorded(event, "event_sync").handle), index,',
        "check_cuda(kSuccess, index,",
        "test_streams_wait_for_each_other_and_for_events",
    ),
    "an event is recorded on the default stream": Fault(
        "device/streams.cpp",
        "driver().event_record(e.handle, as_stream(stream))",
        "driver().event_record(e.handle, nullptr)",
        "test_streams_wait_for_each_other_and_for_events",
    ),
    "kernels do not run on the thread's stream": Fault(
        "ops/loop.cpp",
        "enqueue(here, stream_of(call, here), op,",
        "enqueue(here, nullptr, op,",
        "test_streams_wait_for_each_other_and_for_events",
    ),
    "priorities are ignored": Fault(
        "device/streams.cpp",
        "if (priority && d.priorities",
        "if (false && d.priorities",
        "test_streams_have_priorities_and_threads_their_own",
    ),
    "an error that lasts is forgotten": Fault(
        "device/table.cpp",
        "if (!failure.empty())",
        "if (false)",
        "test_a_late_error_names_what_was_in_flight_and_lasts",
    ),
    "what is done stays in flight": Fault(
        "device/failure.cpp",
        "if (launch.stream.load(std::memory_order_relaxed) == stream)",
        "if (false)",
        "test_what_is_done_is_not_named",
    ),
    "blocking launches do not block": Fault(
        "device/failure.cpp",
        "status = driver().stream_synchronize(stream);",
        "status = kSuccess;",
        "test_the_error_of_a_blocking_launch_names_operator_and_line",
    ),
    "a forked child goes on": Fault(
        "device/device.cpp",
        "return in_child.load(std::memory_order_relaxed);",
        "return false;",
        "test_a_forked_child_is_told_what_to_do",
    ),
    "memory may not be asked for while work is captured": Fault(
        "device/device.cpp",
        "driver().exchange_capture_mode(&mode_)",
        "static_cast<void>(mode_)",
        "test_what_cannot_be_captured_is_named",
    ),
    "the default stream is captured": Fault(
        "device/capture.cpp", "if (!stream)", "if (false)", "test_what_cannot_be_captured_is_named"
    ),
    "a replay launches nothing": Fault(
        "device/capture.cpp",
        'need(driver().graph_launch, "cuGraphLaunch")(e.handle, as_stream(stream))',
        "kSuccess",
        "test_a_graph_replays_a_training_step",
    ),
    "random numbers of a graph do not move on": Fault(
        "ops/random.cpp",
        "return {slice.seed, slice.offset, slice.base};",
        "return {slice.seed, slice.offset, nullptr};",
        "test_a_graph_draws_the_numbers_that_calls_would",
    ),
    "functions are shared by devices": Fault(
        "launch/functions.cpp",
        "static_cast<uint64_t>(device.index())};",
        "0};",
        "test_copies_between_devices_follow_both_streams",
    ),
    "functions are shared by dtypes": Fault(
        "launch/functions.cpp",
        "*type++ = name.packed;",
        "*type++ = name.packed & 0;",
        "test_kernels_know_their_dtypes",
    ),
    "segments do not grow": Fault(
        "device/segments.cpp",
        "if (!segment || nbytes - spare >",
        "if (true || nbytes - spare >",
        "test_segments_grow_and_shrink_in_place",
    ),
    "memory that is mapped may not be accessed": Fault(
        "device/segments.cpp",
        "const CuResult status = driver().set_access(at, size, all.data(), all.size());",
        "const CuResult status = kSuccess;",
        "test_segments_grow_and_shrink_in_place",
    ),
    "memory that is in use goes back": Fault(
        "device/segments.cpp",
        "while (segment->pieces.size() > 1 && segment->mapped - segment->pieces.back() >= nbytes)",
        "while (segment->pieces.size() > 0)",
        "test_segments_grow_and_shrink_in_place",
    ),
    "free segments stay mapped": Fault(
        "device/segments.cpp",
        "while (!segment->pieces.empty()) unmap_last(begin, *segment);",
        "",
        "test_segments_grow_and_shrink_in_place",
    ),
    "lack of memory is another error": Fault(
        "device/segments.cpp",
        "if (status == kOutOfMemory) fail_oom(device, nbytes);",
        'if (status == kOutOfMemory) rb::fail(RB_E_DEVICE, "full");',
        "test_lack_of_memory_says_what_holds_it_and_the_program_goes_on",
    ),
}


def compile_object(source: Path, target: Path) -> Path:
    command = ["g++", "-std=c++17", "-O0", "-fPIC", "-fvisibility=hidden", "-c", str(source)]
    command += ['-DRABBET_WHEEL_VERSION="0"', f"-I{SOURCES}", f"-I{rabbet.get_include()}"]
    subprocess.run([*command, "-o", str(target)], check=True)
    return target


def texts() -> str:
    """What CMakeLists.txt makes of kernels/."""
    philox = (Path(rabbet.get_include()) / "rabbet/philox.h").read_text()
    philox = re.sub(r"#include <[a-z]+\.h>", "", philox)
    body = ""
    for path in sorted((HERE.parent / "kernels").glob("*.cuh")):
        text = re.sub(
            r'#include "([a-z]+\.cuh)"\n',
            lambda part, folder=path.parent: (folder / part[1]).read_text(),
            path.read_text(),
        ).replace('#include "rabbet/philox.h"\n', philox)
        body += f'const char* const kText_{path.stem} = R"CU({text})CU";\n'
    return f'#include "launch/texts.h"\nnamespace rbcuda {{\n{body}}}\n'


@pytest.fixture(scope="module")
def objects(tmp_path_factory):
    """The object of each source, as it is."""
    folder = tmp_path_factory.mktemp("objects")
    (folder / "texts.cpp").write_text(texts())
    sources = [folder / "texts.cpp", *SOURCES.rglob("*.cpp")]
    targets = [folder / f"{i}.o" for i in range(len(sources))]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_object, sources, targets))
    return dict(zip((str(p) for p in sources), targets, strict=True))


def install(folder: Path, objects: list[Path]) -> Path:
    """The installed package with another library."""
    files = importlib.metadata.files("rabbet-backend-cuda") or []
    for file in files:
        path = Path(str(file.locate()))
        if ".." in file.parts or "__pycache__" in file.parts or not path.is_file():
            continue
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder / file)
    (library,) = folder.rglob("librabbet_backend_cuda.so")
    command = ["g++", "-shared", *map(str, objects), "-o", str(library), "-ldl"]
    subprocess.run(command, check=True)
    return folder


def passes(site: Path, *tests: str) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    command += [f"{HERE / 'test_device.py'}::{test}" for test in tests]
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.returncode == 0


def test_without_a_fault_all_tests_pass(objects, tmp_path):
    site = install(tmp_path, list(objects.values()))
    assert passes(site, *sorted({fault.test for fault in FAULTS.values()}))


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(name, objects, tmp_path):
    fault = FAULTS[name]
    source = SOURCES / fault.file
    text = source.read_text()
    assert text.count(fault.text) == 1, f"{fault.file} has {fault.text!r} not once"
    changed = tmp_path / source.name
    changed.write_text(text.replace(fault.text, fault.instead))
    mine = {**objects, str(source): compile_object(changed, tmp_path / "changed.o")}
    site = install(tmp_path / "site", list(mine.values()))
    assert not passes(site, fault.test), f"{fault.test} does not notice: {name}"
