#pragma once

#include "errors.h"
#include "record/op.h"
#include "ref.h"
#include "value_types.h"

namespace rabbet::python {

/// Where this thread makes tensors when a creation names no device: the innermost block of
/// `with device`, else what set_default_device() said. Null: the CPU, as nothing was chosen.
// Borrowed from one of the two below.
inline thread_local PyObject* chosen_device __attribute__((tls_model("initial-exec"))) = nullptr;

/// Index of the device of a creation from nothing; -1 for other operators: what is made like a
/// tensor is made beside it.
int chosen_device_at(const Op* op);
/// Make an argument that names no device name the chosen one. Throws if there is none such.
void fill_chosen(RbValue& device);
/// What set_default_device() is told, a device or None; throws for anything else.
void set_base_device(PyObject* device);
/// Enter and leave `with device`.
void enter_device(PyObject* device);
void leave_device();

}  // namespace rabbet::python
