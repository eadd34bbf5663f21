// Methods of Tensor that are no operators: geometry, conversion to Python, `to`.
#include <cstring>
#include <vector>

#include "arguments.h"
#include "call/core_functions.h"
#include "core_ops.h"
#include "data.h"
#include "device/backends.h"
#include "dlpack.h"
#include "errors.h"
#include "layer/transforms.h"
#include "named_dtypes.h"
#include "overrides.h"
#include "tensor/dtype.h"
#include "tensor_type.h"
#include "thread/deferral.h"
#include "value_types.h"

namespace rabbet::python {

namespace {

int64_t wrapped_dim(const Tensor* t, PyObject* o, const char* method) {
  int64_t d;
  if (!int_value(o, &d))
    raise(PyExc_TypeError, "%s(): dim must be an int, not %s", method, Py_TYPE(o)->tp_name);
  const int64_t range = t->ndim ? t->ndim : 1;
  if (d < -range || d >= range) {
    raise(PyExc_IndexError, "%s(): dim %lld is out of range for a tensor of %d dimensions", method,
          static_cast<long long>(d), static_cast<int>(t->ndim));
  }
  return d < 0 ? d + range : d;
}

// Compressed tensors have neither strides nor an order of their elements in memory.
void need_strides(const Tensor* t, const char* what) {
  if (t->layout < RB_SPARSE_CSR || t->layout > RB_SPARSE_BSC) return;
  const char* const names[] = {"CSR", "CSC", "BSR", "BSC"};
  raise(PyExc_RuntimeError, "Sparse %s tensors do not have %s", names[t->layout - RB_SPARSE_CSR],
        what);
}

PyObject* per_dim(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* names,
                  const char* method, bool strides) {
  return object_boundary([&]() -> PyObject* {
    const Tensor* t = tensor_of(self);
    if (strides) need_strides(t, "strides");
    const auto shown = [&](int64_t d) {
      if (!strides) return t->shape[d];
      return t->layout == RB_SPARSE_COO ? 0 : t->strides[d];
    };
    const Py_ssize_t given = nargs + (names ? PyTuple_GET_SIZE(names) : 0);
    if (given > 1) raise(PyExc_TypeError, "%s() takes at most one argument, dim", method);
    if (given == 0 || args[0] == Py_None) {
      if (!strides) return make_size(t->ndim, t->shape);
      Ref tuple(must(PyTuple_New(t->ndim)));
      for (int i = 0; i < t->ndim; ++i)
        PyTuple_SET_ITEM(tuple.get(), i, must(PyLong_FromLongLong(shown(i))));
      return tuple.release();
    }
    const int64_t d = wrapped_dim(t, args[0], method);
    if (t->ndim == 0) raise(PyExc_IndexError, "%s(): a 0-d tensor has no dimensions", method);
    return PyLong_FromLongLong(shown(d));
  });
}
PyObject* size(PyObject* s, PyObject* const* a, Py_ssize_t n, PyObject* k) {
  return per_dim(s, a, n, k, "size", false);
}
PyObject* stride(PyObject* s, PyObject* const* a, Py_ssize_t n, PyObject* k) {
  return per_dim(s, a, n, k, "stride", true);
}

PyObject* dim(PyObject* s, PyObject*) { return PyLong_FromLong(tensor_of(s)->ndim); }
PyObject* numel(PyObject* s, PyObject*) { return PyLong_FromLongLong(tensor_of(s)->numel); }
PyObject* element_size(PyObject* s, PyObject*) {
  return PyLong_FromLong(dtype_info(tensor_of(s)->dtype_id).itemsize);
}
PyObject* data_ptr(PyObject* s, PyObject*) {
  return object_boundary([&]() -> PyObject* {
    Tensor* t = tensor_of(s);
    if (!(t->flags & RB_T_COMPOSITE)) {
      make_ready(t, "data_ptr()");
      expose_memory(t);
      return PyLong_FromVoidPtr(t->data);
    }
    const TensorRef real = readable(t, "data_ptr()");
    if (real->data && real->refs.load(std::memory_order_acquire) == 1) {
      raise(PyExc_RuntimeError,
            "data_ptr(): the tensor's layer makes its values anew each time: there is no address "
            "that lasts; keep the tensor that holds them, for example t + 0");
    }
    return PyLong_FromVoidPtr(real->data);
  });
}
PyObject* storage_offset(PyObject* s, PyObject*) {
  return PyLong_FromLongLong(offset_in_storage(*tensor_of(s)));
}
PyObject* storage_id(PyObject* s, PyObject*) {
  return PyLong_FromVoidPtr(owner_of(tensor_of(s)->storage));
}
PyObject* storage_nbytes(PyObject* s, PyObject*) {
  return PyLong_FromUnsignedLongLong(tensor_of(s)->storage->nbytes);
}
PyObject* storage_users(PyObject* s, PyObject*) {
  const Storage* owner = owner_of(tensor_of(s)->storage);
  return PyLong_FromLong(owner->refs.load(std::memory_order_relaxed));
}
PyObject* is_contiguous(PyObject* s, PyObject* const* args, Py_ssize_t nargs, PyObject* names) {
  return object_boundary([&] {
    const Py_ssize_t given = names ? PyTuple_GET_SIZE(names) : 0;
    if (nargs || given > 1) {
      raise(PyExc_TypeError, "is_contiguous() takes one keyword argument, memory_format");
    }
    if (given && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "memory_format")) {
      raise(PyExc_TypeError, "is_contiguous() got an unexpected keyword argument '%U'",
            PyTuple_GET_ITEM(names, 0));
    }
    need_strides(tensor_of(s), "is_contiguous");
    const MemoryFormat format =
        given ? memory_format_of(args[0], MemoryFormat::kContiguous, "is_contiguous")
              : MemoryFormat::kContiguous;
    return PyBool_FromLong(tensor_of(s)->layout != RB_SPARSE_COO &&
                           is_contiguous_in(format, tensor_of(s)));
  });
}
PyObject* is_floating_point(PyObject* s, PyObject*) {
  return PyBool_FromLong(holds_floats(tensor_of(s)->dtype_id));
}
PyObject* is_complex_(PyObject* s, PyObject*) {
  return PyBool_FromLong(is_complex(tensor_of(s)->dtype_id));
}
PyObject* item(PyObject* s, PyObject*) {
  return object_boundary([&] { return tensor_item(tensor_of(s)).release(); });
}
PyObject* tolist(PyObject* s, PyObject*) {
  return object_boundary([&] { return tensor_to_list(tensor_of(s)).release(); });
}

// ---- conversion

PyObject* converted(PyObject* self, int dtype, const DeviceSpec* device, bool copy,
                    MemoryFormat format = MemoryFormat::kPreserve) {
  Tensor* t = tensor_of(self);
  TensorRef moved = device ? move_to(t, *device) : TensorRef::share(t);
  TensorRef cast = dtype < 0 ? moved : cast_to(moved.get(), dtype);
  const bool preserves = format == MemoryFormat::kPreserve;
  if (cast.get() == t) {
    if (!copy && (preserves || suggested_format(t) == format)) return Py_NewRef(self);
    check_memory_format(format, t->ndim, t->shape, "to()");
    cast = preserves ? run_op(ops.clone, {value_tensor(t)})
                     : run_op(ops.contiguous_clone,
                              {value_tensor(t), value_int(static_cast<int>(format))});
  }
  return wrap(in_format(cast.get(), format, "to()").release_ownership());
}

// to(dtype), to(device), to(device, dtype), to(other), all with non_blocking=, copy=,
// memory_format=
PyObject* to(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* names) {
  return object_boundary([&]() -> PyObject* {
    int dtype = -1;
    bool copy = false, have_device = false, non_blocking = false;
    MemoryFormat format = MemoryFormat::kPreserve;
    DeviceSpec device{};
    auto take = [&](PyObject* o) {
      if (o == Py_None) return;
      if (is_tensor(o)) {
        dtype = tensor_of(o)->dtype_id;
        device = {tensor_of(o)->backend, tensor_of(o)->device.id};
        have_device = true;
      } else if (dtype_of(o) >= 0) {
        dtype = dtype_of(o);
      } else if (looks_like_device(o)) {
        device = parse_device(o);
        have_device = true;
      } else {
        raise(PyExc_TypeError, "to(): expected a dtype, device or Tensor, not %s",
              Py_TYPE(o)->tp_name);
      }
    };
    Py_ssize_t flags = 0;
    for (Py_ssize_t i = 0; i < nargs; ++i) {
      if (PyBool_Check(args[i])) {  // non_blocking, copy by position
        (++flags == 2 ? copy : non_blocking) = args[i] == Py_True;
      } else {
        take(args[i]);
      }
    }
    for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names); ++i) {
      const char* name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(names, i));
      PyObject* value = args[nargs + i];
      if (!name) throw PythonError{};
      if (!std::strcmp(name, "dtype") || !std::strcmp(name, "device") ||
          !std::strcmp(name, "other")) {
        take(value);
      } else if (!std::strcmp(name, "copy")) {
        copy = PyObject_IsTrue(value) == 1;
      } else if (!std::strcmp(name, "memory_format")) {
        format = memory_format_of(value, MemoryFormat::kPreserve, "to");
      } else if (!std::strcmp(name, "non_blocking")) {
        non_blocking = PyObject_IsTrue(value) == 1;
      } else {
        raise(PyExc_TypeError, "to() got an unexpected keyword argument '%s'", name);
      }
    }
    const NonBlocking copies(non_blocking);
    return converted(self, dtype, have_device ? &device : nullptr, copy, format);
  });
}

template <int DType>
PyObject* as_dtype(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* names) {
  return object_boundary([&]() -> PyObject* {
    if (nargs == 0 && !names) return converted(self, DType, nullptr, false);
    if (nargs || PyTuple_GET_SIZE(names) != 1 ||
        PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "memory_format"))
      raise(PyExc_TypeError, "expected no argument but memory_format=");
    PyObject* given[] = {dtype_object(DType), args[0]};
    return to(self, given, 1, names);
  });
}

// What cpu() and cuda() take: memory_format=, and cuda() also device and non_blocking.
struct MoveOptions {
  PyObject* device = Py_None;
  bool non_blocking = false;
  MemoryFormat format = MemoryFormat::kPreserve;

  MoveOptions(const char* method, bool takes_device, PyObject* const* args, Py_ssize_t nargs,
              PyObject* names) {
    if (nargs > (takes_device ? 2 : 0))
      raise(PyExc_TypeError, "%s() takes fewer arguments than %zd", method, nargs);
    if (nargs > 0) device = args[0];
    if (nargs > 1) non_blocking = PyObject_IsTrue(args[1]) == 1;
    for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names); ++i) {
      const char* name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(names, i));
      if (!name) throw PythonError{};
      PyObject* value = args[nargs + i];
      if (!std::strcmp(name, "memory_format")) {
        format = memory_format_of(value, MemoryFormat::kPreserve, method);
      } else if (takes_device && !std::strcmp(name, "device")) {
        device = value;
      } else if (takes_device && !std::strcmp(name, "non_blocking")) {
        non_blocking = PyObject_IsTrue(value) == 1;
      } else {
        raise(PyExc_TypeError, "%s() got an unexpected keyword argument '%s'", method, name);
      }
    }
  }
};

PyObject* cpu(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* names) {
  return object_boundary([&] {
    const MoveOptions options("cpu", false, args, nargs, names);
    const DeviceSpec device{default_backend(), 0};
    return converted(self, -1, &device, false, options.format);
  });
}
PyObject* cuda(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* names) {
  return object_boundary([&] {
    const MoveOptions options("cuda", true, args, nargs, names);
    DeviceSpec device{require_backend("cuda"), -1};
    int64_t index;
    if (options.device != Py_None)
      device = int_value(options.device, &index)
                   ? DeviceSpec{device.backend, static_cast<int32_t>(index)}
                   : parse_device(options.device);
    if (device.backend != find_backend("cuda"))
      raise(PyExc_RuntimeError, "cuda(): expected a cuda device, got %s",
            backend_name(device.backend));
    const NonBlocking copies(options.non_blocking);
    return converted(self, -1, &device, false, options.format);
  });
}

// The dtype of view(dtype) or view(dtype=...), else null.
PyObject* dtype_argument(PyObject* const* args, Py_ssize_t nargs, PyObject* names) {
  const Py_ssize_t named = names ? PyTuple_GET_SIZE(names) : 0;
  if (nargs + named != 1 || !is_dtype(args[0])) return nullptr;
  if (named && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "dtype"))
    return nullptr;
  return args[0];
}

// view(sizes...), or view(dtype), which reads the same bytes as another type.
PyObject* view(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* names) {
  return object_boundary([&]() -> PyObject* {
    Tensor* t = tensor_of(self);
    if (PyObject* dtype = dtype_argument(args, nargs, names)) {
      return wrap(run_op(ops.view_dtype, {value_tensor(t), value_dtype(dtype_of(dtype))})
                      .release_ownership());
    }
    if (names) {
      if (nargs || PyTuple_GET_SIZE(names) != 1 ||
          PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "size"))
        raise(PyExc_TypeError, "view() takes sizes, or one keyword argument: size or dtype");
      nargs = 1;
    }
    int64_t sizes[kMaxDims];
    PyObject* list =
        nargs == 1 && (PyTuple_Check(args[0]) || PyList_Check(args[0])) ? args[0] : nullptr;
    const Py_ssize_t n = list ? PySequence_Size(list) : nargs;
    if (n > kMaxDims)
      raise(PyExc_ValueError, "view(): a tensor has at most %d dimensions, got %zd", kMaxDims, n);
    for (Py_ssize_t i = 0; i < n; ++i) {
      Ref o(list ? PySequence_GetItem(list, i) : Py_NewRef(args[i]));
      if (is_tensor(o.get())) o = Ref(must(PyNumber_Index(o.get())));
      if (!int_value(o.get(), &sizes[i]))
        raise(PyExc_TypeError, "view(): sizes must be ints, not %s", Py_TYPE(o.get())->tp_name);
    }
    return wrap(run_op(ops.view, {value_tensor(t), value_ints(sizes, static_cast<int>(n))})
                    .release_ownership());
  });
}

// The tensor `other`, by position or by keyword, of a method that takes nothing else.
const Tensor* other_tensor(PyObject* const* args, Py_ssize_t nargs, PyObject* names,
                           const char* method) {
  const Py_ssize_t named = names ? PyTuple_GET_SIZE(names) : 0;
  if (nargs + named != 1)
    raise(PyExc_TypeError, "%s() takes one argument, other, got %zd", method, nargs + named);
  if (named && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "other"))
    raise(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'", method,
          PyTuple_GET_ITEM(names, 0));
  if (!is_tensor(args[0]))
    raise(PyExc_TypeError, "%s(): expected a Tensor, not %s", method, Py_TYPE(args[0])->tp_name);
  return tensor_of(args[0]);
}
PyObject* same_shape_as(PyObject* self, const Tensor* other, const Op* op) {
  return wrap(run_op(op, {value_tensor(tensor_of(self)), value_ints(other->shape, other->ndim)})
                  .release_ownership());
}
PyObject* view_as(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* names) {
  return object_boundary(
      [&] { return same_shape_as(self, other_tensor(args, nargs, names, "view_as"), ops.view); });
}
PyObject* reshape_as(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* names) {
  return object_boundary([&] {
    return same_shape_as(self, other_tensor(args, nargs, names, "reshape_as"), ops.reshape);
  });
}
PyObject* type_as(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* names) {
  return object_boundary([&] {
    return converted(self, other_tensor(args, nargs, names, "type_as")->dtype_id, nullptr, false);
  });
}
PyObject* is_set_to(PyObject* self, PyObject* other) {
  if (!is_tensor(other)) Py_RETURN_FALSE;
  return PyBool_FromLong(same_memory(tensor_of(self), tensor_of(other)) &&
                         tensor_of(self)->data == tensor_of(other)->data);
}

PyObject* make_subclass(PyObject*, PyObject* const* args, Py_ssize_t nargs, PyObject* names) {
  return object_boundary([&]() -> PyObject* {
    if (nargs < 2 || !PyType_Check(args[0]) ||
        !PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(args[0]), tensor_type) ||
        !is_tensor(args[1])) {
      raise(PyExc_TypeError,
            "_make_subclass(cls, tensor, requires_grad=False): cls must be a subclass of Tensor");
    }
    TensorRef same = run_op(ops.detach, {value_tensor(tensor_of(args[1]))});
    if (same->pyobj || same->refs.load(std::memory_order_acquire) > 1)  // a layer's own tensor
      same = TensorRef(tensor_alias(same.get()));
    Ref made(must(wrap_as(reinterpret_cast<PyTypeObject*>(args[0]), same.release_ownership())));
    PyObject* grad = nargs > 2                               ? args[2]
                     : names && PyTuple_GET_SIZE(names) == 1 ? args[nargs]
                                                             : Py_False;
    set_requires_grad(made.get(), grad);
    return made.release();
  });
}

// The functions of the table below, which call __torch_function__ of subclasses and modes first.

PyObject* call_method_override(PyCFunction entry, PyObject* self, PyObject* const* args,
                               Py_ssize_t nargs, PyObject* names) {
  const PyMethodDef* method = tensor_methods;
  while (method->ml_meth != entry) ++method;
  std::vector<PyObject*> all{self};
  all.insert(all.end(), args, args + nargs + (names ? PyTuple_GET_SIZE(names) : 0));
  Ref function(PyObject_GetAttrString(reinterpret_cast<PyObject*>(tensor_type), method->ml_name));
  return function ? call_override(function.get(), all.data(), nargs + 1, names) : nullptr;
}

template <class F>
PyCFunction as_cfunction(F f) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(f));
}

template <_PyCFunctionFastWithKeywords F>
PyObject* fast(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* names) {
  if (slot_is_overridden(self))
    return call_method_override(as_cfunction(fast<F>), self, args, nargs, names);
  return F(self, args, nargs, names);
}
template <PyCFunction F>
PyObject* without_arguments(PyObject* self, PyObject* unused) {
  if (slot_is_overridden(self))
    return call_method_override(without_arguments<F>, self, nullptr, 0, nullptr);
  return F(self, unused);
}
template <PyCFunction F>
PyObject* with_one(PyObject* self, PyObject* arg) {
  PyObject* const both[] = {self, arg};
  if (__builtin_expect(modes_active || Py_TYPE(self) != tensor_type || Py_TYPE(arg) != tensor_type,
                       0) &&
      is_overridden(both, 2))
    return call_method_override(with_one<F>, self, &arg, 1, nullptr);
  return F(self, arg);
}

constexpr int kFast = METH_FASTCALL | METH_KEYWORDS;

}  // namespace

PyMethodDef tensor_methods[] = {
    {"size", as_cfunction(fast<size>), kFast, "Sizes of all dimensions, or of one."},
    {"stride", as_cfunction(fast<stride>), kFast,
     "Strides in elements, of all dimensions or of one."},
    {"dim", without_arguments<dim>, METH_NOARGS, "Number of dimensions."},
    {"ndimension", without_arguments<dim>, METH_NOARGS, "Number of dimensions."},
    {"numel", without_arguments<numel>, METH_NOARGS, "Number of elements."},
    {"nelement", without_arguments<numel>, METH_NOARGS, "Number of elements."},
    {"element_size", without_arguments<element_size>, METH_NOARGS, "Bytes per element."},
    {"data_ptr", without_arguments<data_ptr>, METH_NOARGS, "Address of the first element."},
    {"storage_offset", without_arguments<storage_offset>, METH_NOARGS,
     "Elements between the storage's begin and the first element."},
    {"_storage_id", without_arguments<storage_id>, METH_NOARGS,
     "A number that tensors of one storage share."},
    {"_storage_nbytes", without_arguments<storage_nbytes>, METH_NOARGS, "Bytes of the storage."},
    {"_storage_users", without_arguments<storage_users>, METH_NOARGS,
     "How many tensors and storages refer to the storage."},
    {"is_contiguous", as_cfunction(fast<is_contiguous>), kFast, "Whether row-major without gaps."},
    {"is_floating_point", without_arguments<is_floating_point>, METH_NOARGS,
     "Whether the dtype is floating."},
    {"is_complex", without_arguments<is_complex_>, METH_NOARGS, "Whether the dtype is complex."},
    {"is_set_to", with_one<is_set_to>, METH_O, "Whether both begin at one place of one storage."},
    {"item", without_arguments<item>, METH_NOARGS, "The one element as a Python number."},
    {"tolist", without_arguments<tolist>, METH_NOARGS, "Nested lists of Python numbers."},
    {"to", as_cfunction(fast<to>), kFast,
     "Converted to a dtype, a device, or those of another tensor."},
    {"float", as_cfunction(fast<as_dtype<RB_F32>>), kFast, "As float32."},
    {"double", as_cfunction(fast<as_dtype<RB_F64>>), kFast, "As float64."},
    {"half", as_cfunction(fast<as_dtype<RB_F16>>), kFast, "As float16."},
    {"bfloat16", as_cfunction(fast<as_dtype<RB_BF16>>), kFast, "As bfloat16."},
    {"long", as_cfunction(fast<as_dtype<RB_I64>>), kFast, "As int64."},
    {"int", as_cfunction(fast<as_dtype<RB_I32>>), kFast, "As int32."},
    {"short", as_cfunction(fast<as_dtype<RB_I16>>), kFast, "As int16."},
    {"char", as_cfunction(fast<as_dtype<RB_I8>>), kFast, "As int8."},
    {"byte", as_cfunction(fast<as_dtype<RB_U8>>), kFast, "As uint8."},
    {"bool", as_cfunction(fast<as_dtype<RB_BOOL8>>), kFast, "As bool."},
    {"chalf", as_cfunction(fast<as_dtype<kComplex32>>), kFast, "As complex32."},
    {"cfloat", as_cfunction(fast<as_dtype<RB_C64>>), kFast, "As complex64."},
    {"cdouble", as_cfunction(fast<as_dtype<RB_C128>>), kFast, "As complex128."},
    {"cpu", as_cfunction(fast<cpu>), kFast, "On the CPU."},
    {"cuda", as_cfunction(fast<cuda>), kFast, "On a CUDA device."},
    {"view", as_cfunction(fast<view>), kFast,
     "The same elements in another shape, or their bytes as another dtype."},
    {"view_as", as_cfunction(fast<view_as>), kFast, "view() with the shape of another tensor."},
    {"reshape_as", as_cfunction(fast<reshape_as>), kFast,
     "reshape() with the shape of another tensor."},
    {"type_as", as_cfunction(fast<type_as>), kFast, "Cast to the dtype of another tensor."},
    {"__dlpack__", as_cfunction(fast<tensor_dlpack>), kFast,
     "A DLPack capsule that shares the memory."},
    {"__dlpack_device__", without_arguments<tensor_dlpack_device>, METH_NOARGS,
     "DLPack's (type, index) of the device."},
    {"_make_subclass", as_cfunction(make_subclass), kFast | METH_STATIC,
     "A tensor of a subclass that shares memory."},
    {}};

}  // namespace rabbet::python
