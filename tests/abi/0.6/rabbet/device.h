/* rabbet/device.h: what a backend may offer of its devices beyond RbDevices. It publishes the table
 * RbDeviceTable under "NAME.device", version 1 (RbHost.publish), where NAME is the backend's. Every
 * member behind `self` may be null: core refuses in words what is missing. RbMemoryTable is core's
 * side of it. Tables and the allocators in them stay valid for the rest of the process. Functions
 * may be called from several threads at once, and return RB_OK or a code whose message err_set was
 * given. docs/reference/memory.md says when core calls what.
 */
#ifndef RABBET_DEVICE_H
#define RABBET_DEVICE_H

#include "rabbet/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RB_DEVICE_EXT "device" /* "NAME.device" */
#define RB_DEVICE_VERSION 1
#define RB_MEMORY_EXT "rabbet.memory"
#define RB_MEMORY_VERSION 1

enum { /* kinds of memory */
       RB_MEMORY_DEVICE,
       RB_MEMORY_PINNED, /* host memory that a device reads and writes without staging */
       RB_MEMORY_MANAGED /* of a device, which the CPU can read and write, too */
};

/* What another process of the same machine opens a segment by. */
typedef struct RbIpcHandle {
  uint32_t struct_size, nbytes; /* nbytes: of `bytes` that are used */
  unsigned char bytes[256];
} RbIpcHandle;

typedef struct RbDeviceTable {
  uint32_t struct_size, flags;
  void* self;
  /* Allocators of the other kinds, as RbBackend.allocator is of device memory. `device` is the one
   * for whose sake pinned memory is asked; its `stream` is null. */
  const RbAllocator *pinned, *managed;
  /* Bytes, of all processes. */
  int32_t (*memory_info)(void* self, int32_t device, uint64_t* free, uint64_t* total);
  /* Calls `add` for each property (RB_BOOL, RB_INT, RB_FLOAT or RB_STR), which copies what it gets,
   * and returns the first code that is not RB_OK. */
  int32_t (*properties)(void* self, int32_t device, void* ctx,
                        int32_t (*add)(void* ctx, const char* name, const RbValue* value));
  /* Whether kernels on `device` may read and write memory of `peer`. */
  int32_t (*can_access_peer)(void* self, int32_t device, int32_t peer, int32_t* can);
  /* A segment of device memory, as `alloc` gave it, for another process; what that one opens stays
   * valid until ipc_close there and `free` here. */
  int32_t (*ipc_export)(void* self, const RbBuffer* segment, RbIpcHandle* out);
  int32_t (*ipc_open)(void* self, int32_t device, const RbIpcHandle* handle, RbBuffer* out);
  void (*ipc_close)(void* self, RbBuffer* segment);
  /* Run fn(ctx) once, on any thread, when the work that the stream has been given so far is done.
   * `fn` calls neither the device nor operators. */
  int32_t (*host_call)(void* self, int32_t device, void* stream, void (*fn)(void* ctx), void* ctx);
  /* RB_OK, or the error that the device will not recover from, with its message. Cheap; core asks
   * after a call of the backend failed or waited. All later calls on the device then fail with
   * RB_E_DEVICE. */
  int32_t (*poll_error)(void* self, int32_t device);
  /* Segments of device memory that change their length in place; both members or none. `segment` is
   * one that RbBackend.allocator gave, with the length that it has now. segment_grow appends at
   * least `nbytes` and sets segment->nbytes to the whole; RB_E_NOTIMPL: this one cannot grow, core
   * asks for another; RB_E_OOM: there is no memory. */
  int32_t (*segment_grow)(void* self, RbBuffer* segment, uint64_t nbytes);
  /* Give the end back, when the work that `stream` has been given is done. The first `nbytes` stay,
   * perhaps more; segment->nbytes becomes what is left. */
  int32_t (*segment_shrink)(void* self, RbBuffer* segment, uint64_t nbytes, void* stream);
} RbDeviceTable;

/* Got by host->get_ext(RB_MEMORY_EXT, RB_MEMORY_VERSION). */
typedef struct RbMemoryTable {
  uint32_t struct_size, flags;
  /* As RbHost.tensor_new, in memory of a kind. A tensor in pinned memory is one of the CPU's;
   * `backend` and `device` say for whose sake it is pinned. */
  int32_t (*tensor_new)(int32_t kind, int32_t backend, int32_t device, int32_t dtype, int32_t ndim,
                        const int64_t* shape, RbTensor** out);
  /* Whether the tensor's memory is of the kind. Memory that core's allocator did not give counts as
   * RB_MEMORY_DEVICE. */
  int32_t (*is_kind)(const RbTensor*, int32_t kind, int32_t* is);
  /* What the backend's memory_info says; RB_E_NOTIMPL where it has none. */
  int32_t (*memory_info)(int32_t backend, int32_t device, uint64_t* free, uint64_t* total);
} RbMemoryTable;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
