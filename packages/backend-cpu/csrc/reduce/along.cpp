// cumsum, cumprod, affine_scan, cummax, cummin.
#include "common/extremes.h"
#include "common/kernels.h"
#include "common/level.h"
#include "reduce/columns.h"
#include "reduce/dense.h"
#include "reduce/lines.h"
#include "reduce/scan.h"

namespace rbcpu {

const ScanTable& scan_table() {
  static const ScanTable& table = RB_PICK_LEVEL(scan_table);
  return table;
}

namespace {

template <class T>
using scan_t =
    std::conditional_t<is_float_v<T>, double, std::conditional_t<std::is_same_v<T, c64>, c128, T>>;

template <bool Product, class C>
auto scan_row() {
  if constexpr (std::is_same_v<C, double>)
    return Product ? scan_table().f64.cumprod : scan_table().f64.cumsum;
  else
    return Product ? scan_table().f32.cumprod : scan_table().f32.cumsum;
}

// Runs are scanned in pieces, each begun with the result of those before it: so a long run can be
// split over threads without changing the order of its arithmetic.
constexpr int64_t kScanPiece = 65536;

// `first`: the run's offset.
template <bool Product, class In, class T>
void scan_long_run(const In& in, int64_t first, T* to, int64_t n) {
  const auto scan = scan_row<Product, typename In::C>();
  const int64_t pieces = (n + kScanPiece - 1) / kScanPiece, longest = std::min(kScanPiece, n);
  const double neutral = Product ? 1.0 : 0.0;
  auto length = [&](int64_t p) { return std::min(kScanPiece, n - p * kScanPiece); };
  auto join = [](double a, double b) { return Product ? a * b : a + b; };
  // Scans piece p.
  const auto piece = [&](const Runs<In>& from, const RunOut<T>& mid, int64_t p, double carry) {
    T* row = to + p * kScanPiece;
    carry = scan(from(first + p * kScanPiece, length(p)), mid.at(row), length(p), carry);
    mid.store(row, length(p));
    return carry;
  };
  if (pieces < 8 || rb::host->num_threads() == 1) {
    const Runs<In> from(in, longest);
    const RunOut<T> mid(longest);
    double carry = neutral;
    for (int64_t p = 0; p < pieces; ++p) carry = piece(from, mid, p, carry);
    return;
  }
  rb::Scratch<double> carries(pieces);
  rb::parallel_for(pieces - 1, 1, [&](int64_t begin, int64_t end) {
    const Runs<In> from(in, longest);
    for (int64_t p = begin; p < end; ++p)
      carries[p + 1] = scan(from(first + p * kScanPiece, length(p)), nullptr, length(p), neutral);
  });
  carries[0] = neutral;
  for (int64_t p = 1; p < pieces; ++p) carries[p] = join(carries[p - 1], carries[p]);
  rb::parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
    const Runs<In> from(in, longest);
    const RunOut<T> mid(longest);
    for (int64_t p = begin; p < end; ++p) piece(from, mid, p, carries[p]);
  });
}

// `in`: the elements of x, row-major.
template <bool Product, class T, class In>
void scan_dense(const RbTensor& x, const In& in, T* to, int dim) {
  using C = compute_t<T>;
  int64_t outer = 1, n = 1, inner = 1;
  for (int d = 0; d < x.ndim; ++d) (d < dim ? outer : d == dim ? n : inner) *= x.shape[d];
  const int64_t grain = std::max<int64_t>(1, kGrain / 2 / std::max<int64_t>(n, 1));
  if (inner > 1) {
    const Columns<C>& f = columns<C>();
    const auto scan = Product ? f.cumprod : f.cumsum;
    const int64_t strips = (inner + kColumns - 1) / kColumns;
    rb::parallel_for(outer * strips, std::max<int64_t>(1, grain / std::min(inner, kColumns)),
                     [&](int64_t begin, int64_t end) {
                       const Runs<In> from(in, kColumns);
                       const RunOut<T> mid(kColumns);
                       double acc[kColumns];
                       for (int64_t k = begin; k < end; ++k) {
                         const int64_t first = k % strips * kColumns;
                         const int64_t cols = std::min(kColumns, inner - first);
                         const int64_t base = k / strips * n * inner + first;
                         for (int64_t j = 0; j < cols; ++j) acc[j] = Product ? 1.0 : 0.0;
                         if constexpr (In::kDirect) {
                           scan(in.at(base), inner, to + base, inner, n, cols, acc);
                         } else {
                           for (int64_t i = 0; i < n; ++i) {
                             T* row = to + base + i * inner;
                             scan(from(base + i * inner, cols), cols, mid.at(row), cols, 1, cols,
                                  acc);
                             mid.store(row, cols);
                           }
                         }
                       }
                     });
  } else if (outer < 8) {
    for (int64_t i = 0; i < outer; ++i) scan_long_run<Product>(in, i * n, to + i * n, n);
  } else {
    rb::parallel_for(outer, grain, [&](int64_t begin, int64_t end) {
      const Runs<In> from(in, std::min(kScanPiece, n));
      const RunOut<T> mid(std::min(kScanPiece, n));
      for (int64_t i = begin; i < end; ++i) {
        double carry = Product ? 1.0 : 0.0;
        for (int64_t at = 0; at < n; at += kScanPiece) {
          const int64_t m = std::min(kScanPiece, n - at);
          T* row = to + i * n + at;
          carry = scan_row<Product, C>()(from(i * n + at, m), mid.at(row), m, carry);
          mid.store(row, m);
        }
      }
    });
  }
}

template <bool Product, class T>
void scan_floats(const RbTensor& x, const RbTensor& out, int dim) {
  if (x.numel == 0) return;
  const DenseBytes input(x);
  const DenseResult<T> result(out);
  with_elements<T>(x, input.data(), out.dtype_id,
                   [&](const auto& in) { scan_dense<Product>(x, in, result.data(), dim); });
  result.finish();
}

constexpr uint64_t kMaskNumbers = kMaskInt | kMaskFloat | kMaskComplex;
constexpr uint64_t kMaskScan = kMaskNumbers | kMaskBool;

// The sum of bools is whether any is true, their product whether all are.
template <bool Product>
void scan_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  RbTensor& out = a.ret();
  const Lines<2> lines({view_of(x), view_of(out)}, static_cast<int>(a.integer(1)));
  dispatch_dtype<kMaskScan>(a.op_name(), out.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Acc = scan_t<T>;
    if constexpr (is_float_v<T>) {
      scan_floats<Product, T>(x, out, static_cast<int>(a.integer(1)));
    } else {
      with_elements<T>(x, x.data, out.dtype_id, [&](const auto& in) {
        for_lines(lines, 2, [&](int64_t begin, int64_t end) {
          T values[kReduceBlock];
          for (int64_t line = begin; line < end; ++line) {
            T* to = static_cast<T*>(out.data) + lines.offset(1, line);
            Acc acc = Product ? Acc(1) : Acc(0);
            for (int64_t done = 0; done < lines.n; done += kReduceBlock) {
              const int64_t m = std::min(kReduceBlock, lines.n - done);
              in.read(lines.offset(0, line) + done * lines.step[0], lines.step[0], m, values);
              for (int64_t i = 0; i < m; ++i, to += lines.step[1]) {
                const Acc value = convert<Acc>(values[i]);
                acc = Product ? Acc(acc * value) : Acc(acc + value);
                *to = convert<T>(acc);
              }
            }
          }
        });
      });
    }
  });
}

void affine_scan_kernel(const rb::Args& a) {
  const RbTensor &x = a.tensor(0), &y = a.tensor(1);
  RbTensor& out = a.ret();
  bool same = x.ndim == y.ndim && x.dtype_id == y.dtype_id;
  for (int d = 0; same && d < x.ndim; ++d) same = x.shape[d] == y.shape[d];
  if (!same) rb::fail(RB_E_ARG, "affine_scan: expected `a` and `b` of one shape and dtype");
  const Lines<3> lines({view_of(x), view_of(y), view_of(out)}, static_cast<int>(a.integer(2)));
  dispatch_dtype<kMaskInt | kMaskFloat | kMaskComplex>("affine_scan", x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Acc = scan_t<T>;
    for_lines(lines, 2, [&](int64_t begin, int64_t end) {
      for (int64_t line = begin; line < end; ++line) {
        const T* f = static_cast<const T*>(x.data) + lines.offset(0, line);
        const T* s = static_cast<const T*>(y.data) + lines.offset(1, line);
        T* to = static_cast<T*>(out.data) + lines.offset(2, line);
        Acc acc = Acc(0);
        for (int64_t i = 0; i < lines.n; ++i) {
          acc = Acc(Acc(convert<Acc>(f[i * lines.step[0]]) * acc) +
                    convert<Acc>(s[i * lines.step[1]]));
          to[i * lines.step[2]] = convert<T>(acc);
        }
      }
    });
  });
}

// ---- cummax, cummin: running extremes and their last positions; NaN counts as the extreme

// Scan `Width` lines: element i of the results is the largest (smallest) of elements [0, i] and its
// position. Line l begins at from[l], values[l] and places[l], and its elements lie `step`,
// `value_step` and `place_step` apart.
template <bool Max, int Width, class T>
void scan_lines(const T* const* from, int64_t step, T* const* values, int64_t value_step,
                int64_t* const* places, int64_t place_step, int64_t n) {
  using C = compute_t<T>;
  C best[Width];
  T kept[Width];
  int64_t at[Width];
  for (int l = 0; l < Width; ++l) {
    kept[l] = from[l][0];
    best[l] = C(kept[l]);
    at[l] = 0;
  }
  for (int64_t i = 0; i < n; ++i) {
    for (int l = 0; l < Width; ++l) {
      const T x = from[l][i * step];
      const C value = C(x);
      const bool better = (Max ? value >= best[l] : value <= best[l]) | is_nan(value);
      best[l] = better ? value : best[l];
      kept[l] = better ? x : kept[l];
      at[l] = better ? i : at[l];
      values[l][i * value_step] = kept[l];
      places[l][i * place_step] = at[l];
    }
  }
}

// The same for `cols` lines that lie side by side in the input and in both results.
constexpr int64_t kStrip = 128;
template <bool Max, class T>
void scan_columns(const T* from, int64_t step, T* values, int64_t value_step, int64_t* places,
                  int64_t place_step, int64_t n, int64_t cols) {
  using C = compute_t<T>;
  C best[kStrip];
  T kept[kStrip];
  int64_t at[kStrip];
  for (int64_t j = 0; j < cols; ++j) {
    kept[j] = from[j];
    best[j] = C(kept[j]);
    at[j] = 0;
  }
  for (int64_t i = 0; i < n; ++i, from += step, values += value_step, places += place_step) {
#pragma GCC ivdep
    for (int64_t j = 0; j < cols; ++j) {
      const T x = from[j];
      const C value = C(x);
      const bool better = (Max ? value >= best[j] : value <= best[j]) | is_nan(value);
      best[j] = better ? value : best[j];
      kept[j] = better ? x : kept[j];
      at[j] = better ? i : at[j];
      values[j] = kept[j];
      places[j] = at[j];
    }
  }
}

template <bool Max>
void running_kernel(const rb::Args& a) {
  constexpr int64_t kTogether = 4;  // lines whose chains of comparisons overlap
  const RbTensor& x = a.tensor(0);
  RbTensor &values = a.ret(0), &indices = a.ret(1);
  const Lines<3> lines({view_of(x), view_of(values), view_of(indices)},
                       static_cast<int>(a.integer(1)));
  if (lines.n == 0 || lines.count == 0) return;
  const int last = lines.nd - 1;
  bool columns = last >= 0 && lines.shape[last] >= 2 * kTogether;
  for (int k = 0; k < 3; ++k) columns = columns && lines.strides[k][last] == 1;
  dispatch_dtype<kMaskReal>(a.op_name(), x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto source = [&](int64_t l) {
      return static_cast<const T*>(x.data) + lines.offset(0, l);
    };
    const auto value = [&](int64_t l) { return static_cast<T*>(values.data) + lines.offset(1, l); };
    const auto place = [&](int64_t l) {
      return static_cast<int64_t*>(indices.data) + lines.offset(2, l);
    };
    if (columns) {
      const int64_t width = lines.shape[last], strips = (width + kStrip - 1) / kStrip;
      const int64_t grain = std::max<int64_t>(1, kGrain / 2 / (lines.n * std::min(width, kStrip)));
      rb::parallel_for(lines.count / width * strips, grain, [&](int64_t begin, int64_t end) {
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t first = unit % strips * kStrip, line = unit / strips * width + first;
          scan_columns<Max>(source(line), lines.step[0], value(line), lines.step[1], place(line),
                            lines.step[2], lines.n, std::min(kStrip, width - first));
        }
      });
      return;
    }
    for_lines(lines, 2, [&](int64_t begin, int64_t end) {
      const T* from[kTogether];
      T* to[kTogether];
      int64_t* at[kTogether];
      for (int64_t line = begin; line < end;) {
        const int64_t some = end - line >= kTogether ? kTogether : 1;
        for (int64_t l = 0; l < some; ++l) {
          from[l] = source(line + l);
          to[l] = value(line + l);
          at[l] = place(line + l);
        }
        const auto scan = some == 1 ? scan_lines<Max, 1, T> : scan_lines<Max, kTogether, T>;
        scan(from, lines.step[0], to, lines.step[1], at, lines.step[2], lines.n);
        line += some;
      }
    });
  });
}

const rb::KernelSpec kKernels[] = {
    {"cumsum", rb::wrap<scan_kernel<false>>, RB_K_CONVERTS, kMaskScan},
    {"cumprod", rb::wrap<scan_kernel<true>>, RB_K_CONVERTS, kMaskScan},
    {"affine_scan", rb::wrap<affine_scan_kernel>, 0, kMaskNumbers},
    {"cummax", rb::wrap<running_kernel<true>>, 0, kMaskReal},
    {"cummin", rb::wrap<running_kernel<false>>, 0, kMaskReal},
};

}  // namespace

int32_t add_along(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu
