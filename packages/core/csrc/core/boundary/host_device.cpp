// Core's tables beside RbHost that concern devices: rabbet/device.h, rabbet/capture.h and
// rabbet/settings.h.
#include "boundary/host_device.h"

#include "boundary/host_checks.h"
#include "device/backends.h"
#include "device/capture.h"
#include "device/memory.h"
#include "tensor/tensor.h"
#include "thread/error.h"
#include "thread/settings.h"

namespace rabbet {

namespace {

MemoryKind kind_of(const char* function, int32_t kind) {
  if (kind < RB_MEMORY_DEVICE || kind > RB_MEMORY_SHARED)
    fail(RB_E_ARG, "%s: %d is no kind of memory", function, kind);
  return static_cast<MemoryKind>(kind);
}

int32_t memory_tensor_new(int32_t kind, int32_t backend, int32_t device, int32_t dtype,
                          int32_t ndim, const int64_t* shape, RbTensor** out) {
  return guarded([&] {
    need(out, "memory.tensor_new: where the tensor goes");
    const MemoryKind of = kind_of("memory.tensor_new", kind);
    check_geometry("memory.tensor_new", backend, device, dtype, ndim, shape, nullptr, true);
    *out = tensor_in(of, backend, device, dtype, ndim, shape);
  });
}

int32_t memory_is_kind(const RbTensor* t, int32_t kind, int32_t* is) {
  return guarded([&] {
    need(t, "memory.is_kind: the tensor");
    need(is, "memory.is_kind: where the answer goes");
    *is = is_in_memory(impl(t), kind_of("memory.is_kind", kind));
  });
}

int32_t memory_memory_info(int32_t backend, int32_t device, uint64_t* free, uint64_t* total) {
  return guarded([&] {
    need(free, "memory.memory_info: where the free bytes go");
    need(total, "memory.memory_info: where the total goes");
    check_backend_id("memory.memory_info", backend);
    check_device(backend, device);
    if (!memory_info(backend, device, free, total))
      fail(RB_E_NOTIMPL, "the backend '%s' does not tell how much memory its devices have",
           backend_name(backend));
  });
}

int32_t capture_reserve(RbGenerator* generator, int32_t backend, int32_t device, uint64_t counters,
                        RbCaptureSlice* out) {
  return guarded([&] {
    need(out, "capture.reserve: where the slice goes");
    if (out->struct_size < RB_SIZE(RbCaptureSlice, base))
      fail(RB_E_ARG, "capture.reserve: the slice is too short: its struct_size is %u",
           out->struct_size);
    check_backend_id("capture.reserve", backend);
    check_device(backend, device);
    const RbCaptureSlice slice = reserve_captured(generator, backend, device, counters);
    out->seed = slice.seed;
    out->offset = slice.offset;
    out->base = slice.base;
  });
}

int32_t capture_is_capturing(int32_t backend, int32_t device) {
  return capture_of(backend, device) != nullptr;
}

int64_t settings_get(const char* name, int64_t otherwise) {
  int64_t value = otherwise;
  guarded([&] { value = setting(need(name, "settings.get: the name"), otherwise); });
  return value;
}

}  // namespace

const RbMemoryTable kMemoryTable = {RB_SIZE(RbMemoryTable, memory_info), 0, memory_tensor_new,
                                    memory_is_kind, memory_memory_info};
const RbCaptureRng kCaptureRng = {RB_SIZE(RbCaptureRng, is_capturing), 0, capture_reserve,
                                  capture_is_capturing};
const RbSettings kSettings = {RB_SIZE(RbSettings, changes), 0, settings_get, setting_changes};

}  // namespace rabbet
