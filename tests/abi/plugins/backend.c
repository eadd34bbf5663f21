/* The device `old`: memory that the host cannot read (addresses are disguised), a few kernels, an
 * error of its own. Compiles with the header of every minor version. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rabbet/abi.h"

#ifndef RB_ABI_NEEDED
#define RB_ABI_NEEDED RB_ABI_MINOR
#endif
#define MASK ((uintptr_t)0x55 << 48)

static const RbHost* core;
static int32_t self_id;
static int forked;

static void* real(const RbTensor* t) {
  return t->backend == self_id ? (void*)((uintptr_t)t->data ^ MASK) : t->data;
}
static int32_t alloc(void* self, int32_t device, uint64_t n, void* stream, RbBuffer* out) {
  (void)self, (void)stream;
  if (forked) return core->err_set(RB_E_DEVICE, "old: lost by fork");
  if (n > 1 << 24) return core->err_set(RB_E_OOM, "old: small");
  (void)device;
  out->data = (void*)((uintptr_t)malloc(n) ^ MASK);
  return RB_OK;
}
static void release(void* self, RbBuffer* b, void* stream) {
  (void)self, (void)stream;
  free((void*)((uintptr_t)b->data ^ MASK));
}
static int32_t count(void* self, int32_t* n) { return (void)self, *n = 2, RB_OK; }
static int32_t sync(void* self, int32_t device) { return (void)self, (void)device, RB_OK; }
static int32_t copy(void* self, const RbTensor* from, const RbTensor* to, void* stream,
                    uint32_t nonblocking) {
  (void)self, (void)stream, (void)nonblocking;
  memcpy(real(to), real(from), (size_t)from->numel * (from->dtype.bits / 8));
  return RB_OK;
}
static void fork_child(void* self) { (void)self, forked = 1; }

/* input, other, alpha: float32, row-major */
static int32_t add(void* self, const RbCall* call, const RbValue* args, int32_t nargs, RbValue* rets,
                   int32_t nrets) {
  (void)self, (void)nrets;
  const RbTensor* out = rets[0].v.t;
  const double alpha = nargs < 3 || args[2].tag == RB_NONE ? 1
                       : args[2].tag == RB_FLOAT           ? args[2].v.f
                                                           : (double)args[2].v.i;
  for (int k = 0; k < 2; ++k) {
    if (args[k].tag == RB_TENSOR && args[k].v.t->numel == out->numel) continue;
    char text[128];
    const RbOpInfo* info = core->op_info(call->op);
    snprintf(text, sizeof text, "old: %s takes '%s' of the result's size", info->name,
             RB_ARG(info, k)->name);
    return core->err_set(RB_E_NOTIMPL, text);
  }
  const float *x = real(args[0].v.t), *y = real(args[1].v.t);
  for (int64_t i = 0; i < out->numel; ++i) ((float*)real(out))[i] = x[i] + (float)alpha * y[i];
  return RB_OK;
}
static int32_t clone(void* self, const RbCall* call, const RbValue* args, int32_t nargs,
                     RbValue* rets, int32_t nrets) {
  (void)call, (void)nargs, (void)nrets;
  const int source = self ? 1 : 0;
  return copy(0, args[source].v.t, rets[0].v.t, 0, 0);
}

static int32_t init(const RbHost* host, RbTxn* txn) {
  static const RbAllocator allocator = {RB_SIZE(RbAllocator, free), 0, 0, alloc, release};
  static const RbDevices devices = {
      RB_SIZE(RbDevices, fork_child), 0, 0, count, sync, copy, fork_child};
  static const RbBackend backend = {
      RB_SIZE(RbBackend, allocator), 0, "old", 12, 0, &devices, &allocator};
  static char second;
  const struct {
    const char* op;
    RbFn fn;
    void* self;
  } kernels[] = {{"add", add, 0}, {"clone", clone, 0}, {"copy", clone, &second}};
  core = host;
  int32_t rc = host->add_backend(txn, &backend, &self_id);
  for (size_t i = 0; rc == RB_OK && i < sizeof kernels / sizeof *kernels; ++i) {
    RbKernel k;
    memset(&k, 0, sizeof k);
    k.struct_size = RB_SIZE(RbKernel, reserved);
    k.flags = RB_K_CONTIGUOUS;
    k.op = kernels[i].op;
    k.backend = "old";
    k.fn = kernels[i].fn;
    k.self = kernels[i].self;
    k.dtype_mask = 1ull << RB_F32;
    rc = host->add_kernel(txn, &k);
  }
  return rc;
}
static const RbPlugin plugin = {RB_SIZE(RbPlugin, retire), RB_ABI_MAJOR, RB_ABI_MINOR,
                                RB_ABI_NEEDED,             0,            0,
                                "old-backend",             "1.0",        init,
                                0};
RB_EXPORT const RbPlugin* rabbet_plugin_v0(void) { return &plugin; }
