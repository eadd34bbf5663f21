// The protocol of __torch_function__: subclasses of Tensor, other types, and modes that override
// functions.
//
// Arguments of the exact type Tensor cost nothing: every function tests for that type first anyway.
// Modes are switched on by replacing the function pointers of operators and the limits below.
#pragma once
#include "tensor_type.h"

namespace rabbet::python {

/// The last subclass of Tensor that was found to override nothing (Parameter as a rule). A version
/// tag that differs says that the type has changed since.
struct PlainSubclass {
  PyTypeObject* type;
  unsigned version;
};
extern PlainSubclass plain_subclass;  // guarded by Python's lock

/// Whether any thread is inside a TorchFunctionMode.
extern bool modes_active;

/// Whether the type of `o` is of no class that a program could have defined: such types override
/// nothing.
inline bool is_builtin_or_tensor(PyObject* o) {
  return Py_TYPE(o) == tensor_type || !(Py_TYPE(o)->tp_flags & Py_TPFLAGS_HEAPTYPE);
}

bool is_plain_subclass(PyObject* o);
/// Whether `o` is a tensor whose type overrides nothing, or overrides that are disabled in this
/// thread.
inline bool is_plain_tensor(PyObject* o) {
  PyTypeObject* type = Py_TYPE(o);
  return __builtin_expect(type == tensor_type, 1) ||
         (type == plain_subclass.type && type->tp_version_tag == plain_subclass.version) ||
         ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) && is_plain_subclass(o));
}

/// Whether the type of `o` has __torch_function__ and this thread has not disabled it. The items of
/// lists are not looked at.
bool overrides(PyObject* o);
/// Whether one of the arguments, or an item of one that is a list or tuple, overrides functions;
/// true in a mode.
bool is_overridden(PyObject* const* args, Py_ssize_t n);

/// Call the overrides of `function`: the innermost mode, then each argument's __torch_function__,
/// subclasses first. Returns null with TypeError set if all of them return NotImplemented.
PyObject* call_override(PyObject* function, PyObject* const* args, Py_ssize_t nargs,
                        PyObject* kwnames);
/// The same for the slot of a Python operator: returns NotImplemented if all overrides do, so that
/// Python asks the other operand.
PyObject* call_slot_override(PyObject* function, PyObject* const* args, Py_ssize_t nargs);
/// The same for the attribute `name` of Tensor: Tensor.__getitem__ of x[i].
PyObject* call_override(const char* name, std::initializer_list<PyObject*> args);

/// Test at the beginning of a slot of Tensor.
inline bool may_be_overridden(PyObject* o) {
  return __builtin_expect(Py_TYPE(o) != tensor_type || modes_active, 0);
}
inline bool slot_is_overridden(PyObject* o) { return may_be_overridden(o) && is_overridden(&o, 1); }

/// Calls of slots on at least this many elements leave the short way: kLargeCall, or -1 while modes
/// are active.
extern int64_t slot_call_limit;  // tensor_numbers.cpp

/// Whether the class defines __torch_dispatch__.
bool dispatches(PyTypeObject* cls);
/// Make calls with a new object of such a class come to it; false with a Python exception set.
bool join_dispatch(PyObject* tensor);

/// Make the types and functions, add them to `module`, and let the attributes of Tensor be
/// overridden. False with a Python exception set.
bool init_overrides(PyObject* module);

}  // namespace rabbet::python
