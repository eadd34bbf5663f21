#include "data.h"

#include <complex>
#include <cstring>
#include <vector>

#include "arguments.h"
#include "buffer.h"
#include "core_ops.h"
#include "device/backends.h"
#include "device/current.h"
#include "layer/transforms.h"
#include "tensor/dtype.h"
#include "tensor/float16.h"
#include "tensor/promotion.h"
#include "tensor_type.h"

namespace rabbet::python {

namespace {

// ---- one element

float bfloat_to_float(uint16_t h) {
  const uint32_t bits = static_cast<uint32_t>(h) << 16;
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}

template <class T>
T read(const void* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

PyObject* element_to_python(const void* p, int dtype) {
  switch (dtype) {
    case RB_BOOL8:
      return PyBool_FromLong(read<uint8_t>(p) != 0);
    case RB_U8:
      return PyLong_FromLong(read<uint8_t>(p));
    case RB_I8:
      return PyLong_FromLong(read<int8_t>(p));
    case RB_I16:
      return PyLong_FromLong(read<int16_t>(p));
    case RB_I32:
      return PyLong_FromLong(read<int32_t>(p));
    case RB_I64:
      return PyLong_FromLongLong(read<int64_t>(p));
    case RB_U16:
      return PyLong_FromLong(read<uint16_t>(p));
    case RB_U32:
      return PyLong_FromUnsignedLong(read<uint32_t>(p));
    case RB_U64:
      return PyLong_FromUnsignedLongLong(read<uint64_t>(p));
    case RB_F16:
      return PyFloat_FromDouble(half_to_float(read<uint16_t>(p)));
    case RB_BF16:
      return PyFloat_FromDouble(bfloat_to_float(read<uint16_t>(p)));
    case RB_F32:
      return PyFloat_FromDouble(read<float>(p));
    case RB_F64:
      return PyFloat_FromDouble(read<double>(p));
    case RB_C64: {
      const auto z = read<std::complex<float>>(p);
      return PyComplex_FromDoubles(z.real(), z.imag());
    }
    default: {
      const auto z = read<std::complex<double>>(p);
      return PyComplex_FromDoubles(z.real(), z.imag());
    }
  }
}

// ---- nested sequences: shape and category first, then the elements as one of four wide types

bool is_sequence(PyObject* o) { return PyList_Check(o) || PyTuple_Check(o); }

// An ndarray without dimensions, which stands for its one element.
bool is_array_element(PyObject* o) {
  if (!is_ndarray(o) || PyObject_Size(o) >= 0) return false;
  PyErr_Clear();  // such an array has no length
  return true;
}

// The dtype of a NumPy scalar or of an array without dimensions, as its buffer says.
int numpy_dtype(PyObject* o) {
  Py_buffer buffer;
  int dtype = -1;
  if (PyObject_GetBuffer(o, &buffer, PyBUF_STRIDES | PyBUF_FORMAT) == 0) {
    if (buffer.ndim == 0) dtype = dtype_of_format(buffer.format, buffer.itemsize);
    PyBuffer_Release(&buffer);
  } else {
    PyErr_Clear();
  }
  if (dtype < 0) {
    raise(PyExc_TypeError, "tensor data must be numbers of a dtype that rabbet has, got %s",
          Py_TYPE(o)->tp_name);
  }
  return dtype;
}

struct Nested {
  std::vector<int64_t> shape;
  std::vector<PyObject*> leaves;  // borrowed from `kept`
  // The items of the sequences: lists change where their elements' methods change them.
  std::vector<Ref> kept;
  bool any_tensor = false;

  void scan(PyObject* o, size_t depth) {
    if (is_leaf(o)) {
      if (depth != shape.size()) mixed(o, depth);
      leaves.push_back(o);
      return;
    }
    if (depth == kMaxDims) {
      raise(PyExc_ValueError, "tensor data has too many dimensions: a %s is nested deeper than %d",
            Py_TYPE(o)->tp_name, kMaxDims);
    }
    kept.emplace_back(must(PySequence_Tuple(o)));
    const Py_ssize_t n = PyTuple_GET_SIZE(kept.back().get());
    PyObject** items = &PyTuple_GET_ITEM(kept.back().get(), 0);
    if (depth == shape.size()) {
      if (!leaves.empty() || (seen_leaf_level_ && depth >= leaf_level_)) mixed(o, depth);
      shape.push_back(n);
    } else if (shape[depth] != n) {
      const long long expected = shape[depth];
      raise(PyExc_ValueError,
            "expected sequence of length %lld at dim %zu (got %zd): the data is ragged, %s has "
            "length %lld and %s has length %zd",
            expected, depth, n, first_place(depth).c_str(), expected, place(depth).c_str(), n);
    }
    for (Py_ssize_t i = 0; i < n; ++i) {
      at_[depth] = i;
      if (i == 0 && is_leaf(items[i]) && !seen_leaf_level_) {
        seen_leaf_level_ = true;
        leaf_level_ = depth + 1;
      }
      scan(items[i], depth + 1);
    }
  }

 private:
  static bool is_leaf(PyObject* o) {
    return PyLong_Check(o) || PyFloat_Check(o) || PyBool_Check(o) || PyComplex_Check(o) ||
           is_tensor(o) || is_numpy_scalar(o) || !PySequence_Check(o) || PyUnicode_Check(o) ||
           PyBytes_Check(o) || is_array_element(o);
  }
  // The element that is being read, as Python's indices: "[1][0]".
  std::string place(size_t depth) const {
    std::string text;
    for (size_t d = 0; d < depth; ++d) text += "[" + std::to_string(at_[d]) + "]";
    return text;
  }
  // The first element of that depth, by which the others are judged.
  static std::string first_place(size_t depth) {
    std::string text;
    for (size_t d = 0; d < depth; ++d) text += "[0]";
    return text;
  }
  [[noreturn]] static void refuse_mixture(PyObject* o, size_t depth, const std::string& where);
  [[noreturn]] void mixed(PyObject* o, size_t depth) const {
    refuse_mixture(o, depth, place(depth));
  }
  Py_ssize_t at_[kMaxDims] = {};
  bool seen_leaf_level_ = false;
  size_t leaf_level_ = 0;
};

// Python's numbers have the default dtype of their kind; tensors and NumPy's numbers keep their
// own.
int element_dtype(PyObject* o) {
  if (PyBool_Check(o)) return RB_BOOL8;
  if (PyFloat_CheckExact(o)) return default_dtype();
  if (PyLong_Check(o)) return RB_I64;
  if (is_tensor(o)) return tensor_of(o)->dtype_id;
  if (is_numpy_scalar(o) || is_ndarray(o)) return numpy_dtype(o);
  Arena arena;
  RbValue v;
  if (number_value(o, &v, arena)) {
    return v.tag == RB_BOOL                      ? +RB_BOOL8
           : v.tag == RB_INT || v.tag == RB_UINT ? +RB_I64
           : v.tag == RB_FLOAT                   ? default_dtype()
                                                 : to_complex(default_dtype());
  }
  raise(PyExc_TypeError, "tensor data must be numbers or nested sequences of numbers, got %s",
        Py_TYPE(o)->tp_name);
}

void Nested::refuse_mixture(PyObject* o, size_t depth, const std::string& where) {
  const bool number = is_leaf(o);
  if (number) element_dtype(o);  // raises for what is neither
  raise(PyExc_TypeError, "tensor data is ragged: %s is a %s, but %s is a %s",
        first_place(depth).c_str(), number ? "sequence" : "number", where.c_str(),
        number ? "number" : "sequence");
}

// The wide dtype in which the elements are read before the cast.
int wide_dtype(int dtype) {
  if (is_complex(dtype)) return RB_C128;
  if (is_floating(dtype)) return RB_F64;
  return dtype == RB_BOOL8 ? RB_BOOL8 : dtype == RB_U64 ? RB_U64 : RB_I64;
}

// A number as an element of an integer dtype, in 64 bits.
int64_t integer_element(PyObject* o, int dtype) {
  RbValue v;
  if (PyFloat_Check(o)) {
    v = value_float(PyFloat_AS_DOUBLE(o));
  } else {
    Ref integer(must(PyNumber_Index(o)));
    Arena arena;
    int overflow = 0;
    PyLong_AsLongLongAndOverflow(integer.get(), &overflow);
    if (overflow < 0 || (overflow && _PyLong_NumBits(integer.get()) > 64))
      fail(RB_E_ARG, "tensor: Overflow when unpacking long long: the dtype is %s",
           dtype_info(dtype).name);
    if (!number_value(integer.get(), &v, arena)) throw PythonError{};
  }
  check_number_fits("tensor", "data", v, dtype);
  if (v.tag != RB_FLOAT) return v.v.i;
  return v.v.f < 0x1p63 ? static_cast<int64_t>(v.v.f)
                        : static_cast<int64_t>(static_cast<uint64_t>(v.v.f));
}

// An element of `dtype`, as it is in the dtype `wide`.
void write_leaf(PyObject* given, int dtype, int wide, char* to) {
  Ref held;
  PyObject* o = given;
  if (is_tensor(o)) {
    if (tensor_of(o)->numel != 1) {
      raise(PyExc_ValueError,
            "only one-element tensors can be elements of tensor data; use stack() to join tensors");
    }
    held = tensor_item(tensor_of(o));
    o = held.get();
  } else if (is_ndarray(o)) {
    held = Ref(must(PyObject_CallMethod(o, "item", nullptr)));
    o = held.get();
  }
  if (wide == RB_C128) {
    const Py_complex z = PyComplex_AsCComplex(o);
    if (z.real == -1.0 && PyErr_Occurred()) throw PythonError{};
    const double parts[2] = {z.real, z.imag};
    std::memcpy(to, parts, 16);
  } else if (wide == RB_F64) {
    const double f = PyFloat_AsDouble(o);
    if (f == -1.0 && PyErr_Occurred()) throw PythonError{};
    std::memcpy(to, &f, 8);
  } else if (wide == RB_BOOL8) {
    const int truth = PyObject_IsTrue(o);
    if (truth < 0) throw PythonError{};
    *to = static_cast<char>(truth);
  } else {
    const int64_t i = integer_element(o, dtype);
    std::memcpy(to, &i, 8);
  }
}

TensorRef from_sequence(PyObject* data, int dtype, const DeviceSpec& device) {
  Nested nested;
  nested.scan(data, 0);
  if (dtype < 0) {
    dtype = nested.leaves.empty() ? default_dtype() : element_dtype(nested.leaves[0]);
    for (PyObject* leaf : nested.leaves) dtype = promote(dtype, element_dtype(leaf));
  }
  const int wide = wide_dtype(dtype);
  const int cpu = default_backend();
  TensorRef t(tensor_new(device.backend == kMeta ? kMeta : cpu, 0, wide,
                         static_cast<int>(nested.shape.size()), nested.shape.data(), nullptr));
  if (device.backend != kMeta) {
    char* to = static_cast<char*>(t->data);
    const int item = dtype_info(wide).itemsize;
    for (PyObject* leaf : nested.leaves) {
      write_leaf(leaf, dtype, wide, to);
      to += item;
    }
  }
  return move_to(cast_to(t.get(), dtype).get(), device);
}

DeviceSpec default_device() { return {default_backend(), 0}; }

// The object's own way to become an array, for what has no buffer (NumPy subclasses, array
// interfaces).
bool has_buffer(PyObject* o) {
  return PyObject_CheckBuffer(o) && !PyBytes_Check(o) && !PyByteArray_Check(o);
}

struct Exporter {
  Py_buffer buffer;
};
void drop_exporter(void* p) {
  auto* e = static_cast<Exporter*>(p);
  if (interpreter_alive()) {
    WithGil gil;
    PyBuffer_Release(&e->buffer);
  }
  delete e;
}

}  // namespace

namespace {
// In host memory, and of a dtype that element_to_python reads.
TensorRef to_numbers(const RbTensor* t) {
  const TensorRef host = to_host(t);
  if (dtype_info(t->dtype_id).category == kOpaque)
    raise(PyExc_TypeError, "elements of %s have no form in Python: it is opaque",
          dtype_info(t->dtype_id).name);
  return is_added(t->dtype_id) ? cast_to(host.get(), dtype_info(t->dtype_id).compute) : host;
}
}  // namespace

Ref tensor_item(const RbTensor* t, const char* what) {
  if (t->numel != 1) {
    raise(PyExc_RuntimeError, "%s: a tensor with %lld elements has no one value", what,
          static_cast<long long>(t->numel));
  }
  if (t->backend == kMeta) raise(PyExc_RuntimeError, "%s: a meta tensor has no data", what);
  const TensorRef host = to_numbers(readable(t, what).get());
  return Ref(must(element_to_python(host->data, host->dtype_id)));
}

namespace {
PyObject* nested_list(const RbTensor* t, int dim, const char* at) {
  const int64_t item = dtype_info(t->dtype_id).itemsize;
  if (dim == t->ndim) return must(element_to_python(at, t->dtype_id));
  Ref list(must(PyList_New(t->shape[dim])));
  for (int64_t i = 0; i < t->shape[dim]; ++i) {
    PyList_SET_ITEM(list.get(), i, nested_list(t, dim + 1, at + i * t->strides[dim] * item));
  }
  return list.release();
}
}  // namespace

Ref tensor_to_list(const RbTensor* t) {
  if (t->backend == kMeta) raise(PyExc_RuntimeError, "tolist(): a meta tensor has no data");
  const TensorRef host = to_numbers(readable(t, "tolist()").get());
  return Ref(must(nested_list(host.get(), 0, static_cast<const char*>(host->data))));
}

TensorRef to_host(const RbTensor* t) {
  if (has_host_memory(t->backend)) return TensorRef::share(const_cast<RbTensor*>(t));
  return move_to(t, default_device());
}

TensorRef cast_to(const RbTensor* t, int dtype) {
  if (t->dtype_id == dtype) return TensorRef::share(const_cast<RbTensor*>(t));
  return run_op(ops.cast, {value_tensor(const_cast<RbTensor*>(t)), value_dtype(dtype)});
}

TensorRef in_format(const RbTensor* t, MemoryFormat format, const char* what) {
  check_memory_format(format, t->ndim, t->shape, what);
  auto* given = const_cast<RbTensor*>(t);
  if (format == MemoryFormat::kPreserve || is_contiguous_in(format, t))
    return TensorRef::share(given);
  return run_op(ops.contiguous_clone, {value_tensor(given), value_int(static_cast<int>(format))});
}

TensorRef move_to(const RbTensor* t, const DeviceSpec& device) {
  const int index = index_or_current(device.backend, device.index);
  if (t->backend == device.backend && t->device.id == index)
    return TensorRef::share(const_cast<RbTensor*>(t));
  return run_op(ops.to_device,
                {value_tensor(const_cast<RbTensor*>(t)), value_device(device.backend, index)});
}

bool looks_like_data(PyObject* o) {
  return is_sequence(o) || is_ndarray(o) || (has_buffer(o) && !is_tensor(o)) ||
         PyObject_HasAttrString(o, "__array__") ||
         PyObject_HasAttrString(o, "__cuda_array_interface__");
}

TensorRef from_buffer(PyObject* object, int dtype, const std::vector<int64_t>* shape,
                      int64_t offset, int64_t count) {
  auto exporter = std::make_unique<Exporter>();
  Py_buffer& b = exporter->buffer;
  const int flags = PyBUF_STRIDES | PyBUF_FORMAT;
  if (PyObject_GetBuffer(object, &b, flags | PyBUF_WRITABLE) < 0) {
    PyErr_Clear();
    if (PyObject_GetBuffer(object, &b, flags) < 0) throw PythonError{};
  }
  auto refuse = [&](PyObject* type, const char* format, auto... args) {
    PyErr_Format(type, format, args...);
    PyBuffer_Release(&b);
    throw PythonError{};
  };
  std::vector<int64_t> sizes, strides;
  char* data = static_cast<char*>(b.buf);
  if (dtype < 0) {
    dtype = dtype_of_format(b.format, b.itemsize);
    if (dtype < 0) {
      refuse(PyExc_TypeError, "cannot make a tensor of data with the format '%s'%s",
             b.format ? b.format : "B",
             b.format && (*b.format == '>' || *b.format == '!')
                 ? ": its byte order is not the machine's"
                 : "");
    }
    for (int i = 0; i < b.ndim; ++i) {
      if (b.strides && b.strides[i] % b.itemsize) {
        refuse(PyExc_ValueError, "a stride of %zd bytes is no multiple of the element size %zd",
               b.strides[i], b.itemsize);
      }
      sizes.push_back(b.shape[i]);
      strides.push_back(b.strides ? b.strides[i] / b.itemsize : 0);
    }
  } else {
    const int64_t item = dtype_info(dtype).itemsize;
    if (!PyBuffer_IsContiguous(&b, 'C'))
      refuse(PyExc_ValueError, "from_buffer: the buffer must be contiguous");
    const int64_t room = b.len - offset;
    if (offset < 0 || room < 0) {
      refuse(PyExc_ValueError, "from_buffer: offset %lld is outside of the buffer of %lld bytes",
             static_cast<long long>(offset), static_cast<long long>(b.len));
    }
    if (shape) {
      sizes = *shape;
    } else {
      sizes.push_back(count < 0 ? room / item : count);
    }
    int64_t n = 0;
    try {
      n = count_elements(static_cast<int>(sizes.size()), sizes.data());
    } catch (...) {
      PyBuffer_Release(&b);
      throw;
    }
    if (n > room / item) {
      refuse(
          PyExc_ValueError,
          "from_buffer: %lld elements of %s need %lld bytes, the buffer has %lld after offset %lld",
          static_cast<long long>(n), dtype_info(dtype).name, static_cast<long long>(n * item),
          static_cast<long long>(room), static_cast<long long>(offset));
    }
    data += offset;
  }
  if (reinterpret_cast<uintptr_t>(data) % std::min<int64_t>(dtype_info(dtype).itemsize, 8)) {
    refuse(PyExc_ValueError, "from_buffer: the memory is not aligned for %s",
           dtype_info(dtype).name);
  }
  try {
    const bool use_strides = !strides.empty();
    TensorRef t(tensor_adopt(data, default_backend(), 0, dtype, static_cast<int>(sizes.size()),
                             sizes.data(), use_strides ? strides.data() : nullptr,
                             b.readonly ? RB_T_READONLY : 0, exporter.get(), drop_exporter));
    exporter.release();
    return t;
  } catch (...) {
    PyBuffer_Release(&b);
    throw;
  }
}

namespace {
bool has_device_memory(PyObject* o) {
  return !is_sequence(o) && !is_number(o) && PyObject_HasAttrString(o, "__cuda_array_interface__");
}
Ref from_device_memory(PyObject* o) {
  const Ref module(must(PyImport_ImportModule("rabbet._array_interface")));
  Ref made(must(PyObject_CallMethod(module.get(), "from_object", "O", o)));
  if (!is_tensor(made.get())) raise(PyExc_TypeError, "from_object: expected a tensor");
  return made;
}
}  // namespace

TensorRef make_tensor(PyObject* data, int dtype, const DeviceSpec* device) {
  if (is_tensor(data)) {
    const TensorRef copy = run_op(
        ops.clone, {value_tensor(run_op(ops.detach, {value_tensor(tensor_of(data))}).get())});
    const TensorRef cast = cast_to(copy.get(), dtype < 0 ? +copy->dtype_id : dtype);
    return device ? move_to(cast.get(), *device) : cast;
  }
  const DeviceSpec where = device ? *device : default_device();
  if (has_buffer(data) && !is_numpy_scalar(data)) {
    const TensorRef view = from_buffer(data, -1, nullptr, 0, -1);
    const TensorRef copy = run_op(ops.clone, {value_tensor(view.get())});
    return move_to(cast_to(copy.get(), dtype < 0 ? +view->dtype_id : dtype).get(), where);
  }
  if (has_device_memory(data)) return make_tensor(from_device_memory(data).get(), dtype, device);
  if (!is_sequence(data) && !is_number(data) && PyObject_HasAttrString(data, "__array__")) {
    Ref array(must(PyObject_CallMethod(data, "__array__", nullptr)));
    return make_tensor(array.get(), dtype, device);
  }
  return from_sequence(data, dtype, where);
}

TensorRef as_tensor(PyObject* data, int dtype, const DeviceSpec* device) {
  if (is_tensor(data)) {
    const TensorRef cast = cast_to(tensor_of(data), dtype < 0 ? +tensor_of(data)->dtype_id : dtype);
    return device ? move_to(cast.get(), *device) : cast;
  }
  if (has_buffer(data) && !is_numpy_scalar(data)) {
    const TensorRef view = from_buffer(data, -1, nullptr, 0, -1);
    const TensorRef cast = cast_to(view.get(), dtype < 0 ? +view->dtype_id : dtype);
    return device ? move_to(cast.get(), *device) : cast;
  }
  if (has_device_memory(data)) return as_tensor(from_device_memory(data).get(), dtype, device);
  return make_tensor(data, dtype, device);
}

TensorRef legacy_tensor(PyObject* args, PyObject* device) {
  const DeviceSpec where = device ? parse_device(device) : default_device();
  const Py_ssize_t n = PyTuple_GET_SIZE(args);
  std::vector<int64_t> sizes;
  if (n == 0) {
    sizes.push_back(0);
  } else {
    for (Py_ssize_t i = 0; i < n; ++i) {
      int64_t size;
      if (!PyLong_Check(PyTuple_GET_ITEM(args, i)) || !int_value(PyTuple_GET_ITEM(args, i), &size))
        break;
      sizes.push_back(size);
    }
    if (static_cast<Py_ssize_t>(sizes.size()) != n) {
      if (n != 1) raise(PyExc_TypeError, "Tensor(): expected sizes, or one sequence of data");
      PyObject* data = PyTuple_GET_ITEM(args, 0);
      if (is_tensor(data)) return run_op(ops.detach, {value_tensor(tensor_of(data))});
      return make_tensor(data, default_dtype(), &where);
    }
  }
  return TensorRef(tensor_new(where.backend, index_or_current(where.backend, where.index),
                              default_dtype(), static_cast<int>(sizes.size()), sizes.data(),
                              nullptr));
}

}  // namespace rabbet::python
