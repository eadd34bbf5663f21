// Type promotion over arguments: tensors, 0-d tensors and Python numbers have falling priority.
#pragma once
#include <cstdint>

#include "rabbet/abi.h"

namespace rabbet {

/// Whether the value is a number, a bool among them.
inline bool is_number(const RbValue& v) {
  return (v.tag >= RB_BOOL && v.tag <= RB_COMPLEX) || v.tag == RB_UINT;
}
/// dtype of a Python number: bool, int64, the default float or complex dtype.
int number_dtype(const RbValue& number);

/// Whether `dtype` holds the number: integers drop the fraction of a number, unsigned ones take
/// negative integers as their two's complement, and floating ones are rounded to.
bool number_fits(const RbValue& number, int dtype);
/// Throws RB_E_ARG if it does not.
void check_number_fits(const char* op, const char* argument, const RbValue& number, int dtype);

class Promotion {
 public:
  void add_tensor(int ndim, int dtype) { join(ndim > 0 ? dims_ : scalars_, dtype); }
  void add_number(const RbValue& number) { join(numbers_, number_dtype(number)); }
  /// -1: nothing was added.
  int result() const;

 private:
  static void join(int& into, int dtype);
  int dims_ = -1, scalars_ = -1, numbers_ = -1;
};

/// Promotion over the arguments in `mask` that are tensors, lists of tensors or numbers.
int promote_arguments(const RbValue* args, int nargs, uint64_t mask);

}  // namespace rabbet
