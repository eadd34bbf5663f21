#include "chosen_device.h"

#include <vector>

#include "core_ops.h"

namespace rabbet::python {

namespace {

thread_local PyObject* base = nullptr;       // owned
thread_local std::vector<PyObject*> blocks;  // owned

void choose() { chosen_device = blocks.empty() ? base : blocks.back(); }

}  // namespace

int chosen_device_at(const Op* op) {
  int at = -1;
  for (size_t i = 0; i < op->params.size(); ++i) {
    if (op->params[i].type == RB_A_TENSOR) return -1;
    if (op->params[i].type == RB_A_DEVICE) at = static_cast<int>(i);
  }
  return at;
}

void fill_chosen(RbValue& device) {
  if (device.tag != RB_NONE) return;
  const DeviceSpec spec = parse_device(chosen_device);
  device = value_device(spec.backend, spec.index);
}

void set_base_device(PyObject* device) {
  PyObject* before = base;
  base = device == Py_None ? nullptr : Py_NewRef(device);
  choose();
  Py_XDECREF(before);
}

void enter_device(PyObject* device) {
  blocks.push_back(Py_NewRef(device));
  choose();
}

void leave_device() {
  if (blocks.empty()) raise(PyExc_RuntimeError, "device.__exit__: no block was entered");
  PyObject* left = blocks.back();
  blocks.pop_back();
  choose();
  Py_DECREF(left);
}

}  // namespace rabbet::python
