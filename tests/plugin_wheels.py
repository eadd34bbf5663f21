"""Small plugins in C, built and installed as a stranger's wheel would be."""

import os
import subprocess
import sys
from pathlib import Path

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


def build(folder: Path, name: str, headers: Path | None = None, **changes: str) -> Path:
    """A library that needs what MANIFEST says, or `minor`, or `needed`; built with core's headers or others."""
    source, library = folder / f"{name}.c", folder / f"lib{name}.so"
    words = {**GOOD, **changes}
    source.write_text(SOURCE % {**words, "needed": words["needed"] or changes.get("minor", "3")})
    command = [
        "gcc",
        "-std=c11",
        "-shared",
        "-fPIC",
        "-Wall",
        "-Wno-unused-function",
        "-I",
        str(headers or rabbet.get_include()),
        str(source),
    ]
    subprocess.run([*command, "-o", str(library)], check=True)
    return library


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
    'name = "{0}-plugin"\nkind = "{1}"\nprovides = ["{0}"]\nlibrary = "lib{0}.so"\nabi = [0, 3]\n'
)
