// Resizing of lines and rows, once per instruction-set level.
#include "common/level.h"
#include "common/vector.h"
#include "sampling/resample_rows.h"

namespace rbcpu {
namespace {

template <class T, int Count>
void gather_line(const T* from, const Taps<T>& taps, T* to) {
  const int32_t* const index = taps.index;
  const T* const weight = taps.weight;
  const int64_t n = taps.out;
  for (int64_t o = 0; o < n; ++o) {
    T sum = weight[o] * from[index[o]];
    for (int k = 1; k < Count; ++k) sum += weight[k * n + o] * from[index[k * n + o]];
    to[o] = sum;
  }
}

#if defined(__AVX512F__)
// Neighbouring results read neighbouring elements, so one permutation of two registers per tap
// replaces a gather.
RB_ALWAYS __m512 part(const float* from, int64_t n) {
  return n >= 16 ? _mm512_loadu_ps(from)
                 : _mm512_maskz_loadu_ps(static_cast<__mmask16>(n > 0 ? (1u << n) - 1 : 0), from);
}
void permute_line(const float* from, const Taps<float>& taps, float* to) {
  const int64_t n = taps.out;
  for (int64_t o = 0; o < n; o += kTapBlock) {
    const __mmask16 mask = static_cast<__mmask16>(n - o >= 16 ? 0xffff : (1u << (n - o)) - 1);
    const int32_t start = taps.start[o / kTapBlock];
    const __m512 low = part(from + start, taps.in - start),
                 high = taps.in - start > 16 ? part(from + start + 16, taps.in - start - 16) : low;
    __m512 sum = _mm512_setzero_ps();
    for (int k = 0; k < taps.count; ++k) {
      const __m512i at = _mm512_sub_epi32(_mm512_maskz_loadu_epi32(mask, taps.index + k * n + o),
                                          _mm512_set1_epi32(start));
      __m512 term = _mm512_permutex2var_ps(low, at, high);
      if (taps.weight)
        term = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, taps.weight + k * n + o), term);
      sum = k ? _mm512_add_ps(sum, term) : term;
    }
    _mm512_mask_storeu_ps(to + o, mask, sum);
  }
}
#endif

template <class T>
void line(const T* from, const Taps<T>& taps, T* to) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) {
    if (taps.start) return permute_line(from, taps, to);
  }
#endif
  if (!taps.weight) {
    for (int64_t o = 0; o < taps.out; ++o) to[o] = from[taps.index[o]];
  } else if (taps.count == 2) {
    gather_line<T, 2>(from, taps, to);
  } else {
    gather_line<T, 4>(from, taps, to);
  }
}

template <class T>
void mix(const T* const* rows, const T* weights, int count, int64_t n, T* to) {
  const T* const a = rows[0];
  if (!weights) {
    for (int64_t i = 0; i < n; ++i) to[i] = a[i];
    return;
  }
  const T* const b = rows[1];
  const T p = weights[0], q = weights[1];
  if (count == 2) {
    for (int64_t i = 0; i < n; ++i) to[i] = p * a[i] + q * b[i];
    return;
  }
  const T *const c = rows[2], *const d = rows[3];
  const T r = weights[2], s = weights[3];
  for (int64_t i = 0; i < n; ++i) to[i] = ((p * a[i] + q * b[i]) + r * c[i]) + s * d[i];
}

template <class T>
void spread_line(const T* from, const Taps<T>& taps, T* to) {
  const int64_t n = taps.out;
  if (!taps.weight) {
    for (int64_t o = 0; o < n; ++o) to[taps.index[o]] += from[o];
    return;
  }
  for (int k = 0; k < taps.count; ++k) {
    const int32_t* const index = taps.index + k * n;
    const T* const weight = taps.weight + k * n;
    for (int64_t o = 0; o < n; ++o) to[index[o]] += weight[o] * from[o];
  }
}

template <class T>
void add_row(const T* from, T weight, int64_t n, T* to) {
  for (int64_t i = 0; i < n; ++i) to[i] += weight * from[i];
}

template <class T>
constexpr ResampleTable<T> kTable = {line<T>, mix<T>, spread_line<T>, add_row<T>};
}  // namespace

extern const ResampleTables RB_LEVEL_NAME(resample_table) = {kTable<float>, kTable<double>};
}  // namespace rbcpu
