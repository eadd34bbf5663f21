"""emit_nvtx, with a stand-in for NVIDIA's library that prints its calls."""

import ctypes
import os
import subprocess
import sys

import pytest

LIBRARY = r"""
#include <cstdio>
extern "C" int nvtxRangePushA(const char* name) { std::printf("+%s\n", name); return std::fflush(stdout); }
extern "C" int nvtxRangePop() { std::printf("-\n"); return std::fflush(stdout); }
"""
PROGRAM = """
import rabbet
from rabbet.autograd import profiler
x = rabbet.ones(2, 3)
with profiler.emit_nvtx(record_shapes={shapes}) as ranges:
    with profiler.record_function("part"):
        x.flatten()
    try:
        with profiler.emit_nvtx():
            pass
    except RuntimeError as error:
        print(error, flush=True)
x.exp()
with profiler.emit_nvtx():
    x.exp()
try:
    ranges.__enter__()
except RuntimeError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nvtx")
    (folder / "nvtx.cpp").write_text(LIBRARY)
    built = str(folder / "libnvToolsExt.so.1")
    subprocess.run(["g++", "-shared", "-fPIC", "-o", built, folder / "nvtx.cpp"], check=True)
    return folder


def lines_of(code, folder):
    env = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("shapes", [False, True])
def test_calls_and_parts_of_the_program_have_ranges(shapes, library):
    names = [("aten::flatten", "[2, 3], [], []"), ("aten::reshape", "[2, 3], []"), ("aten::view", "[2, 3], []")]  # fmt: skip
    begun = [f"+{name}" + f", sizes = [{sizes}]" * shapes for name, sizes in names]
    assert lines_of(PROGRAM.format(shapes=shapes), library) == [
        "+part", *begun, "-", "-", "-", "-",
        "autograd.profiler.emit_nvtx: expected no other emit_nvtx to be active",
        "+aten::exp", "-",
        "NVTX annotation context manager is not reentrant",
    ]  # fmt: skip


def has_library():
    try:
        ctypes.CDLL("libnvToolsExt.so.1")
    except OSError:
        return False
    return True


@pytest.mark.skipif(has_library(), reason="NVIDIA's library is installed")
def test_without_the_library_it_is_refused(tmp_path):
    code = """
from rabbet.autograd import profiler
try:
    with profiler.emit_nvtx():
        pass
except RuntimeError as error:
    print(error)
"""
    (line,) = lines_of(code, tmp_path)
    assert "emit_nvtx: NVTX functions not installed: there is no libnvToolsExt.so.1" in line
