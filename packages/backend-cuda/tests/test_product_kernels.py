"""The kernels of products and attention, compiled by the real NVRTC for four architectures: no spills, and tensor cores where there are."""

import ctypes
import glob
import os
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

KERNELS = Path(__file__).resolve().parent.parent / "kernels"


def nvrtc_folder():
    """RABBET_TEST_NVRTC, or the folder of the wheel nvidia-cuda-nvrtc."""
    if named := os.environ.get("RABBET_TEST_NVRTC"):
        return named
    spec = find_spec("nvidia")
    for root in spec.submodule_search_locations if spec else ():
        if glob.glob(f"{root}/cu13/lib/libnvrtc.so.13"):
            return f"{root}/cu13/lib"
    return None


@pytest.fixture(scope="module")
def nvrtc():
    folder = nvrtc_folder()
    if folder is None:
        pytest.skip(
            "NVRTC is not installed: pip install nvidia-cuda-nvrtc, or RABBET_TEST_NVRTC=its lib folder"
        )
    for builtins in glob.glob(f"{folder}/libnvrtc-builtins.so.13*"):
        ctypes.CDLL(builtins, mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(f"{folder}/libnvrtc.so.13")


def compiled(nvrtc, text, architecture):
    """What the assembler says of the kernel, and its PTX."""
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"k.cu", 0, None, None)
    options = [
        f"--gpu-architecture={architecture}",
        "--std=c++17",
        "--fmad=false",
        "--ptxas-options=-v",
    ]
    status = nvrtc.nvrtcCompileProgram(
        program, 4, (ctypes.c_char_p * 4)(*(o.encode() for o in options))
    )
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size))
    ptx = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetPTX(program, ptx)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    assert status == 0, log.value.decode()
    return log.value.decode(), ptx.value.decode()


def read(name):
    """A text with the texts that it includes."""
    text = (KERNELS / f"{name}.cuh").read_text()
    return re.sub(r'#include "([a-z]+)\.cuh"\n', lambda part: read(part.group(1)), text)


def text_of(types, names, macro):
    """As launch/image.cpp puts it together."""
    typedefs = [f"typedef {name} {letter};\n" for letter, name in types.items()]
    return "".join([read("types"), read("block"), *typedefs, *map(read, names), macro, "\n"])


def product_text(stored, computed, kernel):
    types = {"A": stored, "T": computed, "O": stored, "D": stored}
    names = ["matmul", "tensor_core"] if "TensorCores" in kernel else ["matmul"]
    return text_of(types, names, f"RB_PRODUCT(256, x, {kernel})")


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100", "sm_120"])
@pytest.mark.parametrize(
    "stored,computed,kernel",
    [
        ("float", "float", "Tiles<128, 8>"),
        ("Complex<double>", "Complex<double>", "Tiles<64, 8>"),
        ("Half", "float", "Rows"),
        ("BFloat16", "float", "TensorCores<true, true>"),
        ("Half", "float", "TensorCores<false, false>"),
        ("float", "float", "TensorCores<true, false>"),
    ],
)
def test_products_compile_without_spills(nvrtc, stored, computed, kernel, architecture):
    log, ptx = compiled(nvrtc, product_text(stored, computed, kernel), architecture)
    assert re.search(r"\b0 bytes spill stores, 0 bytes spill loads", log), log
    assert int(re.search(r"Used (\d+) registers", log).group(1)) <= 255
    on_tensor_cores = "TensorCores" in kernel
    assert ("mma.sync.aligned.m16n8k" in ptx) == on_tensor_cores == ("cp.async.cg" in ptx)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100", "sm_120"])
@pytest.mark.parametrize(
    "stored,macro,masked",
    [
        ("Half", "", "true"),
        ("BFloat16", "_QUERIES", "true"),
        ("Half", "_KEYS", "true"),
        ("BFloat16", "_KEYS", "false"),
    ],
)
def test_attention_of_halves_compiles_without_spills(nvrtc, stored, macro, masked, architecture):
    types = {"A": stored, "T": "float", "M": "bool", "S": "float", "O": stored}
    macro = f"RB_ATTENTION_MMA{macro}(128, 4, {masked})"
    text = text_of(types, ["attention", "attention_mma"], macro)
    log, ptx = compiled(nvrtc, text, architecture)
    assert re.search(r"\b0 bytes spill stores, 0 bytes spill loads", log), log
    assert "mma.sync.aligned.m16n8k16" in ptx and "cp.async.cg" in ptx
