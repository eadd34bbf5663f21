"""What a launch passes by value is laid out alike on the host and in the kernels, where each side declares it."""

import re
import subprocess
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1]
# The kernel's struct, where it stands, and the host's.
TWINS = {
    ("types", "Layout"): ("launch/layout.h", "Layout"),
    ("types", "Number"): ("launch/jit.h", "Number"),
    ("block", "Divisor"): ("launch/layout.h", "Divisor"),
    ("block", "Layout32"): ("launch/layout.h", "Layout32"),
    ("lines", "Lines"): ("launch/lines.h", "Lines"),
    ("lines", "Strided"): ("launch/packs.h", "Strided"),
    ("lines", "Nested"): ("launch/packs.h", "Nested"),
    ("lines", "NestedFar"): ("launch/packs.h", "NestedFar"),
    ("report", "Report"): ("device/report.cpp", "Report"),
    ("report", "Finder"): ("device/report.h", "Finder"),
    ("attention", "Operand"): ("ops/attention.cpp", "AttentionOperand"),
    ("attention", "Attention"): ("ops/attention.cpp", "Attention"),
    ("conv", "Conv"): ("ops/conv.h", "Conv"),
    ("conv_mma", "Phase"): ("ops/conv_mma.cpp", "Phase"),
    ("conv_mma", "ConvCall"): ("ops/conv_mma.cpp", "ConvCall"),
    ("elementwise", "Call"): ("ops/loop.h", "Call"),
    ("fourier", "HalfSpectrum"): ("ops/fourier.cpp", "HalfSpectrum"),
    ("index", "Reach"): ("ops/index.cpp", "Reach"),
    ("loss", "Task"): ("ops/loss.cpp", "Task"),
    ("matmul", "Factor"): ("ops/product.cpp", "Factor"),
    ("matmul", "Product"): ("ops/product.cpp", "ProductCall"),
    ("movement", "Parts"): ("ops/movement.cpp", "Parts"),
    ("norm", "Gradients"): ("ops/norm.cpp", "Gradients"),
    ("optim", "Entry"): ("ops/optim.cpp", "Entry"),
    ("optim", "Table"): ("ops/optim.cpp", "Table"),
    ("optim", "Now"): ("ops/optim.cpp", "Now"),
    ("order", "Sorting"): ("ops/radix.h", "Sorting"),
    ("order", "SelectMemory"): ("ops/order.cpp", "SelectMemory"),
    ("pool", "Pool"): ("ops/pool.cpp", "Pool"),
    ("random", "Stream"): ("ops/random.cpp", "Stream"),
    ("recurrent", "RecurrentStep"): ("ops/recurrent.cpp", "RecurrentStep"),
    ("cells", "Results"): ("ops/recurrent.h", "RecurrentResults"),
    ("sequence", "Sequence"): ("ops/recurrent_sequence.cpp", "Sequence"),
    ("sequence", "Offsets"): ("ops/recurrent_sequence.cpp", "Offsets"),
    ("reduce", "Finish"): ("ops/reduce.cpp", "Finish"),
    ("scan", "ScanLine"): ("ops/scan.cpp", "ScanLine"),
    ("scan", "LookBack"): ("ops/scan.cpp", "LookBack"),
    ("search", "Coordinates"): ("ops/search.cpp", "Coordinates"),
}
# One text serves both sides; or a name that a typedef or a template gives to one of the above, or to a number.
SHARED = {"Numbers", "Options"}
NAMES = {"Int64", "UInt64", "int", "double", "T", "L", "__VA_ARGS__", "Gradients<T>", "INNER"}

BEGIN = """
#include <cstddef>
#include <cstdint>
#include "rabbet/emit.h"
#include "rabbet/plugin.hpp"
#define __device__
typedef long long Int64;
typedef unsigned long long UInt64;
typedef unsigned UInt32;
struct A; struct D; struct E; struct T; template <class X> struct Pair;
"""


def read(path):
    """Without comments."""
    return re.sub(r"//.*", "", (PACKAGE / path).read_text())


def struct(text, name):
    """The struct's text up to its functions."""
    begin = re.search(rf"^ *struct {name} \{{", text, re.M)
    assert begin, name
    depth, at = 1, begin.end()
    while depth:
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
    body = text[begin.end() : at - 1]
    body = re.split(r"\n[^\n;]*\([^\n]*\{", body)[0]  # functions come last
    return f"struct {name} {{{body}}}"


def members(text):
    """Names in their order."""
    body = text[text.index("{") + 1 : text.rindex("}")]
    while re.search(r"\bstruct \w+ \{[^{}]*\}", body):  # a struct in it counts by its member
        body = re.sub(r"\bstruct \w+ \{[^{}]*\}", "inner", body)
    words = [re.sub(r"\[[^]]*\]", "", part) for part in body.split(";") if part.strip()]
    return [re.findall(r"\w+", name)[-1] for part in words for name in part.split(",")]


def sizes(text, struct_text):
    """Constants of a file that sizes of the struct's arrays name."""
    lines = []
    for name in sorted(set(re.findall(r"\[(\w*[A-Za-z]\w*)", struct_text))):
        number = re.search(rf"\b{name}(?: =)? (\d+)\b", text)
        listed = re.search(rf"enum \w* ?\{{[^={{}}]*\b{name}\s*\}};", text)
        assert number or listed or name.startswith(("RB_MAX", "RB_EMIT")), name
        lines += [f"enum {{ {name} = {number[1]} }};"] if number else [listed[0]] if listed else []
    return lines


def unit():
    """Both sides' structs, each in a namespace of its own, and what they share before."""
    parts = {"host": ["using namespace rb;"], "kernels": []}
    checks = []
    for (family, theirs), (path, ours) in TWINS.items():
        device, host = read(f"kernels/{family}.cuh"), read(f"csrc/{path}")
        for side, file, text, name in (
            ("kernels", family, device, theirs),
            ("host", path, host, ours),
        ):
            if name == "Entry" and side == "host":  # stands within the table
                continue
            template = "template <class T> " if name == "Gradients" and side == "kernels" else ""
            # Of each a namespace: constants of several have the same names.
            space = re.sub(r"\W", "_", f"{file}_{name}")
            own = struct(text, name)
            said = [*sizes(text, own), f"{template}{own};"]
            parts[side].append(f"inline namespace {space} {{\n{chr(10).join(said)}\n}}")
        a, b = f"host::{ours}", f"kernels::{theirs}"
        if theirs == "Entry":
            a = "host::Table::Entry"
        if theirs == "Gradients":
            b = "kernels::Gradients<T>"
        checks.append(f'static_assert(sizeof({a}) == sizeof({b}), "{theirs}");')
        left, right = members(struct(host, ours)), members(struct(device, theirs))
        assert len(left) == len(right) or theirs == "Gradients", (left, right)
        for x, y in zip(left, right, strict=True):
            checks.append(f'static_assert(offsetof({a}, {x}) == offsetof({b}, {y}), "{b}::{y}");')
            checks.append(f'static_assert(sizeof({a}::{x}) == sizeof({b}::{y}), "{b}::{y}");')
    spaces = [f"namespace {side} {{\n{chr(10).join(text)}\n}}" for side, text in parts.items()]
    return BEGIN + "\n".join([*spaces, *checks]) + "\n"


def compiled(text, tmp_path):
    (tmp_path / "twins.cpp").write_text(text)
    core = PACKAGE.parent / "core/include"
    command = ["g++", "-std=c++17", "-fsyntax-only", "-w", f"-I{core}", tmp_path / "twins.cpp"]
    return subprocess.run(command, capture_output=True, text=True)


def test_twins_are_alike(tmp_path):
    done = compiled(unit(), tmp_path)
    assert done.returncode == 0, done.stderr[:4000]


@pytest.mark.parametrize(
    "right,wrong,said",
    [
        ("Int64 rows, hidden, first;", "int rows; Int64 hidden, first;", "RecurrentStep"),
        ("double count, number;", "double count; float number;", "Finish"),
        ("int32_t width, across,", "int32_t width; int64_t across; int32_t", "Lines"),
    ],
)
def test_a_twin_that_differs_is_found(tmp_path, right, wrong, said):
    text = unit()
    assert right in text
    done = compiled(text.replace(right, wrong, 1), tmp_path)
    assert done.returncode and said in done.stderr


def test_every_struct_that_a_kernel_takes_is_compared():
    taken = set()
    for path in (PACKAGE / "kernels").glob("*.cuh"):
        text = read(f"kernels/{path.name}").replace("\\\n", " ")
        for parameters in re.findall(r"rb_kernel\(([^)]*)\)", text):
            for one in filter(lambda p: "*" not in p, parameters.split(",")):
                taken.add(" ".join(one.split()).removeprefix("const ").rsplit(" ", 1)[0])
    assert taken - NAMES - SHARED <= {name for _, name in TWINS}
