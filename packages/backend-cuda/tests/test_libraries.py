"""Where libraries of NVIDIA are found, what is said where they are not, and what cuBLASLt is asked."""

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from nvrtc import find_nvrtc

# A library between the backend and the stand-in of cuBLASLt, which prints what it is asked.
SPY = r"""
#include <dlfcn.h>
#include <cstdio>
#include <cstdlib>
#include <utility>
using P = void*;
static P real(const char* name) {
  static P library = dlopen(std::getenv("SPIED"), RTLD_NOW | RTLD_LOCAL);
  return dlsym(library, name);
}
#define PASS(name) extern "C" int name(P a, P b, P c, P d, P e, P f, P g, P h) { \
  return ((int (*)(P, P, P, P, P, P, P, P))real(#name))(a, b, c, d, e, f, g, h); }
extern "C" int cublasLtCreate(P* handle) {
  if (std::getenv("SPY_REFUSES")) return 1;
  return ((int (*)(P*))real("cublasLtCreate"))(handle);
}
PASS(cublasLtMatmulDescDestroy) PASS(cublasLtMatrixLayoutDestroy)
PASS(cublasLtMatrixLayoutSetAttribute) PASS(cublasLtMatmulPreferenceCreate)
PASS(cublasLtMatmulPreferenceDestroy) PASS(cublasLtMatmulPreferenceSetAttribute)
extern "C" int cublasLtMatmulDescCreate(P* d, int compute, int scale) {
  std::printf("compute %d\n", compute);
  return ((int (*)(P*, int, int))real("cublasLtMatmulDescCreate"))(d, compute, scale);
}
extern "C" int cublasLtMatmulDescSetAttribute(P d, int attribute, const void* at, size_t size) {
  if (attribute == 7) std::printf("epilogue %d\n", *static_cast<const int*>(at));
  return ((int (*)(P, int, const void*, size_t))real("cublasLtMatmulDescSetAttribute"))(d, attribute, at, size);
}
extern "C" int cublasLtMatrixLayoutCreate(P* d, int type, unsigned long rows, unsigned long cols, long ld) {
  std::printf("matrix %lu %lu %ld\n", rows, cols, ld);
  return ((int (*)(P*, int, unsigned long, unsigned long, long))real("cublasLtMatrixLayoutCreate"))(d, type, rows, cols, ld);
}
extern "C" int cublasLtMatmulAlgoGetHeuristic(P a, P b, P c, P d, P e, P f, P g, int n, P h, int* count) {
  std::printf("choose\n");
  return ((int (*)(P, P, P, P, P, P, P, int, P, int*))real("cublasLtMatmulAlgoGetHeuristic"))(a, b, c, d, e, f, g, n, h, count);
}
extern "C" int cublasLtMatmul(P a, P b, P c, P d, P e, P f, P g, P h, P i, P j, P k, P l, P m, P n, size_t o, P p) {
  std::printf("multiply\n");
  return ((int (*)(P, P, P, P, P, P, P, P, P, P, P, P, P, P, size_t, P))real("cublasLtMatmul"))(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p);
}
"""


@pytest.fixture(scope="module")
def spy(simulator, tmp_path_factory):
    folder = tmp_path_factory.mktemp("spy")
    (folder / "spy.cpp").write_text(SPY)
    library = folder / "libspy.so"
    command = ["g++", "-shared", "-fPIC", "-std=c++17", str(folder / "spy.cpp"), "-o", str(library)]
    subprocess.run([*command, "-ldl"], check=True)
    return {
        **simulator,
        "SPIED": simulator["RABBET_CUDA_CUBLASLT"],
        "RABBET_CUDA_CUBLASLT": str(library),
    }


START = """
import ctypes, rabbet
def device(*shape): return rabbet.ones(*shape).to("cuda")
def say(text):
    rabbet.cuda.synchronize()
    ctypes.CDLL(None).fflush(None)
    print(text, flush=True)
"""


def lines(text, start):
    return [line for line in text.splitlines() if line.startswith(start)]


def test_equal_products_are_chosen_for_once(run, spy):
    said = run(
        START + "a, b = device(8, 4), device(4, 6)\nfor _ in range(3): a @ b\n(a @ a.t()).item",
        **spy,
    )
    assert len(lines(said, "choose")) == 2 and len(lines(said, "multiply")) == 4


def test_rows_are_columns_turned_without_a_copy(run, spy):
    said = run(START + "device(2, 3, 4) @ device(5, 4).t()", **spy)
    # One product of 6 rows: the weight as it lies, the input, and the result (twice).
    assert lines(said, "matrix") == ["matrix 4 6 4", "matrix 4 5 4", "matrix 5 6 5", "matrix 5 6 5"]
    assert len(lines(said, "multiply")) == 1


def test_biases_and_activations_are_epilogues(run, spy):
    code = """
x, w, b = device(3, 4), device(5, 4), device(5)
rabbet.ops.linear(x, w, b)
for name in ("relu", "gelu_tanh"): rabbet.ops.linear_activation(x, w, b, activation=name)
say("own")
rabbet.ops.linear_activation(x, w, b, activation="gelu")
"""
    said, own = run(START + code, **spy).split("own\n")
    assert lines(said, "epilogue") == ["epilogue 4", "epilogue 6", "epilogue 36"]
    # The plan of the first product is there already; the activation is a kernel of ours.
    assert lines(own, "epilogue") == [] and len(lines(own, "multiply")) == 1


def test_a_bias_that_16_bytes_do_not_divide_is_added_before(run, spy):
    """The library reads it in packs, and cannot be told where it lies."""
    code = """
x, w, b = device(3, 4), device(5, 4), device(6)[1:]
print(rabbet.ops.linear(x, w, b).tolist() == [[5.0] * 5] * 3)
say("")
"""
    said = run(START + code, **spy)
    assert "True" in said and lines(said, "epilogue") == ["epilogue 1"]


def test_tf32_is_off_until_it_is_allowed(run, spy):
    code = """
a, b = device(8, 4), device(4, 6)
a @ b
rabbet.backends.cuda.matmul.allow_tf32 = True
a @ b
rabbet.set_float32_matmul_precision("highest")
a @ b
a.double() @ b.double()
"""
    assert lines(run(START + code, **spy), "compute") == ["compute 68", "compute 77", "compute 70"]


def test_batches_are_one_call_and_other_dimensions_more(run, spy):
    said = run(
        START
        + "device(3, 7, 2, 4) @ device(3, 7, 4, 5)\nsay('next')\ndevice(3, 2, 7, 4).transpose(1, 2) @ device(3, 7, 4, 5)",
        **spy,
    )
    one, more = said.split("next\n")
    assert len(lines(one, "multiply")) == 1 and len(lines(more, "multiply")) == 3


def test_a_library_that_does_not_start_is_left_out(run, spy):
    code = "for _ in range(2): print((device(8, 4) @ device(4, 6)).sum().item())\nsay('')"
    said = run(START + code, **spy, SPY_REFUSES="1")
    assert said.split() == ["192.0", "192.0"]


def test_a_variable_names_the_only_library_that_is_tried(run, simulator):
    code = """
import rabbet
try: rabbet.ones(2, 3, device="cuda") @ rabbet.ones(3, 2, device="cuda")
except rabbet.DeviceError as error: print(error)
"""
    said = run(code, **{**simulator, "RABBET_CUDA_CUBLASLT": "/nowhere.so"})
    assert "cuBLASLt: RABBET_CUDA_CUBLASLT names what cannot be opened: /nowhere.so" in said


@pytest.mark.parametrize(
    "nvrtc,cublas", [("cu13/lib", "cu13/lib"), ("cuda_nvrtc/lib", "cublas/lib")]
)
def test_libraries_come_from_the_wheels_folders(run, spy, tmp_path, nvrtc, cublas):
    """Of CUDA 13, which has one folder, and of CUDA 12, with a folder for each."""
    package = Path(importlib.util.find_spec("rabbet_backend_cuda").origin).parent
    shutil.copytree(package, tmp_path / "rabbet_backend_cuda")
    for folder, name, source in (
        (nvrtc, "libnvrtc.so.12", spy["RABBET_CUDA_NVRTC"]),
        (cublas, "libcublasLt.so.12", spy["RABBET_CUDA_CUBLASLT"]),
    ):
        (tmp_path / "nvidia" / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / "nvidia" / folder / name).symlink_to(source)
    for part in Path(spy["CUSIM_FOLDER"]).iterdir():  # what the stand-in of NVRTC has beside it
        (tmp_path / "nvidia" / nvrtc / part.name).symlink_to(part)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    env = {k: v for k, v in spy.items() if k not in ("RABBET_CUDA_NVRTC", "RABBET_CUDA_CUBLASLT")}
    said = run(START + "print((device(8, 4) @ device(4, 6)).sum().item())", **env, PYTHONPATH=path)
    assert "multiply" in said and said.endswith("192.0\n")


ONES = "import rabbet; print((rabbet.ones(3, device='cuda') + 1).tolist())"


def without_compiler(simulator, site):
    """The environment, where a copy of the backend in `site` finds no NVRTC of this machine's."""
    assert simulator["CUSIM_FOLDER"]  # a real device needs this machine's
    package = Path(importlib.util.find_spec("rabbet_backend_cuda").origin).parent
    shutil.copytree(package, site / "rabbet_backend_cuda")
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    env = {k: v for k, v in simulator.items() if k != "RABBET_CUDA_NVRTC"}
    return {**env, "PYTHONPATH": path, "LD_LIBRARY_PATH": "", "CUDA_HOME": "/nowhere"}


def put_compiler(simulator, folder, name):
    """The stand-in for NVRTC with what it needs beside it."""
    folder.mkdir(parents=True)
    for part in Path(simulator["CUSIM_FOLDER"]).iterdir():
        (folder / part.name).symlink_to(part)
    (folder / name).symlink_to(simulator["RABBET_CUDA_NVRTC"])


@pytest.mark.parametrize("version,right", [("12040", 12), ("13000", 13)])
def test_a_driver_of_cuda_12_gets_the_compiler_of_cuda_12(run, simulator, tmp_path, version, right):
    """It takes no code of newer ones. The other one here is no compiler."""
    env = without_compiler(simulator, tmp_path)
    for generation, folder in ((12, "cuda_nvrtc/lib"), (13, "cu13/lib")):
        place, name = tmp_path / "nvidia" / folder, f"libnvrtc.so.{generation}"
        if generation == right:
            put_compiler(simulator, place, name)
        else:
            place.mkdir(parents=True)
            (place / name).symlink_to(simulator["RABBET_CUDA_CUBLASLT"])
    assert run(ONES, **env, CUSIM_VERSION=version) == "[2.0, 2.0, 2.0]\n"


def test_the_toolkit_s_folder_is_the_last_that_is_tried(run, simulator, tmp_path):
    env = without_compiler(simulator, tmp_path / "site")
    put_compiler(simulator, tmp_path / "lib64", "libnvrtc.so.13")
    assert run(ONES, **{**env, "CUDA_HOME": str(tmp_path)}) == "[2.0, 2.0, 2.0]\n"


@pytest.mark.parametrize(
    "capability,known,target",
    [
        ("90", "75,80,90,100", "sm_90"),
        ("86", "75,80,90", "sm_80"),  # of the same generation
        ("103", "90,100,101,120", "sm_100"),  # 101 is of an embedded system
        ("100", "75,80,90", "compute_90"),  # the driver compiles it on
        ("75", "80,90", "sm_75"),
    ],
)
def test_kernels_are_compiled_for_what_the_compiler_knows(
    run, simulator, capability, known, target
):
    code = """
import rabbet
try: print((rabbet.ones(3, device="cuda") + 1).tolist())
except rabbet.DeviceError as error: print(error)
"""
    env = {**simulator, "CUSIM_CAPABILITY": capability, "CUSIM_ARCHITECTURES": known}
    runs = target != "sm_75"
    assert (run(code, **env) == "[2.0, 2.0, 2.0]\n") == runs
    fault = {"CUSIM_REPLACE": "rb_kernel", "CUSIM_REPLACE_BY": "+"} if runs else {}
    assert f"does not compile for {target} (NVRTC" in run(code, **env, **fault)


def test_a_compiler_that_is_named_finds_what_lies_beside_it(run, null_driver):
    """The real one: it opens its builtins by their name alone."""
    library = find_nvrtc()
    if not library:
        pytest.skip("NVRTC is not here")
    names = ("RABBET_CUDA_CUBLASLT", "RABBET_CUDA_CUDNN")
    env = {**null_driver, **dict.fromkeys(names, ""), "RABBET_CUDA_NVRTC": str(library)}
    assert run("import rabbet; print(rabbet.ones(3, device='cuda').shape)", **env)


def test_a_compiler_that_is_nowhere_is_asked_for(run, simulator, tmp_path):
    code = """
import rabbet
try: rabbet.ones(2, 3, device="cuda")
except rabbet.DeviceError as error: print(error)
"""
    env = without_compiler(simulator, tmp_path)
    assert "pip install 'rabbet-backend-cuda[cuda13]'" in run(code, **env)
    said = run(code, **env, CUSIM_VERSION="12040")
    assert (
        "the driver is of CUDA 12" in said and "pip install 'rabbet-backend-cuda[cuda12]'" in said
    )
