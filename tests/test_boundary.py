"""First-party wheels have no private door: their libraries meet core through the public headers alone."""

import re
from importlib.metadata import files
from pathlib import Path

import pytest
from kit_runs import kit
from rabbet_testing.judges import library as judge

ROOT = Path(__file__).resolve().parent.parent
PUBLIC = {
    "rabbet/abi.h",
    "rabbet/plugin.hpp",
    "rabbet/values.hpp",
    "rabbet/philox.h",
    "rabbet/convert.h",
    "rabbet/packed_steps.hpp",
    "rabbet/emit.h",
    "rabbet/python.h",
    "rabbet/trace.h",
    "rabbet/python.hpp",
    "rabbet/autograd.h",
    "rabbet/functionalize.h",
    "rabbet/autocast.h",
    "rabbet/vmap.h",
}


def library(wheel: str, name: str) -> Path:
    found = [f.locate() for f in files(wheel) or [] if f.name.startswith(name) and ".so" in f.name]
    assert found, f"{wheel} is not installed with a library {name}*"
    return Path(str(found[0]))


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
    assert len(judge.exported(library("rabbet-core", "librabbet_core"))) > 100
    assert not judge.core_symbols(library(wheel, name))


@pytest.mark.parametrize("wheel,name", [*PLUGINS, ("rabbet-core", "librabbet_core")])
def test_libraries_need_no_python(wheel, name):
    assert not judge.python_symbols(library(wheel, name))


@pytest.mark.parametrize("wheel,name", PLUGINS)
def test_a_plugin_exports_one_symbol(wheel, name):
    assert judge.exported(library(wheel, name)) == {judge.ENTRY}


@pytest.mark.parametrize(
    "subject", ["--device=cpu", "--layer=autograd", "--layer=autocast", "--layer=vmap"]
)
def test_our_plugins_pass_level_0_of_the_kit(subject, tmp_path):
    done, _ = kit(tmp_path, subject, "--level=L0")
    assert done.returncode == 0 and re.search(r"L0: 1\d passed", done.stdout), done.stdout[-4000:]


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
