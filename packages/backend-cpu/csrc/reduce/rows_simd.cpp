// Runs of float32 and float64: sums, extremes, softmax and what cross-entropy needs of it.
#include "common/level.h"
#include "reduce/rows.h"
#include "reduce/sum_simd.h"

namespace {

using rbcpu::Rows;

constexpr int kChunk = 64;  // elements that an exponential run takes at a time

template <class T>
double sum(const T* x, int64_t n) {
  return blocked_sum<T>(n, Elements<T>{x});
}
template <class T>
double sum_of_numbers(const T* x, int64_t n) {
  return blocked_sum<T>(n, Numbers<T>{x});
}
// In 4 x 16 lanes of double.
template <class T>
double product(const T* x, int64_t n) {
  constexpr int W = kLanes<double>, kLanesOfProduct = 4 * kSumLanes,
                kRegisters = kLanesOfProduct / W;
  using V = typename VectorOf<double>::type;
  V lanes[kRegisters];
#pragma GCC unroll 32
  for (int k = 0; k < kRegisters; ++k) lanes[k] = V{} + 1.0;
  int64_t i = 0;
  for (; i + kLanesOfProduct <= n; i += kLanesOfProduct) {
#pragma GCC unroll 32
    for (int k = 0; k < kRegisters; ++k) lanes[k] *= load_doubles(x + i + k * W);
  }
  alignas(64) double flat[kLanesOfProduct + 1];
#pragma GCC unroll 32
  for (int k = 0; k < kRegisters; ++k) store_vector(flat + k * W, lanes[k]);
  for (int l = 0; i < n; ++i, ++l) flat[l] *= static_cast<double>(x[i]);
  flat[kLanesOfProduct] = 1;
  for (int l = 0; l < kLanesOfProduct; ++l) flat[l] *= flat[l + 1];  // even places: pairs
#pragma GCC unroll 5
  for (int step = kLanesOfProduct / 2; step > 1; step /= 2) {
    for (int l = 0; l < step; ++l) flat[l] *= flat[l + step];
  }
  return flat[0];
}
template <class T>
double squares(const T* x, int64_t n, double mean) {
  return run_squares(x, n, mean);
}
template <class T>
double dot(const T* x, const T* y, int64_t n) {
  return blocked_sum<T>(n, Products<T>{x, y});
}

// The largest element if `Max`, else the smallest. NaN wins.
template <class T, bool Max>
RB_INLINE T extreme_in_order(const T* x, int64_t n) {
  constexpr int W = kLanes<T>, P = kParts<T>;
  using V = typename VectorOf<T>::type;
  using Op = typename std::conditional<Max, op_maximum, op_minimum>::type;
  T best = x[0];
  int64_t i = 0;
  if (n >= kSumLanes) {
    V lanes[P];
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) lanes[p] = read<true>(x + p * W);
    for (i = kSumLanes; i + kSumLanes <= n; i += kSumLanes) {
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) {
        const V v = read<true>(x + i + p * W);
        lanes[p] = (Max ? v > lanes[p] : v < lanes[p]) | (v != v) ? v : lanes[p];
      }
    }
    alignas(64) T flat[kSumLanes];
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) *reinterpret_cast<V*>(flat + p * W) = lanes[p];
    for (int l = 0; l < kSumLanes; ++l) best = Op::f(best, flat[l]);
  }
  for (; i < n; ++i) best = Op::f(best, x[i]);
  return best;
}

// The same of at least kChains registers of elements, without an order among equal ones. The sum of
// the elements tells whether a NaN is among them: `is_number` is false then, and also where
// infinities of both signs are.
constexpr int kChains = 4;
template <class T, bool Max>
RB_INLINE T extreme_of_numbers(const T* x, int64_t n, bool* is_number) {
  using V = Pack<T, 1>;
  constexpr int W = kLanesOf<V>;
  constexpr int64_t kStep = kChains * W;
  V best[kChains], sum[kChains];
  const auto take = [&](int64_t i) {
#pragma GCC unroll 4
    for (int k = 0; k < kChains; ++k) {
      const V v = pack_load<V>(x + i + k * W);
      best[k] = Max ? vm_max(v, best[k]) : vm_min(v, best[k]);
      sum[k] = sum[k] + v;
    }
  };
#pragma GCC unroll 4
  for (int k = 0; k < kChains; ++k) {
    best[k] = pack_load<V>(x + k * W);
    sum[k] = V(T(0));
  }
  for (int64_t i = 0; i + kStep <= n; i += kStep) take(i);
  take(n - kStep);
  const V a = sum[0] + sum[1], b = sum[2] + sum[3], total = a + b;
  *is_number = !vm_any(total != total);
#pragma GCC unroll 2
  for (int step = kChains / 2; step > 0; step /= 2) {
    for (int k = 0; k < step; ++k)
      best[k] = Max ? vm_max(best[k], best[k + step]) : vm_min(best[k], best[k + step]);
  }
  alignas(64) T flat[W];
  pack_store(flat, best[0]);
#pragma GCC unroll 4
  for (int step = W / 2; step > 0; step /= 2) {
    for (int l = 0; l < step; ++l)
      flat[l] =
          (Max ? flat[l] > flat[l + step] : flat[l] < flat[l + step]) ? flat[l] : flat[l + step];
  }
  return flat[0];
}

// Whether there are zeros of both signs.
template <class T>
RB_INLINE bool has_both_zeros(const T* x, int64_t n) {
  using Bits = typename std::conditional<sizeof(T) == 8, int64_t, int32_t>::type;
  constexpr Bits kMinus = static_cast<Bits>(Bits{1} << (8 * sizeof(T) - 1));
  Bits plus = 0, minus = 0;
  for (int64_t i = 0; i < n; ++i) {
    const Bits bits = __builtin_bit_cast(Bits, x[i]);
    plus |= bits == 0;
    minus |= bits == kMinus;
  }
  return plus && minus;
}

// Among zeros of both signs and among several NaNs the result depends on the order.
template <class T, bool Max>
T extreme(const T* x, int64_t n) {
  if (n < kChains * kLanesOf<Pack<T, 1>>) return extreme_in_order<T, Max>(x, n);
  bool is_number;
  const T best = extreme_of_numbers<T, Max>(x, n, &is_number);
  const bool settled = is_number && (best != T(0) || !has_both_zeros(x, n));
  return settled ? best : extreme_in_order<T, Max>(x, n);
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
  using V = Pack<T, 1>;
  using Pair = Pack<T, 2>;  // the latency of one exponential hides behind another
  constexpr int W = kLanesOf<V>, kPairs = kChunk / (2 * W);
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kSumBlock) {
    const int64_t end = begin + kSumBlock < n ? begin + kSumBlock : n;
    Pair sums[kPairs];
#pragma GCC unroll 16
    for (int k = 0; k < kPairs; ++k) sums[k] = Pair(T(0));
    int64_t i = begin;
    for (; i + kChunk <= end; i += kChunk) {
#pragma GCC unroll 16
      for (int k = 0; k < kPairs; ++k) {
        const Pair e = vm_exp(pack_load<Pair>(x + i + k * 2 * W) - Pair(top));
        if constexpr (Store) pack_store(r + i + k * 2 * W, e);
        sums[k] = sums[k] + e;
      }
    }
    alignas(64) T lanes[kChunk];
#pragma GCC unroll 16
    for (int k = 0; k < kPairs; ++k) pack_store(lanes + k * 2 * W, sums[k]);
    if (i < end) {  // through a padded buffer: short rows would run element by element
      const int m = static_cast<int>(end - i), full = (m + kSumLanes - 1) / kSumLanes * kSumLanes;
      alignas(64) T buffer[kChunk];
      for (int l = 0; l < m; ++l) buffer[l] = x[i + l];
      for (int l = m; l < full; ++l) buffer[l] = top;
      for (int l = 0; l < full; l += W)
        pack_store(buffer + l, vm_exp(pack_load<V>(buffer + l) - V(top)));
      for (int l = 0; l < m; ++l) {
        lanes[l] += buffer[l];
        if constexpr (Store) r[i + l] = buffer[l];
      }
    }
    alignas(64) T quarter[kSumLanes];
    for (int l = 0; l < kSumLanes; ++l) {
      quarter[l] = (lanes[l] + lanes[l + 16]) + (lanes[l + 32] + lanes[l + 48]);
    }
    total += static_cast<double>(fold(quarter));
  }
  return total;
}

template <class T>
struct Scaled {
  const T *x, *next;  // what is scaled, and the row whose successor is fetched
  T factor;
  template <bool Wide>
  RB_INLINE_MEMBER auto at(int64_t i) const {
    return read<Wide>(x + i) * factor;
  }
  RB_INLINE_MEMBER void fetch(int64_t i) const { __builtin_prefetch(next + i); }
};
template <class T>
void softmax(const T* x, T* r, int64_t n, T* scratch) {
  if (n == 0) return;
  const T top = extreme<T, true>(x, n);
  T* powers = scratch ? scratch : r;
  const T factor = static_cast<T>(1.0 / exp_sum<T, true>(x, powers, n, top));
  fill_row(r, n, scratch != nullptr, Scaled<T>{powers, x, factor});
}

template <class T>
struct Lowered {
  const T* x;
  T top, log_total;
  template <bool Wide>
  RB_INLINE_MEMBER auto at(int64_t i) const {
    return (read<Wide>(x + i) - top) - log_total;
  }
  RB_INLINE_MEMBER void fetch(int64_t i) const { __builtin_prefetch(x + i); }
};
template <class T>
void log_softmax(const T* x, T* r, int64_t n, bool stream) {
  if (n == 0) return;
  const T top = extreme<T, true>(x, n);
  const T log_total = static_cast<T>(__builtin_log(exp_sum<T, false>(x, nullptr, n, top)));
  fill_row(r, n, stream, Lowered<T>{x, top, log_total});
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
  for (; i + kSumLanes <= n; i += kSumLanes) {
    for (int l = 0; l < kSumLanes; ++l) r[i + l] = s_exp(x[i + l] - lse) * factor;
  }
  for (; i < n; ++i) r[i] = s_exp(x[i] - lse) * factor;
}

// out (g - s), or g - exp(out) s.
template <class T, bool Log>
struct Slope {
  const T *g, *out;
  T s;
  template <bool Wide>
  RB_INLINE_MEMBER auto at(int64_t i) const {
    const auto gi = read<Wide>(g + i), y = read<Wide>(out + i);
    if constexpr (!Log) {
      return y * (gi - s);
    } else if constexpr (Wide) {
      return gi - vm_exp(Pack<T, 1>(y)).v * s;
    } else {
      return gi - s_exp(y) * s;
    }
  }
  RB_INLINE_MEMBER void fetch(int64_t i) const {
    __builtin_prefetch(g + i);
    __builtin_prefetch(out + i);
  }
};
template <class T>
void softmax_vjp(const T* g, const T* out, T* r, int64_t n, bool stream) {
  fill_row(r, n, stream, Slope<T, false>{g, out, static_cast<T>(dot(g, out, n))});
}
template <class T>
void log_softmax_vjp(const T* g, const T* out, T* r, int64_t n, bool stream) {
  fill_row(r, n, stream, Slope<T, true>{g, out, static_cast<T>(sum(g, n))});
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
  return {sum<T>,           sum_of_numbers<T>, product<T>,     squares<T>,        dot<T>,
          extreme<T, true>, extreme<T, false>, find<T>,        softmax<T>,        log_softmax<T>,
          logsumexp<T>,     softmax_from<T>,   softmax_vjp<T>, log_softmax_vjp<T>};
}

}  // namespace

namespace rbcpu {
extern const RowTable RB_LEVEL_NAME(row_table) = {kernels<float>(), kernels<double>(), widen_bf16,
                                                  widen_f16,        narrow_bf16,       narrow_f16};
}
