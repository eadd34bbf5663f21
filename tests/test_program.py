"""Programs without Python: they start core, find plugins by their manifests, and run operators."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import rabbet
from plugin_wheels import MANIFEST, build, build_backend, install

EXAMPLE = Path(__file__).resolve().parent.parent / "examples/c-program/linear_softmax.c"
CORE = Path(rabbet.__file__).parent
SITE = CORE.parent
# Runs the example's main(), and then prints the libraries of the process.
SHOW_MAPS = """
#include <stdio.h>
int program(int argc, char** argv);
int main(int argc, char** argv) {
  char line[4096];
  const int code = program(argc, argv);
  FILE* maps = fopen("/proc/self/maps", "r");
  while (maps && fgets(line, sizeof line, maps)) fputs(line, stderr);
  return code;
}
"""


def compile_program(folder: Path, *options: str) -> Path:
    """A C program, built as examples/c-program/README.md says."""
    program = folder / "program"
    command = ["cc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-I", rabbet.get_include(), *options, "-L", str(CORE),
               "-lrabbet_core", f"-Wl,-rpath,{CORE}", "-o", str(program)]  # fmt: skip
    subprocess.run(command, check=True)
    return program


def run(program: Path, *arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
    command = [str(program), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env})


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    return compile_program(tmp_path_factory.mktemp("program"), str(EXAMPLE))


def test_the_example_is_short():
    assert len(EXAMPLE.read_text().splitlines()) < 80


def test_the_example_prints_what_numpy_computes(example):
    done = run(example)
    assert done.returncode == 0, done.stderr
    x, w = np.array([[1, 2, 3], [-1, 0, 1]]), np.array([[1, 0, -1], [0.5, 0.5, 0.5]])
    powers = np.exp(x @ w.T + np.array([0, 1]))
    printed = [[float(n) for n in line.split()] for line in done.stdout.splitlines()]
    np.testing.assert_allclose(printed, powers / powers.sum(1, keepdims=True), atol=2e-6)


def test_the_example_neither_links_nor_loads_python(example, tmp_path):
    linked = subprocess.run(["ldd", str(example)], capture_output=True, text=True, check=True)
    names = {line.split()[0] for line in linked.stdout.splitlines()}
    assert "librabbet_core.so" in names and not [n for n in names if "python" in n]
    main = tmp_path / "maps.c"
    main.write_text(SHOW_MAPS)
    renamed = tmp_path / "renamed.c"
    renamed.write_text(f'#define main program\n#include "{EXAMPLE}"\n')
    done = run(compile_program(tmp_path, str(main), str(renamed)))
    libraries = {Path(m) for m in re.findall(r"(/\S+\.so\S*)", done.stderr)}
    names = {library.name for library in libraries}
    assert {"librabbet_core.so", "librabbet_backend_cpu.so"} <= names
    assert not [name for name in names if re.match(r"libpython|_C\.|_dispatch\.", name)]


def test_the_library_has_a_soname_and_needs_nothing_of_python():
    library = CORE / "librabbet_core.so"
    header = subprocess.run(
        ["readelf", "-d", str(library)], capture_output=True, text=True, check=True
    )
    assert "soname: [librabbet_core.so]" in header.stdout
    symbols = subprocess.run(
        ["nm", "-D", "--undefined-only", str(library)], capture_output=True, text=True, check=True
    )
    assert not re.search(r"\b_?Py[A-Z_]", symbols.stdout)


def test_folders_are_searched_in_their_order(example, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    assert run(example, tmp_path / "gone", empty, SITE).returncode == 0
    done = run(example, empty)
    assert done.returncode == 1
    assert "find_backend: no installed plugin of kind backend provides 'cpu'; there are: none" in (
        done.stderr
    )


def test_the_environment_chooses_plugins(example):
    assert run(example, RABBET_PLUGINS="cpu").returncode == 0
    done = run(example, RABBET_PLUGINS="0")
    assert done.returncode == 1 and "provides 'cpu'" in done.stderr


# What calls the C functions, in a process of its own that has no `rabbet`.
PRELUDE = f"""
import ctypes, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from host_table import host_of, message
lib = ctypes.CDLL({str(CORE / "librabbet_core.so")!r})
lib.rabbet_host.restype = ctypes.c_void_p
host = host_of(lib.rabbet_host())
def start(*folders):
    names = (ctypes.c_char_p * len(folders))(*(f.encode() for f in folders))
    return said(lib.rabbet_start(names, len(folders)))
def said(code):
    return "" if code == 0 else message(host)
SITE = {str(SITE)!r}
"""


def call(code: str, **env: str) -> str:
    """What a process prints that calls core's C functions."""
    done = subprocess.run([sys.executable, "-c", PRELUDE + code], capture_output=True, text=True,
                          env={**os.environ, **env})  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_layers_and_packs_are_loaded_by_name():
    code = """
print([start(SITE), said(lib.rabbet_require(b"transform", b"autograd")), said(lib.rabbet_require(b"transform", b"autograd"))])
print(said(lib.rabbet_require(b"transform", b"nowhere")))
print(said(lib.rabbet_require(b"toaster", b"autograd")))
print(said(lib.rabbet_require(None, b"autograd")), said(lib.rabbet_require(b"ops", None)))
"""
    first, missing, kind, null = call(code).splitlines()
    assert first == "['', '', '']"
    assert missing.startswith(
        "no installed plugin of kind transform provides 'nowhere'; there are:"
    )
    assert "autograd" in missing and "vmap" in missing
    assert kind == "rabbet_require: kind must be backend, transform or ops, got 'toaster'"
    assert null == "rabbet_require: the kind is null rabbet_require: the name is null"


def test_wrong_calls_are_errors():
    code = """
print(said(lib.rabbet_require(b"backend", b"cpu")))
print(said(lib.rabbet_start(None, 3)))
print(said(lib.rabbet_start(None, -1)))
print(start(SITE), start(SITE))
print(said(lib.rabbet_load(None)))
print(said(lib.rabbet_load(b"/nowhere/lib.so")))
"""
    lines = call(code).splitlines()
    assert lines[0] == "rabbet_require: rabbet_start has not been called"
    assert lines[1] == "rabbet_start: 3 folders, but the array is null"
    assert lines[2] == "rabbet_start: -1 folders, but the array is null"
    assert lines[3] == " rabbet_start: it has been called already"
    assert lines[4] == "rabbet_load: the path is null"
    assert lines[5].startswith("dlopen failed: /nowhere/lib.so")


def test_a_broken_plugin_breaks_only_itself(tmp_path):
    install(tmp_path, "one", "garbage [")
    install(tmp_path, "two", None)
    install(tmp_path, "three", MANIFEST.format("three", "backend").replace("[0, 6]", "[0, 99]"))
    install(tmp_path, "four", MANIFEST.format("four", "backend"))
    install(tmp_path, "five", MANIFEST.format("five", "backend"), build(tmp_path, "five"))
    code = f"""
print([start({str(tmp_path)!r}, SITE)])
backend = ctypes.c_int32()
for name in (b"one", b"two", b"three", b"four", b"five", b"cpu"):
    print(said(host.find_backend(name, ctypes.byref(backend))))
"""
    lines = call(code).splitlines()
    assert lines[0] == "['']" and lines[-1] == ""
    wheel = "plugin '{0}' (wheel {0}-plugin 1.0) is installed but failed at stage {1}: "
    for line, name, stage, cause in zip(
        lines[1:-1],
        ("one", "two", "three", "four", "five"),
        ("manifest", "manifest", "manifest", "load", "load"),
        ("is no TOML file: line 1: expected =", "no folder that was searched has two_plugin/rabbet_plugin.toml",
         "upgrade rabbet-core", "dlopen failed", "provides the device 'five', but its library registered none"),
        strict=True,
    ):  # fmt: skip
        assert line.startswith(wheel.format(name, stage)) and cause in line, line


def test_a_device_of_another_wheel_is_loaded_when_it_is_asked_for(tmp_path):
    install(tmp_path, "far", MANIFEST.format("far", "backend"), build_backend(tmp_path, "far"))
    code = f"""
print([start({str(tmp_path)!r}, SITE)])
backend, count = ctypes.c_int32(), ctypes.c_int32()
print([said(host.find_backend(b"far", ctypes.byref(backend))), host.backend_name(backend.value)])
print([said(host.device_count(backend.value, ctypes.byref(count))), count.value])
"""
    assert call(code) == "['']\n['', b'far']\n['', 1]\n"
