#include "layer.h"

#include <utility>
#include <vector>

#include "rabbet/composite.h"
#include "rabbet/plugin.hpp"
#include "rabbet/python.hpp"
#include "rabbet/trace.h"

namespace dispatch {

const RbPython* core = nullptr;

namespace {

using rb::host;

constexpr uint32_t kPhase = 550;  // below differentiation and the transforms

int32_t layer = 0, slot = 0;
const RbComposites* composites = nullptr;
PyObject *call_handler, *value_reader, *read_handler;  // owned, for the life of the process

PyObject* must(PyObject* o) {
  if (!o) throw PythonError{};
  return o;
}

// Owns a reference to a Python object.
class Object {
 public:
  Object() = default;
  explicit Object(PyObject* owned) : p_(owned) {}
  Object(Object&& other) noexcept : p_(other.release()) {}
  Object& operator=(Object&&) = delete;
  ~Object() { Py_XDECREF(p_); }
  PyObject* get() const { return p_; }
  PyObject* release() {
    PyObject* p = p_;
    p_ = nullptr;
    return p;
  }

 private:
  PyObject* p_ = nullptr;
};

// ---- the thread's modes

thread_local std::vector<PyObject*> modes;  // owned

void include_layer() { host->layer_mode(layer, modes.empty() ? 0 : 1, -1); }

// What tls_save keeps: the same modes, for another thread.
int32_t save_modes(void*, void** state) {
  auto* saved = new std::vector<PyObject*>(modes);
  if (!saved->empty()) {
    const rb::WithGil gil;
    for (PyObject* mode : *saved) Py_INCREF(mode);
  }
  *state = saved;
  return RB_OK;
}

void drop(const std::vector<PyObject*>& list) {
  if (list.empty() || !rb::interpreter_alive()) return;
  const rb::WithGil gil;
  for (PyObject* mode : list) Py_DECREF(mode);
}

int32_t restore_modes(void*, const void* state) {
  const auto& saved = *static_cast<const std::vector<PyObject*>*>(state);
  if (saved.empty() && modes.empty()) return RB_OK;
  std::vector<PyObject*> before;
  {
    const rb::WithGil gil;
    for (PyObject* mode : saved) Py_INCREF(mode);
    before.swap(modes);
    modes = saved;
  }
  drop(before);
  return RB_OK;
}

void free_modes(void*, void* state) {
  auto* saved = static_cast<std::vector<PyObject*>*>(state);
  drop(*saved);
  delete saved;
}

// ---- a call

// Layers above this one take no part in the calls that a handler makes: what they do has been done.
thread_local uint64_t outer_exclude = 0;  // of the code that made the call that is handled
class LayersAboveOff {
 public:
  LayersAboveOff() : before_(thread().exclude), outer_(outer_exclude) {
    outer_exclude = before_;
    RbThread now = thread();
    now.exclude |= ~uint64_t{0} << layer << 1;
    host->thread_set(&now);
  }
  ~LayersAboveOff() {
    outer_exclude = outer_;
    RbThread now = thread();
    now.exclude = before_;
    host->thread_set(&now);
  }
  LayersAboveOff(const LayersAboveOff&) = delete;
  LayersAboveOff& operator=(const LayersAboveOff&) = delete;

 private:
  static RbThread thread() {
    RbThread now{};
    now.struct_size = sizeof now;
    host->thread_get(&now);
    return now;
  }
  uint64_t before_, outer_;
};

class Recursion {
 public:
  Recursion() {
    if (Py_EnterRecursiveCall(" in __torch_dispatch__")) throw PythonError{};
  }
  ~Recursion() { Py_LeaveRecursiveCall(); }
  Recursion(const Recursion&) = delete;
  Recursion& operator=(const Recursion&) = delete;
};

PyObject* wrapped(RbTensor* t) {
  host->retain(t);
  return must(core->wrap(t));
}

// An alias of a wrapper, which layers make to keep it, as an object of the wrapper's class with the
// same attributes. `plain` is the alias' object now, which nobody else needs.
PyObject* as_wrapper(RbTensor* t, Object plain) {
  const Object keeper(keeper_of(t));
  const Object record(must(PyObject_GetAttrString(keeper.get(), "wrapper")));  // class, attributes
  auto* cls = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(record.get(), 0));
  rb::Ref alias;
  if (Py_REFCNT(plain.get()) == 1) {
    alias = rb::Ref::share(t);
    Py_DECREF(plain.release());
  } else {
    rb::check(host->tensor_alias(t, alias.out()));
  }
  Object made(must(core->wrap_as(cls, alias.take())));
  if (PyObject_SetAttrString(made.get(), "__dict__", PyTuple_GET_ITEM(record.get(), 1)) < 0)
    throw PythonError{};
  return made.release();
}

}  // namespace

PyObject* keeper_of(RbTensor* t) {
  RbComposite made_of{};
  made_of.struct_size = sizeof made_of;
  rb::check(composites->get(t, &made_of));
  return wrapped(made_of.parts[0]);
}

namespace {

PyObject* to_object(RbTensor* t) {
  Object object(wrapped(t));
  if (Py_TYPE(object.get()) != core->tensor_type || !is_wrapper(t)) return object.release();
  return as_wrapper(t, std::move(object));
}

PyObject* to_object(const RbValue& value) {
  if (value.tag == RB_TENSOR) return to_object(value.v.t);
  if (value.tag != RB_TENSORS) return must(core->from_value(&value));
  Object list(must(PyList_New(value.len)));
  for (uint32_t i = 0; i < value.len; ++i) {
    RbTensor* t = value.v.ts[i];
    PyList_SET_ITEM(list.get(), i, t ? to_object(t) : Py_NewRef(Py_None));
  }
  return list.release();
}

Object to_tuple(const RbValue* values, int32_t n) {
  Object tuple(must(PyTuple_New(n)));
  for (int32_t i = 0; i < n; ++i) PyTuple_SET_ITEM(tuple.get(), i, to_object(values[i]));
  return tuple;
}

RbTensor* retained(PyObject* o) {
  RbTensor* t = core->unwrap(o);
  if (t) host->retain(t);
  return t;
}

// The handler has checked what it returns: a tensor or a tuple of tensors for each result.
RbValue to_result(PyObject* o) {
  if (!PyTuple_Check(o)) return rb::tensor_value(retained(o));
  const Py_ssize_t n = PyTuple_GET_SIZE(o);
  RbTensor** list = nullptr;
  rb::check(host->tensors_new(static_cast<uint32_t>(n), &list));
  for (Py_ssize_t i = 0; i < n; ++i) list[i] = retained(PyTuple_GET_ITEM(o, i));
  return rb::tensors_value(list, static_cast<size_t>(n));
}

std::vector<uint32_t> versions_of(const RbValue* outs, int32_t n) {
  std::vector<uint32_t> versions;
  for (int32_t i = 0; i < n; ++i)
    versions.push_back(outs[i].tag == RB_TENSOR ? host->version_get(outs[i].v.t) : 0);
  return versions;
}

// Autograd must learn of a write that took place in the memory of other tensors.
void count_writes(const RbValue* outs, const std::vector<uint32_t>& before) {
  for (size_t i = 0; i < before.size(); ++i) {
    if (outs[i].tag == RB_TENSOR && host->version_get(outs[i].v.t) == before[i])
      rb::check(host->version_bump(outs[i].v.t));
  }
}

// What the handler says in place of results.
enum class Answer { kResults, kNobody, kParts };

Answer run_handler(const RbCall* call, const RbValue* args, int32_t nargs, RbValue* rets,
                   int32_t nrets) {
  const Recursion recursion;
  const bool writes = (call->flags & RB_CALL_OUT) != 0;
  const Object values = to_tuple(args, nargs);
  const Object outs = writes ? to_tuple(rets, nrets) : Object(Py_NewRef(Py_None));
  const auto versions = versions_of(rets, writes ? nrets : 0);
  const Object name(must(PyUnicode_FromString(host->op_info(call->op)->name)));
  const Object results(must(
      PyObject_CallFunctionObjArgs(call_handler, name.get(), values.get(), outs.get(), nullptr)));
  if (results.get() == Py_None) return Answer::kNobody;
  if (results.get() == Py_NotImplemented) return Answer::kParts;
  if (writes) {
    count_writes(rets, versions);
  } else {
    for (int32_t i = 0; i < nrets; ++i) rets[i] = to_result(PyTuple_GET_ITEM(results.get(), i));
  }
  return Answer::kResults;
}

int32_t handle_call(void*, const RbCall* call, const RbValue* args, int32_t nargs, RbValue* rets,
                    int32_t nrets) {
  if (!rb::interpreter_alive()) return host->redispatch(call, layer, args, nargs, rets, nrets);
  Answer answer = Answer::kResults;
  {
    const rb::WithGil gil;
    const LayersAboveOff off;
    bool raised = false;
    int32_t rc = rb::guarded([&] {
      try {
        answer = run_handler(call, args, nargs, rets, nrets);
      } catch (const PythonError&) {
        raised = true;
      }
    });
    if (raised) rc = core->capture_error();
    if (rc != RB_OK) return rc;
  }
  if (answer == Answer::kNobody) return host->redispatch(call, layer, args, nargs, rets, nrets);
  if (answer == Answer::kResults) return RB_OK;
  const LayersAboveOff off;  // the operators that it is made of come to the layer
  return host->decompose(call, args, nargs, rets, nrets);
}

// ---- values

int32_t read_values(void*, void*, RbTensor* t, const char* what, RbTensor** out) {
  const rb::WithGil gil;
  bool raised = false;
  const int32_t rc = rb::guarded([&] {
    try {
      const Object object(to_object(t));
      const Object made(must(PyObject_CallFunction(value_reader, "Os", object.get(), what)));
      *out = retained(made.get());
    } catch (const PythonError&) {
      raised = true;
    }
  });
  return raised ? core->capture_error() : rc;
}

// A mode is on in this thread, and the program reads a plain tensor.
int32_t ask_mode(void*, const RbTensor* t, const char* what) {
  if (modes.empty() || !rb::interpreter_alive()) return RB_OK;
  const rb::WithGil gil;
  bool raised = false;
  const int32_t rc = rb::guarded([&] {
    try {
      const Object object(wrapped(const_cast<RbTensor*>(t)));
      const Object done(must(PyObject_CallFunction(read_handler, "Os", object.get(), what)));
    } catch (const PythonError&) {
      raised = true;
    }
  });
  return raised ? core->capture_error() : rc;
}

void keep(void*) {}

}  // namespace

void add_layer(PyObject* handler, PyObject* reader, PyObject* on_read) {
  host = core->host;
  call_handler = Py_NewRef(handler);
  value_reader = Py_NewRef(reader);
  read_handler = Py_NewRef(on_read);
  static const char* const none[] = {nullptr};
  RbLayer desc{};
  desc.struct_size = RB_SIZE(RbLayer, thread_free);
  desc.flags = RB_L_VIEWS | RB_L_DERIVATIVES;
  desc.name = "python";
  desc.phase = kPhase;
  desc.on_missing = RB_L_FALLBACK;
  desc.before = none;
  desc.after = none;
  desc.fallback = handle_call;
  desc.thread_save = save_modes;
  desc.thread_restore = restore_modes;
  desc.thread_free = free_modes;
  RbTxn* txn = nullptr;
  rb::check(host->txn_begin("rabbet-core", &txn));
  if (const int32_t rc = host->add_layer(txn, &desc, &layer)) {
    host->txn_abort(txn);
    throw rb::Stored{rc};
  }
  rb::check(host->txn_commit(txn));
  uint32_t offset = 0;
  rb::check(host->slot_new("python", layer, keep, &slot, &offset));
  composites =
      static_cast<const RbComposites*>(host->get_ext(RB_COMPOSITE_EXT, RB_COMPOSITE_VERSION));
  const auto* trace = static_cast<const RbTrace*>(host->get_ext(RB_TRACE_EXT, RB_TRACE_VERSION));
  rb::check(trace->data_hook(layer, read_values, nullptr));
  rb::check(trace->read_gate(layer, ask_mode, nullptr));
}

void mark(RbTensor* t) {
  static char here;
  if (!(t->keys[0] >> layer & 1)) rb::check(host->slot_set(t, slot, &here, 1));
}

bool is_wrapper(const RbTensor* t) {
  return (t->flags & RB_T_COMPOSITE) != 0 && (t->keys[0] >> layer & 1) != 0;
}

RbTensor* make_wrapper(RbTensor* keeper, int32_t ndim, const int64_t* shape,
                       const int64_t* strides) {
  RbComposite what{};
  what.struct_size = sizeof what;
  what.layer = layer;
  what.backend = keeper->backend;
  what.device = keeper->device.id;
  what.dtype = keeper->dtype_id;
  what.ndim = ndim;
  what.nparts = 1;
  what.shape = shape;
  what.strides = strides;
  what.parts = &keeper;
  RbTensor* made = nullptr;
  rb::check(composites->compose(&what, &made));
  return made;
}

PyObject* call_outside(PyObject* function) {
  RbThread now{};
  now.struct_size = sizeof now;
  host->thread_get(&now);
  const uint64_t inside = now.exclude;
  now.exclude = outer_exclude;
  host->thread_set(&now);
  PyObject* result = PyObject_CallNoArgs(function);
  now.exclude = inside;
  host->thread_set(&now);
  return must(result);
}

void push_mode(PyObject* mode) {
  modes.push_back(Py_NewRef(mode));
  include_layer();
}

PyObject* pop_mode() {
  if (modes.empty()) {
    PyErr_SetString(PyExc_RuntimeError, "there is no mode of __torch_dispatch__ in this thread");
    throw PythonError{};
  }
  PyObject* mode = modes.back();
  modes.pop_back();
  include_layer();
  return mode;
}

PyObject* mode_list() {
  Object list(must(PyList_New(static_cast<Py_ssize_t>(modes.size()))));
  for (size_t i = 0; i < modes.size(); ++i)
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), Py_NewRef(modes[i]));
  return list.release();
}

bool set_disabled(bool on) {
  RbThread now{};
  now.struct_size = sizeof now;
  host->thread_get(&now);
  const bool before = (now.exclude >> layer & 1) != 0;
  host->layer_mode(layer, -1, on ? 1 : 0);
  return before;
}

}  // namespace dispatch
