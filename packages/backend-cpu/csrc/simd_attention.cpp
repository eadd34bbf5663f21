// Rows of attention scores: online softmax (Milakov and Gimelshein 2018; Dao et al. 2022) and its
// derivative. Runs are as short as a tile, so sums stay in lanes of the element type.
#include "attention_rows.h"
#include "level.h"
#include "scalar.h"
#include "simd_vector.h"

namespace {

// As many sums at every level, so that the results are the same bits.
constexpr int kSums = 16;
template <class T>
constexpr int kParts = kSums / kLanes<T>;  // registers that hold them

// exp without denormal results, which are slow and vanish beside a sum of at least 1.
RB_INLINE float exp_flushed(float x) {
  const float y = vm_exp(x < -87.0f ? -87.0f : x);
  return x < -87.0f ? 0.0f : y;
}
RB_INLINE double exp_flushed(double x) { return x < -708.0 ? 0.0 : m_exp(x); }

template <class T>
RB_INLINE T larger(T a, T b) {  // NaN wins
  return (b > a) | (b != b) ? b : a;
}

// Folds the sums and the rest of a run, `step` being how two values are joined.
template <class T, class Step>
RB_INLINE T finish(const typename VectorOf<T>::type* parts, Step step) {
  T sums[kSums];
  __builtin_memcpy(sums, parts, sizeof sums);
  for (int half = kSums / 2; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) sums[l] = step(sums[l], sums[l + half]);
  }
  return sums[0];
}

template <class T>
T largest(const T* x, int64_t n) {
  using V = typename VectorOf<T>::type;
  V best[kParts<T>];
  for (V& v : best) v = V{} - std::numeric_limits<T>::infinity();
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums) {
#pragma GCC unroll 8
    for (int p = 0; p < kParts<T>; ++p) {
      const V v = load_vector(x + i + p * kLanes<T>);
      best[p] = (v > best[p]) | (v != v) ? v : best[p];
    }
  }
  T top = finish<T>(best, [](T a, T b) { return larger(a, b); });
  for (; i < n; ++i) top = larger(top, x[i]);
  return top;
}

template <class T>
T sum(const T* x, int64_t n) {
  using V = typename VectorOf<T>::type;
  V total[kParts<T>] = {};
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums) {
#pragma GCC unroll 8
    for (int p = 0; p < kParts<T>; ++p) total[p] += load_vector(x + i + p * kLanes<T>);
  }
  T rest = finish<T>(total, [](T a, T b) { return a + b; });
  for (; i < n; ++i) rest += x[i];
  return rest;
}

template <class T>
T dot(const T* x, const T* y, int64_t n) {
  using V = typename VectorOf<T>::type;
  V total[kParts<T>] = {};
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums) {
#pragma GCC unroll 8
    for (int p = 0; p < kParts<T>; ++p)
      total[p] += load_vector(x + i + p * kLanes<T>) * load_vector(y + i + p * kLanes<T>);
  }
  T rest = finish<T>(total, [](T a, T b) { return a + b; });
  for (; i < n; ++i) rest += x[i] * y[i];
  return rest;
}

template <class T>
RB_INLINE void scale_and_mask(T* x, const T* mask, int64_t n, T scale) {
  if (mask) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) x[i] = x[i] * scale + mask[i];
  } else {
    for (int64_t i = 0; i < n; ++i) x[i] *= scale;
  }
}

template <class T>
T softmax(T* x, const T* mask, int64_t n, int64_t padded, T scale, T* top, T* total) {
  scale_and_mask(x, mask, n, scale);
  const T before = *top, now = larger(before, largest(x, n));
  const bool none = now == -std::numeric_limits<T>::infinity();  // every key so far is masked
  const T shift = none ? T(0) : now;
  for (int64_t i = 0; i < n; ++i) x[i] = exp_flushed(x[i] - shift);
  for (int64_t i = n; i < padded; ++i) x[i] = T(0);
  const T factor = none ? T(1) : s_exp(before - now);
  *top = now;
  *total = *total * factor + sum(x, n);
  return factor;
}

template <class T>
void weights(T* x, const T* mask, int64_t n, int64_t padded, T scale, T logsumexp) {
  scale_and_mask(x, mask, n, scale);
  const T inf = std::numeric_limits<T>::infinity();
  const T shift = logsumexp == -inf ? inf : logsumexp;
  for (int64_t i = 0; i < n; ++i) x[i] = exp_flushed(x[i] - shift);
  for (int64_t i = n; i < padded; ++i) x[i] = T(0);
}

template <class T>
void score_grads(const T* p, T* dp, int64_t n, T delta, T scale) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) dp[i] = p[i] * (dp[i] - delta) * scale;
}

template <class T>
void scaled(const T* x, T* to, int64_t n, T factor) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) to[i] = x[i] * factor;
}

template <class T>
constexpr rbcpu::AttentionRows<T> kAttentionRows = {softmax<T>, weights<T>, score_grads<T>,
                                                    scaled<T>, dot<T>};

}  // namespace

namespace rbcpu {
extern const AttentionTable RB_LEVEL_NAME(attention_table) = {kAttentionRows<float>,
                                                              kAttentionRows<double>};
}
