"""First-party wheels have no private door: their libraries meet core through the public headers alone."""

import re
import subprocess
from importlib.metadata import files
from pathlib import Path

import pytest
import rabbet

ROOT = Path(__file__).resolve().parent.parent
PUBLIC = {
    "rabbet/abi.h",
    "rabbet/plugin.hpp",
    "rabbet/values.hpp",
    "rabbet/philox.h",
    "rabbet/python.h",
    "rabbet/autograd.h",
    "rabbet/functionalize.h",
    "rabbet/autocast.h",
    "rabbet/vmap.h",
}


def library(wheel: str, name: str) -> Path:
    found = [f.locate() for f in files(wheel) or [] if f.name.startswith(name) and ".so" in f.name]
    assert found, f"{wheel} is not installed with a library {name}*"
    return Path(str(found[0]))


def symbols(path: Path, *options: str) -> set[str]:
    text = subprocess.run(
        ["nm", "-D", *options, str(path)], check=True, capture_output=True, text=True
    ).stdout
    return {line.split()[-1].split("@")[0] for line in text.splitlines()}


LIBRARIES = [
    ("rabbet-backend-cpu", "librabbet_backend_cpu"),
    ("rabbet-autograd", "librabbet_autograd"),
    ("rabbet-autocast", "librabbet_autocast"),
    ("rabbet-autograd", "_C."),
    ("rabbet-autocast", "_C."),
    ("rabbet-vmap", "librabbet_vmap"),
    ("rabbet-vmap", "_C."),
]
PLUGINS = [entry for entry in LIBRARIES if entry[1].startswith("librabbet")]


@pytest.mark.parametrize("wheel,name", LIBRARIES)
def test_no_undefined_symbol_is_cores(wheel, name):
    core = symbols(library("rabbet-core", "librabbet_core"), "--defined-only")
    assert len(core) > 100
    ours = {s for s in core if "rabbet" in s}
    assert not symbols(library(wheel, name), "--undefined-only") & ours


@pytest.mark.parametrize("wheel,name", [*PLUGINS, ("rabbet-core", "librabbet_core")])
def test_libraries_need_no_python(wheel, name):
    assert not [
        s for s in symbols(library(wheel, name), "--undefined-only") if re.match(r"_?Py", s)
    ]


@pytest.mark.parametrize("wheel,name", PLUGINS)
def test_a_plugin_exports_one_symbol(wheel, name):
    assert symbols(library(wheel, name), "--defined-only") == {"rabbet_plugin_v0"}


@pytest.mark.parametrize("package", ["backend-cpu", "autograd", "autocast", "vmap"])
def test_only_public_headers_are_included(package):
    sources = [
        f
        for p in ("*.cpp", "*.h")
        for f in (ROOT / "packages" / package).rglob(p)
        if "build" not in f.parts
    ]
    assert sources
    for source in sources:
        for header in re.findall(
            r'#include [<"](rabbet/[^>"]+|.*core/[^>"]+)[>"]', source.read_text()
        ):
            assert header in PUBLIC, f"{source} includes {header}"


def test_loading_plugins_changes_no_attribute_of_core_modules():
    code = """
import sys, rabbet
from rabbet import _C
before = {n: dict(vars(m)) for n, m in sys.modules.items() if n.split(".")[0] == "rabbet"}
rabbet.zeros(2, requires_grad=True)
state = {"_found", "_hooks"}
for name, old in before.items():
    now = vars(sys.modules[name])
    changed = {k for k in old if now.get(k) is not old[k]} - state
    assert not changed, (name, changed)
print("ok")
"""
    import sys

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "ok\n", done.stderr


def test_every_formula_of_every_record_compiles():
    rabbet._C.check_records()
