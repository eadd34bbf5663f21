"""The texts of kernels that a program asks for, and what each is: no GPU, no compiler.

A program runs on the driver of sim/null.cpp, which does nothing, with RABBET_CUDA_KEEP_SOURCES.
"""

import os
import re
import runpy
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
KERNELS = PACKAGE / "kernels"
BEFORE = ("types", "block")  # of every kernel
OF_8_BITS = "float8"  # before those of such dtypes, too
PARTS = ("complex", "tensor_core")  # that may follow a family's text
INCLUDE = re.compile(r'#include "([a-z_]+\.cuh)"\n')


def raw_texts(program: Path) -> dict[str, str]:
    """What `program` asks for: "OP-HASH" to text."""
    environment = runpy.run_path(str(PACKAGE / "sim/build.py"))["null"]()
    without = dict.fromkeys(("RABBET_CUDA_CUBLASLT", "RABBET_CUDA_CUDNN"), "")
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        named = {**environment, **without, "RABBET_CUDA_KEEP_SOURCES": folder}
        subprocess.run([sys.executable, str(program)], check=True, env={**os.environ, **named})
        return {path.stem: path.read_text() for path in sorted(Path(folder).glob("*.cu"))}


@cache
def family_texts() -> dict[str, str]:
    """The texts of kernels/ as CMakeLists.txt embeds them, up to what it takes from core."""

    def whole(name: str) -> str:
        return INCLUDE.sub(lambda found: whole(found[1]), (KERNELS / name).read_text())

    texts = {path.stem: whole(path.name) for path in sorted(KERNELS.glob("*.cuh"))}
    return {name: text.partition('#include "rabbet/')[0] for name, text in texts.items()}


@dataclass(frozen=True)
class Kernel:
    """One text, taken apart."""

    family: str
    types: tuple[tuple[str, str], ...]  # ("A", "float"), ...
    behind: str  # the macro that makes the kernel, and a line before it that it needs
    text: str

    @property
    def name(self) -> str:
        types = " ".join(f"{letter}={name}" for letter, name in self.types)
        return f"{self.family}: {self.behind} {types}"

    @property
    def kind(self) -> str:
        """Of numbers, by what needs most registers."""
        names = " ".join(name for _, name in self.types)
        for word, kind in (("Float8", "byte"), ("Complex", "complex"), ("double", "double"), ("Half", "half"),
                           ("BFloat16", "half"), ("float", "float")):  # fmt: skip
            if word in names:
                return kind
        return "whole"


def kernel_of(text: str) -> Kernel:
    """Raises ValueError where the text is not of these kernels/: another version is installed."""
    families = family_texts()
    before = "".join(families[name] for name in BEFORE)
    if not text.startswith(before):
        raise ValueError("the installed backend has other kernels than kernels/: install it anew")
    rest = text[len(before) :].removeprefix(families[OF_8_BITS])
    types = []
    while found := re.match(r"typedef (\S+) ([A-Z]);\n", rest):
        types.append((found[2], found[1]))
        rest = rest[found.end() :]
    at = [name for name, own in families.items() if name not in BEFORE and rest.startswith(own)]
    if not at:
        raise ValueError(f"a text of no family of kernels/: {rest[:200]}")
    family = max(at, key=lambda name: len(families[name]))
    lines = rest.rstrip("\n").split("\n")
    first = len(lines) - 1
    while re.match(r"typedef \S.* Fold;|#define RB_ROW_TYPE |enum \{ FLAT", lines[first - 1]):
        first -= 1
    behind = "; ".join(line.rstrip(";") for line in lines[first:])
    return Kernel(family, tuple(types), behind, text)


def kernels_of(program: Path) -> list[Kernel]:
    """What `program` asks for, each text once, by name; those of one name and several texts are numbered."""
    named: dict[str, Kernel] = {}
    for text in sorted(set(raw_texts(program).values())):
        kernel, behind, number = kernel_of(text), "", 2
        behind = kernel.behind
        while kernel.name in named:
            kernel = Kernel(kernel.family, kernel.types, f"{behind} #{number}", text)
            number += 1
        named[kernel.name] = kernel
    return [named[name] for name in sorted(named)]


def making_macros() -> dict[str, set[str]]:
    """The macros of kernels/ that make kernels, and the macros that use each: those need no use of their own."""
    found = {}
    for path in KERNELS.glob("*.cuh"):
        text = path.read_text().replace("\\\n", " ")
        for name, body in re.findall(r"^#define (RB_[A-Z0-9_]+)(?:\([^)]*\))?(.*)$", text, re.M):
            found[name] = body
    making = {name for name, body in found.items() if "rb_kernel" in body}
    while more := {n for n, body in found.items() if n not in making and uses(body) & making}:
        making |= more
    return {name: {n for n in making if name in uses(found[n])} for name in making}


def uses(text: str) -> set[str]:
    return set(re.findall(r"\bRB_[A-Z0-9_]+\b", text))


def literals() -> set[str]:
    """What the C++ code puts behind a family's text: its literals that hold a macro of kernels/."""
    making, found = set(making_macros()), set()
    for path in sorted((PACKAGE / "csrc").rglob("*.cpp")):
        text = re.sub(r'"\s*\n\s*"', "", path.read_text())  # literals of several lines
        for literal in re.findall(r'"((?:[^"\\\n]|\\.)*)"', text):
            if uses(literal) & making:
                found.add(literal.replace("\\n", "\n").strip())
    return found


def missing(kernels: list[Kernel]) -> list[str]:
    """Files and macros of kernels/, and literals of the C++ code, that no kernel of the list holds."""
    used: set[str] = set().union(*(uses(kernel.behind) for kernel in kernels))
    macros = [
        name for name, users in making_macros().items() if name not in used and not users & used
    ]
    texts = {kernel.text.partition("extern")[0]: kernel.text for kernel in kernels}
    ends = {name: (KERNELS / f"{name}.cuh").read_text() for name in family_texts()}
    ends = {name: text.rpartition('philox.h"\n')[2][-200:] for name, text in ends.items()}
    files = [
        f"{name}.cuh" for name, end in ends.items() if not any(end in t for t in texts.values())
    ]
    written = "\n".join(sorted({kernel.text[-400:] for kernel in kernels}))
    return sorted(macros) + files + sorted(text for text in literals() if text not in written)
