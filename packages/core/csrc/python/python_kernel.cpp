#include "python_kernel.h"

#include "convert.h"
#include "errors.h"
#include "tensor_type.h"

namespace rabbet::python {

namespace {

bool take_result(PyObject* o, RbValue* ret) {
  if (!is_tensor(o)) {
    PyErr_Format(PyExc_TypeError, "a kernel must return a Tensor for each result, got %s",
                 Py_TYPE(o)->tp_name);
    return false;
  }
  retain(tensor_of(o));
  *ret = value_tensor(tensor_of(o));
  return true;
}

bool take_results(PyObject* result, RbValue* rets, int32_t nrets) {
  if (nrets == 1) return take_result(result, &rets[0]);
  if (nrets == 0) return true;
  if (!PyTuple_Check(result) || PyTuple_GET_SIZE(result) != nrets) {
    PyErr_Format(PyExc_TypeError, "a kernel with %d results must return a tuple of as many Tensors",
                 static_cast<int>(nrets));
    return false;
  }
  for (int32_t i = 0; i < nrets; ++i) {
    if (!take_result(PyTuple_GET_ITEM(result, i), &rets[i])) {
      for (int32_t k = 0; k < i; ++k) value_release(&rets[k]);
      return false;
    }
  }
  return true;
}

int32_t run(void* self, const RbCall*, const RbValue* args, int32_t nargs, RbValue* rets,
            int32_t nrets) {
  WithGil gil;
  Ref given(PyTuple_New(nargs));
  if (!given) return capture_error();
  for (int32_t i = 0; i < nargs; ++i) {
    PyObject* o = value_to_python(&args[i]);
    if (!o) return capture_error();
    PyTuple_SET_ITEM(given.get(), i, o);
  }
  Ref result(PyObject_CallObject(static_cast<PyObject*>(self), given.get()));
  if (!result || !take_results(result.get(), rets, nrets)) return capture_error();
  return RB_OK;
}

}  // namespace

RbKernel make_python_kernel(const char* op, const char* backend, PyObject* fn) {
  RbKernel k{};
  k.struct_size = sizeof k;
  k.flags = RB_K_ALLOCATES | RB_K_NEEDS_GIL;
  k.op = op;
  k.backend = backend;
  k.fn = run;
  k.self = Py_NewRef(fn);  // kept for the process: a call may be running when the kernel is revoked
  return k;
}

}  // namespace rabbet::python
