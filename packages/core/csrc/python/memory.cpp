#include "memory.h"

#include <pybind11/stl.h>

#include "boundary/slots.h"
#include "device/backends.h"
#include "device/memory.h"
#include "layer/layers.h"
#include "tensor/tensor.h"
#include "value_types.h"

namespace py = pybind11;

namespace rabbet::python {

namespace {

// PyTorch's names: docs of torch.accelerator.memory_stats.
py::dict describe_memory(const py::object& device) {
  const DeviceSpec spec = device_argument(device.ptr());
  const MemoryStats stats = memory_stats(spec.backend, spec.index);
  py::dict d;
  const auto put = [&](const char* name, const MemoryStat& s) {
    const std::string head = std::string(name) + ".all.";
    d[py::str(head + "allocated")] = s.allocated;
    d[py::str(head + "current")] = s.current;
    d[py::str(head + "freed")] = s.freed;
    d[py::str(head + "peak")] = s.peak;
  };
  put("allocated_bytes", stats.block_bytes);
  put("allocation", stats.blocks);
  d["num_alloc_retries"] = stats.retries;
  d["num_device_alloc"] = stats.segments.allocated;
  d["num_device_free"] = stats.segments.freed;
  d["num_ooms"] = stats.ooms;
  put("reserved_bytes", stats.segment_bytes);
  put("segment", stats.segments);
  return d;
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
  m.def("memory_stats", describe_memory);
  m.def("reset_peak_memory", [](const py::object& device) {
    const DeviceSpec spec = device_argument(device.ptr());
    reset_peak_memory(spec.backend, spec.index);
  });
  m.def("reset_accumulated_memory", [](const py::object& device) {
    const DeviceSpec spec = device_argument(device.ptr());
    reset_accumulated_memory(spec.backend, spec.index);
  });
  m.def("empty_cache", empty_cache, py::call_guard<WithoutGil>());
  m.def("synchronize", [](const py::object& device) {
    const DeviceSpec spec = device_argument(device.ptr());
    const WithoutGil unlocked;
    synchronize(spec.backend, spec.index);
  });
}

}  // namespace rabbet::python
