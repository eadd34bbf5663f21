#include "overrides.h"

#include <structmember.h>

#include <utility>
#include <vector>

#include "core_ops.h"
#include "errors.h"
#include "layer/transforms.h"
#include "op_type.h"

namespace rabbet::python {

PlainSubclass plain_subclass;
bool modes_active;

namespace {

enum Disabled { kNothing, kSubclasses, kEverything };

struct ThreadOverrides {
  std::vector<PyObject*> modes;  // owned; the last one is the innermost
  int disabled = kNothing;
  bool skip_next = false;  // the next question of a Python function is answered with no
};
thread_local ThreadOverrides here;

int64_t mode_count = 0;  // in all threads; guarded by Python's lock

PyObject* protocol_name;      // "__torch_function__"
PyObject* disabled_function;  // _disabled_torch_function_impl
PyObject* dispatch_name;      // "__torch_dispatch__"
PyObject* disabled_dispatch;  // _disabled_torch_dispatch_impl

// Calls the overrides of subclasses of Tensor no more, in this thread.
class Disable {
 public:
  explicit Disable(int what) : before_(here.disabled) { here.disabled = what; }
  ~Disable() { here.disabled = before_; }
  Disable(const Disable&) = delete;
  Disable& operator=(const Disable&) = delete;

 private:
  int before_;
};

// ---- which types override

// Borrowed; null: the type overrides nothing.
PyObject* override_of(PyTypeObject* type) {
  if (type == tensor_type || !(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) return nullptr;
  PyObject* found = _PyType_Lookup(type, protocol_name);
  return found == disabled_function ? nullptr : found;
}

bool is_list_or_tuple(PyObject* o) { return PyTuple_Check(o) || PyList_Check(o); }

template <class Visit>
void for_each_value(PyObject* const* args, Py_ssize_t n, const Visit& visit) {
  for (Py_ssize_t i = 0; i < n; ++i) {
    if (!is_list_or_tuple(args[i])) {
      visit(args[i]);
      continue;
    }
    const Py_ssize_t items = PySequence_Fast_GET_SIZE(args[i]);
    for (Py_ssize_t j = 0; j < items; ++j) visit(PySequence_Fast_GET_ITEM(args[i], j));
  }
}

// One value of each type that overrides, subclasses before the classes that they derive from.
std::vector<Ref> overriding_values(PyObject* const* args, Py_ssize_t n) {
  std::vector<Ref> found;
  for_each_value(args, n, [&](PyObject* o) {
    if (!overrides(o)) return;
    size_t at = found.size();
    for (size_t i = 0; i < found.size(); ++i) {
      if (Py_TYPE(found[i].get()) == Py_TYPE(o)) return;
      if (at == found.size() && PyType_IsSubtype(Py_TYPE(o), Py_TYPE(found[i].get()))) at = i;
    }
    found.insert(found.begin() + static_cast<std::ptrdiff_t>(at), Ref::borrow(o));
  });
  return found;
}

// ---- results of Tensor.__torch_function__

// The object of a new tensor is replaced, so that the tensor itself becomes one of the subclass. A
// tensor that others hold gets a view.
PyObject* as_subclass(PyTypeObject* cls, Ref result) {
  auto* object = reinterpret_cast<TensorObject*>(result.get());
  const bool is_new = Py_TYPE(object) == tensor_type && Py_REFCNT(object) == 1 && !object->dict &&
                      !object->weakrefs;
  if (!is_new) {
    Tensor* t = tensor_of(result.get());
    TensorRef view = run_op(ops.expand, {value_tensor(t), value_ints(t->shape, t->ndim)});
    if (view->pyobj) view = TensorRef(tensor_alias(view.get()));
    return must(wrap_as(cls, view.release_ownership()));
  }
  return must(rewrap(cls, result.release()));
}

PyObject* converted(PyObject* owned, PyTypeObject* cls) {
  Ref result(owned);
  if (is_tensor(owned)) {
    if (PyType_IsSubtype(Py_TYPE(owned), cls)) return result.release();
    return as_subclass(cls, std::move(result));
  }
  if (!is_list_or_tuple(owned)) return result.release();
  const Py_ssize_t n = PySequence_Fast_GET_SIZE(owned);
  Ref items(must(PyTuple_New(n)));
  for (Py_ssize_t i = 0; i < n; ++i) {
    Ref item(Ref::borrow(PySequence_Fast_GET_ITEM(owned, i)));
    PyTuple_SET_ITEM(items.get(), i, converted(item.release(), cls));
  }
  if (PyTuple_CheckExact(owned)) return items.release();
  // A namedtuple takes its items one by one, other lists and tuples take a sequence.
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(owned));
  if (PyObject_HasAttrString(type, "_make"))
    return must(PyObject_CallMethod(type, "_make", "O", items.get()));
  return must(PyObject_CallOneArg(type, items.get()));
}

// Whether the result of a function stays what it is: that of the getters of `grad`, `_grad` and
// `_base`.
bool keeps_result(PyObject* function) {
  if (Py_TYPE(function) != &_PyMethodWrapper_Type) return false;
  Ref module(must(PyImport_ImportModule("rabbet.overrides")));
  Ref kept(must(PyObject_CallMethod(module.get(), "get_default_nowrap_functions", nullptr)));
  const int contains = PySequence_Contains(kept.get(), function);
  if (contains < 0) throw PythonError{};
  return contains == 1;
}

PyObject* call_by_default(PyTypeObject* cls, PyObject* function, PyObject* args, PyObject* kwargs) {
  const Disable subclasses(here.disabled == kEverything ? kEverything : kSubclasses);
  Ref result(must(PyObject_Call(function, args, kwargs)));
  if (keeps_result(function)) return result.release();
  return converted(result.release(), cls);
}

// Tensor.__torch_function__(func, types, args=(), kwargs=None)
PyObject* default_torch_function(PyObject* cls, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"func", "types", "args", "kwargs", nullptr};
  PyObject *function, *types, *given = nullptr, *keywords = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|OO:__torch_function__",
                                   const_cast<char**>(names), &function, &types, &given, &keywords))
    return nullptr;
  return object_boundary([&]() -> PyObject* {
    Ref list(must(PySequence_Fast(types, "__torch_function__: 'types' must be a sequence")));
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list.get()); ++i) {
      const int derived = PyObject_IsSubclass(cls, PySequence_Fast_GET_ITEM(list.get(), i));
      if (derived < 0) throw PythonError{};
      if (!derived) Py_RETURN_NOTIMPLEMENTED;
    }
    Ref tuple(given ? must(PySequence_Tuple(given)) : must(PyTuple_New(0)));
    if (keywords == Py_None) keywords = nullptr;
    if (keywords && !PyDict_Check(keywords))
      raise(PyExc_TypeError, "__torch_function__: 'kwargs' must be a dict, not %s",
            Py_TYPE(keywords)->tp_name);
    return call_by_default(reinterpret_cast<PyTypeObject*>(cls), function, tuple.get(), keywords);
  });
}

// ---- the call of an override

Ref as_tuple(PyObject* const* items, Py_ssize_t n) {
  Ref tuple(must(PyTuple_New(n)));
  for (Py_ssize_t i = 0; i < n; ++i) PyTuple_SET_ITEM(tuple.get(), i, Py_NewRef(items[i]));
  return tuple;
}

class RecursiveCall {
 public:
  RecursiveCall() {
    if (Py_EnterRecursiveCall(" in __torch_function__")) throw PythonError{};
  }
  ~RecursiveCall() { Py_LeaveRecursiveCall(); }
  RecursiveCall(const RecursiveCall&) = delete;
  RecursiveCall& operator=(const RecursiveCall&) = delete;
};

// While the override of a mode runs, the mode is off.
class WithoutInnermostMode {
 public:
  WithoutInnermostMode() : mode_(here.modes.back()) { here.modes.pop_back(); }
  ~WithoutInnermostMode() { here.modes.push_back(mode_); }
  WithoutInnermostMode(const WithoutInnermostMode&) = delete;
  WithoutInnermostMode& operator=(const WithoutInnermostMode&) = delete;
  PyObject* mode() const { return mode_; }

 private:
  PyObject* mode_;
};

Ref call_protocol(PyObject* object, PyObject* function, PyObject* types, PyObject* args,
                  PyObject* kwargs) {
  Ref method(must(PyObject_GetAttr(object, protocol_name)));
  return Ref(
      must(PyObject_CallFunctionObjArgs(method.get(), function, types, args, kwargs, nullptr)));
}

void warn_of_plain_method(PyObject* object) {
  PyObject* found = override_of(Py_TYPE(object));
  if (!found || !PyFunction_Check(found)) return;
  if (PyErr_WarnEx(PyExc_DeprecationWarning,
                   "Defining your `__torch_function__` as a plain method is deprecated and will be "
                   "an error in future, please define it as a classmethod.",
                   1) < 0)
    throw PythonError{};
}

[[noreturn]] void none_implements(PyObject* function, PyObject* types, PyObject* mode) {
  Ref module(must(PyImport_ImportModule("rabbet.overrides")));
  Ref text(must(PyObject_CallMethod(module.get(), "_no_implementation", "OOO", function, types,
                                    mode ? mode : Py_None)));
  PyErr_SetObject(PyExc_TypeError, text.get());
  throw PythonError{};
}

// Raises TypeError if all overrides return NotImplemented; `quiet`: returns NotImplemented.
PyObject* call_overrides(PyObject* function, const std::vector<Ref>& values, PyObject* args,
                         PyObject* kwargs, bool quiet = false) {
  const RecursiveCall recursion;
  const auto n = static_cast<Py_ssize_t>(values.size());
  Ref types(must(PyTuple_New(n)));
  for (Py_ssize_t i = 0; i < n; ++i)
    PyTuple_SET_ITEM(types.get(), i,
                     Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(values[i].get()))));
  Ref mode;
  if (!here.modes.empty() && here.disabled != kEverything) {
    const WithoutInnermostMode outer;
    mode = Ref::borrow(outer.mode());
    Ref result = call_protocol(mode.get(), function, types.get(), args, kwargs);
    if (result.get() != Py_NotImplemented) return result.release();
  }
  for (const Ref& value : values) {
    warn_of_plain_method(value.get());
    Ref result = call_protocol(value.get(), function, types.get(), args, kwargs);
    if (result.get() != Py_NotImplemented) return result.release();
  }
  if (quiet) Py_RETURN_NOTIMPLEMENTED;
  none_implements(function, types.get(), mode.get());
}

// _C.call_override(function, values, args, kwargs): for functions that say themselves which values
// override them.
PyObject* call_override_of(PyObject*, PyObject* args) {
  PyObject *function, *values, *given, *kwargs;
  if (!PyArg_ParseTuple(args, "OOO!O!:call_override", &function, &values, &PyTuple_Type, &given,
                        &PyDict_Type, &kwargs))
    return nullptr;
  return object_boundary([&] {
    Ref list(must(PySequence_Fast(values, "call_override: 'values' must be iterable")));
    return call_overrides(
        function,
        overriding_values(PySequence_Fast_ITEMS(list.get()), PySequence_Fast_GET_SIZE(list.get())),
        given, kwargs);
  });
}

bool in_mode() { return !here.modes.empty() && here.disabled != kEverything; }

bool skips() { return std::exchange(here.skip_next, false); }

// _C.has_torch_function(values)
PyObject* has_torch_function(PyObject*, PyObject* values) {
  return object_boundary([&] {
    Ref list(must(PySequence_Fast(values, "has_torch_function: expected an iterable")));
    if (skips()) return PyBool_FromLong(false);
    bool found = in_mode();
    for (Py_ssize_t i = 0; !found && i < PySequence_Fast_GET_SIZE(list.get()); ++i)
      found = overrides(PySequence_Fast_GET_ITEM(list.get(), i));
    return PyBool_FromLong(found);
  });
}
PyObject* has_torch_function_variadic(PyObject*, PyObject* const* values, Py_ssize_t n) {
  if (skips()) return PyBool_FromLong(false);
  bool found = in_mode();
  for (Py_ssize_t i = 0; !found && i < n; ++i) found = overrides(values[i]);
  return PyBool_FromLong(found);
}

PyObject* disabled_torch_function(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"func", "types", "args", "kwargs", nullptr};
  PyObject *function, *types, *given = nullptr, *keywords = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|OO:_disabled_torch_function_impl",
                                   const_cast<char**>(names), &function, &types, &given, &keywords))
    return nullptr;
  return object_boundary([&] {
    const Disable subclasses(here.disabled == kEverything ? kEverything : kSubclasses);
    Ref tuple(given ? must(PySequence_Tuple(given)) : must(PyTuple_New(0)));
    return PyObject_Call(function, tuple.get(), keywords == Py_None ? nullptr : keywords);
  });
}

// _disabled_torch_dispatch_impl(func, types, args=(), kwargs=None)
PyObject* disabled_torch_dispatch(PyObject*, PyObject* args, PyObject* kwargs) {
  return object_boundary([&] {
    Ref module(must(PyImport_ImportModule("rabbet._torch_dispatch")));
    Ref function(must(PyObject_GetAttrString(module.get(), "call_without_dispatch")));
    return PyObject_Call(function.get(), args, kwargs);
  });
}

// ---- modes and switches

void count_modes(int64_t change) {
  mode_count += change;
  const bool active = mode_count > 0;
  if (active == modes_active) return;
  modes_active = active;
  slot_call_limit = active ? -1 : kLargeCall;
  update_op_entries();
}

PyObject* push_mode(PyObject*, PyObject* mode) {
  here.modes.push_back(Py_NewRef(mode));
  count_modes(1);
  Py_RETURN_NONE;
}
PyObject* pop_mode(PyObject*, PyObject*) {
  if (here.modes.empty()) {
    PyErr_SetString(PyExc_RuntimeError, "no TorchFunctionMode is active in this thread");
    return nullptr;
  }
  PyObject* mode = here.modes.back();
  here.modes.pop_back();
  count_modes(-1);
  return mode;
}
PyObject* mode_stack(PyObject*, PyObject*) {
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(here.modes.size()));
  for (size_t i = 0; list && i < here.modes.size(); ++i)
    PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), Py_NewRef(here.modes[i]));
  return list;
}
// 0: nothing is disabled, 1: overrides of subclasses, 2: those of modes too. Returns what was
// before.
PyObject* set_disabled(PyObject*, PyObject* value) {
  const long wanted = PyLong_AsLong(value);
  if (wanted == -1 && PyErr_Occurred()) return nullptr;
  if (wanted < kNothing || wanted > kEverything) {
    PyErr_Format(PyExc_ValueError, "set_overrides_disabled: expected 0, 1 or 2, got %ld", wanted);
    return nullptr;
  }
  const int before = here.disabled;
  here.disabled = static_cast<int>(wanted);
  return PyLong_FromLong(before);
}
PyObject* get_disabled(PyObject*, PyObject*) { return PyLong_FromLong(here.disabled); }

PyObject* method_as_subclass(PyObject* self, PyObject* cls) {
  return object_boundary([&] {
    if (!PyType_Check(cls) ||
        !PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(cls), tensor_type)) {
      raise(PyExc_TypeError, "as_subclass(): argument 'cls' must be a subclass of Tensor, not %R",
            cls);
    }
    return as_subclass(reinterpret_cast<PyTypeObject*>(cls), Ref::borrow(self));
  });
}

// ---- Python functions and attributes of Tensor that can be overridden

struct Overridable {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* function;  // owned
  PyObject* weakrefs;
};

PyTypeObject* overridable_type;
PyObject* wrapped_name;  // "__wrapped__"

PyObject* function_of(PyObject* o) { return reinterpret_cast<Overridable*>(o)->function; }

PyObject* overridable_call(PyObject* self, PyObject* const* args, size_t nargsf,
                           PyObject* kwnames) {
  const Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
  const Py_ssize_t total = nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  if (__builtin_expect(is_overridden(args, total), 0))
    return call_override(self, args, nargs, kwnames);
  return PyObject_Vectorcall(function_of(self), args, nargsf, kwnames);
}

PyObject* overridable_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  PyObject* function;
  static const char* names[] = {"function", nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:overridable", const_cast<char**>(names),
                                   &function))
    return nullptr;
  if (!PyCallable_Check(function)) {
    PyErr_Format(PyExc_TypeError, "overridable: expected a function, got %s",
                 Py_TYPE(function)->tp_name);
    return nullptr;
  }
  auto* self = reinterpret_cast<Overridable*>(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  self->vectorcall = overridable_call;
  self->function = Py_NewRef(function);
  return reinterpret_cast<PyObject*>(self);
}

int overridable_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(function_of(self));
  return 0;
}
int overridable_clear(PyObject* self) {
  Py_CLEAR(reinterpret_cast<Overridable*>(self)->function);
  return 0;
}
void overridable_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  if (reinterpret_cast<Overridable*>(self)->weakrefs) PyObject_ClearWeakRefs(self);
  overridable_clear(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* overridable_bind(PyObject* self, PyObject* object, PyObject*) {
  return object && object != Py_None ? PyMethod_New(self, object) : Py_NewRef(self);
}
// Call a function without its own overrides; functions that it calls are overridden as usual.
PyObject* redispatch(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"func", "types", "args", "kwargs", nullptr};
  PyObject *function, *types, *given, *keywords;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOO:redispatch_function",
                                   const_cast<char**>(names), &function, &types, &given, &keywords))
    return nullptr;
  return object_boundary([&]() -> PyObject* {
    if (!PyCallable_Check(function))
      raise(PyExc_TypeError, "redispatch_function: 'func' must be callable, not %s",
            Py_TYPE(function)->tp_name);
    if (keywords != Py_None && !PyDict_Check(keywords))
      raise(PyExc_TypeError, "redispatch_function: 'kwargs' must be a dict or None, not %s",
            Py_TYPE(keywords)->tp_name);
    Ref tuple(must(PySequence_Tuple(given)));
    PyObject* named = keywords == Py_None ? nullptr : keywords;
    if (Py_TYPE(function) == overridable_type)
      return PyObject_Call(function_of(function), tuple.get(), named);
    if (!PyFunction_Check(function)) {
      const Disable all(kEverything);
      return PyObject_Call(function, tuple.get(), named);
    }
    const bool before = std::exchange(here.skip_next, true);
    PyObject* result = PyObject_Call(function, tuple.get(), named);
    here.skip_next = before;
    return result;
  });
}

PyObject* overridable_repr(PyObject* self) { return PyObject_Repr(function_of(self)); }

// Attributes are those of the function, which the object stands for.
PyObject* overridable_getattr(PyObject* self, PyObject* name) {
  if (PyUnicode_Compare(name, wrapped_name) == 0) return Py_NewRef(function_of(self));
  for (const char* own : {"__class__", "__reduce__", "__reduce_ex__", "__get__", "__call__"}) {
    if (PyUnicode_CompareWithASCIIString(name, own) == 0)
      return PyObject_GenericGetAttr(self, name);
  }
  return PyObject_GetAttr(function_of(self), name);
}
int overridable_setattr(PyObject* self, PyObject* name, PyObject* value) {
  return PyObject_SetAttr(function_of(self), name, value);
}
// Pickled by the name under which its module has it.
PyObject* overridable_reduce(PyObject* self, PyObject*) {
  return PyObject_GetAttrString(function_of(self), "__qualname__");
}

PyMethodDef overridable_methods[] = {{"__reduce__", overridable_reduce, METH_NOARGS, nullptr}, {}};
PyMemberDef overridable_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Overridable, vectorcall), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Overridable, weakrefs), READONLY, nullptr},
    {}};
PyType_Slot overridable_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(overridable_new)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_traverse, reinterpret_cast<void*>(overridable_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(overridable_clear)},
    {Py_tp_dealloc, reinterpret_cast<void*>(overridable_dealloc)},
    {Py_tp_descr_get, reinterpret_cast<void*>(overridable_bind)},
    {Py_tp_repr, reinterpret_cast<void*>(overridable_repr)},
    {Py_tp_getattro, reinterpret_cast<void*>(overridable_getattr)},
    {Py_tp_setattro, reinterpret_cast<void*>(overridable_setattr)},
    {Py_tp_methods, overridable_methods},
    {Py_tp_members, overridable_members},
    {Py_tp_doc,
     const_cast<char*>("overridable(function)\n--\n\nA function that calls __torch_function__ of "
                       "arguments that have it, and of modes.")},
    {}};
PyType_Spec overridable_spec = {"rabbet._C.overridable", sizeof(Overridable), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
                                    Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
                                overridable_slots};

struct Attribute {
  PyObject_HEAD PyObject* descriptor;  // owned: a getset descriptor, a property, ...
};
PyTypeObject* attribute_type;

PyObject* descriptor_of(PyObject* o) { return reinterpret_cast<Attribute*>(o)->descriptor; }

PyObject* attribute_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  PyObject* descriptor;
  static const char* names[] = {"descriptor", nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:overridable_attribute",
                                   const_cast<char**>(names), &descriptor))
    return nullptr;
  if (!Py_TYPE(descriptor)->tp_descr_get || !Py_TYPE(descriptor)->tp_descr_set) {
    PyErr_Format(PyExc_TypeError, "overridable_attribute: expected a data descriptor, got %s",
                 Py_TYPE(descriptor)->tp_name);
    return nullptr;
  }
  PyObject* self = type->tp_alloc(type, 0);
  if (self) reinterpret_cast<Attribute*>(self)->descriptor = Py_NewRef(descriptor);
  return self;
}
int attribute_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(descriptor_of(self));
  return 0;
}
int attribute_clear(PyObject* self) {
  Py_CLEAR(reinterpret_cast<Attribute*>(self)->descriptor);
  return 0;
}
void attribute_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  attribute_clear(self);
  type->tp_free(self);
  Py_DECREF(type);
}
// An override gets Tensor.shape.__get__ and so on.
PyObject* override_access(PyObject* self, const char* which, PyObject* const* args,
                          Py_ssize_t nargs) {
  Ref function(PyObject_GetAttrString(self, which));
  return function ? call_override(function.get(), args, nargs, nullptr) : nullptr;
}
PyObject* attribute_get(PyObject* self, PyObject* object, PyObject* type) {
  if (!object || object == Py_None) return Py_NewRef(self);
  if (__builtin_expect(slot_is_overridden(object), 0))
    return override_access(self, "__get__", &object, 1);
  PyObject* descriptor = descriptor_of(self);
  return Py_TYPE(descriptor)->tp_descr_get(descriptor, object, type);
}
int attribute_set(PyObject* self, PyObject* object, PyObject* value) {
  if (__builtin_expect(slot_is_overridden(object), 0)) {
    PyObject* args[] = {object, value};
    Ref done(override_access(self, value ? "__set__" : "__delete__", args, value ? 2 : 1));
    return done ? 0 : -1;
  }
  PyObject* descriptor = descriptor_of(self);
  return Py_TYPE(descriptor)->tp_descr_set(descriptor, object, value);
}
PyObject* attribute_repr(PyObject* self) { return PyObject_Repr(descriptor_of(self)); }
PyObject* attribute_getattr(PyObject* self, PyObject* name) {
  if (PyObject* own = PyObject_GenericGetAttr(self, name)) {
    if (PyUnicode_CompareWithASCIIString(name, "__doc__") != 0) return own;
    Py_DECREF(own);
  } else {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return nullptr;
    PyErr_Clear();
  }
  return PyObject_GetAttr(descriptor_of(self), name);
}

PyType_Slot attribute_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(attribute_new)},
    {Py_tp_traverse, reinterpret_cast<void*>(attribute_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(attribute_clear)},
    {Py_tp_dealloc, reinterpret_cast<void*>(attribute_dealloc)},
    {Py_tp_descr_get, reinterpret_cast<void*>(attribute_get)},
    {Py_tp_descr_set, reinterpret_cast<void*>(attribute_set)},
    {Py_tp_repr, reinterpret_cast<void*>(attribute_repr)},
    {Py_tp_getattro, reinterpret_cast<void*>(attribute_getattr)},
    {Py_tp_doc,
     const_cast<char*>("overridable_attribute(descriptor)\n--\n\nAn attribute whose access calls "
                       "__torch_function__ of the object.")},
    {}};
PyType_Spec attribute_spec = {"rabbet._C.overridable_attribute", sizeof(Attribute), 0,
                              Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, attribute_slots};

PyMethodDef torch_function_def = {
    "__torch_function__",
    reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(default_torch_function)),
    METH_CLASS | METH_VARARGS | METH_KEYWORDS,
    "Call a function and make its results tensors of this class."};
PyMethodDef as_subclass_def = {"as_subclass", method_as_subclass, METH_O,
                               "The same tensor as an object of a subclass of Tensor; gradients "
                               "flow through."};
PyMethodDef functions[] = {
    {"_disabled_torch_function_impl",
     reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(disabled_torch_function)),
     METH_VARARGS | METH_KEYWORDS, "The __torch_function__ of classes that override nothing."},
    {"_disabled_torch_dispatch_impl",
     reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(disabled_torch_dispatch)),
     METH_VARARGS | METH_KEYWORDS, "The __torch_dispatch__ of classes that define none."},
    {"call_override", call_override_of, METH_VARARGS, nullptr},
    {"has_torch_function", has_torch_function, METH_O, nullptr},
    {"has_torch_function_variadic",
     reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(has_torch_function_variadic)),
     METH_FASTCALL, nullptr},
    {"push_function_mode", push_mode, METH_O, nullptr},
    {"pop_function_mode", pop_mode, METH_NOARGS, nullptr},
    {"function_modes", mode_stack, METH_NOARGS, nullptr},
    {"redispatch_function", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(redispatch)),
     METH_VARARGS | METH_KEYWORDS, nullptr},
    {"set_overrides_disabled", set_disabled, METH_O, nullptr},
    {"overrides_disabled", get_disabled, METH_NOARGS, nullptr},
    {}};

void set_in_type(const char* name, PyObject* owned) {
  Ref value(must(owned));
  if (PyDict_SetItemString(tensor_type->tp_dict, name, value.get()) < 0) throw PythonError{};
}

PyTypeObject* new_type(PyObject* module, PyType_Spec* spec, const char* name) {
  auto* type = reinterpret_cast<PyTypeObject*>(must(PyType_FromSpec(spec)));
  if (PyModule_AddObjectRef(module, name, reinterpret_cast<PyObject*>(type)) < 0)
    throw PythonError{};
  return type;
}

// Attributes that are written in C. Methods, slots and operators test for overrides themselves.
void wrap_attributes() {
  Ref members(must(PyDict_Copy(tensor_type->tp_dict)));
  PyObject *name, *value;
  Py_ssize_t at = 0;
  while (PyDict_Next(members.get(), &at, &name, &value)) {
    const bool is_dict = PyUnicode_CompareWithASCIIString(name, "__dict__") == 0;
    if (!Py_IS_TYPE(value, &PyGetSetDescr_Type) || is_dict) continue;
    Ref wrapped(must(PyObject_CallOneArg(reinterpret_cast<PyObject*>(attribute_type), value)));
    if (PyDict_SetItem(tensor_type->tp_dict, name, wrapped.get()) < 0) throw PythonError{};
  }
}

}  // namespace

bool is_plain_subclass(PyObject* o) {
  PyTypeObject* type = Py_TYPE(o);
  if (!PyType_IsSubtype(type, tensor_type)) return false;
  if (override_of(type)) return here.disabled != kNothing;
  if (type->tp_version_tag) plain_subclass = {type, type->tp_version_tag};
  return true;
}

bool overrides(PyObject* o) {
  return override_of(Py_TYPE(o)) != nullptr && here.disabled == kNothing;
}

PyObject* call_slot_override(PyObject* function, PyObject* const* args, Py_ssize_t nargs) {
  return object_boundary([&] {
    Ref tuple = as_tuple(args, nargs);
    Ref kwargs(must(PyDict_New()));
    return call_overrides(function, overriding_values(args, nargs), tuple.get(), kwargs.get(),
                          true);
  });
}

bool is_overridden(PyObject* const* args, Py_ssize_t n) {
  if (__builtin_expect(modes_active, 0) && in_mode()) return true;
  if (here.disabled != kNothing) return false;
  bool found = false;
  for_each_value(args, n, [&](PyObject* o) { found = found || override_of(Py_TYPE(o)); });
  return found;
}

PyObject* call_override(PyObject* function, PyObject* const* args, Py_ssize_t nargs,
                        PyObject* kwnames) {
  return object_boundary([&] {
    const Py_ssize_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    Ref tuple = as_tuple(args, nargs);
    Ref kwargs(must(PyDict_New()));
    for (Py_ssize_t i = 0; i < keywords; ++i) {
      if (PyDict_SetItem(kwargs.get(), PyTuple_GET_ITEM(kwnames, i), args[nargs + i]) < 0)
        throw PythonError{};
    }
    return call_overrides(function, overriding_values(args, nargs + keywords), tuple.get(),
                          kwargs.get());
  });
}

PyObject* call_override(const char* name, std::initializer_list<PyObject*> args) {
  Ref function(PyObject_GetAttrString(reinterpret_cast<PyObject*>(tensor_type), name));
  if (!function) return nullptr;
  return call_override(function.get(), args.begin(), static_cast<Py_ssize_t>(args.size()), nullptr);
}

bool dispatches(PyTypeObject* cls) {
  PyObject* found = _PyType_Lookup(cls, dispatch_name);
  return found && found != disabled_dispatch;
}

bool join_dispatch(PyObject* tensor) {
  Ref module(PyImport_ImportModule("rabbet._torch_dispatch"));
  return module && Ref(PyObject_CallMethod(module.get(), "join", "O", tensor));
}

bool init_overrides(PyObject* module) {
  return boundary<bool>(false, [&] {
    protocol_name = must(PyUnicode_InternFromString("__torch_function__"));
    wrapped_name = must(PyUnicode_InternFromString("__wrapped__"));
    if (PyModule_AddFunctions(module, functions) < 0) throw PythonError{};
    disabled_function = must(PyObject_GetAttrString(module, functions[0].ml_name));
    dispatch_name = must(PyUnicode_InternFromString("__torch_dispatch__"));
    disabled_dispatch = must(PyObject_GetAttrString(module, functions[1].ml_name));
    set_in_type("__torch_dispatch__", Py_NewRef(disabled_dispatch));
    overridable_type = new_type(module, &overridable_spec, "overridable");
    attribute_type = new_type(module, &attribute_spec, "overridable_attribute");
    wrap_attributes();
    set_in_type("__torch_function__", PyDescr_NewClassMethod(tensor_type, &torch_function_def));
    set_in_type("as_subclass", PyDescr_NewMethod(tensor_type, &as_subclass_def));
    PyType_Modified(tensor_type);
    return true;
  });
}

}  // namespace rabbet::python
