// Attributes of Tensor that need no other wheel.
#include "core_ops.h"
#include "data.h"
#include "device/backends.h"
#include "errors.h"
#include "tensor/dtype.h"
#include "tensor_type.h"
#include "value_types.h"

namespace rabbet::python {

namespace {

PyObject* get_shape(PyObject* o, void*) {
  return make_size(tensor_of(o)->ndim, tensor_of(o)->shape);
}
PyObject* get_ndim(PyObject* o, void*) { return PyLong_FromLong(tensor_of(o)->ndim); }
PyObject* get_dtype(PyObject* o, void*) { return Py_NewRef(dtype_object(tensor_of(o)->dtype_id)); }
PyObject* get_device(PyObject* o, void*) { return device_of(tensor_of(o)); }
PyObject* get_layout(PyObject* o, void*) { return Py_NewRef(layouts[tensor_of(o)->layout]); }
PyObject* get_itemsize(PyObject* o, void*) {
  return PyLong_FromLong(dtype_info(tensor_of(o)->dtype_id).itemsize);
}
PyObject* get_nbytes(PyObject* o, void*) {
  return PyLong_FromLongLong(tensor_of(o)->numel * dtype_info(tensor_of(o)->dtype_id).itemsize);
}
PyObject* get_is_meta(PyObject* o, void*) {
  return PyBool_FromLong(tensor_of(o)->backend == kMeta);
}

PyObject* get_base(PyObject* o, void*) {
  return object_boundary([&] {
    Tensor* root = tensor_of(o);
    if (!root->view) return Py_NewRef(Py_None);
    while (root->view) root = root->view->parent;
    return must(wrap_borrowed(root));
  });
}

PyObject* is_on(PyObject* o, const char* name) {
  return PyBool_FromLong(backend_entry(tensor_of(o)->backend).name == name);
}
PyObject* get_is_cpu(PyObject* o, void*) { return is_on(o, "cpu"); }
PyObject* get_is_cuda(PyObject* o, void*) { return is_on(o, "cuda"); }

PyObject* wrapped(const Op* op, PyObject* o) {
  return object_boundary(
      [&] { return wrap(run_op(op, {value_tensor(tensor_of(o))}).release_ownership()); });
}

PyObject* get_transposed(PyObject* o, void*) {
  const Tensor* t = tensor_of(o);
  if (t->ndim == 2) return wrapped(ops.t, o);
  return object_boundary([&] {
    int64_t dims[kMaxDims];
    for (int i = 0; i < t->ndim; ++i) dims[i] = t->ndim - 1 - i;
    return wrap(run_op(ops.permute, {value_tensor(tensor_of(o)), value_ints(dims, t->ndim)})
                    .release_ownership());
  });
}
PyObject* get_matrix_transposed(PyObject* o, void*) { return wrapped(ops.mT, o); }
PyObject* get_adjoint(PyObject* o, void*) {
  return object_boundary([&] {
    TensorRef turned = run_op(ops.mT, {value_tensor(tensor_of(o))});
    if (!is_complex(turned->dtype_id)) return wrap(turned.release_ownership());
    return wrap(run_op(ops.conj, {value_tensor(turned.get())}).release_ownership());
  });
}
// A view of the real parts (0) or the imaginary parts (1).
PyObject* complex_part(PyObject* o, int which) {
  return object_boundary([&] {
    const TensorRef parts = run_op(ops.view_as_real, {value_tensor(tensor_of(o))});
    return wrap(run_op(ops.select, {value_tensor(parts.get()), value_int(-1), value_int(which)})
                    .release_ownership());
  });
}
int set_part(PyObject* part, PyObject* value) {
  if (!part) return -1;
  const Ref owned(part);
  if (!value) {
    PyErr_SetString(PyExc_AttributeError, "the parts of a complex tensor cannot be deleted");
    return -1;
  }
  const Ref done(PyObject_CallMethod(part, is_tensor(value) ? "copy_" : "fill_", "O", value));
  return done ? 0 : -1;
}
PyObject* get_real(PyObject* o, void*) {
  return is_complex(tensor_of(o)->dtype_id) ? complex_part(o, 0) : Py_NewRef(o);
}
int set_real(PyObject* o, PyObject* value, void*) { return set_part(get_real(o, nullptr), value); }
PyObject* get_imag(PyObject* o, void*) {
  if (is_complex(tensor_of(o)->dtype_id)) return complex_part(o, 1);
  PyErr_SetString(PyExc_RuntimeError,
                  "imag is not implemented for tensors with non-complex dtypes.");
  return nullptr;
}
int set_imag(PyObject* o, PyObject* value, void*) { return set_part(get_imag(o, nullptr), value); }

PyObject* get_data(PyObject* o, void*) {
  return object_boundary([&] {
    TensorRef cut = run_op(ops.detach, {value_tensor(tensor_of(o))});
    if (is_made_of_parts(cut.get())) return wrap(cut.release_ownership());
    return wrap(tensor_apart(cut.get()));
  });
}
int set_data(PyObject* o, PyObject* value, void*) {
  if (!value || !is_tensor(value)) {
    PyErr_SetString(PyExc_TypeError, "data can be set to a Tensor only");
    return -1;
  }
  return boundary<int>(-1, [&] {
    tensor_set_data(tensor_of(o), tensor_of(value));
    return 0;
  });
}

}  // namespace

PyGetSetDef tensor_getset[] = {
    {"shape", get_shape, nullptr, "Sizes of the dimensions, a Size.", nullptr},
    {"ndim", get_ndim, nullptr, "Number of dimensions.", nullptr},
    {"dtype", get_dtype, nullptr, "Type of the elements.", nullptr},
    {"device", get_device, nullptr, "Where the elements are.", nullptr},
    {"layout", get_layout, nullptr, "rabbet.strided, or what the layer of a composite says.",
     nullptr},
    {"itemsize", get_itemsize, nullptr, "Bytes per element.", nullptr},
    {"nbytes", get_nbytes, nullptr, "Bytes of all elements.", nullptr},
    {"_base", get_base, nullptr, "The tensor that a view shows a part of; None: not a view.",
     nullptr},
    {"is_meta", get_is_meta, nullptr, "Whether it has shape and dtype, but no data.", nullptr},
    {"is_cpu", get_is_cpu, nullptr, "Whether it is on the CPU.", nullptr},
    {"is_cuda", get_is_cuda, nullptr, "Whether it is on a CUDA device.", nullptr},
    {"T", get_transposed, nullptr, "The dimensions in reverse order.", nullptr},
    {"mT", get_matrix_transposed, nullptr, "The last two dimensions swapped.", nullptr},
    {"H", get_adjoint, nullptr, "The last two dimensions swapped, conjugated.", nullptr},
    {"mH", get_adjoint, nullptr, "The last two dimensions swapped, conjugated.", nullptr},
    {"real", get_real, set_real, "Real part: of complex tensors a view.", nullptr},
    {"imag", get_imag, set_imag, "Imaginary part of a complex tensor, a view.", nullptr},
    {"data", get_data, set_data,
     "The tensor cut from the graph, with a version of its own; assigning replaces memory, shape "
     "and dtype.",
     nullptr},
    {}};

}  // namespace rabbet::python
