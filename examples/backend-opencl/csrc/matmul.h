// Products of matrices with any strides, in batches.
#pragma once
#include "view.h"

namespace rbcl {

struct Product {  // twin of Product in matmul.cl
  int64_t m, n, k;
  int64_t a_row, a_column, b_row, b_column, c_row, c_column;
  int64_t batch_shape[kSpaceDims];
  int64_t batch_strides[3][kSpaceDims];
  int32_t batch_dims, accumulate;
};
/// c = a b, or c += a b.
void multiply(Device& device, int dtype, void* c, const void* a, const void* b, const Product& p);

}  // namespace rbcl
