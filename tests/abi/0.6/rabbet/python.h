/* rabbet/python.h: how a native plugin part that binds Python meets core's Tensor type.
 * Get the table from the capsule `rabbet._C.python_v0` (PyCapsule_Import). Every function needs
 * Python's lock. */
#ifndef RABBET_PYTHON_H
#define RABBET_PYTHON_H
#include <Python.h>

#include "rabbet/abi.h"

#define RB_PYTHON_CAPSULE "rabbet._C.python_v0"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct RbPython {
  uint32_t struct_size, version;
  const RbHost* host;
  PyTypeObject* tensor_type;
  /* New reference to the one Python object of `t`; takes over the caller's reference to `t`, also
   * on error. */
  PyObject* (*wrap)(RbTensor* t);
  /* Borrowed; null, without an error set, for anything that is not a Tensor. */
  RbTensor* (*unwrap)(PyObject* object);
  /* Raise the thread's error record as a Python exception; returns null. */
  PyObject* (*raise_error)(int32_t code);
  /* Move the current Python exception into the thread's error record; returns RB_E_FOREIGN. */
  int32_t (*capture_error)(void);
  /* New reference to the Python form of a value; the value stays with the caller. */
  PyObject* (*from_value)(const RbValue* value);
  /* What Python objects a tensor holds besides its __dict__, for the garbage collector: `traverse`
   * visits each of them once, `clear` gives them up. It asks where nothing but the tensor's Python
   * object holds the tensor, and if that object has a __dict__. One pair for the process. */
  void (*set_referents)(int (*traverse)(RbTensor*, visitproc visit, void* arg),
                        void (*clear)(RbTensor*));
  /* New reference to a new object of a subclass of Tensor for `t`, which has no Python object yet;
   * takes over the caller's reference to `t`, also on error. */
  PyObject* (*wrap_as)(PyTypeObject* cls, RbTensor* t);
} RbPython;

#ifdef __cplusplus
}
#endif
#endif
