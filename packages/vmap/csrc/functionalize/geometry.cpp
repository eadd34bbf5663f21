// Shapes, strides and positions, for which no data are needed.
#include <algorithm>
#include <numeric>

#include "functionalize.h"

namespace functional {

Ref geometry(int dtype, const Dims& shape, const Dims& strides) {
  RbTensor* out = nullptr;
  rb::check(rb::host->tensor_new(kMeta, 0, dtype, static_cast<int32_t>(shape.size()), shape.data(),
                                 strides.data(), &out));
  return Ref(out);
}
Ref geometry(const RbTensor* t) {
  return geometry(t->dtype_id, shape_of(t), Dims(t->strides, t->strides + t->ndim));
}

int64_t item_size(const RbTensor* t) { return t->dtype.bits / 8 * t->dtype.lanes; }

namespace {

Ref counted(const RbTensor* like, int64_t n) {
  return call(ops.arange, {int_value(0), int_value(n), int_value(1), dtype_value(RB_I64),
                           rb::device_value(like)});
}

}  // namespace

Ref positions(const Frame& f, const RbTensor* like, const Dims& shape) {
  int64_t n = 1;
  for (int64_t s : shape) n *= s;
  return call(ops.reshape, {tensor_value(fresh(f, counted(like, n))), list(shape)});
}

Ref strided_positions(const Frame& f, const RbTensor* like, const Node& base, const Dims& size,
                      const Dims& stride, int64_t offset) {
  Dims order(base.shape.size(), 0);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return base.strides[a] > base.strides[b]; });
  int64_t elements = 1;
  for (size_t i = order.size(); i-- > 0;) {
    const int64_t d = order[i];
    if (base.shape[d] != 1 && base.strides[d] != elements) {
      rb::fail(RB_E_NOTIMPL,
               "as_strided: functionalize: the tensor's memory has gaps or repeated elements, and "
               "only the tensor's own elements are known; clone() it first");
    }
    elements *= base.shape[d];
  }
  int64_t last = offset - base.offset;
  const bool before = last < 0;
  bool empty = false;
  for (size_t d = 0; d < size.size(); ++d) {
    last += (size[d] - 1) * stride[d];
    empty = empty || size[d] == 0;
  }
  if (!empty && (before || last >= elements)) {
    rb::fail(RB_E_ARG,
             "as_strided: functionalize: size and stride with offset %lld reach beyond the %lld "
             "elements of the tensor, which begin at offset %lld",
             static_cast<long long>(offset), static_cast<long long>(elements),
             static_cast<long long>(base.offset));
  }
  Ref at = fresh(f, call(ops.full, {list(Dims{}), int_value(offset - base.offset),
                                    dtype_value(RB_I64), rb::device_value(like)}));
  for (size_t d = 0; d < size.size(); ++d) {
    Dims along(size.size(), 1);
    along[d] = size[d];
    const Ref steps = fresh(f, counted(like, size[d]));
    const Ref far = call(ops.mul, {tensor_value(steps), int_value(stride[d])});
    at = call(ops.add, {tensor_value(at),
                        tensor_value(call(ops.reshape, {tensor_value(far), list(along)}))});
  }
  // In the order of memory: where each element stands in a row-major tensor.
  const Ref memory = call(ops.permute, {tensor_value(positions(f, like, base.shape)), list(order)});
  const Dims all{-1};
  const Ref row_major = call(ops.reshape, {tensor_value(memory), list(all)});
  return pick(f, row_major.get(), at.get());
}

}  // namespace functional
