// softmax, log_softmax and their derivatives, logsumexp. Long contiguous lines run as rows; lines
// that lie side by side as columns; short or 16-bit ones are gathered into a tile of columns.
#include <cmath>

#include "common/kernels.h"
#include "common/level.h"
#include "reduce/columns.h"
#include "reduce/dense.h"
#include "reduce/rows.h"

namespace rbcpu {

const ColumnTable& column_table() {
  static const ColumnTable& table = RB_PICK_LEVEL(column_table);
  return table;
}

namespace {

// A dense tensor as outer x n x inner around a dimension.
struct Space {
  int64_t outer = 1, n = 1, inner = 1;
  Space(const RbTensor& t, int64_t dim) {
    for (int d = 0; d < t.ndim; ++d) (d < dim ? outer : d == dim ? n : inner) *= t.shape[d];
  }
};

constexpr int64_t kTile = 64;
constexpr int64_t kShortRow = 64;

// Rows longer than this are not streamed: softmax would need that much scratch.
constexpr int64_t kLongestStreamed = 65536;

// N inputs and a result; row(in, out, n, scratch if streamed), columns(in, stride, out, stride, n,
// cols).
template <class T, int N, class Row, class ColumnsFn>
void run_lines(const Space& s, const T* const (&in)[N], T* out, const Row& row,
               const ColumnsFn& columns) {
  using C = compute_t<T>;
  const int64_t positions = s.outer * s.inner, n = s.n;
  if (positions == 0 || n == 0) return;
  const int64_t lines_per_task = std::max<int64_t>(1, kGrain / 4 / n);
  if (s.inner == 1 && n >= kShortRow) {
    const bool stream = n <= kLongestStreamed && streams_rows(out, in[0], positions, n) &&
                        streams_rows(out, in[N - 1], positions, n);
    rb::parallel_for(positions, lines_per_task, [&](int64_t begin, int64_t end) {
      const RunIn<T> first(n), second(n);
      const RunOut<T> to(n);
      const rb::Scratch<C> scratch(stream ? n : 0);
      for (int64_t i = begin; i < end; ++i) {
        const C* from[2] = {first(in[0] + i * n, n),
                            N > 1 ? second(in[N - 1] + i * n, n) : nullptr};
        row(from, to.at(out + i * n), n, stream ? scratch.data() : nullptr);
        to.store(out + i * n, n);
      }
      if (stream) stream_fence();
    });
    return;
  }
  if constexpr (!is_half_v<T>) {
    if (s.inner >= 16) {
      const int64_t strips = (s.inner + kMostColumns - 1) / kMostColumns;
      rb::parallel_for(s.outer * strips, std::max<int64_t>(1, lines_per_task / kMostColumns),
                       [&](int64_t begin, int64_t end) {
                         for (int64_t k = begin; k < end; ++k) {
                           const int64_t j = k % strips * kMostColumns;
                           const int64_t at = k / strips * n * s.inner + j;
                           const T* from[2] = {in[0] + at, in[N - 1] + at};
                           columns(from, s.inner, out + at, s.inner, n,
                                   std::min(kMostColumns, s.inner - j));
                         }
                       });
      return;
    }
  }
  const int64_t tiles = (positions + kTile - 1) / kTile;
  rb::parallel_for(
      tiles, std::max<int64_t>(1, lines_per_task / kTile), [&](int64_t begin, int64_t end) {
        const rb::Scratch<C> buffer(N * n * kTile);
        for (int64_t tile = begin; tile < end; ++tile) {
          const int64_t first = tile * kTile, cols = std::min(kTile, positions - first);
          const C* from[2] = {buffer.data(), buffer.data() + (N - 1) * n * kTile};
          int64_t base[kTile];
          for (int64_t j = 0; j < cols; ++j) {
            const int64_t p = first + j;
            base[j] = p / s.inner * n * s.inner + p % s.inner;
          }
          for (int k = 0; k < N; ++k) {
            C* to = buffer.data() + k * n * kTile;
            for (int64_t j = 0; j < cols; ++j) {
              for (int64_t i = 0; i < n; ++i) to[i * kTile + j] = C(in[k][base[j] + i * s.inner]);
            }
          }
          columns(from, kTile, buffer.data(), kTile, n, cols);
          for (int64_t j = 0; j < cols; ++j) {
            for (int64_t i = 0; i < n; ++i) out[base[j] + i * s.inner] = T(buffer[i * kTile + j]);
          }
        }
      });
}

template <bool Log>
void softmax_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  const Space s(x, a.integer(1));
  dispatch_dtype<kMaskFloat>(a.op_name(), x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    const DenseInput<T> input(x);
    const DenseResult<T> result(a.ret());
    const T* const in[] = {input.data()};
    run_lines<T, 1>(
        s, in, result.data(),
        [](const C* const* from, C* to, int64_t n, C* scratch) {
          if constexpr (Log) {
            rows<C>().log_softmax(from[0], to, n, scratch != nullptr);
          } else {
            rows<C>().softmax(from[0], to, n, scratch);
          }
        },
        [](const C* const* from, int64_t fs, C* to, int64_t ts, int64_t n, int64_t cols) {
          (Log ? columns<C>().log_softmax : columns<C>().softmax)(from[0], fs, to, ts, n, cols);
        });
    result.finish();
  });
}

template <bool Log>
void softmax_vjp_kernel(const rb::Args& a) {
  const RbTensor &g = a.tensor(0), &y = a.tensor(1);
  bool same = g.ndim == y.ndim && g.dtype_id == y.dtype_id;
  for (int d = 0; same && d < g.ndim; ++d) same = g.shape[d] == y.shape[d];
  if (!same) rb::fail(RB_E_ARG, "%s: expected `g` and `out` of one shape and dtype", a.op_name());
  const Space s(g, a.integer(2));
  dispatch_dtype<kMaskFloat>(a.op_name(), g.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    const DenseInput<T> grad(g), value(y);
    const DenseResult<T> result(a.ret());
    const T* const in[] = {grad.data(), value.data()};
    run_lines<T, 2>(
        s, in, result.data(),
        [](const C* const* from, C* to, int64_t n, const C* scratch) {
          (Log ? rows<C>().log_softmax_vjp : rows<C>().softmax_vjp)(from[0], from[1], to, n,
                                                                    scratch != nullptr);
        },
        [](const C* const* from, int64_t fs, C* to, int64_t ts, int64_t n, int64_t cols) {
          (Log ? columns<C>().log_softmax_vjp : columns<C>().softmax_vjp)(from[0], fs, from[1], fs,
                                                                          to, ts, n, cols);
        });
    result.finish();
  });
}

// Parts are logarithms too.
template <class T>
struct LogSumExp {
  using C = compute_t<T>;
  using Acc = double;
  static Acc identity() { return -HUGE_VAL; }
  static void step(Acc& acc, C x, int64_t) { merge(acc, static_cast<double>(x)); }
  static void merge(Acc& acc, const Acc& later) {
    const double top = acc > later || acc != acc ? acc : later;
    // An infinite extreme stands for itself, and so does NaN.
    acc = top - top != 0 ? top : top + std::log1p(std::exp(-std::abs(acc - later)));
  }
  static void block(Acc& acc, const C* x, int64_t n, int64_t) {
    if (n > 0) merge(acc, rows<C>().logsumexp(x, n));
  }
  static void columns(Acc* acc, const C* x, int64_t stride, int64_t n, int64_t cols, int64_t) {
    C part[kMostColumns];
    for (int64_t j = 0; j < cols; j += kMostColumns) {
      const int64_t m = std::min(kMostColumns, cols - j);
      rbcpu::columns<C>().logsumexp(x + j, stride, n, m, part);
      for (int64_t l = 0; l < m; ++l) merge(acc[j + l], static_cast<double>(part[l]));
    }
  }
  static T finish(const Acc& acc, int64_t) { return convert<T>(acc); }
};
void logsumexp_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  RbTensor& out = a.ret();
  bool reduced[kMaxDims];
  mark_dims(a, 1, x.ndim, reduced);
  const RbTensor* outs[] = {&out};
  const Reduction r(view_of(x), reduced, outs, 1);
  dispatch_dtype<kMaskFloat>("logsumexp", out.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    with_elements<T>(x, r.data, out.dtype_id,
                     [&](const auto& in) { reduce_to<LogSumExp<T>, T>(r, in, out); });
  });
}

const rb::KernelSpec kKernels[] = {
    {"logsumexp", rb::wrap<logsumexp_kernel>, RB_K_CONVERTS, kMaskFloat},
    {"softmax", rb::wrap<softmax_kernel<false>>, 0, kMaskFloat},
    {"log_softmax", rb::wrap<softmax_kernel<true>>, 0, kMaskFloat},
    {"softmax_vjp", rb::wrap<softmax_vjp_kernel<false>>, 0, kMaskFloat},
    {"log_softmax_vjp", rb::wrap<softmax_vjp_kernel<true>>, 0, kMaskFloat},
};

}  // namespace

int32_t add_softmax(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu
