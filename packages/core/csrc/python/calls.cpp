#include "calls.h"

#include <pybind11/stl.h>

#include <map>
#include <optional>
#include <vector>

#include "arguments.h"
#include "errors.h"
#include "formula/formula_kernel.h"
#include "op_type.h"
#include "run_overload.h"
#include "tensor_type.h"

namespace py = pybind11;

namespace rabbet::python {

py::object with_call(
    const char* what, const py::object& op, const py::tuple& args, const py::dict& kwargs,
    const std::function<py::object(const Op& op, const RbValue* values, int32_t n)>& body) {
  std::vector<PyObject*> given;
  py::list names;
  for (const py::handle& arg : args) given.push_back(arg.ptr());
  for (const auto& [name, value] : kwargs) {
    names.append(name);
    given.push_back(value.ptr());
  }
  const py::tuple kwnames(names);
  PyObject* const keywords = kwnames.empty() ? nullptr : kwnames.ptr();
  const auto nargs = static_cast<Py_ssize_t>(args.size());
  std::string why;
  for (const Overload& overload : overloads_of(op.ptr())) {
    RbValue values[kMaxParams];
    Arena arena;
    Extras extras;
    Mismatch mismatch;
    const Parsed parsed =
        parse_arguments(overload, given.data(), nargs, keywords, values, arena, extras, mismatch);
    if (parsed == Parsed::kError) throw PythonError{};
    if (parsed == Parsed::kNo) {
      why += "\n  " + overload.op->schema + ": " + describe(overload, mismatch);
      continue;
    }
    return body(*overload.op, values, static_cast<int32_t>(overload.params.size()));
  }
  raise(PyExc_TypeError, "%s: no signature takes %s:%s", what,
        describe_call(given.data(), nargs, keywords).c_str(), why.c_str());
}

const Op* record_named(const std::string& name) {
  if (const Op* const op = find_op(name.c_str())) return op;
  const size_t split = name.rfind(".vjp.");
  const Op* const of =
      split == std::string::npos ? nullptr : find_op(name.substr(0, split).c_str());
  for (size_t i = 0; of && i < of->params.size(); ++i) {
    const Op* const derivative = find_derivative(*of, static_cast<int>(i));
    if (derivative && name == derivative->name) return derivative;
  }
  raise(PyExc_KeyError, "no operator '%s'", name.c_str());
}

namespace {

const Overload& overload_of(const std::string& name) {
  if (PyObject* const op = find_op_object(name)) {
    for (const Overload& overload : overloads_of(op)) {
      if (name == overload.op->name) return overload;
    }
  }
  static std::map<const Op*, Overload> derivatives;
  const Op* const op = record_named(name);
  const auto found = derivatives.find(op);
  return found != derivatives.end() ? found->second
                                    : derivatives.emplace(op, make_overload(op)).first->second;
}

// The tensors that a call writes, one for each result.
void take_outs(const Op& op, const py::tuple& outs, RbValue* rets) {
  if (static_cast<int32_t>(outs.size()) != op.info.nrets)
    raise(PyExc_TypeError, "%s: expected %d tensors to write, got %d", op.name.c_str(),
          op.info.nrets, static_cast<int>(outs.size()));
  for (int32_t i = 0; i < op.info.nrets; ++i) {
    PyObject* const out = PyTuple_GET_ITEM(outs.ptr(), i);
    if (!is_tensor(out))
      raise(PyExc_TypeError, "%s: expected a Tensor to write, got %s", op.name.c_str(),
            Py_TYPE(out)->tp_name);
    rets[i] = value_tensor(tensor_of(out));
  }
}

// Give `use` the overload of a record, and the values of its arguments, one for each parameter.
template <class Use>
auto with_record(const std::string& name, const py::tuple& args, const Use& use) {
  const Overload& overload = overload_of(name);
  const Op& op = *overload.op;
  const size_t nparams = overload.params.size();
  if (args.size() != nparams)
    raise(PyExc_TypeError, "%s: expected an argument for each of the %d parameters of %s, got %d",
          op.name.c_str(), static_cast<int>(nparams), op.schema.c_str(),
          static_cast<int>(args.size()));
  std::vector<PyObject*> given;
  py::list names;
  for (size_t i = 0; i < nparams; ++i) {
    given.push_back(PyTuple_GET_ITEM(args.ptr(), i));
    if (overload.params[i].keyword_only)
      names.append(py::reinterpret_borrow<py::object>(overload.params[i].name));
  }
  const py::tuple kwnames(names);
  const auto positional = static_cast<Py_ssize_t>(nparams - kwnames.size());
  RbValue values[kMaxParams];
  Arena arena;
  Extras extras;
  Mismatch mismatch;
  const Parsed parsed =
      parse_arguments(overload, given.data(), positional, kwnames.empty() ? nullptr : kwnames.ptr(),
                      values, arena, extras, mismatch);
  if (parsed == Parsed::kError) throw PythonError{};
  if (parsed != Parsed::kYes)
    raise(PyExc_TypeError, "%s: %s", op.schema.c_str(), describe(overload, mismatch).c_str());
  return use(overload, values);
}

py::object call_record(const std::string& name, const py::tuple& args,
                       const std::optional<py::tuple>& outs) {
  return with_record(name, args, [&](const Overload& overload, RbValue* values) -> py::object {
    const Op& op = *overload.op;
    RbValue rets[kMaxRets];
    for (RbValue& ret : rets) ret = value_none();
    if (outs) take_outs(op, *outs, rets);
    const int32_t code = run(overload, values, rets, outs ? RB_CALL_OUT : 0);
    if (code != RB_OK) {
      raise_error(code);
      throw PythonError{};
    }
    if (outs) return py::none();
    return py::reinterpret_steal<py::object>(must(results_to_python(&op, rets, op.info.nrets)));
  });
}

}  // namespace

int32_t use_arguments(const char* name, PyObject* args, RbArgumentsUse use, void* ctx) {
  try {
    if (!name || !use || !args || !PyTuple_Check(args))
      raise(PyExc_TypeError, "use_arguments: expected a name, a tuple and a function");
    const int32_t code = with_record(
        name, py::reinterpret_borrow<py::tuple>(args), [&](const Overload& overload, RbValue* v) {
          return use(ctx, handle(overload.op), v, overload.op->info.nargs);
        });
    if (code != RB_OK) raise_error(code);
    return code == RB_OK ? 0 : -1;
  } catch (const PythonError&) {
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (...) {
    raise_current_exception();
  }
  return -1;
}

void bind_calls(py::module_& m) {
  m.def(
      "call_record", call_record, py::arg("name"), py::arg("args"), py::arg("outs") = py::none(),
      "Call a record with an argument for each parameter; `outs`: the tensors to write instead of "
      "new results.");
}

}  // namespace rabbet::python
