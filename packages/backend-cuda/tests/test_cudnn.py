"""Plans of the real cuDNN for the layouts and dtypes that are used, without a GPU: a library between the backend and cuDNN
gives it the properties of a device in the place of a handle, and runs nothing."""

import json
import os
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

SPY = r"""
#include <dlfcn.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cstdint>
using P = void*;
static P real(const char* name) {
  static P library = dlopen(std::getenv("SPIED"), RTLD_NOW | RTLD_GLOBAL);
  if (!library) std::printf("%s\n", dlerror());
  return dlsym(library, name);
}
#define REAL(name, ...) ((int (*)(__VA_ARGS__))real(#name))
static int set_real(P d, int attribute, int type, int64_t n, const void* at) {
  return REAL(cudnnBackendSetAttribute, P, int, int, int64_t, const void*)(d, attribute, type, n, at);
}
static P device() {
  static P made = nullptr;
  if (made) return made;
  const char* json = std::getenv("DEVICE_JSON");
  int status = REAL(cudnnBackendCreateDescriptor, int, P*)(38, &made);
  if (!status) status = set_real(made, 2702, 24, std::strlen(json) + 1, json);
  if (!status) status = REAL(cudnnBackendFinalize, P)(made);
  if (status) std::printf("device %d\n", status);
  return made;
}
static int give_device(P d, int attribute) {
  P raw = device();
  return set_real(d, attribute, 15, 1, &raw);
}
extern "C" {
int cudnnCreate(P* handle) { *handle = &handle; return std::getenv("BROKEN") ? 1001 : 0; }
int cudnnSetStream(P, P) { return 0; }
int cudnnBackendCreateDescriptor(int kind, P* d) {
  int status = REAL(cudnnBackendCreateDescriptor, int, P*)(kind, d);
  return status || kind != 4 ? status : give_device(*d, 204);
}
int cudnnBackendDestroyDescriptor(P d) { return REAL(cudnnBackendDestroyDescriptor, P)(d); }
int cudnnBackendFinalize(P d) {
  int status = REAL(cudnnBackendFinalize, P)(d);
  if (status) std::printf("finalize %d\n", status);
  return status;
}
int cudnnBackendSetAttribute(P d, int attribute, int type, int64_t n, const void* at) {
  if (attribute == 800) return 0;
  static int64_t names[3];
  if (attribute == 1000) std::memcpy(names, at, sizeof names);
  for (int k = 0; attribute == 1001 && k < 3; ++k)
    std::printf("%c at %lu\n", (char)names[k], (unsigned long)((P const*)at)[k]);
  return attribute == 400 ? give_device(d, 407) : set_real(d, attribute, type, n, at);
}
int cudnnBackendGetAttribute(P d, int attribute, int type, int64_t n, int64_t* count, void* at) {
  int status = REAL(cudnnBackendGetAttribute, P, int, int, int64_t, int64_t*, void*)(d, attribute, type, n, count, at);
  if (attribute == 202) std::printf("configs %d %ld\n", status, (long)*count);
  return status;
}
int cudnnBackendExecute(P, P, P) { std::printf("executed\n"); return 0; }
}
"""

H200 = {
    "deviceName": "NVIDIA H200", "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
    "cudaDeviceId": 0, "deviceVer": 900, "driverVer": 13000, "isTccDriver": 0, "l2CacheSize": 52428800,
    "maxCtasPerSM": 32, "maxRegistersPerSM": 65536, "maxSharedMemoryPerBlock": 49152,
    "maxSharedMemoryPerBlockOptin": 232448, "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048,
    "memClockRateKHz": 3201000, "multiProcessorCount": 132, "pciDeviceId": 0, "regsPerBlock": 65536,
    "reservedSharedMemoryPerBlock": 1024, "smClockRateKHz": 1980000, "supportCoopLaunch": 1,
    "totalGlobalMem": 150000000000, "warpSize": 32,
}  # fmt: skip


def cudnn_library():
    """The file of RABBET_TEST_CUDNN, or of the wheel nvidia-cudnn-cu13."""
    if named := os.environ.get("RABBET_TEST_CUDNN"):
        return Path(named)
    spec = find_spec("nvidia")
    for folder in spec.submodule_search_locations if spec else ():
        library = Path(folder) / "cudnn/lib/libcudnn.so.9"
        if library.exists():
            return library
    return None


@pytest.fixture(scope="module")
def planner(simulator, tmp_path_factory):
    library = cudnn_library()
    if library is None:
        pytest.skip(
            "cuDNN (366 MB) is not installed: pip install nvidia-cudnn-cu13, or RABBET_TEST_CUDNN=libcudnn.so.9"
        )
    folder = tmp_path_factory.mktemp("cudnn")
    (folder / "spy.cpp").write_text(SPY)
    command = [
        "g++",
        "-shared",
        "-fPIC",
        "-std=c++17",
        str(folder / "spy.cpp"),
        "-o",
        str(folder / "libspy.so"),
    ]
    subprocess.run([*command, "-ldl"], check=True)
    # cuDNN opens these by their names.
    (folder / "libcuda.so.1").symlink_to(simulator["RABBET_CUDA_DRIVER"])
    (folder / "libcublasLt.so.13").symlink_to(simulator["RABBET_CUDA_CUBLASLT"])
    return {
        **simulator,
        "RABBET_CUDA_CUDNN": str(folder / "libspy.so"),
        "SPIED": str(library),
        "DEVICE_JSON": json.dumps(H200),
        "LD_LIBRARY_PATH": f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}",
        "RABBET_CUDA_FALLBACK": "error",
    }


CONVOLVE = """
import ctypes, rabbet, rabbet.nn
ops = rabbet.ops
def say(text):
    ctypes.CDLL(None).fflush(None)
    print(text, flush=True)
def three(n, c, o, size, kernel, dtype, channels_last, groups=1, stride=1, padding=1, dilation=1):
    def laid(t): return t.to(memory_format=rabbet.channels_last) if channels_last else t
    x = laid(rabbet.ones(n, c, *size, dtype=dtype, device="cuda"))
    w = laid(rabbet.ones(o, c // groups, *kernel, dtype=dtype, device="cuda"))
    rest = [stride], [padding], [dilation], groups
    say("forward"); y = ops.convolution(x, w, None, *rest)
    g = laid(rabbet.ones(*y.shape, dtype=dtype, device="cuda"))
    say("data"); ops.convolution_dx(g, w, list(x.shape), *rest)
    say("filter"); ops.convolution_dw(x, g, list(w.shape), *rest)
    say("end")
"""


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("channels_last", [True, False])
def test_plans_of_convolutions(run, planner, dtype, channels_last):
    """Of ResNet's sizes: a window of 3 x 3, a step of 2, and one pixel."""
    code = f"""
for c, o, size, kernel, stride, padding in ((64, 64, 14, 3, 1, 1), (64, 128, 14, 3, 2, 1), (64, 256, 14, 1, 1, 0)):
    three(2, c, o, (size, size), (kernel, kernel), rabbet.{dtype}, {channels_last}, stride=stride, padding=padding)
"""
    said = run(CONVOLVE + code, **planner)
    assert said.count("executed") == 9, said


def test_plans_of_groups_one_direction_and_three(run, planner):
    code = """
three(2, 32, 32, (8, 8), (3, 3), rabbet.float32, False, groups=32)
three(2, 32, 64, (8, 8), (3, 3), rabbet.float16, True, groups=4, dilation=2, padding=2)
three(2, 16, 16, (9,), (3,), rabbet.float32, False)
three(2, 16, 16, (4, 6, 6), (3, 3, 3), rabbet.float32, False)
"""
    said = run(CONVOLVE + code, **planner)
    assert said.count("executed") == 12, said


def test_what_cudnn_computes_can_be_left_out(run, planner):
    """By the setting, and by the variable: then nothing is asked of it."""
    code = (
        CONVOLVE
        + """
rabbet.backends.cudnn.enabled = False
three(1, 4, 4, (5, 5), (3, 3), rabbet.float32, False)
"""
    )
    for env in (planner, {**planner, "RABBET_CUDA_CUDNN": ""}):
        said = run(code.replace("= False", "= False" if env is planner else "= True"), **env)
        assert "end" in said and "executed" not in said and "configs" not in said


def test_a_cudnn_that_does_not_start_is_gone_without(run, planner):
    code = """
three(1, 4, 4, (5, 5), (3, 3), rabbet.float32, False)
"""
    said = run(CONVOLVE + code, **planner, BROKEN="1")
    assert "end" in said and "executed" not in said


def test_cudnn_gets_the_tensors(run, planner):
    code = """
x, w = rabbet.ones(1, 4, 5, 5, device="cuda"), rabbet.ones(6, 4, 3, 3, device="cuda")
y = ops.convolution(x, w, None, [1], [1], [1], 1)
dx = ops.convolution_dx(y, w, list(x.shape), [1], [1], [1], 1)
dw = ops.convolution_dw(x, y, list(w.shape), [1], [1], [1], 1)
say(" ".join(str(t.data_ptr()) for t in (x, w, y, dx, dw)))
"""
    *said, last = run(CONVOLVE + code, **planner).splitlines()
    x, w, y, dx, dw = last.split()
    given = [line.split(" at ") for line in said if " at " in line]
    assert given == [[*pair] for t in ((x, w, y), (dx, w, y), (x, dw, y)) for pair in zip("xwy", t)]


def test_equal_convolutions_are_planned_for_once(run, planner):
    code = """
for _ in range(3): three(1, 4, 4, (5, 5), (3, 3), rabbet.float32, False)
"""
    said = run(CONVOLVE + code, **planner)
    assert said.count("executed") == 9 and said.count("configs") == 3, said


def test_without_tf32_and_with_fixed_results_there_are_plans(run, planner):
    code = """
rabbet.backends.cudnn.allow_tf32 = False
rabbet.backends.cudnn.deterministic = True
three(2, 16, 32, (8, 8), (3, 3), rabbet.float32, False)
"""
    assert run(CONVOLVE + code, **planner).count("executed") == 3
