// batch_norm_train, batch_norm_eval and their derivative. A channel's statistics and results are
// computed while it is in the cache.
#include "common/kernels.h"
#include "norm/norm.h"

namespace rbcpu {
namespace {

// (N, C, *) as batch x channels x inner. Where `inner` is small, the channels * inner positions of
// an item are columns; else each channel of an item is a run.
struct Layout {
  int64_t batch, channels, inner = 1;
  /// `last`: the channels of a position lie side by side, so that every position is an item.
  Layout(const RbTensor& x, bool last) : batch(x.shape[0]), channels(x.shape[1]) {
    int64_t& positions = last ? batch : inner;
    for (int d = 2; d < x.ndim; ++d) positions *= x.shape[d];
  }
  bool by_column() const { return inner < 32; }
  int64_t columns() const { return channels * inner; }
  int64_t count() const { return batch * inner; }
  int64_t run(int64_t item, int64_t channel) const { return (item * channels + channel) * inner; }
};

// What a kernel does with a channel: y = (x - mean) * scale + shift, or dx = g a + (x - mean) b +
// c.
template <class C>
struct ChannelPlan {
  C mean, a, b, c;
};

template <class F>
void for_channels(const Layout& s, const F& f) {
  const int64_t grain = std::max<int64_t>(1, kGrain / 2 / std::max<int64_t>(s.count(), 1));
  rb::parallel_for(s.channels, grain, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) f(c);
  });
}

// ---- runs of one channel: f(g or null, x, offset, length) for each item, in pieces

template <class T>
class ChannelRuns {
 public:
  using C = compute_t<T>;
  ChannelRuns(const Layout& s, const T* g, const T* x)
      : s_(s), g_(g), x_(x), piece_(std::min(s.inner, kRunPiece)), in_g_(piece_), in_x_(piece_) {}
  int64_t piece() const { return piece_; }
  template <class F>
  void each(int64_t channel, const F& f) const {
    for (int64_t item = 0; item < s_.batch; ++item) {
      const int64_t start = s_.run(item, channel);
      for (int64_t at = 0; at < s_.inner; at += kRunPiece) {
        const int64_t n = std::min(kRunPiece, s_.inner - at), offset = start + at;
        f(g_ ? in_g_(g_ + offset, n) : nullptr, in_x_(x_ + offset, n), offset, n);
      }
    }
  }

 private:
  const Layout& s_;
  const T *g_, *x_;
  int64_t piece_;
  RunIn<T> in_g_, in_x_;
};

// ---- columns: rows are taken in chunks whose number follows from the sizes

struct Chunks {
  int64_t rows, count;
  explicit Chunks(const Layout& s) {
    rows = std::max<int64_t>(8, kGrain / std::max<int64_t>(s.columns(), 1));
    count = (s.batch + rows - 1) / rows;
  }
  template <class F>
  void each(const Layout& s, const F& f) const {  // f(chunk, first row, rows)
    const int64_t grain =
        std::max<int64_t>(1, kGrain / 2 / std::max<int64_t>(rows * s.columns(), 1));
    rb::parallel_for(count, grain, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) f(k, k * rows, std::min(rows, s.batch - k * rows));
    });
  }
};
// sums[j] over the columns of a channel to its first place.
inline void gather_inner(double* sums, const Layout& s) {
  for (int64_t c = 0; c < s.channels; ++c) {
    double total = 0;
    for (int64_t k = 0; k < s.inner; ++k) total += sums[c * s.inner + k];
    sums[c] = total;
  }
}

// Mean and variance of each channel.
template <class T>
void channel_moments(const Layout& s, const T* x, double* means, double* vars) {
  using C = compute_t<T>;
  const Chunks chunks(s);
  const int64_t n = s.columns();
  rb::Scratch<double> partial(2 * n * chunks.count + 2 * n);
  chunks.each(s, [&](int64_t k, int64_t first, int64_t count) {
    const RunIn<T> in(count * n);
    const C* from = in(x + first * n, count * n);
    double *sum = partial.data() + 2 * n * k, *squares = sum + n;
    rb::Scratch<C> near(n);
    column_moments(from, n, count, n, near.data(), sum, squares);
  });
  double *total = partial.data() + 2 * n * chunks.count, *spread = total + n;
  for (int64_t j = 0; j < 2 * n; ++j) total[j] = 0;
  for (int64_t k = 0; k < chunks.count; ++k) {
    for (int64_t j = 0; j < n; ++j) total[j] += partial[2 * n * k + j];
  }
  gather_inner(total, s);
  for (int64_t c = 0; c < s.channels; ++c) means[c] = total[c] / static_cast<double>(s.count());
  for (int64_t k = 0; k < chunks.count; ++k) {
    const double count = static_cast<double>(std::min(chunks.rows, s.batch - k * chunks.rows));
    const double *sum = partial.data() + 2 * n * k, *squares = sum + n;
    for (int64_t c = 0, j = 0; c < s.channels; ++c) {
      for (int64_t i = 0; i < s.inner; ++i, ++j) {
        const double apart = sum[j] / count - means[c];
        spread[j] += squares[j] + count * apart * apart;
      }
    }
  }
  gather_inner(spread, s);
  for (int64_t c = 0; c < s.channels; ++c) vars[c] = spread[c] / static_cast<double>(s.count());
}

// Numbers of each channel's plan, one per column.
template <class C>
class WidePlans {
 public:
  WidePlans(const Layout& s, const ChannelPlan<C>* plans) : n_(s.columns()), values_(4 * n_) {
    for (int64_t c = 0, j = 0; c < s.channels; ++c) {
      for (int64_t i = 0; i < s.inner; ++i, ++j) {
        values_[j] = plans[c].mean;
        values_[n_ + j] = plans[c].a;
        values_[2 * n_ + j] = plans[c].b;
        values_[3 * n_ + j] = plans[c].c;
      }
    }
  }
  const C* operator[](int k) const { return values_.data() + k * n_; }

 private:
  int64_t n_;
  rb::Scratch<C> values_;
};

// ---- forward

// Statistics of a channel to its scale; train: computed here, eval: given.
template <class T, class Stats>
void forward(const Layout& s, const T* x, T* y, const Values<compute_t<T>>& w,
             const Values<compute_t<T>>& b, double eps, bool train, const Stats& stats) {
  using C = compute_t<T>;
  const NormRows<C>& rows = norm_rows<C>();
  auto plan_of = [&](int64_t c, double mean, double var) {
    const double rstd = 1.0 / std::sqrt(var + eps);
    return ChannelPlan<C>{static_cast<C>(mean), static_cast<C>(rstd) * w.at(c, C(1)), b.at(c, C(0)),
                          C(0)};
  };
  auto run_channel = [&](int64_t c) {
    const ChannelRuns<T> runs(s, nullptr, x);
    RunMoments m;
    if (train) {
      runs.each(c, [&](const C*, const C* from, int64_t, int64_t n) {
        RunMoments piece;
        piece.n = static_cast<double>(n);
        rows.moments(from, n, &piece.mean, &piece.squares);
        m.merge(piece);
      });
    }
    const auto [mean, var] = stats(c, m.mean, m.squares / static_cast<double>(s.count()));
    const ChannelPlan<C> p = plan_of(c, mean, var);
    const RunOut<T> out(runs.piece());
    runs.each(c, [&](const C*, const C* from, int64_t offset, int64_t n) {
      rows.scale(from, out.at(y + offset), n, p.mean, p.a, p.b);
      out.store(y + offset, n);
    });
  };
  if (!s.by_column()) return for_channels(s, run_channel);
  const int64_t n = s.columns();
  rb::Scratch<double> moments(2 * s.channels);
  double *means = moments.data(), *vars = means + s.channels;
  if (train) channel_moments(s, x, means, vars);
  rb::Scratch<ChannelPlan<C>> plans(s.channels);
  for (int64_t c = 0; c < s.channels; ++c) {
    const auto [mean, var] = stats(c, train ? means[c] : 0.0, train ? vars[c] : 0.0);
    plans[c] = plan_of(c, mean, var);
  }
  const WidePlans<C> wide(s, plans.data());
  rb::parallel_for(s.batch, std::max<int64_t>(1, kGrain / std::max<int64_t>(n, 1)),
                   [&](int64_t begin, int64_t end) {
                     const RunIn<T> in(n);
                     const RunOut<T> out(n);
                     for (int64_t i = begin; i < end; ++i) {
                       rows.scale_columns(in(x + i * n, n), out.at(y + i * n), n, wide[0], wide[1],
                                          wide[2]);
                       out.store(y + i * n, n);
                     }
                   });
}

void train_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  const bool last = are_channels_last({&x, &a.ret(0)});
  const Layout s(x, last);
  const double eps = a.real(3);
  rb::Scratch<double> means(s.channels), vars(s.channels);
  dispatch_dtype<kMaskFloat>("batch_norm_train", x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Values<compute_t<T>> w(a.optional_tensor(1)), b(a.optional_tensor(2));
    const DenseInput<T> input(x, last);
    const DenseResult<T> y(a.ret(0), last);
    forward<T>(s, input.data(), y.data(), w, b, eps, true, [&](int64_t c, double mean, double var) {
      means[c] = mean;
      vars[c] = var;
      return std::pair(mean, var);
    });
    y.finish();
  });
  store_doubles(a.ret(1), means.data());
  store_doubles(a.ret(2), vars.data());
}

void eval_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  const bool last = are_channels_last({&x, &a.ret(0)});
  const Layout s(x, last);
  const Values<double> means(&a.tensor(1)), vars(&a.tensor(2));
  const double eps = a.real(5);
  dispatch_dtype<kMaskFloat>("batch_norm_eval", x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Values<compute_t<T>> w(a.optional_tensor(3)), b(a.optional_tensor(4));
    const DenseInput<T> input(x, last);
    const DenseResult<T> y(a.ret(), last);
    forward<T>(s, input.data(), y.data(), w, b, eps, false, [&](int64_t c, double, double) {
      return std::pair(means.data()[c], vars.data()[c]);
    });
    y.finish();
  });
}

// ---- backward

struct ChannelResults {
  double *dw, *db;
};

template <class T>
void backward(const Layout& s, const T* g, const T* x, T* dx, const double* means,
              const double* vars, const Values<compute_t<T>>& w, double eps, bool train,
              const ChannelResults& results) {
  using C = compute_t<T>;
  const NormRows<C>& rows = norm_rows<C>();
  auto plan_of = [&](int64_t c, double plain, double scaled) {
    const double rstd = 1.0 / std::sqrt(vars[c] + eps), count = static_cast<double>(s.count());
    const double wc = static_cast<double>(w.at(c, C(1)));
    results.dw[c] = scaled * rstd;
    results.db[c] = plain;
    return ChannelPlan<C>{static_cast<C>(means[c]), static_cast<C>(wc * rstd),
                          train ? static_cast<C>(-wc * rstd * rstd * rstd * scaled / count) : C(0),
                          train ? static_cast<C>(-wc * rstd * plain / count) : C(0)};
  };
  auto run_channel = [&](int64_t c) {
    const ChannelRuns<T> runs(s, g, x);
    GradientSums sums{0, 0, 0};
    const C mean = static_cast<C>(means[c]);
    runs.each(c, [&](const C* grad, const C* from, int64_t, int64_t n) {
      const GradientSums part = rows.sums(grad, nullptr, from, n, mean);
      sums.plain += part.plain;
      sums.scaled += part.scaled;
    });
    const ChannelPlan<C> p = plan_of(c, sums.plain, sums.scaled);
    const RunOut<T> out(runs.piece());
    runs.each(c, [&](const C* grad, const C* from, int64_t offset, int64_t n) {
      rows.combine(grad, from, out.at(dx + offset), n, p.mean, p.a, p.b, p.c);
      out.store(dx + offset, n);
    });
  };
  if (!s.by_column()) return for_channels(s, run_channel);
  const Chunks chunks(s);
  const int64_t n = s.columns();
  rb::Scratch<ChannelPlan<C>> plans(s.channels);
  for (int64_t c = 0; c < s.channels; ++c) plans[c] = {static_cast<C>(means[c]), C(0), C(0), C(0)};
  rb::Scratch<double> partial(2 * n * chunks.count + 2 * n);
  {
    const WidePlans<C> centre(s, plans.data());
    chunks.each(s, [&](int64_t k, int64_t first, int64_t count) {
      const RunIn<T> in_g(count * n), in_x(count * n);
      double* sums = partial.data() + 2 * n * k;
      for (int64_t j = 0; j < 2 * n; ++j) sums[j] = 0;
      rows.column_gradients(in_g(g + first * n, count * n), in_x(x + first * n, count * n), n,
                            count, n, centre[0], sums, sums + n);
    });
  }
  double *plain = partial.data() + 2 * n * chunks.count, *scaled = plain + n;
  for (int64_t j = 0; j < 2 * n; ++j) plain[j] = 0;
  for (int64_t k = 0; k < chunks.count; ++k) {
    for (int64_t j = 0; j < 2 * n; ++j) plain[j] += partial[2 * n * k + j];
  }
  gather_inner(plain, s);
  gather_inner(scaled, s);
  for (int64_t c = 0; c < s.channels; ++c) plans[c] = plan_of(c, plain[c], scaled[c]);
  const WidePlans<C> wide(s, plans.data());
  rb::parallel_for(s.batch, std::max<int64_t>(1, kGrain / std::max<int64_t>(n, 1)),
                   [&](int64_t begin, int64_t end) {
                     const RunIn<T> in_g(n), in_x(n);
                     const RunOut<T> out(n);
                     for (int64_t i = begin; i < end; ++i) {
                       rows.combine_columns(in_g(g + i * n, n), in_x(x + i * n, n),
                                            out.at(dx + i * n), n, wide[0], wide[1], wide[2],
                                            wide[3]);
                       out.store(dx + i * n, n);
                     }
                   });
}

void backward_kernel(const rb::Args& a) {
  const RbTensor &g = a.tensor(0), &x = a.tensor(1);
  const bool last = are_channels_last({&g, &x, &a.ret(0)});
  const Layout s(x, last);
  const Values<double> means(&a.tensor(2)), vars(&a.tensor(3));
  const double eps = a.real(5);
  const bool train = a.boolean(6);
  rb::Scratch<double> dw(s.channels), db(s.channels);
  dispatch_dtype<kMaskFloat>("batch_norm_backward", x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Values<compute_t<T>> w(a.optional_tensor(4));
    const DenseInput<T> grad(g, last), input(x, last);
    const DenseResult<T> dx(a.ret(0), last);
    backward<T>(s, grad.data(), input.data(), dx.data(), means.data(), vars.data(), w, eps, train,
                {dw.data(), db.data()});
    dx.finish();
  });
  store_doubles(a.ret(1), dw.data());
  store_doubles(a.ret(2), db.data());
}

const rb::KernelSpec kKernels[] = {
    {"batch_norm_train", rb::wrap<train_kernel>, 0, kMaskFloat},
    {"batch_norm_eval", rb::wrap<eval_kernel>, 0, kMaskFloat},
    {"batch_norm_backward", rb::wrap<backward_kernel>, 0, kMaskFloat},
};

}  // namespace

int32_t add_batch_norm(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu
