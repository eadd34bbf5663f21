#include "tensor/ipc.h"

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "device/backends.h"
#include "tensor/dtype.h"
#include "thread/deferral.h"
#include "thread/error.h"
#include "thread/fork.h"

namespace rabbet {

namespace {

RbDeviceTable ipc_table(int backend) {
  const RbDeviceTable table = device_table(backend);
  if (!table.ipc_export || !table.ipc_open || !table.ipc_close)
    fail(RB_E_NOTIMPL, "the backend '%s' cannot share its memory with other processes",
         backend_name(backend));
  return table;
}

struct OpenSegment {
  int backend;
  RbBuffer buffer;
  ~OpenSegment() {
    guarded([&] {
      const RbDeviceTable table = ipc_table(backend);
      table.ipc_close(table.self, &buffer);
    });
  }
};

struct OpenSegments {
  std::mutex mutex;
  std::map<std::tuple<int, int, std::string>, std::weak_ptr<OpenSegment>> by_handle;
};
OpenSegments& open_segments() {
  static OpenSegments* instance = [] {
    auto* made = new OpenSegments;
    hold_over_fork(made->mutex);
    return made;
  }();
  return *instance;
}

std::shared_ptr<OpenSegment> open_segment(int backend, int device, const std::string& handle) {
  const RbDeviceTable table = ipc_table(backend);
  std::lock_guard<std::mutex> lock(open_segments().mutex);
  std::weak_ptr<OpenSegment>& known = open_segments().by_handle[{backend, device, handle}];
  if (std::shared_ptr<OpenSegment> segment = known.lock()) return segment;
  RbIpcHandle given{RB_SIZE(RbIpcHandle, bytes), static_cast<uint32_t>(handle.size()), {}};
  std::memcpy(given.bytes, handle.data(), handle.size());
  RbBuffer buffer{};
  buffer.struct_size = sizeof buffer;
  check(table.ipc_open(table.self, device, &given, &buffer));
  if (!buffer.data || !buffer.nbytes)
    fail(RB_E_PLUGIN, "ipc_open of the backend '%s' returned RB_OK without memory",
         backend_name(backend));
  auto segment = std::make_shared<OpenSegment>();
  segment->backend = backend;
  segment->buffer = buffer;
  known = segment;
  return segment;
}

}  // namespace

IpcPlace ipc_export(const Tensor* t) {
  if (t->backend == kMeta || has_host_memory(t->backend) || is_made_of_parts(t))
    fail(RB_E_NOTIMPL, "the memory of '%s' is not shared with other processes by handles",
         backend_name(t->backend));
  const Block* block = block_of(t);
  const MemoryKind kind = block ? heap_of_block(block).kind : MemoryKind::kManaged;
  if (kind != MemoryKind::kDevice && kind != MemoryKind::kShared)
    fail(RB_E_ARG, "only device memory of core's allocator can be shared with other processes");
  const RbDeviceTable table = ipc_table(t->backend);
  const RbBuffer segment = heap_of_block(block).segment_of(block);
  make_ready(t, "shared memory");
  expose_memory(t);
  RbIpcHandle handle{RB_SIZE(RbIpcHandle, bytes), 0, {}};
  check(table.ipc_export(table.self, &segment, &handle));
  if (!handle.nbytes || handle.nbytes > sizeof handle.bytes)
    fail(RB_E_PLUGIN, "ipc_export of the backend '%s': a handle has 1 to %zu bytes, got %u",
         backend_name(t->backend), sizeof handle.bytes, handle.nbytes);
  return {std::string(reinterpret_cast<const char*>(handle.bytes), handle.nbytes),
          static_cast<uint64_t>(static_cast<char*>(t->data) - static_cast<char*>(segment.data))};
}

Tensor* ipc_open(const IpcPlace& place, int backend, int device, int dtype, int ndim,
                 const int64_t* shape, const int64_t* strides) {
  check_device(backend, device);
  if (place.handle.empty() || place.handle.size() > sizeof(RbIpcHandle::bytes))
    fail(RB_E_ARG, "a handle of memory has 1 to %zu bytes, got %zu", sizeof(RbIpcHandle::bytes),
         place.handle.size());
  const int64_t numel = count_elements(ndim, shape);
  auto segment = open_segment(backend, device, place.handle);
  int64_t reach = 0;  // of the last element
  for (int d = 0; strides && d < ndim; ++d) {
    if (strides[d] < 0) fail(RB_E_ARG, "shared memory: the strides must not be negative");
    int64_t part = 0;
    if (__builtin_mul_overflow(shape[d] - 1, strides[d], &part) ||
        __builtin_add_overflow(reach, part, &reach) || reach >= int64_t{1} << 58)
      fail(RB_E_ARG, "shared memory: the strides reach too far");
  }
  if (!strides) reach = numel - 1;
  const uint64_t end = numel ? (static_cast<uint64_t>(reach) + 1) * kDTypes[dtype].itemsize : 0;
  if (place.offset > segment->buffer.nbytes || end > segment->buffer.nbytes - place.offset)
    fail(RB_E_ARG, "shared memory: bytes %llu to %llu lie outside of a segment of %llu",
         (unsigned long long)place.offset, (unsigned long long)(place.offset + end),
         (unsigned long long)segment->buffer.nbytes);
  char* data = static_cast<char*>(segment->buffer.data) + place.offset;
  auto owner = std::make_unique<std::shared_ptr<OpenSegment>>(std::move(segment));
  Tensor* t =
      tensor_adopt(data, backend, device, dtype, ndim, shape, strides, 0, owner.get(),
                   [](void* ctx) { delete static_cast<std::shared_ptr<OpenSegment>*>(ctx); });
  owner.release();
  return t;
}

}  // namespace rabbet
