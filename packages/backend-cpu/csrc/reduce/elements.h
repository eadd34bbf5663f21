// The elements of an input as a kernel computes with them: as they lie in memory, widened from the
// 16-bit floats, or converted from another dtype. Whatever is not in memory in the type that
// computes is made piece by piece, in a buffer.
#pragma once
#include "common/view.h"
#include "rabbet/convert.h"
#include "reduce/rows.h"

namespace rbcpu {

constexpr int64_t kReduceBlock = 512;  // elements gathered at a time
constexpr int64_t kRowChunk = 16384;   // reduced elements per chunk, when outputs are few

// n contiguous elements in the type that computes.
template <class T>
void widen_run(const T* from, int64_t n, compute_t<T>* to) {
  if constexpr (std::is_same_v<T, BF16>) {
    row_table().widen_bf16(&from->bits, to, n);
  } else if constexpr (std::is_same_v<T, F16>) {
    row_table().widen_f16(&from->bits, to, n);
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = compute_t<T>(from[i]);
  }
}
template <class T>
void narrow_run(const compute_t<T>* from, int64_t n, T* to) {
  if constexpr (std::is_same_v<T, BF16>) {
    row_table().narrow_bf16(from, &to->bits, n);
  } else if constexpr (std::is_same_v<T, F16>) {
    row_table().narrow_f16(from, &to->bits, n);
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = T(from[i]);
  }
}

/// Elements of type T. Offsets and strides count elements.
template <class T>
class Native {
 public:
  using C = compute_t<T>;
  static constexpr bool kDirect = std::is_same_v<T, C>;  // at() points to what computes
  static constexpr int64_t kPiece = kReduceBlock;        // elements of a run that are read at once

  explicit Native(const void* data) : data_(static_cast<const T*>(data)) {}
  const T* at(int64_t offset) const { return data_ + offset; }
  void read(int64_t offset, int64_t stride, int64_t n, C* to) const {
    const T* from = data_ + offset;
    if (stride == 1) return widen_run(from, n, to);
    for (int64_t i = 0; i < n; ++i) to[i] = C(from[i * stride]);
  }

 private:
  const T* data_;
};

/// Elements of any dtype, each rounded to T and then widened to the type that computes: what a cast
/// of the whole input to T would give.
template <class T>
class Converted {
 public:
  using C = compute_t<T>;
  static constexpr bool kDirect = false;
  static constexpr int64_t kPiece = kRowChunk;

  /// `to`: the dtype of T.
  Converted(const void* data, int from, int to)
      : data_(static_cast<const char*>(data)), item_(kItemSize[from]), load_(cast_loop(to, from)) {}
  void read(int64_t offset, int64_t stride, int64_t n, C* to) const {
    if constexpr (std::is_same_v<T, C>) {
      load(offset, stride, n, to);
    } else {
      T narrow[kReduceBlock];
      for (int64_t done = 0; done < n; done += kReduceBlock) {
        const int64_t m = std::min(kReduceBlock, n - done);
        load(offset + done * stride, stride, m, narrow);
        widen_run(narrow, m, to + done);
      }
    }
  }

 private:
  void load(int64_t offset, int64_t stride, int64_t n, T* to) const {
    LoopArgs run;
    run.n = n;
    run.out = reinterpret_cast<char*>(to);
    run.out_stride = sizeof(T);
    run.in[0] = data_ + offset * item_;
    run.in_stride[0] = stride * item_;
    run.ctx = nullptr;
    load_(&run);
  }

  const char* data_;
  int64_t item_;
  Loop load_;
};

/// Call f with the elements of `x` in the type T, whose dtype is `dtype`.
template <class T, class F>
void with_elements(const RbTensor& x, const void* data, int dtype, const F& f) {
  if (x.dtype_id == dtype) return f(Native<T>(data));
  f(Converted<T>(data, x.dtype_id, dtype));
}

/// Contiguous runs of elements in the type that computes, through a buffer where they are not that.
template <class In>
class Runs {
 public:
  using C = typename In::C;
  /// At most n elements at a time.
  Runs(const In& in, int64_t n) : in_(in), buffer_(In::kDirect ? 0 : n) {}
  const C* operator()(int64_t offset, [[maybe_unused]] int64_t n) const {
    if constexpr (In::kDirect) {
      return in_.at(offset);
    } else {
      in_.read(offset, 1, n, buffer_.data());
      return buffer_.data();
    }
  }

 private:
  const In& in_;
  rb::Scratch<C> buffer_;
};

}  // namespace rbcpu
