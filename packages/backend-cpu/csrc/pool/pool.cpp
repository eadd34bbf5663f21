// Pooling over lines, planes and volumes: maximum and mean over windows of a given or of an
// adapted size, and their derivatives.
#include <algorithm>
#include <limits>
#include <memory>
#include <type_traits>

#include "common/extremes.h"
#include "common/kernels.h"
#include "common/level.h"
#include "common/operands.h"
#include "common/workspace.h"
#include "pool/pool_rows.h"

namespace rbcpu {
namespace {

// Dense memory for a result, copied to its place at the end where the result is not dense.
template <class T>
struct Dense {
  RbTensor& out;
  std::unique_ptr<rb::Scratch<T>> copy;
  T* data;

  explicit Dense(RbTensor& target) : out(target), data(static_cast<T*>(target.data)) {
    if (target.flags & RB_T_CONTIGUOUS) return;
    copy = std::make_unique<rb::Scratch<T>>(target.numel);
    data = copy->data();
  }
  void finish() const {
    if (copy) copy_view(view_of(out), dense_view(data, out.dtype_id, view_of(out)));
  }
};

// `count` volumes; directions that are missing have size 1.
struct Volumes {
  int64_t count, in[3], out[3];
  int64_t in_size() const { return in[0] * in[1] * in[2]; }
  int64_t out_size() const { return out[0] * out[1] * out[2]; }
};
Volumes volumes(const rb::Args& a, const RbTensor& in, const RbTensor& out, int rank) {
  if (rank < 1 || rank > 3 || (in.ndim != rank + 1 && in.ndim != rank + 2) || out.ndim != in.ndim) {
    rb::fail(RB_E_ARG, "%s: expected input of %d or %d dimensions, got %d", a.op_name(), rank + 1,
             rank + 2, in.ndim);
  }
  Volumes v;
  v.count = 1;
  for (int d = 0; d < 3; ++d) {
    const int at = in.ndim - 3 + d;
    v.in[d] = d < 3 - rank ? 1 : in.shape[at];
    v.out[d] = d < 3 - rank ? 1 : out.shape[at];
  }
  for (int d = 0; d < in.ndim - rank; ++d) {
    if (in.shape[d] != out.shape[d])
      rb::fail(RB_E_ARG, "%s: the result has another number of planes than the input", a.op_name());
    v.count *= in.shape[d];
  }
  return v;
}

int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

// The part of one direction that one window sees: `count` elements from `begin` on, `step` apart;
// `full` counts the padding as well.
struct Span {
  int64_t begin, count, step, full;
};
struct Window {
  int64_t kernel[3], stride[3], padding[3], dilation[3];

  Window(const rb::Args& a, const Volumes& v, int first, int rank, bool dilated) {
    read(a, first, "kernel_size", rank, 1, 1, kernel);
    std::copy(kernel, kernel + 3, stride);
    if (a.has(first + 1) && a.ints(first + 1).len) read(a, first + 1, "stride", rank, 1, 1, stride);
    read(a, first + 2, "padding", rank, 0, 0, padding);
    std::fill(dilation, dilation + 3, 1);
    if (dilated) read(a, first + 3, "dilation", rank, 1, 1, dilation);
    for (int d = 0; d < 3; ++d) {
      if (2 * padding[d] > dilation[d] * (kernel[d] - 1) + 1)
        rb::fail(RB_E_ARG, "%s: `padding` must be at most half of `kernel_size`", a.op_name());
      // A single window has any stride, a single tap any dilation.
      stride[d] = std::min(stride[d], std::max<int64_t>(1, v.in[d] + 2 * padding[d]));
      if (kernel[d] == 1) dilation[d] = 1;
    }
  }
  Span span(const Volumes& v, int d, int64_t i) const {
    const int64_t start = i * stride[d] - padding[d], step = dilation[d];
    const int64_t skip = start < 0 ? ceil_div(-start, step) : 0, begin = start + skip * step;
    const int64_t room = v.in[d] - begin;
    const int64_t inside = room <= 0 ? 0 : ceil_div(room, step);
    return {begin, std::clamp<int64_t>(kernel[d] - skip, 0, inside), step,
            std::min(start + kernel[d], v.in[d] + padding[d]) - start};
  }
  // All windows of a row see the same positions but at its ends.
  static constexpr bool kRegular = true;

 private:
  static void read(const rb::Args& a, int arg, const char* name, int rank, int64_t least,
                   int64_t missing, int64_t* to) {
    const auto v = a.ints(arg);
    if (v.len != 1 && v.len != static_cast<uint32_t>(rank))
      rb::fail(RB_E_ARG, "%s: `%s` must have %d entries, got %u", a.op_name(), name, rank, v.len);
    for (int d = 0; d < 3; ++d) {
      to[d] = d < 3 - rank ? missing : v[v.len == 1 ? 0 : d - (3 - rank)];
      if (to[d] < least)
        rb::fail(RB_E_ARG, "%s: `%s` must be at least %lld", a.op_name(), name,
                 static_cast<long long>(least));
    }
  }
};
// Windows that divide each direction.
struct Adapted {
  Span span(const Volumes& v, int d, int64_t i) const {
    const int64_t begin = i * v.in[d] / v.out[d],
                  end = ((i + 1) * v.in[d] + v.out[d] - 1) / v.out[d];
    return {begin, end - begin, 1, end - begin};
  }
  static constexpr bool kRegular = false;
};

template <class F>
void for_volumes(const Volumes& v, int64_t work, const F& f) {
  rb::parallel_for(v.count, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, work)),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; ++i) f(i);
                   });
}

// The columns one after the other.
template <class Rule, class F>
void for_each_column(const Volumes& v, const Rule& rule, const F& f) {
  for (int64_t c = 0; c < v.out[2]; ++c) {
    const Span s = rule.span(v, 2, c);
    for (int64_t j = 0; j < s.count; ++j) f(s.begin + j * s.step, c, 1, 1);
  }
}

// f(first input element, output columns [begin, begin + n), step): one position of the window for
// all the outputs of a row that see it inside the input.
template <class F>
void for_columns(const Volumes& v, const Window& w, const F& f) {
  // Most positions of a window longer than the row lie in the padding.
  if (w.kernel[2] > v.in[2]) return for_each_column(v, w, f);
  for (int64_t j = 0; j < w.kernel[2]; ++j) {
    const int64_t shift = j * w.dilation[2] - w.padding[2], s = w.stride[2];
    const int64_t begin = shift >= 0 ? 0 : (-shift + s - 1) / s;
    const int64_t end =
        std::min(v.out[2], v.in[2] - shift <= 0 ? 0 : (v.in[2] - shift + s - 1) / s);
    if (begin < end) f(begin * s + shift, begin, end - begin, s);
  }
}

// f(row of the input volume) for each row that output row (z, r) sees.
template <class Rule, class F>
void for_rows(const Volumes& v, const Rule& rule, int64_t z, int64_t r, const F& f) {
  const Span depth = rule.span(v, 0, z), height = rule.span(v, 1, r);
  for (int64_t k = 0; k < depth.count; ++k) {
    for (int64_t i = 0; i < height.count; ++i)
      f((depth.begin + k * depth.step) * v.in[1] + height.begin + i * height.step);
  }
}

template <class T>
constexpr bool kTabled = std::is_same_v<T, float> || std::is_same_v<T, double>;
inline const PoolTable<float>& pool_table(float) { return RB_PICK_LEVEL(pool_table).f32; }
inline const PoolTable<double>& pool_table(double) { return RB_PICK_LEVEL(pool_table).f64; }

template <class T, class C, class I>
void take_max(const T* row, int64_t n, int64_t step, C* best, I* at, I place) {
  if constexpr (kTabled<T> && std::is_same_v<I, int32_t>) {
    pool_table(T()).max_row(row, n, step, best, at, place);
  } else {
    max_row<T, C, I>(row, n, step, best, at, place);
  }
}
template <class T, class C>
void take_sum(const T* row, int64_t n, int64_t step, C* sum) {
  if constexpr (kTabled<T>) {
    pool_table(T()).add_row(row, n, step, sum);
  } else {
    add_row<T, C>(row, n, step, sum);
  }
}
template <class T>
compute_t<T> run_sum(const T* from, int64_t n) {
  if constexpr (kTabled<T>) {
    return pool_table(T()).sum_run(from, n);
  } else {
    return sum_run<T, compute_t<T>>(from, n);
  }
}
// A plain loop is faster for few elements.
template <class C>
C sum_of(const C* from, int64_t n) {
  constexpr int64_t kMany = 32;
  if (n >= kMany) return run_sum(from, n);
  C sum = C(0);
  for (int64_t i = 0; i < n; ++i) sum += from[i];
  return sum;
}
template <class C>
void give_share(const C* share, int64_t n, int64_t step, C* to) {
  if constexpr (kTabled<C>) {
    pool_table(C()).spread_row(share, n, step, to);
  } else {
    spread_row<C>(share, n, step, to);
  }
}

// Windows that differ from column to column: reduce the rows of the window for all columns of the
// input first, then the columns of each window.
template <class T, class C, class I>
void max_adapted(const Volumes& v, const Adapted& rule, int64_t z, int64_t r, const T* from,
                 C* best, I* at, T* values, int64_t* indices) {
  const int64_t in = v.in[2];
  const int64_t first = (rule.span(v, 0, z).begin * v.in[1] + rule.span(v, 1, r).begin) * in;
  for (int64_t c = 0; c < in; ++c) {
    best[c] = worst<C>(true);
    at[c] = static_cast<I>(first + c);
  }
  for_rows(v, rule, z, r, [&](int64_t row) {
    take_max<T, C, I>(from + row * in, in, 1, best, at, static_cast<I>(row * in));
  });
  for (int64_t c = 0; c < v.out[2]; ++c) {
    const Span s = rule.span(v, 2, c);
    C value = best[s.begin];
    I place = at[s.begin];
    for (int64_t i = s.begin + 1; i < s.begin + s.count; ++i) {
      // A scan row by row would find the first of equal values and the last NaN.
      const C next = best[i];
      const bool later = at[i] > place, was_nan = value != value;
      const bool take =
          next != next ? !was_nan || later : next > value || (next == value && !later);
      value = take ? next : value;
      place = take ? at[i] : place;
    }
    values[c] = T(value);
    indices[c] = place;
  }
}

template <class T>
void take_windows(const T* row, int64_t n, int64_t step, int64_t taps, int64_t dilation, T* values,
                  int64_t* indices, int64_t place) {
  if constexpr (kTabled<T>) {
    pool_table(T()).max_windows(row, n, step, taps, dilation, values, indices, place);
  } else {
    max_windows<T, compute_t<T>>(row, n, step, taps, dilation, values, indices, place);
  }
}

// Whether the windows are short and lie along the rows, so that an output row sees one input row.
// Places in a window count in int32.
bool are_short(const Volumes& v, const Window& w) {
  constexpr int64_t kMostTaps = 16;
  return w.kernel[0] == 1 && w.kernel[1] == 1 && w.kernel[2] > 1 && w.kernel[2] <= kMostTaps &&
         v.in[2] <= INT32_MAX;
}
// The windows at the ends of a row see less of it than those between.
template <class T>
void max_short(const Volumes& v, const Window& w, int64_t row, const T* from, T* values,
               int64_t* indices) {
  using C = compute_t<T>;
  const int64_t cols = v.out[2], taps = w.kernel[2], s = w.stride[2], pad = w.padding[2];
  const T* line = from + row * v.in[2];
  const int64_t begin = std::min(cols, ceil_div(pad, s));
  const int64_t room = v.in[2] + pad - (taps - 1) * w.dilation[2] - 1;
  const int64_t end = room < 0 ? begin : std::clamp(room / s + 1, begin, cols);
  const auto scan = [&](int64_t first, int64_t last) {
    for (int64_t c = first; c < last; ++c) {
      const Span span = w.span(v, 2, c);
      values[c] = line[span.begin];
      indices[c] = row * v.in[2] + span.begin;
      for (int64_t k = 1; k < span.count; ++k) {
        const int64_t i = span.begin + k * span.step;
        const C value = C(line[i]);
        if (!(value > C(values[c])) && value == value) continue;
        values[c] = line[i];
        indices[c] = row * v.in[2] + i;
      }
    }
  };
  scan(0, begin);
  const int64_t place = begin * s - pad;
  if (begin < end)
    take_windows(line + place, end - begin, s, taps, w.dilation[2], values + begin, indices + begin,
                 row * v.in[2] + place);
  scan(end, cols);
}

// I: int32 where it counts all elements of a volume.
template <class T, class I, class Rule>
void max_volumes(const Volumes& v, const Rule& rule, const T* data, T* values, int64_t* indices) {
  using C = compute_t<T>;
  const int64_t cols = v.out[2];
  const rb::Scratch<I> first(cols);
  for (int64_t c = 0; c < cols; ++c) first[c] = static_cast<I>(rule.span(v, 2, c).begin);
  for_volumes(v, 4 * (v.in_size() + v.out_size()), [&](int64_t volume) {
    const T* from = data + volume * v.in_size();
    int64_t out = volume * v.out_size();
    if constexpr (Rule::kRegular) {
      if (are_short(v, rule)) {
        for (int64_t z = 0; z < v.out[0]; ++z) {
          for (int64_t r = 0; r < v.out[1]; ++r, out += cols) {
            for_rows(v, rule, z, r, [&](int64_t row) {
              max_short(v, rule, row, from, values + out, indices + out);
            });
          }
        }
        return;
      }
    }
    const int64_t places = Rule::kRegular ? cols : v.in[2];
    const rb::Scratch<C> best(places);
    const rb::Scratch<I> at(places);
    for (int64_t z = 0; z < v.out[0]; ++z) {
      for (int64_t r = 0; r < v.out[1]; ++r, out += cols) {
        if constexpr (!Rule::kRegular) {
          max_adapted<T, C, I>(v, rule, z, r, from, best.data(), at.data(), values + out,
                               indices + out);
        } else {
          bool begun = false;
          for_rows(v, rule, z, r, [&](int64_t row) {
            const T* line = from + row * v.in[2];
            for (int64_t c = 0; !begun && c < cols; ++c) {
              best[c] = worst<C>(true);
              at[c] = static_cast<I>(row * v.in[2] + first[c]);
            }
            begun = true;
            for_columns(v, rule, [&](int64_t place, int64_t begin, int64_t n, int64_t step) {
              take_max<T, C, I>(line + place, n, step, best.data() + begin, at.data() + begin,
                                static_cast<I>(row * v.in[2] + place));
            });
          });
          for (int64_t c = 0; c < cols; ++c) {
            values[out + c] = T(best[c]);
            indices[out + c] = at[c];
          }
        }
      }
    }
  });
}

// That each window sees something.
template <class Rule>
void check_windows(const rb::Args& a, const Volumes& v, const Rule& rule) {
  for (int d = 0; d < 3; ++d) {
    for (int64_t i = 0; i < v.out[d]; ++i) {
      if (rule.span(v, d, i).count == 0)
        rb::fail(RB_E_ARG, "%s: a window lies in the padding altogether", a.op_name());
    }
  }
}

// The channels of a place side by side: T is float or double.
template <class T, class Rule>
void max_last(const Volumes& v, const Rule& rule, int64_t channels, const T* data, T* values,
              int64_t* indices) {
  const int64_t lines = v.count / channels * v.out[0] * v.out[1], cols = v.out[2],
                work = 4 * v.in_size() * channels / std::max<int64_t>(1, v.out[0] * v.out[1]);
  rb::parallel_for(
      lines, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, work)),
      [&](int64_t begin, int64_t end) {
        const rb::Scratch<int32_t> at(channels);
        for (int64_t line = begin; line < end; ++line) {
          const Span height = rule.span(v, 1, line % v.out[1]),
                     depth = rule.span(v, 0, line / v.out[1] % v.out[0]);
          const T* image = data + line / v.out[1] / v.out[0] * v.in_size() * channels;
          for (int64_t c = 0; c < cols; ++c) {
            const Span width = rule.span(v, 2, c);
            T* best = values + (line * cols + c) * channels;
            std::fill_n(best, channels, -std::numeric_limits<T>::infinity());
            const int64_t first = (depth.begin * v.in[1] + height.begin) * v.in[2] + width.begin;
            std::fill_n(at.data(), channels, static_cast<int32_t>(first));
            for (int64_t k = 0; k < depth.count; ++k) {
              for (int64_t i = 0; i < height.count; ++i) {
                for (int64_t j = 0; j < width.count; ++j) {
                  const int64_t place = first +
                                        (k * depth.step * v.in[1] + i * height.step) * v.in[2] +
                                        j * width.step;
                  pool_table(T()).max_channels(image + place * channels, channels, best, at.data(),
                                               static_cast<int32_t>(place));
                }
              }
            }
            std::copy_n(at.data(), channels, indices + (line * cols + c) * channels);
          }
        }
      });
}

bool is_wide(int dtype) { return dtype == RB_F32 || dtype == RB_F64; }
// Whether all are stored channel by channel of each place, and not as rows as well.
bool are_last(std::initializer_list<const RbTensor*> tensors, int rank) {
  return std::all_of(tensors.begin(), tensors.end(), [&](const RbTensor* t) {
    return t->ndim == rank + 2 && is_channels_last(*t) && !is_dense(view_of(*t));
  });
}

template <class Rule>
void max_pool(const rb::Args& a, const Volumes& v, int rank, const Rule& rule) {
  if (a.ret(0).numel == 0) return;
  check_windows(a, v, rule);
  const RbTensor& given = a.tensor(0);
  if (is_wide(given.dtype_id) && v.in_size() <= INT32_MAX &&
      are_last({&given, &a.ret(0), &a.ret(1)}, rank)) {
    return dispatch_dtype < kMaskFloat & ~kMaskHalf > (a.op_name(), given.dtype_id, [&](auto tag) {
             using T = typename decltype(tag)::type;
             max_last(v, rule, given.shape[1], static_cast<const T*>(given.data),
                      static_cast<T*>(a.ret(0).data), static_cast<int64_t*>(a.ret(1).data));
           });
  }
  const DenseView rows(view_of(given));
  const View& x = rows.view;
  const Dense<int64_t> indices(a.ret(1));
  dispatch_dtype<kMaskInt | kMaskFloat>(a.op_name(), x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Dense<T> values(a.ret(0));
    const T* data = reinterpret_cast<const T*>(x.data);
    if (v.in_size() <= INT32_MAX) {
      max_volumes<T, int32_t>(v, rule, data, values.data, indices.data);
    } else {
      max_volumes<T, int64_t>(v, rule, data, values.data, indices.data);
    }
    values.finish();
  });
  indices.finish();
}

void max_pool_kernel(const rb::Args& a) {
  const int rank = static_cast<int>(a.ints(1).len);
  const Volumes v = volumes(a, a.tensor(0), a.ret(0), rank);
  max_pool(a, v, rank, Window(a, v, 1, rank, true));
}
void adaptive_max_kernel(const rb::Args& a) {
  const int rank = static_cast<int>(a.ints(1).len);
  max_pool(a, volumes(a, a.tensor(0), a.ret(0), rank), rank, Adapted());
}

void check_places(const rb::Args& a, const Volumes& v, const int64_t* at, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    if (at[i] < 0 || at[i] >= v.in_size())
      rb::fail(RB_E_ARG, "%s: index %lld is out of range for %lld elements", a.op_name(),
               static_cast<long long>(at[i]), static_cast<long long>(v.in_size()));
  }
}

// Gradients to the places that were largest, where channels lie side by side.
template <class T>
void spread_last(const Volumes& v, int64_t channels, const T* g, const int64_t* at, T* dx) {
  const int64_t in = v.in_size() * channels, out = v.out_size() * channels;
  rb::parallel_for(v.count / channels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t image = begin; image < end; ++image) {
      T* to = dx + image * in;
      std::fill_n(to, in, T(0));
      for (int64_t i = image * out; i < (image + 1) * out; i += channels) {
        for (int64_t c = 0; c < channels; ++c) to[at[i + c] * channels + c] += g[i + c];
      }
    }
  });
}

void max_pool_dx_kernel(const rb::Args& a) {
  const RbTensor &g = a.tensor(0), &index = a.tensor(1);
  const int rank = static_cast<int>(a.integer(3));
  const Volumes v = volumes(a, a.ret(), g, rank);
  bool same = index.ndim == g.ndim && index.dtype_id == RB_I64;
  for (int d = 0; same && d < g.ndim; ++d) same = index.shape[d] == g.shape[d];
  if (!same) rb::fail(RB_E_ARG, "%s: `indices` must be int64 of the shape of `g`", a.op_name());
  if (g.numel && is_wide(g.dtype_id) && are_last({&g, &index, &a.ret()}, rank)) {
    const int64_t* at = static_cast<const int64_t*>(index.data);
    check_places(a, v, at, index.numel);
    return dispatch_dtype < kMaskFloat & ~kMaskHalf > (a.op_name(), g.dtype_id, [&](auto tag) {
             using T = typename decltype(tag)::type;
             spread_last(v, g.shape[1], static_cast<const T*>(g.data), at,
                         static_cast<T*>(a.ret().data));
           });
  }
  const DenseView places(view_of(index)), rows(view_of(g));
  const int64_t* at = reinterpret_cast<const int64_t*>(places.view.data);
  check_places(a, v, at, index.numel);
  dispatch_dtype<kMaskFloat>(a.op_name(), g.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    const Dense<T> out(a.ret());
    const T* data = reinterpret_cast<const T*>(rows.view.data);
    for_volumes(v, v.in_size() + 4 * v.out_size(), [&](int64_t volume) {
      const T* from = data + volume * v.out_size();
      const int64_t* place = at + volume * v.out_size();
      T* to = out.data + volume * v.in_size();
      if constexpr (std::is_same_v<T, C>) {
        std::fill_n(to, v.in_size(), T(0));
        for (int64_t i = 0; i < v.out_size(); ++i) to[place[i]] += from[i];
      } else {
        const Workspace<C> sum(v.in_size());
        std::fill_n(sum.data(), v.in_size(), C(0));
        for (int64_t i = 0; i < v.out_size(); ++i) sum[place[i]] += C(from[i]);
        for (int64_t i = 0; i < v.in_size(); ++i) to[i] = T(sum[i]);
      }
    });
    out.finish();
  });
}

// What a sum over a window is divided by.
struct Divisor {
  bool count_pad = true;
  int64_t given = 0;  // 0: none

  Divisor() = default;
  Divisor(const rb::Args& a, int first) {
    count_pad = !a.has(first) || a.boolean(first);
    given = a.has(first + 1) ? a.integer(first + 1) : 0;
    if (a.has(first + 1) && given == 0)
      rb::fail(RB_E_ARG, "%s: `divisor_override` must not be 0", a.op_name());
  }
  // As a double: the size of a window with its padding may be no int64.
  double of(const Span& z, const Span& r, const Span& c) const {
    if (given) return static_cast<double>(given);
    return count_pad ? static_cast<double>(z.full) * static_cast<double>(r.full) *
                           static_cast<double>(c.full)
                     : static_cast<double>(z.count * r.count * c.count);
  }
};

template <class Rule>
void average(const rb::Args& a, const Volumes& v, const Rule& rule, const Divisor& divisor) {
  const RbTensor& x = a.tensor(0);
  if (a.ret().numel == 0) return;
  dispatch_dtype<kMaskFloat>(a.op_name(), x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    const Dense<T> out(a.ret());
    const T* data = static_cast<const T*>(x.data);
    const int64_t cols = v.out[2];
    for_volumes(v, 2 * (v.in_size() + v.out_size()), [&](int64_t volume) {
      const T* from = data + volume * v.in_size();
      T* to = out.data + volume * v.out_size();
      if (!Rule::kRegular && v.out_size() == 1) {
        *to = T(run_sum(from, v.in_size()) / C(v.in_size()));
        return;
      }
      const int64_t places = Rule::kRegular ? cols : v.in[2];
      const rb::Scratch<C> sum(places);
      for (int64_t z = 0; z < v.out[0]; ++z) {
        for (int64_t r = 0; r < v.out[1]; ++r, to += cols) {
          std::fill_n(sum.data(), places, C(0));
          for_rows(v, rule, z, r, [&](int64_t row) {
            const T* line = from + row * v.in[2];
            if constexpr (!Rule::kRegular) {  // sum all columns; each window adds up its own below
              take_sum<T, C>(line, places, 1, sum.data());
            } else {
              for_columns(v, rule, [&](int64_t place, int64_t begin, int64_t n, int64_t step) {
                take_sum<T, C>(line + place, n, step, sum.data() + begin);
              });
            }
          });
          const Span depth = rule.span(v, 0, z), height = rule.span(v, 1, r);
          for (int64_t c = 0; c < cols; ++c) {
            const Span width = rule.span(v, 2, c);
            const C total =
                Rule::kRegular ? sum[c] : sum_of<C>(sum.data() + width.begin, width.count);
            to[c] = T(total / C(divisor.of(depth, height, width)));
          }
        }
      }
    });
    out.finish();
  });
}

// The transpose: each gradient is spread over its window.
template <class Rule>
void spread(const rb::Args& a, const Volumes& v, const Rule& rule, const Divisor& divisor) {
  const RbTensor& g = a.tensor(0);
  dispatch_dtype<kMaskFloat>(a.op_name(), g.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    const Dense<T> out(a.ret());
    const T* data = static_cast<const T*>(g.data);
    const int64_t cols = v.out[2];
    for_volumes(v, 2 * (v.in_size() + v.out_size()), [&](int64_t volume) {
      const T* from = data + volume * v.out_size();
      T* to = out.data + volume * v.in_size();
      constexpr bool kSame = std::is_same_v<T, C>;
      const Workspace<C> wide(kSame ? 0 : v.in_size());
      C* sum;
      if constexpr (kSame) {
        sum = to;
      } else {
        sum = wide.data();
      }
      if (!Rule::kRegular && v.out_size() == 1) {
        std::fill_n(to, v.in_size(), T(C(from[0]) / C(v.in_size())));
        return;
      }
      std::fill_n(sum, v.in_size(), C(0));
      const int64_t places = Rule::kRegular ? cols : v.in[2];
      const rb::Scratch<C> share(places);
      for (int64_t z = 0; z < v.out[0]; ++z) {
        for (int64_t r = 0; r < v.out[1]; ++r, from += cols) {
          const Span depth = rule.span(v, 0, z), height = rule.span(v, 1, r);
          if constexpr (!Rule::kRegular) std::fill_n(share.data(), places, C(0));
          for (int64_t c = 0; c < cols; ++c) {
            const Span width = rule.span(v, 2, c);
            const C part = C(from[c]) / C(divisor.of(depth, height, width));
            if constexpr (Rule::kRegular) {
              share[c] = part;
            } else {
              for (int64_t i = 0; i < width.count; ++i) share[width.begin + i] += part;
            }
          }
          for_rows(v, rule, z, r, [&](int64_t row) {
            C* line = sum + row * v.in[2];
            if constexpr (!Rule::kRegular) {
              give_share<C>(share.data(), places, 1, line);
            } else {
              for_columns(v, rule, [&](int64_t place, int64_t begin, int64_t n, int64_t step) {
                give_share<C>(share.data() + begin, n, step, line + place);
              });
            }
          });
        }
      }
      if constexpr (!kSame) {
        for (int64_t i = 0; i < v.in_size(); ++i) to[i] = T(sum[i]);
      }
    });
    out.finish();
  });
}

void avg_pool_kernel(const rb::Args& a) {
  const int rank = static_cast<int>(a.ints(1).len);
  const Volumes v = volumes(a, a.tensor(0), a.ret(), rank);
  average(a, v, Window(a, v, 1, rank, false), Divisor(a, 5));
}
void avg_pool_dx_kernel(const rb::Args& a) {
  const int rank = static_cast<int>(a.ints(2).len);
  const Volumes v = volumes(a, a.ret(), a.tensor(0), rank);
  spread(a, v, Window(a, v, 2, rank, false), Divisor(a, 6));
}
void adaptive_kernel(const rb::Args& a) {
  average(a, volumes(a, a.tensor(0), a.ret(), static_cast<int>(a.ints(1).len)), Adapted(),
          Divisor());
}
void adaptive_dx_kernel(const rb::Args& a) {
  spread(a, volumes(a, a.ret(), a.tensor(0), static_cast<int>(a.integer(2))), Adapted(), Divisor());
}

const rb::KernelSpec kKernels[] = {
    {"max_pool_with_indices", rb::wrap<max_pool_kernel>, 0, kMaskInt | kMaskFloat},
    {"max_pool_dx", rb::wrap<max_pool_dx_kernel>, 0, kMaskFloat},
    {"adaptive_max_pool_with_indices", rb::wrap<adaptive_max_kernel>, 0, kMaskFloat},
    {"avg_pool", rb::wrap<avg_pool_kernel>, RB_K_CONTIGUOUS, kMaskFloat},
    {"avg_pool_dx", rb::wrap<avg_pool_dx_kernel>, RB_K_CONTIGUOUS, kMaskFloat},
    {"adaptive_avg_pool", rb::wrap<adaptive_kernel>, RB_K_CONTIGUOUS, kMaskFloat},
    {"adaptive_avg_pool_dx", rb::wrap<adaptive_dx_kernel>, RB_K_CONTIGUOUS, kMaskFloat},
};

}  // namespace

int32_t add_pool(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu
