// What the ctx of a user's Function saved: kept without what would keep the graph alive, and
// checked when it is read.
#include "function_saved.h"

#include <string>

namespace binding {

namespace {

// The same tensor without its history; inside a transform it stands for the same values.
py::object alias_of(const py::object& o) {
  RbTensor* alias = nullptr;
  check(core->host->tensor_alias(tensor(o, "saved_tensors"), &alias));
  return wrap_owned(alias);
}

// A saved output as backward sees it: with its history while backward itself is recorded.
py::object saved_output(const py::object& o, uint32_t output) {
  RbNode* n = tape->running_node();
  if (!n || !is_enabled()) return o;
  py::object alias = alias_of(o);
  tape->set_history(tensor(alias, "saved_tensors"), n, output);
  return alias;
}

uint32_t version_of(RbTensor* t) {
  return t->flags & RB_T_INFERENCE ? 0 : core->host->version_get(t);
}

// (the tensors to keep, their versions, a dict from a place in `saved` to the number of the output
// that it is). An output is kept without its history, which leads back to the ctx.
py::tuple settle(const py::tuple& saved, const py::list& outputs) {
  py::tuple kept = saved, versions(saved.size());
  py::object numbers = py::none();
  for (size_t i = 0; i < saved.size(); ++i) {
    const py::handle o = PyTuple_GET_ITEM(saved.ptr(), static_cast<Py_ssize_t>(i));
    RbTensor* t = core->unwrap(o.ptr());
    versions[i] = py::int_(t ? version_of(t) : 0u);
    if (!t) continue;
    if (t->flags & RB_T_INFERENCE) {
      PyErr_SetString(PyExc_RuntimeError,
                      "Inference tensors cannot be saved for backward. To work around you can make "
                      "a clone to get a normal tensor and use it in autograd.");
      throw py::error_already_set();
    }
    for (size_t k = 0; k < outputs.size(); ++k) {
      if (PyList_GET_ITEM(outputs.ptr(), static_cast<Py_ssize_t>(k)) != o.ptr()) continue;
      if (numbers.is_none()) {
        numbers = py::dict();
        kept = py::tuple(py::list(saved));
      }
      numbers[py::int_(i)] = py::int_(k);
      kept[i] = alias_of(py::reinterpret_borrow<py::object>(o));
    }
  }
  return py::make_tuple(kept, versions, numbers);
}

// What `settle` kept, as backward sees it; `name` is that of the node.
py::tuple load(const py::tuple& kept, const py::tuple& versions, const py::object& numbers,
               const py::object& name) {
  for (size_t i = 0; i < kept.size(); ++i) {
    RbTensor* t = core->unwrap(PyTuple_GET_ITEM(kept.ptr(), static_cast<Py_ssize_t>(i)));
    if (!t) continue;
    const auto saved = versions[i].cast<uint32_t>();
    const uint32_t now = version_of(t);
    if (now == saved) continue;
    PyErr_Format(PyExc_RuntimeError,
                 "one of the variables needed for gradient computation has been modified by an "
                 "inplace operation: %S saved a tensor of shape %s at version %u, it is at version "
                 "%u now",
                 name.ptr(), rb::shape_text(t).c_str(), saved, now);
    throw py::error_already_set();
  }
  if (numbers.is_none()) return kept;
  py::tuple loaded = py::tuple(py::list(kept));
  for (const auto& [place, number] : numbers.cast<py::dict>()) {
    const auto i = place.cast<size_t>();
    loaded[i] = saved_output(py::object(kept[i]), number.cast<uint32_t>());
  }
  return loaded;
}

}  // namespace

void bind_function_saved(py::module_& m) {
  m.def("alias", alias_of);
  m.def("saved_output", saved_output);
  m.def("settle", settle);
  m.def("load_settled", load);
}

}  // namespace binding
