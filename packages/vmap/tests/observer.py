"""A layer below every transform that notes the calls that reach it: a plugin, compiled when first used."""

import ctypes
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import rabbet

_SOURCE = r"""
#include "rabbet/abi.h"
#include <stdio.h>
#include <string.h>
static const RbHost* host;
static int32_t layer;
static char notes[1 << 22];
static size_t used;

static int shares(const RbValue* args, int32_t n, const RbTensor* t) {
  for (int32_t i = 0; i < n; ++i) {
    if (args[i].tag == RB_TENSOR && host->same_storage(args[i].v.t, t)) return 1;
    for (uint32_t j = 0; args[i].tag == RB_TENSORS && j < args[i].len; ++j)
      if (args[i].v.ts[j] && host->same_storage(args[i].v.ts[j], t)) return 1;
  }
  return 0;
}
static int32_t see(void* self, const RbCall* c, const RbValue* args, int32_t n, RbValue* rets, int32_t m) {
  (void)self;
  const RbOpInfo* info = host->op_info(c->op);
  int writes = (c->flags & RB_CALL_OUT) != 0, alias = 0;
  for (int32_t i = 0; i < info->nargs; ++i) writes |= (RB_ARG(info, i)->flags & RB_ARG_MUTATED) != 0;
  const int32_t rc = host->redispatch(c, layer, args, n, rets, m);
  if (rc != RB_OK) return rc;
  for (int32_t i = 0; i < m && !writes; ++i) {
    if (rets[i].tag == RB_TENSOR) alias |= shares(args, n, rets[i].v.t);
    for (uint32_t j = 0; rets[i].tag == RB_TENSORS && j < rets[i].len; ++j) alias |= shares(args, n, rets[i].v.ts[j]);
  }
  if (used < sizeof notes - 256) used += (size_t)sprintf(notes + used, "%s %d %d\n", info->name, writes, alias);
  return RB_OK;
}
static int32_t init(const RbHost* h, RbTxn* txn) {
  host = h;
  RbLayer l;
  memset(&l, 0, sizeof l);
  l.struct_size = RB_SIZE(RbLayer, self);
  l.name = "observer";
  l.phase = 500;
  l.on_missing = RB_L_FALLBACK;
  l.fallback = see;
  return h->add_layer(txn, &l, &layer);
}
RB_EXPORT void observer_begin(void) { used = 0; notes[0] = 0; host->layer_mode(layer, 1, -1); }
RB_EXPORT const char* observer_end(void) { host->layer_mode(layer, 0, -1); return notes; }
static const RbPlugin plugin = {RB_SIZE(RbPlugin, retire), RB_ABI_MAJOR, RB_ABI_MINOR, RB_ABI_NEEDED, 0, 0, "observer", "1.0", init, 0};
RB_EXPORT const RbPlugin* rabbet_plugin_v0(void) { return &plugin; }
"""


@dataclass(frozen=True)
class Seen:
    """A call: its operator, whether it wrote to a tensor, whether a result shares memory with an argument."""

    op: str
    writes: bool
    alias: bool


@functools.cache
def _library() -> ctypes.CDLL:
    folder = Path(tempfile.mkdtemp())
    try:
        (folder / "observer.c").write_text(_SOURCE)
        library = folder / "libobserver.so"
        command = [
            "gcc",
            "-std=c11",
            "-shared",
            "-fPIC",
            "-O1",
            "-Wall",
            "-I",
            rabbet.get_include(),
        ]
        subprocess.run([*command, str(folder / "observer.c"), "-o", str(library)], check=True)
        rabbet._C.load_plugin(str(library))
        loaded = ctypes.CDLL(str(library))
    finally:
        shutil.rmtree(folder)
    loaded.observer_end.restype = ctypes.c_char_p
    return loaded


@contextmanager
def observed() -> Iterator[list[Seen]]:
    """The calls of this thread inside, in order; the list is filled at the end."""
    seen: list[Seen] = []
    library = _library()
    library.observer_begin()
    try:
        yield seen
    finally:
        for line in library.observer_end().decode().splitlines():
            op, writes, alias = line.split()
            seen.append(Seen(op, writes == "1", alias == "1"))


def check_functional(seen: list[Seen], written: int, copies: bool) -> None:
    """Assert that nothing was written but `written` arguments, by a copy_ each at the end."""
    program = seen[: len(seen) - written]
    assert not [call for call in program if call.writes or (copies and call.alias)]
    assert [(c.op, c.writes) for c in seen[len(program) :]] == [("copy", True)] * written
