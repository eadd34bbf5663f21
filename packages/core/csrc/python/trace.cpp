#include "trace.h"

#include <pybind11/stl.h>

#include <cstring>
#include <optional>

#include "call/dry_run.h"
#include "calls.h"
#include "device/backends.h"
#include "errors.h"
#include "op_type.h"
#include "rabbet/python.hpp"
#include "tensor_type.h"
#include "thread/events.h"
#include "thread/source.h"
#include "value_types.h"

namespace py = pybind11;

namespace rabbet::python {

namespace {

// (results on `meta`, the device where they would be)
py::object infer_results(const py::object& op, const py::tuple& args, const py::dict& kwargs) {
  return with_call(
      "infer", op, args, kwargs,
      [](const Op& record, const RbValue* values, int32_t n) -> py::object {
        std::vector<RbValue> rets(record.info.nrets, value_none());
        const CallDevice where = dry_run(record, values, n, rets.data(), record.info.nrets);
        const bool has_index = where.backend != kMeta && !has_host_memory(where.backend);
        const py::object device = py::reinterpret_steal<py::object>(
            must(make_device(where.backend, has_index ? where.device : -1)));
        return py::make_tuple(py::reinterpret_steal<py::object>(
                                  must(results_to_python(&record, rets.data(), record.info.nrets))),
                              device);
      });
}

// ---- the line of the program

bool is_own(PyFrameObject* frame) {
  const Ref globals(must(PyFrame_GetGlobals(frame)));
  PyObject* name = PyDict_GetItemString(globals.get(), "__name__");
  const char* text = name && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : nullptr;
  return text && (!std::strcmp(text, "rabbet") || !std::strncmp(text, "rabbet.", 7));
}

// Of the innermost function that is not Rabbet's own.
bool find_source(std::string& text) {
  if (!interpreter_alive()) return false;
  const WithGil gil;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  while (frame && is_own(frame)) {
    PyFrameObject* back = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
  }
  if (frame) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    const char* file = PyUnicode_AsUTF8(code->co_filename);
    const char* name = PyUnicode_AsUTF8(code->co_name);
    text = std::string(file ? file : "?") + ":" + std::to_string(PyFrame_GetLineNumber(frame)) +
           " in " + (name ? name : "?");
    Py_DECREF(code);
    Py_DECREF(frame);
  }
  PyErr_Restore(type, value, traceback);
  return frame != nullptr;
}

py::object current_source() {
  const char* found = call_source();
  return found ? py::object(py::str(found)) : py::object(py::none());
}

// ---- events

class Reader {
 public:
  explicit Reader(uint32_t kinds) : events_(open_events(kinds)) {}
  ~Reader() { close(); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  void close() {
    if (events_) close_events(*events_);
    events_ = nullptr;
  }
  py::tuple read() {
    if (!events_) raise(PyExc_ValueError, "the reader of events is closed");
    py::list out;
    uint64_t lost = 0, missed = 0;
    std::vector<RbEvent> some(1024);
    while (const uint32_t n = read_events(*events_, some.data(), sizeof(RbEvent),
                                          static_cast<uint32_t>(some.size()), &missed)) {
      lost += missed;
      for (uint32_t i = 0; i < n; ++i) out.append(describe(some[i]));
    }
    return py::make_tuple(out, lost + missed);
  }

 private:
  static py::dict describe(const RbEvent& e) {
    py::dict d;
    d["kind"] = e.kind == RB_EVENT_OP_BEGIN ? "begin"
                : e.kind == RB_EVENT_OP_END ? "end"
                : e.kind == RB_EVENT_ALLOC  ? "alloc"
                                            : "free";
    d["time"] = e.time;
    d["thread"] = e.thread;
    if (e.op) {
      d["op"] = impl(e.op)->name;
      d["depth"] = e.depth;
      if (e.kind == RB_EVENT_OP_BEGIN) d["arguments"] = e.text;
      if (e.kind == RB_EVENT_OP_END) d["failed"] = e.status != RB_OK;
    } else {
      d["nbytes"] = e.nbytes;
      d["address"] = reinterpret_cast<uintptr_t>(e.data);
      d["device"] = std::string(backend_name(e.backend)) +
                    (has_host_memory(e.backend) ? "" : ":" + std::to_string(e.device));
    }
    return d;
  }

  RbEvents* events_;
};

// ---- ranges

RbObserved range_event(uint32_t kind, uint64_t id, const char* name, uint32_t flags) {
  RbObserved event = observed_event(kind);
  event.flags = flags;
  event.text = name;
  event.id = id;
  return event;
}

PyObject* range_begin(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  static std::atomic<uint64_t> next{1};
  if (!is_among(RB_EVENT_RANGE_BEGIN, observed_kinds)) return PyLong_FromLong(0);
  if (nargs < 1 || nargs > 2 || !PyUnicode_Check(args[0])) {
    PyErr_SetString(PyExc_TypeError, "range_begin: expected (name: str, framework: bool = False)");
    return nullptr;
  }
  const char* name = PyUnicode_AsUTF8(args[0]);
  if (!name) return nullptr;
  const bool framework = nargs == 2 && args[1] == Py_True;
  const uint64_t id = next.fetch_add(1, std::memory_order_relaxed);
  notify(
      range_event(RB_EVENT_RANGE_BEGIN, id, name, framework ? RB_RANGE_FRAMEWORK : RB_RANGE_USER));
  return PyLong_FromUnsignedLongLong(id);
}

PyObject* range_end(PyObject*, PyObject* id) {
  const uint64_t number = PyLong_AsUnsignedLongLong(id);
  if (PyErr_Occurred()) return nullptr;
  if (number && is_among(RB_EVENT_RANGE_END, observed_kinds))
    notify(range_event(RB_EVENT_RANGE_END, number, nullptr, 0));
  Py_RETURN_NONE;
}

PyMethodDef range_functions[] = {
    {"range_begin", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(range_begin)),
     METH_FASTCALL, "Begin a named part of the program for those that observe; its id, else 0."},
    {"range_end", range_end, METH_O, "End the part with the id."},
    {}};

}  // namespace

void bind_trace(py::module_& m) {
  source_finder = find_source;
  m.def("infer", infer_results, py::arg("op"), py::arg("args"), py::arg("kwargs"));
  m.def("source", current_source);
  m.def("set_source", [](const std::optional<std::string>& text) {
    set_call_source(text ? text->c_str() : nullptr);
  });
  py::class_<Reader>(m, "EventReader")
      .def(py::init<uint32_t>(), py::arg("kinds"))
      .def("read", &Reader::read, "(events since the last read, how many of them were lost)")
      .def("close", &Reader::close);
  if (PyModule_AddFunctions(m.ptr(), range_functions) != 0) throw py::error_already_set();
}

}  // namespace rabbet::python
