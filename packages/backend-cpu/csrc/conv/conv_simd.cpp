// Convolution of float32 and float64 strips, once per instruction-set level: windows are gathered
// into panels of pixels that stay in the first-level cache, and a micro-kernel multiplies them with
// packed weights. Compiled with contraction, so that a * b + c is one instruction where the level
// has it.
#include "common/level.h"
#include "conv/conv_types.h"
#include "conv/conv_vector.h"

namespace {

using rbcpu::ConvPlane;
using rbcpu::ConvStrip;
using rbcpu::ConvWeight;

#if defined(__AVX512F__)
constexpr int kMaxRows = 8, kMaxVectors = 3;
#else
constexpr int kMaxRows = 6, kMaxVectors = 2;
#endif
// A panel (kDepth x kMaxVectors vectors) and one panel of weights share the first-level cache.
constexpr int64_t kDepth = 192;
template <class T>
constexpr int64_t kWidth = kMaxVectors * kLanes<T>;

// Panels of nearly equal height instead of full ones and a thin rest.
int64_t panels_of(int64_t m) { return (m + kMaxRows - 1) / kMaxRows; }

// Rows x cols (of Vectors vectors) of the result from panels of the weight and of the pixels.
template <class T, int Rows, int Vectors>
__attribute__((noinline)) void micro(int64_t depth, const T* a, const T* b, T* c, int64_t ldc,
                                     bool add, const T* bias, int64_t cols) {
  constexpr int L = kLanes<T>;
  Vec<T> sum[Rows][Vectors];
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) sum[r][v] = Vec<T>{};
  }
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) __builtin_prefetch(c + r * ldc + v * L);
  }
  for (int64_t p = 0; p < depth; ++p) {
    Vec<T> x[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) x[v] = load_vector(b + v * L);
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) sum[r][v] += a[r] * x[v];
    }
    a += Rows;
    b += Vectors * L;
  }
  const int last = static_cast<int>(cols) - (Vectors - 1) * L;
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r) {
    T* out = c + r * ldc;
    const T start = bias ? bias[r] : T(0);
#pragma GCC unroll 4
    for (int v = 0; v + 1 < Vectors; ++v)
      store_vector(out + v * L, sum[r][v] + (add ? load_vector(out + v * L) : Vec<T>{} + start));
    T* end = out + (Vectors - 1) * L;
    if (last == L) {
      store_vector(end, sum[r][Vectors - 1] + (add ? load_vector(end) : Vec<T>{} + start));
    } else {
      store_part(end, sum[r][Vectors - 1] + (add ? load_part(end, last) : Vec<T>{} + start), last);
    }
  }
}

template <class T>
using Micro = void (*)(int64_t, const T*, const T*, T*, int64_t, bool, const T*, int64_t);
#define RB_ROWS(n) micro<T, n, 1>, micro<T, n, 2>, micro<T, n, kMaxVectors>
template <class T>
constexpr Micro<T> kMicro[][3] = {
    {nullptr, nullptr, nullptr},
    {RB_ROWS(1)},
    {RB_ROWS(2)},
    {RB_ROWS(3)},
    {RB_ROWS(4)},
    {RB_ROWS(5)},
    {RB_ROWS(6)},
#if defined(__AVX512F__)
    {RB_ROWS(7)},
    {RB_ROWS(8)},
#endif
};
#undef RB_ROWS

// A run of pixels of one panel: neighbours in the source and in the panel.
struct Run {
  int64_t source, at, length;
};
// The runs of pixels [first, first + count).
template <class T>
int find_runs(const ConvStrip<T>& s, int64_t first, int64_t count, Run* runs) {
  const int64_t plane = s.rows * s.cols;
  int64_t image = first / plane, row = first % plane / s.cols, col = first % s.cols;
  int n = 0;
  for (int64_t at = 0; at < count; ++n) {
    const int64_t length = s.cols - col < count - at ? s.cols - col : count - at;
    runs[n] = {image * s.image_step + row * s.row_step + col, at, length};
    at += length;
    col = 0;
    if (++row == s.rows) {
      row = 0;
      ++image;
    }
  }
  return n;
}

#if defined(__AVX512F__)
RB_ALWAYS Vec<float> merge(Vec<float> v, Lanes<float> lanes, const float* p) {
  return _mm512_mask_loadu_ps(v, lanes.mask, p);
}
RB_ALWAYS Vec<double> merge(Vec<double> v, Lanes<double> lanes, const double* p) {
  return _mm512_mask_loadu_pd(v, lanes.mask, p);
}

// Lanes of one vector of a panel that come from one run.
template <class T>
struct Piece {
  int64_t source;  // of lane 0
  Lanes<T> lanes;
};

template <class T, int Pieces>
void fill_vector(const ConvStrip<T>& s, const int64_t* offset, int64_t depth, const Piece<T>* piece,
                 int pieces, int64_t step, T* to) {
  const int n = Pieces ? Pieces : pieces;
  for (int64_t k = 0; k < depth; ++k) {
    const T* from = s.source + offset[k];
    Vec<T> v{};
#pragma GCC unroll 4
    for (int i = 0; i < n; ++i) v = merge(v, piece[i].lanes, from + piece[i].source);
    store_vector(to + k * step, v);
  }
}

template <class T>
struct LaneIndex;
template <>
struct LaneIndex<float> {
  using type = int32_t;
};
template <>
struct LaneIndex<double> {
  using type = int64_t;
};
// The same where all pieces lie within two vectors, that of lane 0 first.
RB_ALWAYS Vec<float> pick(Vec<float> a, Vec<float> b, const int32_t* place) {
  return _mm512_permutex2var_ps(a, _mm512_loadu_si512(place), b);
}
RB_ALWAYS Vec<double> pick(Vec<double> a, Vec<double> b, const int64_t* place) {
  return _mm512_permutex2var_pd(a, _mm512_loadu_si512(place), b);
}
template <class T>
void shuffle_vector(const ConvStrip<T>& s, const int64_t* offset, int64_t depth,
                    const Piece<T>* piece, int pieces, int64_t step, T* to) {
  constexpr int L = kLanes<T>;
  typename LaneIndex<T>::type place[L] = {};
  int64_t reach = 0;
  for (int i = 0; i < pieces; ++i) {
    for (int l = 0; l < L; ++l) {
      if (!(piece[i].lanes.mask >> l & 1)) continue;
      const int64_t at = piece[i].source - piece[0].source + l;
      place[l] = static_cast<typename LaneIndex<T>::type>(at);
      if (at >= reach) reach = at + 1;
    }
  }
  const Lanes<T> low(0, reach), high(0, reach - L);
  const T* base = s.source + piece[0].source;
  for (int64_t k = 0; k < depth; ++k) {
    const T* from = base + offset[k];
    store_vector(to + k * step, pick(low.load(from), high.load(from + L), place));
  }
}

template <class T>
void fill_panel(const ConvStrip<T>& s, const int64_t* offset, int64_t depth, const Run* runs,
                int count, int64_t vectors, T* to) {
  constexpr int L = kLanes<T>;
  int r = 0;
  for (int64_t v = 0; v < vectors; ++v) {
    Piece<T> piece[L];
    int n = 0;
    for (; r < count && runs[r].at < (v + 1) * L; ++r) {
      const int64_t begin = runs[r].at > v * L ? runs[r].at - v * L : 0,
                    stop = runs[r].at + runs[r].length - v * L, end = stop < L ? stop : L;
      piece[n++] = {runs[r].source - (runs[r].at - v * L), Lanes<T>(begin, end)};
      if (stop > L) break;
    }
    T* column = to + v * L;
    const int64_t step = vectors * L;
    if (n > 2 && piece[n - 1].source - piece[0].source <= L) {
      shuffle_vector(s, offset, depth, piece, n, step, column);
    } else if (n == 1) {
      fill_vector<T, 1>(s, offset, depth, piece, n, step, column);
    } else if (n == 2) {
      fill_vector<T, 2>(s, offset, depth, piece, n, step, column);
    } else if (n == 3) {
      fill_vector<T, 3>(s, offset, depth, piece, n, step, column);
    } else if (n == 4) {
      fill_vector<T, 4>(s, offset, depth, piece, n, step, column);
    } else {
      fill_vector<T, 0>(s, offset, depth, piece, n, step, column);
    }
  }
}
#else
template <class T>
void fill_panel(const ConvStrip<T>& s, const int64_t* offset, int64_t depth, const Run* runs,
                int count, int64_t vectors, T* to) {
  const int64_t step = vectors * kLanes<T>, used = runs[count - 1].at + runs[count - 1].length;
  for (int64_t k = 0; k < depth; ++k, to += step) {
    const T* from = s.source + offset[k];
    for (int i = 0; i < count; ++i) {
      const T* run = from + runs[i].source;
      T* place = to + runs[i].at;
      int64_t j = 0;
      for (; j + kLanes<T> <= runs[i].length; j += kLanes<T>)
        store_vector(place + j, load_vector(run + j));
      for (; j < runs[i].length; ++j) place[j] = run[j];
    }
    clear_run(to + used, step - used);
  }
}
#endif

// The result of several images from channel-major rows of all their pixels to its places.
template <class T>
void spread_stage(const ConvStrip<T>& s) {
  const int64_t plane = s.rows * s.cols;
  for (int64_t c = 0; c < s.m; ++c) {
    for (int64_t i = 0; i < s.images; ++i)
      copy_run(s.stage + (c * s.images + i) * plane, plane,
               s.out + c * s.out_channel + i * s.out_image);
  }
}

// Rows x Vectors vectors of the result; the vectors of pixels are read in place.
struct Place {
  int64_t source, out;
  int count;  // pixels
};
template <class T, int Rows, int Vectors>
__attribute__((noinline)) void direct(const ConvStrip<T>& s, int64_t m0, const Place* place) {
  Vec<T> sum[Rows][Vectors];
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) sum[r][v] = Vec<T>{};
  }
  const T* start[Vectors];
#pragma GCC unroll 4
  for (int v = 0; v < Vectors; ++v) start[v] = s.source + place[v].source;
  const T* a = s.weight + m0 * s.depth;
  for (int64_t k = 0; k < s.depth; ++k, a += Rows) {
    const int64_t offset = s.offset[k];
    Vec<T> x[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) x[v] = load_vector(start[v] + offset);
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) sum[r][v] += a[r] * x[v];
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < Vectors; ++v) {
    const Lanes<T> written(0, place[v].count);
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
      const T bias = s.bias ? s.bias[m0 + r] : T(0);
      written.store(s.out + (m0 + r) * s.out_channel + place[v].out, sum[r][v] + bias);
    }
  }
}

template <class T>
using Direct = void (*)(const ConvStrip<T>&, int64_t, const Place*);
#define RB_ROWS(n) direct<T, n, 1>, direct<T, n, 2>, direct<T, n, kMaxVectors>
template <class T>
constexpr Direct<T> kDirect[][3] = {
    {nullptr, nullptr, nullptr},
    {RB_ROWS(1)},
    {RB_ROWS(2)},
    {RB_ROWS(3)},
    {RB_ROWS(4)},
    {RB_ROWS(5)},
    {RB_ROWS(6)},
#if defined(__AVX512F__)
    {RB_ROWS(7)},
    {RB_ROWS(8)},
#endif
};
#undef RB_ROWS

// Vectors of a row that are not full cost as much as full ones; gathering costs about kFill
// products of a vector.
constexpr int64_t kFill = 12;
template <class T>
bool read_in_place(const ConvStrip<T>& s) {
  const int64_t vectors = (s.cols + kLanes<T> - 1) / kLanes<T>;
  return s.slack && vectors * kLanes<T> * s.m <= s.cols * (s.m + kFill);
}

template <class T>
void direct_strip(const ConvStrip<T>& s) {
  const int64_t panels = panels_of(s.m);
  for (int64_t q = 0; q < panels; ++q) {
    const int64_t m0 = s.m * q / panels, rows = s.m * (q + 1) / panels - m0;
    Place place[kMaxVectors];
    int n = 0;
    for (int64_t image = 0; image < s.images; ++image) {
      for (int64_t row = 0; row < s.rows; ++row) {
        for (int64_t col = 0; col < s.cols; col += kLanes<T>) {
          const int64_t rest = s.cols - col;
          place[n++] = {image * s.image_step + row * s.row_step + col,
                        image * s.out_image + row * s.cols + col,
                        rest < kLanes<T> ? static_cast<int>(rest) : kLanes<T>};
          if (n < kMaxVectors) continue;
          kDirect<T>[rows][n - 1](s, m0, place);
          n = 0;
        }
      }
    }
    if (n) kDirect<T>[rows][n - 1](s, m0, place);
  }
}

template <class T>
void strip(const ConvStrip<T>& s) {
  if (read_in_place(s)) return direct_strip(s);
  const int64_t pixels = s.images * s.rows * s.cols, panels = panels_of(s.m),
                blocks = (s.depth + kDepth - 1) / kDepth,
                vectors_all = (pixels + kLanes<T> - 1) / kLanes<T>,
                widths = (vectors_all + kMaxVectors - 1) / kMaxVectors;
  const bool staged = s.images > 1;
  T* const target = staged ? s.stage : s.out;
  const int64_t step = staged ? pixels : s.out_channel;
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t k0 = s.depth * block / blocks, depth = s.depth * (block + 1) / blocks - k0;
    for (int64_t w = 0; w < widths; ++w) {
      const int64_t first = vectors_all * w / widths,
                    vectors = vectors_all * (w + 1) / widths - first, p = first * kLanes<T>,
                    count = pixels - p < vectors * kLanes<T> ? pixels - p : vectors * kLanes<T>;
      Run runs[kWidth<T>];
      const int n = find_runs(s, p, count, runs);
      fill_panel(s, s.offset + k0, depth, runs, n, vectors, s.panel);
      for (int64_t q = 0; q < panels; ++q) {
        const int64_t m0 = s.m * q / panels, rows = s.m * (q + 1) / panels - m0;
        const T* weight = s.weight + m0 * s.depth + k0 * rows;
        T* out = target + m0 * step + p;
        kMicro<T>[rows][vectors - 1](depth, weight, s.panel, out, step, block > 0,
                                     s.bias ? s.bias + m0 : nullptr, count);
      }
    }
  }
  if (staged) spread_stage(s);
}

// Four rows of four elements turned; rows are `step` apart.
template <class T>
RB_ALWAYS void turn_four(const T* from, int64_t step, T* to, int64_t to_step) {
  constexpr int64_t side = 16 / sizeof(T);
  for (int64_t r = 0; r < 4; r += side) {
    for (int64_t k = 0; k < 4; k += side)
      transpose_block(from + r * step + k, step, to + k * to_step + r, to_step);
  }
}

// Elements [k0, end) of one panel of channels.
template <class T>
void pack_panel(const ConvWeight<T>& w, int64_t q, int64_t k0, int64_t end) {
  const int64_t panels = panels_of(w.m), m0 = w.m * q / panels, rows = w.m * (q + 1) / panels - m0;
  const T* from = w.from + m0 * w.row;
  T* to = w.to + m0 * w.depth + k0 * rows;
  for (int64_t k = k0; k < end;) {
    const T* column = from + w.offset[k];
    const int64_t run = k + 4 <= end && w.offset[k + 3] == w.offset[k] + 3 ? 4 : 1;
    int64_t r = 0;
    if (run == 4) {
      for (; r + 4 <= rows; r += 4) turn_four(column + r * w.row, w.row, to + r, rows);
    } else if (w.row == 1) {
      for (; r < rows; ++r) to[r] = column[r];
    }
    for (; r < rows; ++r) {
      for (int64_t i = 0; i < run; ++i) to[i * rows + r] = column[r * w.row + i];
    }
    k += run;
    to += run * rows;
  }
}
template <class T>
void pack_weight(const ConvWeight<T>& w) {
  // Where channels are neighbours, panels take turns: each alone would touch little of each page.
  const int64_t block = w.row < w.depth ? 36 : w.depth;
  for (int64_t k0 = 0; k0 < w.depth; k0 += block) {
    for (int64_t q = w.first; q < w.last; ++q)
      pack_panel(w, q, k0, k0 + block < w.depth ? k0 + block : w.depth);
  }
}

// One phase of the columns, a few vectors of all rows at a time.
template <class T, int Phases>
void copy_phase(const ConvPlane<T>& p, int64_t f) {
  constexpr int L = kLanes<T>, kGroup = 4;
  const int64_t phases = Phases ? Phases : p.phases, first = p.left + f, room = p.w - first;
  // Elements [begin, end) lie inside the plane.
  const int64_t begin = first >= 0 ? 0 : (-first + phases - 1) / phases,
                end = room <= 0 ? 0 : (room + phases - 1) / phases;
  for (int64_t c0 = 0; c0 < p.pitch; c0 += kGroup * L) {
    Strided<T, Phases> seen[kGroup];
    Lanes<T> written[kGroup];
    int n = 0;
    for (int64_t c = c0; n < kGroup && c < p.pitch; ++n, c += L) {
      seen[n] = {begin - c, end - c, phases};
      written[n] = {0, p.pitch - c};
    }
    for (int64_t r = 0; r < p.rows; ++r) {
      if (!(p.used_rows >> (r % p.row_period) & 1)) continue;
      const int64_t y = p.top + r;
      T* to = p.to + (r * phases + f) * p.pitch + c0;
      if (!p.from || y < 0 || y >= p.h) {
        for (int v = 0; v < n; ++v) written[v].store(to + v * L, Vec<T>{});
        continue;
      }
      const T* from = p.from + y * p.w + first + c0 * phases;
      for (int v = 0; v < n; ++v) written[v].store(to + v * L, seen[v].load(from + v * L * phases));
    }
  }
}
template <class T>
void copy_plane(const ConvPlane<T>& p) {
  for (int64_t f = 0; f < p.phases; ++f) {
    if (f < 64 && !(p.used_phases >> f & 1)) continue;
    if (p.phases == 1) {
      copy_phase<T, 1>(p, f);
    } else if (p.phases == 2) {
      copy_phase<T, 2>(p, f);
    } else {
      copy_phase<T, 0>(p, f);
    }
  }
}

template <class T>
void interleave(const T* even, const T* odd, int64_t n, T* to) {
  constexpr int L = kLanes<T>;
  for (int64_t i = 0; i < n; i += L) {
    const Lanes<T> read(0, n - i), low(0, 2 * (n - i)), high(0, 2 * (n - i) - L);
    const Vec<T> a = read.load(even + i), b = read.load(odd + i);
    low.store(to + 2 * i, zip_lanes<T, 0>(a, b));
    high.store(to + 2 * i + L, zip_lanes<T, L / 2>(a, b));
  }
}

template <class T>
constexpr rbcpu::ConvTable<T> kTable = {kMaxRows,       kDepth* kWidth<T>, copy_plane<T>,
                                        pack_weight<T>, strip<T>,          interleave<T>};

}  // namespace

namespace rbcpu {
extern const ConvTables RB_LEVEL_NAME(conv_table) = {kTable<float>, kTable<double>};
}
