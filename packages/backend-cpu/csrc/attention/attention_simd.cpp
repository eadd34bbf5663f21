// Rows of attention scores: online softmax (Milakov and Gimelshein 2018; Dao et al. 2022) and its
// derivative. Runs are as short as a tile, so sums stay in lanes of the element type.
#include "attention/attention_rows.h"
#include "common/level.h"
#include "common/scalar.h"
#include "common/vector.h"
#include "rabbet/philox.h"

namespace {

// As many sums at every level, so that the results are the same bits.
constexpr int kSums = 16;
template <class T>
constexpr int kParts = kSums / kLanes<T>;  // registers that hold them

// exp of a vector, 0 below about 1e-38: denormal results are slow, and vanish beside a sum of at
// least 1. As vm_exp, but n stays in the exponent's range. (Written in vectors, because the
// compiler gives up on loops that also gather sums.)
RB_ALWAYS VectorOf<float>::type exp_vector(VectorOf<float>::type x) {
  using V = VectorOf<float>::type;
  typedef int32_t I __attribute__((vector_size(kVectorBytes), may_alias));
  const V low = V{} - 87.0f, high = V{} + 88.0f;
  V c = x < low ? low : x;  // comparisons with NaN are false: it passes through
  c = c > high ? high : c;
  const V shifted = c * 1.442695041f + kRound;
  const V n = shifted - kRound;
  const V r = (c - n * 0.693359375f) - n * -2.12194440e-4f;
  V p = r * 1.992148896e-04f + 1.394837320e-03f;
  p = p * r + 8.333258695e-03f;
  p = p * r + 4.166623742e-02f;
  p = p * r + 1.666666689e-01f;
  p = p * r + 5.000000088e-01f;
  p = (p * r) * r + r + 1.0f;
  const I n_bits = (I)shifted - static_cast<int32_t>(vm_bits(kRound));
  const V y = p * (V)((n_bits + 127) << 23);
  return x < low ? V{} : y;
}
RB_ALWAYS VectorOf<double>::type exp_vector(VectorOf<double>::type x) {
  for (int i = 0; i < kLanes<double>; ++i) x[i] = x[i] < -708.0 ? 0.0 : m_exp(x[i]);
  return x;
}

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

// x becomes x * scale + mask; returns the scale that is still to be applied, as the passes after it
// do by the way. Only a positive one keeps the order of the scores.
template <class T>
RB_INLINE T apply_mask(T* x, const T* mask, int64_t n, T scale) {
  if (!mask && scale > T(0)) return scale;
  if (mask) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) x[i] = x[i] * scale + mask[i];
  } else {
    for (int64_t i = 0; i < n; ++i) x[i] *= scale;
  }
  return T(1);
}

// x becomes exp(x * scale - shift), and 0 from n up to `padded`; returns the sum.
template <class T>
RB_INLINE T exponentials(T* x, int64_t n, int64_t padded, T scale, T shift) {
  using V = typename VectorOf<T>::type;
  constexpr int L = kLanes<T>;
  V total[kParts<T>] = {};
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums) {
#pragma GCC unroll 8
    for (int p = 0; p < kParts<T>; ++p) {
      const V y = exp_vector(load_vector(x + i + p * L) * scale - shift);
      store_vector(x + i + p * L, y);
      total[p] += y;
    }
  }
  for (int p = 0; i < n; i += L, ++p) {
    const int part = n - i < L ? static_cast<int>(n - i) : L;
    store_part(x + i, exp_vector(load_part(x + i, part) * scale - shift), part);
    total[p] += load_part(x + i, part);
  }
  for (i = n; i < padded; ++i) x[i] = T(0);
  return finish<T>(total, [](T a, T b) { return a + b; });
}

template <class T>
T softmax(T* x, const T* mask, int64_t n, int64_t padded, T scale, T* top, T* total) {
  const T rest = apply_mask(x, mask, n, scale);
  const T before = *top, now = larger(before, largest(x, n) * rest);
  const bool none = now == -std::numeric_limits<T>::infinity();  // every key so far is masked
  const T sum = exponentials(x, n, padded, rest, none ? T(0) : now);
  const T factor = none ? T(1) : s_exp(before - now);
  *top = now;
  *total = *total * factor + sum;
  return factor;
}

template <class T>
void weights(T* x, const T* mask, int64_t n, int64_t padded, T scale, T logsumexp) {
  const T rest = apply_mask(x, mask, n, scale);
  const T inf = std::numeric_limits<T>::infinity();
  exponentials(x, n, padded, rest, logsumexp == -inf ? inf : logsumexp);
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
void drop(T* x, const uint8_t* kept, int64_t n, T factor) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) x[i] = kept[i] ? x[i] * factor : T(0);
}

// Numbers of 32 bits in lanes of 64, so that products need no shuffles. What stands above the 32
// bits is not looked at.
typedef uint64_t Words __attribute__((vector_size(kVectorBytes), may_alias));

RB_ALWAYS Words times(Words a, uint32_t b) {
#if defined(__AVX512F__)
  return (Words)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi64(b));
#elif defined(__AVX2__)
  return (Words)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi64x(b));
#elif defined(__x86_64__)
  return (Words)_mm_mul_epu32((__m128i)a, _mm_set1_epi64x(b));
#else
  return (a & 0xffffffffu) * b;
#endif
}

// rb_philox of the 64 counters of a tile: whether each of their words is kept.
void kept_words(uint64_t seed, uint64_t first, uint32_t limit, uint8_t (&to)[4][64]) {
  constexpr int kWide = kVectorBytes / 8, kAtOnce = 2;  // counters of a vector; vectors
  alignas(kVectorBytes) uint64_t words[4][64];
  for (int at = 0; at < 64; at += kAtOnce * kWide) {
    Words c[4][kAtOnce];
    for (int v = 0; v < kAtOnce; ++v) {
      for (int l = 0; l < kWide; ++l)
        c[0][v][l] = first + static_cast<uint64_t>(at + v * kWide + l);
      c[1][v] = Words{} + (first >> 32);
      c[2][v] = c[3][v] = Words{};
    }
    uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
#pragma GCC unroll 2
      for (int v = 0; v < kAtOnce; ++v) {
        const Words p0 = times(c[0][v], 0xD2511F53u), p1 = times(c[2][v], 0xCD9E8D57u);
        c[0][v] = (p1 >> 32) ^ c[1][v] ^ uint64_t { k0 };
        c[2][v] = (p0 >> 32) ^ c[3][v] ^ uint64_t { k1 };
        c[1][v] = p1;
        c[3][v] = p0;
      }
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    for (int w = 0; w < 4; ++w) __builtin_memcpy(&words[w][at], c[w], sizeof c[w]);
  }
  for (int w = 0; w < 4; ++w) {
    for (int l = 0; l < 64; ++l) to[w][l] = static_cast<uint32_t>(words[w][l]) <= limit;
  }
}

void kept(const rbcpu::Dropout& d, int64_t i, int64_t rows, int64_t j, int64_t columns, uint8_t* to,
          int64_t pitch) {
  for (int64_t r = 0; r < rows; r += 16) {
    uint64_t counter = rb_dropout_counter(d.matrix, static_cast<uint64_t>(d.rows),
                                          static_cast<uint64_t>(d.columns),
                                          static_cast<uint64_t>(i + r), static_cast<uint64_t>(j));
    for (int64_t c = 0; c < columns; c += 16, counter += 64) {
      uint8_t words[4][64];
      kept_words(d.seed, counter, d.limit, words);
      for (int w = 0; w < 4; ++w) {
        uint8_t* quarter = to + (r + w / 2 * 8) * pitch + c + w % 2 * 8;
        for (int k = 0; k < 8; ++k) __builtin_memcpy(quarter + k * pitch, words[w] + 8 * k, 8);
      }
    }
  }
}

template <class T>
constexpr rbcpu::AttentionRows<T> kAttentionRows = {softmax<T>, weights<T>, score_grads<T>,
                                                    drop<T>,    scaled<T>,  dot<T>};

}  // namespace

namespace rbcpu {
extern const AttentionTable RB_LEVEL_NAME(attention_table) = {kAttentionRows<float>,
                                                              kAttentionRows<double>, kept};
}
