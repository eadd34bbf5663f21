// batch_norm_train, batch_norm_eval and their derivative. A task is a block of channels, whose
// statistics and results are computed while the block is in the cache.
#include "kernels.h"
#include "norm.h"

namespace rbcpu {
namespace {

// (N, C, *) as batch x channels x inner. Where `inner` is small, the channels * inner positions of
// an item are columns; else each channel of an item is a run.
struct Layout {
  int64_t batch, channels, inner = 1;
  explicit Layout(const RbTensor& x) : batch(x.shape[0]), channels(x.shape[1]) {
    for (int d = 2; d < x.ndim; ++d) inner *= x.shape[d];
  }
  bool by_column() const { return inner < 32; }
  int64_t count() const { return batch * inner; }
  int64_t run(int64_t item, int64_t channel) const { return (item * channels + channel) * inner; }
  // Channels per task: at least 64 columns, and enough work.
  int64_t block() const {
    if (!by_column()) return 1;
    return std::max<int64_t>((63 + inner) / inner, kGrain / 8 / std::max<int64_t>(count(), 1));
  }
  int64_t blocks() const { return (channels + block() - 1) / block(); }
  int64_t grain() const {
    const int64_t per_task = std::max<int64_t>(count() * block(), 1);
    return std::max<int64_t>(1, kGrain / 2 / per_task);
  }
};

// What a kernel does with a channel: y = (x - mean) * scale + shift, or dx = g a + (x - mean) b +
// c.
template <class C>
struct ChannelPlan {
  C mean, a, b, c;
};

template <class C>
void spread(const C* per_channel, int64_t channels, int64_t inner, C* to) {
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t k = 0; k < inner; ++k) to[c * inner + k] = per_channel[c];
  }
}
inline void gather_inner(double* sums, int64_t channels, int64_t inner) {
  for (int64_t c = 0; c < channels; ++c) {
    double total = 0;
    for (int64_t k = 0; k < inner; ++k) total += sums[c * inner + k];
    sums[c] = total;
  }
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

// ---- columns of a block of channels: the 16-bit floats as a dense copy of the block

template <class T>
class ColumnBlock {
 public:
  using C = compute_t<T>;
  ColumnBlock(const Layout& s, const T* x, int64_t first, int64_t columns)
      : copy_(is_half_v<T> && x ? s.batch * columns : 0), data_(nullptr), stride_(columns) {
    if (!x) return;
    if constexpr (is_half_v<T>) {
      for (int64_t i = 0; i < s.batch; ++i) {
        for (int64_t j = 0; j < columns; ++j)
          copy_[i * columns + j] = C(x[s.run(i, 0) + first + j]);
      }
      data_ = copy_.data();
    } else {
      data_ = x + first;
      stride_ = s.channels * s.inner;
    }
  }
  const C* data() const { return data_; }
  int64_t stride() const { return stride_; }

 private:
  rb::Scratch<C> copy_;
  const C* data_;
  int64_t stride_;
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
  auto run_columns = [&](int64_t first, int64_t channels) {
    const int64_t columns = channels * s.inner, start = first * s.inner;
    const ColumnBlock<T> block(s, x, start, columns);
    rb::Scratch<double> sums(2 * columns);
    rb::Scratch<C> numbers(6 * columns);
    double *means = sums.data(), *squares = means + columns;
    C* const wide[3] = {numbers.data(), numbers.data() + columns, numbers.data() + 2 * columns};
    C* const narrow[3] = {wide[2] + columns, wide[2] + 2 * columns, wide[2] + 3 * columns};
    for (int64_t j = 0; j < 2 * columns; ++j) means[j] = 0;
    if (train) {
      rows.column_sums(block.data(), block.stride(), s.batch, columns, means);
      gather_inner(means, channels, s.inner);
      for (int64_t c = 0; c < channels; ++c) {
        means[c] /= static_cast<double>(s.count());
        narrow[0][c] = static_cast<C>(means[c]);
      }
      spread(narrow[0], channels, s.inner, wide[0]);
      rows.column_squares(block.data(), block.stride(), s.batch, columns, wide[0], squares);
      gather_inner(squares, channels, s.inner);
    }
    for (int64_t c = 0; c < channels; ++c) {
      double found = 0;
      if (train) {  // what rounding the mean to C lost is taken off again
        const double shift = means[c] - static_cast<double>(narrow[0][c]);
        found = squares[c] / static_cast<double>(s.count()) - shift * shift;
      }
      const auto [mean, var] = stats(first + c, means[c], found);
      const ChannelPlan<C> p = plan_of(first + c, mean, var);
      narrow[0][c] = p.mean;
      narrow[1][c] = p.a;
      narrow[2][c] = p.b;
    }
    for (int k = 0; k < 3; ++k) spread(narrow[k], channels, s.inner, wide[k]);
    const RunOut<T> out(columns);
    for (int64_t i = 0; i < s.batch; ++i) {
      T* to = y + s.run(i, 0) + start;
      rows.scale_columns(block.data() + i * block.stride(), out.at(to), columns, wide[0], wide[1],
                         wide[2]);
      out.store(to, columns);
    }
  };
  const int64_t per = s.block();
  rb::parallel_for(s.blocks(), s.grain(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (s.by_column()) {
        run_columns(i * per, std::min(per, s.channels - i * per));
      } else {
        run_channel(i);
      }
    }
  });
}

void train_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  const Layout s(x);
  const double eps = a.real(3);
  rb::Scratch<double> means(s.channels), vars(s.channels);
  dispatch_dtype<kMaskFloat>("batch_norm_train", x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Values<compute_t<T>> w(a.optional_tensor(1)), b(a.optional_tensor(2));
    const DenseInput<T> input(x);
    const DenseResult<T> y(a.ret(0));
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
  const Layout s(x);
  const Values<double> means(&a.tensor(1)), vars(&a.tensor(2));
  const double eps = a.real(5);
  dispatch_dtype<kMaskFloat>("batch_norm_eval", x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Values<compute_t<T>> w(a.optional_tensor(3)), b(a.optional_tensor(4));
    const DenseInput<T> input(x);
    const DenseResult<T> y(a.ret());
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
    GradientSums sums{0, 0};
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
  auto run_columns = [&](int64_t first, int64_t channels) {
    const int64_t columns = channels * s.inner, start = first * s.inner;
    const ColumnBlock<T> grads(s, g, start, columns), block(s, x, start, columns);
    rb::Scratch<double> sums(2 * columns);
    rb::Scratch<C> numbers(5 * columns);
    double *plain = sums.data(), *scaled = plain + columns;
    C *wide[4], *narrow = numbers.data() + 4 * columns;
    for (int k = 0; k < 4; ++k) wide[k] = numbers.data() + k * columns;
    for (int64_t j = 0; j < 2 * columns; ++j) plain[j] = 0;
    for (int64_t c = 0; c < channels; ++c) narrow[c] = static_cast<C>(means[first + c]);
    spread(narrow, channels, s.inner, wide[0]);
    rows.column_gradients(grads.data(), block.data(), block.stride(), s.batch, columns, wide[0],
                          plain, scaled);
    gather_inner(plain, channels, s.inner);
    gather_inner(scaled, channels, s.inner);
    for (int64_t c = 0; c < channels; ++c) {
      const ChannelPlan<C> p = plan_of(first + c, plain[c], scaled[c]);
      for (int64_t k = 0; k < s.inner; ++k) {
        wide[1][c * s.inner + k] = p.a;
        wide[2][c * s.inner + k] = p.b;
        wide[3][c * s.inner + k] = p.c;
      }
    }
    const RunOut<T> out(columns);
    for (int64_t i = 0; i < s.batch; ++i) {
      T* to = dx + s.run(i, 0) + start;
      rows.combine_columns(grads.data() + i * grads.stride(), block.data() + i * block.stride(),
                           out.at(to), columns, wide[0], wide[1], wide[2], wide[3]);
      out.store(to, columns);
    }
  };
  const int64_t per = s.block();
  rb::parallel_for(s.blocks(), s.grain(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (s.by_column()) {
        run_columns(i * per, std::min(per, s.channels - i * per));
      } else {
        run_channel(i);
      }
    }
  });
}

void backward_kernel(const rb::Args& a) {
  const RbTensor &g = a.tensor(0), &x = a.tensor(1);
  const Layout s(x);
  const Values<double> means(&a.tensor(2)), vars(&a.tensor(3));
  const double eps = a.real(5);
  const bool train = a.boolean(6);
  rb::Scratch<double> dw(s.channels), db(s.channels);
  dispatch_dtype<kMaskFloat>("batch_norm_backward", x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Values<compute_t<T>> w(a.optional_tensor(4));
    const DenseInput<T> grad(g), input(x);
    const DenseResult<T> dx(a.ret(0));
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
