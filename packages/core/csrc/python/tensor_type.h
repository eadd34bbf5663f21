// The Tensor type: identity between a tensor and its Python object, and access to either from the
// other.
#pragma once
#include "ref.h"
#include "tensor/tensor.h"

namespace rabbet::python {

struct TensorObject {
  PyObject_HEAD Tensor*
      t;  // owned, unless the tensor owns this object (lowest bit of Tensor::pyobj)
  PyObject* dict;
  PyObject* weakrefs;
};

extern PyTypeObject* tensor_type;

// Objects of the exact type are reused.
#ifndef Py_GIL_DISABLED
constexpr int kFreeObjects = 256;
extern TensorObject* free_objects[kFreeObjects];  // guarded by Python's lock
extern int free_object_count;
#endif

inline bool is_tensor(PyObject* o) {
  return Py_TYPE(o) == tensor_type || PyType_IsSubtype(Py_TYPE(o), tensor_type);
}
inline Tensor* tensor_of(PyObject* o) { return reinterpret_cast<TensorObject*>(o)->t; }

/// New reference to the one Python object of `t`; takes over the caller's reference to `t`, also on
/// error.
PyObject* wrap_known(RbTensor* t);
inline PyObject* wrap(RbTensor* rt) {
#ifndef Py_GIL_DISABLED
  Tensor* t = impl(rt);
  if (__builtin_expect(!t->pyobj && free_object_count > 0, 1)) {  // new for Python
    TensorObject* o = free_objects[--free_object_count];
    Py_SET_REFCNT(reinterpret_cast<PyObject*>(o), 1);
    o->t = t;
    t->pyobj = o;
    return reinterpret_cast<PyObject*>(o);
  }
#endif
  return wrap_known(rt);
}
/// The same for a tensor that stays with its owner.
inline PyObject* wrap_borrowed(RbTensor* t) {
  retain(t);
  return wrap(t);
}
/// See RbPython.set_referents.
void set_referents(int (*traverse)(RbTensor*, visitproc, void*), void (*clear)(RbTensor*));
/// A new object of a subclass for a tensor that has no Python object yet; takes over the reference.
PyObject* wrap_as(PyTypeObject* cls, Tensor* t);
/// The tensor of `owned`, the only reference to an object of the exact type, as an object of a
/// subclass.
PyObject* rewrap(PyTypeObject* cls, PyObject* owned);
/// Exchange the tensors of two objects. Throws if anything else uses one of the tensors.
void swap_tensors(PyObject* a, PyObject* b);

/// Make the type (without operators) and add it to `module`; false with a Python exception set.
bool init_tensor_type(PyObject* module);

/// The parts of the type that other files define.
extern PyMethodDef tensor_methods[];       // tensor_methods.cpp
extern PyGetSetDef tensor_getset[];        // tensor_attributes.cpp
extern PyType_Slot tensor_number_slots[];  // tensor_numbers.cpp, null-terminated

/// Whether autograd is loaded and `o` requires a gradient; throws PythonError.
bool requires_grad(PyObject* o);
void set_requires_grad(PyObject* o, PyObject* value);
/// Called by tensor.__repr__; null: a plain text.
extern PyObject* repr_callback;

}  // namespace rabbet::python
