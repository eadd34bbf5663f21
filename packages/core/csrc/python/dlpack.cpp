#include "dlpack.h"

#include <cstring>
#include <vector>

#include "core_ops.h"
#include "data.h"
#include "device/backends.h"
#include "device/streams.h"
#include "errors.h"
#include "layer/transforms.h"
#include "tensor/dtype.h"
#include "tensor_type.h"
#include "value_types.h"

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
constexpr int kCpu = 1, kCuda = 2, kCudaHost = 3, kCudaManaged = 13;  // DLDeviceType

int backend_for_dlpack(int type) {
  for (int id = 1; id < backend_count(); ++id) {
    if (backend_traits[id].dlpack_type == type) return id;
  }
  if (type == kCpu || type == kCudaHost) return default_backend();
  if (type == kCuda || type == kCudaManaged) return require_backend("cuda");
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
  const int index = d.device.type == kCudaHost ? 0 : d.device.id;
  if (d.ndim > kMaxDims) raise(PyExc_ValueError, "from_dlpack: more than %d dimensions", kMaxDims);
  return TensorRef(tensor_adopt(static_cast<char*>(d.data) + d.byte_offset, backend, index, dtype,
                                d.ndim, d.shape, d.strides, flags, m, drop_imported<Managed>));
}

}  // namespace

PyObject* tensor_dlpack_device(PyObject* self, PyObject*) {
  const Tensor* t = tensor_of(self);
  return Py_BuildValue("ii", t->device.type, t->device.id);
}

namespace {

// The keywords of the array API's __dlpack__.
struct DlpackOptions {
  bool versioned = false, may_copy = true, must_copy = false;
  DeviceSpec device{-1, 0};  // backend -1: where the tensor is
  enum class Order { kNone, kDefault, kStream } order = Order::kNone;
  int64_t stream = 0;  // the consumer's, as the array API numbers it

  void read_stream(PyObject* value) {
    order = Order::kDefault;
    if (value == Py_None) return;
    if (!PyLong_Check(value) || PyBool_Check(value))
      raise(PyExc_TypeError, "stream must be ``int`` or ``none``");
    const auto handle = PyLong_AsUnsignedLongLong(value);
    if (PyErr_Occurred()) {  // a negative number
      PyErr_Clear();
      if (PyLong_AsLong(value) != -1) {
        PyErr_Clear();
        raise(PyExc_BufferError, "__dlpack__: there is no stream %R", value);
      }
      order = Order::kNone;
      return;
    }
    order = Order::kStream;
    stream = static_cast<int64_t>(handle);
  }

  /// Make the consumer's stream wait for the work on the tensor so far.
  void keep_order(const RbTensor* t) const {
    if (order == Order::kNone) return;
    if (has_host_memory(t->backend)) {
      if (order == Order::kStream)
        raise(PyExc_AssertionError, "__dlpack__: stream should be None on %s",
              backend_name(t->backend));
      return;
    }
    int64_t consumer = order == Order::kStream ? stream : 0;
    if (t->device.type == kCuda && order == Order::kStream) {
      if (stream == 0) raise(PyExc_BufferError, "unsupported stream on CUDA: 0");
      if (stream == 2) raise(PyExc_BufferError, "per-thread default stream is not supported.");
      if (stream == 1) consumer = 0;  // the legacy default stream
    }
    if (!backend_traits[t->backend].streams) {
      if (consumer)
        raise(PyExc_BufferError, "__dlpack__: the devices of '%s' have no streams",
              backend_name(t->backend));
      return;
    }
    stream_wait(t->backend, t->device.id, reinterpret_cast<void*>(consumer),
                current_stream(thread_state(), t->backend, t->device.id));
  }

  void read(const char* name, PyObject* value) {
    if (!std::strcmp(name, "max_version")) {
      versioned = PyTuple_Check(value) && PyTuple_GET_SIZE(value) == 2 &&
                  PyLong_AsLong(PyTuple_GET_ITEM(value, 0)) >= 1;
      if (PyErr_Occurred()) throw PythonError{};
    } else if (!std::strcmp(name, "copy")) {
      if (value != Py_None && !PyBool_Check(value))
        raise(PyExc_TypeError, "__dlpack__: copy must be bool or None, not %s",
              Py_TYPE(value)->tp_name);
      must_copy = value == Py_True;
      may_copy = value != Py_False;
    } else if (!std::strcmp(name, "dl_device")) {
      if (value == Py_None) return;
      int type, index;
      if (!PyTuple_Check(value))
        raise(PyExc_TypeError, "__dlpack__: dl_device must be (type, index), not %s",
              Py_TYPE(value)->tp_name);
      if (!PyArg_ParseTuple(value, "ii;__dlpack__: dl_device must be (type, index)", &type, &index))
        throw PythonError{};
      device = {backend_for_dlpack(type), index};
    } else if (!std::strcmp(name, "stream")) {
      read_stream(value);
    } else {
      raise(PyExc_TypeError, "__dlpack__() got an unexpected keyword argument '%s'", name);
    }
  }
};

}  // namespace

PyObject* tensor_dlpack(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* names) {
  return object_boundary([&]() -> PyObject* {
    Tensor* t = tensor_of(self);
    if (nargs) raise(PyExc_TypeError, "__dlpack__() takes keyword arguments only");
    DlpackOptions options;
    for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names); ++i) {
      const char* name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(names, i));
      if (!name) throw PythonError{};
      options.read(name, args[i]);
    }
    const bool versioned = options.versioned;
    if (requires_grad(self)) {
      raise(PyExc_BufferError, "__dlpack__: the tensor requires grad; use .detach() first");
    }
    TensorRef real = readable(t, "__dlpack__");
    bool copied = (t->flags & RB_T_COMPOSITE) != 0;
    if (!real->data && real->numel)
      raise(PyExc_BufferError, "__dlpack__: a meta tensor has no data");
    const DeviceSpec& to = options.device;
    const bool moves =
        to.backend >= 0 && (to.backend != real->backend || to.index != real->device.id);
    if ((moves || copied) && !options.may_copy)
      raise(PyExc_BufferError, "__dlpack__: copy=False, but the tensor's data must be copied");
    if (moves) real = move_to(real.get(), to);
    if (options.must_copy && !moves && !copied)
      real = run_op(ops.clone, {value_tensor(real.get())});
    copied = copied || moves || options.must_copy;
    t = real.get();
    expose_memory(t);
    options.keep_order(t);
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

namespace {
// What the producer is told of this thread's stream of its device, for which it makes the work on
// the data wait; null: nothing.
Ref consumer_stream(PyObject* object) {
  if (!PyObject_HasAttrString(object, "__dlpack_device__")) return Ref();
  const Ref place(must(PyObject_CallMethod(object, "__dlpack_device__", nullptr)));
  int type, index;
  const Ref kind(PySequence_GetItem(place.get(), 0)), number(PySequence_GetItem(place.get(), 1));
  if (!kind || !number) throw PythonError{};
  const Ref plain(must(PyNumber_Long(kind.get())));  // an enum of the producer's
  type = static_cast<int>(PyLong_AsLong(plain.get()));
  index = static_cast<int>(PyLong_AsLong(number.get()));
  if (PyErr_Occurred()) throw PythonError{};
  const int backend = backend_for_dlpack(type);
  if (!backend_traits[backend].streams) return Ref();
  check_device(backend, index);
  const auto handle = reinterpret_cast<uintptr_t>(current_stream(thread_state(), backend, index));
  constexpr uintptr_t kLegacyDefault = 1;
  return Ref(must(PyLong_FromSize_t(handle || type != kCuda ? handle : kLegacyDefault)));
}

TensorRef import_object(PyObject* object) {
  Ref capsule = Ref::borrow(object);
  if (!PyCapsule_CheckExact(object)) {
    Ref method(PyObject_GetAttrString(object, "__dlpack__"));
    if (!method) {
      raise(PyExc_TypeError, "from_dlpack: expected an object with __dlpack__, not %s",
            Py_TYPE(object)->tp_name);
    }
    Ref none(must(PyTuple_New(0)));
    Ref keywords(must(Py_BuildValue("{s:(ii)}", "max_version", 1, 0)));
    const Ref stream = consumer_stream(object);
    if (stream && PyDict_SetItemString(keywords.get(), "stream", stream.get()) < 0)
      throw PythonError{};
    capsule = Ref(PyObject_Call(method.get(), none.get(), keywords.get()));
    if (!capsule && PyErr_ExceptionMatches(PyExc_TypeError)) {  // a producer from before DLPack 1.0
      PyErr_Clear();
      Ref older(must(PyDict_New()));
      if (stream && PyDict_SetItemString(older.get(), "stream", stream.get()) < 0)
        throw PythonError{};
      capsule = Ref(PyObject_Call(method.get(), none.get(), older.get()));
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
}  // namespace

TensorRef from_dlpack(PyObject* object, PyObject* device, PyObject* copy) {
  if (copy != Py_None && !PyBool_Check(copy))
    raise(PyExc_TypeError, "from_dlpack: copy must be bool or None, not %s",
          Py_TYPE(copy)->tp_name);
  const TensorRef shared = import_object(object);
  const TensorRef moved = device == Py_None ? shared : move_to(shared.get(), parse_device(device));
  const bool copied = moved.get() != shared.get();
  if (copied && copy == Py_False)
    raise(PyExc_BufferError, "from_dlpack: copy=False, but the data are on another device");
  return copy == Py_True && !copied ? run_op(ops.clone, {value_tensor(moved.get())}) : moved;
}

}  // namespace rabbet::python
