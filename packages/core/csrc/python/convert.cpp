#include "convert.h"

#include <cstring>

#include "data.h"
#include "device/backends.h"
#include "tensor_type.h"
#include "value_types.h"

namespace rabbet::python {

namespace {

template <class Make>
PyObject* make_list(uint32_t n, Make&& make) {
  Ref list(PyList_New(n));
  if (!list) return nullptr;
  for (uint32_t i = 0; i < n; ++i) {
    PyObject* item = make(i);
    if (!item) return nullptr;
    PyList_SET_ITEM(list.get(), i, item);
  }
  return list.release();
}

PyObject* meta_to_python(const RbMeta* m) {  // shape and dtype of a tensor that was not kept
  Ref size(make_size(m->ndim, m->shape));
  return size ? PyTuple_Pack(2, size.get(), dtype_object(m->dtype_id)) : nullptr;
}

}  // namespace

PyObject* value_to_python(const RbValue* v) {
  switch (v->tag) {
    case RB_NONE:
    case RB_ZERO:
      Py_RETURN_NONE;
    case RB_BOOL:
      return PyBool_FromLong(v->v.i != 0);
    case RB_INT:
      return PyLong_FromLongLong(v->v.i);
    case RB_FLOAT:
      return PyFloat_FromDouble(v->v.f);
    case RB_COMPLEX:
      return PyComplex_FromDoubles(v->v.fs[0], v->v.fs[1]);
    case RB_DTYPE:
      return Py_XNewRef(dtype_object(static_cast<int>(v->v.i)));
    case RB_DEVICE:
      return make_device(v->v.dev.backend, v->v.dev.index);
    case RB_STR:
      return PyUnicode_DecodeUTF8(v->v.s, v->len, "replace");
    case RB_TENSOR:
      return wrap_borrowed(v->v.t);
    case RB_TENSORS:
      return make_list(v->len, [&](uint32_t i) {
        return v->v.ts[i] ? wrap_borrowed(v->v.ts[i]) : Py_NewRef(Py_None);
      });
    case RB_INTS:
      return make_list(v->len, [&](uint32_t i) { return PyLong_FromLongLong(v->v.is[i]); });
    case RB_FLOATS:
      return make_list(v->len, [&](uint32_t i) { return PyFloat_FromDouble(v->v.fs[i]); });
    case RB_UINT:
      return PyLong_FromUnsignedLongLong(v->v.u);
    case RB_BOOLS:
      return make_list(v->len, [&](uint32_t i) { return PyBool_FromLong(v->v.bs[i]); });
    case RB_STRS:
      return make_list(v->len, [&](uint32_t i) { return PyUnicode_FromString(v->v.ss[i]); });
    case RB_SCALARS:
      return make_list(v->len, [&](uint32_t i) { return value_to_python(&v->v.vs[i]); });
    case RB_LAYOUT:
      return Py_NewRef(strided_layout);
    case RB_OBJECT:
      return Py_NewRef(static_cast<PyObject*>(v->v.p));
    case RB_GENERATOR:
      return generator_object(v->v.gen);
    case RB_META:
      return meta_to_python(v->v.meta);
    default:
      PyErr_Format(PyExc_TypeError, "a value with tag %u has no Python form",
                   static_cast<unsigned>(v->tag));
      return nullptr;
  }
}

RbValue value_from_python(PyObject* o, Arena& arena) {
  RbValue v = value_none();
  if (o == Py_None) return v;
  if (is_tensor(o)) return value_tensor(tensor_of(o));
  if (is_dtype(o)) return value_dtype(dtype_of(o));
  if (is_device(o)) {
    const DeviceSpec device = parse_device(o);
    return value_device(device.backend, device.index);
  }
  if (PyUnicode_Check(o)) {
    Py_ssize_t length;
    v.v.s = PyUnicode_AsUTF8AndSize(o, &length);
    if (!v.v.s) throw PythonError{};
    v.tag = RB_STR;
    v.len = static_cast<uint32_t>(length);
    arena.hold(o);
    return v;
  }
  if (PyTuple_Check(o) || PyList_Check(o)) {
    Ref items(must(PySequence_Tuple(o)));
    arena.hold(items.get());
    const Py_ssize_t n = PyTuple_GET_SIZE(items.get());
    if (n > 0 && is_tensor(PyTuple_GET_ITEM(items.get(), 0))) {
      auto** ts = arena.take<RbTensor*>(static_cast<size_t>(n));
      for (Py_ssize_t i = 0; i < n; ++i) {
        PyObject* item = PyTuple_GET_ITEM(items.get(), i);
        if (!is_tensor(item))
          raise(PyExc_TypeError, "a list of tensors holds a %s", Py_TYPE(item)->tp_name);
        ts[i] = tensor_of(item);
      }
      return value_tensors(ts, static_cast<int>(n));
    }
    auto* is = arena.take<int64_t>(static_cast<size_t>(n) + 1);
    for (Py_ssize_t i = 0; i < n; ++i) {
      if (!int_value(PyTuple_GET_ITEM(items.get(), i), &is[i])) {
        raise(PyExc_TypeError, "a list argument must hold tensors or ints, not %s",
              Py_TYPE(PyTuple_GET_ITEM(items.get(), i))->tp_name);
      }
    }
    return value_ints(is, static_cast<int>(n));
  }
  if (!number_value(o, &v, arena))
    raise(PyExc_TypeError, "no operator argument can be a %s", Py_TYPE(o)->tp_name);
  return v;
}

bool same_constant(const RbValue& a, const RbValue& b) {
  if (a.tag != b.tag) return false;
  switch (a.tag) {
    case RB_NONE:
      return true;
    case RB_BOOL:
    case RB_INT:
    case RB_DTYPE:
      return a.v.i == b.v.i;
    case RB_FLOAT:
      return a.v.f == b.v.f;
    case RB_STR:
      return a.len == b.len && !std::memcmp(a.v.s, b.v.s, a.len);
    case RB_INTS:
      return a.len == b.len && !std::memcmp(a.v.is, b.v.is, a.len * sizeof(int64_t));
    default:
      return false;
  }
}

}  // namespace rabbet::python
