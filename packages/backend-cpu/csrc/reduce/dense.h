// Operands of row kernels as dense memory of the type in which they compute.
#pragma once
#include <algorithm>
#include <memory>

#include "common/stream.h"
#include "reduce/reduce.h"

namespace rbcpu {

template <class C>
constexpr int dtype_of_v = std::is_same_v<C, double> ? RB_F64 : RB_F32;

/// A small operand (weight, bias, statistics), converted where it is not dense memory of C; null if
/// absent.
template <class C>
class Values {
 public:
  explicit Values(const RbTensor* t) {
    if (!t) return;
    if (t->dtype_id == dtype_of_v<C> && (t->flags & RB_T_CONTIGUOUS)) {
      data_ = static_cast<const C*>(t->data);
      return;
    }
    copy_ = std::make_unique<rb::Scratch<C>>(t->numel);
    copy_view(dense_view(copy_->data(), dtype_of_v<C>, view_of(*t)), view_of(*t));
    data_ = copy_->data();
  }
  const C* data() const { return data_; }
  explicit operator bool() const { return data_ != nullptr; }
  C at(int64_t i, C absent) const { return data_ ? data_[i] : absent; }

 private:
  const C* data_ = nullptr;
  std::unique_ptr<rb::Scratch<C>> copy_;
};

/// An operand as row-major memory in its own dtype, a copy if it is not that.
class DenseBytes {
 public:
  /// `as_it_is`: the caller knows how the elements lie.
  explicit DenseBytes(const RbTensor& t, bool as_it_is = false) : data_(t.data) {
    if (as_it_is || (t.flags & RB_T_CONTIGUOUS)) return;
    copy_ = std::make_unique<rb::Scratch<char>>(t.numel * item_size(t));
    copy_view(dense_view(copy_->data(), t.dtype_id, view_of(t)), view_of(t));
    data_ = copy_->data();
  }
  const void* data() const { return data_; }

 private:
  const void* data_;
  std::unique_ptr<rb::Scratch<char>> copy_;
};
/// The same of elements of type T.
template <class T>
class DenseInput : public DenseBytes {
 public:
  using DenseBytes::DenseBytes;
  const T* data() const { return static_cast<const T*>(DenseBytes::data()); }
};

/// The result as row-major memory, copied to where it belongs at the end if it is not that.
template <class T>
class DenseResult {
 public:
  explicit DenseResult(const RbTensor& out, bool as_it_is = false)
      : out_(out), data_(static_cast<T*>(out.data)) {
    if (as_it_is || (out.flags & RB_T_CONTIGUOUS)) return;
    copy_ = std::make_unique<rb::Scratch<T>>(out.numel);
    data_ = copy_->data();
  }
  T* data() const { return data_; }
  void finish() const {
    if (copy_) copy_view(view_of(out_), dense_view(data_, out_.dtype_id, view_of(out_)));
  }

 private:
  const RbTensor& out_;
  T* data_;
  std::unique_ptr<rb::Scratch<T>> copy_;
};

/// Store doubles as the elements of a tensor of any floating dtype.
inline void store_doubles(const RbTensor& out, const double* from) {
  const View to = view_of(out);
  copy_view(to, dense_view(const_cast<double*>(from), RB_F64, to));
}

/// Runs of T seen as runs of the type that computes: the 16-bit floats pass through a buffer.
template <class T>
class RunIn {
 public:
  using C = compute_t<T>;
  explicit RunIn(int64_t n) : buffer_(is_half_v<T> ? n : 0) {}
  const C* operator()(const T* from, [[maybe_unused]] int64_t n) const {
    if constexpr (is_half_v<T>) {
      widen_run(from, n, buffer_.data());
      return buffer_.data();
    } else {
      return from;
    }
  }

 private:
  rb::Scratch<C> buffer_;
};
template <class T>
class RunOut {
 public:
  using C = compute_t<T>;
  explicit RunOut(int64_t n) : buffer_(is_half_v<T> ? n : 0) {}
  C* at(T* to) const {
    if constexpr (is_half_v<T>) {
      return buffer_.data();
    } else {
      return to;
    }
  }
  void store([[maybe_unused]] T* to, [[maybe_unused]] int64_t n) const {
    if constexpr (is_half_v<T>) {
      narrow_run(buffer_.data(), n, to);
    }
  }

 private:
  rb::Scratch<C> buffer_;
};

/// Whether a row kernel streams the rows of `to` (stream.h): not through a buffer, nor onto what it
/// reads, nor where most of a row is its ragged ends.
template <class T>
bool streams_rows(const T* to, const T* from, int64_t rows, int64_t n) {
  constexpr int64_t item = sizeof(T), shortest = 512;
  return !is_half_v<T> && to != from && rows * n * item >= kStreamBytes && n * item >= shortest;
}

}  // namespace rbcpu
