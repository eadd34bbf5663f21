"""Checks of the native side: header dialects, struct layout against the golden file, format of the sources."""

import json
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import check_order
from abi_layout import HEADER, HEADERS, ROOT, breaks, layout

GOLDEN = ROOT / "tests/abi_layout.json"


def header_compiles() -> list[str]:
    """Problems of the headers as C11 and C++17 with every warning an error."""
    problems = []
    for header in HEADERS:
        for compiler, std, lang in (("gcc", "c11", "c"), ("g++", "c++17", "c++")):
            strict = ["-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
            command = [
                compiler,
                f"-std={std}",
                *strict,
                "-I",
                str(header.parent.parent),
                "-x",
                lang,
            ]
            if subprocess.run([*command, str(header)]).returncode:
                problems.append(f"rabbet/{header.name} is not clean as {std}")
    return problems


def layout_grew() -> list[str]:
    """What broke since the golden file; appended members and constants are fine."""
    return breaks(json.loads(GOLDEN.read_text()), layout())


def sources() -> list[Path]:
    """The native sources of all packages."""
    found = (f for p in ("cpp", "h", "hpp") for f in ROOT.glob(f"packages/*/**/*.{p}"))
    return [f for f in found if "build" not in f.parts]


def formatted() -> list[str]:
    """Native sources that clang-format would change."""
    done = subprocess.run(
        ["clang-format", "--dry-run", "--Werror", *map(str, sources())],
        capture_output=True,
        text=True,
    )
    return [line for line in done.stderr.splitlines() if "error:" in line][:20]


def locks() -> list[str]:
    """Sources that take or leave Python's lock without what holds a thread that Python ends at exit."""
    home = HEADER.parent / "python.hpp"
    unguarded = re.compile(
        r"PyGILState_Ensure|PyEval_(Save|Restore)Thread|Py_\w+_ALLOW_THREADS|gil_scoped"
    )
    return [
        f"{f.relative_to(ROOT)}: {found[0]}; rabbet/python.hpp has WithGil and WithoutGil"
        for f in sources()
        if f != home and (found := unguarded.search(f.read_text()))
    ]


def folders() -> list[str]:
    """Sources that include a folder which the README of their own does not name."""
    problems = []
    for readme in ROOT.glob("packages/*/csrc/**/README.md"):
        named = re.search(r"^May include: (.*)\.$", readme.read_text(), re.M)
        if not named:
            continue
        home = readme.parent
        allowed = {home.name, "rabbet", *re.findall(r"\w+", named[1])}
        for source in home.glob("*.[ch]*"):
            for folder in re.findall(r'#include "(\w+)/', source.read_text()):
                if folder not in allowed:
                    problems.append(f"{source.relative_to(ROOT)} includes {folder}/")
    return problems


if __name__ == "__main__":
    found = (
        header_compiles()
        + layout_grew()
        + formatted()
        + locks()
        + folders()
        + check_order.problems()
    )
    print("\n".join(found) or "native checks passed")
    sys.exit(bool(found))
