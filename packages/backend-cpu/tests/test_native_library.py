"""What the library may depend on, and what its parts may define."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from native_host import INCLUDE, Host

SOURCES = Path(__file__).parents[1] / "csrc"
GENERATED = {"fused_bodies.inc", "fused_kernels.inc"}  # by `python -m rabbet emit`


def symbols(path: Path, *flags: str) -> list[str]:
    nm = shutil.which("nm")
    if nm is None:
        pytest.skip("needs nm")
    return subprocess.run(
        [nm, *flags, str(path)], check=True, capture_output=True, text=True
    ).stdout.splitlines()


def test_library_exports_one_symbol(native_library: Path) -> None:
    names = [line.split()[-1] for line in symbols(native_library, "-D", "--defined-only")]
    assert names == ["rabbet_plugin_v0"]


def test_library_needs_neither_core_nor_python(native_library: Path) -> None:
    undefined = [line.split()[-1] for line in symbols(native_library, "-D", "--undefined-only")]
    assert not [name for name in undefined if re.match(r"_?Py|rabbet|_ZN6rabbet", name)]


def test_sources_include_public_headers_only() -> None:
    for path in SOURCES.rglob("*.[ch]*"):
        for header in re.findall(r'#include "([^"]+)"', path.read_text()):
            public = header.startswith("rabbet/") and (INCLUDE / header).exists()
            known = (SOURCES / header).exists() or header in GENERATED
            assert public or known, f"{path.name} includes {header}"


@pytest.mark.parametrize(
    "source", sorted(str(p.relative_to(SOURCES)) for p in SOURCES.rglob("*_simd.cpp"))
)
def test_level_files_define_no_weak_symbols(source: str, tmp_path: Path) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++")
    target = tmp_path / "level.o"
    emit = [sys.executable, "-m", "rabbet", "emit", "--dialect", "cpu", str(tmp_path)]
    subprocess.run(emit, check=True)
    flags = ["-std=gnu++17", "-O3", "-fPIC", "-fvisibility=hidden", "-DRB_LEVEL=v2"]
    flags += [f"-I{INCLUDE}", f"-I{SOURCES}", f"-I{tmp_path}"]
    subprocess.run([compiler, *flags, "-c", str(SOURCES / source), "-o", str(target)], check=True)
    shared = [line for line in symbols(target, "-C") if re.search(r" [WVu] ", line)]
    assert not shared, "one of these could replace the baseline's copy and crash older machines"


@pytest.mark.parametrize("nbytes", [0, 1, 4096, (2 << 20) - 1, 2 << 20, (5 << 20) + 3])
def test_allocations_are_aligned_and_writable(host: Host, nbytes: int) -> None:
    assert host.lib.try_allocation(nbytes) == 0


def test_impossible_allocation_is_an_error(host: Host) -> None:
    assert host.lib.try_allocation(1 << 63) == 5
    assert "cannot allocate" in host.lib.last_message().decode()


def test_every_primitive_has_a_kernel(host: Host) -> None:
    kernels = set(host.kernels())
    core_runs = {"empty", "empty_like", "to_device", "contiguous_clone"}
    for path in sorted((INCLUDE.parent / "ops").glob("*.rec")):
        for name, block in primitives(path.read_text()):
            assert name in kernels or name in core_runs, f"{path.name}: {name}\n{block}"


def primitives(text: str) -> list[tuple[str, str]]:
    """Records that a backend must have a kernel for: no decomposition, not a view."""
    found = []
    kind = ""
    for block in re.split(r"\n(?=\S)", text):
        family = re.match(r"family\s+kind\s+(\w+)", block)
        if family:
            kind = family[1]
        head = re.match(r"([a-z_0-9.]+)\(.*\) -> (.*)", block)
        if not head:
            continue
        own = re.search(r"^\s+kind\s+(\w+)", block, re.M)
        decomposed = re.search(r"^\s+decomp\s", block, re.M)
        if (own[1] if own else kind) != "composite" and not decomposed and "view" not in head[2]:
            found.append((head[1], block))
    return found


@pytest.mark.parametrize("level", [2, 3])
def test_levels_agree(host: Host, native_library: Path, tmp_path: Path, level: int) -> None:
    """Bit for bit; but at level 2, without multiply-add, the functions may differ in the last bits."""
    script = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
import numpy as np
from pathlib import Path
from native_host import Host
from test_native_library import level_results
host = Host(Path({str(native_library)!r}), Path({str(tmp_path)!r}))
np.savez({str(tmp_path / "other.npz")!r}, **level_results(host))
"""
    subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        env={**os.environ, "RABBET_CPU_LEVEL": str(level)},
    )
    other = np.load(tmp_path / "other.npz")
    for name, ours in level_results(host).items():
        if level == 3 or name.startswith("sum"):
            np.testing.assert_array_equal(ours, other[name], err_msg=name)
        else:
            np.testing.assert_array_max_ulp(ours, other[name], maxulp=4)


def level_results(host: Host) -> dict[str, np.ndarray]:
    x = np.random.default_rng(5).normal(size=(37, 1001)).astype(np.float32) * 3
    out = {
        op: host.filled(op, [x], x.shape, "float32")
        for op in ("exp", "expm1", "tanh", "erf", "sin", "cos", "sigmoid", "silu")
    }
    for op in ("log", "log2", "log10", "log1p"):
        out[op] = host.filled(op, [np.abs(x)], x.shape, "float32")
    out["pow"] = host.filled("pow", [np.abs(x), x[::-1]], x.shape, "float32")
    out["sum"] = host.filled("sum", [x, None, False], (), "float32")
    out["sum0"] = host.filled("sum", [x, [0], False], (1001,), "float32")
    out["softmax"] = host.filled("softmax", [x, 1], x.shape, "float32")
    return out
