#include "tensor_type.h"

#include <structmember.h>

#include <vector>

#include "buffer.h"
#include "data.h"
#include "device/backends.h"
#include "errors.h"
#include "indexing.h"
#include "overrides.h"

namespace rabbet::python {

PyTypeObject* tensor_type;
PyObject* repr_callback;
#ifndef Py_GIL_DISABLED
TensorObject* free_objects[kFreeObjects];
int free_object_count = 0;
#endif

namespace {

struct Referents {
  int (*traverse)(RbTensor*, visitproc, void*) = nullptr;
  void (*clear)(RbTensor*) = nullptr;
};
Referents referents;

TensorObject* as_tensor_object(PyObject* o) { return reinterpret_cast<TensorObject*>(o); }

TensorObject* new_object() {
  // Not tracked by the collector until it has a __dict__: without one it cannot be part of a cycle.
  TensorObject* o = PyObject_GC_New(TensorObject, tensor_type);
  if (o) o->dict = o->weakrefs = nullptr;
  return o;
}

inline void free_object(TensorObject* o) {
  PyTypeObject* type = Py_TYPE(o);
#ifndef Py_GIL_DISABLED
  if (type == tensor_type && free_object_count < kFreeObjects) {
    free_objects[free_object_count++] = o;  // it keeps its reference to the type
    return;
  }
#endif
  type->tp_free(o);
  Py_DECREF(type);
}

// ---- identity: Tensor::pyobj points back; its lowest bit says that the tensor owns the object

bool tensor_owns(const Tensor* t) { return (reinterpret_cast<uintptr_t>(t->pyobj) & 1) != 0; }
TensorObject* object_of(const Tensor* t) {
  return reinterpret_cast<TensorObject*>(reinterpret_cast<uintptr_t>(t->pyobj) & ~uintptr_t{1});
}

// An object without state of its own can be dropped and made again when it is needed.
bool has_state(const TensorObject* o) {
  return Py_TYPE(o) != tensor_type || (o->dict && PyDict_GET_SIZE(o->dict) > 0);
}

void tensor_dealloc(PyObject* self) {
  TensorObject* o = as_tensor_object(self);
  Tensor* t = o->t;
  if (__builtin_expect(t && Py_TYPE(self) == tensor_type && !o->dict && !o->weakrefs, 1)) {
    t->pyobj = nullptr;
    release(t);
    free_object(o);
    return;
  }
  if (t && t->refs.load(std::memory_order_acquire) > 1 && has_state(o)) {
    // The tensor lives on, in a graph or a view. It takes the object over, so that the same one
    // comes back.
    Py_SET_REFCNT(self, 1);
    t->pyobj = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(self) | 1);
    release(t);
    return;
  }
  PyObject_GC_UnTrack(self);
  if (t) t->pyobj = nullptr;
  if (o->weakrefs) PyObject_ClearWeakRefs(self);
  Py_CLEAR(o->dict);
  o->weakrefs = nullptr;
  if (t) release(t);
  free_object(o);
}

// A dying tensor gives up the object that it owns. Its slots are gone already.
void drop_object(void* object) {
  TensorObject* o = static_cast<TensorObject*>(object);
  if (!interpreter_alive()) {
    o->t = nullptr;  // the collector visits it once more
    return;
  }
  WithGil gil;
  o->t = nullptr;
  Py_DECREF(reinterpret_cast<PyObject*>(o));
}

int tensor_traverse(PyObject* self, visitproc visit, void* arg) {
  TensorObject* o = as_tensor_object(self);
  Py_VISIT(Py_TYPE(self));
  // While the tensor is in use elsewhere the object must survive, and with it what it refers to.
  if (o->t && (tensor_owns(o->t) || o->t->refs.load(std::memory_order_relaxed) > 1)) return 0;
  Py_VISIT(o->dict);
  return o->t && referents.traverse ? referents.traverse(o->t, visit, arg) : 0;
}

// Like a new object it is tracked no more, as it has no __dict__: tensor_dealloc relies on it.
int tensor_clear(PyObject* self) {
  if (Py_TYPE(self) == tensor_type) PyObject_GC_UnTrack(self);
  TensorObject* o = as_tensor_object(self);
  const bool alone = o->t && !tensor_owns(o->t) && o->t->refs.load(std::memory_order_relaxed) == 1;
  if (alone && referents.clear) referents.clear(o->t);
  Py_CLEAR(o->dict);
  return 0;
}

void track_if_stateful(PyObject* self) {
  if (as_tensor_object(self)->dict && !PyObject_GC_IsTracked(self)) PyObject_GC_Track(self);
}

int tensor_setattro(PyObject* self, PyObject* name, PyObject* value) {
  const int failed = PyObject_GenericSetAttr(self, name, value);
  track_if_stateful(self);
  return failed;
}

PyObject* get_dict(PyObject* self, void*) {
  PyObject* dict = PyObject_GenericGetDict(self, nullptr);
  track_if_stateful(self);
  return dict;
}
int set_dict(PyObject* self, PyObject* value, void*) {
  const int failed = PyObject_GenericSetDict(self, value, nullptr);
  track_if_stateful(self);
  return failed;
}

// ---- construction from Python: Tensor(), Tensor(data), Tensor(2, 3)

PyObject* tensor_new_object(PyTypeObject* cls, PyObject* args, PyObject* kwargs) {
  return object_boundary([&]() -> PyObject* {
    Ref device;
    if (kwargs && PyDict_GET_SIZE(kwargs) > 0) {
      PyObject* given = PyDict_GetItemString(kwargs, "device");
      if (!given || PyDict_GET_SIZE(kwargs) != 1) {
        raise(
            PyExc_TypeError,
            "Tensor(): the only keyword argument is 'device'; use rabbet.tensor(data, dtype=...)");
      }
      device = Ref::borrow(given);
    }
    TensorRef t = legacy_tensor(args, device.get());
    return wrap_as(cls, t.release_ownership());
  });
}

PyObject* tensor_repr(PyObject* self) {
  if (slot_is_overridden(self)) return call_override("__repr__", {self});
  if (repr_callback) return PyObject_CallOneArg(repr_callback, self);
  return PyUnicode_FromFormat("<Tensor of %d dimensions>", static_cast<int>(tensor_of(self)->ndim));
}

Py_hash_t tensor_hash(PyObject* self) {  // identity, as equality is elementwise
  const auto bits = reinterpret_cast<uintptr_t>(self);
  const auto hash = static_cast<Py_hash_t>((bits >> 4) | (bits << (8 * sizeof bits - 4)));
  return hash == -1 ? -2 : hash;
}

PyMemberDef members[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(TensorObject, dict), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(TensorObject, weakrefs), READONLY, nullptr},
    {}};

PyGetSetDef dict_getset = {"__dict__", get_dict, set_dict, nullptr, nullptr};

}  // namespace

void set_referents(int (*traverse)(RbTensor*, visitproc, void*), void (*clear)(RbTensor*)) {
  referents = {traverse, clear};
}

PyObject* wrap_known(RbTensor* rt) {
  Tensor* t = impl(rt);
  if (__builtin_expect(t->pyobj == nullptr, 1)) {
    TensorObject* o = new_object();
    if (!o) {
      release(t);
      return nullptr;
    }
    o->t = t;
    t->pyobj = o;
    return reinterpret_cast<PyObject*>(o);
  }
  TensorObject* o = object_of(t);
  if (tensor_owns(t)) {  // back into Python's hands: the tensor's reference to the object becomes
                         // the caller's
    t->pyobj = o;
    return reinterpret_cast<PyObject*>(o);
  }
  Py_INCREF(reinterpret_cast<PyObject*>(o));
  release(t);
  return reinterpret_cast<PyObject*>(o);
}

void swap_tensors(PyObject* a, PyObject* b) {
  TensorObject *x = as_tensor_object(a), *y = as_tensor_object(b);
  for (const TensorObject* o : {x, y}) {
    if (o->t->refs.load(std::memory_order_acquire) > 1)
      raise(
          PyExc_RuntimeError,
          "swap_tensors: a tensor is used by a view, a graph or a storage, too; expected that only "
          "its object uses it");
  }
  if (x == y) return;
  std::swap(x->t, y->t);
  x->t->pyobj = x;
  y->t->pyobj = y;
}

PyObject* wrap_as(PyTypeObject* cls, Tensor* t) {
  if (cls == tensor_type) return wrap(t);
  TensorRef owned(t);
  PyObject* self = cls->tp_alloc(cls, 0);
  if (!self) return nullptr;
  as_tensor_object(self)->t = owned.release_ownership();
  t->pyobj = self;
  if (__builtin_expect(dispatches(cls), 0) && !join_dispatch(self)) {
    Py_DECREF(self);
    return nullptr;
  }
  return self;
}

PyObject* rewrap(PyTypeObject* cls, PyObject* owned) {
  TensorObject* o = as_tensor_object(owned);
  Tensor* t = o->t;
  o->t = nullptr;
  t->pyobj = nullptr;
  Py_DECREF(owned);
  return wrap_as(cls, t);
}

bool requires_grad(PyObject* o) {
  static PyObject* name = PyUnicode_InternFromString("requires_grad");
  PyObject* value = PyObject_GetAttr(o, name);
  if (!value) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) throw PythonError{};
    PyErr_Clear();
    return false;
  }
  Ref owned(value);
  const int truth = PyObject_IsTrue(value);
  if (truth < 0) throw PythonError{};
  return truth == 1;
}

void set_requires_grad(PyObject* o, PyObject* value) {
  const int truth = PyObject_IsTrue(value);
  if (truth < 0) throw PythonError{};
  // Without autograd the attribute does not exist and the hook that explains it raises.
  if (truth && PyObject_SetAttrString(o, "requires_grad", Py_True) < 0) throw PythonError{};
}

bool init_tensor_type(PyObject* module) {
  std::vector<PyGetSetDef>* getset =
      new std::vector<PyGetSetDef>;  // the type keeps pointers to its entries
  for (const PyGetSetDef* g = tensor_getset; g->name; ++g) getset->push_back(*g);
  getset->push_back(dict_getset);
  getset->push_back(PyGetSetDef{});
  std::vector<PyType_Slot> slots = {
      {Py_tp_new, reinterpret_cast<void*>(tensor_new_object)},
      {Py_tp_dealloc, reinterpret_cast<void*>(tensor_dealloc)},
      {Py_tp_traverse, reinterpret_cast<void*>(tensor_traverse)},
      {Py_tp_clear, reinterpret_cast<void*>(tensor_clear)},
      {Py_tp_setattro, reinterpret_cast<void*>(tensor_setattro)},
      {Py_tp_repr, reinterpret_cast<void*>(tensor_repr)},
      {Py_tp_hash, reinterpret_cast<void*>(tensor_hash)},
      {Py_tp_methods, tensor_methods},
      {Py_tp_getset, getset->data()},
      {Py_tp_members, members},
      {Py_mp_subscript, reinterpret_cast<void*>(tensor_subscript)},
      {Py_mp_ass_subscript, reinterpret_cast<void*>(tensor_assign)},
      {Py_bf_getbuffer, reinterpret_cast<void*>(tensor_get_buffer)},
      {Py_bf_releasebuffer, reinterpret_cast<void*>(tensor_release_buffer)},
      {Py_tp_doc,
       const_cast<char*>("A multi-dimensional array of elements of one dtype on one device.")}};
  for (const PyType_Slot* s = tensor_number_slots; s->slot; ++s) slots.push_back(*s);
  slots.push_back({});
  PyType_Spec spec = {"rabbet.Tensor", sizeof(TensorObject), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots.data()};
  PyObject* type = PyType_FromSpec(&spec);
  if (!type) return false;
  tensor_type = reinterpret_cast<PyTypeObject*>(type);
  release_pyobj = drop_object;
  Ref priority(PyFloat_FromDouble(1000.0));  // NumPy leaves `array + tensor` to us
  return priority && PyObject_SetAttrString(type, "__array_priority__", priority.get()) == 0 &&
         PyModule_AddObjectRef(module, "Tensor", type) == 0;
}

}  // namespace rabbet::python
