#include "tensor/shape.h"

#include "thread/error.h"

namespace rabbet {

std::string shape_text(int ndim, const int64_t* shape) {
  std::string text = "(";
  for (int i = 0; i < ndim; ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + (ndim == 1 ? ",)" : ")");
}

int64_t checked_sum(const std::string& op, int64_t a, int64_t b) {
  int64_t out;
  if (__builtin_add_overflow(a, b, &out))
    fail(RB_E_ARG, "%s: sizes %lld and %lld are too large together", op.c_str(), (long long)a,
         (long long)b);
  return out;
}

int64_t checked_product(const std::string& op, int64_t a, int64_t b) {
  int64_t out;
  if (__builtin_mul_overflow(a, b, &out))
    fail(RB_E_ARG, "%s: sizes %lld and %lld are too large together", op.c_str(), (long long)a,
         (long long)b);
  return out;
}

int64_t checked_length(const std::string& op, int64_t n) {
  constexpr int64_t kMost = int64_t{1} << 24;
  if (n > kMost)
    fail(RB_E_ARG, "%s: %lld pieces are too many, at most %lld can be made", op.c_str(),
         (long long)n, (long long)kMost);
  return n;
}

}  // namespace rabbet
