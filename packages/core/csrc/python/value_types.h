// The small Python types beside Tensor: dtype, device, Size, Generator, layout and memory_format.
#pragma once
#include <memory>
#include <string>

#include "device/generator.h"
#include "ref.h"
#include "tensor/memory_format.h"

namespace rabbet::python {

struct DTypeObject {
  PyObject_HEAD int id;
};
struct DeviceObject {
  PyObject_HEAD int32_t backend;
  int32_t index;  // -1: none was given
};
struct GeneratorObject {
  PyObject_HEAD RbGenerator* state;
  int32_t backend, index;
  bool owned;  // false: a device's default generator, which lives as long as the process
};
/// New reference to the object that owns the generator, or to one that borrows a device's default.
PyObject* generator_object(RbGenerator* state);
struct ConstantObject {  // rabbet.strided, rabbet.contiguous_format, ...
  PyObject_HEAD const char* name;
  int value;
};

extern PyTypeObject* dtype_type;
extern PyTypeObject* device_type;
extern PyTypeObject* size_type;
extern PyTypeObject* generator_type;
extern PyTypeObject* layout_type;
extern PyTypeObject* memory_format_type;
extern PyObject* strided_layout;
extern PyObject* layouts[RB_JAGGED + 1];  // by RB_STRIDED, ...
/// RB_STRIDED, ... of a `rabbet.layout`; -1: it is none.
int layout_of(PyObject* o);
/// What stands before the point in texts of dtypes, sizes, layouts and memory formats.
extern std::string shown_module;

/// Make the types and singletons and add them to `module`; false with a Python exception set.
bool init_value_types(PyObject* module);

inline bool is_dtype(PyObject* o) { return Py_TYPE(o) == dtype_type; }
inline bool is_device(PyObject* o) { return Py_TYPE(o) == device_type; }

/// The format that `o` is, None being `absent`; raises a TypeError that names `method`.
MemoryFormat memory_format_of(PyObject* o, MemoryFormat absent, const char* method);
/// The object of a dtype, borrowed; there is one of each.
PyObject* dtype_object(int id);
/// Give dtypes that were added since then their objects, as attributes of `rabbet`. Throws.
void refresh_dtypes();

/// Id of a dtype object or of the types bool, int, float, complex; -1 for anything else.
int dtype_of(PyObject* o);
/// New reference.
PyObject* make_device(int backend, int index);
/// The device of a tensor; host memory and `meta` have no index.
PyObject* device_of(const RbTensor* t);
/// Parse "cpu", "cuda:0", a device object or an index; loads the backend where needed. Throws.
struct DeviceSpec {
  int32_t backend, index;
};
DeviceSpec parse_device(PyObject* o);
/// The same of a device that is there, whose index is 0 if none is named.
DeviceSpec device_argument(PyObject* o);
/// Whether `o` can stand for a device (its text may still be wrong).
bool looks_like_device(PyObject* o);
PyObject* make_size(int ndim, const int64_t* shape);
/// `generator` stays with core; borrowed by the object.
PyObject* make_default_generator(int backend, int index);

}  // namespace rabbet::python
