// Lines of complex numbers, transformed in the lanes of vectors.
#include "common/level.h"
#include "fourier/butterflies.h"
#include "fourier/lines.h"

namespace {

using rbcpu::fourier::Leaf;
using rbcpu::fourier::Lines;
using rbcpu::fourier::LinesTable;
using rbcpu::fourier::Method;
using rbcpu::fourier::Pass;
using rbcpu::fourier::Plan;

template <class T>
RB_ALWAYS Number<T> turned(const Number<T>& x, bool backward) {
  return backward ? Number<T>{x.im, x.re} : x;
}

// ---- passes of Stockham's algorithm (as in Van Loan, Computational Frameworks for the FFT, 1992)

template <class T, int R>
RB_ALWAYS void store_butterfly(const Number<T>* a, int radix, const T* w, Number<T>* y, int64_t s) {
  y[0] = a[0];
  for (int k = 1; k < (R ? R : radix); ++k)
    y[s * k] = w ? times(a[k], w[2 * k - 2], w[2 * k - 1]) : a[k];
}
template <class T, int R>
void run_pass(const Pass<T>& pass, const Number<T>* x, Number<T>* y) {
  const int radix = R ? R : pass.radix;
  const int64_t s = pass.stride, apart = s * pass.rest;
  for (int64_t p = 0; p < pass.rest; ++p) {
    const T* const w = p ? pass.twiddles + 2 * (radix - 1) * p : nullptr;
    for (int64_t q = 0; q < s; ++q) {
      Number<T> a[R ? R : 31];
      const Number<T>* const from = x + q + s * p;
#pragma GCC unroll 16
      for (int r = 0; r < radix; ++r) a[r] = from[r * apart];
      if constexpr (R == 2 || R == 4 || R == 8)
        butterfly<R>(a);
      else
        odd_butterfly(a, radix, pass.roots);
      Number<T>* const to = y + q + s * radix * p;
      if (w)
        store_butterfly<T, R>(a, radix, w, to, s);
      else
        store_butterfly<T, R>(a, radix, nullptr, to, s);
    }
  }
}

/// Transforms x; the result is in x or y.
template <class T>
Number<T>* run_leaf(const Leaf<T>& leaf, Number<T>* x, Number<T>* y) {
  for (const Pass<T>& pass : leaf.passes) {
    switch (pass.radix) {
      case 2:
        run_pass<T, 2>(pass, x, y);
        break;
      case 3:
        run_pass<T, 3>(pass, x, y);
        break;
      case 4:
        run_pass<T, 4>(pass, x, y);
        break;
      case 5:
        run_pass<T, 5>(pass, x, y);
        break;
      case 7:
        run_pass<T, 7>(pass, x, y);
        break;
      case 8:
        run_pass<T, 8>(pass, x, y);
        break;
      default:
        run_pass<T, 0>(pass, x, y);
    }
    std::swap(x, y);
  }
  return x;
}

// ---- lines side by side

template <class T>
RB_ALWAYS Number<T> load_lanes(const T* from, int64_t lane, int count) {
  if (lane == 1) return count == kLanes<T> ? load_pairs(from) : load_some_pairs(from, count);
  alignas(64) T re[kLanes<T>] = {}, im[kLanes<T>] = {};
  for (int l = 0; l < count; ++l) {
    re[l] = from[2 * lane * l];
    im[l] = from[2 * lane * l + 1];
  }
  return {load_vector(re), load_vector(im)};
}
template <class T>
RB_ALWAYS void store_lanes(const Number<T>& x, T* to, int64_t lane, int count) {
  if (lane == 1) return count == kLanes<T> ? store_pairs(to, x) : store_some_pairs(to, x, count);
  alignas(64) T re[kLanes<T>], im[kLanes<T>];
  store_vector(re, x.re);
  store_vector(im, x.im);
  for (int l = 0; l < count; ++l) {
    to[2 * lane * l] = re[l];
    to[2 * lane * l + 1] = im[l];
  }
}
template <class T>
RB_ALWAYS Number<T> scaled(const Number<T>& x, T scale) {
  return {x.re * scale, x.im * scale};
}

/// Loads lines whose numbers are adjacent, in square blocks that are transposed.
template <class T>
void load_rows(const T* from, int64_t lane, int64_t n, Number<T>* to, bool backward) {
  int64_t i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>) {
    for (int l = 0; l < kLanes<T>; ++l)
      to[i + l] = turned(load_pairs(from + 2 * (lane * l + i)), backward);
    transpose(to + i);
  }
  for (; i < n; ++i) to[i] = turned(load_lanes(from + 2 * i, lane, kLanes<T>), backward);
}
template <class T>
void store_rows(Number<T>* from, T* to, int64_t lane, int64_t n, bool backward, T scale) {
  int64_t i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>) {
    transpose(from + i);
    for (int l = 0; l < kLanes<T>; ++l)
      store_pairs(to + 2 * (lane * l + i), turned(scaled(from[i + l], scale), backward));
  }
  for (; i < n; ++i)
    store_lanes(turned(scaled(from[i], scale), backward), to + 2 * i, lane, kLanes<T>);
}

template <class T>
void side_by_side(const Leaf<T>& leaf, const T* from, int64_t step, int64_t lane, T* to,
                  int64_t to_step, int64_t to_lane, int count, T* work, bool backward, T scale) {
  Number<T>* const x = reinterpret_cast<Number<T>*>(work);
  if (step == 1 && count == kLanes<T>) {
    load_rows(from, lane, leaf.n, x, backward);
  } else {
    for (int64_t i = 0; i < leaf.n; ++i)
      x[i] = turned(load_lanes(from + 2 * step * i, lane, count), backward);
  }
  Number<T>* const y = run_leaf(leaf, x, x + leaf.n);
  if (to_step == 1 && count == kLanes<T>)
    return store_rows(y, to, to_lane, leaf.n, backward, scale);
  for (int64_t i = 0; i < leaf.n; ++i)
    store_lanes(turned(scaled(y[i], scale), backward), to + 2 * to_step * i, to_lane, count);
}

// ---- a line whose lanes hold the residues modulo the number of lanes

template <class T>
RB_ALWAYS Number<T> lane_steps(const Plan<T>& plan, int64_t k) {
  constexpr int n = kLanes<T>;
  const T* const fine = plan.fine_steps.data() + 2 * n * (k % plan.fine);
  const Number<T> step = {load_vector(fine), load_vector(fine + n)};
  if (k < plan.fine) return step;
  const T* const coarse = plan.coarse_steps.data() + 2 * n * (k / plan.fine);
  return times(step, Number<T>{load_vector(coarse), load_vector(coarse + n)});
}

/// The transforms of `count` frequencies from `k` on, combined over the lanes: to[k + r * apart]
/// for all r.
template <class T>
void join_lanes(const Plan<T>& plan, const Number<T>* from, int64_t from_step, int64_t k, int count,
                T* to, int64_t apart, bool backward, T scale) {
  constexpr int n = kLanes<T>;
  Number<T> a[n];
  for (int j = 0; j < n; ++j)
    a[j] = j < count ? times(from[j * from_step], lane_steps(plan, k + j)) : Number<T>{};
  transpose(a);
  butterfly<n>(a);
  for (int r = 0; r < n; ++r)
    store_lanes(turned(scaled(a[r], scale), backward), to + 2 * (k + r * apart), 1, count);
}

template <class T>
void line_of_one_leaf(const Plan<T>& plan, const T* from, T* to, T* work, bool backward, T scale) {
  constexpr int n = kLanes<T>;
  const int64_t m = plan.rows;
  Number<T>* const x = reinterpret_cast<Number<T>*>(work);
  for (int64_t i = 0; i < m; ++i) x[i] = turned(load_pairs(from + 2 * n * i), backward);
  const Number<T>* const y = run_leaf(plan.column, x, x + m);
  for (int64_t k = 0; k < m; k += n)
    join_lanes(plan, y + k, 1, k, static_cast<int>(m - k < n ? m - k : n), to, m, backward, scale);
}

// ---- the columns of a line, then its rows

template <class T>
void columns(const Plan<T>& plan, const T* from, T* between, int64_t begin, int64_t end, T* work,
             bool backward) {
  constexpr int n = kLanes<T>;
  const int64_t rows = plan.rows, width = plan.columns;
  Number<T>* const x = reinterpret_cast<Number<T>*>(work);
  if (plan.method == Method::kLine) {
    Number<T>* const to = reinterpret_cast<Number<T>*>(between);
    for (int64_t j = begin; j < end; ++j) {
      for (int64_t i = 0; i < rows; ++i)
        x[i] = turned(load_pairs(from + 2 * n * (j + width * i)), backward);
      const Number<T>* const y = run_leaf(plan.column, x, x + rows);
      const T* const w = plan.steps.data() + 2 * rows * j;
      for (int64_t k = 0; k < rows; ++k) to[k * width + j] = times(y[k], w[2 * k], w[2 * k + 1]);
    }
    return;
  }
  for (int64_t j = begin; j < end; j += n) {
    const int count = static_cast<int>(end - j < n ? end - j : n);
    for (int64_t i = 0; i < rows; ++i)
      x[i] = turned(load_lanes(from + 2 * (j + width * i), 1, count), backward);
    const Number<T>* const y = run_leaf(plan.column, x, x + rows);
    for (int64_t k = 0; k < rows; ++k) {
      const int64_t at = 2 * (k * width + j);
      const Number<T> step = load_lanes(plan.steps.data() + at, 1, count);
      store_lanes(turned(times(y[k], step), backward), between + at, 1, count);
    }
  }
}

template <class T>
void rows(const Plan<T>& plan, const T* between, T* to, int64_t begin, int64_t end, T* work,
          bool backward, T scale) {
  constexpr int n = kLanes<T>;
  const int64_t rows = plan.rows, width = plan.columns;
  for (int64_t k = begin; k < end; k += n) {
    const int count = static_cast<int>(end - k < n ? end - k : n);
    if (plan.method == Method::kGrid) {
      side_by_side(plan.row, between + 2 * k * width, 1, width, to + 2 * k, rows, 1, count, work,
                   backward, scale);
      continue;
    }
    Number<T>* const block = reinterpret_cast<Number<T>*>(work);  // `lanes` rows, then a buffer
    Number<T>* const spare = block + n * width;
    for (int l = 0; l < count; ++l) {
      const Number<T>* const from = reinterpret_cast<const Number<T>*>(between) + (k + l) * width;
      Number<T>* const x = block + l * width;
      for (int64_t j = 0; j < width; ++j) x[j] = from[j];
      const Number<T>* const y = run_leaf(plan.row, x, spare);
      if (y != x)
        for (int64_t j = 0; j < width; ++j) x[j] = y[j];
    }
    for (int64_t r = 0; r < width; ++r)
      join_lanes(plan, block + r, width, k + rows * r, count, to, rows * width, backward, scale);
  }
}

// ---- whole lines

template <class T>
RB_ALWAYS void multiply(const T* a, const T* b, T* to, int64_t n, bool backward, T scale) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const T ar = a[2 * i] * scale, ai = a[2 * i + 1] * scale, br = b[2 * i], bi = b[2 * i + 1];
    const T re = ar * br - ai * bi, im = ar * bi + ai * br;
    to[2 * i] = backward ? im : re;
    to[2 * i + 1] = backward ? re : im;
  }
}

template <class T>
void line(const Plan<T>& plan, const T* from, T* to, T* work, bool backward, T scale) {
  switch (plan.method) {
    case Method::kLanes:
      return side_by_side(plan.column, from, 1, 0, to, 1, 0, 1, work, backward, scale);
    case Method::kLine:
      if (plan.columns == 1) return line_of_one_leaf(plan, from, to, work, backward, scale);
      [[fallthrough]];
    case Method::kGrid:
      columns(plan, from, work, 0, plan.columns, work + 2 * plan.n, backward);
      return rows(plan, static_cast<const T*>(work), to, 0, plan.rows, work + 2 * plan.n, backward,
                  scale);
    case Method::kChirp:
      break;
  }
  // Bluestein 1970: j k = (j^2 + k^2 - (k - j)^2) / 2 makes a convolution with a chirp of the
  // transform.
  const int64_t n = plan.n, m = plan.convolution->n;
  const T* const chirp = plan.chirp.data();
  T *const x = work, *const inner = work + 2 * m;
  for (int64_t i = 0; i < n; ++i) {
    const T re = from[2 * i + backward], im = from[2 * i + !backward];
    x[2 * i] = re * chirp[2 * i] - im * chirp[2 * i + 1];
    x[2 * i + 1] = re * chirp[2 * i + 1] + im * chirp[2 * i];
  }
  for (int64_t i = 2 * n; i < 2 * m; ++i) x[i] = 0;
  line(*plan.convolution, static_cast<const T*>(x), x, inner, false, T(1));
  multiply(static_cast<const T*>(x), plan.spectrum.data(), x, m, false, T(1));
  line(*plan.convolution, static_cast<const T*>(x), x, inner, true, T(1));
  multiply(static_cast<const T*>(x), chirp, to, n, backward, scale);
}

// ---- real numbers as pairs

/// Frequencies k of the transform of pairs, and h - k, to those of the transform of real numbers;
/// `w` is exp(-2 pi i k / n).
template <class N>
RB_ALWAYS void unpack(N& a, N& b, const N& w) {
  const N even = {(a.re + b.re) / 2, (a.im - b.im) / 2},
          odd = {(a.im + b.im) / 2, (b.re - a.re) / 2};
  const N turned = {odd.re * w.re - odd.im * w.im, odd.re * w.im + odd.im * w.re};
  a = {even.re + turned.re, even.im + turned.im};
  b = {even.re - turned.re, turned.im - even.im};
}
/// The inverse, times 2.
template <class N>
RB_ALWAYS void pack(N& a, N& b, const N& w) {
  const N even = {a.re + b.re, a.im - b.im}, odd = {a.re - b.re, a.im + b.im};
  const N turned = {odd.re * w.re + odd.im * w.im, odd.im * w.re - odd.re * w.im};
  a = {even.re - turned.im, even.im + turned.re};
  b = {even.re + turned.im, turned.re - even.im};
}

template <class T>
struct Scalar {
  T re, im;
};

/// `body(a, b, w)` for the numbers k and h - k of `from`, which go to the same places of `to`; k
/// from 1 to h / 2.
template <class T, class Body>
RB_ALWAYS void for_mirrored(int64_t h, const T* turn, const T* from, T* to, Body&& body) {
  constexpr int n = kLanes<T>;
  int64_t k = 1;
  for (; 2 * (k + n) <= h + 1; k += n) {
    const int64_t other = h - k - n + 1;
    Number<T> a = load_pairs(from + 2 * k), b = reversed(load_pairs(from + 2 * other));
    body(a, b, load_pairs(turn + 2 * k));
    store_pairs(to + 2 * k, a);
    store_pairs(to + 2 * other, reversed(b));
  }
  for (; k <= h / 2; ++k) {
    Scalar<T> a = {from[2 * k], from[2 * k + 1]}, b = {from[2 * (h - k)], from[2 * (h - k) + 1]};
    body(a, b, Scalar<T>{turn[2 * k], turn[2 * k + 1]});
    to[2 * k] = a.re;
    to[2 * k + 1] = a.im;
    to[2 * (h - k)] = b.re;
    to[2 * (h - k) + 1] = b.im;
  }
}

template <class T>
void unpack_real(int64_t n, const T* turn, T* x) {
  const int64_t h = n / 2;
  const T re = x[0], im = x[1];
  for_mirrored(h, turn, x, x, [](auto& a, auto& b, const auto& w) { unpack(a, b, w); });
  x[0] = re + im;
  x[1] = 0;
  x[2 * h] = re - im;
  x[2 * h + 1] = 0;
}

template <class T>
void pack_real(int64_t n, const T* turn, const T* from, T* to) {
  const int64_t h = n / 2;
  const T first = from[0], last = from[2 * h];
  for_mirrored(h, turn, from, to, [](auto& a, auto& b, const auto& w) { pack(a, b, w); });
  to[0] = first + last;
  to[1] = first - last;
}

template <class T>
constexpr Lines<T> make() {
  return {kLanes<T>, side_by_side<T>, line<T>, columns<T>, rows<T>, unpack_real<T>, pack_real<T>};
}

}  // namespace

namespace rbcpu::fourier {
extern const LinesTable RB_LEVEL_NAME(lines);
const LinesTable RB_LEVEL_NAME(lines) = {make<float>(), make<double>()};
}  // namespace rbcpu::fourier
