// Operands and results of the matrix kernels in the type that is multiplied.
#pragma once
#include <memory>

#include "common/view.h"

namespace rbcpu {

inline bool is_half(int dtype) { return dtype == RB_F16 || dtype == RB_BF16; }

// A view in row-major memory, copied where it is not.
struct DenseView {
  View view;
  std::unique_ptr<rb::Scratch<char>> copy;

  explicit DenseView(const View& from) : view(from) {
    if (is_dense(from)) return;
    copy = std::make_unique<rb::Scratch<char>>(from.numel() * from.item());
    view = dense_view(copy->data(), from.dtype, from);
    copy_view(view, from);
  }
};

// An operand as a view of the type that is multiplied: the 16-bit floats become float32 unless
// `native`.
struct Operand {
  View view;
  std::unique_ptr<rb::Scratch<float>> copy;

  explicit Operand(const View& from, bool native = false) : view(from) {
    if (native || !is_half(from.dtype)) return;
    copy = std::make_unique<rb::Scratch<float>>(from.numel());
    view = dense_view(copy->data(), RB_F32, from);
    copy_view(view, from);
  }
};

// The result as row-major memory of the type that is computed, written back at the end where it is
// not that.
struct Result {
  View target, view;
  std::unique_ptr<rb::Scratch<char>> copy;

  explicit Result(const RbTensor& out, bool native = false) : target(view_of(out)), view(target) {
    const bool half = !native && is_half(target.dtype);
    if (!half && is_dense(target)) return;
    const int dtype = half ? static_cast<int>(RB_F32) : target.dtype;
    copy = std::make_unique<rb::Scratch<char>>(target.numel() * kItemSize[dtype]);
    view = dense_view(copy->data(), dtype, target);
  }
  void finish() const {
    if (copy) copy_view(target, view);
  }
};

// An operand in row-major memory of the type that is multiplied.
struct DenseOperand : Operand {
  DenseView dense;

  explicit DenseOperand(const RbTensor& t) : Operand(view_of(t)), dense(view) { view = dense.view; }
};

// Compute `out` by f(tag), where the tag has the type of its view.
template <uint64_t Mask, class F>
void compute(const rb::Args& a, const Result& out, const F& f) {
  if (out.target.numel() == 0) return;
  dispatch_dtype<Mask & ~kMaskHalf>(a.op_name(), out.view.dtype, f);
  out.finish();
}

template <class T>
T* elements(const View& v) {
  return reinterpret_cast<T*>(v.data);
}

}  // namespace rbcpu
