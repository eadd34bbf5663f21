// Columns of float32 and float64: softmax and what cross-entropy needs of it, extremes, scans.
#include "common/level.h"
#include "common/scalar.h"
#include "reduce/columns.h"

namespace {

using rbcpu::Columns;
using rbcpu::kMostColumns;

constexpr int64_t kRowBlock = 32;  // terms until a sum in T goes to double

template <class T>
RB_INLINE void column_max(const T* x, int64_t stride, int64_t n, int64_t cols, T* top) {
  for (int64_t j = 0; j < cols; ++j) top[j] = x[j];
  for (int64_t i = 1; i < n; ++i) {
    const T* row = x + i * stride;
#pragma GCC ivdep
    for (int64_t j = 0; j < cols; ++j) {
      const T v = row[j];
      top[j] = v > top[j] || v != v ? v : top[j];
    }
  }
}

// total[j] = sum over i of term(i, j)
template <class T, class Term>
RB_INLINE void column_total(int64_t n, int64_t cols, double* total, const Term& term) {
  alignas(64) T part[kMostColumns];
  for (int64_t j = 0; j < cols; ++j) total[j] = 0;
  for (int64_t begin = 0; begin < n; begin += kRowBlock) {
    const int64_t end = begin + kRowBlock < n ? begin + kRowBlock : n;
    for (int64_t j = 0; j < cols; ++j) part[j] = T(0);
    for (int64_t i = begin; i < end; ++i) {
#pragma GCC ivdep
      for (int64_t j = 0; j < cols; ++j) part[j] += term(i, j);
    }
    for (int64_t j = 0; j < cols; ++j) total[j] += static_cast<double>(part[j]);
  }
}

template <class T>
void softmax(const T* x, int64_t xs, T* r, int64_t rs, int64_t n, int64_t cols) {
  if (n == 0) return;
  alignas(64) T top[kMostColumns];
  double total[kMostColumns];
  column_max(x, xs, n, cols, top);
  column_total<T>(n, cols, total, [&](int64_t i, int64_t j) {
    return r[i * rs + j] = s_exp(x[i * xs + j] - top[j]);
  });
  for (int64_t j = 0; j < cols; ++j) top[j] = static_cast<T>(1.0 / total[j]);
  for (int64_t i = 0; i < n; ++i) {
#pragma GCC ivdep
    for (int64_t j = 0; j < cols; ++j) r[i * rs + j] *= top[j];
  }
}
template <class T>
void log_softmax(const T* x, int64_t xs, T* r, int64_t rs, int64_t n, int64_t cols) {
  if (n == 0) return;
  alignas(64) T top[kMostColumns], log_total[kMostColumns];
  double total[kMostColumns];
  column_max(x, xs, n, cols, top);
  column_total<T>(n, cols, total,
                  [&](int64_t i, int64_t j) { return s_exp(x[i * xs + j] - top[j]); });
  for (int64_t j = 0; j < cols; ++j) log_total[j] = static_cast<T>(__builtin_log(total[j]));
  for (int64_t i = 0; i < n; ++i) {
#pragma GCC ivdep
    for (int64_t j = 0; j < cols; ++j) r[i * rs + j] = (x[i * xs + j] - top[j]) - log_total[j];
  }
}
template <class T>
void softmax_vjp(const T* g, int64_t gs, const T* out, int64_t os, T* r, int64_t rs, int64_t n,
                 int64_t cols) {
  alignas(64) T sum[kMostColumns];
  double total[kMostColumns];
  column_total<T>(n, cols, total,
                  [&](int64_t i, int64_t j) { return g[i * gs + j] * out[i * os + j]; });
  for (int64_t j = 0; j < cols; ++j) sum[j] = static_cast<T>(total[j]);
  for (int64_t i = 0; i < n; ++i) {
#pragma GCC ivdep
    for (int64_t j = 0; j < cols; ++j) r[i * rs + j] = out[i * os + j] * (g[i * gs + j] - sum[j]);
  }
}
template <class T>
void log_softmax_vjp(const T* g, int64_t gs, const T* out, int64_t os, T* r, int64_t rs, int64_t n,
                     int64_t cols) {
  alignas(64) T sum[kMostColumns];
  double total[kMostColumns];
  column_total<T>(n, cols, total, [&](int64_t i, int64_t j) { return g[i * gs + j]; });
  for (int64_t j = 0; j < cols; ++j) sum[j] = static_cast<T>(total[j]);
  for (int64_t i = 0; i < n; ++i) {
#pragma GCC ivdep
    for (int64_t j = 0; j < cols; ++j)
      r[i * rs + j] = g[i * gs + j] - s_exp(out[i * os + j]) * sum[j];
  }
}

template <class T>
void logsumexp(const T* x, int64_t stride, int64_t n, int64_t cols, T* lse) {
  alignas(64) T top[kMostColumns], safe[kMostColumns];
  double total[kMostColumns];
  column_max(x, stride, n, cols, top);
  for (int64_t j = 0; j < cols; ++j) safe[j] = top[j] - top[j] == T(0) ? top[j] : T(0);
  column_total<T>(n, cols, total,
                  [&](int64_t i, int64_t j) { return s_exp(x[i * stride + j] - safe[j]); });
  for (int64_t j = 0; j < cols; ++j) {
    const T found = static_cast<T>(static_cast<double>(top[j]) + __builtin_log(total[j]));
    lse[j] = top[j] - top[j] == T(0) ? found : top[j];  // an infinite extreme stands for itself
  }
}
template <class T>
void softmax_from(const T* x, int64_t xs, T* r, int64_t rs, int64_t n, int64_t cols, const T* lse,
                  const T* factor) {
  for (int64_t i = 0; i < n; ++i) {
#pragma GCC ivdep
    for (int64_t j = 0; j < cols; ++j) r[i * rs + j] = s_exp(x[i * xs + j] - lse[j]) * factor[j];
  }
}

template <class T, bool Max>
RB_INLINE T better(T v, T best) {
  return (Max ? v > best : v < best) || v != v ? v : best;
}
template <class T, bool Max>
void extreme(const T* x, int64_t stride, int64_t n, int64_t cols, T* top) {
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    const T* row = x + i * stride;
#pragma GCC ivdep
    for (int64_t j = 0; j < cols; ++j) {
      T best = top[j];
      best = better<T, Max>(row[j], best);
      best = better<T, Max>(row[stride + j], best);
      best = better<T, Max>(row[2 * stride + j], best);
      top[j] = better<T, Max>(row[3 * stride + j], best);
    }
  }
  for (; i < n; ++i) {
    const T* row = x + i * stride;
#pragma GCC ivdep
    for (int64_t j = 0; j < cols; ++j) top[j] = better<T, Max>(row[j], top[j]);
  }
}
template <class T, bool Max>
void arg_extreme(const T* x, int64_t stride, int64_t n, int64_t cols, T* top,
                 typename rbcpu::IndexOf<T>::type* at) {
  using Index = typename rbcpu::IndexOf<T>::type;
  for (int64_t j = 0; j < cols; ++j) {
    top[j] = x[j];
    at[j] = 0;
  }
  for (Index i = 1; i < static_cast<Index>(n); ++i) {
    const T* row = x + i * stride;
#pragma GCC ivdep
    for (int64_t j = 0; j < cols; ++j) {
      const T v = row[j], best = top[j];
      const bool better = ((Max ? v > best : v < best) | (v != v)) & (best == best);
      top[j] = better ? v : best;
      at[j] = better ? i : at[j];
    }
  }
}

template <class T, bool Product>
RB_INLINE double folded(double acc, T v) {
  if constexpr (Product) return acc * static_cast<double>(v);
  return acc + (v == v ? static_cast<double>(v) : 0.0);
}
// Products, or sums of what is not NaN.
template <class T, bool Product>
void fold(const T* x, int64_t stride, int64_t n, int64_t cols, double* acc) {
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    const T* row = x + i * stride;
#pragma GCC ivdep
    for (int64_t j = 0; j < cols; ++j) {
      const double two = folded<T, Product>(folded<T, Product>(acc[j], row[j]), row[stride + j]);
      acc[j] =
          folded<T, Product>(folded<T, Product>(two, row[2 * stride + j]), row[3 * stride + j]);
    }
  }
  for (; i < n; ++i) {
    const T* row = x + i * stride;
#pragma GCC ivdep
    for (int64_t j = 0; j < cols; ++j) acc[j] = folded<T, Product>(acc[j], row[j]);
  }
}

template <class T, bool Product>
void scan(const T* x, int64_t xs, T* r, int64_t rs, int64_t n, int64_t cols, double* acc) {
  for (int64_t i = 0; i < n; ++i) {
    const T* from = x + i * xs;
    T* to = r + i * rs;
#pragma GCC ivdep
    for (int64_t j = 0; j < cols; ++j) {
      const double v = static_cast<double>(from[j]);
      acc[j] = Product ? acc[j] * v : acc[j] + v;
      to[j] = static_cast<T>(acc[j]);
    }
  }
}

template <class T>
constexpr Columns<T> kernels() {
  return {softmax<T>,           log_softmax<T>,        softmax_vjp<T>,   log_softmax_vjp<T>,
          logsumexp<T>,         softmax_from<T>,       extreme<T, true>, extreme<T, false>,
          arg_extreme<T, true>, arg_extreme<T, false>, fold<T, false>,   fold<T, true>,
          scan<T, false>,       scan<T, true>};
}

}  // namespace

namespace rbcpu {
extern const ColumnTable RB_LEVEL_NAME(column_table) = {kernels<float>(), kernels<double>()};
}
