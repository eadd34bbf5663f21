// Recorded calls whose backward is Python: plain callables, and users' Functions with the checks of
// what their `backward` gives.
#include "function_node.h"

#include <structmember.h>

#include <cstddef>
#include <new>
#include <string>
#include <vector>

namespace binding {

namespace {

PyObject* function_base = nullptr;  // rabbet.autograd.Function
PyObject* zeros = nullptr;          // makes the gradient of a result that got none
PyTypeObject* run_type = nullptr;

int32_t call_custom(void* ctx, RbTensor* const* grads, int32_t noutputs, RbTensor** results,
                    int32_t ninputs) {
  const rb::WithGil gil;
  int32_t code = RB_OK;
  PyObject* given = to_tuple(const_cast<RbTensor**>(grads), noutputs);
  PyObject* result = given ? call_object(ctx, given) : nullptr;
  if (!result || !from_tuple(result, results, ninputs)) code = core->capture_error();
  Py_XDECREF(result);
  Py_XDECREF(given);
  return code;
}

void record_call(const std::string& name, const std::vector<RbTensor*>& inputs,
                 const std::vector<RbTensor*>& outputs, PyObject* backward) {
  RbNode* node = nullptr;
  Py_INCREF(backward);
  check(tape->record_custom(name.c_str(), inputs.data(), static_cast<int32_t>(inputs.size()),
                            outputs.data(), static_cast<int32_t>(outputs.size()), call_custom,
                            backward, drop_callable, &node));
  tape->node_release(node);
}

void record_custom(const std::string& name, const std::vector<py::object>& inputs,
                   const std::vector<py::object>& outputs, const py::object& backward) {
  std::vector<RbTensor*> in, out;
  for (const py::object& o : inputs) in.push_back(tensor(o, "Function"));
  for (const py::object& o : outputs) out.push_back(tensor(o, "Function"));
  record_call(name, in, out, backward.ptr());
}

// ---- Functions

struct Input {
  bool is_real = false;
  py::object device;  // null: the argument is no tensor
};

/// The backward of one call. It holds no tensors but those of the ctx.
struct FunctionRun {
  PyObject_HEAD PyObject *cls, *ctx;
  PyObject* results;  // (shape, dtype, device) of each result, None where it has no derivative
  std::vector<Input> inputs;
  std::vector<Py_ssize_t> places;  // which results the tape gives gradients of
};
FunctionRun* as_run(PyObject* o) { return reinterpret_cast<FunctionRun*>(o); }

int run_traverse(PyObject* o, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(o));
  Py_VISIT(as_run(o)->cls);
  Py_VISIT(as_run(o)->ctx);
  return 0;
}
int run_clear(PyObject* o) {
  Py_CLEAR(as_run(o)->cls);
  Py_CLEAR(as_run(o)->ctx);
  return 0;
}
void run_dealloc(PyObject* o) {
  PyObject_GC_UnTrack(o);
  run_clear(o);
  FunctionRun* run = as_run(o);
  Py_XDECREF(run->results);
  run->inputs.~vector();
  run->places.~vector();
  PyTypeObject* type = Py_TYPE(o);
  type->tp_free(o);
  Py_DECREF(type);
}

using Owned = py::object;
Owned steal(PyObject* o) { return py::reinterpret_steal<Owned>(o); }
Owned attribute(PyObject* o, const char* name) { return steal(PyObject_GetAttrString(o, name)); }
const char* name_of(PyObject* cls) { return reinterpret_cast<PyTypeObject*>(cls)->tp_name; }

// `backward`, or `vjp`, which is its other name.
Owned rule_of(PyObject* cls) {
  const Owned vjp = attribute(cls, "vjp"), base = attribute(function_base, "vjp");
  if (!vjp || !base) return Owned();
  Owned backward = attribute(cls, "backward");
  if (!backward || vjp.is(base)) return backward;
  if (backward.is(attribute(function_base, "backward"))) return vjp;
  PyErr_SetString(PyExc_RuntimeError,
                  "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. "
                  "You should only implement one of them.");
  return Owned();
}

bool is_true(PyObject* o, const char* name) {
  const Owned value = attribute(o, name);
  const int truth = value ? PyObject_IsTrue(value.ptr()) : -1;
  if (truth < 0) throw py::error_already_set();
  return truth != 0;
}

// The gradients of all results; zeros for those that have none, where the ctx asks for them.
std::vector<Owned> gradients(const FunctionRun* run, PyObject* given) {
  const Py_ssize_t count = PyTuple_GET_SIZE(run->results);
  std::vector<Owned> grads(static_cast<size_t>(count), py::none());
  for (size_t k = 0; k < run->places.size(); ++k) {
    grads[static_cast<size_t>(run->places[k])] =
        py::reinterpret_borrow<Owned>(PyTuple_GET_ITEM(given, static_cast<Py_ssize_t>(k)));
  }
  bool asked = false;
  for (Py_ssize_t k = 0; k < count; ++k) {
    Owned& grad = grads[static_cast<size_t>(k)];
    PyObject* result = PyTuple_GET_ITEM(run->results, k);
    if (!grad.is_none() || result == Py_None) continue;
    if (!asked && !is_true(run->ctx, "materialize_grads")) break;
    asked = true;
    grad = steal(PyObject_CallObject(zeros, result));
    if (!grad) throw py::error_already_set();
  }
  return grads;
}

Owned call_rule(const FunctionRun* run, std::vector<Owned>& grads) {
  const Owned rule = rule_of(run->cls);
  if (!rule) throw py::error_already_set();
  std::vector<PyObject*> args{run->ctx};
  Owned list;
  if (is_true(run->cls, "boxed_grads_call")) {
    list = py::cast(grads);
    grads.clear();  // the list alone holds them: the function may let go of them one by one
    args.push_back(list.ptr());
  }
  for (const Owned& grad : grads) args.push_back(grad.ptr());
  const Owned result = steal(PyObject_Vectorcall(rule.ptr(), args.data(), args.size(), nullptr));
  if (!result) throw py::error_already_set();
  if (PyTuple_Check(result.ptr())) return result;
  return py::make_tuple(result);
}

[[noreturn]] void refuse(PyObject* cls, const std::string& what) {
  PyErr_Format(PyExc_RuntimeError, "function %sBackward %s", name_of(cls), what.c_str());
  throw py::error_already_set();
}

void check_gradient(const FunctionRun* run, const Input& input, size_t at, PyObject* grad) {
  const RbTensor* t = core->unwrap(grad);
  std::string wrong;
  if (t->ndim && !input.device.equal(attribute(grad, "device"))) {
    wrong = "expected device " + std::string(py::str(input.device)) + " but got " +
            std::string(py::str(attribute(grad, "device")));
  } else if (input.is_real && rb::is_complex(t->dtype_id)) {
    const RbValue got = rb::dtype_value(t->dtype_id);
    wrong =
        "expected a real gradient but got " + std::string(py::str(steal(core->from_value(&got))));
  }
  if (!wrong.empty())
    refuse(run->cls, "returned an invalid gradient at index " + std::to_string(at) + " - " + wrong);
}

// The gradients of the arguments that are tensors.
Owned checked(const FunctionRun* run, const Owned& results) {
  Py_ssize_t count = PyTuple_GET_SIZE(results.ptr());
  const auto wanted = static_cast<Py_ssize_t>(run->inputs.size());
  while (count > wanted && PyTuple_GET_ITEM(results.ptr(), count - 1) == Py_None) --count;
  if (count != wanted) {
    refuse(run->cls, "returned an incorrect number of gradients (expected " +
                         std::to_string(wanted) + ", got " +
                         std::to_string(PyTuple_GET_SIZE(results.ptr())) + ")");
  }
  std::vector<PyObject*> found;
  for (Py_ssize_t i = 0; i < wanted; ++i) {
    PyObject* grad = PyTuple_GET_ITEM(results.ptr(), i);
    const Input& input = run->inputs[static_cast<size_t>(i)];
    const RbTensor* t = core->unwrap(grad);
    if (!t && grad != Py_None) {
      PyErr_Format(PyExc_RuntimeError,
                   "function %sBackward: expected Variable or None (got %s) at position %zd",
                   name_of(run->cls), Py_TYPE(grad)->tp_name, i + 1);
      throw py::error_already_set();
    }
    if (!input.device) {
      if (t) {
        refuse(run->cls, "returned a gradient different than None at position " +
                             std::to_string(i + 1) +
                             ", but the corresponding forward input was not a Variable");
      }
      continue;
    }
    if (t) check_gradient(run, input, found.size(), grad);
    found.push_back(grad);
  }
  if (static_cast<Py_ssize_t>(found.size()) == PyTuple_GET_SIZE(results.ptr())) return results;
  py::tuple tuple(found.size());
  for (size_t i = 0; i < found.size(); ++i) tuple[i] = py::handle(found[i]);
  return tuple;
}

// A tuple of the gradients of the results in `places`.
PyObject* run_call(PyObject* o, PyObject* args, PyObject*) {
  try {
    const FunctionRun* run = as_run(o);
    std::vector<Owned> grads = gradients(run, PyTuple_GET_ITEM(args, 0));
    const Owned results = call_rule(run, grads);
    if (!(tape->running_flags() & RB_BACKWARD_RETAIN)) {
      if (!steal(PyObject_CallMethod(run->ctx, "_free", nullptr))) return nullptr;
    }
    return checked(run, results).release().ptr();
  } catch (py::error_already_set& error) {
    error.restore();
    return nullptr;
  }
}

PyMemberDef run_members[] = {{"ctx", T_OBJECT_EX, offsetof(FunctionRun, ctx), READONLY, nullptr},
                             {}};
template <class F>
void* slot(F f) {
  return reinterpret_cast<void*>(f);
}
PyType_Slot run_slots[] = {{Py_tp_dealloc, slot(run_dealloc)}, {Py_tp_traverse, slot(run_traverse)},
                           {Py_tp_clear, slot(run_clear)},     {Py_tp_call, slot(run_call)},
                           {Py_tp_members, run_members},       {}};
PyType_Spec run_spec = {"rabbet.autograd._C.FunctionRun", sizeof(FunctionRun), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                        run_slots};

Owned kind_of(PyObject* result) {
  const RbTensor* t = core->unwrap(result);
  if (!t || !rb::is_differentiable(t->dtype_id)) return py::none();
  return py::make_tuple(attribute(result, "shape"), attribute(result, "dtype"),
                        attribute(result, "device"));
}

/// Record that the Function `cls` made `outputs` of `args`; `places` are those that can have a
/// gradient.
void record_function(const py::object& cls, const py::object& ctx, const py::tuple& args,
                     const py::tuple& outputs, const std::vector<Py_ssize_t>& places) {
  PyObject* o = run_type->tp_alloc(run_type, 0);
  if (!o) throw py::error_already_set();
  const Owned owned = steal(o);
  FunctionRun* run = as_run(o);
  new (&run->inputs) std::vector<Input>;
  new (&run->places) std::vector<Py_ssize_t>(places);
  run->cls = cls.inc_ref().ptr();
  run->ctx = ctx.inc_ref().ptr();
  py::tuple kinds(outputs.size());
  // The run comes here because a single result has a gradient.
  for (size_t k = 0; k < outputs.size(); ++k)
    kinds[k] =
        outputs.size() == 1 ? Owned(py::none()) : kind_of(PyTuple_GET_ITEM(outputs.ptr(), k));
  run->results = kinds.release().ptr();
  std::vector<RbTensor*> in, out;
  for (const py::handle a : args) {
    RbTensor* t = core->unwrap(a.ptr());
    run->inputs.emplace_back();
    if (!t) continue;
    run->inputs.back().is_real = rb::is_differentiable(t->dtype_id) && !rb::is_complex(t->dtype_id);
    run->inputs.back().device = attribute(a.ptr(), "device");
    in.push_back(t);
  }
  for (const Py_ssize_t k : places)
    out.push_back(tensor(PyTuple_GET_ITEM(outputs.ptr(), k), "Function"));
  record_call(std::string(name_of(cls.ptr())) + "Backward", in, out, o);
}

}  // namespace

PyObject* function_ctx(const RbNode* n) {
  auto* callable = static_cast<PyObject*>(tape->custom_context(n, call_custom));
  return callable && Py_TYPE(callable) == run_type ? as_run(callable)->ctx : nullptr;
}

void bind_function_node(py::module_& m) {
  run_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&run_spec));
  if (!run_type) throw py::error_already_set();
  m.def("set_function_base", [](const py::object& base, const py::object& make_zeros) {
    function_base = base.inc_ref().ptr();
    zeros = make_zeros.inc_ref().ptr();
  });
  m.def("backward_rule", [](const py::object& cls) {
    Owned rule = rule_of(cls.ptr());
    if (!rule) throw py::error_already_set();
    return rule;
  });
  m.def("record_custom", record_custom);
  m.def("record_function", record_function);
}

}  // namespace binding
