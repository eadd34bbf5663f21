"""Small plugins in C, built and installed as a stranger's wheel would be."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import rabbet

SOURCE = """
#include "rabbet/abi.h"
#include <string.h>
%(extra)s
static int32_t init(const RbHost* host, RbTxn* txn) { %(init)s }
static const RbPlugin plugin = {RB_SIZE(RbPlugin, retire), %(major)s, %(minor)s, %(needed)s, 0, 0, "%(wheel)s", "1.0", init, 0};
RB_EXPORT const RbPlugin* %(symbol)s(void) { return &plugin; }
"""
GOOD = {"extra": "", "init": "(void)host; (void)txn; return RB_OK;", "major": "RB_ABI_MAJOR", "minor": "RB_ABI_MINOR", "needed": "",
        "symbol": "rabbet_plugin_v0", "wheel": "odd"}  # fmt: skip
KERNEL = """
static int32_t run(void* s, const RbCall* c, const RbValue* a, int32_t n, RbValue* r, int32_t m)
{ (void)s; (void)c; (void)a; (void)n; (void)r; (void)m; return RB_OK; }
static RbKernel kernel(const char* op, const char* schema)
{ RbKernel k; memset(&k, 0, sizeof k); k.struct_size = sizeof k; k.op = op; k.backend = "odd"; k.schema = schema;
  k.fn = run; return k; }
"""


# A backend whose addresses are disguised: who reads through one of another backend crashes.
BACKEND = r"""
#include "rabbet/abi.h"
#include <stdlib.h>
#include <string.h>
#define MASK ((uintptr_t)KEY << 48)
static const RbHost* core;
static int forked;
static int32_t self_id;
static void* real(const RbTensor* t)
{ return t->backend == self_id ? (void*)((uintptr_t)t->data ^ MASK) : t->data; }
static int32_t alloc(void* s, int32_t device, uint64_t n, void* stream, RbBuffer* out)
{ (void)s; (void)stream;
  if (forked) return core->err_set(RB_E_DEVICE, NAME ": lost by fork");
  if (n > 1 << 22) return core->err_set(RB_E_DEVICE, NAME ": unplugged");
  if (n > 1 << 20) return core->err_set(RB_E_OOM, NAME ": small");
  out->data = (void*)((uintptr_t)malloc(n) ^ MASK); return RB_OK; }
static void release(void* s, RbBuffer* b, void* stream)
{ (void)s; (void)stream; free((void*)((uintptr_t)b->data ^ MASK)); }
static int32_t count(void* s, int32_t* n) { (void)s; *n = 1; return RB_OK; }
static int32_t sync(void* s, int32_t d) { (void)s; (void)d; return RB_OK; }
static int32_t copy(void* s, const RbTensor* from, const RbTensor* to, void* stream, uint32_t f)
{ (void)s; (void)stream; (void)f; memcpy(real(to), real(from), from->numel * (from->dtype.bits / 8)); return RB_OK; }
static void fork_child(void* s) { (void)s; forked = 1; }
static const RbAllocator allocator = {RB_SIZE(RbAllocator, free), 0, 0, alloc, release};
static const RbDevices devices = {RB_SIZE(RbDevices, fork_child), 0, 0, count, sync, copy, fork_child};
static const RbBackend backend = {RB_SIZE(RbBackend, allocator), 0, NAME, 12, 0, &devices, &allocator};
static int32_t init(const RbHost* host, RbTxn* txn) { core = host; return host->add_backend(txn, &backend, &self_id); }
static const RbPlugin plugin = {RB_SIZE(RbPlugin, retire), RB_ABI_MAJOR, RB_ABI_MINOR, RB_ABI_NEEDED, 0, 0, NAME, "1", init, 0};
RB_EXPORT const RbPlugin* rabbet_plugin_v0(void) { return &plugin; }
"""


def compile_library(
    folder: Path,
    name: str,
    source: str,
    *options: str,
    language: str = "c",
    headers: Path | None = None,
) -> Path:
    """A library out of C or C++, with core's headers or others."""
    path, library = folder / f"{name}.{language}", folder / f"lib{name}.so"
    path.write_text(source)
    command = ["gcc", "-std=c11"] if language == "c" else ["g++", "-std=c++17"]
    command += ["-shared", "-fPIC", "-Wall", "-Wno-unused-function"]
    command += ["-I", str(headers or rabbet.get_include())]
    subprocess.run([*command, str(path), *options, "-o", str(library)], check=True)
    return library


def build_backend(folder: Path, name: str) -> Path:
    """A healthy backend with one device and memory that the host cannot read."""
    key = 0x40 + sum(name.encode()) % 0x3F
    return compile_library(folder, name, BACKEND, f"-DKEY=0x{key:x}", f'-DNAME="{name}"')


def build_lazy(folder: Path, flags: str = "0") -> Path:
    """The backend `lazy`: it has streams, and work runs only when something waits for it. `flags`: of RbBackend."""
    source = (Path(__file__).parent / "lazy_backend.cpp").read_text()
    options = ("-O1", "-fvisibility=hidden", f"-DLAZY_FLAGS={flags}")
    return compile_library(folder, "lazy", source, *options, language="cpp")


def load_lazy(folders: Any) -> str:
    """Load the backend `lazy` into this process, once; its library. `folders`: pytest's tmp_path_factory."""
    for plugin in rabbet._C.plugins():
        if plugin["name"] == "lazy-plugin":
            return str(plugin["path"])
    library = str(build_lazy(folders.mktemp("lazy")))
    rabbet._C.load_plugin(library)
    return library


def build(folder: Path, name: str, headers: Path | None = None, **changes: str) -> Path:
    """A library that needs what MANIFEST says, or `minor`, or `needed`; built with core's headers or others."""
    words = {**GOOD, **changes}
    words["needed"] = words["needed"] or changes.get("minor", "6")
    return compile_library(folder, name, SOURCE % words, headers=headers)


def install(
    folder: Path, name: str, manifest: str | None, library: Path | None = None, code: str = ""
) -> None:
    """A wheel as pip would have left it in `folder`."""
    package = folder / f"{name}_plugin"
    package.mkdir()
    (package / "__init__.py").write_text(code)
    if manifest is not None:
        (package / "rabbet_plugin.toml").write_text(manifest)
    if library:
        library.rename(package / library.name)
    info = folder / f"{name}_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[rabbet.plugins]\n{name} = {name}_plugin\n")


def run(folder: Path, code: str, **env: str) -> str:
    paths = [str(folder), *[p for p in sys.path if p]]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **env}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


MANIFEST = (
    'name = "{0}-plugin"\nkind = "{1}"\nprovides = ["{0}"]\nlibrary = "lib{0}.so"\nabi = [0, 6]\n'
)


def process_with(folder: Path, source: str, prelude: str) -> Any:
    """A function that runs code in a process of its own, after `from prelude import *`, and returns what it prints.

    The plugin `source`, a file beside this one, is compiled once; its library is the process's first argument.
    """
    here = Path(__file__).parent
    text = (here / source).read_text()
    options = ("-O1", "-fvisibility=hidden", "-DRB_ABI_NEEDED=6")
    library = compile_library(folder, Path(source).stem, text, *options, language="cpp")

    def execute(code: str) -> str:
        paths = [str(here), *[p for p in sys.path if p]]
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", f"from {prelude} import *\n{code}", str(library)],
            capture_output=True, text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    execute.library = library  # type: ignore[attr-defined]
    return execute
