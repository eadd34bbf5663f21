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

RbValue int64_dtype() {
  RbValue v{};
  v.tag = RB_DTYPE;
  v.v.i = RB_I64;
  return v;
}
RbValue device_of(const RbTensor* t) {
  RbValue v{};
  v.tag = RB_DEVICE;
  v.v.dev = {t->backend, t->device.id};
  return v;
}

Ref counted(const RbTensor* like, int64_t n) {
  return call(ops.arange, {integer(0), integer(n), integer(1), int64_dtype(), device_of(like)});
}

}  // namespace

Ref positions(const Frame& f, const RbTensor* like, const Dims& shape) {
  int64_t n = 1;
  for (int64_t s : shape) n *= s;
  return call(ops.reshape, {value(fresh(f, counted(like, n))), list(shape)});
}

Ref strided_positions(const Frame& f, const RbTensor* like, const Node& base, const Dims& size,
                      const Dims& stride, int64_t offset) {
  Dims order(base.shape.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return base.strides[a] > base.strides[b]; });
  int64_t elements = 1;
  for (auto d = order.rbegin(); d != order.rend(); ++d) {
    if (base.shape[*d] != 1 && base.strides[*d] != elements) {
      rb::fail(RB_E_NOTIMPL,
               "as_strided: functionalize: the tensor's memory has gaps or repeated elements, and "
               "only the tensor's own elements are known; clone() it first");
    }
    elements *= base.shape[*d];
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
  Ref at = fresh(f, call(ops.full, {list(Dims{}), integer(offset - base.offset), int64_dtype(),
                                    device_of(like)}));
  for (size_t d = 0; d < size.size(); ++d) {
    Dims along(size.size(), 1);
    along[d] = size[d];
    const Ref steps = fresh(f, counted(like, size[d]));
    const Ref far = call(ops.mul, {value(steps), integer(stride[d])});
    at = call(ops.add, {value(at), value(call(ops.reshape, {value(far), list(along)}))});
  }
  // In the order of memory: where each element stands in a row-major tensor.
  const Ref memory = call(ops.permute, {value(positions(f, like, base.shape)), list(order)});
  const Dims all{-1};
  const Ref row_major = call(ops.reshape, {value(memory), list(all)});
  return pick(f, row_major.get(), at.get());
}

}  // namespace functional
