"""Wrong plugins in C++: a healthy one of a kernel, a layer and a backend, with some of its functions replaced.

The library has every replacement; a process chooses among them by its environment, so one build serves all.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import rabbet

# By function of the plugin, what it may do instead of the healthy (the first) body, and what is said of that then:
# a pattern; "" where nothing need be said.
BODIES: dict[str, dict[str, tuple[str, str]]] = {
    "layer": {
        "healthy": ("return pass(c, a, n, r, m);", ""),
        "makes a full call": ("return host->call(c->op, a, n, r, m, c->flags);", r"'odd'.* redispatch"),
        "makes another call": ("RbValue v = make(RB_NONE); if (int32_t rc = host->call(op(\"ones_like\"), a, 1, &v, 1, 0)) return rc; "
                               "host->value_release(&v); return pass(c, a, n, r, m);", r"'odd'.* redispatch"),
        "returns no result": ("return RB_OK;", r"(\w+): .*'odd'.* without result 0|"),
        "returns a null tensor": ("r[0] = of(nullptr); return RB_OK;", r"(\w+): .*'odd'"),
        "returns an int": ("r[0] = make(RB_INT); return RB_OK;", r"(\w+): .*'odd'"),
        "returns a code": ("return RB_E_STATE;", r"neg: the handler of the layer 'odd' \[odd 1.0\] returned code \d+ and left no message"),
        "returns an unknown code": ("return 77;", r"neg: the handler of the layer 'odd' \[odd 1.0\] returned code 77 and left no message"),
        "returns a negative code": ("return -5;", r"returned code -5 and left no message"),
        "declines": ("return RB_E_NOTIMPL;", r"returned code \d+ and left no message"),
        "throws": ("burst();", r"neg: the handler of the layer 'odd' \[odd 1.0\] let an exception through: burst"),
        "throws an int": ("throw 3;", r"neg: the handler of the layer 'odd' \[odd 1.0\] let an exception through: one of an unknown type"),
        "throws a stored error": ('rb::check(host->err_set(RB_E_STATE, "no board")); return RB_OK;', r"no board\nwhile running .*'odd'"),
        "gives another dtype": ("if (c->flags & RB_CALL_OUT) return pass(c, a, n, r, m); r[0] = of(tensor(RB_I64, 2)); return RB_OK;",
                                r"neg: the layer 'odd' \[odd 1.0\] returned \w+ of shape \(2,?\) and dtype int64; by the record"),
        "gives another shape": ("if (c->flags & RB_CALL_OUT) return pass(c, a, n, r, m); r[0] = of(tensor(RB_F32, 7)); return RB_OK;",
                                r"neg: the layer 'odd' \[odd 1.0\] returned \w+ of shape \(7,?\)"),
        "gives another device": ("if (c->flags & RB_CALL_OUT) return pass(c, a, n, r, m); r[0] = of(tensor(RB_F32, 2, backend_id)); return RB_OK;",
                                 r"neg: the layer 'odd' \[odd 1.0\] returned \w+ on odd, but 'input' is on cpu"),
        "replaces the destination": ("if (!(c->flags & RB_CALL_OUT)) return pass(c, a, n, r, m); r[0] = of(tensor(RB_F32, 2)); return RB_OK;",
                                     r"neg: the layer 'odd' \[odd 1.0\] put another value in place of result 0"),
        "redispatches to itself": ("return host->redispatch_new(c, 63, a, n, r, m);", r"redispatch"),
        "redispatches to a backend": ("return host->redispatch(c, 1, a, n, r, m);", r"redispatch: 1 is not the id"),
        "redispatches too few arguments": ("return host->redispatch(c, layer_id, a, n - 1, r, m);", r"redispatch of \w+: expected"),
        "redispatches a negative number": ("return host->redispatch(c, layer_id, a, -1, r, m);", r"redispatch of \w+: expected"),
        "redispatches no results": ("return host->redispatch(c, layer_id, a, n, nullptr, m);", r"redispatch of \w+: expected"),
        "decomposes all": ("return host->decompose(c, a, n, r, m);", r"'odd'|decomposition"),
        "calls with a null tensor": ('RbValue v = of(nullptr), w = make(RB_NONE); return host->call(op("exp"), &v, 1, &w, 1, 0);', "cannot be a tensor"),
        "turns its mode off": ("host->layer_mode(layer_id, 0, -1); return host->call(c->op, a, n, r, m, c->flags);", ""),
        "leaves a tensor behind": ("tensor(RB_F32, 2); return pass(c, a, n, r, m);", ""),
    },
    "kernel": {
        "healthy": ("std::memcpy(r[0].v.t->data, a[0].v.t->data, 8); return RB_OK;", ""),
        "calls itself": ("RbValue v = make(RB_NONE); if (int32_t rc = host->call(c->op, a, n, &v, 1, 0)) return rc; "
                         "host->value_release(&v); return RB_OK;", r"odd::f: 256 calls .* inside each other[^$]*while running odd::f on cpu \[odd 1.0\]"),
        "returns a code": ("return RB_E_STATE;", r"odd::f: the kernel for cpu \[odd 1.0\] returned code \d+ and left no message"),
        "returns an unknown code": ("return 1000;", r"odd::f: the kernel for cpu \[odd 1.0\] returned code 1000"),
        "declines": ("return RB_E_NOTIMPL;", r"odd::f: the kernel for cpu \[odd 1.0\] declined"),
        "throws": ("burst();", r"odd::f: the kernel for cpu \[odd 1.0\] let an exception through: burst"),
        "throws an int": ("throw 3;", r"odd::f: the kernel for cpu \[odd 1.0\] let an exception"),
        "throws bad_alloc": ("throw std::bad_alloc();", r"odd::f: the kernel for cpu \[odd 1.0\] let an exception through: out of memory"),
        "throws in parallel": ("return host->parallel_for(1, 1, [](int64_t, int64_t, void*) { burst(); }, nullptr);",
                               r"a body of parallel_for of odd 1.0 let an exception through: burst"),
        "throws on threads": ("return host->parallel_for(100000, 1, [](int64_t, int64_t, void*) { burst(); }, nullptr);",
                              r"a body of parallel_for of odd 1.0 let an exception through: burst"),
        "throws on one thread": ("return host->parallel_for(100000, 1, [](int64_t from, int64_t, void*) { if (from) burst(); }, nullptr);",
                                 r"a body of parallel_for of odd 1.0 let an exception through: burst"),
        "adopts with a throwing deleter": ("RbTensor* t = nullptr; if (int32_t rc = host->tensor_adopt(&one, 1, 0, RB_I64, 1, &one, nullptr, 0, "
                                           "nullptr, [](void*) { burst(); }, &t)) return rc; host->release(t); return RB_OK;",
                                           r"the deleter of memory that odd 1.0 gave to tensor_adopt let an exception through: burst"),
        "sets a slot": ("return host->slot_set(a[0].v.t, slot, &one, 0);", ""),
        "sets a slot twice": ("static int64_t other; host->slot_set(a[0].v.t, slot, &one, 0); return host->slot_set(a[0].v.t, slot, &other, 0);", ""),
        "sets no slot": ("return host->slot_set(a[0].v.t, 99, &one, 0);", "slot_set: 99 is not a slot"),
        "drops its result": ("r[0].v.t = nullptr; return RB_OK;", r"odd::f: the kernel put another value in place of result 0.*on cpu \[odd 1.0\]"),
        "replaces its result": ("r[0] = of(tensor(RB_F32, 7)); return RB_OK;", r"odd::f: the kernel put another value in place of result 0.*on cpu \[odd 1.0\]"),
        "squeezes with an int": ('RbValue v[2] = {a[0], make(RB_INT)}, w = make(RB_NONE); int32_t rc = host->call(op("unsqueeze"), v, 2, &w, 1, 0); '
                                 "if (rc) return rc; host->value_release(&w); return RB_OK;", ""),
        "calls with a str for a dim": ('RbValue v[2] = {a[0], make(RB_STR)}, w = make(RB_NONE); v[1].v.s = "x"; '
                                       'return host->call(op("unsqueeze"), v, 2, &w, 1, 0);', "unsqueeze: the argument 'dim' cannot be a str"),
        "pops a level": ("return host->transform_pop(3);", r"transform_pop"),
        "asks for the stream of nothing": ("void* s; return host->stream_get(99, 0, &s);", "stream_get: 99 is not the id of a backend"),
        "makes a huge tensor": ("int64_t n = int64_t{1} << 61; RbTensor* t; return host->tensor_new(1, 0, RB_F32, 1, &n, nullptr, &t);", r"too large|out of memory"),
    },
    "allocating": {
        "healthy": ("r[0] = of(tensor(RB_F32, 2)); return RB_OK;", ""),
        "returns no result": ("return RB_OK;", r"odd::g: a function of odd 1.0 returned RB_OK without result 0"),
        "returns a null tensor": ("r[0] = of(nullptr); return RB_OK;", r"odd::g: a function of odd 1.0 returned RB_OK without result 0"),
        "returns an int": ("r[0] = make(RB_INT); return RB_OK;", r"odd::g: a function of odd 1.0 returned RB_OK without result 0"),
        "gives another dtype": ("r[0] = of(tensor(RB_I64, 2)); return RB_OK;", r"odd::g: the kernel for 'cpu' \[odd 1.0\] returned \w+ of shape \(2,?\) and dtype int64"),
        "gives another shape": ("r[0] = of(tensor(RB_F32, 7)); return RB_OK;", r"odd::g: the kernel for 'cpu' \[odd 1.0\] returned \w+ of shape \(7,?\)"),
        "gives another device": ("r[0] = of(tensor(RB_F32, 2, backend_id)); return RB_OK;", r"odd::g: the kernel for 'cpu' \[odd 1.0\] returned \w+ on odd"),
        "throws": ("burst();", r"odd::g: the kernel for cpu \[odd 1.0\] let an exception through: burst"),
        "calls itself": ("return host->call(c->op, a, n, r, m, 0);", r"odd::g: 256 calls"),
        "returns a code": ("return RB_E_TYPE;", r"odd::g: the kernel for cpu \[odd 1.0\] returned code"),
    },
    "alloc": {
        "healthy": ("out->data = std::aligned_alloc(64, (n + 63) / 64 * 64); return RB_OK;", ""),
        "gives null": ("out->data = nullptr; return RB_OK;", r"`alloc` of the backend 'odd' \[odd 1.0\] allocated no usable memory: `data` is null"),
        "gives nothing": ("(void)out; return RB_OK;", r"`alloc` of the backend 'odd' \[odd 1.0\] allocated no usable memory: `data` is null"),
        "misaligns": ("out->data = static_cast<char*>(std::malloc(n + 64)) + 1; return RB_OK;", r"`alloc` of the backend 'odd' .* must be a multiple of 16"),
        "gives too little": ("out->data = std::aligned_alloc(64, 64); out->nbytes = 64; return RB_OK;", r"`alloc` of the backend 'odd' .* `nbytes` is 64 where \d+ were"),
        "returns a code": ("(void)out; return RB_E_DEVICE;", r"`alloc` of the backend 'odd' \[odd 1.0\] returned code \d+ and left no message"),
        "is out of memory": ("(void)out; return RB_E_OOM;", r"out of memory on odd"),
        "throws": ("(void)out; burst();", r"`alloc` of the backend 'odd' \[odd 1.0\] let an exception through: burst"),
    },
    "free": {"healthy": ("if (reinterpret_cast<uintptr_t>(b->data) % 64 == 0) std::free(b->data);", ""),
             "throws": ("(void)b; burst();", "`free` of the backend 'odd' .* let an exception through: burst")},
    "count": {
        "healthy": ("*n = 1; return RB_OK;", ""),
        "returns a code": ("(void)n; return RB_E_DEVICE;", r"`count` of the backend 'odd' \[odd 1.0\] returned code \d+"),
        "throws": ("(void)n; burst();", r"`count` of the backend 'odd' \[odd 1.0\] let an exception through: burst"),
        "is negative": ("*n = -4; return RB_OK;", ""),
        "is zero": ("*n = 0; return RB_OK;", ""),
    },
    "sync": {
        "healthy": ("return RB_OK;", ""),
        "returns a code": ("return RB_E_DEVICE;", r"`sync` of the backend 'odd' \[odd 1.0\] returned code \d+"),
        "throws": ("burst();", r"`sync` of the backend 'odd' \[odd 1.0\] let an exception through: burst"),
    },
    "drop": {"healthy": ("", ""), "throws": ("burst();", "")},
    "retire": {"healthy": ("", ""), "throws": ("burst();", r"`retire` of plugin 'odd' let an exception through: burst")},
    "init": {
        "healthy": ("return RB_OK;", ""),
        "returns a code": ("return RB_E_STATE;", r"`init` of plugin 'odd 1.0' returned code \d+ and left no message"),
        "throws": ("burst();", r"`init` of plugin 'odd 1.0' let an exception through: burst"),
        "commits": ("return host->txn_commit(txn);", "core commits the transaction of `init`"),
        "aborts": ("return host->txn_abort(txn);", "transaction"),
        "adds a wrong formula": (r'return host->add_ops(txn, "odd::w(Tensor x) -> Tensor\n  kind composite\n  decomp nowhere(x)\n");', "odd.*nowhere"),
        "adds a wrong record": (r'return host->add_ops(txn, "odd::w(Tensor x -> Tensor\n");', "odd"),
        "takes all slots": ('int32_t s; uint32_t at; for (int i = 0; i < 9; ++i) if (int32_t rc = host->slot_new("odd", layer_id, drop, &s, &at)) return rc; '
                            "return RB_OK;", "per-tensor slots are taken"),
    },
    "entry": {"healthy": ("", ""), "throws": ("burst();", r"rabbet_plugin_v0\(\) let an exception through: burst"),
              "returns null": ("return nullptr;", r"rabbet_plugin_v0\(\) returned null")},
}  # fmt: skip
# Structs whose members may be overwritten, each before core sees it.
STRUCTS = ("RbPlugin", "RbLayer", "RbKernel", "RbBackend", "RbAllocator", "RbDevices")
PHASES = (50, 150, 350, 420, 550, 650, 750)
SOURCE = r"""
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include "rabbet/plugin.hpp"
namespace {
const RbHost* host;
int32_t layer_id, backend_id, slot;
uint32_t offset;
int64_t one = 1;
[[maybe_unused]] const RbOp* op(const char* name) { return host->find_op(name); }
[[maybe_unused]] RbValue make(uint32_t tag) { RbValue v; std::memset(&v, 0, sizeof v); v.tag = tag; return v; }
[[maybe_unused]] RbValue of(RbTensor* t) { RbValue v = make(RB_TENSOR); v.v.t = t; return v; }
[[maybe_unused]] RbTensor* tensor(int dtype, int64_t n, int32_t on = 1)
{ RbTensor* t = nullptr; if (host->tensor_new(on, 0, dtype, 1, &n, nullptr, &t) == RB_OK && on == 1)
    std::memset(t->data, 0, n * t->dtype.bits / 8);
  return t; }
int32_t pass(const RbCall* c, const RbValue* a, int32_t n, RbValue* r, int32_t m)
{ return host->redispatch(c, layer_id, a, n, r, m); }
[[noreturn]] void burst() { throw std::runtime_error("burst"); }
int number(const char* name, int otherwise)
{ const char* text = std::getenv((std::string("ODD_") + name).c_str()); return text ? std::atoi(text) : otherwise; }
// ODD_STRUCT: "RbLayer 16 8 0", the struct, where in it, how many bytes, and which number comes there.
template <class T>
T* changed(const char* name, T* s) {
  const char* text = std::getenv("ODD_STRUCT");
  char which[32]; unsigned at, bytes; long long value;
  if (text && std::sscanf(text, "%%31s %%u %%u %%lld", which, &at, &bytes, &value) == 4 && !std::strcmp(which, name) &&
      at + bytes <= sizeof *s && bytes <= 8)
    std::memcpy(reinterpret_cast<char*>(s) + at, &value, bytes);
  return s;
}
void drop(void* p);
#define HANDLER void* s, const RbCall* c, const RbValue* a, int32_t n, RbValue* r, int32_t m
#define UNUSED (void)s, (void)c, (void)a, (void)n, (void)r, (void)m
int32_t layer(HANDLER) { UNUSED; switch (number("LAYER", 0)) { %(layer)s } return RB_OK; }
int32_t kernel(HANDLER) { UNUSED; switch (number("KERNEL", 0)) { %(kernel)s } return RB_OK; }
int32_t allocating(HANDLER) { UNUSED; switch (number("ALLOCATING", 0)) { %(allocating)s } return RB_OK; }
int32_t alloc(void*, int32_t, uint64_t n, void*, RbBuffer* out) { (void)n; switch (number("ALLOC", 0)) { %(alloc)s } return RB_OK; }
void release(void*, RbBuffer* b, void*) { switch (number("FREE", 0)) { %(free)s } }
int32_t count(void*, int32_t* n) { switch (number("COUNT", 0)) { %(count)s } return RB_OK; }
int32_t sync(void*, int32_t) { switch (number("SYNC", 0)) { %(sync)s } return RB_OK; }
int dropped;
void drop(void*) { ++dropped; switch (number("DROP", 0)) { %(drop)s } }
RbAllocator allocator; RbDevices devices; RbBackend backend; RbLayer layer_struct; RbKernel kernels[2];

int32_t init(const RbHost* given, RbTxn* txn) {
  host = rb::host = given;
  allocator = {RB_SIZE(RbAllocator, free), number("ALLOC_FLAGS", 0) & 3u, nullptr, alloc, release};
  devices = {RB_SIZE(RbDevices, fork_child), 0, nullptr, count, sync, nullptr, nullptr};
  backend = {RB_SIZE(RbBackend, allocator), RB_B_HOST_MEMORY, "odd", 12, 0, changed("RbDevices", &devices), changed("RbAllocator", &allocator)};
  rb::check(host->add_backend(txn, changed("RbBackend", &backend), &backend_id));
  layer_struct.struct_size = sizeof(RbLayer);
  layer_struct.name = "odd";
  layer_struct.phase = number("PHASE", 150);
  layer_struct.fallback = layer;
  rb::check(host->add_layer(txn, changed("RbLayer", &layer_struct), &layer_id));
  rb::check(host->slot_new("odd", layer_id, drop, &slot, &offset));
  rb::check(host->add_ops(txn, "odd::f(Tensor x) -> Tensor\n  kind opaque\n  dtype x\n  shape x.shape\n"
                               "odd::g(Tensor x) -> Tensor\n  kind opaque\n  dtype x\n  shape x.shape\n"));
  for (int i = 0; i < 2; ++i) {
    RbKernel& k = kernels[i];
    k.struct_size = sizeof k;
    k.op = i ? "odd::g" : "odd::f";
    k.backend = "cpu";
    k.fn = i ? allocating : kernel;
    k.flags = i ? RB_K_ALLOCATES : 0;
    rb::check(host->add_kernel(txn, changed("RbKernel", &k)));
  }
  switch (number("INIT", 0)) { %(init)s }
  return RB_OK;
}
int32_t guarded_init(const RbHost* given, RbTxn* txn) {
  try { return init(given, txn); } catch (const rb::Stored& stored) { return stored.code; }
}
int32_t retire(const RbHost*) { switch (number("RETIRE", 0)) { %(retire)s } return RB_OK; }
RbPlugin plugin = {RB_SIZE(RbPlugin, retire), RB_ABI_MAJOR, RB_ABI_MINOR, 6, 0, 0, "odd", "1.0", guarded_init, retire};
}  // namespace
extern "C" RB_EXPORT const RbPlugin* rabbet_plugin_v0() {
  switch (number("ENTRY", 0)) { %(entry)s }
  return changed("RbPlugin", &plugin);
}
extern "C" RB_EXPORT void turn(int32_t on) { if (host) host->layer_mode(layer_id, on, -1); }
extern "C" RB_EXPORT int32_t count_dropped() { return dropped; }
"""
# What a process does with the plugin: everything that comes to it, each in a `try`.
WORK = r"""
import ctypes, gc, json, sys
import rabbet
path, said, here = sys.argv[1], {}, rabbet.ones(2)
def attempt(name, make):
    try:
        made = make()
        said[name] = ["", [list(made.shape), str(made.dtype), str(made.device)] if isinstance(made, rabbet.Tensor) else None]
    except Exception as error:
        said[name] = [str(error), type(error).__name__]
attempt("load", lambda: rabbet._C.load_plugin(path))
library = ctypes.CDLL(path)
if not said["load"][0]:
    attempt("f", lambda: rabbet.ops("odd::f")(rabbet.ones(2)))
    attempt("g", lambda: rabbet.ops("odd::g")(rabbet.ones(2)))
    attempt("g to", lambda: rabbet.ops("odd::g")(rabbet.ones(2), out=rabbet.empty(2)))
    library.turn(1)
    attempt("neg", lambda: rabbet.neg(here))
    attempt("neg to", lambda: rabbet.neg(here, out=rabbet.empty(2)))
    attempt("neg_", lambda: rabbet.ones(2).neg_())
    attempt("add", lambda: here + here)
    attempt("grad", lambda: rabbet.ones(2, requires_grad=True).exp().sum().backward())
    library.turn(0)
    attempt("memory", lambda: rabbet._C.empty_cache() or rabbet.empty(300000, device="odd"))
    attempt("other memory", lambda: rabbet.empty(3, device="odd:1"))
    attempt("sync", lambda: rabbet._C.synchronize(rabbet.device("odd")))
    attempt("backends", lambda: rabbet._C.backends())
gc.collect()
attempt("empty", lambda: rabbet._C.empty_cache())
there = rabbet.arange(3.0, requires_grad=True)
(there * there).sum().backward()
said["here"] = [there.grad.tolist(), (here + 1).tolist(), rabbet.vmap(lambda t: t * 2)(rabbet.ones(2)).tolist(), library.count_dropped()]
print(json.dumps(said))
"""


def cases(function: str) -> str:
    """The bodies of a function as the cases of a `switch`."""
    bodies = (code for code, _ in BODIES[function].values())
    return " ".join(f"case {i}: {{ {code} }} break;" for i, code in enumerate(bodies))


@cache
def library() -> Path:
    """The library with all bodies, built once in a process."""
    folder = Path(tempfile.mkdtemp(prefix="rabbet-fuzz-"))
    text, made = folder / "odd.cpp", folder / "libodd.so"
    text.write_text(SOURCE % {function: cases(function) for function in BODIES})
    command = ["g++", "-std=c++17", "-O0", "-shared", "-fPIC", "-Wno-missing-field-initializers", "-fvisibility=hidden",
               "-I", rabbet.get_include(), str(text), "-o", str(made)]  # fmt: skip
    subprocess.run(command, check=True)
    return made


def call(seed: int, index: int) -> dict[str, Any]:
    """The description of a wrong plugin: which bodies and which member of a struct it has."""
    draw = random.Random(f"native {seed} {index}")
    chosen: dict[str, str] = {}
    struct = ""
    if draw.random() < 0.25:
        name = draw.choice(STRUCTS)
        at, size = draw.choice(((0, 4), (4, 4), *((8 * i, 8) for i in range(1, 8))))
        value = draw.choice((0, 0, 0, 4, 12, 24, 1 << 30)) if at < 8 else 0
        struct = f"{name} {at} {size} {value}"
    for function in draw.sample(list(BODIES), draw.choice((1, 1, 1, 2, 3))):
        chosen[function] = draw.choice(list(BODIES[function])[1:])
    return {"op": "odd", "form": "native", "context": "plain", "bodies": chosen, "struct": struct,
            "phase": draw.choice(PHASES)}  # fmt: skip


def environment(call: dict[str, Any]) -> dict[str, str]:
    """The variables by which a process chooses what the plugin does."""
    chosen = {f"ODD_{f.upper()}": str(list(BODIES[f]).index(b)) for f, b in call["bodies"].items()}
    chosen["ODD_PHASE"] = str(call["phase"])
    if call["struct"]:
        chosen["ODD_STRUCT"] = call["struct"]
    return chosen


def work(call: dict[str, Any], made: Path, timeout: float = 60.0) -> tuple[Any, str]:
    """What a process that uses the plugin said, and its stderr; instead of the former how it ended."""
    command = [sys.executable, "-c", WORK, str(made)]
    variables = {**os.environ, **environment(call), "RABBET_NUM_THREADS": "3"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=variables, timeout=timeout
        )
    except subprocess.TimeoutExpired:
        return "hang", ""
    if done.returncode:
        return f"crash: {done.returncode}: {done.stderr[-300:]}", done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def fault(call: dict[str, Any], said: Any, stderr: str) -> str:
    """What is wrong with what a process said of the plugin; "" if nothing."""
    if isinstance(said, str):
        return said
    here = said.pop("here")
    if here[:3] != [[0, 2, 4], [2, 2], [2, 2]]:
        return f"the CPU gave {here}"
    errors = [text for text, *_ in said.values() if text]
    for name, (text, made) in said.items():
        if not text and name in ("f", "g", "neg", "add") and (made is None or made[0] != [2]):
            return f"{name} gave {made}"
        if "left no message" in text and "odd" not in text:
            return f"{name} names nobody: {text}"
        if made == "InternalError":
            return f"{name} raised InternalError: {text}"
    if len(call["bodies"]) == 1 and not call["struct"] and call["phase"] == 150:
        ((function, body),) = call["bodies"].items()
        pattern = BODIES[function][body][1]
        if not any(re.search(pattern, text, re.DOTALL) for text in [*errors, stderr]):
            return f"nothing says /{pattern}/: {errors} {stderr[-300:]}"
    return ""


def run(call: dict[str, Any]) -> dict[str, Any]:
    """Use the plugin in a process of its own."""
    wrong = fault(call, *work(call, library()))
    return {"fault": wrong} if wrong else {"result": None}
