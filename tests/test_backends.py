"""What core promises a backend whose memory the host cannot read: copies, fork, its own words in errors."""

import json
import os
import re
import subprocess
import sys

import pytest
import rabbet

# Addresses are disguised: who reads through one of another backend crashes.
SOURCE = r"""
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
  if (device != 0) return core->err_set(RB_E_DEVICE, NAME ": the second one is broken");
  if (n > 1 << 20) return core->err_set(RB_E_OOM, NAME ": small");
  *out = (RbBuffer){(void*)((uintptr_t)malloc(n) ^ MASK), n, 0, device, 0}; return RB_OK; }
static void release(void* s, RbBuffer* b, void* stream)
{ (void)s; (void)stream; free((void*)((uintptr_t)b->data ^ MASK)); }
static int32_t count(void* s, int32_t* n) { (void)s; *n = 2; return RB_OK; }
static int32_t sync(void* s, int32_t d) { (void)s; (void)d; return RB_OK; }
static int32_t copy(void* s, const RbTensor* from, const RbTensor* to, void* stream, uint32_t f)
{ (void)s; (void)stream; (void)f; memcpy(real(to), real(from), from->numel * (from->dtype.bits / 8)); return RB_OK; }
static void fork_child(void* s) { (void)s; forked = 1; }
static const RbAllocator allocator = {RB_SIZE(RbAllocator, free), 0, 0, alloc, release};
static const RbDevices devices = {RB_SIZE(RbDevices, fork_child), 0, 0, count, sync, copy, fork_child};
static const RbBackend backend = {RB_SIZE(RbBackend, allocator), 0, NAME, 12, 0, &devices, &allocator};
static int32_t init(const RbHost* host, RbTxn* txn) { core = host; return host->add_backend(txn, &backend, &self_id); }
static const RbPlugin plugin = {RB_SIZE(RbPlugin, retire), RB_ABI_MAJOR, RB_ABI_MINOR, RB_ABI_MINOR, 0, 0, NAME, "1", init, 0};
RB_EXPORT const RbPlugin* rabbet_plugin_v0(void) { return &plugin; }
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    folder = tmp_path_factory.mktemp("far")
    (folder / "far.c").write_text(SOURCE)
    built = []
    for key, name in ((0x55, "far"), (0x66, "further")):
        built.append(str(folder / f"lib{name}.so"))
        definitions = [f"-DKEY=0x{key:x}", f'-DNAME="{name}"', f"-I{rabbet.get_include()}"]
        command = ["gcc", "-std=c11", "-shared", "-fPIC", "-Wall", *definitions, "far.c"]
        subprocess.run([*command, "-o", built[-1]], cwd=folder, check=True)
    return built


def run(libraries, code: str) -> list[str]:
    text = f"import rabbet\nfor path in {json.dumps(libraries)}:\n    rabbet._C.load_plugin(path)\n{code}"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_tensors_move_between_backends_with_memory_of_their_own(libraries):
    code = """
x = rabbet.arange(6.0).reshape(2, 3)
far = x.to("far")
print(far.to("further").to("far").cpu().tolist(), far.to("further").device)
print(rabbet.zeros(2, 3, dtype=rabbet.int32).copy_(far).tolist())
rabbet.zeros(2, device="meta")[rabbet.tensor([0])]
"""
    assert run(libraries, code) == [
        "[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]] further:0",
        "[[0, 1, 2], [3, 4, 5]]",
    ]


def test_an_allocators_errors_are_its_own_but_for_lack_of_memory(libraries):
    code = """
for device, n in (("far:2", 4), ("far:1", 4), ("far", 1 << 22)):
    try:
        rabbet.empty(n, device=device)
    except RuntimeError as error:
        print(type(error).__name__, error)
    except MemoryError as error:
        print(type(error).__name__, error)
"""
    missing, first, second = run(libraries, code)
    assert missing == "DeviceError far: there is no device 2; there are 2"
    assert first == "DeviceError far: the second one is broken"
    assert re.match(
        "OutOfMemoryError out of memory on far: could not allocate 16777216 bytes", second
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
def test_backends_hear_of_a_fork_in_the_child_alone(libraries):
    code = """
import os
rabbet.ones(3).to("far")
child = os.fork()
if child == 0:
    try:
        rabbet.empty(100000, device="far")
    except RuntimeError as error:
        os._exit(7 if "lost by fork" in str(error) else 1)
    os._exit(2)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), rabbet.empty(100000, device="far").numel())
"""
    assert run(libraries, code) == ["7 100000"]
