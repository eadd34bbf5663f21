#include "graph.h"

#include <memory>

#include "device/capture.h"
#include "errors.h"
#include "value_types.h"

namespace py = pybind11;

namespace rabbet::python {

namespace {

using PoolHandle = std::shared_ptr<MemoryPool>;

PoolHandle pool_argument(const py::object& id) {
  return id.is_none() ? nullptr : find_pool(id.cast<uint64_t>());
}

void begin(Graph& graph, const py::object& device) {
  const DeviceSpec at = device_argument(device.ptr());
  graph.capture_begin(at.backend, at.index);
}

}  // namespace

void bind_graph(py::module_& m) {
  py::class_<MemoryPool, PoolHandle>(m, "MemoryPool")
      .def(py::init(&make_pool))
      .def_readonly("id", &MemoryPool::id)
      .def_property_readonly("use_count",
                             [](const PoolHandle& pool) { return pool.use_count() - 1; })
      .def("enter",
           [](const MemoryPool& pool, const py::object& device) {
             const DeviceSpec at = device_argument(device.ptr());
             enter_pool(at.backend, at.index, pool.id);
           })
      .def("leave", [](const MemoryPool& pool, const py::object& device) {
        const DeviceSpec at = device_argument(device.ptr());
        leave_pool(at.backend, at.index, pool.id);
      });
  m.def("memory_pool", find_pool, "The pool of an id that something refers to.");
  m.def("is_capturing", [](const py::object& device) {
    const DeviceSpec at = device_argument(device.ptr());
    return capture_of(at.backend, at.index) != nullptr;
  });
  py::class_<Graph>(m, "Graph")
      .def(py::init([](bool keep, const py::object& pool) {
        return std::make_unique<Graph>(keep, pool_argument(pool));
      }))
      .def("capture_begin", begin)
      .def("capture_end", &Graph::capture_end)
      .def("instantiate", &Graph::instantiate)
      .def("replay", &Graph::replay)
      .def("reset", &Graph::reset)
      .def("dump", &Graph::dump)
      .def_property_readonly("handles",
                             [](const Graph& graph) {
                               return py::make_tuple(
                                   reinterpret_cast<uintptr_t>(graph.graph()),
                                   reinterpret_cast<uintptr_t>(graph.executable()));
                             })
      .def_property_readonly("capturing", &Graph::capturing)
      .def_property_readonly("pool", [](const Graph& graph) { return graph.pool()->id; });
}

}  // namespace rabbet::python
