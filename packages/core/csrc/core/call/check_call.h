// The values of a call, as plugins and formulas hand them over, checked against the record.
#pragma once
#include <string>

#include "record/op.h"

namespace rabbet {

/// Arguments whose values had to be converted to the types that the record says.
class Converted {
 public:
  Converted() = default;
  ~Converted() {
    if (__builtin_expect(room_ != nullptr, 0)) drop();
  }
  Converted(const Converted&) = delete;
  Converted& operator=(const Converted&) = delete;
  /// Convert argument `i` as a call from Python does: an int becomes a list or a float, a bool an
  /// int. `args` are a copy from then on. False: the value stands for none of that type.
  bool convert(const Op& op, const RbValue*& args, int32_t nargs, int i);

 private:
  struct Room;
  Room* room_ = nullptr;
  void drop();
};

/// Whether the values of a call are what the record says, or `converted` to that; else the error is
/// set.
int32_t check_call(const Op* op, const RbValue*& args, int32_t nargs, const RbValue* rets,
                   int32_t nrets, uint32_t flags, Converted& converted);
/// Sets the error of a call without the argument `i`, which has no default; returns its code.
int32_t missing_argument(const Op& op, int32_t i);

/// That the arguments and results that a derivative is computed from are there.
void check_derivative(const char* what, const Op& op, const RbValue* args, const RbValue* outs);
/// Whether it is a gradient or a tangent: a tensor, or RB_ZERO; else `fail_moved` says so.
bool is_moved(const RbValue& v);
[[noreturn]] void fail_moved(const char* what, const Op& op, const std::string& which,
                             const RbValue& v);

}  // namespace rabbet
