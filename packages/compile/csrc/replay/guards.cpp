#include "replay/guards.h"

#include <cstring>

namespace replay {

namespace {

uint64_t version_of(PyObject* dict) {
#if PY_VERSION_HEX < 0x030C0000
  return reinterpret_cast<PyDictObject*>(dict)->ma_version_tag;
#else
  (void)dict;
  return 0;  // not there: entries are compared each time
#endif
}

// The number that a class gets whenever an attribute of it or of its bases has changed; 0: none.
uint64_t version_of_class(PyObject* type) {
  auto* t = reinterpret_cast<PyTypeObject*>(type);
  return PyType_HasFeature(t, Py_TPFLAGS_VALID_VERSION_TAG) ? t->tp_version_tag : 0;
}

// Whether two lists or tuples have the same items; one may be a list and the other a tuple.
bool same_items(PyObject* a, PyObject* b) {
  const Py_ssize_t n = PySequence_Fast_GET_SIZE(a);
  if (PySequence_Fast_GET_SIZE(b) != n) return false;
  PyObject *const *x = PySequence_Fast_ITEMS(a), *const *y = PySequence_Fast_ITEMS(b);
  for (Py_ssize_t i = 0; i < n; ++i)
    if (!same(x[i], y[i])) return false;
  return true;
}

bool same_bits(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }

}  // namespace

bool same(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (!a || !b || Py_TYPE(a) != Py_TYPE(b)) return false;
  if (PyFloat_CheckExact(a)) return same_bits(PyFloat_AS_DOUBLE(a), PyFloat_AS_DOUBLE(b));
  if (PyComplex_CheckExact(a)) {
    const Py_complex x = PyComplex_AsCComplex(a), y = PyComplex_AsCComplex(b);
    return same_bits(x.real, y.real) && same_bits(x.imag, y.imag);
  }
  if (PyLong_CheckExact(a) || PyUnicode_CheckExact(a) || PyBytes_CheckExact(a))
    return PyObject_RichCompareBool(a, b, Py_EQ) == 1;
  if (PyTuple_CheckExact(a)) return same_items(a, b);
  if (PySlice_Check(a)) {
    const auto *x = reinterpret_cast<PySliceObject*>(a), *y = reinterpret_cast<PySliceObject*>(b);
    return same(x->start, y->start) && same(x->stop, y->stop) && same(x->step, y->step);
  }
  return false;
}

// ---- tensors

namespace {

template <class Word>
void describe(PyObject* object, Word&& word) {
  RbTensor* t = core->unwrap(object);
  if (!t) return word(-1);
  word(int64_t{t->dtype_id} | int64_t{t->backend} << 16 | int64_t{t->layout} << 24 |
       int64_t{t->ndim} << 32);
  word(int64_t{t->device.id} | int64_t{t->flags} << 32);
  word(t->level);
  for (int d = 0; d < t->ndim; ++d) word(t->shape[d]);
  for (int d = 0; d < t->ndim; ++d) word(t->strides[d]);
  const RbAutograd* tape = autograd();
  word(tape ? tape->requires_grad(t) | tape->is_leaf(t) << 1 | tape->has_hooks(t) << 2 : 2);
}

}  // namespace

Signature::Signature(PyObject* tensor) : type_(Py_TYPE(tensor)) {
  describe(tensor, [this](int64_t word) { words_.push_back(word); });
}

bool Signature::fits(PyObject* tensor) const {
  if (Py_TYPE(tensor) != type_) return false;
  size_t at = 0;
  bool fitting = true;
  describe(tensor, [&](int64_t word) {
    fitting = fitting && at < words_.size() && words_[at] == word;
    ++at;
  });
  return fitting && at == words_.size();
}

// ---- the list

Guards::Guards(PyObject* items) {
  if (!PyList_Check(items)) {
    PyErr_SetString(PyExc_TypeError, "Guards: expected a list of tuples");
    give_up();
  }
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items); ++i) add(i, PyList_GET_ITEM(items, i));
}

void Guards::add(Py_ssize_t number, PyObject* item) {
  if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) < 1) {
    PyErr_SetString(PyExc_TypeError, "Guards: expected tuples that begin with a kind");
    give_up();
  }
  const long kind = PyLong_AsLong(PyTuple_GET_ITEM(item, 0));
  static const Py_ssize_t sizes[kKinds] = {4, 3, 3, 3, 3, 3, 2, 3, 4, 5, 2, 3, 4, 1, 3};
  if (kind < 0 || kind >= kKinds || PyTuple_GET_SIZE(item) != sizes[kind]) {
    if (!PyErr_Occurred())
      PyErr_Format(PyExc_ValueError, "Guards: there is no kind %ld with %zd parts", kind,
                   PyTuple_GET_SIZE(item));
    give_up();
  }
  const auto part = [&](Py_ssize_t i) {
    return i < PyTuple_GET_SIZE(item) ? Ref::share(PyTuple_GET_ITEM(item, i)) : Ref();
  };
  if (kind == kThread) {
    thread_.struct_size = sizeof thread_;
    core->host->thread_get(&thread_);
    checks_thread_ = true;
    return;
  }
  if (kind == kEntry) {
    Ref dict = part(1);
    size_t at = 0;
    while (at < dicts_.size() && dicts_[at].dict.get() != dict.get()) ++at;
    if (at == dicts_.size()) dicts_.push_back({dict, 0, {}});
    dicts_[at].entries.push_back({number, part(2), part(3)});
    return;
  }
  Other guard{number, static_cast<Kind>(kind), part(1), part(2), part(3), part(4), 0};
  if (kind == kLength) guard.word = PyLong_AsUnsignedLongLong(guard.b.get());
  if (kind == kClass) guard.word = version_of_class(guard.a.get());
  if (kind == kTensor) {
    guard.word = signatures_.size();
    signatures_.emplace_back(guard.a.get());
  }
  if (PyErr_Occurred()) give_up();
  others_.push_back(std::move(guard));
}

int Guards::check_dict(Dict& dict, Py_ssize_t& failed) const {
  const uint64_t version = version_of(dict.dict.get());
  if (version && version == dict.version) return 1;
  for (const Entry& entry : dict.entries) {
    PyObject* found = PyDict_GetItemWithError(dict.dict.get(), entry.key.get());
    if (!found && PyErr_Occurred()) return -1;
    if (same(found ? found : missing, entry.value.get())) continue;
    failed = entry.number;
    return 0;
  }
  dict.version = version;
  return 1;
}

namespace {

int same_pairs(PyObject* dict, PyObject* pairs) {
  if (2 * PyDict_GET_SIZE(dict) != PyTuple_GET_SIZE(pairs)) return 0;
  PyObject *key, *value;
  Py_ssize_t at = 0, i = 0;
  while (PyDict_Next(dict, &at, &key, &value)) {
    if (!same(key, PyTuple_GET_ITEM(pairs, i)) || !same(value, PyTuple_GET_ITEM(pairs, i + 1)))
      return 0;
    i += 2;
  }
  return 1;
}

int same_sequence(PyObject* container, PyObject* items) {
  const Ref found = Ref::take(PySequence_Tuple(container));
  if (!found) return -1;
  return same(found.get(), items);
}

int length_of(PyObject* container, uint64_t& n) {
  const Py_ssize_t found = PyDict_Check(container)   ? PyDict_GET_SIZE(container)
                           : PyList_Check(container) ? PyList_GET_SIZE(container)
                                                     : PyObject_Size(container);
  n = static_cast<uint64_t>(found);
  return found < 0 ? -1 : 1;
}

int same_slot(PyObject* object, PyObject* descriptor, PyObject* value) {
  const Ref found = Ref::take(
      Py_TYPE(descriptor)
          ->tp_descr_get(descriptor, object, reinterpret_cast<PyObject*>(Py_TYPE(object))));
  if (!found) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return -1;
    PyErr_Clear();
  }
  return same(found ? found.get() : missing, value);
}

int same_function(PyObject* object, PyObject* code, PyObject* defaults, PyObject* named) {
  const auto* f = reinterpret_cast<PyFunctionObject*>(object);
  return f->func_code == code && (f->func_defaults ? f->func_defaults : Py_None) == defaults &&
         (f->func_kwdefaults ? f->func_kwdefaults : Py_None) == named;
}

int same_call(PyObject* callable, PyObject* args, PyObject* value) {
  const Ref found = Ref::take(PyObject_Call(callable, args, nullptr));
  if (!found) return -1;
  if (!PyList_CheckExact(found.get())) return same(found.get(), value);
  return PyTuple_Check(value) && same_items(found.get(), value);
}

int has_grad(PyObject* tensor, PyObject* present) {
  const RbAutograd* tape = autograd();
  const RbTensor* t = core->unwrap(tensor);
  return (tape && t && tape->get_grad(t) != nullptr) == (present == Py_True);
}

}  // namespace

int Guards::check_other(const Other& guard) const {
  PyObject *a = guard.a.get(), *b = guard.b.get(), *c = guard.c.get();
  switch (guard.kind) {
    case kLength: {
      uint64_t n = 0;
      return length_of(a, n) < 0 ? -1 : n == guard.word;
    }
    case kItems:
      return same_items(a, b);
    case kPairs:
      return same_pairs(a, b);
    case kSequence:
      return same_sequence(a, b);
    case kCell: {
      PyObject* found = reinterpret_cast<PyCellObject*>(a)->ob_ref;
      return same(found ? found : missing, b);
    }
    case kClass:
      return guard.word && version_of_class(a) == guard.word;
    case kClassOf:
      return reinterpret_cast<PyObject*>(Py_TYPE(a)) == b;
    case kDictOf: {
      const Ref found = Ref::take(PyObject_GenericGetDict(a, nullptr));
      return found ? found.get() == b : -1;
    }
    case kSlot:
      return same_slot(a, b, c);
    case kFunction:
      return same_function(a, b, c, guard.d.get());
    case kTensor:
      return signatures_[guard.word].fits(a);
    case kGrad:
      return has_grad(a, b);
    case kCall:
      return same_call(a, b, c);
    default:
      return 0;
  }
}

int Guards::check(Py_ssize_t& failed) {
  failed = -1;
  if (checks_thread_) {
    RbThread now{};
    now.struct_size = sizeof now;
    core->host->thread_get(&now);
    if (now.include != thread_.include || now.exclude != thread_.exclude ||
        now.depth != thread_.depth || now.tensor_flags != thread_.tensor_flags)
      return 0;
  }
  for (Dict& dict : dicts_) {
    const int held = check_dict(dict, failed);
    if (held != 1) return held;
  }
  for (const Other& guard : others_) {
    const int held = check_other(guard);
    if (held == 1) continue;
    failed = guard.number;
    return held;
  }
  return 1;
}

int Guards::traverse(visitproc visit, void* arg) const {
  for (const Dict& dict : dicts_) {
    Py_VISIT(dict.dict.get());
    for (const Entry& entry : dict.entries) {
      Py_VISIT(entry.key.get());
      Py_VISIT(entry.value.get());
    }
  }
  for (const Other& guard : others_) {
    Py_VISIT(guard.a.get());
    Py_VISIT(guard.b.get());
    Py_VISIT(guard.c.get());
    Py_VISIT(guard.d.get());
  }
  return 0;
}

}  // namespace replay
