#include "dlpack.h"

#include <cstring>
#include <vector>

#include "data.h"
#include "device/backends.h"
#include "errors.h"
#include "layer/transforms.h"
#include "tensor/dtype.h"
#include "tensor_type.h"

namespace rabbet::python {

namespace {

// The structs of DLPack 1.x (https://dmlc.github.io/dlpack); an RbTensor begins with a DLTensor.
struct DLTensor {
  void* data;
  RbDevice device;
  int32_t ndim;
  RbDType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};
static_assert(sizeof(DLTensor) == 48);
struct DLManagedTensor {
  DLTensor tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor*);
};
struct DLManagedTensorVersioned {
  struct {
    uint32_t major, minor;
  } version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned*);
  uint64_t flags;
  DLTensor tensor;
};
constexpr uint64_t kReadOnly = 1, kIsCopied = 2;

int backend_for_dlpack(int type) {
  for (int id = 1; id < backend_count(); ++id) {
    if (backend_traits[id].dlpack_type == type) return id;
  }
  constexpr int kCpu = 1, kCuda = 2;
  if (type == kCpu) return default_backend();
  if (type == kCuda) return require_backend("cuda");
  raise(PyExc_BufferError, "from_dlpack: no loaded backend has DLPack device type %d", type);
}

template <class Managed>
struct Exported {
  Managed managed;
  Tensor* owner;
  std::vector<int64_t> dims;
};

template <class Managed>
void drop_exported(Managed* m) {
  auto* e = static_cast<Exported<Managed>*>(m->manager_ctx);
  release(e->owner);
  delete e;
}

template <class Managed>
void drop_unused_capsule(PyObject* capsule, const char* name) {
  if (!PyCapsule_IsValid(capsule, name)) return;  // consumed: its user calls the deleter
  auto* m = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  m->deleter(m);
}
void drop_plain(PyObject* c) { drop_unused_capsule<DLManagedTensor>(c, "dltensor"); }
void drop_versioned(PyObject* c) {
  drop_unused_capsule<DLManagedTensorVersioned>(c, "dltensor_versioned");
}

template <class Managed>
Managed* export_tensor(Tensor* t) {
  auto* e = new Exported<Managed>{};
  e->owner = t;
  retain(t);
  e->dims.assign(t->shape, t->shape + t->ndim);
  e->dims.insert(e->dims.end(), t->strides, t->strides + t->ndim);
  e->managed.tensor = {
      t->data, t->device, t->ndim, t->dtype, e->dims.data(), e->dims.data() + t->ndim, 0};
  e->managed.manager_ctx = e;
  e->managed.deleter = drop_exported<Managed>;
  return &e->managed;
}

template <class Managed>
void drop_imported(void* p) {
  auto* m = static_cast<Managed*>(p);
  if (m->deleter) m->deleter(m);
}

int dtype_of(const RbDType& d) {
  for (int id = 0; id < dtype_count(); ++id) {
    const RbDType& known = dtype_info(id).dlpack;
    if (known.code == d.code && known.bits == d.bits && d.lanes == 1) return id;
  }
  raise(PyExc_TypeError, "from_dlpack: no dtype for DLPack code %d with %d bits and %d lanes",
        int{d.code}, int{d.bits}, int{d.lanes});
}

template <class Managed>
TensorRef import_tensor(Managed* m, uint32_t flags) {
  const DLTensor& d = m->tensor;
  const int dtype = dtype_of(d.dtype);
  const int backend = backend_for_dlpack(d.device.type);
  if (d.ndim > kMaxDims) raise(PyExc_ValueError, "from_dlpack: more than %d dimensions", kMaxDims);
  return TensorRef(tensor_adopt(static_cast<char*>(d.data) + d.byte_offset, backend, d.device.id,
                                dtype, d.ndim, d.shape, d.strides, flags, m,
                                drop_imported<Managed>));
}

}  // namespace

PyObject* tensor_dlpack_device(PyObject* self, PyObject*) {
  const Tensor* t = tensor_of(self);
  return Py_BuildValue("ii", t->device.type, t->device.id);
}

PyObject* tensor_dlpack(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* names) {
  return object_boundary([&]() -> PyObject* {
    Tensor* t = tensor_of(self);
    bool versioned = false;
    for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names); ++i) {
      PyObject* value = args[nargs + i];
      const bool is_version =
          PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, i), "max_version") == 0;
      if (is_version && PyTuple_Check(value) && PyTuple_GET_SIZE(value) == 2) {
        versioned = PyLong_AsLong(PyTuple_GET_ITEM(value, 0)) >= 1;
      }
    }
    if (requires_grad(self)) {
      raise(PyExc_BufferError, "__dlpack__: the tensor requires grad; use .detach() first");
    }
    const TensorRef real = readable(t, "__dlpack__");
    const bool copied = (t->flags & RB_T_COMPOSITE) != 0;
    t = real.get();
    if (!t->data && t->numel) raise(PyExc_BufferError, "__dlpack__: a meta tensor has no data");
    if (!versioned && (t->flags & RB_T_READONLY)) {
      raise(PyExc_BufferError,
            "__dlpack__: the tensor is read-only, which an unversioned capsule cannot say");
    }
    if (!versioned)
      return must(PyCapsule_New(export_tensor<DLManagedTensor>(t), "dltensor", drop_plain));
    auto* m = export_tensor<DLManagedTensorVersioned>(t);
    m->version = {1, 0};
    m->flags = (t->flags & RB_T_READONLY ? kReadOnly : 0) | (copied ? kIsCopied : 0);
    return must(PyCapsule_New(m, "dltensor_versioned", drop_versioned));
  });
}

TensorRef from_dlpack(PyObject* object) {
  Ref capsule = Ref::borrow(object);
  if (!PyCapsule_CheckExact(object)) {
    Ref method(PyObject_GetAttrString(object, "__dlpack__"));
    if (!method) {
      raise(PyExc_TypeError, "from_dlpack: expected an object with __dlpack__, not %s",
            Py_TYPE(object)->tp_name);
    }
    Ref none(must(PyTuple_New(0)));
    Ref keywords(must(Py_BuildValue("{s:(ii)}", "max_version", 1, 0)));
    capsule = Ref(PyObject_Call(method.get(), none.get(), keywords.get()));
    if (!capsule && PyErr_ExceptionMatches(PyExc_TypeError)) {  // a producer from before DLPack 1.0
      PyErr_Clear();
      capsule = Ref(PyObject_CallNoArgs(method.get()));
    }
    if (!capsule) throw PythonError{};
  }
  if (PyCapsule_IsValid(capsule.get(), "dltensor_versioned")) {
    auto* m = static_cast<DLManagedTensorVersioned*>(
        PyCapsule_GetPointer(capsule.get(), "dltensor_versioned"));
    if (m->version.major != 1)
      raise(PyExc_BufferError, "from_dlpack: DLPack version %u is not supported", m->version.major);
    TensorRef t = import_tensor(m, m->flags & kReadOnly ? RB_T_READONLY : 0);
    PyCapsule_SetName(capsule.get(), "used_dltensor_versioned");
    return t;
  }
  if (PyCapsule_IsValid(capsule.get(), "dltensor")) {
    auto* m = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.get(), "dltensor"));
    TensorRef t = import_tensor(m, 0);
    PyCapsule_SetName(capsule.get(), "used_dltensor");
    return t;
  }
  raise(PyExc_ValueError, "from_dlpack: not a DLPack capsule, or one that was used already");
}

}  // namespace rabbet::python
