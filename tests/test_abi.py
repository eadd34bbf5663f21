"""Version skew at the plugin boundary: what earlier headers built still runs, what is too new or too old is told so."""

import json
import os
import re
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import rabbet
from abi_layout import HEADER, ROOT, breaks, layout
from plugin_wheels import KERNEL, MANIFEST, build, install, run

ARCHIVE = ROOT / "tests/abi"
TODAY = HEADER.parent.parent
MAJOR, MINOR = layout()["constants"]["RB_ABI_MAJOR"], layout()["constants"]["RB_ABI_MINOR"]
OLDEST = rabbet._C.abi_oldest
ARCHIVED = sorted((f for f in ARCHIVE.iterdir() if re.fullmatch(r"\d+\.\d+", f.name)),
                  key=lambda f: [int(n) for n in f.name.split(".")])  # fmt: skip
SUPPORTED = [f for f in ARCHIVED if int(f.name.split(".")[1]) >= OLDEST]
HEADERS = {f.name: f for f in SUPPORTED} | {f"{MAJOR}.{MINOR}": TODAY}


def compile_with(include: Path, source: Path, library: Path, *options: str) -> Path:
    """A plugin out of one source, built with the headers in `include`."""
    compiler = ["gcc", "-std=c11"] if source.suffix == ".c" else ["g++", "-std=c++17"]
    command = [*compiler, "-O1", "-shared", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra"]
    subprocess.run(
        [*command, f"-I{include}", *options, str(source), "-o", str(library)], check=True
    )
    return library


def load_and(library: Path, code: str, folder: Path, **env: str) -> list[str]:
    text = f"import rabbet, ctypes\nPATH = {str(library)!r}\nrabbet._C.load_plugin(PATH)\n{code}"
    return run(folder, text, **env).splitlines()


# ---- layouts


def test_every_supported_minor_is_archived():
    expected = [f"{MAJOR}.{minor}" for minor in range(OLDEST, MINOR)]
    assert [f.name for f in SUPPORTED] == expected
    for folder in ARCHIVED:
        assert f"{MAJOR}.{layout(folder)['constants']['RB_ABI_MINOR']}" == folder.name


def test_layouts_only_grow_from_the_oldest_supported_minor_on():
    steps = [layout(f) for f in SUPPORTED] + [
        json.loads((ROOT / "tests/abi_layout.json").read_text())
    ]
    steps.append(layout())
    for old, new in pairwise(steps):
        assert breaks(old, new) == []


def test_the_oldest_supported_minor_is_what_it_is_because_structs_and_functions_changed():
    """docs/decisions/0017: what had no size has one now, and what could fail returns a code."""
    changes = breaks(
        layout(ARCHIVE / f"{MAJOR}.{OLDEST - 1}"), layout(HEADERS[f"{MAJOR}.{OLDEST}"])
    )
    for name in ("RbArgInfo", "RbRngSlice", "RbMeta", "RbBuffer", "RbHost", "RbLayer"):
        moved = any(re.match(rf"struct {name}\b", change) for change in changes)
        assert moved == (name != "RbLayer"), changes


def test_structs_that_plugins_meet_say_their_size():
    """All but what is fixed for ever (values, and DLPack's two), and events, whose size readers pass to events_read."""
    fixed = {"RbDevice", "RbDType", "RbValue", "RbEvent"}
    for name, said in layout()["structs"].items():
        first = said["members"][0][0]
        sized = first == "struct_size" or "view_size" in [m[0] for m in said["members"]]
        assert sized != (name in fixed), name


# ---- older plugins on this core

BACKEND = """
x = rabbet.tensor([1.0, 2.0, 3.0])
far = x.to("old")
print((far + far).cpu().tolist(), far.add(far, alpha=2).to("old:1").device, (far + far).clone().cpu().dtype)
there = rabbet.zeros(3).to("old:1")
print(there.copy_(far).cpu().tolist(), there.device, (there + there).device)
for call in (lambda: far + there, lambda: rabbet.add(far, there, out=far), lambda: far.add_(there), lambda: far + rabbet.ones(2, 3).to("old"), lambda: far.double() + far.double(),
             lambda: rabbet.empty(1 << 26, device="old"), lambda: x.to("old:7")):
    try:
        call()
    except Exception as error:
        print(type(error).__name__, str(error).splitlines()[0].split(" (")[0])
"""
OPS = """
library = ctypes.CDLL(PATH)
x, y = rabbet.tensor([1.0, 2.0]), rabbet.tensor([3.0, 4.0])
scale, gate, total = (rabbet.ops(f"old::{name}") for name in ("scale", "gate", "total"))
print(scale(x, 3).tolist(), scale(x).tolist(), gate(x, y).tolist(), library.formula_calls(), total(y).item())
x.requires_grad = y.requires_grad = True
total(gate(scale(x, 0.5), y)).backward()
print(x.grad.tolist(), y.grad.tolist())
try:
    total(rabbet.zeros(0))
except ValueError as error:
    print(str(error).splitlines()[0])
"""
LAYER = """
library = ctypes.CDLL(PATH)
library.sum_twice.restype = ctypes.c_double
x = rabbet.ones(2, 3)
library.watch(1)
y = rabbet.var(x * 2 + x, dim=1, keepdim=True)
library.watch(0)
seen = library.calls_seen()
z = y + 1
print(library.calls_seen() - seen, library.arguments_named() > 2 * seen, library.notes_alive() >= 2)
print(x.unsqueeze(0).shape, library.calls_seen() - seen)
del y, z
import gc; gc.collect()
print(library.notes_alive(), library.sum_twice())
"""
RESULTS = {
    "backend.c": (BACKEND, [
        "[2.0, 4.0, 6.0] old:1 rabbet.float32",
        "[1.0, 2.0, 3.0] old:1 old:1",
        *["DeviceError add: expected all tensors on one device, but 'input' is on old:0 and 'other' is on old:1"] * 3,
        "NotImplementedForError old: add takes 'input' of the result's size",
        "NotImplementedForError cast: no kernel for 'old' in old-backend 1.0, and the operator has no decomposition; "
        "kernels exist for: cpu",
        "OutOfMemoryError out of memory on old: could not allocate 268435456 bytes",
        "DeviceError there is no device old:7: 'old' has 2 devices, old:0 to old:1",
    ]),
    "ops.cpp": (OPS, ["[3.0, 6.0] [2.0, 4.0] [4.0, 10.0] 1 7.0", "[2.0, 2.5] [0.5, 1.0]",
                      "old::total: expected elements, got none"]),
    "layer.cpp": (LAYER, ["1 True True", "rabbet.Size([1, 2, 3]) 1", "0 6.0"]),
}  # fmt: skip


@pytest.fixture(scope="session", params=list(HEADERS))
def built(request, tmp_path_factory):
    """The plugins of tests/abi/plugins, built with the headers of one minor version."""
    folder = tmp_path_factory.mktemp("abi")
    for source in RESULTS:
        compile_with(HEADERS[request.param], ARCHIVE / "plugins" / source, folder / f"{source}.so")
    return request.param, folder


@pytest.mark.parametrize("source", RESULTS)
def test_plugins_of_every_supported_minor_run(built, source, tmp_path):
    version, folder = built
    code, expected = RESULTS[source]
    code += "print([p['abi'] for p in rabbet._C.plugins() if p['path'] == PATH][0])"
    *lines, abi = load_and(folder / f"{source}.so", code, tmp_path)
    assert lines == expected and abi == f"({version.replace('.', ', ')})"


@pytest.mark.parametrize("source", ["backend-null", "transform-plugin"])
def test_the_examples_run_built_with_the_oldest_supported_header(source, tmp_path):
    options = ['-DRABBET_WHEEL_VERSION="1"', f"-DRB_ABI_NEEDED={OLDEST}"]
    if source == "backend-null":
        path, options = "backend-null/csrc/plugin.cpp", [*options, '-DDEVICE_NAME="null"']
        code, expected = (
            "x = rabbet.arange(4.0).reshape(2, 2).to('null')\nprint((x @ x + x).tolist())",
            "[[2.0, 4.0], [8.0, 14.0]]",
        )
    else:
        path, code, expected = (
            "transform-plugin/csrc/nan.cpp",
            "print(rabbet._C.layers()[-1]['name'])",
            "nan",
        )
    library = compile_with(
        HEADERS[f"{MAJOR}.{OLDEST}"], ROOT / "examples" / path, tmp_path / "x.so", *options
    )
    assert expected in "\n".join(load_and(library, code, tmp_path))


@pytest.mark.parametrize("older", [f.name for f in ARCHIVED if f not in SUPPORTED])
def test_a_plugin_of_an_unsupported_minor_is_refused(older, tmp_path):
    library = compile_with(ARCHIVE / older, ARCHIVE / "plugins/idle.c", tmp_path / "libodd.so")
    words = (
        rf"plugin 'idle' 1.0 was built for plugin ABI {older}, this core offers {MAJOR}.{MINOR} to plugins built "
        rf"for {MAJOR}.{OLDEST} or later: install a newer build of the plugin"
    )
    with pytest.raises(RuntimeError, match=words):
        rabbet._C.load_plugin(str(library))
    manifest = re.sub(
        r"abi = .*", f"abi = [{older.replace('.', ', ')}]", MANIFEST.format("odd", "backend")
    )
    install(tmp_path, "odd", manifest, library)
    said = run(tmp_path, ZEROS)
    assert re.search(words, said) and "Fix: pip install --upgrade odd-plugin" in said


ZEROS = """
import rabbet
try:
    rabbet.zeros(2, device="odd")
except RuntimeError as error:
    print(error)
"""

# ---- newer plugins on this core

NEWER = """
static int32_t says(void* s, const RbCall* c, const RbValue* a, int32_t n, RbValue* r, int32_t m)
{ (void)s; (void)c; (void)a; (void)n; (void)m;
  *(float*)r[0].v.t->data = RB_HAS(core, newest) ? 2 : 1; return RB_OK; }
"""
NEWER_INIT = """
core = host;
RbKernel k = kernel("odd::says", 0); k.backend = "cpu"; k.fn = says; k.newest = &k; k.struct_size = sizeof k;
if (host->add_ops(txn, "odd::says(Tensor x) -> Tensor\\n  kind elementwise\\n")) return 1;
return host->add_kernel(txn, &k);
"""


@pytest.fixture(scope="module")
def newer(tmp_path_factory):
    """The headers of a core to come: one more member in RbHost and RbKernel."""
    folder = tmp_path_factory.mktemp("newer")
    text = HEADER.read_text()
    for what, by in (
        (rf"(#define RB_ABI_MINOR) {MINOR}\n", rf"\1 {MINOR + 1}\n"),
        (r"\n\};\n\n(/\* ---- what a plugin exports)", r"\n  int32_t (*newest)(void);\n};\n\n\1"),
        (r"\n\} RbKernel;", r"\n  const void* newest;\n} RbKernel;"),
    ):
        text, count = re.subn(what, by, text)
        assert count == 1, what
    shutil.copytree(HEADER.parent, folder / "rabbet")
    (folder / "rabbet/abi.h").write_text(text)
    assert breaks(layout(), layout(folder)) == []
    return folder


def build_newer(folder: Path, headers: Path, needed: int) -> Path:
    extra = "static const RbHost* core;" + KERNEL + NEWER
    return build(folder, "odd", headers, extra=extra, init=NEWER_INIT, needed=str(needed))


def test_a_newer_plugin_that_needs_no_more_runs_and_sees_what_is_missing(newer, tmp_path):
    library = build_newer(tmp_path, newer, MINOR)
    code = (
        "print(rabbet.ops('odd::says')(rabbet.zeros(1)).item(), rabbet._C.plugins()[0]['abi_min'])"
    )
    assert load_and(library, code, tmp_path) == [f"1.0 {MINOR}"]


def test_a_newer_plugin_that_needs_more_is_refused(newer, tmp_path):
    library = build_newer(tmp_path, newer, MINOR + 1)
    words = rf"plugin 'odd' 1.0 was built for plugin ABI {MAJOR}.{MINOR + 1}, this core offers {MAJOR}.{MINOR}: upgrade rabbet-core"
    with pytest.raises(RuntimeError, match=words):
        rabbet._C.load_plugin(str(library))
    install(tmp_path, "odd", MANIFEST.format("odd", "backend"), library)
    text = run(tmp_path, ZEROS)
    assert re.search(words, text) and "failed at stage load" in text
    assert "Fix: pip install --upgrade rabbet-core" in text


@pytest.mark.parametrize("abi", [f"[{MAJOR}, {MINOR + 1}]", f"[{MAJOR + 1}, 0]"])
def test_a_manifest_that_needs_more_is_refused_before_any_code_runs(abi, tmp_path):
    manifest = re.sub(r"abi = .*", f"abi = {abi}", MANIFEST.format("odd", "backend"))
    install(
        tmp_path, "odd", manifest, code="raise SystemExit('imported')"
    )  # and there is no library
    text = run(tmp_path, ZEROS)
    needed = ".".join(re.findall(r"\d+", abi))
    assert (
        f"was built for plugin ABI {needed}, this core offers {MAJOR}.{MINOR}: upgrade rabbet-core"
        in text
    )
    assert "failed at stage manifest" in text and "Fix: pip install --upgrade rabbet-core" in text


@pytest.mark.parametrize("abi", ['"0.4"', "[0]", "[0, 4.0]", "[true, 4]"])
def test_a_manifest_whose_abi_is_no_version_is_refused(abi, tmp_path):
    manifest = re.sub(r"abi = .*", f"abi = {abi}", MANIFEST.format("odd", "backend"))
    install(tmp_path, "odd", manifest)
    assert "'abi' must be [major, minor], of the ABI that it needs" in run(tmp_path, ZEROS)


def test_a_plugin_that_needs_more_than_it_was_built_with_is_refused(tmp_path):
    library = build(tmp_path, "odd", needed=str(MINOR + 1))
    with pytest.raises(
        RuntimeError,
        match=rf"needs plugin ABI {MAJOR}.{MINOR + 1}, but was built for {MAJOR}.{MINOR}",
    ):
        rabbet._C.load_plugin(str(library))


# ---- this core as an older one


@pytest.mark.parametrize("minor", range(OLDEST, MINOR + 1))
def test_an_older_core_has_the_host_table_of_its_time(minor, tmp_path):
    expected = layout(HEADERS[f"{MAJOR}.{minor}"])["structs"]["RbHost"]
    init = (
        'char text[99]; uint64_t rest = 0; const char* end = (const char*)host + host->struct_size;'
        'for (const char* p = end; p < (const char*)host + sizeof *host; ++p) rest |= *p;'
        'snprintf(text, sizeof text, "%u bytes of %d.%d, then %d", host->struct_size, host->major, host->minor, rest != 0);'
        "(void)txn; return host->err_set(RB_E_STATE, text);"
    )  # fmt: skip
    library = build(tmp_path, "odd", extra="#include <stdio.h>", init=init, needed=str(minor))
    code = f"import rabbet\ntry:\n    rabbet._C.load_plugin({str(library)!r})\nexcept RuntimeError as error:\n    print(error)"
    assert (
        run(tmp_path, code, RABBET_ABI_MINOR=str(minor))
        == f"{expected['size']} bytes of {MAJOR}.{minor}, then 0\n"
    )


@pytest.mark.parametrize("minor", [str(OLDEST - 1), str(MINOR + 1), "four"])
def test_core_refuses_to_be_a_version_that_it_cannot_be(minor):
    done = subprocess.run([sys.executable, "-c", "import rabbet"], env={**os.environ, "RABBET_ABI_MINOR": minor},
                          capture_output=True, text=True)  # fmt: skip
    assert (
        done.returncode
        and f"expected a plugin ABI from {OLDEST} to {MINOR}, got '{minor}'" in done.stderr
    )


# ---- what manifests say


def test_libraries_need_what_their_manifests_say(tmp_path):
    code = """
import json, rabbet
from rabbet import _plugins
for name in ("cpu", "autograd", "autocast", "vmap"):
    _plugins.load(_plugins.plugins()[name])
print(json.dumps([[p["name"], [p["abi"][0], p["abi_min"]]] for p in rabbet._C.plugins()]))
print(json.dumps([[p.manifest["name"], p.manifest["abi"]] for p in _plugins.plugins().values()]))
"""
    libraries, manifests = (dict(json.loads(line)) for line in run(tmp_path, code).splitlines())
    assert len(libraries) == 4
    assert libraries == {name: manifests[name] for name in libraries}
