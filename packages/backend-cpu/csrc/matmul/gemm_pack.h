// Packing for the blocked products: operands become panels that the micro-kernel reads in order.
// Internal linkage: for gemm_simd.cpp.
#pragma once
#include "common/vector.h"

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

// Copy `n` elements, whole vectors first.
template <class T>
RB_ALWAYS void copy_run(const T* from, int64_t n, T* to) {
  constexpr int L = kLanes<T>;
  int64_t i = 0;
  for (; i + L <= n; i += L) store_vector(to + i, load_vector(from + i));
  const int rest = static_cast<int>(n - i);
  if (rest) store_part(to + i, load_part(from + i, rest), rest);
}

// mb x depth of a as panels of nearly equal height, panel q from row mb * q / panels on; each is
// depth groups of as many elements as it has rows.
template <class T>
void pack_a(const T* a, int64_t as_m, int64_t as_k, int64_t mb, int64_t panels, int64_t depth,
            T* to) {
  if (as_m == 1) {
    // Some groups of every panel in turn: neighbours share the cache lines that they are read from,
    // and the panels those sets of the cache that they are written to.
    constexpr int64_t kAtATime = 8;
    for (int64_t p0 = 0; p0 < depth; p0 += kAtATime) {
      const int64_t end = p0 + kAtATime < depth ? p0 + kAtATime : depth;
      for (int64_t q = 0, r0 = 0; q < panels; ++q) {
        const int64_t rows = mb * (q + 1) / panels - r0;
        for (int64_t p = p0; p < end; ++p)
          copy_run(a + p * as_k + r0, rows, to + r0 * depth + p * rows);
        r0 += rows;
      }
    }
    return;
  }
  for (int64_t q = 0, r0 = 0; q < panels; ++q) {
    const int64_t rows = mb * (q + 1) / panels - r0;
    const T* from = a + r0 * as_m;
    T* panel = to + r0 * depth;
    if (as_k == 1) {
      transpose_into(from, as_m, rows, depth, panel, rows);
    } else {
      for (int64_t p = 0; p < depth; ++p) {
        for (int64_t r = 0; r < rows; ++r) panel[p * rows + r] = from[p * as_k + r * as_m];
      }
    }
    r0 += rows;
  }
}

// The width of the panel of b that begins with `cols` columns left: whole vectors.
template <class T>
int64_t panel_width(int64_t cols, int64_t most) {
  constexpr int64_t L = kLanes<T>;
  return cols >= most ? most : (cols + L - 1) / L * L;
}

// depth x cols of b as depth groups of `width` elements, whole vectors, 0 beyond the last column.
template <class T>
void pack_panel(const T* b, int64_t bs_k, int64_t bs_n, int64_t depth, int64_t cols, int64_t width,
                T* to) {
  constexpr int L = kLanes<T>;
  if (bs_n == 1) {
    for (int64_t p = 0; p < depth; ++p, b += bs_k, to += width) {
      int64_t j = 0;
      for (; j + L <= cols; j += L) store_vector(to + j, load_vector(b + j));
      for (; j < width; j += L)
        store_vector(to + j, load_part(b + j, cols > j ? static_cast<int>(cols - j) : 0));
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

// depth x nb of b as panels of `most` columns, the last one narrower. Panel j begins at j * depth.
template <class T>
void pack_b(const T* b, int64_t bs_k, int64_t bs_n, int64_t depth, int64_t nb, int64_t most,
            T* to) {
  constexpr int64_t kAtATime = 16;  // rows: along memory first, as panels share cache lines
  for (int64_t p = 0; p < depth; p += bs_n == 1 ? kAtATime : depth) {
    const int64_t rows = bs_n == 1 && depth - p > kAtATime ? kAtATime : depth - p;
    for (int64_t j = 0; j < nb; j += most) {
      const int64_t width = panel_width<T>(nb - j, most), cols = nb - j < width ? nb - j : width;
      pack_panel(b + p * bs_k + j * bs_n, bs_k, bs_n, rows, cols, width,
                 to + j * depth + p * width);
    }
  }
}

}  // namespace
