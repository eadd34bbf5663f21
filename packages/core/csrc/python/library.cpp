#include "library.h"

#include <pybind11/stl.h>

#include "boundary/registry.h"
#include "call/decomp_functions.h"
#include "device/backends.h"
#include "errors.h"
#include "explain.h"
#include "formula/formula.h"
#include "op_type.h"
#include "python_kernel.h"
#include "record/examples.h"
#include "tensor/dtype.h"
#include "value_types.h"

namespace py = pybind11;

namespace rabbet::python {

namespace {

void add_ops(const std::string& text, const std::string& file, const std::string& provider,
             bool replace) {
  RbTxn txn;
  txn.provider = provider;
  txn.replace = replace;
  txn_add_ops(txn, text, file);
  txn_commit(txn);
  refresh_ops();
}

void remove_op(const std::string& name) {
  retire_op(name);
  refresh_ops();
}

int64_t add_python_kernel(const std::string& op, const std::string& target, const py::object& fn,
                          const std::string& provider, bool fills, bool layer, uint64_t reads,
                          bool replace) {
  Registration kernel = layer ? make_python_layer_rule(op, target, fn.ptr())
                              : make_python_kernel(op, target, fn.ptr(), fills, reads);
  kernel.provider = provider;
  try {
    return register_kernel(kernel, replace);
  } catch (...) {
    kernel.self_free(kernel.self);
    throw;
  }
}

int64_t add_c_kernel(const std::string& op, const std::string& target, uintptr_t address,
                     const std::string& provider, bool contiguous, bool allocates,
                     const std::vector<py::object>& dtypes, bool replace) {
  Registration k;
  k.provider = provider;
  k.flags = (contiguous ? +RB_K_CONTIGUOUS : 0u) | (allocates ? +RB_K_ALLOCATES : 0u);
  k.op = op;
  k.target = target;
  k.fn = reinterpret_cast<RbFn>(address);
  k.dtype_mask = dtypes.empty() ? kHeaderDTypes : 0;
  for (const py::object& o : dtypes) {
    const int dtype = dtype_of(o.ptr());
    if (dtype < 0)
      raise(PyExc_TypeError, "dtypes must hold dtypes, got %s", Py_TYPE(o.ptr())->tp_name);
    k.dtype_mask |= uint64_t{1} << dtype;
  }
  return register_kernel(std::move(k), replace);
}

// Returns the policy that it had.
std::string set_autocast(const std::string& name, const std::string& policy) {
  const int to = autocast_policy(policy);
  if (to < 0) {
    fail(RB_E_ARG,
         "autocast: %s: expected low, fp32, promote, pass, float16, bfloat16 or float32, got '%s'",
         name.c_str(), policy.c_str());
  }
  auto* op = const_cast<Op*>(find_op(name.c_str()));
  if (!op) raise(PyExc_KeyError, "no operator '%s'", name.c_str());
  return autocast_text(__atomic_exchange_n(&op->info.autocast, to, __ATOMIC_ACQ_REL));
}

py::list describe_kernels() {
  py::list list;
  for (const KernelEntry& k : registered_kernels()) {
    py::dict d;
    d["ticket"] = k.ticket;
    d["op"] = k.op;
    d["target"] = k.target;
    d["provider"] = k.provider;
    d["pending"] = k.pending;
    list.append(d);
  }
  return list;
}

PyObject* decomp_loader;  // owned; set once

int32_t load_decomp(const char* op, const char* family, const char* function) {
  WithGil gil;
  if (!decomp_loader)
    return set_error(RB_E_NOTIMPL, std::string(op) + ": nobody loads its decomposition");
  Ref done(calling_python(
      [&] { return PyObject_CallFunction(decomp_loader, "sss", op, family, function); }));
  return done ? +RB_OK : capture_error();
}

}  // namespace

void bind_library(py::module_& m) {
  m.def(
      "strict_functions", [](bool on) { return strict_functions.exchange(on); },
      "Whether functions that fill their results are checked to do so; returns what was set "
      "before.");
  m.def("add_ops", add_ops, py::arg("text"), py::arg("file"), py::arg("provider"),
        py::arg("replace") = false);
  m.def("set_decomp_loader", [](const py::object& f) {
    Py_XSETREF(decomp_loader, Py_NewRef(f.ptr()));
    set_decomp_loader(load_decomp);
  });
  m.def("remove_op", remove_op, py::arg("name"));
  m.def("add_python_kernel", add_python_kernel, py::arg("op"), py::arg("target"), py::arg("fn"),
        py::arg("provider"), py::arg("fills") = false, py::arg("layer") = false,
        py::arg("reads") = 0, py::arg("replace") = false);
  m.def("add_c_kernel", add_c_kernel, py::arg("op"), py::arg("target"), py::arg("address"),
        py::arg("provider"), py::arg("contiguous") = false, py::arg("allocates") = false,
        py::arg("dtypes") = py::tuple(), py::arg("replace") = false);
  m.def("set_autocast", set_autocast, py::arg("op"), py::arg("policy"));
  m.def("remove_kernel", unregister_kernel, py::arg("ticket"));
  m.def("registered_kernels", describe_kernels);
  m.def("dispatch_plan", dispatch_plan, py::arg("op"), py::arg("args"), py::arg("kwargs"),
        "What a call goes through: `steps`, each with name, provider, does (passes, acts or ends), "
        "why and handler; the record; the rules that are functions.");
  m.def("decomposed", decomposed, py::arg("op"), py::arg("args"), py::arg("kwargs"),
        "The results by the operator's decomposition, though there be a kernel.");
  m.def("set_op_handle", [](const py::object& op, const py::object& handle) {
    set_op_handle(op.ptr(), handle.ptr());
  });
}

}  // namespace rabbet::python
