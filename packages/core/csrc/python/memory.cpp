#include "memory.h"

#include <pybind11/stl.h>

#include <algorithm>

#include "boundary/slots.h"
#include "device/backends.h"
#include "device/memory.h"
#include "errors.h"
#include "layer/layers.h"
#include "tensor/ipc.h"
#include "tensor/tensor.h"
#include "tensor_type.h"
#include "thread/error.h"
#include "value_types.h"

namespace py = pybind11;

namespace rabbet::python {

namespace {

const std::string kKindNames[] = {"device", "pinned", "managed", "shared"};

void add_property(py::dict& to, const char* name, const RbValue* value) {
  if (!name || !value || (value->tag == RB_STR && !value->v.s))
    fail(RB_E_PLUGIN, "properties of a device: a name or a value is null");
  switch (value->tag) {
    case RB_BOOL:
      to[name] = value->v.i != 0;
      return;
    case RB_INT:
      to[name] = value->v.i;
      return;
    case RB_FLOAT:
      to[name] = value->v.f;
      return;
    case RB_STR:
      to[name] = py::reinterpret_steal<py::object>(
          PyUnicode_DecodeUTF8(value->v.s, value->len, "replace"));
      return;
    default:
      fail(RB_E_PLUGIN, "properties of a device: '%s' is no bool, int, float or text", name);
  }
}

// PyTorch's names: docs of torch.accelerator.memory_stats and torch.cuda.memory_stats.
Heap* heap_argument(const py::object& device, const std::string& kind) {
  const DeviceSpec spec = device_argument(device.ptr());
  const auto* end = std::end(kKindNames);
  const auto* found = std::find(std::begin(kKindNames), end, kind);
  if (found == end) raise(PyExc_ValueError, "there is no kind of memory '%s'", kind.c_str());
  return find_heap(spec.backend, spec.index,
                   static_cast<MemoryKind>(found - std::begin(kKindNames)));
}

py::dict describe_memory(const py::object& device, const std::string& kind) {
  Heap* heap = heap_argument(device, kind);
  MemoryStats stats = heap ? heap->stats() : MemoryStats{};
  py::dict d;
  const auto put = [&](const char* name, const char* part, const MemoryStat& s) {
    const std::string head = std::string(name) + "." + part + ".";
    d[py::str(head + "allocated")] = s.allocated();
    d[py::str(head + "current")] = s.current();
    d[py::str(head + "freed")] = s.freed();
    d[py::str(head + "peak")] = s.peak();
  };
  const std::pair<const char*, const BlockStats*> parts[] = {
      {"all", &stats.all}, {"large_pool", &stats.large}, {"small_pool", &stats.small}};
  for (const auto& [part, s] : parts) {
    put("allocated_bytes", part, s->block_bytes);
    put("allocation", part, s->blocks);
    put("inactive_split", part, s->split_blocks);
    put("inactive_split_bytes", part, s->split_bytes);
    put("requested_bytes", part, s->requested_bytes);
    put("reserved_bytes", part, s->segment_bytes);
    put("segment", part, s->segments);
  }
  d["num_alloc_retries"] = stats.retries;
  d["num_device_alloc"] = stats.all.segments.allocated();
  d["num_device_free"] = stats.all.segments.freed();
  d["num_ooms"] = stats.ooms;
  return d;
}

// As torch.cuda.memory_snapshot().
py::list memory_snapshot() {
  py::list list;
  for (int backend = 1; backend < backend_count(); ++backend) {
    for (Heap* heap : heaps_of(backend)) {
      for (const SegmentInfo& s : heap->snapshot()) {
        py::list blocks;
        uint64_t used = 0, requested = 0;
        for (const BlockInfo& b : s.blocks) {
          py::dict block;
          block["address"] = b.address;
          block["size"] = b.size;
          block["requested_size"] = b.requested;
          block["state"] = b.used ? "active_allocated" : "inactive";
          blocks.append(block);
          if (b.used) used += b.size;
          requested += b.requested;
        }
        py::dict d;
        d["device"] = s.device;
        d["backend"] = backend_name(s.backend);
        d["kind"] = kKindNames[static_cast<int>(s.kind)];
        d["address"] = s.address;
        d["total_size"] = s.size;
        d["allocated_size"] = used;
        d["active_size"] = used;
        d["requested_size"] = requested;
        d["stream"] = reinterpret_cast<uintptr_t>(s.stream);
        d["segment_type"] = s.small ? "small" : "large";
        d["segment_pool_id"] = py::make_tuple(0, s.pool);
        d["blocks"] = blocks;
        list.append(d);
      }
    }
  }
  return list;
}

const Tensor* tensor_argument(const py::object& o) {
  if (!is_tensor(o.ptr()))
    raise(PyExc_TypeError, "expected a tensor, not %s", Py_TYPE(o.ptr())->tp_name);
  return tensor_of(o.ptr());
}

py::object like_in(MemoryKind kind, const py::object& tensor, const py::object& device) {
  const RbTensor* like = tensor_argument(tensor);
  const DeviceSpec at = device_argument(device.ptr());
  return py::reinterpret_steal<py::object>(
      must(wrap(tensor_in(kind, at.backend, at.index, like->dtype_id, like->ndim, like->shape))));
}
py::object pinned_like(const py::object& tensor, const py::object& device) {
  return like_in(MemoryKind::kPinned, tensor, device);
}
py::object managed_like(const py::object& tensor, const py::object& device) {
  return like_in(MemoryKind::kManaged, tensor, device);
}
py::object shared_like(const py::object& tensor, const py::object& device) {
  return like_in(MemoryKind::kShared, tensor, device);
}

py::tuple export_tensor(const py::object& tensor) {
  const IpcPlace place = ipc_export(tensor_argument(tensor));
  return py::make_tuple(py::bytes(place.handle), place.offset);
}
py::object open_tensor(const py::bytes& handle, uint64_t offset, const py::object& device,
                       const py::object& dtype, const std::vector<int64_t>& shape,
                       const std::vector<int64_t>& strides) {
  const DeviceSpec at = device_argument(device.ptr());
  const int id = dtype_of(dtype.ptr());
  if (id < 0) raise(PyExc_TypeError, "expected a dtype, not %s", Py_TYPE(dtype.ptr())->tp_name);
  if (strides.size() != shape.size())
    raise(PyExc_ValueError, "expected a stride for each of %zd dimensions, got %zd",
          static_cast<Py_ssize_t>(shape.size()), static_cast<Py_ssize_t>(strides.size()));
  return py::reinterpret_steal<py::object>(
      must(wrap(ipc_open({handle, offset}, at.backend, at.index, id, static_cast<int>(shape.size()),
                         shape.data(), strides.data()))));
}

void drop_owner(void* owner) {
  if (!interpreter_alive()) return;
  const WithGil gil;
  Py_DECREF(static_cast<PyObject*>(owner));
}
py::object adopt_memory(uint64_t address, const py::object& device, const py::object& dtype,
                        const std::vector<int64_t>& shape,
                        const std::optional<std::vector<int64_t>>& strides, bool readonly,
                        const py::object& owner) {
  const DeviceSpec at = device_argument(device.ptr());
  const int id = dtype_of(dtype.ptr());
  if (id < 0) raise(PyExc_TypeError, "expected a dtype, not %s", Py_TYPE(dtype.ptr())->tp_name);
  if (strides && strides->size() != shape.size())
    raise(PyExc_ValueError, "expected a stride for each of %zd dimensions, got %zd",
          static_cast<Py_ssize_t>(shape.size()), static_cast<Py_ssize_t>(strides->size()));
  Py_INCREF(owner.ptr());
  Tensor* made = nullptr;
  const int32_t rc = guarded([&] {
    made = tensor_adopt(reinterpret_cast<void*>(address), at.backend, at.index, id,
                        static_cast<int>(shape.size()), shape.data(),
                        strides ? strides->data() : nullptr, readonly ? RB_T_READONLY : 0,
                        owner.ptr(), drop_owner);
  });
  if (rc != RB_OK) Py_DECREF(owner.ptr());
  check(rc);
  return py::reinterpret_steal<py::object>(must(wrap(made)));
}

void limit_memory(const py::object& device, double fraction) {
  const DeviceSpec spec = device_argument(device.ptr());
  uint64_t free = 0, total = 0;
  if (!memory_info(spec.backend, spec.index, &free, &total))
    fail(RB_E_NOTIMPL, "the backend '%s' does not tell how much memory its devices have",
         backend_name(spec.backend));
  heap_of(spec.backend, spec.index)
      .set_limit(static_cast<uint64_t>(fraction * static_cast<double>(total)));
}

py::tuple describe_memory_info(const py::object& device) {
  const DeviceSpec spec = device_argument(device.ptr());
  uint64_t free = 0, total = 0;
  if (!memory_info(spec.backend, spec.index, &free, &total))
    fail(RB_E_NOTIMPL, "the backend '%s' does not tell how much memory its devices have",
         backend_name(spec.backend));
  return py::make_tuple(free, total);
}

py::dict device_properties(const py::object& device) {
  const DeviceSpec spec = device_argument(device.ptr());
  const RbDeviceTable table = device_table(spec.backend);
  if (!table.properties)
    fail(RB_E_NOTIMPL, "the backend '%s' tells no properties of its devices",
         backend_name(spec.backend));
  py::dict d;
  check(table.properties(
      table.self, spec.index, &d, [](void* ctx, const char* name, const RbValue* value) -> int32_t {
        return guarded([&] { add_property(*static_cast<py::dict*>(ctx), name, value); });
      }));
  return d;
}

bool can_access_peer(const py::object& device, const py::object& peer) {
  const DeviceSpec a = device_argument(device.ptr()), b = device_argument(peer.ptr());
  const RbDeviceTable table = device_table(a.backend);
  if (a.backend != b.backend || a.index == b.index || !table.can_access_peer) return false;
  int32_t can = 0;
  check(table.can_access_peer(table.self, a.index, b.index, &can));
  return can != 0;
}

py::dict describe_live(const MemoryCounts& c) {
  py::dict d;
  d["tensors"] = c.tensors;
  d["storages"] = c.storages;
  d["bytes"] = c.bytes;
  return d;
}

py::dict live_counts() {
  MemoryCounts total{};
  for (int id = 0; id < backend_count(); ++id) {
    const MemoryCounts c = memory_counts(id);
    total = {total.tensors + c.tensors, total.storages + c.storages, total.bytes + c.bytes};
  }
  return describe_live(total);
}

py::dict live_by_backend() {
  py::dict d;
  for (int id = 0; id < backend_count(); ++id)
    d[backend_name(id)] = describe_live(memory_counts(id));
  return d;
}

py::list describe_slots() {
  py::list list;
  for (const SlotEntry& slot : slot_entries()) {
    py::dict d;
    d["name"] = slot.name;
    d["provider"] = layer_entry(slot.layer).provider;
    d["tensors"] = slot.tensors;
    list.append(d);
  }
  return list;
}

}  // namespace

void bind_memory(py::module_& m) {
  m.def("live_counts", live_counts, "Live tensors, storages and their bytes.");
  m.def("live_by_backend", live_by_backend, "The same for each loaded backend, by name.");
  m.def("slots", describe_slots, "Per-tensor slots of layers, and how many tensors have them.");
  m.def("memory_stats", describe_memory, py::arg("device"), py::arg("kind") = "device");
  m.def("memory_snapshot", memory_snapshot, "All segments with their blocks.");
  m.def("pinned_like", pinned_like, "Pinned memory for the sake of a device, of a tensor's shape.");
  m.def("is_pinned", [](const py::object& tensor) {
    return is_in_memory(tensor_argument(tensor), MemoryKind::kPinned);
  });
  m.def("managed_like", managed_like, "Managed memory of a device, of a tensor's shape.");
  m.def("shared_like", shared_like,
        "Memory of a device that other processes can open, of a tensor's shape.");
  m.def("adopt_memory", adopt_memory,
        "A tensor of memory at an address, which `owner` keeps alive.");
  m.def("ipc_export", export_tensor, "A handle for another process, and an offset.");
  m.def("ipc_open", open_tensor);
  m.def("memory_info", describe_memory_info, "Free and total bytes of a device.");
  m.def("limit_memory", limit_memory);
  m.def("device_properties", device_properties);
  m.def("can_access_peer", can_access_peer);
  m.def(
      "reset_peak_memory",
      [](const py::object& device, const std::string& kind) {
        if (Heap* heap = heap_argument(device, kind)) heap->reset_peaks();
      },
      py::arg("device"), py::arg("kind") = "device");
  m.def(
      "reset_accumulated_memory",
      [](const py::object& device, const std::string& kind) {
        if (Heap* heap = heap_argument(device, kind)) heap->reset_accumulated();
      },
      py::arg("device"), py::arg("kind") = "device");
  m.def("empty_cache", empty_cache, py::call_guard<WithoutGil>());
  m.def("synchronize", [](const py::object& device) {
    const DeviceSpec spec = device_argument(device.ptr());
    const WithoutGil unlocked;
    synchronize(spec.backend, spec.index);
  });
}

}  // namespace rabbet::python
