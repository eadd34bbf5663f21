// Loops that copy or convert elements: by size within a dtype, by pair of dtypes between them.
#include <algorithm>

#include "common/convert.h"
#include "common/level.h"
#include "common/stream.h"
#include "common/transpose.h"
#include "common/view.h"

namespace rbcpu {
namespace {

struct Wide {
  uint64_t a, b;
};

template <class T>
int same(const LoopArgs* a) {
  const int64_t n = a->n, si = a->in_stride[0], so = a->out_stride;
  if (so == sizeof(T) && si == sizeof(T)) {
    std::memmove(a->out, a->in[0], n * sizeof(T));
    return 0;
  }
  if (so == sizeof(T) && si == 0) {
    const T c = *reinterpret_cast<const T*>(a->in[0]);
    std::fill_n(reinterpret_cast<T*>(a->out), n, c);
    return 0;
  }
  if constexpr (sizeof(T) <= sizeof(uint64_t)) {
    if (so == sizeof(T) && si == -static_cast<int64_t>(sizeof(T))) {
      RB_PICK_LEVEL(convert_table)
          .reverse[__builtin_ctz(sizeof(T))](a->out, a->in[0] + (n - 1) * si, n);
      return 0;
    }
  }
  const char* x = a->in[0];
  char* r = a->out;
  int64_t i = 0;
  if (n >= 16) {  // unrolling slows shorter runs down
#pragma GCC unroll 4
    for (; i < n; ++i, x += si, r += so) *reinterpret_cast<T*>(r) = *reinterpret_cast<const T*>(x);
  }
  for (; i < n; ++i, x += si, r += so) *reinterpret_cast<T*>(r) = *reinterpret_cast<const T*>(x);
  return 0;
}

template <class To, class From>
int cast(const LoopArgs* a) {
  const int64_t n = a->n, si = a->in_stride[0], so = a->out_stride;
  if (so == sizeof(To) && si == sizeof(From)) {
    const From* x = reinterpret_cast<const From*>(a->in[0]);
    To* __restrict r = reinterpret_cast<To*>(a->out);
    for (int64_t i = 0; i < n; ++i) r[i] = convert<To>(x[i]);
    return 0;
  }
  const char* x = a->in[0];
  char* r = a->out;
  for (int64_t i = 0; i < n; ++i, x += si, r += so) {
    *reinterpret_cast<To*>(r) = convert<To>(*reinterpret_cast<const From*>(x));
  }
  return 0;
}

Loop same_loop(int item) {
  switch (item) {
    case 1:
      return same<uint8_t>;
    case 2:
      return same<uint16_t>;
    case 4:
      return same<uint32_t>;
    case 8:
      return same<uint64_t>;
    default:
      return same<Wide>;
  }
}

// Copy n >= sizeof(W) bytes in words of type W. The last word may overlap the one before.
template <class W>
inline void copy_words(char* to, const char* from, int64_t n) {
  constexpr int64_t word = sizeof(W);
  W w;
  for (int64_t i = 0; i + word < n; i += word) {
    std::memcpy(&w, from + i, word);
    std::memcpy(to + i, &w, word);
  }
  std::memcpy(&w, from + n - word, word);
  std::memcpy(to + n - word, &w, word);
}
template <class W>
void copy_short_rows(char* to, int64_t to_row, const char* from, int64_t from_row, int64_t rows,
                     int64_t bytes) {
  for (int64_t r = 0; r < rows; ++r) copy_words<W>(to + r * to_row, from + r * from_row, bytes);
}

// Copy `s` (simplified) if its runs are only a few words long, so that a call for each would cost
// too much. Returns whether it did so.
bool run_short_rows(const LoopSpace& s, int item) {
  constexpr int64_t kMostBytes = 256;
  const int inner = s.ndim - 1, row = s.ndim - 2;
  const int64_t bytes = s.shape[inner] * item;
  if (s.ndim < 2 || s.out_strides[inner] != item || s.in_strides[0][inner] != item ||
      bytes > kMostBytes)
    return false;
  const auto copy = bytes >= 16  ? copy_short_rows<Wide>
                    : bytes >= 8 ? copy_short_rows<uint64_t>
                    : bytes >= 4 ? copy_short_rows<uint32_t>
                    : bytes >= 2 ? copy_short_rows<uint16_t>
                                 : copy_short_rows<uint8_t>;
  const int64_t rows = s.shape[row];
  int64_t planes = 1;
  for (int d = 0; d < row; ++d) planes *= s.shape[d];
  rb::parallel_for(planes * rows, std::max<int64_t>(1, kGrain / s.shape[inner]),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t at = begin; at < end;) {
                       const int64_t first = at % rows, n = std::min(rows - first, end - at);
                       char* to = s.out + first * s.out_strides[row];
                       const char* from = s.in[0] + first * s.in_strides[0][row];
                       int64_t rest = at / rows;
                       for (int d = row - 1; d >= 0; --d) {
                         to += rest % s.shape[d] * s.out_strides[d];
                         from += rest % s.shape[d] * s.in_strides[0][d];
                         rest /= s.shape[d];
                       }
                       copy(to, s.out_strides[row], from, s.in_strides[0][row], n, bytes);
                       at += n;
                     }
                   });
  return true;
}

// Whether `s` (simplified) is a stack of such transposes, and if so do it.
bool run_transpose(const LoopSpace& s, int item) {
  if (s.ndim < 2 || item == 16) return false;
  const int inner = s.ndim - 1;
  if (s.out_strides[inner] != item || s.in_strides[0][inner] == item || s.shape[inner] < 8)
    return false;
  int row = -1;
  for (int d = 0; d < inner; ++d) {
    if (s.in_strides[0][d] == item && s.shape[d] >= 8) row = d;
  }
  if (row < 0) return false;
  int64_t planes = 1;
  for (int d = 0; d < inner; ++d) planes *= d == row ? 1 : s.shape[d];
  // Rows per task: a wide band of each source row while there are bands for all threads.
  const int64_t rows = s.shape[row], cols = s.shape[inner];
  const int64_t band = planes * rows >= 2048 ? 256 : 64, bands = (rows + band - 1) / band;
  const bool streamed = planes * rows * cols * item >= kStreamBytes;
  const TransposeTable& table = RB_PICK_LEVEL(transpose_table);
  const TransposePlane plane = (streamed ? table.streamed : table.direct)[__builtin_ctz(item)];
  rb::parallel_for(planes * bands, std::max<int64_t>(1, kGrain / (cols * std::min(rows, band))),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t job = begin; job < end; ++job) {
                       int64_t rest = job / bands;
                       const int64_t r0 = job % bands * band, n = std::min(band, rows - r0);
                       char* to = s.out + r0 * s.out_strides[row];
                       const char* from = s.in[0] + r0 * item;
                       for (int d = inner - 1; d >= 0; --d) {
                         if (d == row) continue;
                         to += rest % s.shape[d] * s.out_strides[d];
                         from += rest % s.shape[d] * s.in_strides[0][d];
                         rest /= s.shape[d];
                       }
                       plane(to, s.out_strides[row], from, s.in_strides[0][inner], n, cols);
                     }
                   });
  return true;
}

}  // namespace

Loop cast_loop(int to, int from) {
  if (to == from) return same_loop(kItemSize[to]);
  int t = -1, f = -1;
  for (int i = 0; i < kCastCount; ++i) {
    if (kCastDTypes[i] == to) t = i;
    if (kCastDTypes[i] == from) f = i;
  }
  if (t >= 0 && f >= 0) return RB_PICK_LEVEL(convert_table).casts[t][f];
  Loop loop = nullptr;
  visit_dtype(to, [&](auto to_tag) {
    visit_dtype(from, [&](auto from_tag) {
      loop = &cast<typename decltype(to_tag)::type, typename decltype(from_tag)::type>;
    });
  });
  return loop;
}

void copy_view(const View& to, const View& from) {
  LoopSpace s;
  s.ndim = to.ndim;
  s.nin = 1;
  s.out = to.data;
  s.in[0] = from.data;
  s.ctx = nullptr;
  const int shift = to.ndim - from.ndim;
  int64_t total = 1;
  for (int d = 0; d < to.ndim; ++d) {
    total *= to.shape[d];
    s.shape[d] = to.shape[d];
    s.out_strides[d] = to.strides[d] * to.item();
    const int k = d - shift;
    s.in_strides[0][d] = k < 0 || from.shape[k] == 1 ? 0 : from.strides[k] * from.item();
  }
  if (total == 0) return;
  const Loop loop = cast_loop(to.dtype, from.dtype);
  simplify(s);
  if (to.dtype == from.dtype && total >= 1024 &&
      (run_transpose(s, to.item()) || run_short_rows(s, to.item())))
    return;
  run_space(s, loop, kGrain);
}

void fill_view(const View& to, const void* element) {
  LoopSpace s;
  s.ndim = to.ndim;
  s.nin = 1;
  s.out = to.data;
  s.in[0] = static_cast<const char*>(element);
  s.ctx = nullptr;
  for (int d = 0; d < to.ndim; ++d) {
    s.shape[d] = to.shape[d];
    s.out_strides[d] = to.strides[d] * to.item();
    s.in_strides[0][d] = 0;
  }
  run_space(s, same_loop(to.item()), kGrain);
}

void fill_view(const View& to, const RbValue& number) {
  alignas(16) char element[16];
  store_value(number, to.dtype, element);
  fill_view(to, element);
}

}  // namespace rbcpu
