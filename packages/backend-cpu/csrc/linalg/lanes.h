// Groups of small matrices in the interleaved layout of small.h.
#pragma once
#include <algorithm>
#include <type_traits>

#include "common/level.h"
#include "common/transpose.h"
#include "common/workspace.h"
#include "linalg/matrices.h"
#include "linalg/small.h"

namespace rbcpu {

inline const SmallTable<float>& small_table(float) { return RB_PICK_LEVEL(small_table).f32; }
inline const SmallTable<double>& small_table(double) { return RB_PICK_LEVEL(small_table).f64; }

template <class T>
constexpr bool kHasSmall = std::is_same_v<T, float> || std::is_same_v<T, double>;
/// Whether the kernels of small.h support matrices of this size.
template <class T>
bool is_small(int64_t rows, int64_t columns) {
  return kHasSmall<T> && rows >= 1 && columns >= 1 && rows <= kSmall && columns <= kSmall;
}

/// Loads and stores the matrices of a tensor, `lanes` of them at a time, in the interleaved layout.
template <class T>
class Group {
 public:
  explicit Group(const Items<T>& items)
      : items_(items),
        lanes_(small_table(T()).lanes),
        size_(items.rows * items.columns),
        stage_(static_cast<size_t>(size_ * lanes_)) {}

  /// Load matrices [begin, begin + count). Lanes beyond `count` repeat the last one.
  void load(int64_t begin, int count, T* to) const {
    int64_t step;
    const bool by_columns = items_.column_major();
    if ((by_columns || row_major()) && is_regular(begin, count, &step)) {
      const T* const from = items_.at(begin);
      if (by_columns) return interleave(from, step, to);
      interleave(from, step, stage_.data());
      for (int64_t j = 0; j < items_.columns; ++j)
        for (int64_t i = 0; i < items_.rows; ++i)
          std::copy_n(stage_.data() + (i * items_.columns + j) * lanes_, lanes_,
                      to + (j * items_.rows + i) * lanes_);
      return;
    }
    for (int l = 0; l < lanes_; ++l)
      items_.load(begin + std::min(l, count - 1), stage_.data() + l * size_, items_.rows);
    interleave(stage_.data(), size_, to);
  }
  void store(int64_t begin, int count, const T* from) const {
    int64_t step;
    if (items_.column_major() && is_regular(begin, count, &step)) {
      transpose()(bytes(items_.at(begin)), step * kItem, bytes(from), lanes_ * kItem, lanes_,
                  size_);
      return;
    }
    transpose()(bytes(stage_.data()), size_ * kItem, bytes(from), lanes_ * kItem, lanes_, size_);
    for (int l = 0; l < count; ++l) items_.store(begin + l, stage_.data() + l * size_, items_.rows);
  }

 private:
  static constexpr int64_t kItem = sizeof(T);

  static TransposePlane transpose() {
    return RB_PICK_LEVEL(transpose_table).direct[sizeof(T) == 4 ? 2 : 3];
  }
  static char* bytes(T* p) { return reinterpret_cast<char*>(p); }
  static const char* bytes(const T* p) { return reinterpret_cast<const char*>(p); }
  void interleave(const T* from, int64_t step, T* to) const {
    transpose()(bytes(to), lanes_ * kItem, bytes(from), step * kItem, size_, lanes_);
  }
  bool row_major() const {
    return (items_.column_step == 1 || items_.columns <= 1) &&
           (items_.row_step == items_.columns || items_.rows <= 1);
  }
  /// Whether the group is full and its matrices lie at a constant distance, `step` elements.
  bool is_regular(int64_t begin, int count, int64_t* step) const {
    if (count < lanes_) return false;
    const T* last = items_.at(begin + 1);
    *step = last - items_.at(begin);
    for (int l = 2; l < count; ++l) {
      const T* const next = items_.at(begin + l);
      if (next - last != *step) return false;
      last = next;
    }
    return true;
  }

  const Items<T>& items_;
  const int lanes_;
  const int64_t size_;
  const Workspace<T> stage_;
};

/// Run body(begin, end) over ranges of matrices of a batch on the pool. Every range begins at a
/// multiple of the number of lanes. `cost` is roughly the number of operations per matrix.
template <class T, class Body>
void for_each_group(const Batch& batch, double cost, const Body& body) {
  constexpr double kCostOfTask = 100000;
  const int lanes = small_table(T()).lanes;
  const int64_t groups = (batch.count + lanes - 1) / lanes;
  const int64_t grain = std::max<int64_t>(1, static_cast<int64_t>(kCostOfTask / (2 * cost + 1)));
  rb::parallel_for(groups, grain, [&](int64_t begin, int64_t end) {
    body(begin * lanes, std::min(batch.count, end * lanes));
  });
}

/// Copy the n numbers of one lane to `to` in ascending or descending order.
template <class T>
void sort_lane(const T* values, int lanes, int lane, int n, bool descending, T* to) {
  for (int i = 0; i < n; ++i) {
    const T value = values[i * lanes + lane];
    int at = i;
    for (; at > 0 && (descending ? to[at - 1] < value : to[at - 1] > value); --at)
      to[at] = to[at - 1];
    to[at] = value;
  }
}

}  // namespace rbcpu
