// rabbet.profiler._C: recordings for Python.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <cstring>
#include <map>
#include <utility>

#include "log.h"
#include "nvtx.h"
#include "rabbet/device.h"
#include "rabbet/python.h"
#include "rabbet/python.hpp"
#include "recorder.h"
#include "signature.h"
#include "spans.h"
#include "stacks.h"

namespace py = pybind11;

namespace {

const RbPython* core = nullptr;
const RbTrace* trace = nullptr;

std::string name_of(const void* op) {
  return core->host->op_info(static_cast<const RbOp*>(op))->name;
}

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// A tensor as (dtype id, sizes).
py::object read_tensor(const uint64_t*& at) {
  const uint64_t head = *at++;
  if ((head & 255) == RB_NONE) return py::none();
  const auto ndim = static_cast<size_t>(head >> 32);
  py::tuple sizes(ndim);
  for (size_t i = 0; i < ndim; ++i) sizes[i] = static_cast<int64_t>(*at++);
  return py::make_tuple(head >> 8 & 0xFFFF, sizes);
}

// The values of a call: tensors as (dtype id, sizes), lists of them or of sizes, numbers; None for
// all else.
py::list read_signature(const std::vector<uint64_t>& words) {
  py::list out;
  const uint64_t* at = words.data();
  const uint64_t* const end = at + words.size();
  while (at < end) {
    const uint64_t tag = *at & 255;
    if (tag == profiler::kTensor) {
      out.append(read_tensor(at));
      continue;
    }
    const uint64_t head = *at++;
    if (tag == profiler::kList) {
      py::list inner;
      for (uint64_t n = head >> 32; n; --n) inner.append(read_tensor(at));
      out.append(inner);
    } else if (tag == profiler::kSizes) {
      py::list sizes;
      for (uint64_t n = head >> 32; n; --n) sizes.append(static_cast<int64_t>(*at++));
      out.append(sizes);
    } else if (tag == RB_BOOL) {
      out.append(py::bool_(*at++ != 0));
    } else if (tag == RB_INT) {
      out.append(static_cast<int64_t>(*at++));
    } else if (tag == RB_FLOAT) {
      double number;
      std::memcpy(&number, at++, sizeof number);
      out.append(number);
    } else {
      out.append(py::none());
    }
  }
  return out;
}

// When devices did what they were given, by backend and launch.
using WorkTimes = std::map<std::pair<int32_t, uint64_t>, std::pair<uint64_t, uint64_t>>;
struct Collected {
  WorkTimes times;
  int32_t backend;
};

int32_t add_time(void* ctx, const RbWorkTime* t) {
  auto* to = static_cast<Collected*>(ctx);
  to->times[{to->backend, t->id}] = {t->begin, t->end};
  return RB_OK;
}

// Of all backends, given by name in the order of their ids. One that fails leaves its work out.
WorkTimes work_times(const std::vector<std::string>& backends) {
  Collected found;
  for (size_t i = 0; i < backends.size(); ++i) {
    const auto* table = static_cast<const RbDeviceTable*>(
        core->host->get_ext((backends[i] + "." RB_DEVICE_EXT).c_str(), RB_DEVICE_VERSION));
    if (!table || !RB_HAS(table, work_times) || !table->work_times) continue;
    found.backend = static_cast<int32_t>(i);
    if (table->work_times(table->self, &found, add_time) != RB_OK) core->host->err_clear();
  }
  return found.times;
}

py::list list_launches(const profiler::Recording& found, const WorkTimes& times) {
  py::list launches;
  for (const profiler::Launch& l : found.launches) {
    const auto at = times.find({l.backend, l.id});
    if (at == times.end()) continue;
    launches.append(py::make_tuple(l.name, l.kind, l.span, l.thread, l.time, l.backend, l.device,
                                   l.stream, at->second.first, at->second.second));
  }
  return launches;
}

void start(bool shapes, bool results, bool memory, bool stacks, bool devices) {
  profiler::drop_logs();
  profiler::drop_stacks();
  profiler::start(trace, (shapes ? profiler::kShapes : 0u) | (results ? profiler::kResults : 0u) |
                             (memory ? profiler::kMemory : 0u) | (stacks ? profiler::kStacks : 0u) |
                             (devices ? profiler::kDevices : 0u));
}

py::dict stop(const std::vector<std::string>& backends) {
  const int64_t end = now();
  bool complete = true;
  const uint64_t session = profiler::stop(&complete);
  profiler::Recording found;
  WorkTimes times;
  {
    const rb::WithoutGil unlocked;
    times = work_times(backends);
    found = profiler::collect(session, end, name_of);
    profiler::drop_logs();
  }
  py::list spans, names, signatures, stacks, memory;
  for (const profiler::Span& s : found.spans) {
    spans.append(py::make_tuple(static_cast<int>(s.kind), s.name, s.thread, s.begin, s.end,
                                s.parent, s.node, s.inputs, s.outputs, s.stack, s.host_bytes,
                                s.device_bytes, s.in_place, s.failed));
  }
  for (size_t i = 0; i < found.names.size(); ++i)
    names.append(py::make_tuple(found.names[i], bool{found.is_op[i]}));
  for (const auto& words : found.signatures) signatures.append(read_signature(words));
  for (const profiler::Frame& f : profiler::stack_frames())
    stacks.append(
        py::make_tuple(f.outer, py::reinterpret_borrow<py::object>(f.code), profiler::line_of(f)));
  for (const profiler::MemoryPoint& p : found.memory)
    memory.append(py::make_tuple(p.time, p.host_bytes, p.device_bytes));
  profiler::drop_stacks();
  py::dict out;
  out["end"] = end;
  out["complete"] = complete;
  out["spans"] = spans;
  out["names"] = names;
  out["signatures"] = signatures;
  out["stacks"] = stacks;
  out["memory"] = memory;
  out["threads"] = py::cast(found.threads);
  out["launches"] = list_launches(found, times);
  return out;
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  core = static_cast<const RbPython*>(PyCapsule_Import(RB_PYTHON_CAPSULE, 0));
  if (!core) throw py::error_already_set();
  trace = static_cast<const RbTrace*>(core->host->get_ext(RB_TRACE_EXT, RB_TRACE_VERSION));
  if (!trace || !RB_HAS(trace, thread_bytes))
    throw py::import_error(
        "rabbet.profiler: it needs a later rabbet-core, whose trace.h has observers");
  m.def("start", start, py::arg("shapes"), py::arg("results"), py::arg("memory"), py::arg("stacks"),
        py::arg("devices"));
  m.def("stop", stop, py::arg("backends"), "End the recording and return its spans.");
  m.def("pause", profiler::pause);
  m.def("resume", profiler::resume);
  m.def("is_recording", profiler::is_recording);
  m.def(
      "start_nvtx",
      [](const profiler::Names& names, bool shapes) {
        return profiler::start_nvtx(trace, core->host, names, shapes);
      },
      py::arg("names"), py::arg("shapes"), "Whether there is a library for the ranges.");
  m.def("stop_nvtx", [] { profiler::stop_nvtx(trace); });
  m.def("now", now, "Nanoseconds of the recordings' clock.");
}
