#include "arguments.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "chosen_device.h"
#include "convert.h"
#include "core_ops.h"
#include "data.h"
#include "device/backends.h"
#include "masks.h"
#include "overrides.h"
#include "rules/shape_rules.h"
#include "tensor/dtype.h"
#include "tensor_type.h"
#include "thread/error.h"
#include "thread/thread_state.h"
#include "value_types.h"

namespace rabbet::python {

// ---- numbers

namespace {

struct NumpyTypes {  // looked up once NumPy is imported by someone; never imported from here
  PyTypeObject *ndarray = nullptr, *generic = nullptr, *integer = nullptr;
};

const NumpyTypes* numpy_types() {
  static NumpyTypes types;
  static bool found = false;
  if (found) return &types;
  Ref name(PyUnicode_FromString("numpy"));
  Ref module(name ? PyImport_GetModule(name.get()) : nullptr);
  if (!module) {
    PyErr_Clear();
    return nullptr;
  }
  NumpyTypes t;
  t.ndarray = reinterpret_cast<PyTypeObject*>(PyObject_GetAttrString(module.get(), "ndarray"));
  t.generic = reinterpret_cast<PyTypeObject*>(PyObject_GetAttrString(module.get(), "generic"));
  t.integer = reinterpret_cast<PyTypeObject*>(PyObject_GetAttrString(module.get(), "integer"));
  if (!t.ndarray || !t.generic || !t.integer) {  // being imported right now
    PyErr_Clear();
    return nullptr;
  }
  types = t;
  found = true;
  return &types;
}

// An int that no int64 holds.
[[gnu::cold]] void large_number(PyObject* o, RbValue* out) {
  out->v.u = PyLong_AsUnsignedLongLong(o);
  out->tag = RB_UINT;
  if (!PyErr_Occurred()) return;
  PyErr_Clear();
  PyLong_AsLongLong(o);  // the message of an int out of range
  throw PythonError{};
}

bool python_number(PyObject* o, RbValue* out, Arena& arena) {
  if (PyFloat_Check(o)) {
    *out = value_float(PyFloat_AS_DOUBLE(o));
    return true;
  }
  if (PyBool_Check(o)) {
    *out = value_bool(o == Py_True);
    return true;
  }
  if (PyLong_Check(o)) {
    int overflow = 0;
    const long long i = PyLong_AsLongLongAndOverflow(o, &overflow);
    if (i == -1 && !overflow && PyErr_Occurred()) throw PythonError{};
    *out = value_int(i);
    if (overflow) large_number(o, out);
    return true;
  }
  if (PyComplex_Check(o)) {
    double* parts = arena.take<double>(2);
    parts[0] = PyComplex_RealAsDouble(o);
    parts[1] = PyComplex_ImagAsDouble(o);
    out->tag = RB_COMPLEX;
    out->len = 0;
    out->v.fs = parts;
    return true;
  }
  return false;
}

// NumPy's long doubles, which are their own items: in the precision of Python's numbers.
bool long_number(PyObject* o, PyObject* item, RbValue* out, Arena& arena) {
  if (Py_TYPE(item) != Py_TYPE(o)) return false;
  Ref number(must(PyObject_HasAttrString(o, "__complex__")
                      ? PyObject_CallMethod(o, "__complex__", nullptr)
                      : PyNumber_Float(o)));
  return python_number(number.get(), out, arena);
}

}  // namespace

bool is_ndarray(PyObject* o) {
  const NumpyTypes* numpy = numpy_types();
  return numpy && PyObject_TypeCheck(o, numpy->ndarray);
}
bool is_numpy_scalar(PyObject* o) {
  const NumpyTypes* numpy = numpy_types();
  return numpy && PyObject_TypeCheck(o, numpy->generic);
}

bool is_number(PyObject* o) {
  return PyFloat_Check(o) || PyLong_Check(o) || PyComplex_Check(o) || is_numpy_scalar(o);
}

bool number_value(PyObject* o, RbValue* out, Arena& arena) {
  if (python_number(o, out, arena)) return true;
  if (is_tensor(o) || PyUnicode_Check(o) || is_ndarray(o)) return false;
  if (is_numpy_scalar(o)) {
    Ref item(must(PyObject_CallMethod(o, "item", nullptr)));
    return python_number(item.get(), out, arena) || long_number(o, item.get(), out, arena);
  }
  if (PyIndex_Check(o)) {
    Ref item(must(PyNumber_Index(o)));
    return python_number(item.get(), out, arena);
  }
  const PyNumberMethods* number = Py_TYPE(o)->tp_as_number;
  if (number && number->nb_float && !PySequence_Check(o)) {  // Fraction, Decimal
    Ref item(must(PyNumber_Float(o)));
    return python_number(item.get(), out, arena);
  }
  return false;
}

namespace {
// An int of one digit, which most are.
inline bool short_int(PyObject* o, int64_t* out) {
#if PY_VERSION_HEX >= 0x030c0000
  if (!PyLong_CheckExact(o) || !PyUnstable_Long_IsCompact(reinterpret_cast<PyLongObject*>(o)))
    return false;
  *out = PyUnstable_Long_CompactValue(reinterpret_cast<PyLongObject*>(o));
#else
  if (!PyLong_CheckExact(o)) return false;
  const Py_ssize_t size = Py_SIZE(o);
  if (size < 0 || size > 1) return false;
  *out = size ? static_cast<int64_t>(reinterpret_cast<PyLongObject*>(o)->ob_digit[0]) : 0;
#endif
  return true;
}
}  // namespace

bool int_value(PyObject* o, int64_t* out) {
  if (short_int(o, out)) return true;
  if (__builtin_expect(!PyLong_Check(o), 0)) {
    if (!PyIndex_Check(o) || is_tensor(o) || is_ndarray(o)) return false;
    const NumpyTypes* numpy = numpy_types();
    if (numpy && PyObject_TypeCheck(o, numpy->generic) && !PyObject_TypeCheck(o, numpy->integer))
      return false;
    Ref item(must(PyNumber_Index(o)));
    *out = PyLong_AsLongLong(item.get());
  } else {
    if (PyBool_Check(o)) return false;
    *out = PyLong_AsLongLong(o);
  }
  if (*out == -1 && PyErr_Occurred()) throw PythonError{};
  return true;
}

namespace {

std::string utf8(PyObject* text) {
  const char* s = PyUnicode_AsUTF8(text);
  if (s) return s;
  PyErr_Clear();
  return "?";
}

bool is_int_tensor(PyObject* o) {
  return is_tensor(o) && tensor_of(o)->ndim == 0 && is_integral(tensor_of(o)->dtype_id) &&
         tensor_of(o)->dtype_id != RB_BOOL8;
}

// ---- one argument

struct Converter {
  const Overload& overload;
  Arena& arena;
  Mismatch& mismatch;
  bool tensor_seen = false, number_seen = false;

  bool fail(Mismatch::Kind kind, int param, PyObject* got, int64_t detail = 0) {
    mismatch.kind = kind;
    mismatch.param = param;
    mismatch.got = got;
    mismatch.detail = detail;
    return false;
  }

  // The element of a tensor that stands for a number. The message names the argument.
  Ref item(int index, PyObject* o) {
    const Tensor* t = tensor_of(o);
    if (!(t->flags & RB_T_WRAPPER) && t->backend != kMeta) return tensor_item(t);
    const std::string what =
        std::string(overload.op->name) + "(): argument '" + utf8(overload.params[index].name) + "'";
    return tensor_item(t, what.c_str());
  }

  bool int_like(int index, PyObject* o, int64_t* out) {
    return int_value(o, out) || (is_int_tensor(o) && int_value(item(index, o).get(), out));
  }

  bool ints(int index, PyObject* o, RbValue* out) {
    const ParamSpec& p = overload.params[index];
    int64_t one;
    if (int_value(o, &one)) {
      const int n = p.fixed_len ? p.fixed_len : 1;
      int64_t* list = arena.take<int64_t>(n);
      for (int i = 0; i < n; ++i) list[i] = one;
      *out = value_ints(list, n);
      return true;
    }
    if (is_tensor(o)) return one_tensor(index, o, out);
    if (PyUnicode_Check(o) || !PySequence_Check(o)) return fail(Mismatch::kType, index, o);
    Ref items(must(PySequence_Tuple(o)));
    return int_items(index, &PyTuple_GET_ITEM(items.get(), 0), PyTuple_GET_SIZE(items.get()), o,
                     out);
  }

  // An integer tensor of one element as a list, unless an overload takes tensors there.
  bool one_tensor(int index, PyObject* o, RbValue* out) {
    const Tensor* t = tensor_of(o);
    if ((overload.lists_only >> index & 1) || t->numel != 1 || !is_integral(t->dtype_id) ||
        t->dtype_id == RB_BOOL8)
      return fail(Mismatch::kType, index, o);
    return ints(index, item(index, o).get(), out);
  }

  bool int_items(int index, PyObject* const* items, Py_ssize_t n, PyObject* whole, RbValue* out) {
    const ParamSpec& p = overload.params[index];
    int64_t* list = arena.take<int64_t>(static_cast<size_t>(n > p.fixed_len ? n : p.fixed_len) + 1);
    for (Py_ssize_t i = 0; i < n; ++i) {
      if (!int_like(index, items[i], &list[i])) {
        arena.hold(items[i]);
        return fail(Mismatch::kElement, index, items[i], i);
      }
    }
    if (p.fixed_len && n != p.fixed_len) {
      if (n == 1) {
        for (int i = 1; i < p.fixed_len; ++i) list[i] = list[0];
        n = p.fixed_len;
      } else if (n != 0 || !p.has_default || p.default_value.len != 0) {
        return fail(Mismatch::kLength, index, whole, n);
      }
    }
    *out = value_ints(list, static_cast<int>(n));
    return true;
  }

  bool floats(int index, PyObject* o, RbValue* out) {
    if (PyUnicode_Check(o) || is_tensor(o) || !PySequence_Check(o))
      return fail(Mismatch::kType, index, o);
    Ref items(must(PySequence_Tuple(o)));
    const Py_ssize_t n = PyTuple_GET_SIZE(items.get());
    double* list = arena.take<double>(static_cast<size_t>(n) + 1);
    for (Py_ssize_t i = 0; i < n; ++i) {
      PyObject* item = PyTuple_GET_ITEM(items.get(), i);
      RbValue v;
      if (!real_number(index, item, &v)) {
        arena.hold(item);
        return fail(Mismatch::kElement, index, item, i);
      }
      list[i] = v.v.f;
    }
    out->tag = RB_FLOATS;
    out->len = static_cast<uint32_t>(n);
    out->v.fs = list;
    return true;
  }

  // The items of a list or tuple, each by `item(object, at)`, which says whether it fits.
  template <class T, class Item>
  bool list_of(int index, PyObject* o, uint32_t tag, RbValue* out, const Item& item) {
    if (!PyTuple_Check(o) && !PyList_Check(o)) return fail(Mismatch::kType, index, o);
    Ref items(must(PySequence_Tuple(o)));
    const Py_ssize_t n = PyTuple_GET_SIZE(items.get());
    T* list = arena.take<T>(static_cast<size_t>(n) + 1);
    for (Py_ssize_t i = 0; i < n; ++i) {
      PyObject* object = PyTuple_GET_ITEM(items.get(), i);
      if (item(object, &list[i])) continue;
      arena.hold(object);
      return fail(Mismatch::kElement, index, object, i);
    }
    arena.hold(items.get());
    out->tag = tag;
    out->len = static_cast<uint32_t>(n);
    out->v.p = list;
    return true;
  }

  bool bools(int index, PyObject* o, RbValue* out) {
    return list_of<uint8_t>(index, o, RB_BOOLS, out, [](PyObject* item, uint8_t* to) {
      *to = item == Py_True;
      return PyBool_Check(item) != 0;
    });
  }
  bool strs(int index, PyObject* o, RbValue* out) {
    return list_of<const char*>(index, o, RB_STRS, out, [](PyObject* item, const char** to) {
      if (!PyUnicode_Check(item)) return false;
      *to = PyUnicode_AsUTF8(item);
      if (!*to) throw PythonError{};
      return true;
    });
  }
  bool scalars(int index, PyObject* o, RbValue* out) {
    return list_of<RbValue>(index, o, RB_SCALARS, out, [&](PyObject* number, RbValue* to) {
      *to = value_none();
      if (!is_tensor(number)) return number_value(number, to, arena);
      return tensor_of(number)->ndim == 0 && python_number(item(index, number).get(), to, arena);
    });
  }

  bool tensors(int index, PyObject* o, RbValue* out) {
    if (overload.params[index].variadic && is_tensor(o)) return tensor_items(index, &o, 1, out);
    if (!PyTuple_Check(o) && !PyList_Check(o)) return fail(Mismatch::kType, index, o);
    // A tuple of its own: a list might be changed while the operator runs.
    Ref items(must(PySequence_Tuple(o)));
    if (!tensor_items(index, PySequence_Fast_ITEMS(items.get()), PyTuple_GET_SIZE(items.get()),
                      out))
      return false;
    arena.hold(items.get());
    return true;
  }

  bool tensor_items(int index, PyObject* const* items, Py_ssize_t n, RbValue* out) {
    RbTensor** list = arena.take<RbTensor*>(static_cast<size_t>(n) + 1);
    for (Py_ssize_t i = 0; i < n; ++i) {
      PyObject* item = items[i];
      if (is_plain_tensor(item)) {
        list[i] = tensor_of(item);
        tensor_seen = true;
      } else if (item == Py_None && overload.params[index].optional_items) {
        list[i] = nullptr;
      } else if (overrides(item)) {
        return fail(Mismatch::kOverridden, index, item, i);
      } else {
        arena.hold(item);
        return fail(Mismatch::kElement, index, item, i);
      }
    }
    *out = value_tensors(list, static_cast<int>(n));
    return true;
  }

  // An int or float (also a 0-d tensor) as RB_FLOAT.
  bool real_number(int index, PyObject* o, RbValue* out) {
    if (PyFloat_CheckExact(o)) {
      *out = value_float(PyFloat_AS_DOUBLE(o));
      return true;
    }
    if (is_tensor(o)) {
      if (tensor_of(o)->ndim != 0) return false;
      python_number(item(index, o).get(), out, arena);
    } else if (!number_value(o, out, arena)) {
      return false;
    }
    if (out->tag == RB_COMPLEX) return false;
    if (out->tag == RB_UINT) *out = value_float(static_cast<double>(out->v.u));
    if (out->tag != RB_FLOAT) *out = value_float(static_cast<double>(out->v.i));
    return true;
  }

  bool scalar(int index, PyObject* o, RbValue* out) {
    if (is_tensor(o)) {
      if (tensor_of(o)->ndim != 0 || (overload.lists_only >> index & 1))
        return fail(Mismatch::kType, index, o);
      return python_number(item(index, o).get(), out, arena);
    }
    return number_value(o, out, arena) || fail(Mismatch::kType, index, o);
  }

  void check_single(int index, const Tensor* t) {
    if (t->ndim == 0) return;
    rabbet::fail(RB_E_ARG,
                 "%s: '%s' must be a number or a 0-dimension tensor, but got tensor with %d "
                 "dimensions",
                 overload.op->base.c_str(), utf8(overload.params[index].name).c_str(),
                 static_cast<int>(t->ndim));
  }

  // Formulas give numbers for any argument: so may the Python code of a kernel that passes its
  // arguments on.
  bool takes_number(int index) const {
    if (overload.params[index].numbers) return true;
    return rabbet::thread_state().nested > 0 && overload.params[index].type == RB_A_TENSOR &&
           overload.op->takes_numbers();
  }

  bool tensor(int index, PyObject* o, RbValue* out) {
    if (is_plain_tensor(o)) {
      *out = value_tensor(tensor_of(o));
      if (__builtin_expect(overload.params[index].single, 0)) check_single(index, tensor_of(o));
      return tensor_seen = true;
    }
    if (!is_builtin_or_tensor(o) && overrides(o)) return fail(Mismatch::kOverridden, index, o);
    if (takes_number(index) && number_value(o, out, arena)) return number_seen = true;
    return fail(Mismatch::kType, index, o);
  }

  // No argument is a tensor. Where the record allows it, the first number becomes one without
  // dimensions, of the dtype that the number has alone.
  [[gnu::cold]] bool only_numbers(RbValue* values) {
    if (!overload.op->numbers_only) return fail(Mismatch::kNoTensor, -1, nullptr);
    RbValue& number = values[overload.op->first_tensor];
    TensorRef t = make_tensor(Ref(must(value_to_python(&number))).get(), -1, nullptr);
    number = value_tensor(t.get());
    arena.hold(std::move(t));
    return true;
  }

  bool other(int index, PyObject* o, RbValue* out) {
    const ParamSpec& p = overload.params[index];
    switch (p.type) {
      case RB_A_INT:
      case RB_A_DIM:
      case RB_A_NEWDIM: {
        int64_t i;
        const bool tensor_is_for_another = (overload.lists_only >> index) & 1;
        if (tensor_is_for_another ? !int_value(o, &i) : !int_like(index, o, &i))
          return fail(Mismatch::kType, index, o);
        *out = value_int(i);
        return true;
      }
      case RB_A_FLOAT:
        return real_number(index, o, out) || fail(Mismatch::kType, index, o);
      case RB_A_SCALAR:
        return scalar(index, o, out);
      case RB_A_BOOL:
        if (!PyBool_Check(o)) {
          if (!is_numpy_scalar(o) || std::strncmp(Py_TYPE(o)->tp_name, "numpy.bool", 10) != 0) {
            return fail(Mismatch::kType, index, o);
          }
          const int truth = PyObject_IsTrue(o);
          if (truth < 0) throw PythonError{};
          *out = value_bool(truth != 0);
          return true;
        }
        *out = value_bool(o == Py_True);
        return true;
      case RB_A_STR: {
        if (!PyUnicode_Check(o)) return fail(Mismatch::kType, index, o);
        Py_ssize_t length;
        const char* text = PyUnicode_AsUTF8AndSize(o, &length);
        if (!text) throw PythonError{};
        out->tag = RB_STR;
        out->len = static_cast<uint32_t>(length);
        out->v.s = text;
        return true;
      }
      case RB_A_DTYPE: {
        const int dtype = dtype_of(o);
        if (dtype < 0) return fail(Mismatch::kType, index, o);
        *out = value_dtype(dtype);
        return true;
      }
      case RB_A_DEVICE: {
        if (!looks_like_device(o)) return fail(Mismatch::kType, index, o);
        const DeviceSpec device = parse_device(o);
        *out = value_device(device.backend, device.index);
        return true;
      }
      case RB_A_GENERATOR:
        if (Py_TYPE(o) != generator_type) return fail(Mismatch::kType, index, o);
        out->tag = RB_GENERATOR;
        out->len = 0;
        out->v.gen = reinterpret_cast<GeneratorObject*>(o)->state;
        return true;
      case RB_A_TENSORS:
        return tensors(index, o, out);
      case RB_A_FLOATS:
        return floats(index, o, out);
      case RB_A_BOOLS:
        return bools(index, o, out);
      case RB_A_STRS:
        return strs(index, o, out);
      case RB_A_SCALARS:
        return scalars(index, o, out);
      case RB_A_LAYOUT:
        if (Py_TYPE(o) != layout_type) return fail(Mismatch::kType, index, o);
        if (o != strided_layout) {
          mismatch.second = overload.params[index].name;
          return fail(Mismatch::kUnsupported, index, o);
        }
        *out = value_none();
        out->tag = RB_LAYOUT;
        out->v.i = RB_STRIDED;  // the only one
        return true;
      case RB_A_CALLABLE:
        if (!PyCallable_Check(o)) return fail(Mismatch::kType, index, o);
        *out = value_none();
        out->tag = RB_OBJECT;
        out->v.p = o;
        return true;
      default:  // dim[], perm, size[], bsize[], int[]
        return ints(index, o, out);
    }
  }

  // The first parameter from `index` on that has no default.
  [[gnu::cold]] bool missing(int index) {
    while (overload.params[index].has_default) ++index;
    return fail(Mismatch::kMissing, index, nullptr);
  }

  bool convert(int index, PyObject* o, RbValue* out) {
    const ParamSpec& p = overload.params[index];
    if (o == Py_None && p.optional) {
      *out = value_none();
      return true;
    }
    return __builtin_expect(p.type == RB_A_TENSOR, 1) ? tensor(index, o, out)
                                                      : other(index, o, out);
  }
};

// ---- keywords

struct Alias {
  const char *from, *to;
};
// NumPy's and PyTorch's other names of parameters.
const Alias kAliases[] = {
    {"axis", "dim"},
    {"axis", "dims"},
    {"keepdims", "keepdim"},
    {"x", "input"},
    {"a", "input"},
    {"x1", "input"},
    {"x2", "other"},
    {"self", "input"},
    {"input", "x"},
    {"size", "shape"},
    {"shape", "size"},
    {"split_size_or_sections", "split_size"},
    {"dims", "dim"},
    {"dim", "dims"},
    {"split_size_or_sections", "split_sizes"},
    {"split_size", "split_sizes"},
    {"axis0", "dim0"},
    {"axis1", "dim1"},
    {"element", "elements"},
    {"test_element", "test_elements"},
    {"other", "src"},
    {"tensor", "input"},
    {"a_min", "min"},
    {"a_max", "max"},
    {"ddof", "correction"},
};

int param_index(const Overload& overload, PyObject* name) {
  const int n = static_cast<int>(overload.params.size());
  for (int i = 0; i < n; ++i) {
    if (overload.params[i].name == name) return i;
  }
  for (int i = 0; i < n; ++i) {
    if (PyUnicode_Compare(overload.params[i].name, name) == 0) return i;
  }
  for (const Alias& alias : kAliases) {
    if (PyUnicode_CompareWithASCIIString(name, alias.from) != 0) continue;
    for (int i = 0; i < n; ++i) {
      if (PyUnicode_CompareWithASCIIString(overload.params[i].name, alias.to) == 0) return i;
    }
  }
  return -1;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> keyword_aliases() {
  std::vector<std::pair<std::string, std::string>> all;
  for (const Alias& alias : kAliases) all.emplace_back(alias.from, alias.to);
  return all;
}

namespace {

bool is_keyword(PyObject* name, const char* text) {
  return PyUnicode_CompareWithASCIIString(name, text) == 0;
}

// copy_(src, non_blocking), where the flag is not of the schema.
bool takes_non_blocking(const Overload& overload) { return overload.op->name == "copy"; }

enum class Extra { kTaken, kRefused, kUnknown };

// Keywords that every operator, or every creation, understands beside its schema.
Extra take_extra(const Overload& overload, PyObject* name, PyObject* value, Extras& extras) {
  if (is_keyword(name, "out")) {
    if (value != Py_None) extras.out = value;
    return Extra::kTaken;
  }
  if (overload.creation) {
    if (is_keyword(name, "requires_grad")) {
      extras.requires_grad = value;
      return Extra::kTaken;
    }
    if (is_keyword(name, "pin_memory")) {
      extras.pin_memory = value == Py_True;
      return PyBool_Check(value) || value == Py_None ? Extra::kTaken : Extra::kRefused;
    }
    if (is_keyword(name, "layout")) {
      return value == strided_layout || value == Py_None ? Extra::kTaken : Extra::kRefused;
    }
  }
  if (is_keyword(name, "memory_format") && overload.op->memory_format != FormatKeyword::kNone) {
    extras.memory_format = value;
    return Extra::kTaken;
  }
  if (is_keyword(name, "non_blocking") && takes_non_blocking(overload)) {
    extras.non_blocking = value == Py_True;
    return PyBool_Check(value) ? Extra::kTaken : Extra::kRefused;
  }
  return Extra::kUnknown;
}

bool parse_keywords(Converter& c, PyObject* const* args, PyObject* kwnames, uint64_t given,
                    RbValue* values, Extras& extras, uint64_t* all_given) {
  const Overload& overload = c.overload;
  const Py_ssize_t n = PyTuple_GET_SIZE(kwnames);
  for (Py_ssize_t k = 0; k < n; ++k) {
    PyObject* name = PyTuple_GET_ITEM(kwnames, k);
    const int index = param_index(overload, name);
    if (index < 0) {
      if (is_overridden(&args[k], 1)) return c.fail(Mismatch::kOverridden, -1, args[k]);
      const Extra extra = take_extra(overload, name, args[k], extras);
      if (extra == Extra::kTaken) continue;
      c.fail(extra == Extra::kRefused ? Mismatch::kUnsupported : Mismatch::kUnknown, -1, args[k]);
      c.mismatch.second = name;
      return false;
    }
    if (given >> index & 1) {
      c.mismatch.second = name;
      return c.fail(Mismatch::kTwice, index, args[k]);
    }
    given |= 1ull << index;
    if (!c.convert(index, args[k], &values[index])) return false;
  }
  *all_given = given;
  return true;
}

bool parse(Converter& c, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames,
           RbValue* values, Extras& extras) {
  const Overload& overload = c.overload;
  const int n = overload.op->info.nargs;
  PyObject* const* keywords = args + nargs;
  if (__builtin_expect(nargs == overload.positional + 1, 0) && takes_non_blocking(overload) &&
      PyBool_Check(args[nargs - 1])) {
    extras.non_blocking = args[--nargs] == Py_True;
  }
  Py_ssize_t positional = nargs;
  if (__builtin_expect(nargs > overload.positional, 0)) {
    positional = overload.varargs;
    if (positional < 0) return c.fail(Mismatch::kTooMany, -1, nullptr, nargs);
    PyObject* const* rest = args + positional;
    RbValue* list = &values[positional];
    int64_t first;
    if (overload.params[positional].variadic) {
      if (!c.tensor_items(static_cast<int>(positional), rest, nargs - positional, list))
        return false;
    } else if (!c.int_like(static_cast<int>(positional), *rest, &first)) {
      return c.fail(Mismatch::kTooMany, -1, nullptr, nargs);
    } else if (!c.int_items(static_cast<int>(positional), rest, nargs - positional, *rest, list)) {
      return false;
    }
  }
  for (Py_ssize_t i = 0; i < positional; ++i) {
    const ParamSpec& p = overload.params[i];
    if (p.type == RB_A_TENSOR && is_plain_tensor(args[i]) && !p.single) {
      values[i] = value_tensor(tensor_of(args[i]));
      c.tensor_seen = true;
      continue;
    }
    if (!c.convert(static_cast<int>(i), args[i], &values[i])) return false;
  }
  const int filled = static_cast<int>(positional == nargs ? nargs : overload.varargs + 1);
  const RbValue* const defaults = overload.defaults.data();
  if (kwnames && PyTuple_GET_SIZE(kwnames) > 0) {
    uint64_t given = (1ull << filled) - 1;
    if (!parse_keywords(c, keywords, kwnames, given, values, extras, &given)) return false;
    for (int i = filled; i < n; ++i) {
      if (given >> i & 1) continue;
      if (!overload.params[i].has_default) return c.fail(Mismatch::kMissing, i, nullptr);
      values[i] = defaults[i];
    }
  } else {
    if (filled < overload.required) return c.missing(filled);
    for (int i = filled; i < n; ++i) values[i] = defaults[i];
  }
  if (overload.chosen_at >= 0 && chosen_device && !extras.out)
    fill_chosen(values[overload.chosen_at]);
  if (__builtin_expect(overload.op->mask_args != 0, 0))
    replace_masks(*overload.op, values, c.arena);
  if (__builtin_expect(c.number_seen && !c.tensor_seen, 0)) return c.only_numbers(values);
  return true;
}

}  // namespace

Parsed parse_arguments(const Overload& overload, PyObject* const* args, Py_ssize_t nargs,
                       PyObject* kwnames, RbValue* values, Arena& arena, Extras& extras,
                       Mismatch& mismatch) {
  try {
    Converter converter{overload, arena, mismatch};
    if (parse(converter, args, nargs, kwnames, values, extras)) return Parsed::kYes;
    return mismatch.kind == Mismatch::kOverridden ? Parsed::kOverridden : Parsed::kNo;
  } catch (const PythonError&) {
  } catch (...) {
    raise_current_exception();
  }
  return Parsed::kError;
}

namespace {
bool is_int_list(int type) {
  return type == RB_A_DIMS || type == RB_A_PERM || type == RB_A_SIZE || type == RB_A_BSIZE ||
         type == RB_A_INTS;
}
}  // namespace

Overload make_overload(const Op* op) {
  Overload overload{op, {}, 0, -1, 0, false, nullptr};
  overload.creation = op->creation;
  for (const Param& p : op->params) {
    ParamSpec spec;
    spec.name = PyUnicode_InternFromString(p.name);  // kept: operators are never removed
    if (!spec.name) throw PythonError{};
    spec.type = p.type;
    spec.fixed_len = p.fixed_len;
    spec.optional = (p.flags & RB_ARG_OPTIONAL) != 0;
    spec.keyword_only = (p.flags & RB_ARG_KEYWORD_ONLY) != 0;
    spec.numbers = op->takes_number(overload.params.size());
    spec.has_default = p.has_default;
    spec.optional_items = p.optional_items;
    spec.single = op->single_args >> overload.params.size() & 1;
    spec.variadic = p.variadic;
    if (p.variadic) overload.varargs = overload.positional;
    spec.default_value = p.default_value;
    if (!spec.keyword_only) ++overload.positional;
    overload.params.push_back(spec);
    overload.defaults.push_back(spec.has_default ? spec.default_value : value_none());
    if (!spec.has_default) overload.required = static_cast<int>(overload.params.size());
    if (op->creation && is_int_list(p.type)) overload.sizes |= 1ull << (overload.params.size() - 1);
  }
  if (overload.creation) overload.chosen_at = chosen_device_at(op);
  const int last = overload.positional - 1;
  const bool alone = last == 0 || (last == 1 && op->params[0].type == RB_A_TENSOR);
  if (alone && is_int_list(op->params[last].type)) overload.varargs = last;
  return overload;
}

// ---- messages

namespace {

std::string type_name(PyObject* o) {
  if (is_tensor(o) && Py_TYPE(o) == tensor_type) return "Tensor";
  return Py_TYPE(o)->tp_name;
}

std::string expected(const ParamSpec& p) {
  std::string text;
  switch (p.type) {
    case RB_A_TENSOR:
      text = p.numbers ? "Tensor or number" : "Tensor";
      break;
    case RB_A_TENSORS:
      text = "tuple of Tensors";
      break;
    case RB_A_SCALAR:
      text = "number";
      break;
    case RB_A_INT:
    case RB_A_DIM:
    case RB_A_NEWDIM:
      text = "int";
      break;
    case RB_A_FLOAT:
      text = "float";
      break;
    case RB_A_BOOL:
      text = "bool";
      break;
    case RB_A_STR:
      text = "str";
      break;
    case RB_A_DTYPE:
      text = "dtype";
      break;
    case RB_A_DEVICE:
      text = "device";
      break;
    case RB_A_GENERATOR:
      text = "Generator";
      break;
    case RB_A_FLOATS:
      text = "tuple of floats";
      break;
    case RB_A_BOOLS:
      text = "tuple of bools";
      break;
    case RB_A_STRS:
      text = "tuple of strs";
      break;
    case RB_A_SCALARS:
      text = "tuple of numbers";
      break;
    case RB_A_LAYOUT:
      text = "layout";
      break;
    case RB_A_CALLABLE:
      text = "callable";
      break;
    default:
      text = "int or tuple of ints";
  }
  return p.optional ? text + " or None" : text;
}

}  // namespace

std::string describe(const Overload& overload, const Mismatch& m) {
  const std::string argument =
      m.param >= 0 ? "argument '" + utf8(overload.params[m.param].name) + "'" : std::string();
  switch (m.kind) {
    case Mismatch::kType:
      return argument + " must be " + expected(overload.params[m.param]) + ", not " +
             type_name(m.got);
    case Mismatch::kElement:
      return argument + " must be " + expected(overload.params[m.param]) + ", but element " +
             std::to_string(m.detail) + " is " + type_name(m.got);
    case Mismatch::kLength:
      return argument + " must have " + std::to_string(overload.params[m.param].fixed_len) +
             " elements, got " + std::to_string(m.detail);
    case Mismatch::kTooMany:
      return "takes at most " + std::to_string(overload.positional) + " positional argument" +
             (overload.positional == 1 ? "" : "s") + ", got " + std::to_string(m.detail);
    case Mismatch::kMissing:
      return "missing required " + argument;
    case Mismatch::kUnknown:
      return "got an unexpected keyword argument '" + utf8(m.second) + "'";
    case Mismatch::kUnsupported:
      return "the value given for '" + utf8(m.second) + "' (" + type_name(m.got) +
             ") is not supported here";
    case Mismatch::kTwice:
      return "got multiple values for " + argument;
    case Mismatch::kNoTensor:
      return "at least one argument must be a Tensor, all are numbers";
    default:
      return "the arguments do not fit";
  }
}

std::string describe_call(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  std::string text = "(";
  for (Py_ssize_t i = 0; i < nargs; ++i) text += (i ? ", " : "") + type_name(args[i]);
  for (Py_ssize_t k = 0; kwnames && k < PyTuple_GET_SIZE(kwnames); ++k) {
    text += (text.size() > 1 ? ", " : "") + utf8(PyTuple_GET_ITEM(kwnames, k)) + "=" +
            type_name(args[nargs + k]);
  }
  return text + ")";
}

}  // namespace rabbet::python
