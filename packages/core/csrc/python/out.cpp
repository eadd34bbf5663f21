#include "out.h"

#include <algorithm>
#include <string>

#include "call/check_results.h"
#include "call/destinations.h"
#include "convert.h"
#include "run_overload.h"
#include "tensor/dtype.h"
#include "tensor_type.h"

namespace rabbet::python {

namespace {

std::string in_brackets(const int64_t* sizes, size_t n) {
  std::string text = "[";
  for (size_t i = 0; i < n; ++i) text += (i ? ", " : "") + std::to_string(sizes[i]);
  return text + "]";
}

// Whether it is a factory; some of them take tensors.
bool makes_tensors(const Op& op) { return op.creation || takes_device(op); }

bool is_range(const Op& op) { return op.base == "arange"; }

// Factories and random operators give their destinations the shape that calls ask for: no warning.
bool fills_any_shape(const Op& op) {
  // PyTorch warns for `arange`, and for `normal` where its moments are tensors.
  if (makes_tensors(op)) return !is_range(op);
  const bool takes_generator = std::any_of(op.params.begin(), op.params.end(),
                                           [](const Param& p) { return p.type == RB_A_GENERATOR; });
  return takes_generator && op.base != "normal";
}

// False: the warning is an error. A destination without elements is there to be resized.
bool warn_if_resized(const Op& op, const std::vector<int64_t>& before, const RbTensor* after) {
  if (fills_any_shape(op)) return true;
  const auto ndim = static_cast<size_t>(after->ndim);
  if (before.size() == ndim && std::equal(before.begin(), before.end(), after->shape)) return true;
  if (std::count(before.begin(), before.end(), 0)) return true;
  if (is_range(op)) {
    const auto had =
        static_cast<long long>(count_elements(static_cast<int>(before.size()), before.data()));
    const auto count = static_cast<long long>(after->numel);
    return had == count ||
           PyErr_WarnFormat(
               PyExc_UserWarning, 1,
               "The number of elements in the out tensor of shape %s is %lld which does not match "
               "the computed number of elements %lld. Note that this may occur as a result of "
               "rounding error. The out tensor will be resized to a tensor of shape (%lld,).",
               in_brackets(before.data(), before.size()).c_str(), had, count, count) == 0;
  }
  return PyErr_WarnFormat(
             PyExc_UserWarning, 1,
             "An output with one or more elements was resized since it had shape %s, which does "
             "not match the required output shape %s. This behavior is deprecated, and in a "
             "future PyTorch release outputs will not be resized unless they have zero elements. "
             "You can explicitly reuse an out tensor t by resizing it, inplace, to zero elements "
             "with t.resize_(0).",
             in_brackets(before.data(), before.size()).c_str(),
             in_brackets(after->shape, ndim).c_str()) == 0;
}

PyObject* wrong_out(const char* name, PyObject* got, int nrets) {
  PyErr_Format(PyExc_TypeError, "%s(): argument 'out' must be %s, not %s", name,
               nrets == 1 ? "Tensor" : "tuple of Tensors, one for each result",
               Py_TYPE(got)->tp_name);
  return nullptr;
}

std::vector<int64_t> shape_of(const RbTensor* t) { return {t->shape, t->shape + t->ndim}; }

// The destinations in a tuple or list, or null and an error.
PyObject* several_out(const char* name, PyObject* out) {
  if (!PyTuple_Check(out) && !PyList_Check(out)) return wrong_out(name, out, -1);
  Ref targets(must(PySequence_Tuple(out)));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(targets.get()); ++i) {
    if (PyObject* t = PyTuple_GET_ITEM(targets.get(), i); !is_tensor(t))
      return wrong_out(name, t, -1);
  }
  return targets.release();
}

// Operators that return lists take one destination for each result, and return None as in PyTorch.
PyObject* run_out_list(const char* name, const Overload& overload, const RbValue* values,
                       PyObject* out) {
  const Op& op = *overload.op;
  const Ref targets(several_out(name, out));
  if (!targets) return nullptr;
  const Py_ssize_t n = PyTuple_GET_SIZE(targets.get());
  RbValue found = value_none();
  const int32_t code = run(overload, values, &found, 0);
  if (code != RB_OK) return raise_error(code);
  const Ref results(must(results_to_python(&op, &found, 1)));
  if (PyTuple_GET_SIZE(results.get()) != n) {
    rabbet::fail(RB_E_ARG, "%s: expected an out= argument of size %zd, got size %zd", name,
                 PyTuple_GET_SIZE(results.get()), n);
  }
  for (Py_ssize_t i = 0; i < n; ++i) {
    RbTensor* target = tensor_of(PyTuple_GET_ITEM(targets.get(), i));
    const std::vector<int64_t> shape = shape_of(target);
    write_result(op, tensor_of(PyTuple_GET_ITEM(results.get(), i)), target, values, op.info.nargs);
    if (!warn_if_resized(op, shape, target)) return nullptr;
  }
  Py_RETURN_NONE;
}

}  // namespace

void take_dtype(const Op& op, const RbTensor* out, RbValue* values, bool inplace) {
  const bool follows =
      !op.dtype_text.empty() && op.dtype_text[0].find("else dtype") != std::string::npos;
  const bool makes = makes_tensors(op);
  if (!follows && !makes) return;
  const bool keeps = inplace || makes || op.info.kind == RB_KIND_ALONG;
  for (int i = 0; i < op.info.nargs; ++i) {
    const Param& p = op.params[i];
    const bool complex = values[i].tag == RB_TENSOR && is_complex(values[i].v.t->dtype_id);
    if (complex && !is_complex(out->dtype_id)) return;  // the imaginary part would be lost
    if (p.type != RB_A_DTYPE || p.name_text != "dtype") continue;
    if (values[i].tag == RB_NONE) {
      if (follows && !op.exact_out) values[i] = value_dtype(out->dtype_id);
    } else if (values[i].v.i != out->dtype_id && keeps) {
      fail(RB_E_TYPE, "%s: dtype %s does not match dtype %s of %s", op.name.c_str(),
           kDTypes[values[i].v.i].name, kDTypes[out->dtype_id].name,
           inplace ? "the tensor that is written" : "'out'");
    }
  }
}

PyObject* run_out(const char* name, const Overload& overload, const RbValue* values,
                  PyObject* out) {
  const int nrets = overload.op->info.nrets;
  if (overload.op->returns_list) return run_out_list(name, overload, values, out);
  RbValue rets[kMaxRets];
  Ref targets;
  if (nrets == 1) {
    if (!is_tensor(out)) return wrong_out(name, out, 1);
    rets[0] = value_tensor(tensor_of(out));
  } else {
    targets = Ref(several_out(name, out));
    if (!targets) return nullptr;
    if (PyTuple_GET_SIZE(targets.get()) != nrets) return wrong_out(name, out, nrets);
    for (int i = 0; i < nrets; ++i)
      rets[i] = value_tensor(tensor_of(PyTuple_GET_ITEM(targets.get(), i)));
  }
  std::vector<std::vector<int64_t>> shapes;
  for (int i = 0; i < nrets; ++i) shapes.push_back(shape_of(rets[i].v.t));
  RbValue given[kMaxParams];
  std::copy(values, values + overload.op->info.nargs, given);
  take_dtype(*overload.op, rets[0].v.t, given, false);
  const int32_t code = [&] {
    const DestinationLayers layers(rets, nrets);
    return run(overload, given, rets, RB_CALL_OUT);
  }();
  if (code != RB_OK) return raise_error(code);
  for (int i = 0; i < nrets; ++i) {
    if (!warn_if_resized(*overload.op, shapes[i], rets[i].v.t)) return nullptr;
  }
  if (nrets == 1) return Py_NewRef(out);
  Ref result(must(PyStructSequence_New(result_type(overload.op))));
  for (int i = 0; i < nrets; ++i)
    PyStructSequence_SetItem(result.get(), i, Py_NewRef(PyTuple_GET_ITEM(targets.get(), i)));
  return result.release();
}

}  // namespace rabbet::python
