// Runs of float32 and float64: sums, extremes, softmax and what cross-entropy needs of it.
#include "level.h"
#include "rows.h"
#include "simd_sum.h"

namespace {

using rbcpu::Rows;

constexpr int kChunk = 64;  // elements that an exponential run takes at a time

template <class T>
double sum(const T* x, int64_t n) {
  return blocked_sum<T>(n, Elements<T>{x});
}
template <class T>
double squares(const T* x, int64_t n, double mean) {
  return run_squares(x, n, mean);
}
template <class T>
double dot(const T* x, const T* y, int64_t n) {
  return blocked_sum<T>(n, Products<T>{x, y});
}

// `Max` or the smallest; once a lane holds NaN it keeps it.
template <class T, bool Max>
T extreme(const T* x, int64_t n) {
  constexpr int W = kWidth<T>, P = kParts<T>;
  using V = typename VectorOf<T>::type;
  using Op = typename std::conditional<Max, op_maximum, op_minimum>::type;
  T best = x[0];
  int64_t i = 0;
  if (n >= kLanes) {
    V lanes[P];
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) lanes[p] = read<true>(x + p * W);
    for (i = kLanes; i + kLanes <= n; i += kLanes) {
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) {
        const V v = read<true>(x + i + p * W);
        lanes[p] = (Max ? v > lanes[p] : v < lanes[p]) | (v != v) ? v : lanes[p];
      }
    }
    alignas(64) T flat[kLanes];
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) *reinterpret_cast<V*>(flat + p * W) = lanes[p];
    for (int l = 0; l < kLanes; ++l) best = Op::f(best, flat[l]);
  }
  for (; i < n; ++i) best = Op::f(best, x[i]);
  return best;
}

// First position of `value`, which is there; of the first NaN if it is NaN.
template <class T>
int64_t find(const T* x, int64_t n, T value) {
  const bool nan = value != value;
  for (int64_t begin = 0; begin < n; begin += kChunk) {
    const int64_t m = n - begin < kChunk ? n - begin : kChunk;
    int hit = 0;
    if (nan) {
      for (int64_t i = 0; i < m; ++i) hit |= x[begin + i] != x[begin + i];
    } else {
      for (int64_t i = 0; i < m; ++i) hit |= x[begin + i] == value;
    }
    if (!hit) continue;
    for (int64_t i = 0; i < m; ++i) {
      if (nan ? x[begin + i] != x[begin + i] : x[begin + i] == value) return begin + i;
    }
  }
  return 0;
}

// Sum of exp(x - top), which is also stored in r if `Store`.
template <class T, bool Store>
RB_INLINE double exp_sum(const T* x, T* r, int64_t n, T top) {
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kSumBlock) {
    const int64_t end = begin + kSumBlock < n ? begin + kSumBlock : n;
    alignas(64) T lanes[kChunk] = {};
    int64_t i = begin;
    for (; i + kChunk <= end; i += kChunk) {
#pragma GCC ivdep
      for (int l = 0; l < kChunk; ++l) {
        const T e = s_exp(x[i + l] - top);
        if constexpr (Store) r[i + l] = e;
        lanes[l] += e;
      }
    }
    if (i < end) {  // through a padded buffer: short rows would run element by element
      const int m = static_cast<int>(end - i), full = (m + kLanes - 1) / kLanes * kLanes;
      alignas(64) T buffer[kChunk];
      for (int l = 0; l < m; ++l) buffer[l] = x[i + l];
      for (int l = m; l < full; ++l) buffer[l] = top;
#pragma GCC ivdep
      for (int l = 0; l < full; ++l) buffer[l] = s_exp(buffer[l] - top);
      for (int l = 0; l < m; ++l) {
        lanes[l] += buffer[l];
        if constexpr (Store) r[i + l] = buffer[l];
      }
    }
    alignas(64) T quarter[kLanes];
    for (int l = 0; l < kLanes; ++l) {
      quarter[l] = (lanes[l] + lanes[l + 16]) + (lanes[l + 32] + lanes[l + 48]);
    }
    total += static_cast<double>(fold(quarter));
  }
  return total;
}

template <class T>
void softmax(const T* x, T* r, int64_t n) {
  if (n == 0) return;
  const T top = extreme<T, true>(x, n);
  const T factor = static_cast<T>(1.0 / exp_sum<T, true>(x, r, n, top));
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) r[i] *= factor;
}
template <class T>
void log_softmax(const T* x, T* r, int64_t n) {
  if (n == 0) return;
  const T top = extreme<T, true>(x, n);
  const T log_total = static_cast<T>(__builtin_log(exp_sum<T, false>(x, nullptr, n, top)));
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) r[i] = (x[i] - top) - log_total;
}
template <class T>
double logsumexp(const T* x, int64_t n) {
  const T top = extreme<T, true>(x, n);
  // Infinite extremes stand for themselves: inf - inf is no number.
  const T finite = top - top == T(0) ? top : T(0);
  if (top != top || finite != top) return static_cast<double>(top);
  return static_cast<double>(top) + __builtin_log(exp_sum<T, false>(x, nullptr, n, top));
}
template <class T>
void softmax_from(const T* x, T* r, int64_t n, T lse, T factor) {
  int64_t i = 0;
#pragma GCC ivdep
  for (; i + kLanes <= n; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) r[i + l] = s_exp(x[i + l] - lse) * factor;
  }
  for (; i < n; ++i) r[i] = s_exp(x[i] - lse) * factor;
}

template <class T>
void softmax_vjp(const T* g, const T* out, T* r, int64_t n) {
  const T s = static_cast<T>(dot(g, out, n));
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) r[i] = out[i] * (g[i] - s);
}
template <class T>
void log_softmax_vjp(const T* g, const T* out, T* r, int64_t n) {
  const T s = static_cast<T>(sum(g, n));
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) r[i] = g[i] - s_exp(out[i]) * s;
}

// As BF16 and F16 of dtype.h, whose member functions would have weak symbols here.
RB_INLINE float float_of(uint32_t bits) { return __builtin_bit_cast(float, bits); }
RB_INLINE uint32_t bits_of(float x) { return __builtin_bit_cast(uint32_t, x); }

void widen_bf16(const uint16_t* x, float* r, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) r[i] = float_of(static_cast<uint32_t>(x[i]) << 16);
}
void narrow_bf16(const float* x, uint16_t* r, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t u = bits_of(x[i]);
    const uint32_t nearest = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16, quiet = (u >> 16) | 0x40u;
    r[i] = static_cast<uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? quiet : nearest);
  }
}
void widen_f16(const uint16_t* x, float* r, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t h = x[i], sign = (h & 0x8000u) << 16, body = (h & 0x7fffu) << 13;
    const float scaled = float_of(body) * float_of(0x77800000u);  // 2^112
    const uint32_t finite = bits_of(scaled), special = body | 0x7f800000u;
    r[i] = float_of(((h & 0x7c00u) == 0x7c00u ? special : finite) | sign);
  }
}
void narrow_f16(const float* x, uint16_t* r, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t u = bits_of(x[i]), sign = (u >> 16) & 0x8000u, mag = u & 0x7fffffffu;
    const uint32_t normal = (mag + 0xc8000fffu + ((mag >> 13) & 1u)) >> 13;
    const uint32_t tiny = bits_of(float_of(mag) + 0.5f) - 0x3f000000u;
    uint32_t bits = mag < 0x38800000u ? tiny : normal;
    bits = mag >= 0x47800000u ? 0x7c00u : bits;
    bits = mag > 0x7f800000u ? 0x7e00u | ((mag >> 13) & 0x3ffu) : bits;
    r[i] = static_cast<uint16_t>(bits | sign);
  }
}

template <class T>
constexpr Rows<T> kernels() {
  return {sum<T>,         squares<T>,        dot<T>,         extreme<T, true>, extreme<T, false>,
          find<T>,        softmax<T>,        log_softmax<T>, logsumexp<T>,     softmax_from<T>,
          softmax_vjp<T>, log_softmax_vjp<T>};
}

}  // namespace

namespace rbcpu {
extern const RowTable RB_LEVEL_NAME(row_table) = {kernels<float>(), kernels<double>(), widen_bf16,
                                                  widen_f16,        narrow_bf16,       narrow_f16};
}
