// `accumulate`: formulas that compute in float32 where tensors are float16 or bfloat16.
#pragma once
#include <memory>

#include "call/kernel_arguments.h"
#include "record/op.h"

namespace rabbet {

/// Whether a dtype has an accumulation dtype, float32, that is wider.
inline bool is_narrow(int dtype) { return dtype == RB_F16 || dtype == RB_BF16; }

/// Whether a tensor among the values, in lists too, is of such a dtype, or a value is one.
bool has_narrow(const RbValue* values, int n);

/// A copy of the values in which float32 replaces the narrow dtypes.
struct Widened : Arguments {
  Widened(const RbValue* given, int n);
};

/// The results as a derivative reads them: where they were rounded, those of the call on the
/// widened arguments if these are all there, else the rounded ones.
class WideResults {
 public:
  WideResults(const Op& op, const RbValue* args, int nargs, const RbValue* outs, int nouts);
  const RbValue* values() const { return widened_ ? widened_->values : again_.values; }

 private:
  Results again_;
  std::unique_ptr<Widened> widened_;
};

/// Round the float32 results of a decomposition that has computed in the accumulation dtype to what
/// the record says of the call on `args`, the arguments as given.
void round_results(const Op& op, const RbValue* args, int nargs, RbValue* rets, int nrets);

}  // namespace rabbet
