// Transposing copies of planes by squares that fit the vector registers.
#include <cstdint>
#include <utility>

#include "common/level.h"
#include "common/stream.h"
#include "common/transpose.h"

namespace {

#if defined(__AVX512BW__)
constexpr int kRegister = 64;
#elif defined(__AVX2__)
constexpr int kRegister = 32;
#else
constexpr int kRegister = 16;
#endif

// W x W elements: vectors of W.
template <class T>
constexpr int kSide =
    kRegister / static_cast<int>(sizeof(T)) < 16 ? kRegister / static_cast<int>(sizeof(T)) : 16;
template <class T>
struct Row {
  typedef T type __attribute__((vector_size(kSide<T> * sizeof(T))));
  typedef T memory __attribute__((vector_size(kSide<T> * sizeof(T)), aligned(1), may_alias));
};
template <class T>
using row_t = typename Row<T>::type;

#define RB_INLINE static inline __attribute__((always_inline))

// Elements First, First + 1, ... of a and b in turn.
template <class T, int First, int... I>
RB_INLINE row_t<T> zip(row_t<T> a, row_t<T> b, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(a, b, (First + I / 2 + (I % 2) * kSide<T>)...);
}

// log2(W) perfect shuffles of the rows transpose the square.
template <class T>
RB_INLINE void square(char* to, int64_t to_row, const char* from, int64_t from_col) {
  constexpr int W = kSide<T>;
  using Lanes = std::make_integer_sequence<int, W>;
  row_t<T> x[W], y[W];
#pragma GCC unroll 16
  for (int i = 0; i < W; ++i)
    x[i] = *reinterpret_cast<const typename Row<T>::memory*>(from + i * from_col);
#pragma GCC unroll 4
  for (int done = 1; done < W; done *= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < W / 2; ++i) {
      y[2 * i] = zip<T, 0>(x[i], x[i + W / 2], Lanes());
      y[2 * i + 1] = zip<T, W / 2>(x[i], x[i + W / 2], Lanes());
    }
#pragma GCC unroll 16
    for (int i = 0; i < W; ++i) x[i] = y[i];
  }
#pragma GCC unroll 16
  for (int i = 0; i < W; ++i) *reinterpret_cast<typename Row<T>::memory*>(to + i * to_row) = x[i];
}

template <class T>
void direct(char* to, int64_t to_row, const char* from, int64_t from_col, int64_t rows,
            int64_t cols) {
  constexpr int W = kSide<T>;
  constexpr int64_t item = sizeof(T);
  const int64_t whole_rows = rows / W * W, whole_cols = cols / W * W;
  for (int64_t c = 0; c < whole_cols; c += W) {
    for (int64_t r = 0; r < whole_rows; r += W)
      square<T>(to + r * to_row + c * item, to_row, from + c * from_col + r * item, from_col);
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = r < whole_rows ? whole_cols : 0; c < cols; ++c)
      *reinterpret_cast<T*>(to + r * to_row + c * item) =
          *reinterpret_cast<const T*>(from + c * from_col + r * item);
  }
}

// By pieces of some rows and a kilobyte of each, which are streamed out.
template <class T>
void streamed(char* to, int64_t to_row, const char* from, int64_t from_col, int64_t rows,
              int64_t cols) {
  constexpr int64_t item = sizeof(T), piece_rows = 16, piece_cols = 1024 / item;
  alignas(64) char buffer[piece_rows * piece_cols * item];
  for (int64_t c = 0; c < cols; c += piece_cols) {
    const int64_t n = cols - c < piece_cols ? cols - c : piece_cols;
    for (int64_t r = 0; r < rows; r += piece_rows) {
      const int64_t m = rows - r < piece_rows ? rows - r : piece_rows;
      direct<T>(buffer, piece_cols * item, from + c * from_col + r * item, from_col, m, n);
      for (int64_t i = 0; i < m; ++i)
        rbcpu::stream_copy(to + (r + i) * to_row + c * item, buffer + i * piece_cols * item,
                           n * item);
    }
  }
  rbcpu::stream_fence();
}

}  // namespace

namespace rbcpu {
extern const TransposeTable RB_LEVEL_NAME(transpose_table) = {
    {direct<uint8_t>, direct<uint16_t>, direct<uint32_t>, direct<uint64_t>},
    {streamed<uint8_t>, streamed<uint16_t>, streamed<uint32_t>, streamed<uint64_t>}};
}
