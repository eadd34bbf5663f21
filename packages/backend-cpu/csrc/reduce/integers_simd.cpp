// Sums and extremes of integers and bools: some registers of lanes side by side.
#include <type_traits>

#include "common/level.h"
#include "reduce/integers.h"

namespace {

using rbcpu::Integers;

constexpr int kBytes = 256;  // of lanes
template <class T>
constexpr int kCount = kBytes / static_cast<int>(sizeof(T));

// Bytes are summed in 32 bits for as long as no lane can overflow.
template <class T>
uint64_t sum(const T* x, int64_t n) {
  constexpr int kLanes = 64;
  constexpr int64_t kBlock = int64_t{kLanes} << 16;
  uint64_t total = 0;
  int64_t i = 0;
  if constexpr (sizeof(T) == 1) {
    while (i + kLanes <= n) {
      const int64_t end = i + (n - i < kBlock ? (n - i) / kLanes * kLanes : kBlock);
      int32_t lanes[kLanes] = {};
      for (; i < end; i += kLanes) {
        for (int l = 0; l < kLanes; ++l) lanes[l] += static_cast<int32_t>(x[i + l]);
      }
      for (int l = 0; l < kLanes; ++l) total += static_cast<uint64_t>(int64_t{lanes[l]});
    }
  } else {
    uint64_t lanes[kLanes / 2] = {};
    for (; i + kLanes / 2 <= n; i += kLanes / 2) {
      for (int l = 0; l < kLanes / 2; ++l) lanes[l] += static_cast<uint64_t>(x[i + l]);
    }
    for (int l = 0; l < kLanes / 2; ++l) total += lanes[l];
  }
  for (; i < n; ++i) total += static_cast<uint64_t>(x[i]);
  return total;
}

template <bool Max, class T>
RB_ALWAYS T better(T a, T b) {
  return (Max ? a > b : a < b) ? a : b;
}
template <class T, bool Max>
T extreme(const T* x, int64_t n) {
  constexpr int kLanes = kCount<T>;
  T best = x[0];
  int64_t i = 0;
  if (n >= kLanes) {
    T lanes[kLanes];
    for (int l = 0; l < kLanes; ++l) lanes[l] = x[l];
    for (i = kLanes; i + kLanes <= n; i += kLanes) {
      for (int l = 0; l < kLanes; ++l) lanes[l] = better<Max>(x[i + l], lanes[l]);
    }
    for (int step = kLanes / 2; step > 0; step /= 2) {
      for (int l = 0; l < step; ++l) lanes[l] = better<Max>(lanes[l], lanes[l + step]);
    }
    best = lanes[0];
  }
  for (; i < n; ++i) best = better<Max>(x[i], best);
  return best;
}
template <class T, bool Max>
void column_extreme(const T* x, int64_t stride, int64_t n, int64_t cols, T* top) {
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    const T* row = x + i * stride;
#pragma GCC ivdep
    for (int64_t j = 0; j < cols; ++j) {
      const T a = better<Max>(row[j], row[stride + j]);
      const T b = better<Max>(row[2 * stride + j], row[3 * stride + j]);
      top[j] = better<Max>(better<Max>(a, b), top[j]);
    }
  }
  for (; i < n; ++i) {
    const T* row = x + i * stride;
#pragma GCC ivdep
    for (int64_t j = 0; j < cols; ++j) top[j] = better<Max>(row[j], top[j]);
  }
}

// A bool is a byte that is 0 or 1.
uint64_t bool_sum(const bool* x, int64_t n) { return sum(reinterpret_cast<const uint8_t*>(x), n); }
template <bool Max>
bool bool_extreme(const bool* x, int64_t n) {
  return extreme<uint8_t, Max>(reinterpret_cast<const uint8_t*>(x), n) != 0;
}

template <class T>
constexpr Integers<T> kernels() {
  if constexpr (std::is_same_v<T, bool>)
    return {bool_sum, bool_extreme<true>, bool_extreme<false>, column_extreme<T, true>,
            column_extreme<T, false>};
  else
    return {sum<T>, extreme<T, true>, extreme<T, false>, column_extreme<T, true>,
            column_extreme<T, false>};
}

}  // namespace

namespace rbcpu {
extern const IntegerTable RB_LEVEL_NAME(integer_table) = {
    kernels<bool>(),     kernels<uint8_t>(),  kernels<int8_t>(),
    kernels<int16_t>(),  kernels<int32_t>(),  kernels<int64_t>(),
    kernels<uint16_t>(), kernels<uint32_t>(), kernels<uint64_t>()};
}
