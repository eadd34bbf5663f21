// Runs of numbers that are converted, for files that are compiled per instruction-set level:
// float32 to float16 has instructions, which give the bits of half.h.
#pragma once
#include <cstdint>

#include "common/half.h"
#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace {

template <class From, class To>
RB_ALWAYS void convert_run(const From* x, To* __restrict r, int64_t n) {
  for (int64_t i = 0; i < n; ++i) r[i] = static_cast<To>(x[i]);
}

#if defined(__F16C__)
RB_ALWAYS void convert_run(const float* x, rbcpu::F16* __restrict r, int64_t n) {
  constexpr int kToEven = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  int64_t i = 0;
#if defined(__AVX512F__)
  for (; i + 16 <= n; i += 16) {
    _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(r + i),
                        _mm512_maskz_cvtps_ph(0xffff, _mm512_loadu_ps(x + i), kToEven));
  }
#endif
  for (; i + 8 <= n; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i_u*>(r + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(x + i), kToEven));
  }
  for (; i < n; ++i) r[i] = rbcpu::F16(x[i]);
}
#endif

}  // namespace
