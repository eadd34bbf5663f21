// The Op type: one callable object per public name; it serves as function and as method.
#pragma once
#include "arguments.h"

namespace rabbet::python {

extern PyTypeObject* op_type;

/// Make the type, an object for every operator, and put methods on Tensor. Throws PythonError or
/// Error.
void init_op_type(PyObject* module);
/// Operators that were registered or taken back since: new objects, other overloads of old ones,
/// methods. Throws.
void refresh_ops();

/// The records that an Op calls, in order. Throws.
const std::vector<Overload>& overloads_of(PyObject* op);
/// Set `Op.handle`. Throws.
void set_op_handle(PyObject* op, PyObject* handle);

/// The object of a public name, an alias, an in-place name ("add_") or an overload ("max.dim");
/// borrowed, null (without an exception) if there is none.
PyObject* find_op_object(const std::string& name);
/// After `modes_active` has changed: operators look for modes of __torch_function__ only while one
/// is active.
void update_op_entries();
/// Public names, in record order.
std::vector<std::string> public_op_names();
/// The modules below rabbet in which records expose operators, "linalg" or "nn.functional".
std::vector<std::string> op_modules();
/// A dict of the operators that records expose in a module, by their names there; new reference.
PyObject* ops_of_module(const std::string& module);

/// Values to Python: takes over what `rets` own, also on error. Throws.
PyObject* results_to_python(const Op* op, RbValue* rets, int nrets);
/// The type of an operator's several results, `rabbet.return_types.max`. Throws.
PyTypeObject* result_type(const Op* op);
/// The result types of all operators with several results, by name; new reference.
PyObject* result_types();

/// Python's lock is released around calls on at least this many elements.
constexpr int64_t kLargeCall = 1 << 16;

}  // namespace rabbet::python
