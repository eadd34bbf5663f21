#include "op_type.h"

#include <structmember.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <unordered_map>

#include "call/core_functions.h"
#include "convert.h"
#include "data.h"
#include "device/backends.h"
#include "out.h"
#include "overrides.h"
#include "rules/infer.h"
#include "run_overload.h"
#include "tensor/dtype.h"
#include "tensor_type.h"
#include "value_types.h"

namespace rabbet::python {

PyTypeObject* op_type;

namespace {

struct OpObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  std::vector<Overload>* overloads;  // owned; Op objects live as long as the process
  const char* name;                  // owned
  bool inplace;
  PyObject* handle;      // owned: the registration that made it, or null
  int self_index;        // parameter that takes the method's object; 0 but for `x.where(condition,
                         // other)`
  PyObject* attributes;  // owned: those that were set, or null
  PyObject* weak_references;
};

OpObject* as_op(PyObject* o) { return reinterpret_cast<OpObject*>(o); }

// ---- the call

// copy_ with non_blocking=; apart from the calls that have no such argument.
__attribute__((noinline)) int32_t run_without_waiting(const Overload& overload,
                                                      const RbValue* values, RbValue* rets) {
  const NonBlocking copies(true);
  return run(overload, values, rets, RB_CALL_OUT);
}

PyObject* run_inplace(const OpObject* o, const Overload& overload, const RbValue* values,
                      PyObject* self, const Extras& extras) {
  if (extras.out) {
    PyErr_Format(PyExc_TypeError, "%s(): an in-place operator takes no argument 'out'", o->name);
    return nullptr;
  }
  if (values[0].tag != RB_TENSOR) {
    PyErr_Format(PyExc_TypeError, "%s(): the tensor to be written must come first", o->name);
    return nullptr;
  }
  RbValue rets[kMaxRets];
  rets[0] = values[0];
  RbValue given[kMaxParams];
  if (__builtin_expect(overload.op->dtype_arg >= 0, 0)) {
    std::copy(values, values + overload.op->info.nargs, given);
    const bool taken = boundary<bool>(false, [&] {
      take_dtype(*overload.op, values[0].v.t, given, true);
      return true;
    });
    if (!taken) return nullptr;
    values = given;
  }
  const int32_t code = __builtin_expect(extras.non_blocking, 0)
                           ? run_without_waiting(overload, values, rets)
                           : run(overload, values, rets, RB_CALL_OUT);
  return code == RB_OK ? Py_NewRef(self) : raise_error(code);
}

// The result of a creation as pin_memory= and requires_grad= ask for it.
PyObject* as_asked(Ref result, const Extras& extras) {
  if (extras.pin_memory)
    result = Ref(must(PyObject_CallMethod(result.get(), "pin_memory", nullptr)));
  if (extras.requires_grad) set_requires_grad(result.get(), extras.requires_grad);
  return result.release();
}

// With memory_format=.
PyObject* run_formatted(const OpObject* o, const Overload& overload, const RbValue* values,
                        const Extras& extras) {
  return object_boundary([&]() -> PyObject* {
    const bool itself = overload.op->memory_format == FormatKeyword::kItself;
    const MemoryFormat absent = itself ? MemoryFormat::kContiguous : MemoryFormat::kPreserve;
    const MemoryFormat format = memory_format_of(extras.memory_format, absent, o->name);
    // There is nothing to preserve, or the result would not be what its name says.
    const bool nothing = values[0].tag != RB_TENSOR && extras.memory_format != Py_None;
    if (format == MemoryFormat::kPreserve && (itself || nothing))
      raise(PyExc_RuntimeError, "%s(): preserve_format is not supported here", o->name);
    TensorRef made;
    if (itself) {
      made = TensorRef::share(values[0].v.t);
    } else {
      RbValue ret = value_none();
      const int32_t code = run(overload, values, &ret, 0);
      if (code != RB_OK) return raise_error(code);
      made = TensorRef(ret.v.t);
      // Of strides that fit the format too (dimensions of size 1), a new tensor has its own.
      if (format != MemoryFormat::kPreserve && made->ndim <= kMaxDims) {
        check_memory_format(format, made->ndim, made->shape, o->name);
        int64_t own[kMaxDims];
        format_strides(format, made->ndim, made->shape, own);
        if (std::memcmp(own, made->strides, made->ndim * sizeof(int64_t)))
          made = run_op(ops.contiguous_clone,
                        {value_tensor(made.get()), value_int(static_cast<int>(format))});
      }
    }
    return as_asked(Ref(must(wrap(in_format(made.get(), format, o->name).release_ownership()))),
                    extras);
  });
}

PyObject* finish(const OpObject* o, const Overload& overload, const RbValue* values,
                 PyObject* const* args, Py_ssize_t nargs, const Extras& extras) {
  if (__builtin_expect(o->inplace, 0)) {
    PyObject* self = nargs > 0 ? args[0] : nullptr;
    if (!self)
      self = wrap_borrowed(values[0].v.t);  // given by keyword
    else
      Py_INCREF(self);
    Ref owned(self);
    return self ? run_inplace(o, overload, values, self, extras) : nullptr;
  }
  if (__builtin_expect(extras.out || extras.memory_format, 0)) {
    return extras.out
               ? object_boundary([&] { return run_out(o->name, overload, values, extras.out); })
               : run_formatted(o, overload, values, extras);
  }
  const int nrets = overload.op->info.nrets;
  if (__builtin_expect(nrets == 1 && !extras.result_is_changed(), 1)) {
    RbValue ret = value_none();
    const int32_t code = run(overload, values, &ret, 0);
    if (__builtin_expect(code != RB_OK, 0)) return raise_error(code);
    if (__builtin_expect(ret.tag == RB_TENSOR, 1)) return wrap(ret.v.t);
    return object_boundary([&] { return results_to_python(overload.op, &ret, 1); });
  }
  RbValue rets[kMaxRets];
  for (int i = 0; i < nrets; ++i) rets[i] = value_none();
  const int32_t code = run(overload, values, rets, 0);
  if (__builtin_expect(code != RB_OK, 0)) return raise_error(code);
  return object_boundary(
      [&] { return as_asked(Ref(results_to_python(overload.op, rets, nrets)), extras); });
}

PyObject* no_match(const OpObject* o, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return object_boundary([&]() -> PyObject* {
    std::string text;
    for (const Overload& overload : *o->overloads) {
      RbValue values[kMaxParams];
      Arena arena;
      Extras extras;
      Mismatch mismatch;
      if (parse_arguments(overload, args, nargs, kwnames, values, arena, extras, mismatch) ==
          Parsed::kError) {
        PyErr_Clear();
      }
      const std::string why = describe(overload, mismatch);
      if (o->overloads->size() == 1) {
        text = std::string(o->name) + "(): " + why + "\n  " + overload.op->schema + "\n  got " +
               describe_call(args, nargs, kwnames);
      } else {
        text += "\n  " + overload.op->schema + ": " + why;
      }
    }
    if (o->overloads->size() > 1) {
      text = std::string(o->name) + "(): no signature takes " +
             describe_call(args, nargs, kwnames) + ":" + text;
    }
    PyErr_SetString(PyExc_TypeError, text.c_str());
    return nullptr;
  });
}

// PyTorch's deprecated signatures give keyword-only numbers by position, before the operands:
// add(input, alpha, other), addcmul(input, value, tensor1, tensor2), addmm(beta, input, alpha,
// mat1, mat2). They belong to the operators whose operands are tensors and whose options are
// numbers.
bool has_number_options(const Overload& overload) {
  int operands = 0, options = 0;
  for (const ParamSpec& p : overload.params) {
    if (!p.keyword_only && p.type != RB_A_TENSOR) return false;
    if (p.keyword_only && p.type != RB_A_SCALAR) return false;
    ++(p.keyword_only ? options : operands);
  }
  return operands > 1 && options > 0;
}

// Such a call with its numbers given by keyword; null without an exception: it is none.
PyObject* call_deprecated(PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                          PyObject* kwnames) {
  const OpObject* o = as_op(self);
  const Overload& overload = o->overloads->front();
  if (kwnames || nargs > kMaxParams || !has_number_options(overload)) return nullptr;
  PyObject *operands[kMaxParams], *numbers[kMaxParams];
  int n_operands = 0, n_numbers = 0;
  for (Py_ssize_t i = 0; i < nargs; ++i) {
    if (is_tensor(args[i]))
      operands[n_operands++] = args[i];
    else if (PyFloat_Check(args[i]) || PyLong_Check(args[i]) || PyComplex_Check(args[i]))
      numbers[n_numbers++] = args[i];
    else
      return nullptr;
  }
  const auto options = static_cast<int>(overload.params.size()) - overload.positional;
  const bool fits = n_operands == overload.positional && n_numbers > 0 && n_numbers <= options;
  if (!fits || !is_tensor(args[nargs - 1])) return nullptr;
  return object_boundary([&]() -> PyObject* {
    static bool warned = false;
    if (!warned) {
      warned = true;
      if (PyErr_WarnFormat(PyExc_UserWarning, 1,
                           "This overload of %s is deprecated: give its numbers by keyword, as in\n"
                           "\t%s",
                           o->name, overload.op->schema.c_str()) != 0)
        return nullptr;
    }
    const Ref names(must(PyTuple_New(n_numbers)));
    for (int i = 0; i < n_numbers; ++i) {
      PyTuple_SET_ITEM(names.get(), i, Py_NewRef(overload.params[overload.positional + i].name));
      operands[n_operands + i] = numbers[i];
    }
    return must(PyObject_Vectorcall(self, operands, static_cast<size_t>(n_operands), names.get()));
  });
}

PyObject* op_call(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  const OpObject* o = as_op(self);
  const Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
  for (const Overload& overload : *o->overloads) {
    RbValue values[kMaxParams];
    Arena arena;
    Extras extras;
    Mismatch mismatch;
    switch (parse_arguments(overload, args, nargs, kwnames, values, arena, extras, mismatch)) {
      case Parsed::kYes:
        return finish(o, overload, values, args, nargs, extras);
      case Parsed::kError:
        return nullptr;
      case Parsed::kOverridden:
        return call_override(self, args, nargs, kwnames);
      case Parsed::kNo:
        break;
    }
  }
  const Py_ssize_t total = nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  if (is_overridden(args, total)) return call_override(self, args, nargs, kwnames);
  if (PyObject* const result = call_deprecated(self, args, nargs, kwnames)) return result;
  if (PyErr_Occurred()) return nullptr;
  return no_match(o, args, nargs, kwnames);
}

// `x.where(condition, other)`: the object is not the first parameter of the record.
PyObject* op_call_moved(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  const OpObject* o = as_op(self);
  const Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
  if (nargs <= o->self_index) return op_call(self, args, nargsf, kwnames);
  const Py_ssize_t total = nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  if (is_overridden(args, total)) return call_override(self, args, nargs, kwnames);
  if (total > kMaxParams) return op_call(self, args, nargsf, kwnames);
  PyObject* moved[kMaxParams];
  for (Py_ssize_t i = 0; i < total; ++i) moved[i] = args[i];
  for (int i = 0; i < o->self_index; ++i) moved[i] = args[i + 1];
  moved[o->self_index] = args[0];
  return op_call(self, moved, static_cast<size_t>(nargs), kwnames);
}

// While a mode of __torch_function__ is active in some thread.
PyObject* op_call_in_mode(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  const Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
  const Py_ssize_t total = nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  if (is_overridden(args, total)) return call_override(self, args, nargs, kwnames);
  return (as_op(self)->self_index ? op_call_moved : op_call)(self, args, nargsf, kwnames);
}

vectorcallfunc entry_of(const OpObject* o) {
  if (modes_active) return op_call_in_mode;
  return o->self_index ? op_call_moved : op_call;
}

// ---- the object

PyObject* op_bind(PyObject* self, PyObject* object, PyObject*) {
  return object && object != Py_None ? PyMethod_New(self, object) : Py_NewRef(self);
}

// "mine::cube" is rabbet.ops.mine.cube.
PyObject* op_repr(PyObject* self) {
  const char* name = as_op(self)->name;
  const char* colons = std::strstr(name, "::");
  if (!colons) return PyUnicode_FromFormat("<operator rabbet.%s>", name);
  const std::string space(name, colons);
  return PyUnicode_FromFormat("<operator rabbet.ops.%s.%s>", space.c_str(), colons + 2);
}

PyObject* op_get_name(PyObject* self, void*) { return PyUnicode_FromString(as_op(self)->name); }

PyObject* op_get_doc(PyObject* self, void*) {
  std::string text;
  for (const Overload& overload : *as_op(self)->overloads) {
    if (!text.empty()) text += "\n\n";
    text += overload.op->schema + "\n\n" + overload.op->doc;
  }
  return PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
}

PyObject* op_get_module(PyObject*, void*) { return PyUnicode_FromString(shown_module.c_str()); }

// What `rabbet._signatures` makes of the operator's records: `what` is a function there.
PyObject* from_signatures(PyObject* self, const char* what) {
  const Ref module(PyImport_ImportModule("rabbet._signatures"));
  return module ? PyObject_CallMethod(module.get(), what, "O", self) : nullptr;
}
PyObject* op_get_defaults(PyObject* self, void*) { return from_signatures(self, "defaults"); }
PyObject* op_get_kwdefaults(PyObject* self, void*) { return from_signatures(self, "kwdefaults"); }
PyObject* op_get_annotations(PyObject* self, void*) { return from_signatures(self, "annotations"); }

// An attribute of functions: what was set, else what `Make` makes. The closure is its name.
template <getter Make>
PyObject* op_get(PyObject* self, void* name) {
  if (PyObject* const attributes = as_op(self)->attributes) {
    const Ref key(PyUnicode_FromString(static_cast<const char*>(name)));
    if (!key) return nullptr;
    if (PyObject* const found = PyDict_GetItemWithError(attributes, key.get()))
      return Py_NewRef(found);
    if (PyErr_Occurred()) return nullptr;
  }
  return Make(self, name);
}
int op_set(PyObject* self, PyObject* value, void* name) {
  const auto* const key = static_cast<const char*>(name);
  const Ref attributes(PyObject_GenericGetDict(self, nullptr));
  if (!attributes) return -1;
  if (value) return PyDict_SetItemString(attributes.get(), key, value);
  if (PyDict_DelItemString(attributes.get(), key) == 0) return 0;
  if (PyErr_ExceptionMatches(PyExc_KeyError)) PyErr_SetString(PyExc_AttributeError, key);
  return -1;
}
template <getter Make>
PyGetSetDef attribute(const char* name) {
  return {name, op_get<Make>, op_set, nullptr, const_cast<char*>(name)};
}

// `__signature__` is an attribute of operators only, as inspect expects no descriptor in their
// type.
PyObject* op_getattro(PyObject* self, PyObject* name) {
  PyObject* const found = PyObject_GenericGetAttr(self, name);
  if (found || !PyErr_ExceptionMatches(PyExc_AttributeError) || !PyUnicode_Check(name) ||
      PyUnicode_CompareWithASCIIString(name, "__signature__") != 0)
    return found;
  PyErr_Clear();
  return from_signatures(self, "signature");
}

PyObject* op_get_overloads(PyObject* self, void*) {
  return object_boundary([&] {
    const auto& overloads = *as_op(self)->overloads;
    Ref names(must(PyTuple_New(static_cast<Py_ssize_t>(overloads.size()))));
    for (size_t i = 0; i < overloads.size(); ++i) {
      PyTuple_SET_ITEM(names.get(), static_cast<Py_ssize_t>(i),
                       must(PyUnicode_FromString(overloads[i].op->name.c_str())));
    }
    return names.release();
  });
}
PyObject* op_get_handle(PyObject* self, void*) {
  PyObject* handle = as_op(self)->handle;
  return Py_NewRef(handle ? handle : Py_None);
}
PyObject* op_get_inplace(PyObject* self, void*) { return PyBool_FromLong(as_op(self)->inplace); }
// Pickled by name; rabbet._C.op finds it again.
PyObject* op_reduce(PyObject* self, PyObject*) {
  const OpObject* o = as_op(self);
  if (o->self_index) {  // another object than the function of that name
    const Ref builtins(PyImport_ImportModule("builtins"));
    const Ref find(builtins ? PyObject_GetAttrString(builtins.get(), "getattr") : nullptr);
    return find ? Py_BuildValue("O(Os)", find.get(), tensor_type, o->name) : nullptr;
  }
  Ref module(PyImport_ImportModule("rabbet._C"));
  if (!module) return nullptr;
  Ref finder(PyObject_GetAttrString(module.get(), "op"));
  return finder ? Py_BuildValue("O(s)", finder.get(), o->name) : nullptr;
}
PyObject* op_copy(PyObject* self, PyObject*) { return Py_NewRef(self); }
int op_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(as_op(self)->handle);
  Py_VISIT(as_op(self)->attributes);
  return 0;
}
int op_clear(PyObject* self) {
  Py_CLEAR(as_op(self)->handle);
  Py_CLEAR(as_op(self)->attributes);
  return 0;
}
void forget(const OpObject* o);
void op_dealloc(PyObject* self) {
  forget(as_op(self));
  PyObject_GC_UnTrack(self);
  PyObject_ClearWeakRefs(self);
  op_clear(self);
  delete as_op(self)->overloads;
  delete[] as_op(self)->name;
  PyObject_GC_Del(self);
}

PyGetSetDef op_getset[] = {
    attribute<op_get_name>("__name__"),
    attribute<op_get_name>("__qualname__"),
    attribute<op_get_doc>("__doc__"),
    attribute<op_get_module>("__module__"),
    attribute<op_get_defaults>("__defaults__"),
    attribute<op_get_kwdefaults>("__kwdefaults__"),
    attribute<op_get_annotations>("__annotations__"),
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {"overloads", op_get_overloads, nullptr, "Names of the records that it calls, in order.",
     nullptr},
    {"handle", op_get_handle, nullptr,
     "The registration of an operator that rabbet.library made, else None.", nullptr},
    {"inplace", op_get_inplace, nullptr, "Whether it writes its first argument.", nullptr},
    {}};
PyMethodDef op_methods[] = {{"__reduce__", op_reduce, METH_NOARGS, nullptr},
                            {"__copy__", op_copy, METH_NOARGS, nullptr},
                            {"__deepcopy__", op_copy, METH_O, nullptr},
                            {}};
PyMemberDef op_members[] = {{"self_index", T_INT, offsetof(OpObject, self_index), READONLY,
                             "Position of the parameter that takes the object of a method."},
                            {}};

// A static type: one from a spec keeps its own `__module__` and `__doc__` in the dict where the
// attributes of its instances are, and programs that read them from the type would get descriptors.
PyTypeObject make_op_type() {
  PyTypeObject type = {PyVarObject_HEAD_INIT(nullptr, 0)};
  type.tp_name = "rabbet.Op";
  type.tp_doc = PyDoc_STR("An operator. Called like a function; a method where a class has it.");
  type.tp_basicsize = sizeof(OpObject);
  type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR |
                  Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_HAVE_GC;
  type.tp_vectorcall_offset = offsetof(OpObject, vectorcall);
  type.tp_dictoffset = offsetof(OpObject, attributes);
  type.tp_weaklistoffset = offsetof(OpObject, weak_references);
  type.tp_call = PyVectorcall_Call;
  type.tp_descr_get = op_bind;
  type.tp_repr = op_repr;
  type.tp_getattro = op_getattro;
  type.tp_dealloc = op_dealloc;
  type.tp_traverse = op_traverse;
  type.tp_clear = op_clear;
  type.tp_getset = op_getset;
  type.tp_methods = op_methods;
  type.tp_members = op_members;
  return type;
}
PyTypeObject static_op_type = make_op_type();

// ---- all objects, by name

struct Objects {
  std::unordered_map<std::string, PyObject*>
      by_name;                     // owned; "add", "subtract", "add_", "max.dim"
  std::vector<std::string> names;  // public ones, in record order
  std::vector<OpObject*> all;      // borrowed; methods that are no functions included
  std::unordered_map<const Op*, PyTypeObject*> results;
  std::unordered_map<const Op*, bool> seen;
  std::map<std::string, std::map<std::string, PyObject*>> modules;  // borrowed; `expose linalg`
};
Objects& objects() {  // guarded by Python's lock
  static Objects* instance = new Objects;
  return *instance;
}

void forget(const OpObject* o) {
  std::vector<OpObject*>& all = objects().all;
  all.erase(std::remove(all.begin(), all.end(), o), all.end());
}

char* copy_text(const std::string& text) {
  char* copy = new char[text.size() + 1];
  std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

PyObject* new_op(const std::string& name, bool inplace, int self_index = 0) {
  PyObject* self = must(op_type->tp_alloc(op_type, 0));
  OpObject* o = as_op(self);
  o->overloads = new std::vector<Overload>;
  o->name = copy_text(name);
  o->inplace = inplace;
  o->self_index = self_index;
  o->vectorcall = entry_of(o);
  objects().all.push_back(o);
  return self;
}

// Tensors decide between max.dim(input, dim) and max.other(input, other).
void settle_lists(std::vector<Overload>& overloads) {
  for (Overload& overload : overloads) {
    overload.lists_only = 0;
    for (size_t i = 0; i < overload.params.size(); ++i) {
      for (const Overload& other : overloads) {
        if (&other == &overload || i >= other.params.size()) continue;
        const ParamSpec &p = overload.params[i], &q = other.params[i];
        const bool is_rival = p.type != RB_A_SCALAR || p.name == q.name;  // linspace(start, ...)
        if (q.type == RB_A_TENSOR && is_rival) overload.lists_only |= 1 << i;
      }
    }
  }
}

PyObject* object_named(const std::string& name, bool inplace) {
  PyObject*& o = objects().by_name[name];
  if (!o) o = new_op(name, inplace);
  return o;
}

// Overload lists are replaced, never changed: a call without Python's lock may be reading the old.
void set_overloads(PyObject* o, std::vector<Overload>* fresh) {
  if (as_op(o)->overloads->empty()) delete as_op(o)->overloads;
  as_op(o)->overloads = fresh;
  settle_lists(*fresh);
}

void add_overload(PyObject* o, const Op* op) {
  auto fresh = std::make_unique<std::vector<Overload>>(*as_op(o)->overloads);
  fresh->push_back(make_overload(op));
  set_overloads(o, fresh.release());
}

void set_method(const std::string& name, PyObject* o) {
  // What the type defines itself (view(dtype), `T`) stays.
  Ref key(must(PyUnicode_FromString(name.c_str())));
  if (PyDict_Contains(tensor_type->tp_dict, key.get())) return;
  if (PyObject_SetAttr(reinterpret_cast<PyObject*>(tensor_type), key.get(), o) < 0)
    throw PythonError{};
}

int method_self(const Op* op) {
  for (size_t i = 0; i < op->params.size(); ++i) {
    if (op->params[i].name_text == "input" && op->params[i].type == RB_A_TENSOR)
      return static_cast<int>(i);
  }
  return 0;
}

void add_names(const Op* op, const std::string& name) {
  Objects& all = objects();
  const bool exposed = op->as_function || op->as_method;
  if (exposed || op->name == name) {
    PyObject* o = object_named(name, false);
    const auto is_function = [](const Overload& overload) { return overload.op->as_function; };
    const std::vector<Overload>& there = *as_op(o)->overloads;
    if (op->as_function && std::none_of(there.begin(), there.end(), is_function))
      all.names.push_back(name);
    add_overload(o, op);
    if (op->as_method) {
      const int self_index = method_self(op);
      if (self_index == 0) {
        set_method(name, o);
      } else {
        PyObject* method = new_op(name, false, self_index);
        add_overload(method, op);
        set_method(name, method);
        Py_DECREF(method);
      }
    }
  }
  if (op->as_inplace) {
    PyObject* o = object_named(name + "_", true);
    add_overload(o, op);
    set_method(name + "_", o);
  }
}

void add_to_modules(const Op* op) {
  if (op->exposed_in.empty()) return;
  PyObject* o = object_named(op->base, false);
  const std::vector<Overload>& there = *as_op(o)->overloads;
  const auto is_op = [&](const Overload& overload) { return overload.op == op; };
  if (std::none_of(there.begin(), there.end(), is_op)) add_overload(o, op);
  for (const ModuleName& place : op->exposed_in) objects().modules[place.module][place.name] = o;
}

void forget_in_modules(const PyObject* o) {
  auto& modules = objects().modules;
  for (auto module = modules.begin(); module != modules.end();) {
    auto& ops = module->second;
    for (auto op = ops.begin(); op != ops.end();) op = op->second == o ? ops.erase(op) : ++op;
    module = ops.empty() ? modules.erase(module) : ++module;
  }
}

// Take out what was taken back or replaced; the lists that are empty then, as they were.
std::unordered_map<std::string, std::vector<Overload>*> drop_retired() {
  std::unordered_map<std::string, std::vector<Overload>*> emptied;
  for (auto& [name, object] : objects().by_name) {
    auto* const old = as_op(object)->overloads;
    auto alive = std::make_unique<std::vector<Overload>>();
    for (const Overload& overload : *old) {
      if (!overload.op->retired) alive->push_back(overload);
    }
    if (alive->size() == old->size()) continue;
    if (alive->empty()) emptied[name] = old;
    set_overloads(object, alive.release());
  }
  return emptied;
}

// Names that are free now. What still refers to their objects gets an error when it calls them.
void forget_names(const std::unordered_map<std::string, std::vector<Overload>*>& emptied) {
  Objects& all = objects();
  for (const auto& [name, old] : emptied) {
    PyObject* object = all.by_name[name];
    if (!as_op(object)->overloads->empty()) continue;
    as_op(object)->overloads = old;
    all.by_name.erase(name);
    all.names.erase(std::remove(all.names.begin(), all.names.end(), name), all.names.end());
    Py_CLEAR(as_op(object)->handle);
    forget_in_modules(object);
    Py_DECREF(object);
  }
}

}  // namespace

const std::vector<Overload>& overloads_of(PyObject* op) {
  if (Py_TYPE(op) != op_type)
    raise(PyExc_TypeError, "expected an Op, got %s", Py_TYPE(op)->tp_name);
  return *as_op(op)->overloads;
}

void set_op_handle(PyObject* op, PyObject* handle) {
  if (Py_TYPE(op) != op_type)
    raise(PyExc_TypeError, "expected an Op, got %s", Py_TYPE(op)->tp_name);
  Py_XSETREF(as_op(op)->handle, Py_NewRef(handle));
}

void refresh_ops() {
  Objects& all = objects();
  const auto emptied = drop_retired();
  for (const Op* op : all_ops()) {
    if (all.seen[op]) continue;
    all.seen[op] = true;
    if (op->params.size() > static_cast<size_t>(kMaxParams)) {
      raise(PyExc_RuntimeError, "operator '%s' has more than %d parameters", op->name.c_str(),
            kMaxParams);
    }
    if (op->name != op->base) add_overload(object_named(op->name, false), op);
    add_names(op, op->base);
    for (const std::string& alias : op->aliases) add_names(op, alias);
    add_to_modules(op);
  }
  forget_names(emptied);
}

void init_op_type(PyObject* module) {
  if (PyType_Ready(&static_op_type) < 0) throw PythonError{};
  op_type = &static_op_type;
  if (PyModule_AddObjectRef(module, "Op", reinterpret_cast<PyObject*>(op_type)) < 0)
    throw PythonError{};
  refresh_ops();
}

PyObject* find_op_object(const std::string& name) {
  auto found = objects().by_name.find(name);
  return found == objects().by_name.end() ? nullptr : found->second;
}

void update_op_entries() {
  for (OpObject* o : objects().all) o->vectorcall = entry_of(o);
}

std::vector<std::string> public_op_names() { return objects().names; }

std::vector<std::string> op_modules() {
  std::vector<std::string> names;
  for (const auto& [name, ops] : objects().modules) names.push_back(name);
  return names;
}

PyObject* ops_of_module(const std::string& module) {
  Ref found(must(PyDict_New()));
  const auto ops = objects().modules.find(module);
  if (ops == objects().modules.end()) return found.release();
  for (const auto& [name, op] : ops->second) {
    if (PyDict_SetItemString(found.get(), name.c_str(), op) < 0) throw PythonError{};
  }
  return found.release();
}

// ---- results

PyTypeObject* result_type(const Op* op) {
  PyTypeObject*& type = objects().results[op];
  if (type) return type;
  const bool overload = op->name.compare(0, op->base.size() + 1, op->base + ".") == 0;
  std::string name = "rabbet.return_types." + (overload ? op->base : op->name);
  for (size_t i = sizeof "rabbet.return_types"; i < name.size(); ++i) {
    if (name[i] == '.' || name[i] == ':') name[i] = '_';
  }
  const size_t n = op->ret_names.size();
  auto* fields = new PyStructSequence_Field[n + 1];
  for (size_t i = 0; i < n; ++i) fields[i] = {op->ret_names[i].c_str(), nullptr};
  fields[n] = {nullptr, nullptr};
  PyStructSequence_Desc desc = {copy_text(name), copy_text(op->doc), fields, static_cast<int>(n)};
  PyTypeObject* made = PyStructSequence_NewType(&desc);
  if (!made) throw PythonError{};
  return type = made;
}

PyObject* result_types() {
  Ref dict(must(PyDict_New()));
  for (const Op* op : all_ops()) {
    if (op->ret_names.size() < 2) continue;
    PyTypeObject* type = result_type(op);
    const char* name = std::strrchr(type->tp_name, '.') + 1;
    if (PyDict_SetItemString(dict.get(), name, reinterpret_cast<PyObject*>(type)) < 0)
      throw PythonError{};
  }
  return dict.release();
}

namespace {

PyObject* take_result(RbValue* v) {
  if (v->tag == RB_TENSOR) {
    RbTensor* t = v->v.t;
    *v = value_none();
    return must(wrap(t));
  }
  if (v->tag == RB_TENSORS) {
    Ref tuple(must(PyTuple_New(v->len)));
    auto** ts = const_cast<RbTensor**>(v->v.ts);
    for (uint32_t i = 0; i < v->len; ++i) {
      RbTensor* t = ts[i];
      ts[i] = nullptr;
      PyTuple_SET_ITEM(tuple.get(), i, t ? must(wrap(t)) : Py_NewRef(Py_None));
    }
    return tuple.release();
  }
  return must(value_to_python(v));
}

struct ReleaseAll {
  RbValue* rets;
  int n;
  ~ReleaseAll() {
    for (int i = 0; i < n; ++i) value_release(&rets[i]);
  }
};

}  // namespace

PyObject* results_to_python(const Op* op, RbValue* rets, int nrets) {
  ReleaseAll rest{rets, nrets};
  if (nrets == 0) return Py_NewRef(Py_None);
  if (nrets == 1) return take_result(&rets[0]);
  Ref result(must(PyStructSequence_New(result_type(op))));
  for (int i = 0; i < nrets; ++i) PyStructSequence_SetItem(result.get(), i, take_result(&rets[i]));
  return result.release();
}

}  // namespace rabbet::python
