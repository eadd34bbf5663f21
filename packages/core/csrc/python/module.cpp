// The module rabbet._C: what is not on the way of an operator call.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <optional>

#include "boundary/plugin.h"
#include "buffer.h"
#include "call/fallback.h"
#include "call/formula_kernels.h"
#include "calls.h"
#include "chosen_device.h"
#include "composite.h"
#include "convert.h"
#include "core_ops.h"
#include "data.h"
#include "device/backends.h"
#include "device/current.h"
#include "device/generator.h"
#include "device/memory.h"
#include "device/reserved.h"
#include "discovery.h"
#include "dlpack.h"
#include "errors.h"
#include "formula/emit.h"
#include "formula/formula_kernel.h"
#include "graph.h"
#include "layer/layers.h"
#include "layer/transforms.h"
#include "library.h"
#include "memory.h"
#include "named_dtypes.h"
#include "op_type.h"
#include "overrides.h"
#include "rabbet/python.h"
#include "record/examples.h"
#include "record/join.h"
#include "rules/rule_functions.h"
#include "streams.h"
#include "tensor/dtype.h"
#include "tensor_type.h"
#include "thread/host_table.h"
#include "thread/pool.h"
#include "thread/settings.h"
#include "thread/thread_state.h"
#include "thread/wait.h"
#include "trace.h"
#include "value_types.h"

namespace py = pybind11;

namespace rabbet::python {

namespace {

py::object owned(PyObject* o) { return py::reinterpret_steal<py::object>(must(o)); }
py::object wrapped(TensorRef t) { return owned(wrap(t.release_ownership())); }

int dtype_argument(const py::object& o) {
  if (o.is_none()) return -1;
  const int dtype = dtype_of(o.ptr());
  if (dtype < 0) raise(PyExc_TypeError, "expected a dtype, got %s", Py_TYPE(o.ptr())->tp_name);
  return dtype;
}

// ---- loaders that Python provides

PyObject* backend_loader = nullptr;

int32_t load_backend(const char* name) {
  WithGil gil;
  if (!backend_loader)
    return set_error(RB_E_PLUGIN, std::string("no backend for device '") + name + "' is loaded");
  Ref done(calling_python([&] { return PyObject_CallFunction(backend_loader, "s", name); }));
  return done ? +RB_OK : capture_error();
}

int32_t warn_in_python(const char* message) {
  const WithGil gil;
  return PyErr_WarnEx(PyExc_UserWarning, message, 1) == 0 ? +RB_OK : capture_error();
}

void run_unlocked(void (*body)(void*), void* ctx) {
  if (!PyGILState_Check()) return body(ctx);
  const WithoutGil unlocked;
  body(ctx);
}
int32_t interrupted_in_python() {
  const WithGil gil;
  return PyErr_CheckSignals() == 0 ? +RB_OK : capture_error();
}
constexpr WaitHooks kWaitHooks = {run_unlocked, interrupted_in_python};

// ---- what is registered

const char* const kTypeNames[] = {
    "Tensor", "Tensor[]",  "Scalar", "int",    "float",    "bool",   "str",     "dtype",
    "device", "Generator", "dim",    "newdim", "dim[]",    "perm",   "size[]",  "bsize[]",
    "int[]",  "float[]",   "bool[]", "str[]",  "Scalar[]", "layout", "callable"};
static_assert(sizeof kTypeNames / sizeof *kTypeNames == RB_A_CALLABLE + 1);
const char* const kKindNames[] = {"elementwise", "reduction", "along",  "movement",  "batched",
                                  "indexing",    "creation",  "random", "composite", "opaque"};

py::dict describe_param(const Param& p) {
  py::dict d;
  d["name"] = p.name_text;
  d["type"] = kTypeNames[p.type];
  d["optional"] = (p.flags & RB_ARG_OPTIONAL) != 0;
  d["keyword_only"] = (p.flags & RB_ARG_KEYWORD_ONLY) != 0;
  d["mutated"] = (p.flags & RB_ARG_MUTATED) != 0;
  d["linear"] = (p.flags & RB_ARG_LINEAR) != 0;
  d["bilinear"] = (p.flags & RB_ARG_BILINEAR) != 0;
  d["vjp"] = (p.flags & RB_ARG_HAS_VJP) != 0;
  d["flat"] = (p.flags & RB_ARG_FLAT) != 0;
  d["fixed_len"] = p.fixed_len;
  d["choices"] = p.choices;
  d["has_default"] = p.has_default;
  d["default"] = p.has_default ? owned(value_to_python(&p.default_value)) : py::none();
  return d;
}

py::list dtype_list(uint64_t mask) {
  py::list names;
  for (int d = 0; d < dtype_count(); ++d) {
    if (mask >> d & 1) names.append(kDTypes[d].name);
  }
  return names;
}

py::object example_value(const ExampleValue& v);

py::list example_values(const std::vector<ExampleValue>& values) {
  py::list items;
  for (const ExampleValue& v : values) items.append(example_value(v));
  return items;
}

// Arguments without keywords, and those with.
py::tuple example_arguments(const std::vector<ExampleValue>& values) {
  py::list args;
  py::dict kwargs;
  for (const ExampleValue& v : values) {
    if (v.keyword.empty()) {
      args.append(example_value(v));
    } else {
      kwargs[py::str(v.keyword)] = example_value(v);
    }
  }
  return py::make_tuple(args, kwargs);
}

// Numbers, strings, None and lists are themselves; the rest is a tuple that begins with what it is.
py::object example_value(const ExampleValue& v) {
  switch (v.kind) {
    case ExampleValue::kNone:
      return py::none();
    case ExampleValue::kBool:
      return py::bool_(v.whole != 0);
    case ExampleValue::kInt:
      return py::int_(v.whole);
    case ExampleValue::kFloat:
      return py::float_(v.number);
    case ExampleValue::kString:
      return py::str(v.text);
    case ExampleValue::kName:
      return py::make_tuple("name", v.text);
    case ExampleValue::kList:
      return example_values(v.items);
    case ExampleValue::kTensor:
      return py::make_tuple("tensor", v.text, example_values(v.items), v.shape);
    case ExampleValue::kResult: {
      const py::tuple given = example_arguments(v.items);
      return py::make_tuple("result", v.text, given[0], given[1], v.whole);
    }
  }
  return py::none();
}

// (text, arguments, keyword arguments) of each call.
py::list example_calls(const Op& op) {
  py::list calls;
  for (const Example& call : read_examples(op)) {
    const py::tuple given = example_arguments(call.args);
    calls.append(py::make_tuple(call.text, given[0], given[1]));
  }
  return calls;
}

// Argument to (low, low is allowed, high, high is allowed, 0 is not), None where there is no bound.
py::dict domain_bounds(const Op& op) {
  py::dict bounds;
  for (const Bound& b : read_domain(op)) {
    const py::object low = b.has_low ? py::object(py::float_(b.low)) : py::none();
    const py::object high = b.has_high ? py::object(py::float_(b.high)) : py::none();
    bounds[py::str(b.argument)] = py::make_tuple(low, b.low_closed, high, b.high_closed, b.nonzero);
  }
  return bounds;
}

std::vector<std::string> argument_names(const Op& op, uint64_t mask) {
  std::vector<std::string> names;
  for (size_t i = 0; i < op.params.size(); ++i) {
    if (mask >> i & 1) names.push_back(op.params[i].name_text);
  }
  return names;
}

py::dict describe_op(const std::string& name) {
  const Op* op = record_named(name);
  py::dict d;
  d["name"] = op->name;
  d["base"] = op->base;
  d["schema"] = op->schema;
  d["kind"] = kKindNames[op->info.kind];
  d["autocast"] = autocast_text(op->info.autocast);
  py::list params;
  for (const Param& p : op->params) params.append(describe_param(p));
  d["params"] = params;
  d["rets"] = op->ret_names;
  d["returns_list"] = op->returns_list;
  d["view"] = op->is_view();
  d["memory_format"] = op->memory_format != FormatKeyword::kNone;
  d["maybe_view"] = (op->info.flags & RB_OP_MAYBE_VIEW) != 0;
  d["data_shape"] = (op->info.flags & RB_OP_DATA_SHAPE) != 0;
  d["random"] = draws(*op);
  d["checks_data"] = (op_info(*op)->flags & RB_OP_CHECKS_DATA) != 0;
  d["detached"] = op->detached;
  d["doc"] = op->doc;
  d["ref"] = op->ref;
  d["dtypes"] = op->dtypes_text;
  d["dtype_rules"] = op->dtype_text;
  d["compute_rule"] = op->compute_text.empty() ? "none" : op->compute_text;
  d["cast"] = argument_names(*op, op->compute_args & ~op->never_cast);
  py::list numbers;
  for (size_t i = 0; i < op->params.size(); ++i) {
    if (op->takes_number(i)) numbers.append(op->params[i].name);
  }
  d["numbers"] = numbers;
  d["numbers_only"] = op->numbers_only;
  d["creation"] = op->creation;
  d["identity"] = op->identity;
  d["join"] = kJoinNames[op->info.join];
  py::list checks;
  for (const Check& check : op->checks) checks.append(check.condition + " : " + check.message);
  d["checks"] = checks;
  d["data_checks"] = op->data_checks;
  d["itself_if_real"] = op->itself_if_real;
  d["examples"] = example_calls(*op);
  d["domain"] = domain_bounds(*op);
  d["alias"] = op->aliases;
  d["function"] = op->as_function;
  py::dict modules;  // names by module, `{"special": ["digamma", "psi"]}`
  for (const ModuleName& place : op->exposed_in) {
    const py::str module(place.module);
    if (!modules.contains(module)) modules[module] = py::list();
    modules[module].cast<py::list>().append(place.name);
  }
  d["modules"] = modules;
  d["method"] = op->as_method;
  d["inplace"] = op->as_inplace;
  d["has_vjp"] = (op->info.flags & RB_OP_HAS_VJP) != 0;
  d["has_decomp"] = op->has_decomp();
  d["in_core"] = op->core_fn != nullptr;
  d["provider"] = op->provider;
  d["file"] = op->file;
  d["family"] = op->family;
  py::dict formulas;
  if (!op->decomp_text.empty()) formulas["decomp"] = op->decomp_text;
  for (auto& [arg, text] : op->vjps) formulas[py::str("vjp " + arg)] = text;
  for (auto& [ret, text] : op->jvps) formulas[py::str("jvp " + op->ret_names[ret])] = text;
  d["formulas"] = formulas;
  py::dict rules;  // those that are functions
  for (int slot = 0; slot < kRuleSlots; ++slot) {
    if (op->rules[slot].fn) rules[rule_name(slot)] = op->rules[slot].provider;
  }
  d["rules"] = rules;
  py::dict kernels, kernel_dtypes;
  for (int bit = 0; bit < backend_count(); ++bit) {
    const Handler& handler = op->table[bit];
    if (!handler.fn) continue;
    kernels[backend_name(bit)] = handler.provider ? handler.provider : "?";
    kernel_dtypes[backend_name(bit)] = dtype_list(handler.dtype_mask);
  }
  d["kernels"] = kernels;
  d["kernel_dtypes"] = kernel_dtypes;
  py::dict formula_kernels;  // those of whole formulas, by the formula's name
  auto note = [&](const std::string& formula, int bit, const Handler& handler) {
    if (!handler.fn || !(handler.flags & kFormulaFlag)) return;
    const py::str key(formula);
    if (!formula_kernels.contains(key)) formula_kernels[key] = py::dict();
    formula_kernels[key][backend_name(bit)] = handler.provider ? handler.provider : "?";
  };
  for (int bit = 0; bit < backend_count(); ++bit) {
    note("decomp", bit, op->table[bit]);
    for (size_t i = 0; i < op->params.size(); ++i) {
      const Op* derivative = find_derivative(*op, static_cast<int>(i));
      if (derivative) note("vjp " + op->params[i].name_text, bit, derivative->table[bit]);
    }
  }
  d["formula_kernels"] = formula_kernels;
  return d;
}

std::map<std::string, std::string> emit(const std::string& dialect) {
  if (dialect != "cpu" && dialect != "c")
    fail(RB_E_ARG, "emit: dialect must be 'cpu' or 'c', got '%s'", dialect.c_str());
  Emission emission(dialect == "cpu" ? Dialect::kCpu : Dialect::kC);
  for (const Op* op : all_ops()) emission.add(*op);
  return emission.files();
}

std::vector<std::string> record_names() {
  std::vector<std::string> names;
  for (const Op* op : all_ops()) names.push_back(op->name);
  return names;
}

py::list describe_layers() {
  py::list list;
  for (const LayerEntry* layer : layers_in_order()) {
    py::dict d;
    d["name"] = layer->name;
    d["bit"] = layer->bit;
    d["phase"] = layer->desc.phase;
    d["before"] = layer->before;
    d["after"] = layer->after;
    d["provider"] = layer->provider;
    d["transform"] = layer->bit != kTransformSlot && is_transform(layer->desc);
    list.append(d);
  }
  return list;
}

py::list describe_phases() {
  py::list list;
  for (const PhaseRange& range : phase_ranges()) {
    py::dict d;
    d["first"] = range.first;
    d["last"] = range.last;
    d["name"] = range.name;
    d["meaning"] = range.meaning;
    list.append(d);
  }
  return list;
}

py::list describe_backends() {
  py::list list;
  for (int id = 0; id < backend_count(); ++id) {
    const BackendEntry& entry = backend_entry(id);
    uint64_t in_use = 0, cached = 0, peak = 0;
    for (Heap* heap : heaps_of(id)) {
      const BlockStats stats = heap->stats().all;
      in_use += stats.block_bytes.current();
      // Whole segments, which can be given back.
      cached +=
          stats.segment_bytes.current() - stats.block_bytes.current() - stats.split_bytes.current();
      peak += stats.block_bytes.peak();
    }
    py::dict d;
    d["name"] = entry.name;
    d["provider"] = entry.provider;
    d["host_memory"] = has_host_memory(id);
    // A backend that cannot tell has none, and the others are still listed.
    int32_t devices = 0;
    const bool told = guarded([&] { devices = device_count(id); }) == RB_OK;
    d["devices"] = devices;
    d["failure"] = told ? "" : kHost.err_get()->message;
    if (!told) kHost.err_clear();
    d["bytes_in_use"] = in_use;
    d["bytes_cached"] = cached;
    d["bytes_peak"] = peak;
    list.append(d);
  }
  return list;
}

py::list describe_plugins() {
  py::list list;
  for (const LoadedPlugin& p : loaded_plugins()) {
    py::dict d;
    d["name"] = p.name;
    d["version"] = p.version;
    d["path"] = p.path;
    d["abi"] = py::make_tuple(p.abi_major, p.abi_built);
    d["abi_min"] = p.abi_min;
    list.append(d);
  }
  return list;
}

// ---- dtypes

std::vector<std::string> dtype_names() {
  std::vector<std::string> names;
  for (int d = 0; d < dtype_count(); ++d) {
    if (*dtype_info(d).name) names.emplace_back(dtype_info(d).name);
  }
  return names;
}

py::object float_limits(const py::object& o) {
  const int dtype = dtype_argument(o);
  if (dtype < 0 || (!is_floating(dtype) && !is_complex(dtype))) return py::none();
  const DTypeInfo& d = dtype_info(to_real(dtype));
  return py::make_tuple(d.bits, d.eps, d.max, d.tiny, d.name);
}

// ---- plugins

void load(const std::string& path, const std::map<std::string, std::string>& devices,
          const std::map<std::string, std::string>& layers) {
  int32_t code;
  {
    const WithoutGil unlocked;
    const ReservedNames names{devices, layers};
    const Reserve reserve(names);
    code = load_plugin(path.c_str());
  }
  check(code);
  refresh_ops();
  refresh_dtypes();
}

// ---- wrappers of transforms, for printing

const Tensor* wrapper_of(py::handle t) {
  if (!is_tensor(t.ptr())) throw py::type_error("expected a tensor");
  return tensor_of(t.ptr());
}

// (inner, second or None, bits); a tensor that is no wrapper stands for itself.
py::tuple unwrap_transform(const Tensor* t) {
  auto object = [](RbTensor* inner) {
    retain(inner);
    return py::reinterpret_steal<py::object>(must(wrap(inner)));
  };
  if (!(t->flags & RB_T_WRAPPER))
    return py::make_tuple(object(const_cast<Tensor*>(t)), py::none(), 0);
  const auto& w = *static_cast<const RbWrap*>(t->ext);
  return py::make_tuple(object(w.inner), w.second ? object(w.second) : py::none(), w.bits);
}

// ---- rabbet/python.h

RbTensor* unwrap(PyObject* o) { return is_tensor(o) ? tensor_of(o) : nullptr; }
PyObject* wrap_public_as(PyTypeObject* cls, RbTensor* t) { return wrap_as(cls, impl(t)); }
const RbPython python_table = {sizeof(RbPython),
                               0,
                               &kHost,
                               nullptr,
                               wrap,
                               unwrap,
                               raise_error,
                               capture_error,
                               value_to_python,
                               set_referents,
                               wrap_public_as,
                               use_arguments};

void translate(std::exception_ptr p) {
  try {
    std::rethrow_exception(p);
  } catch (const PythonError&) {  // the exception is set
  } catch (const std::exception&) {
    throw;  // pybind11's own
  } catch (...) {
    raise_current_exception();
  }
}

int offered_abi() {
  try {
    return offered_minor();
  } catch (...) {
    raise_current_exception();
    throw py::error_already_set();
  }
}

// By minor version: for judges of plugins, which hand them the tables of older cores.
py::dict host_sizes() {
  py::dict sizes;
  for (int minor = oldest_minor(); minor <= RB_ABI_MINOR; ++minor)
    sizes[py::int_(minor)] = host_size(minor);
  return sizes;
}

bool init_types(PyObject* module) {
  return init_errors(module) && init_value_types(module) && init_core_ops() &&
         init_tensor_type(module) && init_overrides(module);
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  m.doc() = "The binding of librabbet_core; see packages/core/csrc/python/README.md.";
  py::register_exception_translator(translate);
  if (!init_types(m.ptr())) throw py::error_already_set();
  init_op_type(m.ptr());
  set_backend_loader(load_backend);
  set_warner(warn_in_python);
  set_wait_hooks(&kWaitHooks);

  static RbPython table = python_table;
  table.tensor_type = tensor_type;
  m.add_object("python_v0", py::reinterpret_steal<py::object>(
                                PyCapsule_New(&table, RB_PYTHON_CAPSULE, nullptr)));
  m.def("transform_level", [](py::handle t) { return wrapper_of(t)->level; });
  m.def("set_shown_module", [](const std::string& name) { shown_module = name; });
  m.def("transform_depth", [] { return thread_state().depth; });
  m.def("unwrap", [](py::handle t) { return unwrap_transform(wrapper_of(t)); });
  m.attr("abi") = py::make_tuple(RB_ABI_MAJOR, offered_abi());
  m.attr("abi_oldest") = oldest_minor();
  m.attr("abi_host_sizes") = host_sizes();
  m.def("check_abi", check_abi,
        "Raise PluginError where `who` needs another plugin ABI than this core offers.");
  m.attr("__version__") = RABBET_VERSION;

  m.def("op", [](const std::string& name) {
    PyObject* o = find_op_object(name);
    if (!o) raise(PyExc_KeyError, "no operator '%s'", name.c_str());
    return py::reinterpret_borrow<py::object>(o);
  });
  m.def("op_modules", op_modules,
        "Modules in which records expose operators, 'linalg' or 'nn.functional'.");
  m.def(
      "ops_of_module", [](const std::string& module) { return owned(ops_of_module(module)); },
      "The operators that records expose in a module, by their names there.");
  m.def("op_names", public_op_names, "Public names of operators, aliases included.");
  m.def(
      "keyword_aliases", keyword_aliases,
      "Pairs of another name that a keyword may have and the parameter of a schema that it means.");
  m.def("record_names", record_names, "Names of all records, overloads and hidden ones included.");
  m.def("op_info", describe_op);
  m.def("check_records", check_all_formulas,
        "Compile every formula of every record; raises for the first bad one.");
  m.def("emit", emit, "The records' elementwise formulas as source text for a dialect, by file.");
  m.def(
      "use_formula_kernels", [](bool on) { return formula_kernels.exchange(on); },
      "Whether kernels of whole formulas run, in all threads; returns what was set before.");
  m.def("return_types", [] { return owned(result_types()); });

  m.def(
      "tensor",
      [](const py::object& data, const py::object& dtype, const py::object& device) {
        if (device.is_none() && !chosen_device)
          return wrapped(make_tensor(data.ptr(), dtype_argument(dtype), nullptr));
        const DeviceSpec spec = parse_device(device.is_none() ? chosen_device : device.ptr());
        return wrapped(make_tensor(data.ptr(), dtype_argument(dtype), &spec));
      },
      py::arg("data"), py::arg("dtype") = py::none(), py::arg("device") = py::none());
  m.def(
      "as_tensor",
      [](const py::object& data, const py::object& dtype, const py::object& device) {
        if (device.is_none() && !chosen_device) {
          const int want = dtype_argument(dtype);
          if (is_tensor(data.ptr()) && (want < 0 || want == tensor_of(data.ptr())->dtype_id))
            return data;
          return wrapped(as_tensor(data.ptr(), want, nullptr));
        }
        const DeviceSpec spec = parse_device(device.is_none() ? chosen_device : device.ptr());
        return wrapped(as_tensor(data.ptr(), dtype_argument(dtype), &spec));
      },
      py::arg("data"), py::arg("dtype") = py::none(), py::arg("device") = py::none());
  m.def(
      "from_buffer",
      [](const py::object& o, const py::object& dtype,
         const std::optional<std::vector<int64_t>>& shape, int64_t offset, int64_t count) {
        return wrapped(
            from_buffer(o.ptr(), dtype_argument(dtype), shape ? &*shape : nullptr, offset, count));
      },
      py::arg("buffer"), py::arg("dtype") = py::none(), py::arg("shape") = py::none(),
      py::arg("offset") = 0, py::arg("count") = -1);
  m.def(
      "from_dlpack",
      [](const py::object& o, const py::object& device, const py::object& copy) {
        return wrapped(from_dlpack(o.ptr(), device.ptr(), copy.ptr()));
      },
      py::arg("ext_tensor"), py::kw_only(), py::arg("device") = py::none(),
      py::arg("copy") = py::none());

  m.def("load_plugin", load, py::arg("path"), py::kw_only(),
        py::arg("devices_of_others") = std::map<std::string, std::string>(),
        py::arg("layers_of_others") = std::map<std::string, std::string>(),
        "Load a plugin's library. Names that others provide, with their wheels, are refused.");
  m.def("set_backend_loader", [](const py::object& f) {
    Py_XDECREF(backend_loader);
    backend_loader = f.inc_ref().ptr();
  });
  m.def("backends", describe_backends);
  m.def("layers", describe_layers);
  m.def("layer_phases", describe_phases);
  m.def("plugins", describe_plugins);
  m.def("setting", [](const std::string& name, int64_t otherwise) {
    return setting(name.c_str(), otherwise);
  });
  m.def("set_setting",
        [](const std::string& name, int64_t value) { set_setting(name.c_str(), value); });
  bind_discovery(m);
  bind_memory(m);
  bind_streams(m);
  bind_graph(m);
  bind_library(m);
  bind_composite(m);
  bind_trace(m);
  bind_calls(m);

  m.def(
      "set_base_device", [](const py::object& device) { set_base_device(device.ptr()); },
      "Where this thread makes tensors without a device= outside of blocks; None: on the CPU.");
  m.def(
      "chosen_device",
      [] { return py::reinterpret_borrow<py::object>(chosen_device ? chosen_device : Py_None); },
      "Where this thread makes tensors without a device=; None: on the CPU.");
  m.def(
      "named_dtype",
      [](const std::string& name) {
        return py::reinterpret_borrow<py::object>(named_dtype(name.c_str()));
      },
      "The dtype of a name that core adds when it is needed.");
  m.def(
      "swap_tensors",
      [](const py::object& a, const py::object& b) { swap_tensors(a.ptr(), b.ptr()); },
      "Exchange the tensors of two objects.");
  m.def("get_default_dtype",
        [] { return py::reinterpret_borrow<py::object>(dtype_object(default_dtype())); });
  m.def("set_default_dtype", [](const py::object& o) {
    const int dtype = dtype_argument(o);
    if (dtype < 0 || !is_floating(dtype))
      raise(PyExc_TypeError, "the default dtype must be a floating dtype");
    set_default_dtype(dtype);
  });
  m.def(
      "promote_types",
      [](const py::object& a, const py::object& b) {
        return py::reinterpret_borrow<py::object>(
            dtype_object(promote(dtype_argument(a), dtype_argument(b))));
      },
      py::arg("type1"), py::arg("type2"));
  m.def(
      "can_cast",
      [](const py::object& a, const py::object& b) {
        return can_cast(dtype_argument(a), dtype_argument(b));
      },
      py::arg("from_"), py::arg("to"));
  m.def("dtype_names", dtype_names, "Names of all dtypes.");
  m.def(
      "buffer_format",
      [](const py::object& o) -> py::object {
        const int dtype = dtype_argument(o);
        const char* format = dtype < 0 ? nullptr : buffer_format(dtype);
        return format ? py::object(py::str(format)) : py::none();
      },
      "The format of a dtype in the buffer protocol; None: it has none.");
  m.def("float_limits", float_limits,
        "(bits, eps, max, tiny) of a floating or complex dtype, of a part of it; None for others.");
  m.def("get_num_threads", num_threads);
  m.def("set_num_threads", set_num_threads);
  m.def("seed_all", seed_all);
  m.def("default_generator", [](const py::object& device) {
    const DeviceSpec spec = parse_device(device.ptr());
    return owned(make_default_generator(spec.backend, index_or_current(spec.backend, spec.index)));
  });
  m.def("set_repr", [](const py::object& f) {
    Py_XDECREF(repr_callback);
    repr_callback = f.inc_ref().ptr();
  });
}

}  // namespace rabbet::python
