"""A plugin that was built before the arguments of a record changed is refused: it would read the wrong ones."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import rabbet
from plugin_wheels import run

CORE = Path(rabbet.__file__).parent
TOOLS = Path(sys.executable).parent
PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(odd LANGUAGES CXX)
find_package(Rabbet CONFIG REQUIRED)
rabbet_add_plugin(odd odd.cpp)
"""
SOURCE = """
#include "rabbet/plugin.hpp"
namespace {
int32_t layer_id;
int32_t pass(void*, const RbCall* c, const RbValue* a, int32_t n, RbValue* r, int32_t m)
{ return rb::host->redispatch(c, layer_id, a, n, r, m); }
const rb::KernelSpec kKernels[] = {{"%(op)s", pass, 0}};
int32_t init(const RbHost* host, RbTxn* txn) {
  rb::host = host;
  RbLayer layer = {};
  layer.struct_size = sizeof layer;
  layer.name = "odd";
  layer.phase = 150;
  if (int32_t code = host->add_layer(txn, &layer, &layer_id)) return code;
  return rb::add_kernels(host, txn, "odd", kKernels);
}
const RbPlugin plugin = {RB_SIZE(RbPlugin, retire), RB_ABI_MAJOR, RB_ABI_MINOR, 6, 0, 0, "odd", "1.0", init, nullptr};
}  // namespace
extern "C" RB_EXPORT const RbPlugin* rabbet_plugin_v0() { return &plugin; }
"""
LOAD = """
import rabbet
try:
    rabbet._C.load_plugin({!r})
    print("loaded")
except rabbet.PluginError as error:
    print(error)
print((rabbet.tensor([5.0]) - rabbet.tensor([2.0])).item())
"""


def build(folder: Path, op: str, change: tuple[str, str] | None) -> Path:
    """A plugin with a kernel for `op`, built against core's records, one of which reads as before the change."""
    core = folder / "core"
    for part in ("cmake", "include", "ops"):
        shutil.copytree(CORE / part, core / part)
    if change:
        changed = [p for p in (core / "ops").glob("*.rec") if change[0] in p.read_text()]
        for path in changed:
            path.write_text(path.read_text().replace(*change))
        assert len(changed) == 1
    (folder / "CMakeLists.txt").write_text(PROJECT)
    (folder / "odd.cpp").write_text(SOURCE % {"op": op})
    configure = [TOOLS / "cmake", "-S", folder, "-B", folder / "build", "-G", "Ninja",
                 f"-DRabbet_DIR={core / 'cmake'}", f"-DCMAKE_MAKE_PROGRAM={TOOLS / 'ninja'}"]  # fmt: skip
    for command in (configure, [TOOLS / "cmake", "--build", folder / "build"]):
        subprocess.run(list(map(str, command)), check=True, capture_output=True)
    return folder / "build/libodd.so"


NOW = "\nsub(Tensor input, Tensor other,"
BEFORE = "\nsub(Tensor other, Tensor input,"


def test_a_plugin_that_was_built_before_two_arguments_were_swapped_is_refused(tmp_path):
    library = build(tmp_path, "sub", (NOW, BEFORE))
    said = run(tmp_path, LOAD.format(str(library)))
    for part in ("odd 1.0", "sub", "compiled against the schema\n  sub(Tensor other, Tensor input,",
                 "but this core has\n  sub(Tensor input, Tensor other,"):  # fmt: skip
        assert part in said, said
    assert said.endswith("\n3.0\n")


@pytest.mark.parametrize("op", ["sub", "max.dim", "_fft_c2c", "zeros", "nll_loss"])
def test_a_plugin_that_was_built_against_the_records_of_this_core_is_loaded(op, tmp_path):
    """Another operator's signature has changed, for which the plugin has no kernel."""
    change = None if op == "sub" else (NOW, BEFORE)
    assert run(tmp_path, LOAD.format(str(build(tmp_path, op, change)))) == "loaded\n3.0\n"


def test_the_backends_of_rabbet_state_their_signatures(tmp_path):
    """The library of the CPU, in which one text reads as if it had been built before a swap."""
    import rabbet_backend_cpu

    (library,) = Path(rabbet_backend_cpu.__path__[0]).glob("*.so")
    code = library.read_bytes()
    schema = rabbet._C.op_info("sub")["schema"]
    now, before = (f"\0{text}\0".encode() for text in (schema, schema.replace(NOW[1:], BEFORE[1:])))
    assert code.count(now) == 1 and now != before
    copy = tmp_path / "libolder.so"
    copy.write_bytes(code.replace(now, before))
    program = "import rabbet\ntry:\n    rabbet.ones(2)\nexcept rabbet.PluginError as error:\n    print(error)"
    said = run(tmp_path, program, RABBET_PLUGINS=str(copy))
    assert "rabbet-backend-cpu" in said or "libolder.so" in said
    environment = {**os.environ, "RABBET_PLUGINS": str(copy)}
    doctor = subprocess.run([sys.executable, "-m", "rabbet", "doctor"], capture_output=True, text=True,
                            env=environment)  # fmt: skip
    text = " ".join(doctor.stdout.split())
    assert "compiled against the schema sub(Tensor other, Tensor input," in text, text
