#include "buffer.h"

#include <cstring>

#include "device/backends.h"
#include "errors.h"
#include "layer/transforms.h"
#include "ref.h"
#include "tensor/dtype.h"
#include "tensor_type.h"
#include "thread/deferral.h"

namespace rabbet::python {

namespace {
// NumPy's int64 is a long where that has 64 bits; it has another type of its own for long long.
constexpr bool kLong = sizeof(long) == 8;
// Native struct codes; complex and half as NumPy writes them.
const char* const kFormats[RB_DTYPE_COUNT] = {
    "?",     "B", "b", "h",  "i", kLong ? "l" : "q", "H", "I", kLong ? "L" : "Q", "e",
    nullptr, "f", "d", "Zf", "Zd"};
}  // namespace

const char* buffer_format(int dtype) { return is_added(dtype) ? nullptr : kFormats[dtype]; }

int dtype_of_format(const char* format, Py_ssize_t itemsize) {
  if (!format) return RB_U8;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  if (*format == '>' || *format == '!') return -1;
  for (int d = 0; d < RB_DTYPE_COUNT; ++d) {
    if (kFormats[d] && !std::strcmp(kFormats[d], format))
      return dtype_info(d).itemsize == itemsize ? d : -1;
  }
  if (std::strlen(format) != 1) return -1;
  // `l` and `n` have the platform's size: go by it.
  const bool is_signed = std::strchr("bhilqn", *format),
             is_unsigned = std::strchr("BHILQN", *format);
  static const int signed_dtypes[] = {RB_I8, RB_I16, RB_I32, RB_I64};
  static const int unsigned_dtypes[] = {RB_U8, RB_U16, RB_U32, RB_U64};
  for (int i = 0; i < 4; ++i) {
    if (itemsize != 1 << i) continue;
    if (is_signed) return signed_dtypes[i];
    if (is_unsigned) return unsigned_dtypes[i];
  }
  return -1;
}

namespace {
// A composite's values, which are a copy: who writes them would not write the tensor.
int values_buffer(const Tensor* t, Py_buffer* view, int flags) {
  if (flags & PyBUF_WRITABLE) {
    PyErr_SetString(PyExc_BufferError, "the tensor is a composite: its values can be read only");
    return -1;
  }
  Ref values(object_boundary([&] { return wrap(readable(t, "buffer").release_ownership()); }));
  if (!values || PyObject_GetBuffer(values.get(), view, flags) < 0) return -1;
  view->readonly = 1;
  return 0;
}
}  // namespace

int tensor_get_buffer(PyObject* self, Py_buffer* view, int flags) {
  const Tensor* t = tensor_of(self);
  view->obj = nullptr;
  auto refuse = [](const char* why) {
    PyErr_SetString(PyExc_BufferError, why);
    return -1;
  };
  if (requires_grad(self)) return refuse("the tensor requires grad; use .detach() first");
  if (t->flags & RB_T_WRAPPER)
    return refuse("the tensor stands for others inside a transform and has no memory of its own");
  if (t->flags & RB_T_COMPOSITE) return values_buffer(t, view, flags);
  if (!has_host_memory(t->backend))
    return refuse("the tensor's memory is not on the CPU: use .cpu() first");
  const char* const format = buffer_format(t->dtype_id);
  if (!format) {
    PyErr_Format(PyExc_BufferError, "%s has no buffer format: use .float() first",
                 dtype_info(t->dtype_id).name);
    return -1;
  }
  if ((flags & PyBUF_WRITABLE) && (t->flags & RB_T_READONLY))
    return refuse("the tensor's memory is read-only");
  const bool contiguous = (t->flags & RB_T_CONTIGUOUS) != 0;
  if (!contiguous && (flags & PyBUF_STRIDES) != PyBUF_STRIDES) {
    return refuse("the tensor is not contiguous: use .contiguous() first");
  }
  const Ref ready(object_boundary([&] {
    make_ready(t, "buffer");
    return Py_NewRef(Py_None);
  }));
  if (!ready) return -1;
  expose_memory(t);
  const int64_t item = dtype_info(t->dtype_id).itemsize;
  auto* dims = static_cast<Py_ssize_t*>(PyMem_Malloc(sizeof(Py_ssize_t) * (2 * t->ndim + 1)));
  if (!dims) {
    PyErr_NoMemory();
    return -1;
  }
  for (int i = 0; i < t->ndim; ++i) {
    dims[i] = t->shape[i];
    dims[t->ndim + i] = t->strides[i] * item;
  }
  view->buf = t->data;
  view->obj = Py_NewRef(self);
  view->len = t->numel * item;
  view->readonly = (t->flags & RB_T_READONLY) != 0;
  view->itemsize = item;
  view->format = flags & PyBUF_FORMAT ? const_cast<char*>(format) : nullptr;
  view->ndim = t->ndim;
  view->shape = (flags & PyBUF_ND) == PyBUF_ND ? dims : nullptr;
  view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? dims + t->ndim : nullptr;
  view->suboffsets = nullptr;
  view->internal = dims;
  return 0;
}

void tensor_release_buffer(PyObject*, Py_buffer* view) { PyMem_Free(view->internal); }

}  // namespace rabbet::python
