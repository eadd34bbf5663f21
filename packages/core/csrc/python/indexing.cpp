#include "indexing.h"

#include <vector>

#include "arguments.h"
#include "core_ops.h"
#include "data.h"
#include "device/backends.h"
#include "errors.h"
#include "masks.h"
#include "overrides.h"
#include "tensor/dtype.h"
#include "tensor_type.h"

namespace rabbet::python {

namespace {

[[noreturn]] void index_error(const char* format, long long a, long long b) {
  PyErr_Format(PyExc_IndexError, format, a, b);
  throw PythonError{};
}

RbValue optional_int(PyObject* o) {
  if (o == Py_None) return value_none();
  int64_t i;
  if (!int_value(o, &i)) {
    if (is_tensor(o)) return optional_int(Ref(must(PyNumber_Index(o))).get());
    raise(PyExc_TypeError, "slice indices must be integers or None, not %s", Py_TYPE(o)->tp_name);
  }
  return value_int(i);
}

struct SliceBounds {
  RbValue start, stop, step;
};
SliceBounds slice_bounds(const PySliceObject* s) {
  SliceBounds b{optional_int(s->start), optional_int(s->stop), optional_int(s->step)};
  if (b.step.tag == RB_NONE) b.step = value_int(1);
  if (b.step.v.i <= 0)
    raise(PyExc_ValueError, "slice step must be positive, got %lld",
          static_cast<long long>(b.step.v.i));
  return b;
}

bool is_mask(PyObject* o) {
  return is_tensor(o) && (tensor_of(o)->dtype_id == RB_BOOL8 || tensor_of(o)->dtype_id == RB_U8);
}

// A plain integer index: an int, a NumPy integer or a 0-d integer tensor; bools are masks. A tensor
// of a transform has no one value; a composite is its layer's.
bool integer_index(PyObject* o, int64_t* out) {
  if (PyBool_Check(o)) return false;
  if (is_tensor(o)) {
    const Tensor* t = tensor_of(o);
    if (t->ndim != 0 || is_made_of_parts(t) || !is_integral(t->dtype_id) || is_mask(o))
      return false;
    return int_value(tensor_item(t).get(), out);
  }
  return int_value(o, out);
}

// The result of the view part of an index, and what is left for `index`: a tensor per dimension or
// null.
struct Split {
  TensorRef view;
  std::vector<TensorRef> indices;
  bool advanced = false;

  std::vector<RbTensor*> pointers() const {
    std::vector<RbTensor*> list;
    for (const TensorRef& t : indices) list.push_back(t.get());
    while (!list.empty() && !list.back()) list.pop_back();
    return list;
  }
};

// Whether a list or another sequence that is no tuple holds one index per dimension: PyTorch and
// NumPy once took a short sequence for a tuple if an item is no number.
bool is_read_as_tuple(PyObject* key) {
  if (is_tensor(key) || is_ndarray(key) || PyUnicode_Check(key) || PyBytes_Check(key) ||
      !PySequence_Check(key) || PyRange_Check(key))
    return false;
  const Py_ssize_t n = PySequence_Size(key);
  if (n < 0) PyErr_Clear();
  if (n < 0 || n >= 32) return false;
  for (Py_ssize_t i = 0; i < n; ++i) {
    const Ref item(must(PySequence_GetItem(key, i)));
    PyObject* o = item.get();
    if (is_tensor(o) || PySlice_Check(o) || o == Py_Ellipsis || o == Py_None ||
        (PySequence_Check(o) && !PyUnicode_Check(o) && !PyBytes_Check(o)))
      return true;
  }
  return false;
}

// A new reference: the key as a tuple if it is read as one, else itself.
Ref normalized_key(PyObject* key) {
  if (PyTuple_Check(key) || !is_read_as_tuple(key)) return Ref::borrow(key);
  warn(
      "Using a non-tuple sequence for multidimensional indexing is deprecated; use x[tuple(seq)] "
      "instead of x[seq].");
  return Ref(must(PySequence_Tuple(key)));
}

class Reader {
 public:
  explicit Reader(const Tensor* x) { split_.view = TensorRef::share(const_cast<Tensor*>(x)); }

  Split run(PyObject* given) {
    const Ref normalized = normalized_key(given);
    PyObject* key = normalized.get();
    if (!PyTuple_Check(key)) {
      count_dims(&key, 1);
      item(key);
    } else {
      PyObject** items = &PyTuple_GET_ITEM(key, 0);
      const Py_ssize_t n = PyTuple_GET_SIZE(key);
      count_dims(items, n);
      for (Py_ssize_t i = 0; i < n; ++i) item(items[i]);
    }
    return std::move(split_);
  }

 private:
  // How many dimensions the items use up, so that an ellipsis knows its length.
  void count_dims(PyObject** items, Py_ssize_t n) {
    int ellipses = 0;
    for (Py_ssize_t i = 0; i < n; ++i) {
      PyObject* o = items[i];
      if (o == Py_Ellipsis) {
        ++ellipses;
      } else if (is_mask(o)) {
        used_ += tensor_of(o)->ndim;
      } else if (o != Py_None && !PyBool_Check(o)) {
        used_ += 1;
      }
    }
    if (ellipses > 1) raise(PyExc_IndexError, "an index can have only one ellipsis ('...')");
    const int ndim = split_.view->ndim;
    if (used_ > ndim)
      index_error("too many indices: %lld for a tensor of %lld dimensions", used_, ndim);
    skipped_ = ndim - used_;
  }

  void keep_dim() {
    split_.indices.emplace_back();
    ++at_;
  }

  void item(PyObject* o) {
    int64_t i;
    if (o == Py_None) {
      split_.view = run_op(ops.unsqueeze, {value_tensor(split_.view.get()), value_int(at_)});
      keep_dim();
    } else if (o == Py_Ellipsis) {
      for (int d = 0; d < skipped_; ++d) keep_dim();
    } else if (PySlice_Check(o)) {
      slice(reinterpret_cast<PySliceObject*>(o));
    } else if (PyBool_Check(o)) {
      bool_item(o == Py_True);
    } else if (integer_index(o, &i)) {
      split_.view =
          run_op(ops.select, {value_tensor(split_.view.get()), value_int(at_), value_int(i)});
    } else {
      tensor_item_index(o);
    }
  }

  void slice(PySliceObject* s) {
    const SliceBounds b = slice_bounds(s);
    if (s->start != Py_None || s->stop != Py_None || b.step.v.i != 1) {
      split_.view = run_op(
          ops.slice, {value_tensor(split_.view.get()), value_int(at_), b.start, b.stop, b.step});
    }
    keep_dim();
  }

  // A bool is a mask without dimensions: it indexes a new dimension of size 1 with one place or
  // none, which broadcasts with the other indices.
  void bool_item(bool keep) {
    const int64_t n = keep ? 1 : 0;
    const Tensor* x = split_.view.get();
    new_dim(run_op(ops.zeros, {value_ints(&n, 1), value_dtype(RB_I64),
                               value_device(x->backend, x->device.id)}));
  }

  void new_dim(TensorRef places) {
    split_.view = run_op(ops.unsqueeze, {value_tensor(split_.view.get()), value_int(at_)});
    split_.indices.push_back(std::move(places));
    split_.advanced = true;
    ++at_;
  }

  void tensor_item_index(PyObject* o) {
    const bool is_text = PyUnicode_Check(o) || PyBytes_Check(o);
    if (!is_tensor(o) && (is_text || !PySequence_Check(o)) && !looks_like_data(o)) {
      raise(PyExc_IndexError,
            "an index must be an integer, slice, ellipsis, None, sequence, or tensor of integers "
            "or bools, not %s",
            Py_TYPE(o)->tp_name);
    }
    TensorRef index = as_tensor(o, -1, nullptr);
    if (index->numel == 0 && !is_tensor(o)) index = cast_to(index.get(), RB_I64);
    // Indices from the CPU go where they are used, as in PyTorch; between other devices nothing
    // moves by itself.
    if (index->backend == default_backend())
      index = move_to(index.get(), {split_.view->backend, split_.view->device.id});
    split_.advanced = true;
    if (is_mask_tensor(*index.get())) return mask(index.get());
    if (!is_integral(index->dtype_id)) {
      raise(PyExc_IndexError,
            "a tensor used as an index must have an integer or bool dtype, got %s",
            dtype_info(index->dtype_id).name);
    }
    split_.indices.push_back(cast_to(index.get(), RB_I64));
    ++at_;
  }

  void mask(RbTensor* m) {
    for (int d = 0; d < m->ndim; ++d) {
      if (m->shape[d] != split_.view->shape[at_ + d]) {
        PyErr_Format(
            PyExc_IndexError,
            "the mask has size %lld in dimension %d, but the indexed tensor has size %lld there",
            static_cast<long long>(m->shape[d]), d,
            static_cast<long long>(split_.view->shape[at_ + d]));
        throw PythonError{};
      }
    }
    if (m->ndim == 0) {
      const TensorRef column =
          run_op(ops.nonzero,
                 {value_tensor(run_op(ops.unsqueeze, {value_tensor(m), value_int(0)}).get())});
      return new_dim(run_op(ops.select, {value_tensor(column.get()), value_int(1), value_int(0)}));
    }
    TensorRef found = run_op(ops.nonzero, {value_tensor(m)});
    for (int d = 0; d < m->ndim; ++d) {
      split_.indices.push_back(
          run_op(ops.select, {value_tensor(found.get()), value_int(1), value_int(d)}));
      ++at_;
    }
  }

  Split split_;
  int at_ = 0;  // dimension of the view that the next item takes
  int used_ = 0, skipped_ = 0;
};

TensorRef advanced_index(const Split& s) {
  const std::vector<RbTensor*> list = s.pointers();
  return run_op(ops.index, {value_tensor(s.view.get()),
                            value_tensors(list.data(), static_cast<int>(list.size()))});
}

// The value of an assignment as tensor of the target's dtype and device.
TensorRef assigned(PyObject* value, const Tensor* target) {
  const DeviceSpec device{target->backend, target->device.id};
  if (is_tensor(value)) {
    const Tensor* v = tensor_of(value);
    const bool elsewhere = v->backend != target->backend && v->ndim == 0;
    return elsewhere ? move_to(v, device) : TensorRef::share(const_cast<Tensor*>(v));
  }
  return make_tensor(value, target->dtype_id, &device);
}

// NumPy allows leading dimensions of size 1 in the value.
TensorRef drop_leading_ones(TensorRef v, int ndim) {
  while (v->ndim > ndim && v->shape[0] == 1) {
    v = run_op(ops.select, {value_tensor(v.get()), value_int(0), value_int(0)});
  }
  return v;
}

void assign(PyObject* self, PyObject* key, PyObject* value) {
  const Tensor* x = tensor_of(self);
  Split s = Reader(x).run(key);
  if (!s.advanced) {
    Arena arena;
    RbValue number;
    if (!is_tensor(value) && number_value(value, &number, arena)) {
      return run_inplace(ops.fill, {value_tensor(s.view.get()), number});
    }
    TensorRef v = drop_leading_ones(assigned(value, x), s.view->ndim);
    return run_inplace(ops.copy, {value_tensor(s.view.get()), value_tensor(v.get())});
  }
  TensorRef v = cast_to(assigned(value, x).get(), x->dtype_id);
  const std::vector<RbTensor*> list = s.pointers();
  run_inplace(ops.index_put, {value_tensor(s.view.get()),
                              value_tensors(list.data(), static_cast<int>(list.size())),
                              value_tensor(v.get()), value_bool(false)});
}

}  // namespace

namespace {

// One view operator with all its arguments.
PyObject* view_of(const Op* op, const RbValue* values) {
  RbValue ret = value_none();
  const int32_t code = call(op, values, op->info.nargs, &ret, 1);
  return __builtin_expect(code == RB_OK, 1) ? wrap(ret.v.t) : raise_error(code);
}

PyObject* first_slice(RbTensor* x, const PySliceObject* s) {
  return object_boundary([&] {
    const SliceBounds b = slice_bounds(s);
    const RbValue values[] = {value_tensor(x), value_int(0), b.start, b.stop, b.step};
    return view_of(ops.slice, values);
  });
}

PyObject* subscript(const Tensor* x, PyObject* key) {
  return object_boundary([&]() -> PyObject* {
    Split s = Reader(x).run(key);
    if (s.advanced) return wrap(advanced_index(s).release_ownership());
    if (s.view.get() == x && x->ndim > 0) {  // x[...] and x[:] are new views
      s.view = run_op(ops.slice, {value_tensor(s.view.get()), value_int(0), value_none(),
                                  value_none(), value_int(1)});
    }
    return wrap(s.view.release_ownership());
  });
}

}  // namespace

PyObject* tensor_subscript(PyObject* self, PyObject* key) {
  if (may_be_overridden(self)) {
    PyObject* const args[] = {self, key};
    if (is_overridden(args, 2)) return call_override("__getitem__", {self, key});
  }
  Tensor* x = tensor_of(self);
  if (x->ndim > 0 && PyLong_CheckExact(key)) {
    const long long i = PyLong_AsLongLong(key);
    if (i == -1 && PyErr_Occurred()) return nullptr;
    const RbValue values[] = {value_tensor(x), value_int(0), value_int(i)};
    return view_of(ops.select, values);
  }
  if (x->ndim > 0 && PySlice_Check(key))
    return first_slice(x, reinterpret_cast<PySliceObject*>(key));
  if (is_overridden(&key, 1)) return call_override("__getitem__", {self, key});
  return subscript(x, key);
}

int tensor_assign(PyObject* self, PyObject* key, PyObject* value) {
  PyObject* const args[] = {self, key, value};
  if (value && is_overridden(args, 3)) {
    const Ref done(call_override("__setitem__", {self, key, value}));
    return done ? 0 : -1;
  }
  return boundary<int>(-1, [&] {
    if (!value) raise(PyExc_TypeError, "elements of a tensor cannot be deleted");
    assign(self, key, value);
    return 0;
  });
}

}  // namespace rabbet::python
