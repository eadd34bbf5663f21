// Sums of rows of a table: some registers of columns at a time.
#include "common/vector.h"
#include "index/bags.h"

namespace {

constexpr int64_t kRows = 16;   // terms until a sum in T goes to double
constexpr int64_t kAhead = 16;  // rows that are fetched before they are read

// One element or a register of them.
template <int Lanes, class T>
RB_ALWAYS auto load(const T* p) {
  if constexpr (Lanes == 1) {
    return *p;
  } else {
    return load_vector(p);
  }
}

// Columns [0, Registers * Lanes) of `table`.
template <int Registers, int Lanes, class T>
RB_ALWAYS void sum_columns(const T* table, int64_t width, const int64_t* index, const T* factors,
                           int64_t n, int64_t padding, T* r) {
  constexpr int kColumns = Registers * Lanes;
  using V = decltype(load<Lanes>(table));
  alignas(64) T part[kColumns];
  double total[kColumns] = {};
  for (int64_t begin = 0; begin < n; begin += kRows) {
    const int64_t end = begin + kRows < n ? begin + kRows : n;
    V sum[Registers] = {};
    for (int64_t i = begin; i < end; ++i) {
      if (index[i] == padding) continue;
      const T* row = table + index[i] * width;
      if (i + kAhead < n) __builtin_prefetch(table + index[i + kAhead] * width);
#pragma GCC unroll 4
      for (int k = 0; k < Registers; ++k) {
        const V v = load<Lanes>(row + k * Lanes);
        sum[k] += factors ? v * factors[i] : v;
      }
    }
#pragma GCC unroll 4
    for (int k = 0; k < Registers; ++k) __builtin_memcpy(part + k * Lanes, &sum[k], sizeof(V));
    for (int j = 0; j < kColumns; ++j) total[j] += static_cast<double>(part[j]);
  }
  for (int j = 0; j < kColumns; ++j) r[j] = static_cast<T>(total[j]);
}

template <class T>
void bag_sum(const T* table, int64_t width, const int64_t* index, const T* factors, int64_t n,
             int64_t padding, T* r) {
  constexpr int W = kLanes<T>, kWide = 4;
  int64_t j = 0;
  for (; j + kWide * W <= width; j += kWide * W)
    sum_columns<kWide, W>(table + j, width, index, factors, n, padding, r + j);
  for (; j + W <= width; j += W)
    sum_columns<1, W>(table + j, width, index, factors, n, padding, r + j);
  for (; j < width; ++j) sum_columns<1, 1>(table + j, width, index, factors, n, padding, r + j);
}

}  // namespace

namespace rbcpu {
extern const BagTable RB_LEVEL_NAME(bag_table) = {bag_sum<float>, bag_sum<double>};
}
