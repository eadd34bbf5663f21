"""Level L0 of the conformance kit: a small sound plugin passes, and each thing done wrong is found and named."""

import os
import re
import subprocess

import pytest
import rabbet
from kit_runs import kit
from rabbet_testing.judges import library as symbols
from rabbet_testing.judges.processes import run_module

OLDEST, NEWEST = min(rabbet._C.abi_host_sizes), max(rabbet._C.abi_host_sizes)
SOUND = r"""
#include "rabbet/abi.h"
#include <stdlib.h>
#include <string.h>
//TOP
static const RbHost* core;
static int32_t alloc(void* self, int32_t device, uint64_t n, void* stream, RbBuffer* out)
{ (void)self; (void)stream; memset(out, 0, sizeof *out); out->data = aligned_alloc(64, (n + 63) / 64 * 64);
  out->nbytes = n; out->device_index = device; return RB_OK; }
static void release(void* self, RbBuffer* buffer, void* stream) { (void)self; (void)stream; free(buffer->data); }
static int32_t count(void* self, int32_t* n) { (void)self; *n = 1; return RB_OK; /*COUNT*/ }
static int32_t finish(void* self, int32_t device) { (void)self; (void)device; return RB_OK; }
static int32_t add(void* self, const RbCall* call, const RbValue* a, int32_t n, RbValue* r, int32_t m)
{ (void)self; (void)call; (void)n; (void)m;
  if (a[0].tag != RB_TENSOR || a[1].tag != RB_TENSOR || a[0].v.t->numel != a[1].v.t->numel)
    /*REFUSE*/ return core->err_set(RB_E_NOTIMPL, "add on 'odd' takes two tensors of one size");
  float alpha = a[2].tag == RB_FLOAT ? (float)a[2].v.f : (float)a[2].v.i;
  for (int64_t i = 0; i < r[0].v.t->numel; ++i)
    ((float*)r[0].v.t->data)[i] = ((float*)a[0].v.t->data)[i] + alpha * ((float*)a[1].v.t->data)[i];
  return RB_OK; }
static int32_t init(const RbHost* host, RbTxn* txn)
{ static const RbAllocator allocator = {RB_SIZE(RbAllocator, free), 0, 0, alloc, release};
  static const RbDevices devices = {RB_SIZE(RbDevices, fork_child), 0, 0, count, finish, 0, 0};
  static const RbBackend backend = {RB_SIZE(RbBackend, allocator), RB_B_HOST_MEMORY, "odd", 1, 0, &devices, &allocator};
  RbKernel k; int32_t id, rc; memset(&k, 0, sizeof k); k.struct_size = RB_SIZE(RbKernel, reserved); k.op = "add";
  k.backend = "odd"; k.fn = add; k.dtype_mask = 1ull << RB_F32; k.flags = RB_K_CONTIGUOUS; core = host;
  //INIT
  rc = host->add_backend(txn, &backend, &id);
  if (rc) return rc;
  return host->add_kernel(txn, &k); }
static const RbPlugin plugin = {RB_SIZE(RbPlugin, retire), RB_ABI_MAJOR, RB_ABI_MINOR, MIN, 0, 0, "odd", "1.0", init, 0};
#ifdef __cplusplus
extern "C"
#endif
RB_EXPORT const RbPlugin* rabbet_plugin_v0(void) { return &plugin; /*ENTRY*/ }
"""
REGISTERS = """
#include <dlfcn.h>
#include <stdio.h>
static int32_t early(void* s, int32_t d, uint64_t n, void* q, RbBuffer* o) { (void)s; (void)d; (void)n; (void)q; (void)o; return 1; }
static void late(void* s, RbBuffer* b, void* q) { (void)s; (void)b; (void)q; }
__attribute__((constructor)) static void before_init(void)
{ static const RbAllocator allocator = {RB_SIZE(RbAllocator, free), 0, 0, early, late};
  static const RbBackend backend = {RB_SIZE(RbBackend, allocator), 0, "early", 1, 0, 0, &allocator};
  RbTxn* txn; int32_t id; const RbHost* host = (const RbHost*)dlsym(dlopen(CORE, RTLD_NOW | RTLD_NOLOAD), "_ZN6rabbet5kHostE");
  host->txn_begin("early", &txn); host->add_backend(txn, &backend, &id); host->txn_commit(txn); }
"""
COMPOSITES = """
#include "rabbet/composite.h"
#include "rabbet/trace.h"
static int32_t own_layer(const RbHost* host, RbTxn* txn)
{ static RbLayer l; int32_t id = 0; l.struct_size = RB_SIZE(RbLayer, self); l.name = "parts"; l.phase = 650;
  host->add_layer(txn, &l, &id); return id; }
static int32_t describe(const RbHost* host, int32_t layer, uint32_t size)
{ static RbCompositeLayer d; d.struct_size = size;
  return ((const RbComposites*)host->get_ext(RB_COMPOSITE_EXT, 1))->describe(layer, size ? &d : 0); }
static int32_t hook(const RbHost* host, int32_t layer)
{ return ((const RbTrace*)host->get_ext(RB_TRACE_EXT, 1))->data_hook(layer, 0, 0); }
"""
TABLES = """
#include "rabbet/capture.h"
#include "rabbet/device.h"
static int32_t ok(void) { return 0; }
static RbDeviceTable offers; static RbCapture captures; static RbAllocator pinned;
static void* any(void) { return (void*)(intptr_t)ok; }
static int32_t publish(const RbHost* host, uint32_t device, uint32_t capture)
{ offers.struct_size = device; captures.struct_size = capture;
  return (device ? host->publish("odd.device", 1, &offers) : 0) || (capture ? host->publish("odd.capture", 1, &captures) : 0); }
"""
# What is changed in the sound plugin, what finds it (a check, or a probe), and the words.
BROKEN = {
    "ignores a registration that fails": (
        [("if (rc) return rc;", "")], "failures",
        r"registration 1 of 2, add_backend 'odd', failed with 10, but init returned 0: it has to return the code"),
    "returns another code": (
        [("if (rc) return rc;", "if (rc) return RB_E_STATE;")], "failures", "but init returned 7"),
    "does not work after a failure": (
        [("//INIT", "static int before; if (before++ > 2) return RB_OK;")], "failures", "after an init that failed, the next returned 0"),
    "reads the host beyond its size": (
        [("//INIT", "if (*(void* const*)((const char*)host + host->struct_size)) k.src_line = 1;")], "init",
        rf"the process died of SIGSEGV: in the step 'init on a host of version 0.{OLDEST}, whose table ends at its struct_size'"),
    "a kernel without function": ([("k.fn = add;", "")], "init", "add_kernel 'add': `fn` is null"),
    "a kernel of no operator": ([('k.op = "add"', 'k.op = "ad"')], "init", "add_kernel 'ad': there is no operator 'ad'"),
    "a kernel for no backend": ([('k.backend = "odd"', 'k.backend = "odder"')], "init", "there is no backend or layer 'odder'"),
    "a kernel of another schema": (
        [("k.fn = add;", 'k.fn = add; k.schema = "add(Tensor x) -> Tensor";')], "init",
        r"its schema is 'add\(Tensor x\) -> Tensor', that of the record 'add\(Tensor input"),
    "a kernel with a size that cannot be": (
        [("k.struct_size = RB_SIZE(RbKernel, reserved)", "k.struct_size = 4096")], "init",
        r"add_kernel: the struct_size of RbKernel is 4096, expected \d+ to \d+"),
    "a kernel for a dtype that there is not": ([("1ull << RB_F32;", "1ull << 60;")], "init", "dtype_mask 0x1000000000000000 has bits of no dtype"),
    "a kernel with flags that are none": ([("RB_K_CONTIGUOUS;", "128;")], "init", "add_kernel 'add': unknown flags 0x80"),
    "a rule that is none": (
        [("//INIT", "RbRule r = {sizeof r, 0, \"neg\", 0, 9, 0, add, 0, 0, 0, 0}; host->add_rule(txn, &r);")], "init", r"add_rule 'neg': rule 9 is no RB_RULE_\*"),
    "a rule without function": (
        [("//INIT", "RbRule r = {sizeof r, 0, \"neg\", 0, RB_RULE_VJP, 0, 0, 0, 0, 0, 0}; host->add_rule(txn, &r);")], "init",
        "add_rule 'neg' vjp: `fn` is null"),
    "a short rule": ([("//INIT", "RbRule r; memset(&r, 0, sizeof r); r.struct_size = 16; host->add_rule(txn, &r);")], "init",
                     "add_rule: the struct_size of RbRule is 16, expected"),
    "a formula kernel without formula": (
        [("//INIT", "RbFormulaKernel f; memset(&f, 0, sizeof f); f.struct_size = sizeof f; f.op = \"neg\"; f.backend = \"odd\"; f.fn = add; "
          "f.argument = -2; host->add_formula_kernel(txn, &f);")], "init",
        "`formula` is null[^@]*argument -2 is neither -1 nor one"),
    "a dtype that cannot be": (
        [("//INIT", "RbDTypeInfo d; memset(&d, 0, sizeof d); d.struct_size = sizeof d; d.name = \"a b\"; d.kind = 7; d.bits = 3; d.itemsize = 3; "
          "host->add_dtype(txn, &d, &id);")], "init",
        r"the name is no identifier[^@]*kind 7 is no RB_CLASS_\*[^@]*3 bits in 3 bytes[^@]*`decode` or `encode` is null"),
    "a layer that saves and cannot restore": (
        [("//TOP", "static int32_t keep(void* s, void** p) { (void)s; *p = 0; return 0; }"),
         ("//INIT", "RbLayer l; memset(&l, 0, sizeof l); l.struct_size = sizeof l; l.name = \"odder\"; l.phase = 700; l.thread_save = keep; "
          "host->add_layer(txn, &l, &id);")], "init", "of thread_save, thread_restore and thread_free some are null"),
    "a name that is no string": ([('k.op = "add"', "k.op = (const char*)8")], "init", "SIGSEGV: in the step 'read the string of add_kernel: `op`'"),
    "a backend without allocator": ([("&devices, &allocator}", "&devices, 0}")], "init", "add_backend 'odd': the RbAllocator is null"),
    "streams that cannot be asked": (
        [("//TOP", "static int32_t s3(void* s, int32_t d, void* x) { (void)s; (void)d; (void)x; return RB_OK; }\n"
          "static const RbStreams streams = {.struct_size = RB_SIZE(RbStreams, event_elapsed), .sync = s3};"),
         ("{RB_SIZE(RbBackend, allocator), RB_B_HOST_MEMORY,", "{RB_SIZE(RbBackend, streams), RB_B_HOST_MEMORY,"),
         ("&devices, &allocator};", "&devices, &allocator, &streams};")], "init",
        r"a backend of host memory has streams[^@]*add_backend 'odd': `create` of the streams is null[^@]*`event_query` of the streams is null"),
    "composites of a layer that is not there": (
        [("//TOP", COMPOSITES), ("//INIT", "if (describe(host, 77, sizeof(RbCompositeLayer))) return 10;")], "init",
        "describe: 77 is not the id of a layer that was added"),
    "composites described too briefly": (
        [("//TOP", COMPOSITES), ("//INIT", "if (describe(host, own_layer(host, txn), 12)) return 10;")], "init",
        r"describe: the struct_size of RbCompositeLayer is 12, expected \d+ to \d+"),
    "a description of null": (
        [("//TOP", COMPOSITES), ("//INIT", "if (describe(host, own_layer(host, txn), 0)) return 10;")], "init",
        "describe: the RbCompositeLayer is null"),
    "a description whose failure is ignored": (
        [("//TOP", COMPOSITES), ("//INIT", "describe(host, own_layer(host, txn), sizeof(RbCompositeLayer));")], "failures",
        "describe, failed with 10, but init returned 0"),
    "a data hook of a layer that is not there": (
        [("//TOP", COMPOSITES), ("//INIT", "if (hook(host, 3)) return 10;")], "init",
        "data_hook: 3 is not the id of a layer that was added"),
    "a table of devices that is too short": (
        [("//TOP", TABLES), ("//INIT", "if (publish(host, 4, 0)) return 10;")], "init",
        r"publish 'odd.device': the struct_size of RbDeviceTable is 4, expected 16 to \d+"),
    "a table of devices of null": (
        [("//INIT", 'if (host->publish("odd.device", 1, 0)) return 10;')], "init", "publish 'odd.device': the table is null"),
    "pinned memory that is not given back": (
        [("//TOP", TABLES), ("//INIT", "pinned.struct_size = sizeof pinned; offers.pinned = &pinned; if (publish(host, sizeof offers, 0)) return 10;")],
        "init", "publish 'odd.device': `pinned`: `alloc` or `free` of the allocator is null"),
    "managed memory described too briefly": (
        [("//TOP", TABLES), ("//INIT", "pinned.struct_size = 8; offers.managed = &pinned; if (publish(host, sizeof offers, 0)) return 10;")],
        "init", r"publish 'odd.device': `managed`: the struct_size of RbAllocator is 8, expected"),
    "handles that nobody closes": (
        [("//TOP", TABLES), ("//INIT", "*(void**)&offers.ipc_export = any(); *(void**)&offers.ipc_open = any(); if (publish(host, sizeof offers, 0)) return 10;")],
        "init", "publish 'odd.device': of ipc_export, ipc_open and ipc_close some are null"),
    "events that no process can open": (
        [("//TOP", TABLES), ("//INIT", "*(void**)&offers.event_export = any(); if (publish(host, sizeof offers, 0)) return 10;")],
        "init", "publish 'odd.device': of event_export and event_open one is null"),
    "a capture that is too short": (
        [("//TOP", TABLES), ("//INIT", "if (publish(host, 0, RB_SIZE(RbCapture, graph_launch))) return 10;")], "init",
        r"publish 'odd.capture': the struct_size of RbCapture is 48, expected 56"),
    "a capture that does not end": (
        [("//TOP", TABLES), ("//INIT", "*(void**)&captures.capture_begin = any(); *(void**)&captures.graph_launch = any(); if (publish(host, 0, sizeof captures)) return 10;")],
        "init", "publish 'odd.capture': `capture_end` is null[^@]*`graph_instantiate` is null[^@]*`graph_destroy` is null"),
    "devices that cannot be counted": ([("return RB_OK; /*COUNT*/", "return RB_E_DEVICE;")], "devices", "RbDevices.count returned 6 with 1 devices; it must not fail"),
    "init reports a failure that is none": ([("//INIT", 'return host->err_set(RB_E_DEVICE, "no board");')], "init", r"init returned 6 \(no board\), though nothing failed"),
    "init crashes": ([("//INIT", "*(volatile int*)0 = 1;")], "init", "died of SIGSEGV: in the step 'init on a host"),
    "needs more than it was built with": ([("RB_ABI_MINOR, MIN", "RB_ABI_MINOR - 1, RB_ABI_MINOR")], "plugin", f"abi_min {NEWEST} is above abi_built {NEWEST - 1}"),
    "a table of its own for every call": (
        [("return &plugin; /*ENTRY*/", "RbPlugin* p = (RbPlugin*)malloc(sizeof *p); *p = plugin; return p;")], "plugin",
        "returns another pointer at the second call"),
    "a short table": ([("{RB_SIZE(RbPlugin, retire)", "{16")], "plugin", "the struct_size of RbPlugin is 16, expected at least"),
    "registers in a static constructor": (
        [("//TOP", REGISTERS)], "opening", r"opening the library, before init, changes: backends \(a static constructor\?\)"),
    "starts a thread in a static constructor": (
        [("//TOP", "#include <pthread.h>\n#include <unistd.h>\nstatic void* idle(void* p) { for (;;) pause(); return p; }\n"
          "__attribute__((constructor)) static void go(void) { pthread_t t; pthread_create(&t, 0, idle, 0); }")], "opening",
        "before init, changes: threads"),
    "throws through the boundary": (
        [("/*REFUSE*/ return", "throw 1; return")], "bad-calls",
        "the kernel of add, called with argument .*, lets a C\\+\\+ exception through|SIGABRT: in the step 'call add with argument"),
    "crashes at exit": (
        [("//TOP", "__attribute__((destructor)) static void end(void) { abort(); }")], "exiting", "died of SIGABRT: at exit, after all checks"),
    "talks at exit": (
        [("//TOP", "#include <stdio.h>\n__attribute__((destructor)) static void end(void) { fputs(\"bye\\n\", stderr); }")], "failing-exit",
        "words on stderr: bye"),
    "loads twice": ([('rc = host->add_backend(txn, &backend, &id);', "host->add_backend(txn, &backend, &id); rc = 0;")], "loading-twice",
                    "a copy of the library loads, though its names are taken|computes other numbers"),
    "a child that cannot go on": (
        [("//TOP", "#include <pthread.h>\n#include <unistd.h>\nstatic pid_t owner;"), ("//INIT", "owner = getpid();"),
         ("float alpha =", "if (getpid() != owner) abort(); float alpha =")], "forking", "a forked child ends with -6"),
    "threads that share a buffer": (
        [("//TOP", "#include <unistd.h>"),
         ("for (int64_t i = 0;", "static volatile float all[1 << 16]; for (int64_t i = 0; i < r[0].v.t->numel; ++i) "
          "all[i] = ((float*)a[0].v.t->data)[i]; if (r[0].v.t->numel > 1000) usleep(5000); for (int64_t i = 0;"),
         ("((float*)a[0].v.t->data)[i] + alpha", "all[i] + alpha")], "threading",
        "computations on several threads differ from those on one"),
}  # fmt: skip
CHECKS = {"plugin", "init", "failures", "devices"}


def build(folder, *changes, options=()):
    """The sound plugin with changes, as C++ where it throws."""
    text = SOUND
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    cpp = "throw 1" in text
    source = folder / ("odd.cpp" if cpp else "odd.c")
    source.write_text(text)
    compiler = (
        ["g++", "-std=c++17", "-static-libstdc++", "-static-libgcc"]
        if cpp
        else ["gcc", "-std=gnu11"]
    )
    command = [
        *compiler,
        "-O1",
        "-shared",
        "-fPIC",
        "-fvisibility=hidden",
        f"-DMIN={OLDEST}",
        f'-DCORE="{symbols.core_library()}"',
    ]
    subprocess.run(
        [
            *command,
            f"-I{rabbet.get_include()}",
            *options,
            str(source),
            "-o",
            str(folder / "libodd.so"),
        ],
        check=True,
    )
    return str(folder / "libodd.so")


def findings(check, path):
    # A crash is to end the process as it does for users, not in a sanitizer's report.
    env = {"ASAN_OPTIONS": f"{os.environ.get('ASAN_OPTIONS', '')}:handle_segv=0:handle_abort=0"}
    if check in CHECKS:
        return run_module("fake_host", path, check, **env)[0]
    env["RABBET_PLUGINS"] = "cpu" if check == "opening" else f"cpu,{path}"
    return run_module("probes", check, "device", "odd", path, "", **env)[0]


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return build(tmp_path_factory.mktemp("sound"))


@pytest.mark.parametrize("check", sorted({check for _, check, _ in BROKEN.values()}))
def test_a_sound_plugin_passes(check, sound):
    assert findings(check, sound) == []


@pytest.mark.parametrize("kind", BROKEN)
def test_what_is_broken_is_found_and_named(kind, tmp_path):
    changes, check, words = BROKEN[kind]
    if check == "threading" and "RABBET_SANITIZED" in os.environ:
        pytest.skip("the threads of instrumented code are too slow to meet in the buffer")
    found = findings(check, build(tmp_path, *changes))
    assert re.search(words, "\n".join(found)), found


@pytest.mark.parametrize(
    "top,words",
    [
        ("extern int Py_IsInitialized(void); int f(void); int f(void) { return Py_IsInitialized(); }", "needs symbols of Python: Py_IsInitialized"),
        ("extern int secret(void) __asm__(\"_ZN6rabbet11num_threadsEv\"); int f(void); int f(void) { return secret(); }",
         "needs symbols of rabbet-core: _ZN6rabbet11num_threadsEv"),
        ("RB_EXPORT void leaked(void) __asm__(\"_Z6leakedv\"); void leaked(void) {}", r"exports 1 C\+\+ symbols, such as _Z6leakedv"),
    ],
)  # fmt: skip
def test_symbols_are_judged(top, words, sound, tmp_path):
    assert symbols.judge(sound) == []
    assert re.search(words, "\n".join(symbols.judge(build(tmp_path, ("//TOP", top)))))


def judged(library, folder):
    """Level 0 of the kit on a library of a device `odd`."""
    return kit(folder, "--device=odd", "--level=L0", RABBET_PLUGINS=f"cpu,{library}")[0]


def test_the_kit_passes_a_sound_plugin_and_fails_a_broken_one(sound, tmp_path):
    good = judged(sound, tmp_path)
    assert good.returncode == 0 and re.search(
        r"L0: \d+ passed, \d+ not implemented", good.stdout
    ), good.stdout
    bad = judged(build(tmp_path, ("if (rc) return rc;", "")), tmp_path)
    assert bad.returncode == 1 and "failed with 10, but init returned 0" in bad.stdout, bad.stdout
