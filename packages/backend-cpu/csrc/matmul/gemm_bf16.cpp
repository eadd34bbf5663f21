// bfloat16 products. Operands are packed into blocks of 32 along k: of a as 32 rows, of b as pairs
// (k, k + 1) side by side. A 32 x 32 block of float32 sums stays in four AMX tiles, or row by row
// in AVX-512 registers, over all of k. Compiled for AVX-512 with these extensions, so nothing else
// may be external or weak here, as in simd_*.cpp (level.h).
#include "matmul/gemm_bf16.h"

#if defined(__x86_64__)
#include "common/vector.h"

namespace {

using rbcpu::GemmBf16;
using rbcpu::LoopArgs;

constexpr int64_t kSide = 32;              // of a block of sums, and of k in a packed block
constexpr int64_t kPackedB = 512 * 1024;   // elements of b at a time: half of a second-level cache
constexpr int64_t kBlock = kSide * kSide;  // elements of a packed block

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

RB_ALWAYS __m512i halves(const uint16_t* p, int n) {
  return _mm512_maskz_loadu_epi16(n >= 32 ? ~__mmask32{0} : (__mmask32{1} << n) - 1, p);
}

// rows x k of a as blocks of 32 x 32, row after row, 0 beyond.
void pack_a(const GemmBf16& g, int64_t i0, int64_t rows, uint16_t* to) {
  for (int64_t p0 = 0; p0 < g.k; p0 += kSide, to += kBlock) {
    const int depth = static_cast<int>(g.k - p0 < kSide ? g.k - p0 : kSide);
    for (int64_t r = 0; r < kSide; ++r) {
      uint16_t* row = to + r * kSide;
      const uint16_t* from = g.a + (i0 + r) * g.as_m + p0 * g.as_k;
      if (r >= rows) {
        _mm512_store_si512(row, _mm512_setzero_si512());
      } else if (g.as_k == 1) {
        _mm512_store_si512(row, halves(from, depth));
      } else {
        for (int p = 0; p < kSide; ++p) row[p] = p < depth ? from[p * g.as_k] : uint16_t{0};
      }
    }
  }
}

// Rows run along memory (as_m == 1): 32 x 32 blocks are turned as 16 x 16 pairs.
void pack_a_turned(const GemmBf16& g, int64_t i0, int64_t rows, uint16_t* to) {
  const int n = static_cast<int>(rows);
  for (int64_t p0 = 0; p0 < g.k; p0 += kSide, to += kBlock) {
    // Pairs (p, p + 1) of one row as 32-bit elements: 16 pairs x 32 rows, turned to 32 rows.
    alignas(64) uint32_t pairs[16][32];
    for (int64_t q = 0; q < 16; ++q) {
      const int64_t p = p0 + 2 * q;
      const uint16_t* from = g.a + i0 + p * g.as_k;
      const __m512i even = p < g.k ? halves(from, n) : _mm512_setzero_si512();
      const __m512i odd = p + 1 < g.k ? halves(from + g.as_k, n) : _mm512_setzero_si512();
      for (int h = 0; h < 2; ++h) {
        const __m256i low = h ? _mm512_extracti64x4_epi64(even, 1) : _mm512_castsi512_si256(even);
        const __m256i high = h ? _mm512_extracti64x4_epi64(odd, 1) : _mm512_castsi512_si256(odd);
        _mm512_store_si512(pairs[q] + 16 * h,
                           _mm512_or_si512(_mm512_cvtepu16_epi32(low),
                                           _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16)));
      }
    }
    for (int h = 0; h < 2; ++h) {
      __m512i turned[16];
      transpose16(pairs[0] + 16 * h, sizeof pairs[0], 16, turned);
      for (int r = 0; r < 16; ++r) _mm512_store_si512(to + (16 * h + r) * kSide, turned[r]);
    }
  }
}

// k x cols of b as blocks of 32 x 32: two halves of 16 columns, in each 16 rows of pairs.
void pack_b(const GemmBf16& g, int64_t j0, int64_t cols, uint16_t* to) {
  for (int64_t p0 = 0; p0 < g.k; p0 += kSide, to += kBlock) {
    const int64_t depth = g.k - p0 < kSide ? g.k - p0 : kSide;
    for (int h = 0; h < 2; ++h) {
      uint16_t* half = to + h * (kBlock / 2);
      const int n = static_cast<int>(cols - 16 * h < 16 ? cols - 16 * h : 16);
      const uint16_t* from = g.b + p0 * g.bs_k + (j0 + 16 * h) * g.bs_n;
      if (n <= 0) {
        for (int r = 0; r < 16; ++r) _mm512_store_si512(half + 32 * r, _mm512_setzero_si512());
      } else if (g.bs_n == 1) {
        const __mmask16 mask = static_cast<__mmask16>((1u << n) - 1);
        for (int r = 0; r < 16; ++r) {
          __m512i even = _mm512_setzero_si512(), odd = even;
          if (2 * r < depth)
            even = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from + 2 * r * g.bs_k));
          if (2 * r + 1 < depth) {
            odd =
                _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from + (2 * r + 1) * g.bs_k));
          }
          _mm512_store_si512(half + 32 * r, _mm512_or_si512(even, _mm512_slli_epi32(odd, 16)));
        }
      } else if (g.bs_k == 1 && n == 16 && depth == kSide) {
        __m512i turned[16];
        transpose16(from, g.bs_n * 2, 16, turned);
        for (int r = 0; r < 16; ++r) _mm512_store_si512(half + 32 * r, turned[r]);
      } else {
        for (int r = 0; r < 16; ++r) {
          for (int j = 0; j < 16; ++j) {
            for (int e = 0; e < 2; ++e) {
              const int64_t p = 2 * r + e;
              half[32 * r + 2 * j + e] =
                  p < depth && j < n ? from[p * g.bs_k + j * g.bs_n] : uint16_t{0};
            }
          }
        }
      }
    }
  }
}

// sums[32][32] = packed a times packed b over `blocks` blocks of k. a_row: bytes from row to row,
// a_block: elements from block to block.
void multiply_tiles(int64_t blocks, const uint16_t* a, int64_t a_row, int64_t a_block,
                    const uint16_t* b, float* sums) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t i = 0; i < blocks; ++i) {
    _tile_loadd(4, a, a_row);
    _tile_loadd(6, b, 64);
    _tile_loadd(7, b + kBlock / 2, 64);
    _tile_loadd(5, reinterpret_cast<const char*>(a) + 16 * a_row, a_row);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    a += a_block;
    b += kBlock;
  }
  _tile_stored(0, sums, kSide * 4);
  _tile_stored(1, sums + 16, kSide * 4);
  _tile_stored(2, sums + 16 * kSide, kSide * 4);
  _tile_stored(3, sums + 16 * kSide + 16, kSide * 4);
}

void multiply_rows(int64_t blocks, const uint16_t* a, int64_t a_row, int64_t a_block,
                   const uint16_t* b, float* sums) {
  constexpr int kRows = 8;
  for (int r0 = 0; r0 < kSide; r0 += kRows) {
    __m512 sum[kRows][2];
    for (int r = 0; r < kRows; ++r) sum[r][0] = sum[r][1] = _mm512_setzero_ps();
    for (int64_t i = 0; i < blocks; ++i) {
      const char* rows = reinterpret_cast<const char*>(a + i * a_block) + r0 * a_row;
      const uint16_t* pairs = b + i * kBlock;
      for (int q = 0; q < 16; ++q) {
        const __m512bh b0 = (__m512bh)_mm512_load_si512(pairs + 32 * q);
        const __m512bh b1 = (__m512bh)_mm512_load_si512(pairs + kBlock / 2 + 32 * q);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          int32_t pair;
          __builtin_memcpy(&pair, rows + r * a_row + 4 * q, 4);
          const __m512bh x = (__m512bh)_mm512_set1_epi32(pair);
          sum[r][0] = _mm512_dpbf16_ps(sum[r][0], x, b0);
          sum[r][1] = _mm512_dpbf16_ps(sum[r][1], x, b1);
        }
      }
    }
    for (int r = 0; r < kRows; ++r) {
      _mm512_store_ps(sums + (r0 + r) * kSide, sum[r][0]);
      _mm512_store_ps(sums + (r0 + r) * kSide + 16, sum[r][1]);
    }
  }
}

constexpr int64_t kVectors = 8;

// Rows rows of a, along memory, times Cols packed columns.
template <int Rows, int Cols>
void multiply_vectors(const GemmBf16& g, int64_t i, const uint16_t* b, float* sums) {
  const int64_t stride = (g.k + kSide - 1) / kSide * kSide;
  __m512 sum[Rows][Cols];
  for (int r = 0; r < Rows; ++r) {
    for (int c = 0; c < Cols; ++c) sum[r][c] = _mm512_setzero_ps();
  }
  for (int64_t p = 0; p < g.k; p += kSide) {
    const int n = static_cast<int>(g.k - p < kSide ? g.k - p : kSide);
    __m512bh x[Cols];
    for (int c = 0; c < Cols; ++c) x[c] = (__m512bh)_mm512_load_si512(b + c * stride + p);
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
      const __m512bh a = (__m512bh)halves(g.a + (i + r) * g.as_m + p, n);
      for (int c = 0; c < Cols; ++c) sum[r][c] = _mm512_dpbf16_ps(sum[r][c], a, x[c]);
    }
  }
  for (int r = 0; r < Rows; ++r) {
    for (int c = 0; c < Cols; ++c) sums[r * kSide + c] = _mm512_reduce_add_ps(sum[r][c]);
  }
}

template <int Cols>
void vector_rows(const GemmBf16& g, int64_t i0, int64_t rows, const uint16_t* b, float* sums) {
  constexpr int kRows = Cols <= 4 ? 4 : 2;
  int64_t r = 0;
  for (; r + kRows <= rows; r += kRows)
    multiply_vectors<kRows, Cols>(g, i0 + r, b, sums + r * kSide);
  for (; r < rows; ++r) multiply_vectors<1, Cols>(g, i0 + r, b, sums + r * kSide);
}

// sums = activation(alpha sums + bias), which leaves nothing but rounding to `write`.
void finish_sums(const GemmBf16& g, int64_t i0, int64_t rows, int64_t j0, int64_t cols,
                 float* sums) {
  for (int64_t r = 0; r < rows; ++r) {
    float* row = sums + r * kSide;
    const float* bias = g.bias ? g.bias + (i0 + r) * g.bias_m + j0 * g.bias_n : nullptr;
    for (int64_t j = 0; j < cols; ++j)
      row[j] = g.alpha * row[j] + (bias ? bias[j * g.bias_n] : 0.0f);
    if (!g.activation) continue;
    LoopArgs all{};
    all.n = cols;
    all.out = reinterpret_cast<char*>(row);
    all.in[0] = all.out;
    all.out_stride = all.in_stride[0] = sizeof(float);
    g.activation(&all);
  }
}

void write(const GemmBf16& g, int64_t i0, int64_t rows, int64_t j0, int64_t cols,
           const float* sums) {
  const bool plain = g.cs_n == 1 && (!g.bias || g.bias_n == 1);
  for (int64_t r = 0; r < rows; ++r) {
    const float* from = sums + r * kSide;
    uint16_t* to = g.c + (i0 + r) * g.cs_m + j0 * g.cs_n;
    const float* bias = g.bias ? g.bias + (i0 + r) * g.bias_m + j0 * g.bias_n : nullptr;
    for (int64_t j = 0; j < cols; j += 16) {
      const int n = static_cast<int>(cols - j < 16 ? cols - j : 16);
      const __mmask16 mask = static_cast<__mmask16>((1u << n) - 1);
      __m512 v = _mm512_load_ps(from + j);
      if (plain && bias) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(mask, bias + j));
      if (!plain && bias) {
        alignas(64) float row[16] = {};
        for (int l = 0; l < n; ++l) row[l] = bias[(j + l) * g.bias_n];
        v = _mm512_add_ps(v, _mm512_load_ps(row));
      }
      const __m256i rounded = (__m256i)_mm512_cvtneps_pbh(v);
      if (plain) {
        _mm256_mask_storeu_epi16(to + j, mask, rounded);
      } else {
        alignas(32) uint16_t row[16];
        _mm256_store_si256(reinterpret_cast<__m256i*>(row), rounded);
        for (int l = 0; l < n; ++l) to[(j + l) * g.cs_n] = row[l];
      }
    }
  }
}

int64_t padded(int64_t k) { return (k + kSide - 1) / kSide * kSide; }
// The rest of a block of sums after the product itself.
void finish_and_write(const GemmBf16& g, int64_t i0, int64_t rows, int64_t j0, int64_t cols,
                      float* sums) {
  if (g.alpha == 1.0f && !g.activation) return write(g, i0, rows, j0, cols, sums);
  finish_sums(g, i0, rows, j0, cols, sums);
  GemmBf16 rest = g;
  rest.bias = nullptr;
  write(rest, i0, rows, j0, cols, sums);
}

// a's rows and up to kVectors columns.
void multiply_by_vectors(const GemmBf16& g, float* sums, uint16_t* packed) {
  const int64_t stride = padded(g.k);
  for (int64_t c = 0; c < g.n; ++c) {
    for (int64_t p = 0; p < stride; ++p)
      packed[c * stride + p] = p < g.k ? g.b[p * g.bs_k + c * g.bs_n] : uint16_t{0};
  }
  constexpr decltype(&vector_rows<1>) by[kVectors] = {
      vector_rows<1>, vector_rows<2>, vector_rows<3>, vector_rows<4>,
      vector_rows<5>, vector_rows<6>, vector_rows<7>, vector_rows<8>};
  for (int64_t i0 = 0; i0 < g.m; i0 += kSide) {
    const int64_t rows = g.m - i0 < kSide ? g.m - i0 : kSide;
    by[g.n - 1](g, i0, rows, packed, sums);
    finish_and_write(g, i0, rows, 0, g.n, sums);
  }
}

// Columns of b that are packed at a time.
int64_t block_cols(int64_t n, int64_t k) {
  int64_t cols = kPackedB / (padded(k) + 1) / kSide * kSide;
  if (cols < kSide) cols = kSide;
  const int64_t all = padded(n);
  return cols < all ? cols : all;
}

}  // namespace

namespace rbcpu {

bool is_bf16_vectors(const GemmBf16& g) {
  return (g.m <= kVectors && g.bs_k == 1) || (g.n <= kVectors && g.as_k == 1);
}

size_t gemm_bf16_workspace(int64_t m, int64_t n, int64_t k) {
  // Either operand may come to be the packed b.
  const int64_t most = n > m ? n : m;
  return static_cast<size_t>((kSide + block_cols(most, k)) * padded(k)) * 2 + kBlock * 4 + 64;
}

void gemm_bf16(const GemmBf16& given, Bf16Way way, void* workspace) {
  GemmBf16 g = given;
  const bool turned = way == Bf16Way::vectors ? g.n > kVectors || g.as_k != 1
                                              : g.m <= 16 && g.n > g.m && g.bs_k == 1;
  if (turned) {
    // Few rows: the large operand is better read in place, as rows.
    g = {given.n,    given.m,      given.k,      given.b,     given.bs_n,      given.bs_k,
         given.a,    given.as_k,   given.as_m,   given.c,     given.cs_n,      given.cs_m,
         given.bias, given.bias_n, given.bias_m, given.alpha, given.activation};
  }
  const int64_t blocks = padded(g.k) / kSide, nb = block_cols(g.n, g.k);
  float* sums = static_cast<float*>(workspace);
  uint16_t* packed_a = reinterpret_cast<uint16_t*>(sums + kBlock);
  uint16_t* packed_b = packed_a + kBlock * blocks;
  if (way == Bf16Way::vectors) return multiply_by_vectors(g, sums, packed_a);
  const bool tiles = way == Bf16Way::tiles;
  const TileConfig config;
  if (tiles) _tile_loadconfig(&config);
  const auto multiply = tiles ? multiply_tiles : multiply_rows;
  for (int64_t j0 = 0; j0 < g.n; j0 += nb) {
    const int64_t width = g.n - j0 < nb ? g.n - j0 : nb;
    for (int64_t j = 0; j < width; j += kSide)
      pack_b(g, j0 + j, width - j < kSide ? width - j : kSide, packed_b + j * blocks * kSide);
    for (int64_t i0 = 0; i0 < g.m; i0 += kSide) {
      const int64_t rows = g.m - i0 < kSide ? g.m - i0 : kSide;
      const bool direct = g.as_k == 1 && rows == kSide && g.k % kSide == 0;
      if (!direct) {
        if (g.as_m == 1 && g.as_k != 1) {
          pack_a_turned(g, i0, rows, packed_a);
        } else {
          pack_a(g, i0, rows, packed_a);
        }
      }
      for (int64_t j = 0; j < width; j += kSide) {
        multiply(blocks, direct ? g.a + i0 * g.as_m : packed_a, direct ? g.as_m * 2 : 64,
                 direct ? kSide : kBlock, packed_b + j * blocks * kSide, sums);
        finish_and_write(g, i0, rows, j0 + j, width - j < kSide ? width - j : kSide, sums);
      }
    }
  }
  if (tiles) _tile_release();
}

}  // namespace rbcpu

#else

namespace rbcpu {
bool is_bf16_vectors(const GemmBf16&) { return false; }
size_t gemm_bf16_workspace(int64_t, int64_t, int64_t) { return 0; }
void gemm_bf16(const GemmBf16&, Bf16Way, void*) {}
}  // namespace rbcpu

#endif
