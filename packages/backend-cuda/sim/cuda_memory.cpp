// A stand-in for libcuda: memory and copies.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cuda.h"
#include "ipc.h"
#include "shadow.h"

namespace cusim {
namespace {

constexpr size_t kGranularity = 2 << 20;

// What cuMemCreate makes.
struct Physical {
  size_t size;
  int device;
  bool released = false;
  int mappings = 0;
};
std::map<unsigned long long, Physical> physical;
std::map<char*, size_t> reserved;
std::map<char*, unsigned long long> mapped;  // its Physical

int allocate(void** pointer, size_t size, Kind kind) {
  CUSIM_ENTER;
  if (int status = forbid_while_capturing()) return status;
  if (size == 0) return kInvalid;
  const bool counted = kind == Kind::kDevice || kind == Kind::kManaged;
  if (counted && size > current->memory - current->in_use) return kOutOfMemory;
  const Allocation* made = memory().allocate(size, kind, current->index);
  if (!made) return kOutOfMemory;
  if (counted) current->in_use += size;
  shadow_forget(made->begin, size);
  *pointer = made->begin;
  return kOk;
}

// The allocation that begins there, or null.
Allocation* beginning_at(const void* p) {
  Allocation* a = memory().find(p);
  return a && a->begin == p ? a : nullptr;
}

int release(void* p, bool of_device) {
  CUSIM_ENTER;
  if (!p) return kOk;
  if (int status = forbid_while_capturing()) return status;
  Allocation* a = beginning_at(p);
  if (!a || a->kind == Kind::kMapped || (a->kind == Kind::kPinned) == of_device) return kInvalid;
  Device& owner = *devices[a->device];
  synchronize(owner);
  if (is_opened(a->begin)) return kInvalid;  // of another process
  if (of_device) owner.in_use -= a->size;
  shadow_forget(a->begin, a->size);
  memory().free(*a);
  return owner.sticky;
}

bool is_pinned(const void* p) {
  const Allocation* a = memory().find(p);
  return a && a->kind != Kind::kDevice && a->kind != Kind::kMapped;
}

void destroy_if_unused(unsigned long long handle) {
  const Physical& p = physical.at(handle);
  if (!p.released || p.mappings) return;
  devices[p.device]->in_use -= p.size;
  physical.erase(handle);
}

// The two ends of a copy; what is not the driver's memory is the host's.
int copy(char* to, const char* from, size_t n, void* handle, const char* what) {
  const bool out = !memory().in_range(to), in = !memory().in_range(from);
  if ((!out && !memory().holds(to, n)) || (!in && !memory().holds(from, n))) return kInvalid;
  CUSIM_STREAM(stream, handle);
  if ((in || out) && stream.capture) return forbid_in_capture(stream);
  const int device = stream.device.index;
  auto move = [=](uint32_t command, const char* source) {
    if (!in && !check_copy(device, command, source, n, kCusimRead)) return;
    if (!out && !check_copy(device, command, to, n, kCusimWrite)) return;
    std::memmove(to, source, n);
    if (!in && !out && !is_pinned(source) && checks().shadow()) shadow_copied(to, source, n);
  };
  wait_counts().host += in || out;
  int status;
  if (in) {  // pageable memory is read before the call returns
    auto bytes = std::make_shared<std::vector<char>>(from, from + n);
    status = enqueue_on(handle, what, [=](uint32_t command) { move(command, bytes->data()); });
  } else {
    status = enqueue_on(handle, what, [=](uint32_t command) { move(command, from); });
  }
  if (out && !status) {
    synchronize(stream);
    return stream.device.sticky;
  }
  return status;
}

template <class T>
int fill(unsigned long long to, T value, size_t count, void* handle) {
  char* target = pointer(to);
  if (to % sizeof(T)) return kInvalid;
  if (count == 0) return kOk;
  if (!memory().holds(target, count * sizeof(T))) return kInvalid;
  CUSIM_STREAM(stream, handle);
  const int device = stream.device.index;
  return enqueue_on(handle, "a fill", [=](uint32_t command) {
    if (!check_copy(device, command, target, count * sizeof(T), kCusimWrite)) return;
    for (size_t i = 0; i < count; ++i) std::memcpy(target + i * sizeof(T), &value, sizeof value);
  });
}

int now(int status) {
  if (status) return status;
  synchronize(current->first);
  return current->sticky;
}

}  // namespace
}  // namespace cusim

using namespace cusim;
using Address = unsigned long long;

extern "C" {

int cuMemAlloc_v2(Address* address, size_t size) {
  return allocate(reinterpret_cast<void**>(address), size, Kind::kDevice);
}
int cuMemFree_v2(Address address) { return release(pointer(address), true); }
int cuMemAllocManaged(Address* address, size_t size, unsigned flags) {
  if (flags != 1 && flags != 2) return kInvalid;
  return allocate(reinterpret_cast<void**>(address), size, Kind::kManaged);
}
int cuMemHostAlloc(void** p, size_t size, unsigned flags) {
  return flags > 7 ? kInvalid : allocate(p, size, Kind::kPinned);
}
int cuMemAllocHost_v2(void** p, size_t size) { return allocate(p, size, Kind::kPinned); }
int cuMemFreeHost(void* p) { return release(p, false); }
int cuMemHostGetDevicePointer_v2(Address* address, void* p, unsigned flags) {
  CUSIM_ENTER;
  if (flags || !is_pinned(p)) return kInvalid;
  *address = reinterpret_cast<Address>(p);
  return kOk;
}
int cuMemGetInfo_v2(size_t* free, size_t* total) {
  CUSIM_ENTER;
  *total = current->memory;
  *free = current->memory - current->in_use;
  return kOk;
}
int cuMemGetAddressRange_v2(Address* base, size_t* size, Address address) {
  CUSIM_ENTER;
  const Allocation* a = memory().find(pointer(address));
  if (!a) return kNotFound;
  if (base) *base = reinterpret_cast<Address>(a->begin);
  if (size) *size = a->size;
  return kOk;
}
// Attributes 2: the kind of memory (1 of the host, 2 of a device), 9: the device.
int cuPointerGetAttribute(void* value, int attribute, Address address) {
  CUSIM_ENTER;
  const Allocation* a = memory().find(pointer(address));
  if (!a) return kInvalid;
  if (attribute == 2) {
    *static_cast<unsigned*>(value) = a->kind == Kind::kPinned ? 1 : 2;
  } else if (attribute == 8) {
    *static_cast<unsigned*>(value) = a->kind == Kind::kManaged;
  } else if (attribute == 9) {
    *static_cast<int*>(value) = a->device;
  } else {
    return kNotSupported;
  }
  return kOk;
}

int cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t n, void* stream) {
  CUSIM_ENTER;
  return n ? copy(pointer(to), static_cast<const char*>(from), n, stream, "a copy to the device")
           : kOk;
}
int cuMemcpyDtoHAsync_v2(void* to, Address from, size_t n, void* stream) {
  CUSIM_ENTER;
  return n ? copy(static_cast<char*>(to), pointer(from), n, stream, "a copy to the host") : kOk;
}
int cuMemcpyDtoDAsync_v2(Address to, Address from, size_t n, void* stream) {
  CUSIM_ENTER;
  if (n && !(memory().find(pointer(to)) && memory().find(pointer(from)))) return kInvalid;
  return n ? copy(pointer(to), pointer(from), n, stream, "a copy") : kOk;
}
int cuMemcpyAsync(Address to, Address from, size_t n, void* stream) {
  CUSIM_ENTER;
  return n ? copy(pointer(to), pointer(from), n, stream, "a copy") : kOk;
}
int cuMemcpyPeerAsync(Address to, void* to_context, Address from, void* from_context, size_t n,
                      void* stream) {
  CUSIM_ENTER;
  if (n == 0) return kOk;
  const Allocation *target = memory().find(pointer(to)), *source = memory().find(pointer(from));
  if (!target || !source || !to_context || !from_context ||
      target->device != static_cast<Device*>(to_context)->index ||
      source->device != static_cast<Device*>(from_context)->index)
    return kInvalid;
  // The device that copies then goes to the other's memory itself.
  if (source->kind == Kind::kMapped && devices[target->device]->peers.count(source->device) &&
      !source->readers.count(target->device))
    return kInvalid;
  return copy(pointer(to), pointer(from), n, stream, "a copy between devices");
}
int cuMemcpyHtoD_v2(Address to, const void* from, size_t n) {
  CUSIM_ENTER;
  if (int status = forbid_while_capturing()) return status;
  return now(cuMemcpyHtoDAsync_v2(to, from, n, nullptr));
}
int cuMemcpyDtoH_v2(void* to, Address from, size_t n) {
  CUSIM_ENTER;
  if (int status = forbid_while_capturing()) return status;
  return now(cuMemcpyDtoHAsync_v2(to, from, n, nullptr));
}
int cuMemsetD8Async(Address to, unsigned char value, size_t n, void* stream) {
  CUSIM_ENTER;
  return fill(to, value, n, stream);
}
int cuMemsetD16Async(Address to, unsigned short value, size_t n, void* stream) {
  CUSIM_ENTER;
  return fill(to, value, n, stream);
}
int cuMemsetD32Async(Address to, unsigned value, size_t n, void* stream) {
  CUSIM_ENTER;
  return fill(to, value, n, stream);
}

// ---- virtual memory

int cuMemGetAllocationGranularity(size_t* granularity, const void*, int) {
  *granularity = kGranularity;
  return kOk;
}
int cuMemAddressReserve(Address* address, size_t size, size_t alignment, Address, Address flags) {
  CUSIM_ENTER;
  if (size == 0 || size % kGranularity || flags || (alignment & (alignment - 1))) return kInvalid;
  char* at = memory().reserve(size, alignment < kGranularity ? kGranularity : alignment);
  if (!at) return kOutOfMemory;
  reserved[at] = size;
  *address = reinterpret_cast<Address>(at);
  return kOk;
}
int cuMemAddressFree(Address address, size_t size) {
  CUSIM_ENTER;
  const auto at = reserved.find(pointer(address));
  if (at == reserved.end() || at->second != size) return kInvalid;
  const auto inside = mapped.lower_bound(at->first);
  if (inside != mapped.end() && inside->first < at->first + size) return kInvalid;
  reserved.erase(at);
  return kOk;
}
// `properties`: type, handle types, where it lies (type 1: on device `id`).
int cuMemCreate(Address* handle, size_t size, const int* properties, Address flags) {
  CUSIM_ENTER;
  static Address made = 0;
  if (std::getenv("CUSIM_NO_VIRTUAL_MEMORY")) return kNotSupported;
  if (int status = forbid_while_capturing()) return status;
  if (size == 0 || size % kGranularity || flags || properties[0] != 1 || properties[2] != 1 ||
      !known(properties[3]))
    return kInvalid;
  Device& device = *devices[properties[3]];
  if (size > device.memory - device.in_use) return kOutOfMemory;
  device.in_use += size;
  physical[++made] = {size, device.index};
  *handle = made;
  return kOk;
}
int cuMemRelease(Address handle) {
  CUSIM_ENTER;
  const auto at = physical.find(handle);
  if (at == physical.end() || at->second.released) return kInvalid;
  at->second.released = true;
  destroy_if_unused(handle);
  return kOk;
}
// What was in the memory is gone where it is mapped again.
int cuMemMap(Address address, size_t size, size_t offset, Address handle, Address flags) {
  CUSIM_ENTER;
  const auto at = physical.find(handle);
  char* begin = pointer(address);
  auto range = reserved.upper_bound(begin);
  if (at == physical.end() || at->second.released || at->second.mappings || offset || flags ||
      size != at->second.size || range == reserved.begin())
    return kInvalid;
  --range;
  if (address % kGranularity || begin + size > range->first + range->second) return kInvalid;
  const auto next = mapped.lower_bound(begin);
  if (memory().find(begin) || (next != mapped.end() && next->first < begin + size)) return kInvalid;
  memory().map(begin, size, at->second.device);
  shadow_forget(begin, size);
  mapped[begin] = handle;
  ++at->second.mappings;
  return kOk;
}
// It does not wait for work that uses the memory.
int cuMemUnmap(Address address, size_t size) {
  CUSIM_ENTER;
  char* const end = pointer(address) + size;
  for (char* at = pointer(address); at < end;) {  // whole mappings only
    const Allocation* a = beginning_at(at);
    if (!a || a->kind != Kind::kMapped || a->end() > end) return kInvalid;
    at += a->size;
  }
  for (char* at = pointer(address); at < end;) {
    Allocation* a = beginning_at(at);
    const size_t n = a->size;
    shadow_forget(at, n);
    memory().unmap(*a);
    const Address handle = mapped.at(at);
    mapped.erase(at);
    --physical.at(handle).mappings;
    destroy_if_unused(handle);
    at += n;
  }
  return kOk;
}
// `access`: of each place its type, its id, and the flags, 3: reading and writing.
int cuMemSetAccess(Address address, size_t size, const int* access, size_t count) {
  CUSIM_ENTER;
  char* const end = pointer(address) + size;
  for (char* at = pointer(address); at < end;) {
    Allocation* a = memory().find(at);
    if (!a || a->kind != Kind::kMapped) return kInvalid;
    for (size_t i = 0; i < count; ++i) {
      if (access[3 * i] != 1 || !known(access[3 * i + 1])) return kInvalid;
      if (access[3 * i + 1] == a->device)
        a->accessible = access[3 * i + 2] == 3;
      else if (access[3 * i + 2] == 3)
        a->readers.insert(access[3 * i + 1]);
    }
    at = a->begin + a->size;
  }
  return kOk;
}
}
