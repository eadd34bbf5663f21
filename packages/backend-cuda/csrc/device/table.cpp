// What the backend tells of its devices: the table "cuda.device".
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "device/host_memory.h"
#include "device/properties.h"
#include "device/segments.h"
#include "device/timing.h"
#include "driver/cudnn.h"

namespace rbcuda {
namespace {

int32_t memory_info(void*, int32_t index, uint64_t* free, uint64_t* total) {
  return rb::guarded([&] {
    device(index).enter();
    size_t left = 0, all = 0;
    check_cuda(driver().memory_info(&left, &all), index, "cuMemGetInfo");
    *free = left;
    *total = all;
  });
}

// PyTorch's names of the driver's attributes.
struct Attribute {
  const char* name;
  int number;
  bool is_bool;
};
constexpr Attribute kAttributes[] = {
    {"major", kMajor, false},
    {"minor", kMinor, false},
    {"multi_processor_count", kMultiprocessors, false},
    {"warp_size", kWarpSize, false},
    {"max_threads_per_block", kThreadsOfBlock, false},
    {"max_threads_per_multi_processor", kThreadsOfMultiprocessor, false},
    {"shared_memory_per_block", kSharedOfBlock, false},
    {"shared_memory_per_block_optin", kMostSharedOfBlock, false},
    {"shared_memory_per_multiprocessor", kSharedOfMultiprocessor, false},
    {"regs_per_multiprocessor", kRegistersOfMultiprocessor, false},
    {"L2_cache_size", kL2Size, false},
    {"clock_rate", kClockRate, false},               // kHz
    {"memory_clock_rate", kMemoryClockRate, false},  // kHz
    {"memory_bus_width", kMemoryBusWidth, false},    // bits
    {"is_integrated", kIntegrated, true},
    {"is_multi_gpu_board", kMultiGpuBoard, true},
    {"pci_bus_id", kPciBus, false},
    {"pci_device_id", kPciDevice, false},
    {"pci_domain_id", kPciDomain, false},
};

std::string uuid_of(const Device& device) {
  CuUuid uuid = {};
  check_cuda(driver().uuid(&uuid, device.handle()), device.index(), "cuDeviceGetUuid");
  std::string text;
  for (int i = 0; i < 16; ++i) {
    char byte[4];
    std::snprintf(byte, sizeof byte, "%02x", uuid.bytes[i]);
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += byte;
  }
  return text;
}

uint64_t total_memory(Device& device) {
  size_t total = 0, free = 0;
  if (driver().total_memory) {
    check_cuda(driver().total_memory(&total, device.handle()), device.index(), "cuDeviceTotalMem");
  } else {
    device.enter();
    check_cuda(driver().memory_info(&free, &total), device.index(), "cuMemGetInfo");
  }
  return total;
}

RbValue string_value(const std::string& text) {
  RbValue value{};
  value.tag = RB_STR;
  value.v.s = text.c_str();
  value.len = static_cast<uint32_t>(text.size());
  return value;
}

using Added = std::vector<std::pair<const char*, int64_t (*)(int)>>;
Added& added_properties() {
  static auto* all = new Added;
  return *all;
}

int32_t properties(void*, int32_t index, void* ctx,
                   int32_t (*add)(void* ctx, const char* name, const RbValue* value)) {
  return rb::guarded([&] {
    Device& here = device(index);
    const auto tell = [&](const char* name, const RbValue& value) {
      rb::check(add(ctx, name, &value));
    };
    tell("name", string_value(here.name()));
    tell("total_memory", rb::int_value(static_cast<int64_t>(total_memory(here))));
    for (const Attribute& a : kAttributes) {
      RbValue value = rb::int_value(here.attribute(a.number));
      if (a.is_bool) value.tag = RB_BOOL;
      tell(a.name, value);
    }
    if (const int64_t version = cudnn_version()) tell("cudnn_version", rb::int_value(version));
    for (const auto& [name, value] : added_properties()) tell(name, rb::int_value(value(index)));
    if (driver().uuid) tell("uuid", string_value(uuid_of(here)));
  });
}

int32_t can_access_peer(void*, int32_t index, int32_t peer, int32_t* can) {
  return rb::guarded([&] {
    int answer = 0;
    const Device &here = device(index), &other = device(peer);
    check_cuda(need(driver().can_access_peer, "cuDeviceCanAccessPeer")(&answer, here.handle(),
                                                                       other.handle()),
               index, "cuDeviceCanAccessPeer");
    *can = answer;
  });
}

// What another process opens: the driver's handle.
int32_t ipc_export(void*, const RbBuffer* segment, RbIpcHandle* out) {
  return rb::guarded([&] {
    if (is_expandable(segment->data))
      rb::fail(RB_E_NOTIMPL,
               "cuda:%d: segments that grow cannot be shared with other processes: set "
               "RABBET_CUDA_EXPANDABLE=0 before the program starts",
               segment->device_index);
    device(segment->device_index).enter();
    CuIpcHandle handle = {};
    check_cuda(need(driver().ipc_export, "cuIpcGetMemHandle")(&handle, address(segment->data)),
               segment->device_index, "cuIpcGetMemHandle");
    std::memcpy(out->bytes, handle.bytes, sizeof handle.bytes);
    std::memcpy(out->bytes + sizeof handle.bytes, &segment->nbytes, sizeof segment->nbytes);
    out->nbytes = sizeof handle.bytes + sizeof segment->nbytes;
  });
}

int32_t ipc_open(void*, int32_t index, const RbIpcHandle* given, RbBuffer* out) {
  return rb::guarded([&] {
    CuIpcHandle handle = {};
    if (given->nbytes != sizeof handle.bytes + sizeof out->nbytes)
      rb::fail(RB_E_ARG, "cuda:%d: this is no handle of memory of a CUDA device", index);
    std::memcpy(handle.bytes, given->bytes, sizeof handle.bytes);
    std::memcpy(&out->nbytes, given->bytes + sizeof handle.bytes, sizeof out->nbytes);
    device(index).enter();
    CuPointer data = 0;
    check_cuda(need(driver().ipc_open, "cuIpcOpenMemHandle")(&data, handle, kIpcLazyPeers), index,
               "cuIpcOpenMemHandle");
    // The handle is right, the size beside it may be made up.
    size_t size = 0;
    if (driver().address_range && driver().address_range(nullptr, &size, data) == kSuccess)
      out->nbytes = size;
    out->data = reinterpret_cast<void*>(data);
    out->device_index = index;
  });
}

void ipc_close(void*, RbBuffer* segment) {
  if (forked()) return;
  rb::guarded([&] {
    device(segment->device_index).enter();
    check_cuda(need(driver().ipc_close, "cuIpcCloseMemHandle")(address(segment->data)),
               segment->device_index, "cuIpcCloseMemHandle");
  });
}

int32_t host_call(void*, int32_t index, void* stream, void (*fn)(void* ctx), void* ctx) {
  return rb::guarded([&] {
    device(index).enter();
    // A graph would call it at each launch.
    if (is_capturing(as_stream(stream)))
      rb::fail(RB_E_STATE, "cuda:%d: the stream is captured", index);
    check_cuda(need(driver().host_call, "cuLaunchHostFunc")(as_stream(stream), fn, ctx), index,
               "cuLaunchHostFunc");
  });
}

int32_t poll_error(void*, int32_t index) {
  return rb::guarded([&] {
    const std::string failure = device(index).failure();
    if (!failure.empty()) rb::fail(RB_E_DEVICE, "%s", failure.c_str());
  });
}

}  // namespace

void add_property(const char* name, int64_t (*value)(int device)) {
  added_properties().emplace_back(name, value);
}

const RbDeviceTable kDeviceTable = {RB_SIZE(RbDeviceTable, work_times),
                                    0,
                                    nullptr,
                                    &kPinned,
                                    &kManaged,
                                    memory_info,
                                    properties,
                                    can_access_peer,
                                    ipc_export,
                                    ipc_open,
                                    ipc_close,
                                    host_call,
                                    poll_error,
                                    segment_grow,
                                    segment_shrink,
                                    &kShared,
                                    event_export,
                                    event_open,
                                    work_times};

}  // namespace rbcuda
