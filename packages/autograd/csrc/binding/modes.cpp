// Modes around calls, and what watches the nodes of backward runs.
#include "modes.h"

#include <memory>
#include <vector>

namespace binding {

namespace {

// ---- modes: mode(op, args, targets, run) of each call; it may return the results itself

/// A call that a mode is asked about; `run` of Python fails when it is over.
struct ModeCall {
  const RbCall* call;
  const RbValue* args;
  int32_t nargs;
  RbValue* rets;
  int32_t nrets;
  bool has_run, is_over;
};

py::tuple results_of(const ModeCall& c) {
  py::tuple out(static_cast<size_t>(c.nrets));
  for (int32_t i = 0; i < c.nrets; ++i) {
    PyObject* o = core->from_value(&c.rets[i]);
    if (!o) throw py::error_already_set();
    out[static_cast<size_t>(i)] = py::reinterpret_steal<py::object>(o);
  }
  return out;
}

py::tuple run_mode_call(ModeCall& c) {
  if (c.is_over || c.has_run)
    throw py::value_error("run() of a mode runs its call once, while the mode is asked about it");
  check(tape->call_mode_run(c.call, c.args, c.nargs, c.rets, c.nrets));
  c.has_run = true;
  return results_of(c);
}

// The tensors that a mode returned, in the place of the call's results.
void take_results(ModeCall& c, const py::object& given) {
  const py::tuple results = given;
  if (c.call->flags & RB_CALL_OUT)
    throw py::value_error("a mode cannot replace the results of a call that writes its arguments");
  if (results.size() != static_cast<size_t>(c.nrets))
    throw py::value_error("a mode returned " + std::to_string(results.size()) +
                          " results, expected " + std::to_string(c.nrets));
  std::vector<RbTensor*> list;
  for (const py::handle r : results) list.push_back(tensor(r, "a mode's results"));
  for (int32_t i = 0; i < c.nrets; ++i) {
    if (c.has_run) core->host->value_release(&c.rets[i]);
    core->host->retain(list[static_cast<size_t>(i)]);
    c.rets[i] = rb::tensor_value(list[static_cast<size_t>(i)]);
  }
}

int32_t call_mode(void* ctx, const RbCall* call, const RbValue* args, int32_t nargs, RbValue* rets,
                  int32_t nrets) {
  const rb::WithGil gil;
  auto c = std::make_shared<ModeCall>(ModeCall{call, args, nargs, rets, nrets, false, false});
  int32_t code = RB_OK;
  try {
    py::tuple given(static_cast<size_t>(nargs));
    for (int32_t i = 0; i < nargs; ++i) {
      PyObject* o = core->from_value(&args[i]);
      if (!o) throw py::error_already_set();
      given[static_cast<size_t>(i)] = py::reinterpret_steal<py::object>(o);
    }
    const bool writes = (call->flags & RB_CALL_OUT) != 0;
    const py::object targets = writes ? py::object(results_of(*c)) : py::none();
    const py::cpp_function run([c] { return run_mode_call(*c); });
    const py::handle mode(static_cast<PyObject*>(ctx));
    const py::object answer =
        mode(py::str(core->host->op_info(call->op)->name), given, targets, run);
    if (!answer.is_none()) {
      take_results(*c, answer);
    } else if (!c->has_run) {
      run_mode_call(*c);
    }
  } catch (py::error_already_set& e) {
    e.restore();
    code = core->capture_error();
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_ValueError, e.what());
    code = core->capture_error();
  }
  c->is_over = true;
  if (code != RB_OK && c->has_run && !(call->flags & RB_CALL_OUT)) {
    for (int32_t i = 0; i < nrets; ++i) core->host->value_release(&rets[i]);
  }
  return code;
}

void push_call_mode(const py::function& mode) {
  Py_INCREF(mode.ptr());
  tape->push_call_mode(call_mode, mode.ptr(), drop_callable);
}

// ---- what runs after each node of a backward run

int32_t call_watcher(void* ctx, RbNode* node, RbTensor* const* grads, int32_t n) {
  const rb::WithGil gil;
  tape->node_retain(node);
  PyObject* o = wrap_node(node);
  PyObject* given = to_tuple(const_cast<RbTensor**>(grads), n);
  PyObject* result = o && given ? call_object(ctx, o, given) : nullptr;
  const int32_t code = result ? RB_OK : core->capture_error();
  Py_XDECREF(result);
  Py_XDECREF(given);
  Py_XDECREF(o);
  return code;
}

py::object watch_nodes(const py::object& watcher) {
  auto* last = static_cast<PyObject*>(tape->node_watcher(call_watcher));
  const py::object before = last ? py::reinterpret_borrow<py::object>(last) : py::none();
  if (watcher.is_none()) {
    tape->watch_nodes(nullptr, nullptr, nullptr);
  } else {
    Py_INCREF(watcher.ptr());
    tape->watch_nodes(call_watcher, watcher.ptr(), drop_callable);
  }
  return before;
}

// ---- what runs at the end of the outermost backward run

int32_t call_at_end(void* ctx) {
  const rb::WithGil gil;
  PyObject* result = PyObject_CallNoArgs(static_cast<PyObject*>(ctx));
  const int32_t code = result ? RB_OK : core->capture_error();
  Py_XDECREF(result);
  return code;
}

void at_end(const py::object& callback) {
  Py_INCREF(callback.ptr());
  const int32_t code = tape->at_end(call_at_end, callback.ptr(), drop_callable);
  if (code != RB_OK) Py_DECREF(callback.ptr());
  check(code);
}

}  // namespace

void bind_modes(py::module_& m) {
  m.def("push_call_mode", push_call_mode);
  m.def("pop_call_mode", [] { tape->pop_call_mode(); });
  m.def("at_end", at_end, "Call it when the outermost backward run of this thread has ended.");
  m.def("watch_nodes", watch_nodes, "Returns what was called before, or None.");
}

}  // namespace binding
