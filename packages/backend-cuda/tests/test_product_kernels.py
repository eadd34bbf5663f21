"""The kernels of products, convolutions and attention, compiled by the real NVRTC for four architectures: no spills, and tensor cores where there are."""

import re

import pytest
from kernel_texts import KERNELS, PACKAGE
from nvrtc import Nvrtc, find_nvrtc


@pytest.fixture(scope="module")
def nvrtc():
    library = find_nvrtc()
    if library is None:
        pytest.skip(
            "NVRTC is not installed: pip install nvidia-cuda-nvrtc, or RABBET_TEST_NVRTC=its lib folder"
        )
    return Nvrtc(library)


def compiled(nvrtc, text, architecture):
    """What the assembler says of the kernel, and its PTX."""
    made = nvrtc.compile(text, architecture, "--ptxas-options=-v")
    return made.log, made.ptx


def read(name):
    """A text with the texts that it includes, and core's header without those of C."""
    text = (KERNELS / f"{name}.cuh").read_text()
    text = re.sub(r'#include "([a-z]+)\.cuh"\n', lambda part: read(part.group(1)), text)
    header = (PACKAGE.parent / "core/include/rabbet/philox.h").read_text()
    return text.replace('#include "rabbet/philox.h"\n', re.sub(r"#include <[a-z]+\.h>", "", header))


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
        ("Half", "", "1"),
        ("BFloat16", "_QUERIES", "1"),
        ("Half", "_KEYS", "1"),
        ("BFloat16", "_KEYS", "0"),
    ],
)
def test_attention_of_halves_compiles_without_spills(nvrtc, stored, macro, masked, architecture):
    types = {"A": stored, "T": "float", "M": "bool", "S": "float", "O": stored}
    macro = f"RB_ATTENTION_MMA{macro}(128, 4, {masked}, 1)"
    text = text_of(types, ["attention", "attention_mma"], macro)
    log, ptx = compiled(nvrtc, text, architecture)
    assert re.search(r"\b0 bytes spill stores, 0 bytes spill loads", log), log
    assert "mma.sync.aligned.m16n8k16" in ptx and "cp.async.cg" in ptx


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100", "sm_120"])
@pytest.mark.parametrize(
    "stored,macro",
    [
        ("Half", "RB_CONV_MMA(128, true)"),
        ("float", "RB_CONV_MMA(64, true)"),
        ("BFloat16", "RB_CONV_MMA_DW(128, true, true)"),
    ],
)
def test_convolutions_compile_without_spills(nvrtc, stored, macro, architecture):
    """Where channels lie together; kernel_budget.json has the others."""
    text = text_of({"A": stored, "O": stored, "V": stored}, ["conv_mma"], macro)
    log, ptx = compiled(nvrtc, text, architecture)
    assert re.search(r"\b0 bytes spill stores, 0 bytes spill loads", log), log
    assert "mma.sync.aligned.m16n8k" in ptx and "cp.async.cg" in ptx
