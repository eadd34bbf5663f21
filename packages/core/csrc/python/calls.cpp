#include "calls.h"

#include <vector>

#include "arguments.h"
#include "errors.h"
#include "op_type.h"

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

}  // namespace rabbet::python
