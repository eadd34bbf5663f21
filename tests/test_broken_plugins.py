"""Each way in which a plugin can be broken: the stage at which it fails, the cause and the fix that are told, and that
the CPU, autograd and another backend go on working in the same process."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import rabbet
from plugin_wheels import (
    BACKEND,
    KERNEL,
    MANIFEST,
    build,
    build_backend,
    compile_library,
    install,
    run,
)

OFFERED = re.search(  # what core's header says
    r"RB_ABI_MAJOR (\d+)\n#define RB_ABI_MINOR (\d+)",
    (Path(rabbet.get_include()) / "rabbet" / "abi.h").read_text(),
)
MAJOR, MINOR = map(int, OFFERED.groups())
OLDEST = rabbet._C.abi_oldest
BACKEND_MANIFEST = MANIFEST.format("odd", "backend")
HOOKS = BACKEND_MANIFEST + "hooks = true\n"
REINSTALL = "^reinstall it: pip install --force-reinstall odd-plugin$"
UPGRADE = "^pip install --upgrade odd-plugin"
AUTHORS = "^report it to the authors of odd-plugin$"


@dataclass
class Row:
    """`library`: what makes it, given a folder; None for none. The rest as `install` takes it."""

    stage: str
    cause: str
    fix: str
    library: object = None
    manifest: str | bytes | None = BACKEND_MANIFEST
    code: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    module: str = "odd_plugin"


def odd(**changes):
    return lambda folder: build(folder, "odd", **changes)


def healthy(folder):
    return build_backend(folder, "odd")


def missing_library(folder):
    gone = compile_library(folder, "gone", "int gone(void) { return 0; }")
    source = "extern int gone(void);\nint odd(void) { return gone(); }"
    made = compile_library(folder, "odd", source, f"-L{folder}", "-lgone")
    gone.unlink()
    return made


THROWS = """
#include <stdexcept>
#include "rabbet/plugin.hpp"
static int32_t init(const RbHost* host, RbTxn*) {{
  rb::host = host;
  {body}
  return RB_OK;
}}
static const RbPlugin plugin = {{RB_SIZE(RbPlugin, retire), RB_ABI_MAJOR, RB_ABI_MINOR, RB_ABI_NEEDED, 0, 0, "odd", "1.0",
                                init, nullptr}};
extern "C" RB_EXPORT const RbPlugin* rabbet_plugin_v0() {{ return &plugin; }}
"""
ERROR = 'throw std::runtime_error("no board in slot 3");'
OWN_RUNTIME = ("-static-libstdc++", "-static-libgcc", "-Wl,--exclude-libs,ALL")


def throws(body, *flags):
    return lambda folder: compile_library(
        folder, "odd", THROWS.format(body=body), *flags, language="cpp"
    )


def no_library(folder):
    path = folder / "libodd.so"
    path.write_text("#!/bin/sh\n")
    return path


def named(name):
    """A healthy backend that registers another device than its manifest says."""

    def make(folder):
        return compile_library(folder, "odd", BACKEND, "-DKEY=0x77", f'-DNAME="{name}"')

    return make


def layer(name, phase="400"):
    return odd(
        init="int32_t id; RbLayer l; memset(&l, 0, sizeof l); l.struct_size = sizeof l; "
        f'l.name = "{name}"; l.phase = {phase}; return host->add_layer(txn, &l, &id);'
    )


def hook(cause, code, manifest=HOOKS, fix=AUTHORS):
    return Row("hooks", cause, fix, healthy, manifest, code)


NATIVE = {
    "a library that it links is missing": Row(
        "load", r"libgone\.so: cannot open shared object", r"install the package that has libgone\.so", missing_library),
    "a symbol is missing": Row(
        "load", "undefined symbol: nowhere_to_be_found", "the library with nowhere_to_be_found that odd-plugin was built for",
        odd(extra="extern int nowhere_to_be_found(void);", init="(void)host; (void)txn; return nowhere_to_be_found();")),
    "another entry symbol": Row(
        "load", "exports no symbol 'rabbet_plugin_v0'", UPGRADE + " rabbet-core", odd(symbol="something_else")),
    "no library but a text": Row("load", "invalid ELF header|file too short", REINSTALL, no_library),
    "no library at all": Row("load", r"its library is not there: .*libodd\.so", REINSTALL),
    "newer ABI": Row(
        "load", rf"plugin ABI {MAJOR}\.99, this core offers {MAJOR}\.{MINOR}", "^pip install --upgrade rabbet-core$",
        odd(minor="99")),
    "older ABI": Row(
        "load", rf"plugin ABI {MAJOR}\.2, this core offers {MAJOR}\.{MINOR} to plugins built for {MAJOR}\.{OLDEST} or later", UPGRADE,
        odd(minor="2")),
    "newer major": Row("load", r"plugin ABI 7\.", "^pip install --upgrade rabbet-core$", odd(major="7")),
    "init returns a code": Row(
        "load", "the board is not plugged in", AUTHORS,
        odd(init='(void)txn; return host->err_set(RB_E_DEVICE, "the board is not plugged in");')),
    "init throws": Row(
        "load", "no board in slot 3", AUTHORS, throws(f"return rb::guarded([] {{ {ERROR} }});")
    ),
    "init lets an exception through": Row("load", "no board in slot 3", AUTHORS, throws(ERROR)),
    "init lets something through": Row("load", "let an exception through: one of an unknown type", AUTHORS, throws("throw 3;")),
    "init lets an exception of its own runtime through": Row(
        "load", "exception|no board in slot 3", AUTHORS, throws(ERROR, *OWN_RUNTIME)
    ),
    "another schema": Row(
        "load", r"compiled against the schema\n  add\(Tensor a\) -> Tensor\nbut this core has\n  add\(Tensor input", UPGRADE,
        odd(extra=KERNEL, init='RbKernel k = kernel("add", "add(Tensor a) -> Tensor"); return host->add_kernel(txn, &k);')),
    "a bad record": Row(
        "load", "odd 1.0:2: unknown field 'kond'", AUTHORS,
        odd(init='return host->add_ops(txn, "odd::f(Tensor x) -> Tensor\\n  kond elementwise\\n");')),
    "a bad layer": Row("load", "phase must be below 800", AUTHORS, layer("odd", "9999")),
    "a null struct": Row(
        "load", "add_kernel: the struct is too short", AUTHORS,
        odd(init="RbKernel k; memset(&k, 0, sizeof k); return host->add_kernel(txn, &k);")),
}  # fmt: skip
ELSEWHERE = {
    "a device that another has": Row(
        "load", "device 'cpu' of cpu 1 belongs to rabbet-backend-cpu, which is installed", "^uninstall odd-plugin or the wheel",
        named("cpu")),
    "a device that another's manifest names, too": Row(
        "load", "device 'cpu' of cpu 1 belongs to rabbet-backend-cpu, which is installed", "^uninstall odd-plugin or the wheel",
        named("cpu"), BACKEND_MANIFEST.replace('provides = ["odd"]', 'provides = ["cpu"]')),
    "a layer that another has": Row("load", "layer 'autograd' of odd 1.0 belongs to rabbet-autograd", "^uninstall odd-plugin or the wheel",
        layer("autograd"), MANIFEST.format("odd", "transform")),
    "a device that the manifest does not name": Row(
        "load", "provides the device 'odd', but its library registered none of that name", AUTHORS, named("even")),
    "no manifest": Row("manifest", "has no rabbet_plugin.toml", REINSTALL, None, None),
    "a manifest that is no TOML": Row("manifest", r"odd_plugin/rabbet_plugin.toml is no TOML file: ", REINSTALL, None, "garbage ["),
    "a manifest of bytes": Row("manifest", r"is no TOML file: ", REINSTALL, None, b"\x7fELF\x02\x00\xff\xfe" * 40),
    "a manifest that is empty": Row("manifest", "'name' must be a str, got None", REINSTALL, None, ""),
    "an unknown kind": Row("manifest", "'kind' must be backend, transform or ops, got 'toaster'", REINSTALL, None,
        BACKEND_MANIFEST.replace('"backend"', '"toaster"')),
    "kind is a table": Row("manifest", r"'kind' must be backend, transform or ops, got \{", REINSTALL, None,
        BACKEND_MANIFEST.replace('"backend"', '{a = 1}')),
    "no provides": Row("manifest", "'provides' must be a list of names, got None", REINSTALL, None,
        'name = "odd"\nkind = "backend"\n'),
    "provides a number": Row("manifest", r"'provides' must be a list of names, got \[1\]", REINSTALL, None,
        BACKEND_MANIFEST.replace('["odd"]', "[1]")),
    "library is a list": Row("manifest", "'library' must be the file name of a library, got", REINSTALL, None,
        BACKEND_MANIFEST.replace('"libodd.so"', "[]")),
    "abi is a text": Row("manifest", r"'abi' must be \[major, minor\], of the ABI that it needs, got '0.2'", REINSTALL, None,
        BACKEND_MANIFEST.replace("[0, 6]", '"0.2"')),
    "layers is a number": Row("manifest", "'layers' must be a table, got 3", REINSTALL, None, BACKEND_MANIFEST + "layers = 3\n"),
    "a layer without a phase": Row("manifest", r"'layers\.x\.phase' must be an int from 0 to 799, got None", REINSTALL, None,
        BACKEND_MANIFEST + "[layers.x]\n"),
    "a phase that does not exist": Row("manifest", r"'layers\.x\.phase' must be an int from 0 to 799, got 800", REINSTALL, None,
        BACKEND_MANIFEST + "[layers.x]\nphase = 800\n"),
    "a neighbour that is no list": Row("manifest", r"'layers\.x\.after' must be a list of names, got 'y'", REINSTALL, None,
        BACKEND_MANIFEST + "[layers.x]\nphase = 1\nafter = 'y'\n"),
    "a layer at another place than declared": Row("load", "layer 'odd' of odd 1.0 has phase 400, but the manifest of its wheel "
        "declares 300", AUTHORS, layer("odd"), MANIFEST.format("odd", "transform") + "[layers.odd]\nphase = 300\n"),
    "hooks is a number": Row("manifest", "'hooks' must be true or false, got 1", REINSTALL, None, BACKEND_MANIFEST + "hooks = 1\n"),
    "the module is not there": Row("manifest", "the package 'odder' is not there", REINSTALL, module="odder"),
    "the module has no name": Row("manifest", ".", REINSTALL, module=""),
    "the module's parent raises": Row("manifest", "no licence", REINSTALL, module="odd_plugin.part",
        code="raise OSError('no licence')\n"),
    "the module's parent exits": Row("manifest", "3", REINSTALL, module="odd_plugin.part", code="raise SystemExit(3)\n"),
    "entry points are bytes": Row("manifest", "is not there", REINSTALL, module="\udcff\udcfe"),
    "the module raises": hook("importing 'odd_plugin' raised OSError: no licence", "raise OSError('no licence')\n"),
    "the module imports what is not there": hook(
        "raised ModuleNotFoundError: No module named 'nowhere'", "import nowhere\n",
        fix="^pip install the wheel that has the module nowhere, which odd-plugin imports$"),
    "the module exits": hook("raised SystemExit: 3", "raise SystemExit(3)\n"),
    "an unknown hook": hook("unknown hook 'rabbet_docter'; known hooks: rabbet_register_ops, ", "def rabbet_docter(report): ...\n"),
    "a hook that is no function": hook("hook 'rabbet_doctor' must be a function, got int 3", "rabbet_doctor = 3\n"),
    "a hook with an unknown argument": hook(
        r"hook 'rabbet_doctor' of plugin 'odd' takes \(report, colour\), the hook is rabbet_doctor\(report\)",
        "def rabbet_doctor(report, colour): ...\n"),
    "no hooks but the manifest says so": hook("says that there are hooks, but 'odd_plugin' has none of rabbet_", ""),
    "attributes without their hook": hook(
        "lists attributes, but 'odd_plugin' has no hook 'rabbet_tensor_attributes'", "def rabbet_doctor(report): ...\n",
        BACKEND_MANIFEST + 'attributes = ["oddness"]\n'),
    "attributes of a wrong type": hook(
        "hook 'rabbet_tensor_attributes' of plugin 'odd' must return a dict of descriptors by name, it returned list",
        "def rabbet_tensor_attributes(): return ['oddness']\n"),
    "no attributes returned": hook("must return a dict of descriptors by name, it returned NoneType None",
        "def rabbet_tensor_attributes(): ...\n"),
    "an attribute that is not listed": hook("returned 'oddness', which its manifest does not list",
        "def rabbet_tensor_attributes(): return {'oddness': 1}\n"),
    "an attribute of core's": hook(
        r"plugin 'odd' \(wheel odd-plugin\) wants to put 'shape' on Tensor, but Tensor.shape is an attribute of rabbet-core",
        "def rabbet_tensor_attributes(): return {'shape': 1}\n", BACKEND_MANIFEST + 'attributes = ["shape"]\n',
        "^uninstall odd-plugin or the wheel"),
    "an attribute of autograd's": hook(
        "wants to put 'backward' on Tensor, but Tensor.backward is "
        r"(kept for the layer 'autograd'|an attribute of plugin 'autograd' \(wheel rabbet-autograd\)) already",
        "def rabbet_tensor_attributes(): return {'oddness': 1, 'backward': 1}\n",
        BACKEND_MANIFEST + 'attributes = ["oddness", "backward"]\n', "^uninstall odd-plugin or the wheel"),
    "a hook raises": hook("hook 'rabbet_register_ops' of plugin 'odd' raised KeyError: 'x'",
        "def rabbet_register_ops(lib): {}['x']\n"),
    "a hook raises after it registered": hook(
        "hook 'rabbet_register_ops' of plugin 'odd' raised OSError: no licence",
        "def rabbet_tensor_attributes(): return {'oddness': 1}\n"
        "def rabbet_register_ops(lib):\n"
        "    lib.op('odd::twice(Tensor x) -> Tensor')(lambda x: x + x)\n"
        "    lib.register_records('odd::f(Tensor x) -> Tensor\\n  kind composite\\n  decomp x + x\\n')\n"
        "    lib.impl('exp', 'far', lambda input: input)\n"
        "    raise OSError('no licence')\n", BACKEND_MANIFEST + 'attributes = ["oddness"]\n'),
    "a hook returns something": hook("hook 'rabbet_register_ops' of plugin 'odd' must return None, it returned int 3",
        "def rabbet_register_ops(lib): return 3\n"),
}  # fmt: skip
BROKEN = NATIVE | ELSEWHERE

# The device that fails is asked for first: what follows runs in a process in which it has failed.
WORK = """
import contextlib, io, json, re, sys
import rabbet
assert "pluggy" not in sys.modules
before = set(dir(rabbet.Tensor)), set(rabbet._C.record_names())
try:
    rabbet.ones(2, device="odd")
    said = None
except RuntimeError as error:
    said = str(error)
here = rabbet.arange(6.0, requires_grad=True)
(here * here).sum().backward()
assert here.grad.tolist() == [0, 2, 4, 6, 8, 10]
assert here.detach().to("far").cpu().tolist() == here.tolist()
assert rabbet.vmap(lambda x: x * 2)(rabbet.ones(3)).tolist() == [2, 2, 2]
left = sorted(set(dir(rabbet.Tensor)) - before[0]) + sorted(set(rabbet._C.record_names()) - before[1])
left += [k["op"] for k in rabbet._C.registered_kernels() if k["provider"].startswith("odd_plugin")]
from rabbet._doctor import main
out = io.StringIO()
with contextlib.redirect_stdout(out):
    code = main(["--json"])
text = io.StringIO()
with contextlib.redirect_stdout(text):
    main([])
print(json.dumps({"said": said, "code": code, "report": json.loads(out.getvalue()), "text": text.getvalue(), "left": left}))
"""


@pytest.fixture(scope="module")
def far(tmp_path_factory):
    return build_backend(tmp_path_factory.mktemp("far"), "far")


def put(folder, row, far):
    copy = folder / "libfar.so"
    copy.write_bytes(far.read_bytes())
    install(folder, "far", MANIFEST.format("far", "backend"), copy)
    manifest = row.manifest.decode("latin-1") if isinstance(row.manifest, bytes) else row.manifest
    install(folder, "odd", manifest, row.library(folder) if row.library else None, row.code)
    if isinstance(row.manifest, bytes):
        (folder / "odd_plugin/rabbet_plugin.toml").write_bytes(row.manifest)
    points = f"[rabbet.plugins]\nodd = {row.module}\n".encode(errors="surrogateescape")
    (folder / "odd_plugin-1.0.dist-info/entry_points.txt").write_bytes(points)


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_plugin_breaks_only_itself_and_is_explained(kind, tmp_path, far):
    row = BROKEN[kind]
    put(tmp_path, row, far)
    found = json.loads(run(tmp_path, WORK))

    assert found["code"] == 1 and found["left"] == []
    plugins = {p["name"]: p for p in found["report"]["plugins"]}
    broken = plugins.pop("odd")
    assert (broken["stage"], broken["failed_at"]) == ("FAILED", row.stage), broken
    assert re.search(row.cause, broken["cause"], flags=re.S), broken["cause"]
    assert re.search(row.fix, broken["fix"]), broken["fix"]
    assert {p["stage"] for p in plugins.values()} == {"ACTIVE"} and "far" in plugins
    if found["said"] is not None:  # a transform's stage does not stand in a device's way
        for part in (f"failed at stage {row.stage}", broken["cause"], f"Fix: {broken['fix']}"):
            assert part in found["said"]
    shown = " ".join(found["text"].split())
    assert f"FAILED({row.stage})" in shown and f"fix: {broken['fix']}" in shown
    assert max(map(len, found["text"].splitlines())) <= 100 or "/" in found["text"]


@pytest.mark.parametrize("kind", NATIVE)
def test_a_broken_library_leaves_no_trace(kind, tmp_path):
    row = NATIVE[kind]
    library = row.library(tmp_path) if row.library else tmp_path / "libodd.so"
    records, layers = rabbet._C.record_names(), rabbet._C.layers()
    with pytest.raises(RuntimeError, match=f"(?s){row.cause}" if row.library else "cannot open"):
        rabbet._C.load_plugin(str(library))
    assert rabbet._C.record_names() == records and rabbet._C.layers() == layers
    assert (rabbet.ones(2) + 1).tolist() == [2, 2]


def test_a_failing_init_takes_back_what_it_staged(tmp_path):
    init = (
        'if (host->add_ops(txn, "odd::g(Tensor x) -> Tensor\\n  shape x.shape\\n")) return 1; '
        'return host->err_set(RB_E_STATE, "changed my mind");'
    )
    with pytest.raises(RuntimeError, match="changed my mind"):
        rabbet._C.load_plugin(str(build(tmp_path, "odd", init=init)))
    assert "odd::g" not in rabbet._C.record_names()


def test_a_kernel_for_an_operator_that_is_not_there_waits(tmp_path):
    init = 'RbKernel k = kernel("elsewhere::f", 0); return host->add_kernel(txn, &k);'
    library = build(tmp_path, "odd", extra=KERNEL, init=init)
    install(tmp_path, "odd", MANIFEST.format("odd", "ops"), library)
    code = "from rabbet._doctor import main\nraise SystemExit(main(['--json']))"
    (waiting,) = json.loads(run(tmp_path, code))["pending"]
    assert (waiting["op"], waiting["target"], waiting["provider"]) == (
        "elsewhere::f",
        "odd",
        "odd 1.0",
    )


def test_strict_mode_raises_at_once(tmp_path):
    install(tmp_path, "odd", "garbage [")
    code = "import rabbet\ntry:\n    rabbet.zeros(1)\nexcept Exception as e:\n    print(e)\n"
    assert "is no TOML file" in run(tmp_path, code, RABBET_PLUGINS_STRICT="1")


def test_a_device_whose_hooks_failed_says_so_once_and_works(tmp_path, far):
    put(tmp_path, BROKEN["a hook raises after it registered"], far)
    code = """
import rabbet
try:
    rabbet.ones(2).to("odd")
except RuntimeError as error:
    print("failed at stage hooks" in str(error), hasattr(rabbet.Tensor, "oddness"))
print(rabbet.ones(2).to("odd").to("far").cpu().tolist())
"""
    assert run(tmp_path, code) == "True False\n[1.0, 1.0]\n"


def test_what_a_plugin_registered_is_free_again_when_it_failed(tmp_path, far):
    """Another may have the names of operators and attributes then."""
    put(tmp_path, BROKEN["a hook raises after it registered"], far)
    code = """
def rabbet_tensor_attributes():
    return {"oddness": property(lambda t: 3)}
def rabbet_register_ops(lib):
    lib.op("odd::twice(Tensor x) -> Tensor")(lambda x: x * 2)
"""
    manifest = MANIFEST.format("sound", "backend") + 'attributes = ["oddness"]\n'
    install(tmp_path, "sound", manifest, build_backend(tmp_path, "sound"), code)
    user = """
import rabbet
from rabbet import _doctor
stages = {p["name"]: p["stage"] for p in _doctor.report()["plugins"]}
print(stages["odd"], stages["sound"], rabbet.ops.odd.twice(rabbet.ones(1)).oddness)
"""
    assert run(tmp_path, user) == "FAILED ACTIVE 3\n"
