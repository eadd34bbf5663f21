#include "chosen_device.h"

#include <vector>

namespace rabbet::python {

namespace {

thread_local PyObject* base = nullptr;       // owned
thread_local std::vector<PyObject*> blocks;  // owned

void choose() { chosen_device = blocks.empty() ? base : blocks.back(); }

}  // namespace

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
