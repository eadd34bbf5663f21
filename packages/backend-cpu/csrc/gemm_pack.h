// Packing for the blocked products: operands become panels that the micro-kernel reads in order.
// Internal linkage: for simd_gemm.cpp.
#pragma once
#include "simd_vector.h"

namespace {

// to[p * to_stride + r] = from[r * stride + p] for r < rows, p < depth.
template <class T>
void transpose_into(const T* from, int64_t stride, int64_t rows, int64_t depth, T* to,
                    int64_t to_stride) {
  constexpr int64_t B = 16 / sizeof(T);
  int64_t r = 0;
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) {
    for (; r + 4 <= rows; r += 16) {
      const int block = rows - r >= 16 ? 16 : static_cast<int>(rows - r) / 4 * 4;
      const T* row = from + r * stride;
      int64_t p = 0;
      for (; p + 16 <= depth; p += 16) {
        __m512i turned[16];
        transpose16(row + p, stride * 4, block, turned);
        const __mmask16 mask = static_cast<__mmask16>((1u << block) - 1);
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i)
          _mm512_mask_storeu_epi32(to + (p + i) * to_stride + r, mask, turned[i]);
      }
      for (; p < depth; ++p) {
        for (int64_t i = 0; i < block; ++i) to[p * to_stride + r + i] = row[i * stride + p];
      }
      if (block < 16) {
        r += block;
        break;
      }
    }
  }
#endif
  for (; r + B <= rows; r += B) {
    const T* row = from + r * stride;
    int64_t p = 0;
    for (; p + B <= depth; p += B)
      transpose_block(row + p, stride, to + p * to_stride + r, to_stride);
    for (; p < depth; ++p) {
      for (int64_t i = 0; i < B; ++i) to[p * to_stride + r + i] = row[i * stride + p];
    }
  }
  for (; r < rows; ++r) {
    for (int64_t p = 0; p < depth; ++p) to[p * to_stride + r] = from[r * stride + p];
  }
}

// rows x depth of a as depth groups of `rows` elements.
template <class T>
void pack_a(const T* a, int64_t as_m, int64_t as_k, int64_t rows, int64_t depth, T* to) {
  if (as_k == 1) return transpose_into(a, as_m, rows, depth, to, rows);
  if (as_m == 1) {
    constexpr int L = kLanes<T>;
    for (int64_t p = 0; p < depth; ++p, a += as_k, to += rows) {
      int64_t r = 0;
      for (; r + L <= rows; r += L) store_vector(to + r, load_vector(a + r));
      if (r < rows)
        store_part(to + r, load_part(a + r, static_cast<int>(rows - r)),
                   static_cast<int>(rows - r));
    }
    return;
  }
  for (int64_t p = 0; p < depth; ++p) {
    for (int64_t r = 0; r < rows; ++r) to[p * rows + r] = a[p * as_k + r * as_m];
  }
}

// depth x cols of b as depth groups of `width` elements, zero beyond `cols`.
template <class T>
void pack_b(const T* b, int64_t bs_k, int64_t bs_n, int64_t depth, int64_t cols, int64_t width,
            T* to) {
  constexpr int L = kLanes<T>;
  if (bs_n == 1) {
    const int64_t full = cols / L * L;
    const int rest = static_cast<int>(cols - full);
    for (int64_t p = 0; p < depth; ++p, b += bs_k, to += width) {
      int64_t j = 0;
      for (; j < full; j += L) store_vector(to + j, load_vector(b + j));
      if (rest) {
        store_vector(to + j, load_part(b + j, rest));
        j += L;
      }
      for (; j < width; j += L) store_vector(to + j, typename VectorOf<T>::type{});
    }
    return;
  }
  if (bs_k == 1) {
    transpose_into(b, bs_n, cols, depth, to, width);
  } else {
    for (int64_t p = 0; p < depth; ++p) {
      for (int64_t j = 0; j < cols; ++j) to[p * width + j] = b[p * bs_k + j * bs_n];
    }
  }
  for (int64_t p = 0; p < depth && cols < width; ++p) {
    for (int64_t j = cols; j < width; ++j) to[p * width + j] = T(0);
  }
}

}  // namespace
