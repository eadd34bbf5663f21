#include "streams.h"

#include "call/core_functions.h"
#include "device/backends.h"
#include "device/current.h"
#include "device/streams.h"
#include "errors.h"
#include "tensor_type.h"
#include "value_types.h"

namespace py = pybind11;

namespace rabbet::python {

namespace {

using Handle = uintptr_t;

void* native(Handle stream) { return reinterpret_cast<void*>(stream); }
Handle handle(void* stream) { return reinterpret_cast<Handle>(stream); }

/// An event of the backend's, which lives as long as this.
class Event {
 public:
  Event(const py::object& device, bool timing, bool interprocess)
      : at_(device_argument(device.ptr())),
        event_(event_create(at_.backend, at_.index, timing, interprocess)) {}
  Event(const py::object& device, const std::string& handle)
      : at_(device_argument(device.ptr())), event_(event_open(at_.backend, at_.index, handle)) {}
  ~Event() { event_destroy(at_.backend, at_.index, event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(Handle stream) { event_record(at_.backend, at_.index, native(stream), event_); }
  void wait(const py::object& device, Handle stream) const {
    const DeviceSpec waiting = device_argument(device.ptr());
    event_wait(waiting.backend, waiting.index, native(stream), event_);
  }
  void synchronize() const {
    const WithoutGil unlocked;
    event_synchronize(at_.backend, at_.index, event_);
  }
  bool query() const { return event_query(at_.backend, at_.index, event_); }
  py::bytes handle() const { return event_export(at_.backend, at_.index, event_); }
  double elapsed(const Event& end) const {
    return event_elapsed(at_.backend, at_.index, event_, end.event_);
  }

 private:
  DeviceSpec at_;
  void* event_;
};

Handle stream_new(const py::object& device, int priority) {
  const DeviceSpec at = device_argument(device.ptr());
  return handle(stream_from_pool(at.backend, at.index, priority));
}
Handle stream_get(const py::object& device) {
  const DeviceSpec at = device_argument(device.ptr());
  return handle(current_stream(thread_state(), at.backend, at.index));
}
void stream_set(const py::object& device, Handle stream) {
  const DeviceSpec at = device_argument(device.ptr());
  set_current_stream(at.backend, at.index, native(stream));
}
void synchronize_stream(const py::object& device, Handle stream) {
  const DeviceSpec at = device_argument(device.ptr());
  tell_of_sync(at.backend, at.index, "Stream.synchronize");
  const WithoutGil unlocked;
  stream_synchronize(at.backend, at.index, native(stream));
}
bool query_stream(const py::object& device, Handle stream) {
  const DeviceSpec at = device_argument(device.ptr());
  return stream_query(at.backend, at.index, native(stream));
}
void record_on_stream(const py::object& tensor, Handle stream) {
  record_stream(tensor_of(tensor.ptr()), native(stream));
}

int current_of(const std::string& type) {
  const int backend = find_backend(type.c_str());
  return backend < 0 ? 0 : current_device(backend);
}
void set_current(const py::object& device) {
  const DeviceSpec at = device_argument(device.ptr());
  set_current_device(at.backend, at.index);
}

}  // namespace

void bind_streams(py::module_& m) {
  m.def("current_device", current_of, "The thread's current device of a backend.");
  m.def("set_current_device", set_current);
  m.def("stream_new", stream_new, "A stream of the device's pool.");
  m.def("stream_get", stream_get, "The thread's stream of a device.");
  m.def("stream_set", stream_set);
  m.def("stream_synchronize", synchronize_stream);
  m.def("stream_query", query_stream);
  m.def("record_stream", record_on_stream);
  py::class_<Event>(m, "Event")
      .def(py::init<py::object, bool, bool>(), py::arg("device"), py::arg("timing"),
           py::arg("interprocess") = false)
      .def_static(
          "open",
          [](const py::object& device, const py::bytes& handle) {
            return std::make_unique<Event>(device, std::string(handle));
          },
          "An event of another process, by its handle.")
      .def("handle", &Event::handle, "What another process opens the event by.")
      .def("record", &Event::record)
      .def("wait", &Event::wait)
      .def("synchronize", &Event::synchronize)
      .def("query", &Event::query)
      .def("elapsed", &Event::elapsed);
}

}  // namespace rabbet::python
