// Number slots of Tensor: a + b, a += b, -a, a < b, int(a) ...
#include <utility>
#include <vector>

#include "arguments.h"
#include "convert.h"
#include "core_ops.h"
#include "data.h"
#include "device/backends.h"
#include "errors.h"
#include "op_type.h"
#include "overrides.h"
#include "tensor/dtype.h"
#include "tensor_type.h"

namespace rabbet::python {

int64_t slot_call_limit = kLargeCall;

namespace {

// A tensor, or a number if the operator's schema takes one there; false: Python should ask the
// other operand.
inline bool operand(const Op* op, PyObject* o, RbValue* v, Arena& arena) {
  if (is_plain_tensor(o)) {
    *v = value_tensor(tensor_of(o));
    return true;
  }
  if (op->takes_numbers() && number_value(o, v, arena)) return true;
  if (PyErr_Occurred()) throw PythonError{};
  if (!is_ndarray(o)) return false;
  TensorRef t = as_tensor(o, -1, nullptr);
  *v = value_tensor(t.get());
  arena.hold(std::move(t));
  return true;
}

// What a slot computes is the operator's function for __torch_function__; `2 - x` is
// Tensor.__rsub__(x, 2).
struct Reflected {
  const Op* CoreOps::* op;
  const char* name;
};
const Reflected kReflected[] = {
    {&CoreOps::sub, "__rsub__"},
    {&CoreOps::div, "__rtruediv__"},
    {&CoreOps::floor_divide, "__rfloordiv__"},
    {&CoreOps::remainder, "__rmod__"},
    {&CoreOps::pow, "__rpow__"},
    {&CoreOps::matmul, "__rmatmul__"},
    {&CoreOps::bitwise_left_shift, "__rlshift__"},
    {&CoreOps::bitwise_right_shift, "__rrshift__"},
};

bool is_overridden_pair(PyObject* a, PyObject* b) {
  if (!modes_active && is_builtin_or_tensor(a) && is_builtin_or_tensor(b)) return false;
  PyObject* const both[] = {a, b};
  return is_overridden(both, 2);
}

__attribute__((noinline)) PyObject* override_slot(const Op* op, PyObject* a, PyObject* b,
                                                  const char* suffix = "") {
  return object_boundary([&]() -> PyObject* {
    PyObject* args[] = {a, b};
    PyObject* function = find_op_object(op->name + suffix);
    Ref reflection;
    if (b && !is_tensor(a) && !overrides(a)) {
      std::swap(args[0], args[1]);
      for (const Reflected& reflected : kReflected) {
        if (ops.*reflected.op == op)
          reflection = Ref(must(
              PyObject_GetAttrString(reinterpret_cast<PyObject*>(tensor_type), reflected.name)));
      }
    }
    return call_slot_override(reflection ? reflection.get() : function, args, b ? 2 : 1);
  });
}

// The same for values that a slot has parsed already. Null without an exception: no mode is active
// in this thread.
__attribute__((noinline)) PyObject* override_values(const Op* op, const RbValue* values) {
  const Ref a(value_to_python(&values[0]));
  const Ref b(values[1].tag == RB_NONE ? nullptr : value_to_python(&values[1]));
  PyObject* args[] = {a.get(), b.get()};
  return is_overridden(args, b ? 2 : 1) ? override_slot(op, args[0], args[1]) : nullptr;
}

// Calls on many elements, and all calls while a mode is active.
__attribute__((noinline)) PyObject* finish_slowly(const Op* op, const RbValue* values) {
  if (modes_active) {
    PyObject* result = override_values(op, values);
    if (result || PyErr_Occurred()) return result;
  }
  RbValue ret = value_none();
  int32_t code;
  {
    const WithoutGil unlocked;
    code = call(op, values, op->info.nargs, &ret, 1);
  }
  return code == RB_OK ? wrap(ret.v.t) : raise_error(code);
}

inline PyObject* finish(const Op* op, RbValue* values, int given) {
  const int n = op->info.nargs;
  fill_defaults(op, values, given);
  const int64_t elements = (values[0].tag == RB_TENSOR ? values[0].v.t->numel : 0) +
                           (values[1].tag == RB_TENSOR ? values[1].v.t->numel : 0);
  if (__builtin_expect(elements >= slot_call_limit, 0)) return finish_slowly(op, values);
  RbValue ret = value_none();
  const int32_t code = call(op, values, n, &ret, 1);
  return __builtin_expect(code == RB_OK, 1) ? wrap(ret.v.t) : raise_error(code);
}

// Of operands that are not both of the exact type Tensor.
template <const Op* CoreOps::* Which>
__attribute__((noinline)) PyObject* binary_of_others(PyObject* a, PyObject* b) {
  return object_boundary([&]() -> PyObject* {
    RbValue values[kMaxParams];
    Arena arena;
    const Op* op = ops.*Which;
    if (is_overridden_pair(a, b)) return override_slot(op, a, b);
    if (!operand(op, a, &values[0], arena) || !operand(op, b, &values[1], arena))
      Py_RETURN_NOTIMPLEMENTED;
    return finish(op, values, 2);
  });
}

template <const Op* CoreOps::* Which>
PyObject* binary(PyObject* a, PyObject* b) {
  if (__builtin_expect(Py_TYPE(a) != tensor_type || Py_TYPE(b) != tensor_type, 0))
    return binary_of_others<Which>(a, b);
  RbValue values[kMaxParams];
  values[0] = value_tensor(tensor_of(a));
  values[1] = value_tensor(tensor_of(b));
  return finish(ops.*Which, values, 2);
}

template <const Op* CoreOps::* Which>
PyObject* inplace(PyObject* a, PyObject* b) {
  return object_boundary([&]() -> PyObject* {
    RbValue values[kMaxParams];
    Arena arena;
    const Op* op = ops.*Which;
    if (is_overridden_pair(a, b)) return override_slot(op, a, b, "_");
    values[0] = value_tensor(tensor_of(a));
    if (!operand(op, b, &values[1], arena)) Py_RETURN_NOTIMPLEMENTED;
    fill_defaults(op, values, 2);
    RbValue target = values[0];
    check(call(op, values, op->info.nargs, &target, 1, RB_CALL_OUT));
    return Py_NewRef(a);
  });
}

PyObject* power(PyObject* a, PyObject* b, PyObject* modulus) {
  if (modulus != Py_None) {
    PyErr_SetString(PyExc_TypeError, "pow() of tensors takes no modulus");
    return nullptr;
  }
  return binary<&CoreOps::pow>(a, b);
}
PyObject* inplace_power(PyObject* a, PyObject* b, PyObject*) {
  return inplace<&CoreOps::pow>(a, b);
}

template <const Op* CoreOps::* Which>
PyObject* unary(PyObject* a) {
  if (slot_is_overridden(a)) return override_slot(ops.*Which, a, nullptr);
  RbValue values[kMaxParams];
  values[0] = value_tensor(tensor_of(a));
  values[1] = value_none();
  return finish(ops.*Which, values, 1);
}

PyObject* positive(PyObject* a) {
  return slot_is_overridden(a) ? override_slot(ops.positive, a, nullptr) : Py_NewRef(a);
}

Ref item_of(PyObject* a, const char* what) {
  const Tensor* t = tensor_of(a);
  if (t->numel != 1) {
    raise(PyExc_ValueError,
          "%s of a tensor with %lld elements is ambiguous: it must have one element", what,
          static_cast<long long>(t->numel));
  }
  return tensor_item(t, what);
}

int truth(PyObject* a) {
  if (slot_is_overridden(a)) {
    const Ref result(call_override("__bool__", {a}));
    return result ? PyObject_IsTrue(result.get()) : -1;
  }
  return boundary<int>(-1, [&] { return PyObject_IsTrue(item_of(a, "the truth value").get()); });
}
// The element as a real number; a complex one must have no imaginary part.
Ref real_item_of(PyObject* a, const char* what, const char* type) {
  Ref item = item_of(a, what);
  if (!PyComplex_Check(item.get())) return item;
  if (PyComplex_ImagAsDouble(item.get()) != 0)
    raise(PyExc_RuntimeError, "%s: value cannot be converted to type %s without overflow", what,
          type);
  return Ref(must(PyFloat_FromDouble(PyComplex_RealAsDouble(item.get()))));
}
PyObject* to_int(PyObject* a) {
  if (slot_is_overridden(a)) return call_override("__int__", {a});
  return object_boundary([&] { return PyNumber_Long(real_item_of(a, "int()", "int64").get()); });
}
PyObject* to_float(PyObject* a) {
  if (slot_is_overridden(a)) return call_override("__float__", {a});
  return object_boundary(
      [&] { return PyNumber_Float(real_item_of(a, "float()", "float64").get()); });
}
PyObject* to_index(PyObject* a) {
  if (slot_is_overridden(a)) return call_override("__index__", {a});
  return object_boundary([&] {
    const Tensor* t = tensor_of(a);
    if (!is_integral(t->dtype_id) || t->numel != 1) {
      raise(PyExc_TypeError, "only integer tensors of one element can be used as an index");
    }
    return PyNumber_Long(tensor_item(t, "an index").get());
  });
}

PyObject* compare(PyObject* a, PyObject* b, int which) {
  static const Op* CoreOps::* const table[] = {&CoreOps::lt, &CoreOps::le, &CoreOps::eq,
                                               &CoreOps::ne, &CoreOps::gt, &CoreOps::ge};
  return object_boundary([&]() -> PyObject* {
    RbValue values[kMaxParams];
    Arena arena;
    const Op* op = ops.*table[which];
    if (is_overridden_pair(a, b)) return override_slot(op, a, b);
    if (b == Py_None || !operand(op, a, &values[0], arena) || !operand(op, b, &values[1], arena))
      Py_RETURN_NOTIMPLEMENTED;
    return finish(op, values, 2);
  });
}

Py_ssize_t length(PyObject* a) {
  if (slot_is_overridden(a)) {
    const Ref result(call_override("__len__", {a}));
    return result ? PyNumber_AsSsize_t(result.get(), PyExc_OverflowError) : -1;
  }
  const Tensor* t = tensor_of(a);
  if (t->ndim == 0) {
    PyErr_SetString(PyExc_TypeError, "len() of a 0-d tensor");
    return -1;
  }
  return static_cast<Py_ssize_t>(t->shape[0]);
}

PyObject* iterate(PyObject* a) {
  if (slot_is_overridden(a)) {  // the rows are results of unbind()
    const Ref rows(PyObject_CallOneArg(find_op_object(ops.unbind->name), a));
    return rows ? PyObject_GetIter(rows.get()) : nullptr;
  }
  return object_boundary([&]() -> PyObject* {
    const Tensor* t = tensor_of(a);
    if (t->ndim == 0) raise(PyExc_TypeError, "iteration over a 0-d tensor");
    Ref list(must(PyList_New(t->shape[0])));
    for (int64_t i = 0; i < t->shape[0]; ++i) {
      TensorRef row =
          run_op(ops.select, {value_tensor(const_cast<Tensor*>(t)), value_int(0), value_int(i)});
      PyList_SET_ITEM(list.get(), i, must(wrap(row.release_ownership())));
    }
    return PyObject_GetIter(list.get());
  });
}

int contains(PyObject* a, PyObject* value) {
  if (is_overridden_pair(a, value)) {
    const Ref result(call_override("__contains__", {a, value}));
    return result ? PyObject_IsTrue(result.get()) : -1;
  }
  return boundary<int>(-1, [&] {
    RbValue v;
    Arena arena;
    if (!operand(ops.eq, value, &v, arena)) {
      raise(PyExc_TypeError, "a tensor can contain tensors and numbers only, not %s",
            Py_TYPE(value)->tp_name);
    }
    TensorRef hit =
        run_op(ops.any, {value_tensor(run_op(ops.eq, {value_tensor(tensor_of(a)), v}).get())});
    return PyObject_IsTrue(tensor_item(hit.get(), "the operator 'in'").get());
  });
}

template <class F>
void* slot(F f) {
  return reinterpret_cast<void*>(f);
}

}  // namespace

PyType_Slot tensor_number_slots[] = {
    {Py_nb_add, slot(binary<&CoreOps::add>)},
    {Py_nb_subtract, slot(binary<&CoreOps::sub>)},
    {Py_nb_multiply, slot(binary<&CoreOps::mul>)},
    {Py_nb_true_divide, slot(binary<&CoreOps::div>)},
    {Py_nb_floor_divide, slot(binary<&CoreOps::floor_divide>)},
    {Py_nb_remainder, slot(binary<&CoreOps::remainder>)},
    {Py_nb_matrix_multiply, slot(binary<&CoreOps::matmul>)},
    {Py_nb_power, slot(power)},
    {Py_nb_and, slot(binary<&CoreOps::bitwise_and>)},
    {Py_nb_or, slot(binary<&CoreOps::bitwise_or>)},
    {Py_nb_xor, slot(binary<&CoreOps::bitwise_xor>)},
    {Py_nb_lshift, slot(binary<&CoreOps::bitwise_left_shift>)},
    {Py_nb_rshift, slot(binary<&CoreOps::bitwise_right_shift>)},
    {Py_nb_inplace_add, slot(inplace<&CoreOps::add>)},
    {Py_nb_inplace_subtract, slot(inplace<&CoreOps::sub>)},
    {Py_nb_inplace_multiply, slot(inplace<&CoreOps::mul>)},
    {Py_nb_inplace_true_divide, slot(inplace<&CoreOps::div>)},
    {Py_nb_inplace_floor_divide, slot(inplace<&CoreOps::floor_divide>)},
    {Py_nb_inplace_remainder, slot(inplace<&CoreOps::remainder>)},
    {Py_nb_inplace_power, slot(inplace_power)},
    {Py_nb_inplace_and, slot(inplace<&CoreOps::bitwise_and>)},
    {Py_nb_inplace_or, slot(inplace<&CoreOps::bitwise_or>)},
    {Py_nb_inplace_xor, slot(inplace<&CoreOps::bitwise_xor>)},
    {Py_nb_negative, slot(unary<&CoreOps::neg>)},
    {Py_nb_positive, slot(positive)},
    {Py_nb_absolute, slot(unary<&CoreOps::abs>)},
    {Py_nb_invert, slot(unary<&CoreOps::bitwise_not>)},
    {Py_nb_bool, slot(truth)},
    {Py_nb_int, slot(to_int)},
    {Py_nb_float, slot(to_float)},
    {Py_nb_index, slot(to_index)},
    {Py_tp_richcompare, slot(compare)},
    {Py_mp_length, slot(length)},
    {Py_sq_contains, slot(contains)},
    {Py_tp_iter, slot(iterate)},
    {}};

}  // namespace rabbet::python
