"""Faults planted into the allocator, streams, copies, errors, graphs, kernels and the use of NVIDIA's libraries: for each a
test fails.

The library is built from its sources, once as it is and once for each fault, for which one file is compiled again, or the
sources that include a header. What is built stands before the installed package while the named test runs."""

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
TEXTS = "texts.cpp"  # made of kernels/


LIBRARY_PLANS, ATTENTION_CUDNN = "test_library_plans.py::", "test_attention_cudnn.py::"


class Fault(NamedTuple):
    file: str
    text: str  # in the file, once
    instead: str
    test: str  # of test_device.py, or FILE::TEST


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
    "memory of a segment's end is unmapped while a stream uses it": Fault(
        "device/segments.cpp",
        'check_cuda(driver().stream_synchronize(as_stream(stream)), here.index(), "cuStreamSynchronize");',
        "",
        "test_memory_is_unmapped_behind_the_work_that_uses_it",
    ),
    "memory of a segment is unmapped while a stream uses it": Fault(
        "device/segments.cpp",
        "driver().stream_synchronize(as_stream(stream));\n    while",
        "while",
        "test_memory_is_unmapped_behind_the_work_that_uses_it",
    ),
    "steps of the first launch are those of all": Fault(
        "ops/optim.cpp",
        "n.factors += static_cast<int64_t>(begin) * n.width;",
        "",
        "test_captured_optimizers.py::test_many_tensors_with_unequal_steps",
    ),
    "counts of the first launch are those of all": Fault(
        "ops/optim.cpp",
        "void* out = static_cast<double*>(a.ret().data) + begin;",
        "void* out = a.ret().data;",
        "test_captured_optimizers.py::test_many_tensors_with_unequal_steps",
    ),
    "all tensors of a launch are at the first one's step": Fault(
        "../kernels/optim.cuh",
        "now.factors + entry_of(table, blockIdx.x) * now.width;",
        "now.factors;",
        "test_captured_optimizers.py::test_many_tensors_with_unequal_steps",
    ),
    "a finding may reach the host behind the word that tells of it": Fault(
        "../kernels/report.cuh",
        "__threadfence_system();",
        "__threadfence();",
        "test_index.py::test_an_index_out_of_range_is_an_error_of_the_next_wait",
    ),
    "packs beyond 2**32 elements are those before": Fault(
        "../kernels/elementwise.cuh",
        "step.store(out + i, call, i);",
        "step.store(out + (UInt32)i, call, i);",
        "test_far_positions.py::test_more_elements_than_32_bits_count",
    ),
    "loops count in 32 bits": Fault(
        "../kernels/block.cuh",
        "for (Int64 i = RB_THREAD; i < (n); i += RB_THREADS)",
        "for (Int64 i = RB_THREAD; i < (int)(n); i += RB_THREADS)",
        "test_far_positions.py::test_more_elements_than_32_bits_count",
    ),
    "all layouts are narrow": Fault(
        "launch/layout.cpp",
        "if (above > kMost || below < -kMost) return false;",
        "",
        "test_far_positions.py::test_elements_that_lie_far_apart",
    ),
    "many positions count as few": Fault(
        "launch/layout.cpp",
        "if (layout.n > kMost) return false;",
        "",
        "test_far_positions.py::test_more_elements_than_32_bits_count",
    ),
    "places are numbers of 32 bits": Fault(
        "../kernels/types.cuh",
        "p.at[k] += i * layout.strides[k][0];",
        "p.at[k] += (int)(i * layout.strides[k][0]);",
        "test_far_positions.py::test_elements_that_lie_far_apart",
    ),
    "indices reach 2**32 elements": Fault(
        "../kernels/index.cuh",
        "return at * reach.step;",
        "return (int)(at * reach.step);",
        "test_far_positions.py::test_elements_that_lie_far_apart",
    ),
    "negative floats are 0 as unsigned integers": Fault(
        "../kernels/types.cuh",
        ": (T)(Int64)x;",
        ": (T)x;",
        "test_conversions.py::test_floats_become_unsigned_integers_by_way_of_int64",
    ),
    "the parts of a complex number are written one by one": Fault(
        "../kernels/index.cuh",
        "  __int128 bits;\n  memcpy(&bits, &v, sizeof bits);\n  set_to((__int128*)p, bits);",
        "  set_to(&p->re, v.re);\n  set_to(&p->im, v.im);",
        "test_index.py::test_elements_are_written_whole_where_indices_meet",
    ),
    "sums of 16-bit floats are rounded at each term": Fault(
        "../kernels/index.cuh",
        "sum = sum_of(sum, v);",
        "sum = As<S>::of(As<E>::of(sum_of(sum, v)));",
        "test_index.py::test_sums_of_16_bit_floats_are_rounded_once",
    ),
    "a large result is copied for few terms": Fault(
        "ops/index.cpp",
        "const bool sorts = deterministic() || out.numel > kSorting * terms;",
        "const bool sorts = deterministic();",
        "test_index.py::test_sums_of_16_bit_floats_are_rounded_once",
    ),
    "lack of memory for a segment that grows is another error": Fault(
        "device/segments.cpp",
        "if (status == kOutOfMemory) fail_oom(device, nbytes);\n    return",
        'if (status == kOutOfMemory) rb::fail(RB_E_DEVICE, "full");\n    return',
        "test_lack_of_memory_says_what_holds_it_and_the_program_goes_on",
    ),
    "lack of memory is another error": Fault(
        "device/segments.cpp",
        "if (status == kOutOfMemory) fail_oom(device, nbytes);\n  check_cuda(",
        'if (status == kOutOfMemory) rb::fail(RB_E_DEVICE, "full");\n  check_cuda(',
        "test_lack_of_memory_says_what_holds_it_and_the_program_goes_on",
    ),
    "cuBLASLt is told the alignment of a batch's first matrix": Fault(
        "ops/product_lt.cpp",
        "offsets |= static_cast<uintptr_t>(p.batch.strides[k][d] * stored_size(dtype));",
        "offsets |= 0;",
        LIBRARY_PLANS + "test_the_library_is_told_how_later_batches_are_aligned",
    ),
    "cuBLASLt is told a batch's alignment in elements": Fault(
        "ops/product_lt.cpp",
        "p.batch.strides[k][d] * stored_size(dtype)",
        "p.batch.strides[k][d]",
        LIBRARY_PLANS + "test_the_library_is_told_how_later_batches_are_aligned",
    ),
    **{
        f"cuBLASLt is told another alignment of {operand}": Fault(
            "ops/product_lt.cpp",
            f"prefer(kLtAlignment{letter}, q.{member}.aligned)",
            f"prefer(kLtAlignment{letter}, uint32_t{{256}})",
            LIBRARY_PLANS + f"test_the_library_is_told_how_later_batches_are_aligned[{operand}]",
        )
        for operand, letter, member in (
            ("first", "B", "a"),
            ("second", "A", "b"),
            ("added", "C", "added"),
            ("result", "D", "c"),
        )
    },
    "products that are kept are not bounded": Fault(
        "ops/product_lt.cpp",
        "kMostPlans = 4096",
        "kMostPlans = 1 << 30",
        LIBRARY_PLANS + "test_a_bounded_number_of_products_is_kept",
    ),
    "plans of cuDNN that are kept are not bounded": Fault(
        "ops/dnn_plans.cpp",
        "kMostProblems = 1024",
        "kMostProblems = 1 << 30",
        LIBRARY_PLANS + "test_a_bounded_number_of_convolutions_is_kept",
    ),
    "what is used again is not used last": Fault(
        "ops/library_plans.h",
        "order_.splice(order_.begin(), order_, at->second.place);",
        ";",
        LIBRARY_PLANS + "test_a_bounded_number_of_products_is_kept",
    ),
    "a plan that failed is kept": Fault(
        "ops/library_plans.h",
        "plans.erase(at);",
        "++i;",
        LIBRARY_PLANS + "test_our_kernel_takes_the_place_of_algorithms_that_all_fail",
    ),
    "a plan without memory for its workspace stays the first": Fault(
        "ops/library_plans.h",
        "std::rotate(plans.begin(), at, at + 1);",
        ";",
        "test_cudnn_simulated.py::test_a_plan_that_lacked_memory_is_not_the_first_again",
    ),
    "one algorithm is asked for": Fault(
        "ops/product_lt.cpp",
        "kMostChoices = 8",
        "kMostChoices = 1",
        LIBRARY_PLANS + "test_an_algorithm_that_fails_gives_way_to_the_next[cublaslt]",
    ),
    "the search for plans begins anew": Fault(
        "ops/dnn_plans.cpp",
        "entry.position = search->position();",
        "",
        LIBRARY_PLANS + "test_our_kernel_takes_the_place_of_algorithms_that_all_fail[cudnn]",
    ),
    "every failure is warned of": Fault(
        "ops/library_plans.cpp",
        "if (!is_first(library, op)) return;",
        "",
        LIBRARY_PLANS + "test_our_kernel_takes_the_place_of_algorithms_that_all_fail",
    ),
    "a plan is tried where the device does not recover": Fault(
        "ops/library_plans.cpp",
        "if (status != kNotReady) check_cuda(status, device.index(), text.c_str());",
        "static_cast<void>(status);",
        LIBRARY_PLANS + "test_a_device_that_does_not_recover_is_an_error",
    ),
    "a plan is tried where the capture is over": Fault(
        "ops/library_plans.cpp",
        "if (is_capture_invalid(stream))",
        "if (false)",
        LIBRARY_PLANS + "test_a_failure_that_ends_a_capture_names_the_operator",
    ),
    "a graph does not keep its plans": Fault(
        "ops/dnn_plans.cpp",
        "keep_for_captures(problem_.device, plan.plan);",
        "",
        LIBRARY_PLANS + "test_a_plan_lives_as_long_as_a_graph_that_has_it",
    ),
    "an executable graph does not keep its plans": Fault(
        "device/capture.cpp",
        "made->kept = keeping().of(static_cast<CuGraph>(graph));",
        "",
        LIBRARY_PLANS + "test_a_plan_lives_as_long_as_a_graph_that_has_it",
    ),
    "plans of a graph that is gone are kept": Fault(
        "device/capture.cpp",
        "keeping().drop(static_cast<CuGraph>(graph));",
        "",
        LIBRARY_PLANS + "test_a_plan_lives_as_long_as_a_graph_that_has_it",
    ),
    **{
        f"devices share one lock of {library}": Fault(
            f"ops/{file}.cpp",
            "const std::lock_guard<std::mutex> lock(state.mutex);",
            "static std::mutex mutex; const std::lock_guard<std::mutex> lock(mutex);",
            LIBRARY_PLANS + f"test_two_devices_do_not_wait_for_each_other[{library}]",
        )
        for library, file in (("cublaslt", "product_lt"), ("cudnn", "dnn_plans"))
    },
    "few queries get a plan": Fault(
        "ops/attention_cudnn.cpp",
        "kFewQueries = 16",
        "kFewQueries = 1",
        ATTENTION_CUDNN + "test_decoding_builds_no_plan",
    ),
    "sizes that were seen once get a plan": Fault(
        "ops/attention_cudnn.cpp",
        "kCallsBeforePlan = 64",
        "kCallsBeforePlan = 0",
        ATTENTION_CUDNN + "test_prompts_of_many_lengths_build_no_plan",
    ),
    "sizes that recur get no plan": Fault(
        "ops/attention_cudnn.cpp",
        "++count;",
        "",
        ATTENTION_CUDNN + "test_training_builds_each_plan_once",
    ),
    "a capture gets no plan": Fault(
        "ops/attention_cudnn.cpp",
        "|| is_capturing(stream)",
        "",
        ATTENTION_CUDNN + "test_a_graph_replays_attention",
    ),
    "sums of the query's gradient do not begin at zero": Fault(
        "ops/attention_cudnn.cpp",
        "if (adds && caller_prepares_accumulator())",
        "if (false)",
        ATTENTION_CUDNN + "test_the_query_s_gradient_is_right_in_every_version[90501]",
    ),
    "sums of the query's gradient are in plain rows for older versions": Fault(
        "ops/attention_cudnn.cpp",
        "caller_prepares_accumulator() ? kDnnF16x16 : kDnnPlain",
        "kDnnPlain",
        ATTENTION_CUDNN + "test_the_query_s_gradient_is_right_in_every_version[90501]",
    ),
    "the order of sums is not passed on": Fault(
        "ops/dnn_graph.cpp",
        "if (reordering != kDnnPlain)",
        "if (false)",
        ATTENTION_CUDNN + "test_the_query_s_gradient_is_right_in_every_version[90501]",
    ),
    "versions with known bugs are used": Fault(
        "ops/attention_cudnn.cpp",
        "return cudnn_version() != 91000 && cudnn_version() != 91001;",
        "return true;",
        ATTENTION_CUDNN + "test_what_a_version_does_wrong_goes_without_it",
    ),
    "spectra that no real signal has go to cuFFT": Fault(
        "ops/fourier.cpp",
        "    make_hermitian(op, spectrum, chunk);\n",
        "",
        "test_fourier.py::test_a_spectrum_that_no_real_signal_has_is_taken_as_on_the_cpu",
    ),
    "a plan of cuFFT that failed is kept": Fault(
        "ops/fourier.cpp",
        "state.plans.drop(q);",
        "",
        "test_fourier.py::test_a_failure_names_the_operator_and_the_function",
    ),
    "graphs do not keep plans of cuFFT": Fault(
        "ops/fourier.cpp",
        "keep_for_captures(index, plan);",
        "",
        "test_fourier.py::test_plans_live_as_long_as_graphs_that_have_them",
    ),
    "a new handle of cuBLAS allocates memory that a capture forbids": Fault(
        "ops/solver.h",
        "const RelaxedCapture relaxed_;",
        "",
        "test_solver.py::test_triangular_solves_are_captured_and_factorisations_refused",
    ),
    "Cholesky factors keep the other triangle": Fault(
        "ops/linalg_triangular.cpp",
        "triangle(op, m.tensor(), m.tensor(), 0, !upper);",
        "",
        "test_solver.py::test_cholesky",
    ),
    "matrices that are not finite are not reported": Fault(
        "ops/linalg_eigen.cpp",
        "  mark_not_finite(op, flags.tensor(), values.tensor(), infos.tensor());\n  m.done();",
        "  m.done();",
        "test_solver.py::test_numbers_that_are_not_finite_are_errors",
    ),
}


def compile_object(source: Path, target: Path, *before: Path) -> Path:
    """Headers are looked for in `before` first."""
    command = ["g++", "-std=c++17", "-O0", "-fPIC", "-fvisibility=hidden", "-c", str(source)]
    command += ['-DRABBET_WHEEL_VERSION="0"', *(f"-I{folder}" for folder in before)]
    command += [f"-I{SOURCES}", f"-I{rabbet.get_include()}"]
    subprocess.run([*command, "-o", str(target)], check=True)
    return target


def texts(changed: Path | None = None, instead: str = "") -> str:
    """What CMakeLists.txt makes of kernels/, or of another text of one of the files."""

    def text_of(path: Path) -> str:
        return instead if path == changed else path.read_text()

    philox = (Path(rabbet.get_include()) / "rabbet/philox.h").read_text()
    philox = re.sub(r"#include <[a-z]+\.h>", "", philox)
    body = ""
    for path in sorted((HERE.parent / "kernels").glob("*.cuh")):
        text = re.sub(
            r'#include "([a-z]+\.cuh)"\n',
            lambda part, folder=path.parent: text_of(folder / part[1]),
            text_of(path),
        ).replace('#include "rabbet/philox.h"\n', philox)
        body += f'const char* const kText_{path.stem} = R"CU({text})CU";\n'
    return f'#include "launch/texts.h"\nnamespace rbcuda {{\n{body}}}\n'


@pytest.fixture(scope="module")
def objects(tmp_path_factory):
    """The object of each source, as it is."""
    folder = tmp_path_factory.mktemp("objects")
    (folder / "texts.cpp").write_text(texts())
    sources = [folder / "texts.cpp", *SOURCES.rglob("*.cpp")]
    names = [TEXTS, *map(str, sources[1:])]
    targets = [folder / f"{i}.o" for i in range(len(sources))]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_object, sources, targets))
    return dict(zip(names, targets, strict=True))


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
    command += [str(HERE / (test if "::" in test else f"test_device.py::{test}")) for test in tests]
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.returncode == 0


def test_without_a_fault_all_tests_pass(objects, tmp_path):
    site = install(tmp_path, list(objects.values()))
    assert passes(site, *sorted({fault.test for fault in FAULTS.values()}))


def changed_objects(fault: Fault, folder: Path) -> dict[str, Path]:
    """Objects of the sources in which the fault is, by their names."""
    source = (SOURCES / fault.file).resolve()
    text = source.read_text()
    assert text.count(fault.text) == 1, f"{fault.file} has {fault.text!r} not once"
    wrong = text.replace(fault.text, fault.instead)
    if source.suffix == ".cuh":
        (folder / TEXTS).write_text(texts(source, wrong))
        return {TEXTS: compile_object(folder / TEXTS, folder / "changed.o")}
    changed = folder / "changed" / fault.file
    changed.parent.mkdir(parents=True)
    changed.write_text(wrong)
    if source.suffix == ".cpp":  # its folder, for headers that it includes by their names alone
        return {str(source): compile_object(changed, folder / "changed.o", source.parent)}
    including = [p for p in SOURCES.rglob("*.cpp") if f'#include "{fault.file}"' in p.read_text()]
    targets = [folder / f"{path.stem}.o" for path in including]
    for path, target in zip(including, targets, strict=True):
        compile_object(path, target, folder / "changed")
    return dict(zip(map(str, including), targets, strict=True))


# A third of them in each run, all of them in `make test-full`.
CHOSEN = [
    name if i % 3 == 0 else pytest.param(name, marks=pytest.mark.slow)
    for i, name in enumerate(FAULTS)
]


@pytest.mark.parametrize("name", CHOSEN)
def test_a_fault_is_found(name, objects, tmp_path):
    fault = FAULTS[name]
    mine = {**objects, **changed_objects(fault, tmp_path)}
    site = install(tmp_path / "site", list(mine.values()))
    assert not passes(site, fault.test), f"{fault.test} does not notice: {name}"
