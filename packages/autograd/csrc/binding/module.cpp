// rabbet.autograd._C: the tape's table for Python. Reaches core through rabbet/python.h and the
// tape through the table that the plugin published.
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

#include "function_node.h"
#include "function_saved.h"
#include "modes.h"
#include "saved_values.h"

namespace binding {

const RbPython* core = nullptr;
const RbAutograd* tape = nullptr;
PyTypeObject* node_type = nullptr;

void drop_callable(void* ctx) {
  if (!rb::interpreter_alive()) return;
  const rb::WithGil gil;
  Py_DECREF(static_cast<PyObject*>(ctx));
}

PyObject* to_tuple(RbTensor** list, int32_t n) {
  PyObject* tuple = PyTuple_New(n);
  for (int32_t i = 0; tuple && i < n; ++i) {
    PyObject* o = Py_None;
    if (list[i]) {
      core->host->retain(list[i]);
      o = core->wrap(list[i]);
    } else {
      Py_INCREF(o);
    }
    PyTuple_SET_ITEM(tuple, i, o);
  }
  return tuple;
}

bool from_tuple(PyObject* result, RbTensor** list, int32_t n) {
  if (result == Py_None) return true;
  PyObject* items = core->unwrap(result) ? PyTuple_Pack(1, result) : PySequence_Tuple(result);
  if (!items) return false;
  bool ok = PyTuple_GET_SIZE(items) == n;
  if (!ok)
    PyErr_Format(PyExc_RuntimeError, "a node hook returned %zd gradients, expected %d",
                 PyTuple_GET_SIZE(items), n);
  for (int32_t i = 0; ok && i < n; ++i) {
    PyObject* item = PyTuple_GET_ITEM(items, i);
    RbTensor* t = item == Py_None ? nullptr : core->unwrap(item);
    if (item != Py_None && !t) {
      PyErr_Format(PyExc_TypeError, "a node hook must return Tensors or None, not %s",
                   Py_TYPE(item)->tp_name);
      ok = false;
      break;
    }
    if (t) core->host->retain(t);
    if (list[i]) core->host->release(list[i]);
    list[i] = t;
  }
  Py_DECREF(items);
  return ok;
}

void node_dealloc(PyObject* o);

namespace {
// The class of a node's Python objects: a subclass of Node by the node's name, borrowed. Users'
// functions are in the module of Function.
PyTypeObject* type_of_node(RbNode* n) {
  static auto& types = *new std::unordered_map<std::string, PyTypeObject*>;  // under the GIL
  const char* name = tape->node_name(n);
  const auto found = types.find(name);
  if (found != types.end()) return found->second;
  const char* module = function_ctx(n) ? "rabbet.autograd.function." : "builtins.";
  const std::string full = module + std::string(name);
  PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(node_dealloc)}, {}};
  PyType_Spec spec = {full.c_str(), sizeof(NodeObject), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  PyObject* type = PyType_FromSpecWithBases(&spec, reinterpret_cast<PyObject*>(node_type));
  if (type) types.emplace(name, reinterpret_cast<PyTypeObject*>(type));
  return reinterpret_cast<PyTypeObject*>(type);
}
}  // namespace

// ---- grad_fn objects: one Python object per request, equal when they stand for one node

PyObject* wrap_node(RbNode* owned) {
  if (!owned) Py_RETURN_NONE;
  PyTypeObject* type = type_of_node(owned);
  PyObject* o = type ? type->tp_alloc(type, 0) : nullptr;
  if (!o) {
    tape->node_release(owned);
    return nullptr;
  }
  as_node(o)->node = owned;
  return o;
}

void node_dealloc(PyObject* o) {
  PyTypeObject* type = Py_TYPE(o);
  RbNode* node = as_node(o)->node;
  type->tp_free(o);
  Py_DECREF(type);
  if (node) tape->node_release(node);
}

namespace {

// Those of PyTorch's nodes that stand for no operator have names of C++.
PyObject* node_name(PyObject* o, PyObject*) {
  const char* name = tape->node_name(as_node(o)->node);
  const bool bare = !std::strcmp(name, "AccumulateGrad") || !std::strcmp(name, "CopySlices");
  return PyUnicode_FromFormat("%s%s", bare ? "torch::autograd::" : "", name);
}
PyObject* node_repr(PyObject* o) {
  const char* name = Py_TYPE(o)->tp_name;
  const char* builtin = "builtins.";
  const size_t skipped =
      std::strncmp(name, builtin, std::strlen(builtin)) ? 0 : std::strlen(builtin);
  return PyUnicode_FromFormat("<%s object at %p>", name + skipped, as_node(o)->node);
}
Py_hash_t node_hash(PyObject* o) { return _Py_HashPointer(as_node(o)->node); }
PyObject* node_compare(PyObject* a, PyObject* b, int op) {
  if (!PyObject_TypeCheck(b, node_type) || (op != Py_EQ && op != Py_NE)) Py_RETURN_NOTIMPLEMENTED;
  return PyBool_FromLong((as_node(a)->node == as_node(b)->node) == (op == Py_EQ));
}
PyObject* node_next(PyObject* o, void*) {
  RbNode* n = as_node(o)->node;
  const int32_t count = tape->node_inputs(n);
  PyObject* tuple = PyTuple_New(count);
  for (int32_t i = 0; tuple && i < count; ++i) {
    uint32_t output = 0;
    RbNode* next = tape->node_input(n, i, &output);
    if (next) tape->node_retain(next);
    PyObject* entry = Py_BuildValue("(NI)", wrap_node(next), output);
    if (!entry)
      Py_CLEAR(tuple);
    else
      PyTuple_SET_ITEM(tuple, i, entry);
  }
  return tuple;
}
PyObject* node_variable(PyObject* o, void*) {
  RbTensor* t = tape->node_variable(as_node(o)->node);
  if (!t) {
    PyErr_Format(PyExc_AttributeError, "%s has no attribute 'variable': only AccumulateGrad has",
                 tape->node_name(as_node(o)->node));
    return nullptr;
  }
  core->host->retain(t);
  return core->wrap(t);
}
PyObject* node_sequence(PyObject* o, PyObject*) {
  return PyLong_FromUnsignedLongLong(tape->node_sequence(as_node(o)->node));
}

// ---- hooks

// One dict per node, whichever of its Python objects asks.
PyObject* node_metadata(PyObject* o, void*) {
  RbNode* n = as_node(o)->node;
  if (!tape->node_object(n)) {
    PyObject* dict = PyDict_New();
    if (!dict) return nullptr;
    tape->node_set_object(n, dict, drop_callable);
  }
  return Py_XNewRef(static_cast<PyObject*>(tape->node_object(n)));
}
int32_t call_grad_hook(void* ctx, RbTensor* grad, RbTensor** replacement) {
  const rb::WithGil gil;
  int32_t code = RB_OK;
  core->host->retain(grad);
  PyObject* g = core->wrap(grad);
  PyObject* result = g ? call_object(ctx, g) : nullptr;
  if (!result) {
    code = core->capture_error();
  } else if (result != Py_None) {
    RbTensor* t = core->unwrap(result);
    if (!t) {
      PyErr_Format(PyExc_TypeError, "a gradient hook must return a Tensor or None, not %s",
                   Py_TYPE(result)->tp_name);
      code = core->capture_error();
    } else {
      core->host->retain(t);
      *replacement = t;
    }
  }
  Py_XDECREF(result);
  Py_XDECREF(g);
  return code;
}

template <bool Before>
int32_t call_node_hook(void* ctx, RbTensor** inputs, int32_t ninputs, RbTensor** outputs,
                       int32_t noutputs) {
  const rb::WithGil gil;
  int32_t code = RB_OK;
  PyObject* in = Before ? nullptr : to_tuple(inputs, ninputs);
  PyObject* out = to_tuple(outputs, noutputs);
  PyObject* result = !out || (!Before && !in) ? nullptr
                     : Before                 ? call_object(ctx, out)
                                              : call_object(ctx, in, out);
  const bool ok = result && (Before ? from_tuple(result, outputs, noutputs)
                                    : from_tuple(result, inputs, ninputs));
  if (!ok) code = core->capture_error();
  Py_XDECREF(result);
  Py_XDECREF(in);
  Py_XDECREF(out);
  return code;
}

/// What register_hook returns: removes the hook, also as a context manager.
class Handle {
 public:
  Handle(py::object owner, int64_t id) : owner_(std::move(owner)), id_(id) {}
  void remove() {
    if (!id_) return;
    if (RbTensor* t = core->unwrap(owner_.ptr())) {
      tape->remove_grad_hook(t, id_);
    } else if (PyObject_TypeCheck(owner_.ptr(), node_type)) {
      tape->remove_node_hook(as_node(owner_.ptr())->node, id_);
    }
    id_ = 0;
    owner_ = py::none();
  }

  // A hook may hold its own handle, which holds the tensor: the collector sees it.
  static void set_up(PyHeapTypeObject* heap_type) {
    PyTypeObject* type = &heap_type->ht_type;
    type->tp_flags |= Py_TPFLAGS_HAVE_GC;
    type->tp_traverse = [](PyObject* self, visitproc visit, void* arg) {
      Py_VISIT(Py_TYPE(self));
      if (py::detail::is_holder_constructed(self)) {
        Py_VISIT(py::cast<Handle&>(py::handle(self)).owner_.ptr());
      }
      return 0;
    };
    type->tp_clear = [](PyObject* self) {
      if (py::detail::is_holder_constructed(self))
        py::cast<Handle&>(py::handle(self)).owner_ = py::none();
      return 0;
    };
  }

 private:
  py::object owner_;
  int64_t id_;
};

PyObject* make_handle(PyObject* owner, int64_t id) {
  return py::cast(Handle(py::reinterpret_borrow<py::object>(owner), id)).release().ptr();
}

// The collector sees what hooks refer to: a hook may lead back to its tensor.
struct Visitor {
  visitproc visit;
  void* arg;
};
int traverse_hooks(RbTensor* t, visitproc visit, void* arg) {
  Visitor visitor{visit, arg};
  return tape->each_context(
      t,
      [](void* v, void* ctx, void (*del)(void*)) -> int32_t {
        const auto* visitor = static_cast<Visitor*>(v);
        return del == drop_callable ? visitor->visit(static_cast<PyObject*>(ctx), visitor->arg) : 0;
      },
      &visitor);
}
bool show_to_collector(PyObject* self) {  // objects with a __dict__ are
  PyObject* dict = PyObject_GetAttrString(self, "__dict__");
  Py_XDECREF(dict);
  return dict != nullptr;
}

PyObject* add_grad_hook(PyObject* self, PyObject* hook, int32_t after) {
  if (!PyCallable_Check(hook)) {
    PyErr_Format(PyExc_TypeError, "register_hook: expected a callable, not %s",
                 Py_TYPE(hook)->tp_name);
    return nullptr;
  }
  if (!show_to_collector(self)) return nullptr;
  Py_INCREF(hook);
  const int64_t id =
      tape->add_grad_hook(core->unwrap(self), call_grad_hook, hook, drop_callable, after);
  if (id < 0) {
    Py_DECREF(hook);
    return core->raise_error(RB_E_STATE);
  }
  return make_handle(self, id);
}
template <bool Before>
PyObject* add_node_hook(PyObject* self, PyObject* hook) {
  if (!PyCallable_Check(hook)) {
    PyErr_Format(PyExc_TypeError, "register_hook: expected a callable, not %s",
                 Py_TYPE(hook)->tp_name);
    return nullptr;
  }
  Py_INCREF(hook);
  return make_handle(self, tape->add_node_hook(as_node(self)->node, call_node_hook<Before>, hook,
                                               drop_callable, Before));
}

// ---- attributes of Tensor

RbTensor* self_tensor(PyObject* o) { return core->unwrap(o); }

PyObject* get_requires_grad(PyObject* o, void*) {
  return PyBool_FromLong(tape->requires_grad(self_tensor(o)));
}
int set_requires_grad(PyObject* o, PyObject* value, void*) {
  const int on = value ? PyObject_IsTrue(value) : 0;
  if (on < 0) return -1;
  const int32_t code = tape->set_requires_grad(self_tensor(o), on);
  if (code != RB_OK) core->raise_error(code);
  return code == RB_OK ? 0 : -1;
}
PyObject* get_grad(PyObject* o, void*) {
  RbTensor* g = tape->get_grad(self_tensor(o));
  if (!g) Py_RETURN_NONE;
  core->host->retain(g);
  return core->wrap(g);
}
int set_grad(PyObject* o, PyObject* value, void*) {
  RbTensor* g = nullptr;
  if (value && value != Py_None) {
    g = core->unwrap(value);
    if (!g) {
      PyErr_Format(PyExc_TypeError,
                   "assigned grad expected to be a Tensor or None but got grad of type %s",
                   Py_TYPE(value)->tp_name);
      return -1;
    }
  }
  const int32_t code = tape->set_grad(self_tensor(o), g);
  if (code != RB_OK) core->raise_error(code);
  return code == RB_OK ? 0 : -1;
}
PyObject* get_grad_fn(PyObject* o, void*) {
  uint32_t output = 0;
  return wrap_node(tape->grad_fn(self_tensor(o), &output));
}
PyObject* get_output_nr(PyObject* o, void*) {
  uint32_t output = 0;
  RbNode* n = tape->grad_fn(self_tensor(o), &output);
  if (n) tape->node_release(n);
  return PyLong_FromUnsignedLong(output);
}
PyObject* get_is_leaf(PyObject* o, void*) { return PyBool_FromLong(tape->is_leaf(self_tensor(o))); }
PyObject* get_retains_grad(PyObject* o, void*) {
  return PyBool_FromLong(tape->retains_grad(self_tensor(o)));
}
PyObject* get_version(PyObject* o, void*) {
  if (self_tensor(o)->flags & RB_T_INFERENCE) {
    PyErr_SetString(PyExc_RuntimeError, "Inference tensors do not track version counter.");
    return nullptr;
  }
  return PyLong_FromUnsignedLong(core->host->version_get(self_tensor(o)));
}

PyObject* requires_grad_(PyObject* o, PyObject* const* args, Py_ssize_t nargs, PyObject* names) {
  const Py_ssize_t given = nargs + (names ? PyTuple_GET_SIZE(names) : 0);
  if (set_requires_grad(o, given > 0 ? args[0] : Py_True, nullptr) < 0) return nullptr;
  return Py_NewRef(o);
}
PyObject* retain_grad(PyObject* o, PyObject*) {
  const int32_t code = tape->retain_grad(self_tensor(o));
  if (code != RB_OK) return core->raise_error(code);
  Py_RETURN_NONE;
}
PyObject* detach_(PyObject* o, PyObject*) {
  const int32_t code = tape->detach_in_place(self_tensor(o));
  if (code != RB_OK) return core->raise_error(code);
  return Py_NewRef(o);
}
PyObject* is_inference(PyObject* o, PyObject*) {
  return PyBool_FromLong((self_tensor(o)->flags & RB_T_INFERENCE) != 0);
}
PyObject* register_hook(PyObject* o, PyObject* hook) { return add_grad_hook(o, hook, 0); }
PyObject* register_post(PyObject* o, PyObject* hook) { return add_grad_hook(o, hook, 1); }

int32_t run_unlocked(RbTensor* const* outputs, RbTensor* const* grads, int32_t n,
                     RbTensor* const* inputs, int32_t ninputs, uint32_t flags, RbTensor** results) {
  const rb::WithoutGil unlocked;
  return tape->run(outputs, grads, n, inputs, ninputs, flags, results);
}

// Of tensors or edges: as the function does it.
PyObject* backward_to(PyObject* o, PyObject* const* given) {
  PyObject* roots = PyImport_ImportModule("rabbet.autograd._roots");
  if (!roots) return nullptr;
  PyObject* result = PyObject_CallMethod(roots, "backward", "OOOOOO", o, given[0], given[1],
                                         given[2], Py_None, given[3]);
  Py_DECREF(roots);
  return result;
}

// tensor.backward(gradient=None, retain_graph=None, create_graph=False, inputs=None)
PyObject* backward(PyObject* o, PyObject* const* args, Py_ssize_t nargs, PyObject* names) {
  static const char* const keywords[] = {"gradient", "retain_graph", "create_graph", "inputs"};
  PyObject* given[4] = {Py_None, Py_None, Py_False, Py_None};
  if (nargs > 4) {
    PyErr_Format(PyExc_TypeError, "backward() takes at most 4 arguments, got %zd", nargs);
    return nullptr;
  }
  for (Py_ssize_t i = 0; i < nargs; ++i) given[i] = args[i];
  for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names); ++i) {
    int at = -1;
    for (int k = 0; k < 4; ++k) {
      if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, i), keywords[k]) == 0) at = k;
    }
    if (at < 0) {
      PyErr_Format(PyExc_TypeError, "backward() got an unexpected keyword argument '%U'",
                   PyTuple_GET_ITEM(names, i));
      return nullptr;
    }
    given[at] = args[nargs + i];
  }
  if (given[3] != Py_None) return backward_to(o, given);
  const bool create = PyObject_IsTrue(given[2]) == 1;
  const bool retain = given[1] == Py_None ? create : PyObject_IsTrue(given[1]) == 1;
  uint32_t flags = RB_BACKWARD_ACCUMULATE;
  if (create) flags |= RB_BACKWARD_CREATE;
  if (retain) flags |= RB_BACKWARD_RETAIN;
  RbTensor* output = self_tensor(o);
  RbTensor* grad = given[0] == Py_None ? nullptr : core->unwrap(given[0]);
  if (given[0] != Py_None && !grad) {
    PyErr_Format(PyExc_TypeError, "backward(): gradient must be a Tensor or None, not %s",
                 Py_TYPE(given[0])->tp_name);
    return nullptr;
  }
  const int32_t code = run_unlocked(&output, &grad, 1, nullptr, 0, flags, nullptr);
  if (code != RB_OK) return core->raise_error(code);
  Py_RETURN_NONE;
}

PyGetSetDef tensor_getset[] = {
    {"requires_grad", get_requires_grad, set_requires_grad,
     "Whether gradients are computed for the tensor.", nullptr},
    {"grad", get_grad, set_grad, "The accumulated gradient, or None.", nullptr},
    {"grad_fn", get_grad_fn, nullptr, "The recorded call that made the tensor, or None for a leaf.",
     nullptr},
    {"output_nr", get_output_nr, nullptr, "Which result of grad_fn the tensor is.", nullptr},
    {"is_leaf", get_is_leaf, nullptr, "Whether no recorded call made the tensor.", nullptr},
    {"retains_grad", get_retains_grad, nullptr, "Whether retain_grad() was called.", nullptr},
    {"_version", get_version, nullptr, "Number of in-place writes to the storage.", nullptr},
    {}};
template <class F>
PyCFunction as_cfunction(F f) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(f));
}
PyMethodDef tensor_methods[] = {
    {"requires_grad_", as_cfunction(requires_grad_), METH_FASTCALL | METH_KEYWORDS,
     "Set requires_grad; returns self."},
    {"backward", as_cfunction(backward), METH_FASTCALL | METH_KEYWORDS,
     "Add d(self)/d(leaf), weighted by `gradient`, to .grad of all leaves."},
    {"retain_grad", retain_grad, METH_NOARGS, "Keep .grad of a tensor that is no leaf."},
    {"is_inference", is_inference, METH_NOARGS, "Whether the tensor was made in inference_mode()."},
    {"detach_", detach_, METH_NOARGS, "Cut the tensor from the graph; returns self."},
    {"register_hook", register_hook, METH_O,
     "Call hook(grad) when the gradient is ready; it may return another one."},
    {"register_post_accumulate_grad_hook", register_post, METH_O,
     "Call hook(tensor) after .grad was updated."},
    {}};

py::dict tensor_attributes() {
  py::dict attributes;
  auto* type = core->tensor_type;
  for (PyGetSetDef* d = tensor_getset; d->name; ++d) {
    attributes[d->name] = py::reinterpret_steal<py::object>(PyDescr_NewGetSet(type, d));
  }
  for (PyMethodDef* d = tensor_methods; d->ml_name; ++d) {
    attributes[d->ml_name] = py::reinterpret_steal<py::object>(PyDescr_NewMethod(type, d));
  }
  return attributes;
}

// ---- saved-tensors hooks: the context is the tuple (pack, unpack), a packed value a Python object

int32_t call_pack(void* ctx, RbTensor* t, void** packed) {
  const rb::WithGil gil;
  core->host->retain(t);
  PyObject* given = core->wrap(t);
  PyObject* pack = PyTuple_GET_ITEM(static_cast<PyObject*>(ctx), 0);
  PyObject* result = given ? call_object(pack, given) : nullptr;
  const int32_t code = result ? RB_OK : core->capture_error();
  *packed = result;
  Py_XDECREF(given);
  return code;
}

int32_t call_unpack(void* ctx, void* packed, RbTensor** out) {
  const rb::WithGil gil;
  PyObject* unpack = PyTuple_GET_ITEM(static_cast<PyObject*>(ctx), 1);
  PyObject* result = call_object(unpack, static_cast<PyObject*>(packed));
  RbTensor* t = result ? core->unwrap(result) : nullptr;
  if (result && !t) {
    PyErr_Format(PyExc_TypeError, "saved_tensors_hooks: unpack_hook must return a Tensor, not %s",
                 Py_TYPE(result)->tp_name);
  }
  const int32_t code = t ? RB_OK : core->capture_error();
  if (t) core->host->retain(t);
  *out = t;
  Py_XDECREF(result);
  return code;
}

}  // namespace

const RbSavedHooks python_hooks = {call_pack, call_unpack, drop_callable};

namespace {

void push_saved_hooks(const py::object& pack, const py::object& unpack) {
  tape->push_saved_hooks(&python_hooks, py::make_tuple(pack, unpack).release().ptr(),
                         drop_callable);
}

py::object current_saved_hooks() {
  auto* pair = static_cast<PyObject*>(tape->saved_hooks(call_pack));
  return pair ? py::reinterpret_borrow<py::object>(pair) : py::none();
}

/// (shape, dtype, device) of a result of a node.
py::object node_result_of(const py::object& node, uint32_t output) {
  const RbMeta* meta = tape->node_result(as_node(node.ptr())->node, output);
  if (!meta) {
    throw py::index_error(
        "GradientEdge: " + std::string(tape->node_name(as_node(node.ptr())->node)) +
        " has no output " + std::to_string(output));
  }
  py::tuple shape(static_cast<size_t>(meta->ndim));
  for (int32_t i = 0; i < meta->ndim; ++i) shape[static_cast<size_t>(i)] = meta->shape[i];
  const RbValue dtype = rb::dtype_value(meta->dtype_id);
  RbValue device{};
  device.tag = RB_DEVICE;
  device.v.dev.backend = meta->backend;
  device.v.dev.index = meta->device_index;
  return py::make_tuple(shape, py::reinterpret_steal<py::object>(core->from_value(&dtype)),
                        py::reinterpret_steal<py::object>(core->from_value(&device)));
}

// `o`, which counts as written, gets the history of `from`, which a recorded call made. Writes to a
// view are recorded by how it was made: it stays.
void take_history(const py::object& o, const py::object& from) {
  if (tensor(o, "take_history")->flags & RB_T_VIEW) {
    PyErr_SetString(PyExc_RuntimeError,
                    "a view that requires grad keeps its shape and strides; use the method "
                    "without _, which gives another view");
    throw py::error_already_set();
  }
  uint32_t output = 0;
  RbNode* n = tape->grad_fn(tensor(from, "take_history"), &output);
  if (!n) return;
  check(core->host->version_bump(tensor(o, "take_history")));
  tape->set_history(tensor(o, "take_history"), n, output);
  tape->node_release(n);
}

// ---- grad and backward on lists

py::object run(const std::vector<py::object>& outputs, const std::vector<py::object>& grads,
               const std::vector<py::object>& inputs, uint32_t flags) {
  std::vector<RbTensor*> out, given, in, results(inputs.size(), nullptr);
  for (const py::object& o : outputs) out.push_back(tensor(o, "backward"));
  for (const py::object& o : grads) given.push_back(o.is_none() ? nullptr : tensor(o, "backward"));
  for (const py::object& o : inputs) in.push_back(tensor(o, "grad"));
  check(run_unlocked(out.data(), given.data(), static_cast<int32_t>(out.size()), in.data(),
                     static_cast<int32_t>(in.size()), flags, results.data()));
  py::tuple answer(inputs.size());
  for (size_t i = 0; i < results.size(); ++i) answer[i] = wrap_owned(results[i]);
  return std::move(answer);
}

// The gradients of all parameters as a list, or None if one is missing or is not real and floating.
PyObject* real_grads(PyObject*, PyObject* params) {
  if (!PyList_Check(params)) Py_RETURN_NONE;
  const Py_ssize_t n = PyList_GET_SIZE(params);
  PyObject* list = PyList_New(n);
  for (Py_ssize_t i = 0; list && i < n; ++i) {
    const RbTensor* t = core->unwrap(PyList_GET_ITEM(params, i));
    RbTensor* g = t ? tape->get_grad(t) : nullptr;
    if (!g || !rb::is_floating(g->dtype_id)) {
      Py_DECREF(list);
      Py_RETURN_NONE;
    }
    core->host->retain(g);
    PyObject* grad = core->wrap(g);
    if (!grad) Py_CLEAR(list);
    if (list) PyList_SET_ITEM(list, i, grad);
  }
  return list;
}
PyMethodDef real_grads_def = {
    "real_grads", real_grads, METH_O,
    "The gradients of a list of tensors, or None if one is missing or is not real and floating."};

// Of a user's function the node also has the attributes of its ctx.
PyObject* node_attribute(PyObject* o, PyObject* name) {
  PyObject* found = node_getattro(o, name);
  if (found || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
  PyObject* ctx = function_ctx(as_node(o)->node);
  if (!ctx) return nullptr;
  PyErr_Clear();
  return PyObject_GetAttr(ctx, name);
}

PyMethodDef node_methods[] = {
    {"name", node_name, METH_NOARGS, "Name of the recorded call, such as MulBackward0."},
    {"_sequence_nr", node_sequence, METH_NOARGS,
     "Above those of all nodes that its inputs come from."},
    {"_source", node_source, METH_NOARGS,
     "The line of the program that made the node, if it was kept, else None."},
    {"_saved_names", node_saved_names, METH_NOARGS,
     "(name, is_result, is_kept, is_packed) of each argument and result."},
    {"__dir__", node_dir, METH_NOARGS, "All attributes, also of what the node keeps."},
    {"_is_freed", node_is_freed, METH_NOARGS, "Whether a run freed what it kept."},
    {"_load", node_load, METH_O, "A kept value by its number in _saved_names()."},
    {"register_hook", add_node_hook<false>, METH_O,
     "Call hook(grad_inputs, grad_outputs) after the node ran."},
    {"register_prehook", add_node_hook<true>, METH_O,
     "Call hook(grad_outputs) before the node runs."},
    {}};
PyGetSetDef node_getset[] = {
    {"next_functions", node_next, nullptr, "(node, output number) for each input.", nullptr},
    {"variable", node_variable, nullptr, "The leaf of an AccumulateGrad.", nullptr},
    {"metadata", node_metadata, nullptr, "A dict for the user's notes, one for the node.", nullptr},
    {}};
template <class F>
void* slot(F f) {
  return reinterpret_cast<void*>(f);
}
PyType_Slot node_slots[] = {
    {Py_tp_dealloc, slot(node_dealloc)},
    {Py_tp_repr, slot(node_repr)},
    {Py_tp_getattro, slot(node_attribute)},
    {Py_tp_hash, slot(node_hash)},
    {Py_tp_richcompare, slot(node_compare)},
    {Py_tp_methods, node_methods},
    {Py_tp_getset, node_getset},
    {Py_tp_doc, const_cast<char*>("A recorded call of the autograd graph.")},
    {}};
PyType_Spec node_spec = {
    "rabbet.autograd.graph.Node", sizeof(NodeObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_BASETYPE, node_slots};

/// Whether new tensors of the thread are inference tensors.
bool is_inference_mode() { return (rb::thread_get().tensor_flags & RB_T_INFERENCE) != 0; }
void set_inference_mode(bool on) {
  RbThread state = rb::thread_get();
  state.tensor_flags = on ? uint32_t{RB_T_INFERENCE} : 0u;
  core->host->thread_set(&state);
}

void set_enabled(bool on) { core->host->layer_mode(tape->layer, -1, on ? 0 : 1); }

// ---- differentiation as a transform

RbGradFrame grad_enter() {
  RbGradFrame frame{};
  check(tape->grad_enter(&frame));
  return frame;
}
py::tuple grad_input(const RbGradFrame& frame, const py::object& x) {
  RbTensor *inside = nullptr, *handle = nullptr;
  check(tape->grad_input(&frame, tensor(x, "grad"), &inside, &handle));
  return py::make_tuple(wrap_owned(inside), wrap_owned(handle));
}
py::object grad_result(const RbGradFrame& frame, const py::object& t) {
  RbTensor* out = nullptr;
  check(tape->grad_result(&frame, tensor(t, "grad"), &out));
  return wrap_owned(out);
}

/// Whether what a wrapper stands for has a history that the wrapper itself does not show.
bool recorded_below(const RbTensor* t) {
  while (t->flags & RB_T_WRAPPER) {
    const auto* w = static_cast<const RbWrap*>(t->ext);
    if (tape->requires_grad(w->inner)) return true;
    if (w->second && (tape->requires_grad(w->second) || recorded_below(w->second))) return true;
    t = w->inner;
  }
  return false;
}

/// (the highest level among the tensors of `args`, for each argument whether a call with them is
/// recorded because of it, where the thread records).
py::tuple recorded(const py::tuple& args) {
  int32_t level = 0;
  for (const py::handle a : args) {
    const RbTensor* t = core->unwrap(a.ptr());
    if (t && t->level > level) level = t->level;
  }
  py::tuple wanted(args.size());
  for (size_t i = 0; i < args.size(); ++i) {
    const RbTensor* t = core->unwrap(PyTuple_GET_ITEM(args.ptr(), i));
    wanted[i] = py::bool_(t && tape->recorded_at(t, level));
  }
  return py::make_tuple(level, wanted);
}

/// Call a function as a transform's handler runs, as if outside of `level`.
py::object call_below(int32_t level, const py::function& body) {
  struct Call {
    PyObject *body, *result;
  } call{body.ptr(), nullptr};
  const int32_t rc = core->host->transform_below(
      level,
      [](void* ctx) {
        auto* c = static_cast<Call*>(ctx);
        c->result = PyObject_CallNoArgs(c->body);
        return int32_t{RB_OK};
      },
      &call);
  if (rc == RB_OK && !call.result) throw py::error_already_set();
  check(rc);
  return py::reinterpret_steal<py::object>(call.result);
}

int32_t dual_enter() {
  int32_t level = 0;
  check(tape->dual_enter(&level));
  return level;
}
py::object dual_make(int32_t level, const py::object& primal, const py::object& tangent,
                     bool linked) {
  RbTensor* out = nullptr;
  check(tape->dual_make(level, tensor(primal, "make_dual"),
                        tangent.is_none() ? nullptr : tensor(tangent, "make_dual"), linked, &out));
  return wrap_owned(out);
}
py::tuple dual_unpack(int32_t level, const py::object& t) {
  RbTensor *primal = nullptr, *tangent = nullptr;
  check(tape->dual_unpack(level, tensor(t, "unpack_dual"), &primal, &tangent));
  return py::make_tuple(wrap_owned(primal), wrap_owned(tangent));
}

}  // namespace
}  // namespace binding

PYBIND11_MODULE(_C, m) {
  using namespace binding;
  core = static_cast<const RbPython*>(PyCapsule_Import(RB_PYTHON_CAPSULE, 0));
  if (!core) throw py::error_already_set();
  rb::host = core->host;
  tape = static_cast<const RbAutograd*>(core->host->get_ext(RB_AUTOGRAD_EXT, RB_AUTOGRAD_VERSION));
  if (!tape)
    throw py::import_error(
        "rabbet.autograd: the plugin 'autograd' is not loaded; import rabbet.autograd");
  core->set_referents(traverse_hooks, tape->drop_hooks);
  node_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&node_spec));
  m.add_object("Node", py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(node_type)));
  py::class_<Handle>(m, "RemovableHandle", "Removes a hook.", py::custom_type_setup(Handle::set_up))
      .def("remove", &Handle::remove)
      .def("__enter__", [](py::object self) { return self; })
      .def("__exit__", [](Handle& self, const py::args&) { self.remove(); });
  bind_saved_values(m);
  bind_function_node(m);
  bind_function_saved(m);
  bind_modes(m);
  m.def("tensor_attributes", tensor_attributes);
  m.def("is_grad_enabled", is_enabled);
  m.def("set_grad_enabled", set_enabled);
  m.add_object("real_grads", PyCFunction_New(&real_grads_def, nullptr));
  m.def("is_inference_mode", is_inference_mode);
  m.def("set_inference_mode", set_inference_mode);
  m.def("push_saved_hooks", push_saved_hooks);
  m.def("take_history", take_history);
  m.def("saved_hooks", current_saved_hooks);
  m.def("current_run", [] { return tape->current_run(); });
  m.def("run_reaches", [](const std::vector<py::object>& nodes) {
    std::vector<RbNode*> list;
    for (const py::object& o : nodes) {
      if (!PyObject_TypeCheck(o.ptr(), node_type))
        throw py::type_error("run_reaches: expected Nodes");
      list.push_back(as_node(o.ptr())->node);
    }
    std::vector<uint8_t> reached(list.size());
    tape->run_reaches(list.data(), static_cast<int32_t>(list.size()), reached.data());
    return std::vector<bool>(reached.begin(), reached.end());
  });
  m.def("run_has_inputs", [] { return tape->run_has_inputs() != 0; });
  m.def("keep_sources", [](bool on) { tape->keep_sources(on); });
  m.def("bump_version", [](const py::object& o) {
    check(core->host->version_bump(tensor(o, "increment_version")));
  });
  m.def("pop_saved_hooks", [] { tape->pop_saved_hooks(); });
  m.def("run", run, py::arg("outputs"), py::arg("grads"), py::arg("inputs"), py::arg("flags"));
  py::class_<RbGradFrame>(m, "GradFrame", "A `grad` that has been entered.")
      .def_readonly("nest", &RbGradFrame::nest);
  m.def("grad_enter", grad_enter);
  m.def("grad_exit", [](const RbGradFrame& frame) { check(tape->grad_exit(&frame)); });
  m.def("grad_input", grad_input);
  m.def("grad_open", [](const RbGradFrame& frame, const py::object& t) {
    return tape->grad_open(&frame, tensor(t, "grad")) != 0;
  });
  m.def("grad_close", [](RbGradFrame& frame, const std::vector<py::object>& outputs) {
    std::vector<RbTensor*> list;
    for (const py::object& o : outputs) list.push_back(tensor(o, "vjp"));
    tape->grad_close(&frame, list.data(), static_cast<int32_t>(list.size()));
  });
  m.def("grad_result", grad_result);
  m.def("recorded_below",
        [](const py::object& t) { return recorded_below(tensor(t, "Function")); });
  m.def("recorded", recorded);
  m.def("call_below", call_below);
  m.def("is_dual_level", [](int32_t level) { return tape->is_dual_level(level) != 0; });
  m.def("dual_enter", dual_enter);
  m.def("dual_exit", [](int32_t level) { check(tape->dual_exit(level)); });
  m.def("dual_make", dual_make);
  m.def("dual_unpack", dual_unpack);
  m.def("set_anomaly", [](bool on) { tape->set_anomaly(on); });
  m.def("live_nodes", [] { return tape->live_nodes(); });
  m.def("gradient_edge", [](const py::object& o) {
    RbTensor* t = tensor(o, "gradient_edge");
    uint32_t output = 0;
    RbNode* n = tape->grad_fn(t, &output);
    if (!n) n = tape->accumulator(t);
    return py::reinterpret_steal<py::object>(Py_BuildValue("(NI)", wrap_node(n), output));
  });
  m.def("node_result", node_result_of);
  m.def("set_history", [](const py::object& o, const py::object& node, uint32_t output) {
    tape->set_history(tensor(o, "set_history"), as_node(node.ptr())->node, output);
  });
  m.attr("RETAIN") = int{RB_BACKWARD_RETAIN};
  m.attr("CREATE") = int{RB_BACKWARD_CREATE};
  m.attr("ACCUMULATE") = int{RB_BACKWARD_ACCUMULATE};
  m.attr("ALLOW_UNUSED") = int{RB_BACKWARD_ALLOW_UNUSED};
}
