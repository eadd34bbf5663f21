#include "device/segments.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

namespace rbcuda {
namespace {

[[noreturn]] void fail_oom(Device& device, uint64_t nbytes) {
  size_t free = 0, total = 0;
  driver().memory_info(&free, &total);
  rb::fail(RB_E_OOM, "cuda:%d (%s): cannot allocate %llu bytes: %zu of %zu are free",
           device.index(), device.name().c_str(), static_cast<unsigned long long>(nbytes), free,
           total);
}

size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value && *value && std::strcmp(value, "0") != 0;
}

// Each tensor's memory is then an allocation of the driver's, of its bytes alone.
bool exact() { return is_set("RABBET_CUDA_EXACT") || is_set("PYTORCH_NO_CUDA_MEMORY_CACHING"); }

bool wanted() {
  static const bool answer = [] {
    if (exact()) return false;
    const char* own = std::getenv("RABBET_CUDA_EXPANDABLE");
    if (own && *own) return is_set("RABBET_CUDA_EXPANDABLE");
    const char* torch = std::getenv("PYTORCH_CUDA_ALLOC_CONF");
    return !torch || !std::strstr(torch, "expandable_segments:False");
  }();
  return answer;
}

CuMemoryProperties properties_of(const Device& device) {
  CuMemoryProperties properties = {};
  properties.type = kPinnedType;
  properties.location = {kOnDevice, device.handle()};
  return properties;
}

// Memory is mapped from the beginning on, in pieces that go as they came.
struct Expandable {
  int device;
  size_t reserved, granularity, mapped = 0;
  std::vector<size_t> pieces;
};

struct Expandables {
  std::mutex mutex;
  std::map<CuPointer, Expandable> by_address;
  std::map<int, std::vector<CuDevice>> readers;  // of each device's memory, beside itself
};
Expandables& expandables() {
  static auto* instance = new Expandables;
  return *instance;
}

// Null where it is none. Core changes a segment from one thread at a time.
Expandable* expandable_at(CuPointer begin) {
  std::lock_guard<std::mutex> lock(expandables().mutex);
  const auto found = expandables().by_address.find(begin);
  return found == expandables().by_address.end() ? nullptr : &found->second;
}

void unmap_last(CuPointer begin, Expandable& segment) {
  const size_t size = segment.pieces.back();
  driver().unmap(begin + segment.mapped - size, size);
  segment.mapped -= size;
  segment.pieces.pop_back();
}

// To all that read the device's memory: cuCtxEnablePeerAccess is for cuMemAlloc's only. The mutex
// is held.
CuResult allow(Device& device, CuPointer at, size_t size) {
  std::vector<CuAccess> all = {{{kOnDevice, device.handle()}, kReadWrite}};
  for (CuDevice reader : expandables().readers[device.index()])
    all.push_back({{kOnDevice, reader}, kReadWrite});
  const CuResult status = driver().set_access(at, size, all.data(), all.size());
  return status && all.size() > 1 ? driver().set_access(at, size, all.data(), 1) : status;
}

CuResult map_more(Device& device, CuPointer begin, Expandable& segment, uint64_t nbytes) {
  const Driver& d = driver();
  const size_t size = round_up(nbytes, segment.granularity);
  const CuMemoryProperties properties = properties_of(device);
  CuMemory memory = 0;
  if (const CuResult status = d.memory_create(&memory, size, &properties, 0)) return status;
  const CuPointer at = begin + segment.mapped;
  CuResult status = d.map(at, size, 0, memory, 0);
  d.memory_release(memory);  // it goes with its mapping
  if (status) return status;
  std::lock_guard<std::mutex> lock(expandables().mutex);
  segment.mapped += size;
  segment.pieces.push_back(size);
  status = allow(device, at, size);
  if (status) unmap_last(begin, segment);
  return status;
}

// False: the device has no virtual memory, or no addresses are left; plain memory then serves.
bool reserve(Device& device, CuPointer& begin, Expandable& segment) {
  const Driver& d = driver();
  if (!wanted() || !d.granularity || !d.reserve || !d.unreserve || !d.memory_create ||
      !d.memory_release || !d.map || !d.unmap || !d.set_access || !device.attribute(kVirtualMemory))
    return false;
  const CuMemoryProperties properties = properties_of(device);
  size_t free = 0, total = 0;
  if (d.granularity(&segment.granularity, &properties, kLeastGranularity) || !segment.granularity ||
      d.memory_info(&free, &total))
    return false;
  segment.device = device.index();
  segment.reserved = round_up(total, segment.granularity);
  return d.reserve(&begin, segment.reserved, 0, 0, 0) == kSuccess;
}

// Null: use plain memory.
void* allocate_expandable(Device& device, uint64_t nbytes) {
  CuPointer begin = 0;
  Expandable segment = {};
  if (!reserve(device, begin, segment)) return nullptr;
  CuResult status = kOutOfMemory;
  if (nbytes <= segment.reserved) status = map_more(device, begin, segment, nbytes);
  if (status) {
    driver().unreserve(begin, segment.reserved);
    if (status == kOutOfMemory) fail_oom(device, nbytes);
    return nullptr;  // such as where a container's runtime does not know these calls
  }
  std::lock_guard<std::mutex> lock(expandables().mutex);
  const size_t mapped = segment.mapped;
  expandables().by_address[begin] = std::move(segment);
  // One may have come meanwhile.
  if (!expandables().readers[device.index()].empty())
    check_cuda(allow(device, begin, mapped), device.index(), "cuMemSetAccess");
  return reinterpret_cast<void*>(begin);
}

void* allocate_plain(Device& device, uint64_t nbytes) {
  CuPointer data = 0;
  const CuResult status = driver().allocate(&data, nbytes);
  if (status == kOutOfMemory) fail_oom(device, nbytes);
  check_cuda(status, device.index(), "cuMemAlloc");
  return reinterpret_cast<void*>(data);
}

int32_t allocate(void*, int32_t index, uint64_t nbytes, void*, RbBuffer* out) {
  return rb::guarded([&] {
    Device& here = device(index);
    here.enter();
    const RelaxedCapture relaxed;
    out->data = allocate_expandable(here, nbytes);
    if (!out->data) out->data = allocate_plain(here, nbytes);
  });
}
int32_t allocate_shared(void*, int32_t index, uint64_t nbytes, void*, RbBuffer* out) {
  return rb::guarded([&] {
    Device& here = device(index);
    here.enter();
    const RelaxedCapture relaxed;
    out->data = allocate_plain(here, nbytes);
  });
}

// cuMemFree waits for the work that uses the memory, unmapping does not.
void release(void*, RbBuffer* buffer, void* stream) {
  if (forked()) return;
  rb::guarded([&] {
    Device& here = device(buffer->device_index);
    here.enter();
    const CuPointer begin = address(buffer->data);
    Expandable* segment = expandable_at(begin);
    if (!segment) return check_cuda(driver().release(begin), here.index(), "cuMemFree");
    driver().stream_synchronize(as_stream(stream));
    while (!segment->pieces.empty()) unmap_last(begin, *segment);
    const size_t reserved = segment->reserved;
    {
      std::lock_guard<std::mutex> lock(expandables().mutex);
      expandables().by_address.erase(begin);
    }
    check_cuda(driver().unreserve(begin, reserved), here.index(), "cuMemAddressFree");
  });
}

}  // namespace

int32_t segment_grow(void*, RbBuffer* buffer, uint64_t nbytes) {
  return rb::guarded([&] {
    Device& here = device(buffer->device_index);
    const CuPointer begin = address(buffer->data);
    Expandable* segment = expandable_at(begin);
    // Of the last piece core may not know the end.
    const size_t spare = segment ? segment->mapped - buffer->nbytes : 0;
    if (!segment || nbytes - spare > segment->reserved - segment->mapped)
      rb::fail(RB_E_NOTIMPL, "cuda:%d: the segment cannot grow", here.index());
    here.enter();
    const RelaxedCapture relaxed;
    if (nbytes > spare) {
      const CuResult status = map_more(here, begin, *segment, nbytes - spare);
      if (status == kOutOfMemory) fail_oom(here, nbytes);
      check_cuda(status, here.index(), "cuMemMap");
    }
    buffer->nbytes = segment->mapped;
  });
}

int32_t segment_shrink(void*, RbBuffer* buffer, uint64_t nbytes, void* stream) {
  return rb::guarded([&] {
    Device& here = device(buffer->device_index);
    const CuPointer begin = address(buffer->data);
    Expandable* segment = expandable_at(begin);
    if (!segment) return;
    if (segment->pieces.empty() || segment->mapped - segment->pieces.back() < nbytes) return;
    here.enter();
    check_cuda(driver().stream_synchronize(as_stream(stream)), here.index(), "cuStreamSynchronize");
    while (segment->pieces.size() > 1 && segment->mapped - segment->pieces.back() >= nbytes)
      unmap_last(begin, *segment);
    buffer->nbytes = std::min<uint64_t>(buffer->nbytes, segment->mapped);
  });
}

void allow_reader(Device& device, const Device& reader) {
  std::lock_guard<std::mutex> lock(expandables().mutex);
  const CuAccess access = {{kOnDevice, reader.handle()}, kReadWrite};
  for (const auto& [begin, segment] : expandables().by_address) {
    if (segment.device == device.index() && segment.mapped > 0 &&
        driver().set_access(begin, segment.mapped, &access, 1) != kSuccess)
      return;
  }
  expandables().readers[device.index()].push_back(reader.handle());
}

bool is_expandable(const void* segment) { return expandable_at(address(segment)) != nullptr; }

const RbAllocator kAllocator = {RB_SIZE(RbAllocator, free), exact() ? +RB_ALLOC_EXACT : 0u, nullptr,
                                allocate, release};
const RbAllocator kShared = {RB_SIZE(RbAllocator, free), 0, nullptr, allocate_shared, release};

}  // namespace rbcuda
