"""Plans of the real cuDNN for the layouts and dtypes that are used, without a GPU: a library between the backend and cuDNN
gives it the properties of a device in the place of a handle, and runs nothing."""

import json
import os
import re
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
from nvrtc import find_nvrtc

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
size_t cudnnGetVersion() {
  const char* said = std::getenv("SAID_VERSION");
  return said ? std::atol(said) : ((size_t (*)())real("cudnnGetVersion"))();
}
const char* cudnnGetErrorString(int status) { return ((const char* (*)(int))real("cudnnGetErrorString"))(status); }
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
  if (attribute == 405) std::printf("text %d %ld\n", status, (long)*count);
  return status;
}
int cudnnBackendExecute(P, P, P) { std::printf("executed\n"); return 0; }
}
"""

# What cuDNN's compiled engines look for in the driver, besides what the simulator's has.
DRIVER_NAME = re.compile(rb"\0(cu[A-Z][A-Za-z]+(?:_v[0-9])?)(?=\0)")
GIVING = {"cuLibraryLoadData", "cuLibraryGetKernel", "cuKernelGetFunction"}
QUIET = {"cuKernelSetAttribute", "cuLibraryUnload"}

H200 = {
    "deviceName": "NVIDIA H200", "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
    "cudaDeviceId": 0, "deviceVer": 900, "driverVer": 13000, "isTccDriver": 0, "l2CacheSize": 52428800,
    "maxCtasPerSM": 32, "maxRegistersPerSM": 65536, "maxSharedMemoryPerBlock": 49152,
    "maxSharedMemoryPerBlockOptin": 232448, "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048,
    "memClockRateKHz": 3201000, "memoryBusWidth": 6144, "multiProcessorCount": 132, "pciDeviceId": 0, "regsPerBlock": 65536,
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
    add_driver(folder, Path(simulator["RABBET_CUDA_DRIVER"]), library)
    (folder / "libcublasLt.so.13").symlink_to(simulator["RABBET_CUDA_CUBLASLT"])
    return {
        **simulator,
        "RABBET_CUDA_CUDNN": str(folder / "libspy.so"),
        "SPIED": str(library),
        "DEVICE_JSON": json.dumps(H200),
        "LD_LIBRARY_PATH": f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}",
        "RABBET_CUDA_FALLBACK": "error",
    }


def stub(name):
    """A function of the driver that does nothing: it gives a handle, says yes, or is not supported."""
    if name in GIVING:
        return f"int {name}(void** made) {{ *made = made; return 0; }}"
    return f"int {name}(void) {{ return {0 if name in QUIET else 801}; }}"


def driver_symbols(path, which):
    """Of the driver, that a library has or wants."""
    listed = subprocess.run(["nm", "-D", which, path], capture_output=True, text=True, check=True)
    names = {line.split()[-1].split("@")[0] for line in listed.stdout.splitlines()}
    return {name for name in names if re.match("cu[A-Z]", name)}


def add_driver(folder, simulated, library):
    """`libcuda.so.1`: the simulator's, and stubs of all else that cuDNN wants of a driver."""
    engines = library.with_name("libcudnn_engines_runtime_compiled.so.9")
    wanted = {name.decode() for name in DRIVER_NAME.findall(engines.read_bytes())}
    for part in library.parent.glob("libcudnn*.so.9"):
        wanted |= driver_symbols(part, "--undefined-only")
    rest = wanted - driver_symbols(simulated, "--defined-only")
    (folder / "stub.c").write_text("\n".join(map(stub, sorted(rest))))
    command = ["gcc", "-shared", "-fPIC", "-w", "-fno-builtin", folder / "stub.c"]
    command += [
        "-o",
        folder / "libcuda.so.1",
        f"-Wl,-soname,libcuda.so.1,-rpath,{simulated.parent}",
    ]
    subprocess.run([*command, "-Wl,--no-as-needed", simulated], check=True)


@pytest.fixture(scope="module")
def attention_planner(planner):
    """The planner, with the real NVRTC, by which cuDNN compiles its kernels of attention."""
    nvrtc = find_nvrtc()
    if nvrtc is None:
        pytest.skip("NVRTC is not installed: RABBET_TEST_NVRTC=its lib folder")
    return {**planner, "LD_LIBRARY_PATH": f"{nvrtc.parent}:{planner['LD_LIBRARY_PATH']}"}


ATTEND = """
import ctypes, rabbet
ops = rabbet.ops
for ours in ("flash", "mem_efficient"):  # cuDNN's alone, so that the first call has a plan
    getattr(rabbet.backends.cuda, f"enable_{ours}_sdp")(False)
def both(heads, size, length, keys, dtype, causal=False, key_heads=None):
    def ones(*shape): return rabbet.ones(*shape, dtype=dtype, device="cuda")
    q, k = ones(2, heads, length, size), ones(2, key_heads or heads, keys, size)
    out, lse = ops.attention(q, k, k, None, causal, None, key_heads is not None)
    ops.attention_backward(out, None, q, k, k, None, out, lse, causal, None, key_heads is not None)
    ctypes.CDLL(None).fflush(None)
"""
ATTENTIONS = {
    "whole": "both(2, 64, 128, 128, rabbet.float16)",
    "causal": "both(2, 128, 256, 256, rabbet.bfloat16, True)",
    "odd lengths": "both(2, 64, 100, 77, rabbet.float16)",
    "shared keys": "both(4, 64, 128, 128, rabbet.bfloat16, True, 2)",
    "of 96": "both(2, 96, 128, 128, rabbet.float16)",
    "fixed": "rabbet.use_deterministic_algorithms(True); both(2, 64, 128, 128, rabbet.float16, True)",
}


def test_plans_of_attention_and_its_derivative(run, attention_planner):
    """Forward and backward, by cuDNN's fused engines, which it compiles for an H200."""
    for name, call in ATTENTIONS.items():
        said = run(ATTEND + call, **attention_planner)
        assert said.count("executed") == 2, (name, said)


def test_the_order_that_older_versions_want_is_known(run, attention_planner):
    """The memory in which the query's gradient is added up: said to be of 9.5.0 the library gets it in the order F16x16."""
    env = {**attention_planner, "SAID_VERSION": "90500"}
    assert run(ATTEND + ATTENTIONS["whole"], **env).count("executed") == 2
    assert run(ATTEND + ATTENTIONS["odd lengths"], **env).count("executed") == 1  # ours, backward


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


def test_plans_are_read_from_disk(run, planner, tmp_path):
    """As JSON of the library's own, by a process that asks for no heuristics."""
    env = {**planner, "RABBET_CUDA_CACHE": str(tmp_path)}
    code = """
three(2, 16, 32, (8, 8), (3, 3), rabbet.float16, True)
print(rabbet.backends.cudnn.version())
"""
    first, second = run(CONVOLVE + code, **env), run(CONVOLVE + code, **env)
    assert (
        first.count("configs") == 3 == first.count("executed") == len([*tmp_path.glob("*.plan")])
    ), first
    assert "configs" not in second and second.count("executed") == 3, second
    assert int(second.splitlines()[-1]) >= 90000


def test_plans_of_attention_are_read_from_disk(run, attention_planner, tmp_path):
    """With the kernels in them: a later process compiles nothing."""
    env = {**attention_planner, "RABBET_CUDA_CACHE": str(tmp_path)}
    code = ATTEND + ATTENTIONS["causal"]
    first, second = run(code, **env), run(code, **env)
    assert first.count("configs") == 2 and len([*tmp_path.glob("*.plan")]) == 2, first
    assert "configs" not in second and second.count("executed") == 2, second
