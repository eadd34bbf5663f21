// One product of matrices, or a batch of them: activation(alpha A B + beta added).
#pragma once
#include "launch/jit.h"
#include "launch/view.h"

namespace rbcuda {

struct Matrix {
  void* data = nullptr;
  int64_t row = 0, column = 0;  // strides in elements; 0 where it broadcasts
};

inline Matrix turned(const Matrix& x) { return {x.data, x.column, x.row}; }

struct Product {
  const char* op;
  const RbTensor* out;    // where it lies; what is added has its dtype
  int operands, results;  // dtypes
  int second = -1;  // of b where it is not `operands`: floats of 8 bits, for the library alone
  int64_t m = 1, n = 1, k = 1;
  Matrix a, b, c, added;  // added.data null: nothing is added
  Layout batch = {};      // strides of c, a, b and added
  RbValue alpha = rb::int_value(1), beta = rb::int_value(1);
  const char* activation = "";  // of linear_activation; empty: none
  // For the library alone: float32 factors of a and b on the device, or null; whether tensor cores
  // may keep sums in fewer bits.
  const void* scales[2] = {};
  bool fast = false;
};

/// x y, plus `added` unless that is null. 1-d operands are a row and a column; `added` broadcasts.
/// Core has checked the shapes.
Product product_of(const char* op, const RbTensor& x, const RbTensor& y, const RbTensor& out,
                   const RbTensor* added = nullptr);

/// Enqueue it. Sizes may be 0. Declines with RB_E_NOTIMPL before it writes.
void multiply(Product product);

/// By cuBLASLt; false, and nothing is written that is not written again, where it is not there or
/// does not know this one.
bool multiply_by_library(const Product& product);

/// The result out of `sums`, which are of the result's dtype, batch by batch in rows without gaps.
void activate(const Product& product, void* sums);

/// The product of which the result is the transpose of this one's.
Product transposed(const Product& product);

}  // namespace rbcuda
