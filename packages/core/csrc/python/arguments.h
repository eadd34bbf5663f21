// The one parser from Python arguments to values, driven by the operators' schemas.
#pragma once
#include <string>
#include <vector>

#include "arena.h"
#include "core_ops.h"
#include "record/op.h"
#include "ref.h"
#include "tensor/tensor.h"

namespace rabbet::python {

struct ParamSpec {
  PyObject* name;  // interned
  int type;        // RB_A_*
  int fixed_len;
  bool optional, keyword_only, numbers, has_default, optional_items, variadic;
  bool single;  // a tensor there must have no dimensions
  RbValue default_value;
};

/// One operator as Python calls it.
struct Overload {
  const Op* op;
  std::vector<ParamSpec> params;
  int positional;  // how many may be given by position
  int varargs;  // x.view(2, 3): index of the list that takes all further positional arguments, or
                // -1
  int lists_only;  // bit set of parameters for which tensors are no numbers (another overload takes
                   // them)
  bool creation;   // accepts requires_grad=, pin_memory=, layout=
  PyTypeObject* result;  // of several results; made when first needed
  int chosen_at = -1;  // index of the device of a creation that follows the thread's choice, or -1
  int required = 0;    // the parameters from here on have defaults
  uint64_t sizes = 0;  // of a creation: bit set of lists of ints, which say the result's size
  std::vector<RbValue> defaults{};  // of all parameters; none where there is no default
};
Overload make_overload(const Op* op);

/// Keywords that no schema mentions.
struct Extras {
  PyObject* out = nullptr;            // borrowed
  PyObject* requires_grad = nullptr;  // borrowed
  PyObject* memory_format = nullptr;  // borrowed
  bool pin_memory = false, non_blocking = false;
  bool result_is_changed() const { return requires_grad || pin_memory; }
};

/// Why arguments do not fit an overload.
struct Mismatch {
  enum Kind {
    kNone,
    kType,
    kElement,
    kTooMany,
    kMissing,
    kUnknown,
    kTwice,
    kLength,
    kNoTensor,
    kUnsupported,
    kOverridden
  };
  Kind kind = kNone;
  int param = -1;
  int64_t detail = 0;          // index of an element, or the number of arguments
  PyObject* got = nullptr;     // borrowed from the arguments
  PyObject* second = nullptr;  // borrowed, kept alive by the arena
};

enum class Parsed { kYes, kNo, kError, kOverridden };

/// Fill `values` (one per parameter). kNo: `mismatch` says why; kError: a Python exception is set;
/// kOverridden: a tensor has __torch_function__, which is to be called instead.
Parsed parse_arguments(const Overload& overload, PyObject* const* args, Py_ssize_t nargs,
                       PyObject* kwnames, RbValue* values, Arena& arena, Extras& extras,
                       Mismatch& mismatch);

/// The value of a number, bool or NumPy scalar; false when `o` is none (no Python exception is set
/// then).
bool number_value(PyObject* o, RbValue* out, Arena& arena);
/// Whether `o` is a number for operators (Python's or NumPy's).
bool is_number(PyObject* o);
bool is_ndarray(PyObject* o);
bool is_numpy_scalar(PyObject* o);
/// An int, or what has __index__, but no bool; false when `o` is none. Throws on overflow.
bool int_value(PyObject* o, int64_t* out);

/// One line such as "argument 'other' must be Tensor or number, not str".
std::string describe(const Overload& overload, const Mismatch& mismatch);
/// NumPy's and PyTorch's other names of parameters, each with the name in the schema.
std::vector<std::pair<std::string, std::string>> keyword_aliases();
/// "(Tensor, str, alpha=int)"
std::string describe_call(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

}  // namespace rabbet::python
