// layer_norm, rms_norm, group_norm and their derivatives: one run is normalised by its own moments,
// which the derivative computes again instead of keeping them.
#include "norm/norm.h"

#include "common/kernels.h"
#include "common/level.h"
#include "common/stream.h"

namespace rbcpu {

const NormTable& norm_table() {
  static const NormTable& table = RB_PICK_LEVEL(norm_table);
  return table;
}

namespace {

struct RunStats {
  double mean, rstd;
};

template <class C>
double run_sum(const C* x, int64_t n) {
  double sum = 0;
  for (int64_t begin = 0; begin < n; begin += kRunPiece)
    sum += norm_rows<C>().sum(x + begin, std::min(kRunPiece, n - begin));
  return sum;
}

// Root mean square instead of moments where `Rms`.
template <bool Rms, class C>
RunStats run_stats(const C* x, int64_t n, double eps) {
  const double count = static_cast<double>(n);
  if constexpr (Rms) {
    return {0.0,
            1.0 / std::sqrt(run_gradient_sums<C>(x, nullptr, x, n, C(0)).squares / count + eps)};
  } else {
    const RunMoments m = run_moments(x, n);
    return {m.mean, 1.0 / std::sqrt(m.squares / count + eps)};
  }
}

// The same for a derivative, which needs sums of its own: one pass after that for the mean.
struct GradientStats {
  double mean, rstd;
  GradientSums sums;
};
template <bool Rms, class C>
GradientStats gradient_stats(const C* g, const C* w, const C* x, int64_t n, double eps) {
  const double count = static_cast<double>(n), mean = Rms ? 0.0 : run_sum(x, n) / count;
  const C near = static_cast<C>(mean);
  const double lost = mean - static_cast<double>(near);  // in rounding the mean to C
  GradientSums sums = run_gradient_sums(g, w, x, n, near);
  double var = sums.squares / count - lost * lost;
  if (var < 0) var = 0;  // by rounding; NaN stays
  sums.scaled -= lost * sums.plain;
  return {mean, 1.0 / std::sqrt(var + eps), sums};
}

int64_t rows_per_task(int64_t n) {
  return std::max<int64_t>(1, kGrain / 2 / std::max<int64_t>(n, 1));
}

// ---- the last dimensions, with a weight per element

template <bool Rms>
void last_dims_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  const RbTensor* weight = a.optional_tensor(2);
  const RbTensor* bias = Rms ? nullptr : a.optional_tensor(3);
  const double eps = a.real(Rms ? 3 : 4);
  int64_t n = 1;
  for (int64_t size : a.ints(1)) n *= size;
  const int64_t rows = n ? x.numel / n : 0;
  dispatch_dtype<kMaskFloat>(a.op_name(), x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    const Values<C> w(weight), b(bias);
    const DenseResult<T> y(a.ret());
    const DenseInput<T> input(x);
    const T* from = input.data();
    const bool stream = streams_rows(y.data(), from, rows, n);
    rb::parallel_for(rows, rows_per_task(n), [&](int64_t begin, int64_t end) {
      const RunIn<T> in(n);
      const RunOut<T> out(n);
      for (int64_t i = begin; i < end; ++i) {
        const C* row = in(from + i * n, n);
        const RunStats s = run_stats<Rms>(row, n, eps);
        T* to = y.data() + i * n;
        norm_rows<C>().affine(row, w.data(), b.data(), out.at(to), n, static_cast<C>(s.mean),
                              static_cast<C>(s.rstd), stream);
        out.store(to, n);
      }
      if (stream) stream_fence();
    });
    y.finish();
  });
}

// Rows are taken in chunks whose number follows from the sizes; each sums the gradients of weight
// and bias for itself, in C over kFlushRows rows and in double beyond.
constexpr int64_t kFlushRows = 64;

int64_t chunk_count(int64_t rows, int64_t n) {
  const int64_t most = n > 8192 ? 8 : 128;
  const int64_t least_rows = std::clamp<int64_t>(65536 / std::max<int64_t>(n, 1), 1, 256);
  return std::clamp<int64_t>((rows + least_rows - 1) / least_rows, 1, most);
}

template <bool Rms, class T>
void last_dims_gradient(const T* g, const T* x, const compute_t<T>* w, T* dx, double* dw,
                        double* db, int64_t rows, int64_t n, double eps) {
  using C = compute_t<T>;
  const int64_t chunks = chunk_count(rows, n);
  const bool stream = streams_rows(dx, x, rows, n) && streams_rows(dx, g, rows, n);
  rb::Scratch<double> partial(chunks > 1 ? 2 * n * chunks : 0);
  const double count = static_cast<double>(n);
  auto run_chunk = [&](int64_t chunk) {
    double* const sum_w = chunks > 1 ? partial.data() + 2 * n * chunk : dw;
    double* const sum_b = chunks > 1 ? sum_w + n : db;
    const RunIn<T> in_g(n), in_x(n);
    const RunOut<T> out(n);
    const rb::Scratch<C> local(2 * n);
    C *const part_w = local.data(), *const part_b = part_w + n;
    for (int64_t j = 0; j < n; ++j) sum_w[j] = sum_b[j] = 0;
    for (int64_t j = 0; j < 2 * n; ++j) part_w[j] = C(0);
    const int64_t begin = rows * chunk / chunks, end = rows * (chunk + 1) / chunks;
    for (int64_t i = begin; i < end; ++i) {
      const C *gi = in_g(g + i * n, n), *xi = in_x(x + i * n, n);
      const GradientStats s = gradient_stats<Rms>(gi, w, xi, n, eps);
      norm_rows<C>().gradient(gi, w, xi, out.at(dx + i * n), part_w, part_b, n,
                              static_cast<C>(s.mean), static_cast<C>(s.rstd),
                              Rms ? C(0) : static_cast<C>(s.sums.plain / count),
                              static_cast<C>(s.sums.scaled * s.rstd / count), stream);
      out.store(dx + i * n, n);
      if ((i - begin) % kFlushRows == kFlushRows - 1 || i == end - 1) {
        for (int64_t j = 0; j < n; ++j) {
          sum_w[j] += static_cast<double>(part_w[j]);
          sum_b[j] += static_cast<double>(part_b[j]);
          part_w[j] = part_b[j] = C(0);
        }
      }
    }
    if (stream) stream_fence();
  };
  rb::parallel_for(chunks,
                   std::max<int64_t>(1, kGrain / 4 * chunks / std::max<int64_t>(rows * n, 1)),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t c = begin; c < end; ++c) run_chunk(c);
                   });
  if (chunks == 1) return;
  rb::parallel_for(n, std::max<int64_t>(256, kGrain / 2 / chunks), [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j) dw[j] = db[j] = 0;
    for (int64_t c = 0; c < chunks; ++c) {
      const double *sum_w = partial.data() + 2 * n * c, *sum_b = sum_w + n;
      for (int64_t j = begin; j < end; ++j) {
        dw[j] += sum_w[j];
        db[j] += sum_b[j];
      }
    }
  });
}

template <bool Rms>
void last_dims_backward_kernel(const rb::Args& a) {
  const RbTensor &g = a.tensor(0), &x = a.tensor(1);
  const RbTensor* weight = a.optional_tensor(3);
  const double eps = a.real(4);
  int64_t n = 1;
  for (int64_t size : a.ints(2)) n *= size;
  const int64_t rows = n ? x.numel / n : 0;
  rb::Scratch<double> sums(2 * n);
  dispatch_dtype<kMaskFloat>(a.op_name(), x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Values<compute_t<T>> w(weight);
    const DenseResult<T> dx(a.ret(0));
    const DenseInput<T> grad(g), input(x);
    last_dims_gradient<Rms, T>(grad.data(), input.data(), w.data(), dx.data(), sums.data(),
                               sums.data() + n, rows, n, eps);
    dx.finish();
  });
  store_doubles(a.ret(1), sums.data());
  if constexpr (!Rms) store_doubles(a.ret(2), sums.data() + n);
}

// ---- groups of channels, with a weight per channel

struct Groups {
  int64_t batch, channels, groups, inner;  // `inner` positions per channel
  int64_t per_group() const { return channels / groups; }
  int64_t size() const { return per_group() * inner; }
  Groups(const RbTensor& x, int64_t num_groups)
      : batch(x.shape[0]), channels(x.shape[1]), groups(num_groups), inner(1) {
    for (int d = 2; d < x.ndim; ++d) inner *= x.shape[d];
  }
};

// Positions whose channels lie side by side: an item is `inner` rows of all its channels.
template <class C>
class ChannelRows {
 public:
  explicit ChannelRows(const Groups& s)
      : s_(s),
        repeats_(std::clamp<int64_t>(kWideRow / std::max<int64_t>(s.channels, 1), 1, s.inner)),
        numbers_(4 * repeats_ * s.channels) {}

  /// Mean and 1 / deviation of each group of an item.
  void moments(const C* x, double eps, RunStats* stats) const {
    const int64_t n = s_.channels, per = s_.per_group();
    const rb::Scratch<C> near(n);
    const rb::Scratch<double> sums(2 * n);
    double *sum = sums.data(), *squares = sum + n;
    column_moments(x, n, s_.inner, n, near.data(), sum, squares);
    const double inner = static_cast<double>(s_.inner);
    for (int64_t g = 0; g < s_.groups; ++g) {
      RunMoments all;
      for (int64_t c = g * per; c < (g + 1) * per; ++c)
        all.merge(RunMoments{inner, sum[c] / inner, squares[c]});
      stats[g] = {all.mean, 1.0 / std::sqrt(all.squares / static_cast<double>(s_.size()) + eps)};
    }
  }
  /// Number k of a channel, for `each`.
  void set(int k, int64_t channel, C value) {
    for (int64_t r = 0; r < repeats_; ++r)
      numbers_[k * width() + r * s_.channels + channel] = value;
  }
  const C* operator[](int k) const { return numbers_.data() + k * width(); }
  /// f(first element, count) for all rows of an item, several of them at a time.
  template <class F>
  void each(const F& f) const {
    for (int64_t row = 0; row < s_.inner; row += repeats_)
      f(row * s_.channels, std::min(repeats_, s_.inner - row) * s_.channels);
  }

 private:
  static constexpr int64_t kWideRow = 512;
  const Groups& s_;
  const int64_t repeats_;
  rb::Scratch<C> numbers_;
  int64_t width() const { return repeats_ * s_.channels; }
};

// Items in turns: f(begin, end).
template <class F>
void for_items(const Groups& s, const F& f) {
  const int64_t size = s.channels * s.inner;
  rb::parallel_for(size ? s.batch : 0, rows_per_task(size), f);
}

template <class T>
void group_norm_rows(const Groups& s, const T* x, T* y, const Values<compute_t<T>>& w,
                     const Values<compute_t<T>>& b, double eps) {
  using C = compute_t<T>;
  const int64_t size = s.channels * s.inner;
  for_items(s, [&](int64_t begin, int64_t end) {
    const RunIn<T> in(size);
    const RunOut<T> out(size);
    ChannelRows<C> rows(s);
    const rb::Scratch<RunStats> stats(s.groups);
    for (int64_t item = begin; item < end; ++item) {
      const C* from = in(x + item * size, size);
      C* to = out.at(y + item * size);
      rows.moments(from, eps, stats.data());
      for (int64_t c = 0; c < s.channels; ++c) {
        const RunStats& group = stats.data()[c / s.per_group()];
        rows.set(0, c, static_cast<C>(group.mean));
        rows.set(1, c, static_cast<C>(group.rstd) * w.at(c, C(1)));
        rows.set(2, c, b.at(c, C(0)));
      }
      rows.each([&](int64_t at, int64_t n) {
        norm_rows<C>().scale_columns(from + at, to + at, n, rows[0], rows[1], rows[2]);
      });
      out.store(y + item * size, size);
    }
  });
}

// `plain` and `scaled`: per item and channel, see group_norm_backward_kernel.
template <class T>
void group_norm_rows_backward(const Groups& s, const T* g, const T* x, T* dx,
                              const Values<compute_t<T>>& w, double eps, double* plain,
                              double* scaled) {
  using C = compute_t<T>;
  const int64_t size = s.channels * s.inner, per = s.per_group();
  for_items(s, [&](int64_t begin, int64_t end) {
    const RunIn<T> in_g(size), in_x(size);
    const RunOut<T> out(size);
    ChannelRows<C> rows(s);
    const rb::Scratch<RunStats> stats(s.groups);
    for (int64_t item = begin; item < end; ++item) {
      const C *gi = in_g(g + item * size, size), *xi = in_x(x + item * size, size);
      C* to = out.at(dx + item * size);
      rows.moments(xi, eps, stats.data());
      for (int64_t c = 0; c < s.channels; ++c)
        rows.set(0, c, static_cast<C>(stats.data()[c / per].mean));
      double *sum = plain + item * s.channels, *sum_scaled = scaled + item * s.channels;
      std::fill_n(sum, s.channels, 0.0);
      std::fill_n(sum_scaled, s.channels, 0.0);
      norm_rows<C>().column_gradients(gi, xi, s.channels, s.inner, s.channels, rows[0], sum,
                                      sum_scaled);
      for (int64_t group = 0; group < s.groups; ++group) {
        const double r = stats.data()[group].rstd, count = static_cast<double>(s.size());
        double all = 0, all_scaled = 0;
        for (int64_t c = group * per; c < (group + 1) * per; ++c) {
          const double wc = static_cast<double>(w.at(c, C(1)));
          all += wc * sum[c];
          all_scaled += wc * sum_scaled[c];
          sum_scaled[c] *= r;
        }
        for (int64_t c = group * per; c < (group + 1) * per; ++c) {
          rows.set(1, c, static_cast<C>(r) * w.at(c, C(1)));
          rows.set(2, c, static_cast<C>(-r * r * r * all_scaled / count));
          rows.set(3, c, static_cast<C>(-r * all / count));
        }
      }
      rows.each([&](int64_t at, int64_t n) {
        norm_rows<C>().combine_columns(gi + at, xi + at, to + at, n, rows[0], rows[1], rows[2],
                                       rows[3]);
      });
      out.store(dx + item * size, size);
    }
  });
}

void group_norm_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  const Groups s(x, a.integer(1));
  const double eps = a.real(4);
  dispatch_dtype<kMaskFloat>("group_norm", x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    const Values<C> w(a.optional_tensor(2)), b(a.optional_tensor(3));
    if (are_channels_last({&x, &a.ret()})) {
      return group_norm_rows(s, static_cast<const T*>(x.data), static_cast<T*>(a.ret().data), w, b,
                             eps);
    }
    const DenseResult<T> y(a.ret());
    const DenseInput<T> input(x);
    const T* data = input.data();
    const int64_t n = s.size();
    rb::parallel_for(
        x.numel ? s.batch * s.groups : 0, rows_per_task(n), [&](int64_t begin, int64_t end) {
          const RunIn<T> in(n);
          const RunOut<T> out(n);
          for (int64_t i = begin; i < end; ++i) {
            const C* from = in(data + i * n, n);
            C* to = out.at(y.data() + i * n);
            const RunStats stats = run_stats<false>(from, n, eps);
            const int64_t first = i % s.groups * s.per_group();
            for (int64_t c = 0; c < s.per_group(); ++c) {
              norm_rows<C>().scale(
                  from + c * s.inner, to + c * s.inner, s.inner, static_cast<C>(stats.mean),
                  static_cast<C>(stats.rstd) * w.at(first + c, C(1)), b.at(first + c, C(0)));
            }
            out.store(y.data() + i * n, n);
          }
        });
    y.finish();
  });
}

void group_norm_backward_kernel(const rb::Args& a) {
  const RbTensor &g = a.tensor(0), &x = a.tensor(1);
  const Groups s(x, a.integer(2));
  const double eps = a.real(4);
  // Per item and channel: sum(g xhat) and sum(g).
  rb::Scratch<double> scaled(s.batch * s.channels), plain(s.batch * s.channels);
  if (x.numel == 0) {
    for (int64_t i = 0; i < s.batch * s.channels; ++i) scaled[i] = plain[i] = 0;
  }
  dispatch_dtype<kMaskFloat>("group_norm_backward", x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    const Values<C> w(a.optional_tensor(3));
    if (are_channels_last({&g, &x, &a.ret(0)})) {
      return group_norm_rows_backward(s, static_cast<const T*>(g.data),
                                      static_cast<const T*>(x.data), static_cast<T*>(a.ret(0).data),
                                      w, eps, plain.data(), scaled.data());
    }
    const DenseInput<T> grad(g), input(x);
    const DenseResult<T> dx(a.ret(0));
    const int64_t n = s.size(), per = s.per_group();
    rb::parallel_for(
        x.numel ? s.batch * s.groups : 0, rows_per_task(n), [&](int64_t begin, int64_t end) {
          const RunIn<T> in_g(n), in_x(n);
          const RunOut<T> out(n);
          for (int64_t i = begin; i < end; ++i) {
            const C* gi = in_g(grad.data() + i * n, n);
            const C* xi = in_x(input.data() + i * n, n);
            C* to = out.at(dx.data() + i * n);
            const RunStats stats = run_stats<false>(xi, n, eps);
            const C mean = static_cast<C>(stats.mean);
            const int64_t first = i % s.groups * per, at = i * per;
            double sum = 0, sum_scaled = 0;
            for (int64_t c = 0; c < per; ++c) {
              const GradientSums part =
                  run_gradient_sums<C>(gi + c * s.inner, nullptr, xi + c * s.inner, s.inner, mean);
              const double wc = static_cast<double>(w.at(first + c, C(1)));
              sum += wc * part.plain;
              sum_scaled += wc * part.scaled;
              plain[at + c] = part.plain;
              scaled[at + c] = part.scaled * stats.rstd;
            }
            const double r = stats.rstd, count = static_cast<double>(n);
            const C slope = static_cast<C>(-r * r * r * sum_scaled / count);
            const C shift = static_cast<C>(-r * sum / count);
            for (int64_t c = 0; c < per; ++c) {
              norm_rows<C>().combine(gi + c * s.inner, xi + c * s.inner, to + c * s.inner, s.inner,
                                     mean, static_cast<C>(r) * w.at(first + c, C(1)), slope, shift);
            }
            out.store(dx.data() + i * n, n);
          }
        });
    dx.finish();
  });
  rb::Scratch<double> sums(2 * s.channels);
  double *dw = sums.data(), *db = dw + s.channels;
  for (int64_t c = 0; c < 2 * s.channels; ++c) dw[c] = 0;
  for (int64_t i = 0; i < s.batch; ++i) {
    for (int64_t c = 0; c < s.channels; ++c) {
      dw[c] += scaled[i * s.channels + c];
      db[c] += plain[i * s.channels + c];
    }
  }
  store_doubles(a.ret(1), dw);
  store_doubles(a.ret(2), db);
}

const rb::KernelSpec kKernels[] = {
    {"layer_norm", rb::wrap<last_dims_kernel<false>>, 0, kMaskFloat},
    {"layer_norm_backward", rb::wrap<last_dims_backward_kernel<false>>, 0, kMaskFloat},
    {"rms_norm", rb::wrap<last_dims_kernel<true>>, 0, kMaskFloat},
    {"rms_norm_backward", rb::wrap<last_dims_backward_kernel<true>>, 0, kMaskFloat},
    {"group_norm", rb::wrap<group_norm_kernel>, 0, kMaskFloat},
    {"group_norm_backward", rb::wrap<group_norm_backward_kernel>, 0, kMaskFloat},
};

}  // namespace

int32_t add_norm(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu
