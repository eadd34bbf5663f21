// Batches of strided matrices, and their column-major copies.
#pragma once
#include <algorithm>
#include <cmath>

#include "common/view.h"
#include "linalg/lapack.h"
#include "rabbet/plugin.hpp"

namespace rbcpu {

constexpr uint64_t kMaskLinalg = bit(RB_F32) | bit(RB_F64) | bit(RB_C64) | bit(RB_C128);

/// The leading dimensions of a result. Kernels compute once for each of their places.
struct Batch {
  int ndim;
  int64_t shape[kMaxDims];
  int64_t count = 1;

  /// All dimensions of `t` but the last `inner`.
  Batch(const RbTensor& t, int inner) : ndim(t.ndim - inner) {
    for (int d = 0; d < ndim; ++d) {
      shape[d] = t.shape[d];
      count *= shape[d];
    }
  }
};

/// The matrices, vectors or numbers of a tensor, one for each place of a batch. Leading dimensions
/// that are missing or have size 1 broadcast.
template <class T>
class Items {
 public:
  Items(const RbTensor& t, int inner, const Batch& batch)
      : data_(static_cast<T*>(t.data)), batch_(batch) {
    const int own = t.ndim - inner, extra = batch.ndim - own;
    for (int d = 0; d < batch.ndim; ++d)
      strides_[d] = d < extra || t.shape[d - extra] == 1 ? 0 : t.strides[d - extra];
    if (inner == 2) {
      rows = t.shape[own];
      columns = t.shape[own + 1];
      row_step = t.strides[own];
      column_step = t.strides[own + 1];
    } else if (inner == 1) {
      rows = t.shape[own];
      row_step = t.strides[own];
    }
  }

  T* at(int64_t place) const {
    return data_ + offset_at(place, batch_.ndim, batch_.shape, strides_);
  }
  /// The transposed matrices.
  Items turned() const {
    Items t = *this;
    std::swap(t.rows, t.columns);
    std::swap(t.row_step, t.column_step);
    return t;
  }
  /// Whether each matrix is contiguous in column-major order, as LAPACK expects.
  bool column_major() const {
    return (row_step == 1 || rows <= 1) && (column_step == rows || columns <= 1);
  }
  void load(int64_t place, T* to, int64_t ld) const {
    const T* from = at(place);
    for (int64_t j = 0; j < columns; ++j)
      for (int64_t i = 0; i < rows; ++i) to[j * ld + i] = from[i * row_step + j * column_step];
  }
  void store(int64_t place, const T* from, int64_t ld) const {
    T* to = at(place);
    for (int64_t j = 0; j < columns; ++j)
      for (int64_t i = 0; i < rows; ++i) to[i * row_step + j * column_step] = from[j * ld + i];
  }
  void load_vector(int64_t place, T* to) const {
    const T* from = at(place);
    for (int64_t i = 0; i < rows; ++i) to[i] = from[i * row_step];
  }
  template <class From>
  void store_vector(int64_t place, const From* from) const {
    T* to = at(place);
    for (int64_t i = 0; i < rows; ++i) to[i * row_step] = static_cast<T>(from[i]);
  }

  int64_t rows = 1, columns = 1, row_step = 1, column_step = 1;

 private:
  T* data_;
  Batch batch_;
  int64_t strides_[kMaxDims];
};

/// A column-major matrix to compute in: the result itself where its layout fits, else scratch
/// memory that done() copies to the result.
template <class T>
class Work {
 public:
  explicit Work(const Items<T>& items)
      : items_(items), scratch_(items.column_major() ? 0 : items.rows * items.columns) {}
  T* begin(int64_t place) {
    place_ = place;
    data_ = items_.column_major() ? items_.at(place) : scratch_.data();
    return data_;
  }
  void done() {
    if (!items_.column_major()) items_.store(place_, data_, items_.rows);
  }

 private:
  const Items<T>& items_;
  rb::Scratch<T> scratch_;
  int64_t place_ = 0;
  T* data_ = nullptr;
};

/// Run body(begin, end) over the places of a batch on the pool; `cost` is roughly the operations of
/// one.
template <class F>
void for_each_matrix(const Batch& batch, double cost, F&& body) {
  constexpr double kCostOfTask = 100000;
  const int64_t grain = std::max<int64_t>(1, static_cast<int64_t>(kCostOfTask / (cost + 1)));
  const lapack::OneThread alone;
  rb::parallel_for(batch.count, grain, body);
}

/// LAPACK's iterative routines print to standard output or loop forever when a number is not
/// finite, so kernels check first and do not call them.
template <class T>
bool all_finite(const T* data, int64_t n) {
  bool finite = true;
  for (int64_t i = 0; i < n; ++i)
    finite &= std::isfinite(std::real(data[i])) && std::isfinite(std::imag(data[i]));
  return finite;
}
/// The `info` that stands for such a matrix: LAPACK's code for a wrong fourth argument.
constexpr lapack::Int kNotFinite = -4;

/// LAPACK wants leading dimensions of at least 1.
inline int64_t leading(int64_t rows) { return std::max<int64_t>(rows, 1); }

}  // namespace rbcpu
