#include "python_kernel.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "call/dispatch.h"
#include "call/plan.h"
#include "convert.h"
#include "device/backends.h"
#include "errors.h"
#include "layer/transforms.h"
#include "rules/rule_functions.h"
#include "rules/shape_rules.h"
#include "tensor/dtype.h"
#include "tensor_type.h"
#include "thread/thread_state.h"

namespace rabbet::python {

std::atomic<bool> strict_functions{false};

namespace {

constexpr uint64_t kLayerMask = ~((1ull << kBackendBits) - 1);

// Registration.self. It is never freed: a call on another thread may be on the way to it when the
// kernel is taken back, which only drops `fn`.
struct PythonKernel {
  PyObject* fn;               // null: taken back
  const Op* op = nullptr;     // whose keywords these are
  PyObject* names = nullptr;  // of the arguments that are passed by keyword; null: none are
};

PythonKernel* kernel_of(void* self) { return static_cast<PythonKernel*>(self); }

void drop_function(void* self) {
  if (!interpreter_alive()) return;
  WithGil gil;
  Py_CLEAR(kernel_of(self)->fn);
}

// ---- arguments

/// Whether core runs the call itself: no layer, but perhaps transforms, sees what the kernel does.
bool below_layers() {
  constexpr uint64_t layers =
      kLayerMask & ~(uint64_t{1} << kTransformSlot | uint64_t{1} << kCompositeSlot);
  return (thread_state().exclude & layers) == layers;
}

// Below the layers a kernel gets the tensor without what they know of it: not as requiring grad.
PyObject* plain_tensor(RbTensor* t) {
  return (keys_of(t) & kLayerMask) ? wrap(tensor_alias(t)) : wrap_borrowed(t);
}

PyObject* to_python(const RbValue& v, bool below) {
  if (!below) return value_to_python(&v);
  if (v.tag == RB_TENSOR) return plain_tensor(v.v.t);
  if (v.tag != RB_TENSORS) return value_to_python(&v);
  Ref list(must(PyList_New(v.len)));
  for (uint32_t i = 0; i < v.len; ++i) {
    PyObject* item = v.v.ts[i] ? plain_tensor(v.v.ts[i]) : Py_NewRef(Py_None);
    PyList_SET_ITEM(list.get(), i, must(item));
  }
  return list.release();
}

/// The objects of a call, on the stack.
class Given {
 public:
  ~Given() {
    for (int i = 0; i < n_; ++i) Py_DECREF(objects_[i + 1]);
  }
  Given() = default;
  Given(const Given&) = delete;
  Given& operator=(const Given&) = delete;
  void add(PyObject* owned) { objects_[++n_] = must(owned); }
  PyObject* call(PyObject* fn, PyObject* names) {
    const Py_ssize_t keywords = names ? PyTuple_GET_SIZE(names) : 0;
    const size_t positional = static_cast<size_t>(n_ - keywords);
    return calling_python([&] {
      return PyObject_Vectorcall(fn, objects_ + 1, positional | PY_VECTORCALL_ARGUMENTS_OFFSET,
                                 names);
    });
  }

 private:
  int n_ = 0;
  PyObject* objects_[kMaxParams + 3];
};

// Keyword-only arguments of the schema, and `out`.
Ref keywords(PythonKernel& k, const Op& op, bool fills) {
  if (__builtin_expect(k.op == &op, 1)) return Ref::borrow(k.names);
  Ref names(must(PyList_New(0)));
  auto add = [&](const char* text) {
    Ref name(must(PyUnicode_InternFromString(text)));
    if (PyList_Append(names.get(), name.get()) < 0) throw PythonError{};
  };
  for (const Param& p : op.params) {
    if (p.flags & RB_ARG_KEYWORD_ONLY) add(p.name);
  }
  if (fills) add("out");
  PyObject* tuple = PyList_GET_SIZE(names.get()) ? must(PyList_AsTuple(names.get())) : nullptr;
  Py_XDECREF(k.names);
  k.names = tuple;
  k.op = &op;
  return Ref::borrow(k.names);
}

// ---- results

bool shares_storage(const RbValue& v, const RbTensor* t) {
  if (v.tag == RB_TENSOR) return same_memory(v.v.t, t);
  for (uint32_t i = 0; v.tag == RB_TENSORS && i < v.len; ++i) {
    if (v.v.ts[i] && same_memory(v.v.ts[i], t)) return true;
  }
  return false;
}

// The arguments that the schema does not mark as written, and whether they were.
class Untouched {
 public:
  Untouched(const Op& op, const RbValue* args, int32_t nargs) : op_(op), args_(args), n_(nargs) {
    each([&](int i, uint32_t version) { before_[i] = version; });
  }
  void check() const {
    each([&](int i, uint32_t version) {
      if (before_[i] == version) return;
      fail(RB_E_PLUGIN,
           "%s: the function wrote to its argument '%s', which the schema does not say: write to "
           "a copy, or declare `Tensor(a!) %s`\n  %s",
           op_.name.c_str(), op_.params[i].name, op_.params[i].name, op_.schema.c_str());
    });
  }

 private:
  template <class Body>
  void each(Body&& body) const {
    for (int32_t i = 0; i < n_ && i < kMaxArgs; ++i) {
      if (args_[i].tag == RB_TENSOR && !(op_.params[i].flags & RB_ARG_MUTATED))
        body(i, version_of(args_[i].v.t));
    }
  }
  static constexpr int kMaxArgs = RB_MAX_ARGS;
  const Op& op_;
  const RbValue* args_;
  const int32_t n_;
  mutable uint32_t before_[kMaxArgs];
};

// A view has the memory of its argument.
void check_view(const Op& op, const RbTensor* t, const RbValue* args, int32_t nargs) {
  if (!op.is_view() || !op.info.aliased_args || !t->numel || t->backend == kMeta) return;
  const int i = __builtin_ctzll(op.info.aliased_args);
  if (i >= nargs || t->level || is_made_of_parts(t) || shares_storage(args[i], t)) return;
  if (args[i].tag == RB_TENSOR && is_made_of_parts(args[i].v.t)) return;
  fail(RB_E_PLUGIN,
       "%s: the result has memory of its own, but by the schema it is a view of '%s': return a "
       "view, or declare `-> Tensor`\n  %s",
       op.name.c_str(), op.params[i].name, op.schema.c_str());
}

void check_fresh(const Op& op, const RbTensor* t, const RbValue* args, int32_t nargs,
                 const RbValue* before, int nbefore) {
  if ((op.info.flags & (RB_OP_VIEW | RB_OP_MAYBE_VIEW)) || !t->numel) return;
  for (int32_t i = 0; i < nargs; ++i) {
    if (!shares_storage(args[i], t)) continue;
    fail(RB_E_ARG,
         "%s: the result shares memory with the argument '%s', but by the schema it is a tensor of "
         "its own: return a copy (clone()), or declare `-> Tensor view?(%s)`\n  %s",
         op.name.c_str(), op.params[i].name, op.params[0].name, op.schema.c_str());
  }
  for (int i = 0; i < nbefore; ++i) {
    if (shares_storage(before[i], t))
      fail(RB_E_ARG, "%s: two results share memory, but by the schema each is a tensor of its own",
           op.name.c_str());
  }
}

// What somebody else holds too, or layers know, comes out as a tensor of its own.
RbTensor* settled(RbTensor* owned) {
  if (!(keys_of(owned) & kLayerMask) && impl(owned)->refs.load(std::memory_order_acquire) == 1)
    return owned;
  const TensorRef keep(owned);
  return tensor_alias(owned);
}

[[noreturn]] void fail_result(const Op& op, const char* expected, PyObject* got) {
  if (PyTuple_Check(got) || PyList_Check(got)) {
    fail(RB_E_TYPE, "%s: the function must return %s, got a %s of %zd", op.name.c_str(), expected,
         Py_TYPE(got)->tp_name, PySequence_Size(got));
  }
  fail(RB_E_TYPE, "%s: the function must return %s, got %s", op.name.c_str(), expected,
       got == Py_None ? "None" : Py_TYPE(got)->tp_name);
}

/// Results of a call as they come in; released if something is wrong.
struct Results {
  const Op& op;
  const RbCall* call;
  const RbValue* args;
  int32_t nargs;
  RbValue* rets;
  int done = 0;
  bool kept = false;
  ~Results() {
    for (int i = 0; !kept && i < done; ++i) {
      value_release(&rets[i]);
      rets[i] = value_none();
    }
  }
  RbTensor* checked(PyObject* o, const char* expected) const {
    if (!is_tensor(o)) fail_result(op, expected, o);
    RbTensor* t = tensor_of(o);
    check_fresh(op, t, args, nargs, rets, done);
    check_view(op, t, args, nargs);
    const uint64_t backends = call->keys[0] & ~kLayerMask;
    if (backends && !(backends >> t->backend & 1)) {
      fail(RB_E_DEVICE, "%s: the kernel for '%s' returned a tensor on '%s'", op.name.c_str(),
           backend_name(__builtin_ctzll(backends)), backend_name(t->backend));
    }
    return t;
  }
  void add(PyObject* o, const char* expected) {
    RbTensor* t = checked(o, expected);
    retain(t);
    rets[done++] = value_tensor(t);
  }
  void add_list(PyObject* o) {
    if (!PyTuple_Check(o) && !PyList_Check(o)) fail_result(op, "a list of Tensors", o);
    const Ref items(must(PySequence_Tuple(o)));
    const auto n = static_cast<uint32_t>(PyTuple_GET_SIZE(items.get()));
    const auto missing = [&](uint32_t i) {
      return op.optional_items && PyTuple_GET_ITEM(items.get(), i) == Py_None;
    };
    for (uint32_t i = 0; i < n; ++i) {
      if (!missing(i)) checked(PyTuple_GET_ITEM(items.get(), i), "a list of Tensors");
    }
    RbTensor** ts = tensors_new(n);  // all of them null
    for (uint32_t i = 0; i < n; ++i) {
      if (missing(i)) continue;
      ts[i] = tensor_of(PyTuple_GET_ITEM(items.get(), i));
      retain(ts[i]);
    }
    rets[done] = value_none();
    rets[done].tag = RB_TENSORS;
    rets[done].len = n;
    rets[done++].v.ts = ts;
  }
};

void take_results(Results& r, PyObject* result, int32_t nrets) {
  if (nrets == 0) {
    if (result != Py_None) fail_result(r.op, "None", result);
    return;
  }
  if (r.op.returns_list) return r.add_list(result);
  if (nrets == 1) return r.add(result, "a Tensor");
  const std::string expected = "a tuple of " + std::to_string(nrets) + " Tensors";
  if (!PyTuple_Check(result) || PyTuple_GET_SIZE(result) != nrets)
    fail_result(r.op, expected.c_str(), result);
  for (int32_t i = 0; i < nrets; ++i) r.add(PyTuple_GET_ITEM(result, i), expected.c_str());
}

// ---- the functions that core calls

template <class Body>
int32_t guarded_python(Body&& body) noexcept {
  try {
    body();
    return RB_OK;
  } catch (const PythonError&) {
    return capture_error();
  } catch (...) {
    return store_current_exception();
  }
}

Ref live_function(const Op& op, const PythonKernel& k) {
  if (!k.fn) fail(RB_E_STATE, "%s: the kernel was taken back during the call", op.name.c_str());
  return Ref::borrow(k.fn);
}

enum class Kind { kKernel, kDecomp, kLayer };

template <Kind kind>
int32_t run_returning(void* self, const RbCall* call, const RbValue* args, int32_t nargs,
                      RbValue* rets, int32_t nrets) {
  const WithGil gil;
  return guarded_python([&] {
    PythonKernel& k = *kernel_of(self);
    const Op& op = *impl(call->op);
    const Nesting nesting(op);
    const bool below = kind != Kind::kLayer && below_layers();
    if (kind == Kind::kLayer && (call->flags & RB_CALL_OUT))
      fail(RB_E_NOTIMPL, "%s: its rule has no in-place and no out= form", op.name.c_str());
    const Ref fn = live_function(op, k);
    const Ref names = keywords(k, op, false);
    Given given;
    if (kind == Kind::kLayer) given.add(PyLong_FromLong(call->level));
    for (int32_t i = 0; i < nargs; ++i) given.add(to_python(args[i], below));
    std::optional<InsideKernel> inside;
    if (below && (kind == Kind::kKernel || op.info.kind == RB_KIND_OPAQUE)) inside.emplace();
    const Untouched untouched(op, args, nargs);
    Ref result(must(given.call(fn.get(), names.get())));
    inside.reset();
    untouched.check();
    RbCall plain = *call;
    if (kind != Kind::kKernel) plain.keys[0] = 0;  // any device
    Results results{op, &plain, args, kind == Kind::kLayer ? 0 : nargs, rets};
    take_results(results, result.get(), nrets);
    result = Ref();
    // What is made of other operators may give an argument back, as formulas do.
    const bool itself = kind == Kind::kDecomp && (op.info.flags & RB_OP_MAYBE_VIEW);
    for (int32_t i = 0; below && !itself && i < nrets; ++i) {
      if (rets[i].tag == RB_TENSOR) rets[i].v.t = settled(rets[i].v.t);
    }
    results.kept = true;
  });
}

// ---- what a function that fills its results has not written (library.strict)

constexpr unsigned char kUnwritten = 0xA5;

bool is_plain_block(const RbValue& v) {
  return v.tag == RB_TENSOR && has_host_memory(v.v.t->backend) &&
         (v.v.t->flags & RB_T_CONTIGUOUS) && v.v.t->numel && !is_made_of_parts(v.v.t);
}
size_t bytes_of(const RbTensor* t) {
  return static_cast<size_t>(t->numel) * dtype_info(t->dtype_id).itemsize;
}
void mark_unwritten(const RbValue* rets, int32_t nrets) {
  for (int32_t i = 0; i < nrets; ++i) {
    if (is_plain_block(rets[i])) std::memset(rets[i].v.t->data, kUnwritten, bytes_of(rets[i].v.t));
  }
}
void check_written(const Op& op, const RbValue* rets, int32_t nrets) {
  for (int32_t i = 0; i < nrets; ++i) {
    if (!is_plain_block(rets[i])) continue;
    const auto* data = static_cast<const unsigned char*>(rets[i].v.t->data);
    const size_t n = bytes_of(rets[i].v.t);
    if (std::any_of(data, data + n, [](unsigned char byte) { return byte != kUnwritten; }))
      continue;
    fail(RB_E_PLUGIN,
         "%s: the function wrote nothing to `out`: fill it (`out[...] = result`), an assignment to "
         "the name does not",
         op.name.c_str());
  }
}

int32_t run_filling(void* self, const RbCall* call, const RbValue* args, int32_t nargs,
                    RbValue* rets, int32_t nrets) {
  const WithGil gil;
  return guarded_python([&] {
    PythonKernel& k = *kernel_of(self);
    const Op& op = *impl(call->op);
    const Nesting nesting(op);
    const Ref fn = live_function(op, k);
    const Ref names = keywords(k, op, true);
    Given given;
    for (int32_t i = 0; i < nargs; ++i) given.add(to_python(args[i], true));
    if (nrets == 1) {
      given.add(to_python(rets[0], true));
    } else {
      Ref out(must(PyTuple_New(nrets)));
      for (int32_t i = 0; i < nrets; ++i)
        PyTuple_SET_ITEM(out.get(), i, must(to_python(rets[i], true)));
      given.add(out.release());
    }
    const InsideKernel inside;
    const Untouched untouched(op, args, nargs);
    const bool strict = strict_functions.load(std::memory_order_relaxed);
    if (strict) mark_unwritten(rets, nrets);
    const Ref result(must(given.call(fn.get(), names.get())));
    untouched.check();
    if (strict) check_written(op, rets, nrets);
    if (result.get() != Py_None && !is_tensor(result.get()) && !PyTuple_Check(result.get()))
      fail_result(op, "None: it fills `out`", result.get());
  });
}

// ---- rules

// What was not kept is a meta tensor: it has a shape and a dtype.
PyObject* meta_object(int ndim, const int64_t* shape, int dtype) {
  return wrap(tensor_new(kMeta, 0, dtype, ndim, shape, nullptr));
}
PyObject* rule_value(const RbValue& v) {
  if (v.tag == RB_META) return meta_object(v.v.meta->ndim, v.v.meta->shape, v.v.meta->dtype_id);
  return value_to_python(&v);
}
PyObject* shape_value(const RbValue& v) {
  if (v.tag == RB_TENSOR) return meta_object(v.v.t->ndim, v.v.t->shape, v.v.t->dtype_id);
  if (v.tag != RB_TENSORS) return value_to_python(&v);
  Ref list(must(PyList_New(v.len)));
  for (uint32_t i = 0; i < v.len; ++i) {
    const RbTensor* t = v.v.ts[i];
    PyObject* item = t ? meta_object(t->ndim, t->shape, t->dtype_id) : Py_NewRef(Py_None);
    PyList_SET_ITEM(list.get(), i, must(item));
  }
  return list.release();
}

PyObject* values_tuple(const RbValue* values, int32_t n) {
  Ref tuple(must(PyTuple_New(n)));
  for (int32_t i = 0; i < n; ++i) PyTuple_SET_ITEM(tuple.get(), i, must(rule_value(values[i])));
  return tuple.release();
}

const Ref& check_tuple(const Op& op, const Ref& result, int32_t n) {
  if (!PyTuple_Check(result.get()) || PyTuple_GET_SIZE(result.get()) != n)
    fail(RB_E_INTERNAL, "%s: a rule function of rabbet.library gave no tuple of %d",
         op.name.c_str(), n);
  return result;
}

int32_t run_shape(void* self, const RbCall* call, const RbValue* args, int32_t nargs, RbValue* rets,
                  int32_t nrets) {
  const WithGil gil;
  return guarded_python([&] {
    PythonKernel& k = *kernel_of(self);
    const Op& op = *impl(call->op);
    const Ref fn = live_function(op, k);
    const Ref names = keywords(k, op, false);
    Given given;
    for (int32_t i = 0; i < nargs; ++i) given.add(shape_value(args[i]));
    const Ref result(must(given.call(fn.get(), names.get())));
    check_tuple(op, result, nrets);
    for (int32_t i = 0; i < nrets; ++i) {
      PyObject* o = PyTuple_GET_ITEM(result.get(), i);
      retain(tensor_of(o));
      rets[i] = value_tensor(tensor_of(o));
    }
  });
}

// None: zero. The entries are Tensors, or lists of them for an argument that is a list.
RbValue gradient(PyObject* o) {
  RbValue v = value_none();
  v.tag = RB_ZERO;
  if (is_tensor(o)) {
    retain(tensor_of(o));
    return value_tensor(tensor_of(o));
  }
  if (!PyTuple_Check(o)) return v;
  const auto n = static_cast<uint32_t>(PyTuple_GET_SIZE(o));
  RbTensor** ts = tensors_new(n);
  for (uint32_t i = 0; i < n; ++i) {
    PyObject* item = PyTuple_GET_ITEM(o, i);
    ts[i] = is_tensor(item) ? tensor_of(item) : nullptr;
    if (ts[i]) retain(ts[i]);
  }
  v.tag = RB_TENSORS;
  v.len = n;
  v.v.ts = ts;
  return v;
}

void take_gradients(const Op& op, const Ref& result, RbValue* rets, int32_t nrets) {
  check_tuple(op, result, nrets);
  for (int32_t i = 0; i < nrets; ++i) rets[i] = gradient(PyTuple_GET_ITEM(result.get(), i));
}

// A gradient has the shape of its argument, or that to which the argument was broadcast.
void check_gradients(const Op& op, const RbValue* args, const RbValue* grads, int32_t nouts,
                     RbValue* rets, int32_t nrets) {
  const auto has_shape = [](const RbTensor* t, const RbValue& v) {
    const bool is_tensor = v.tag == RB_TENSOR;
    if (!is_tensor && v.tag != RB_META) return false;
    const int ndim = is_tensor ? v.v.t->ndim : v.v.meta->ndim;
    const int64_t* shape = is_tensor ? v.v.t->shape : v.v.meta->shape;
    return t->ndim == ndim && std::equal(shape, shape + ndim, t->shape);
  };
  for (int32_t i = 0; i < nrets; ++i) {
    if (rets[i].tag != RB_TENSOR || (args[i].tag != RB_TENSOR && args[i].tag != RB_META)) continue;
    const RbTensor* t = rets[i].v.t;
    if (has_shape(t, args[i])) continue;
    if (std::any_of(grads, grads + nouts, [&](const RbValue& g) { return has_shape(t, g); }))
      continue;
    const std::string got = shape_text(t->ndim, t->shape);
    const RbValue& v = args[i];
    const std::string want = v.tag == RB_TENSOR ? shape_text(v.v.t->ndim, v.v.t->shape)
                                                : shape_text(v.v.meta->ndim, v.v.meta->shape);
    for (int32_t k = 0; k < nrets; ++k) value_release(&rets[k]);
    fail(RB_E_PLUGIN, "%s: its derivative gave '%s' a gradient of shape %s, expected %s",
         op.name.c_str(), op.params[i].name, got.c_str(), want.c_str());
  }
}

int32_t run_vjp_function(void* self, const RbCall* call, const RbValue* args, int32_t,
                         RbValue* rets, int32_t nrets) {
  const WithGil gil;
  return guarded_python([&] {
    const Op& op = *impl(call->op);
    const Ref fn = live_function(op, *kernel_of(self));
    const int32_t nouts = op.info.nrets;
    Ref wanted(must(PyTuple_New(nrets)));
    for (int32_t i = 0; i < nrets; ++i)
      PyTuple_SET_ITEM(wanted.get(), i, PyBool_FromLong(rets[i].tag != RB_ZERO));
    Given given;
    given.add(wanted.release());
    given.add(values_tuple(args, nrets));
    given.add(values_tuple(args + nrets, nouts));
    const RbValue* grads = args + nrets + nouts;
    given.add(values_tuple(grads, nouts));
    take_gradients(op, Ref(must(given.call(fn.get(), nullptr))), rets, nrets);
    check_gradients(op, args, grads, nouts, rets, nrets);
  });
}

int32_t run_jvp_function(void* self, const RbCall* call, const RbValue* args, int32_t,
                         RbValue* rets, int32_t nrets) {
  const WithGil gil;
  return guarded_python([&] {
    const Op& op = *impl(call->op);
    const Ref fn = live_function(op, *kernel_of(self));
    const int32_t n = op.info.nargs;
    Given given;
    given.add(values_tuple(args, n));
    given.add(values_tuple(args + n, nrets));
    given.add(values_tuple(args + n + nrets, n));
    take_gradients(op, Ref(must(given.call(fn.get(), nullptr))), rets, nrets);
  });
}

RbFn trampoline(const std::string& target, bool fills) {
  if (target == "decomp") return run_returning<Kind::kDecomp>;
  if (target == "shape") return run_shape;
  if (target == "vjp") return run_vjp_function;
  if (target == "jvp") return run_jvp_function;
  return fills ? run_filling : run_returning<Kind::kKernel>;
}

}  // namespace

Registration make_python_kernel(const std::string& op, const std::string& target, PyObject* fn,
                                bool fills, uint64_t reads) {
  Registration k;
  const int rule = find_rule(target);
  k.kind = rule >= 0 ? Registration::kRule : Registration::kKernel;
  k.slot = rule;
  k.flags = RB_K_NEEDS_GIL | (fills ? 0u : +RB_K_ALLOCATES);
  k.op = op;
  k.target = target;
  k.fn = trampoline(target, fills);
  k.self = new PythonKernel{Py_NewRef(fn)};
  k.self_free = drop_function;
  if (reads) {
    k.reads_args = reads & UINT32_MAX;
    k.reads_rets = reads >> 32;
  }
  return k;
}

Registration make_python_layer_rule(const std::string& op, const std::string& layer, PyObject* fn) {
  Registration k = make_python_kernel(op, layer, fn, false, 0);
  k.kind = Registration::kKernel;
  k.slot = -1;
  k.fn = run_returning<Kind::kLayer>;
  return k;
}

}  // namespace rabbet::python
