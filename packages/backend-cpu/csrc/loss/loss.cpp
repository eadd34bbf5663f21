// Cross-entropy and negative log likelihood of class indices, with their derivatives.
#include <cmath>

#include "common/kernels.h"
#include "reduce/columns.h"
#include "reduce/dense.h"
#include "reduce/rows.h"

namespace rbcpu {
namespace {

// Scores (N, C, *) or (C,): `batch` x `classes` x `inner`; a position is one item and place.
struct Scores {
  int64_t batch = 1, classes = 1, inner = 1;
  Scores(int ndim, const int64_t* shape) {
    const int class_dim = ndim == 1 ? 0 : 1;
    for (int d = 0; d < ndim; ++d)
      (d < class_dim ? batch : d == class_dim ? classes : inner) *= shape[d];
  }
  int64_t positions() const { return batch * inner; }
  int64_t base(int64_t p) const { return p / inner * classes * inner + p % inner; }
};

enum class Reduction { kNone, kMean, kSum };
Reduction reduction_of(const char* name) {
  return name[0] == 'n' ? Reduction::kNone : name[0] == 'm' ? Reduction::kMean : Reduction::kSum;
}

// Raises before anything is written.
void check_targets(const char* op, const int64_t* target, int64_t n, int64_t classes,
                   int64_t ignored) {
  for (int64_t i = 0; i < n; ++i) {
    const int64_t t = target[i];
    if (__builtin_expect(t >= 0 && t < classes, 1) || t == ignored) continue;
    rb::fail(RB_E_INDEX, "%s: Target %lld is out of bounds for %lld classes (0 to %lld)", op,
             static_cast<long long>(t), static_cast<long long>(classes),
             static_cast<long long>(classes - 1));
  }
}

// Weight of each position: that of its target, 0 where ignored.
void target_weights(const int64_t* target, int64_t n, const Values<double>& w, int64_t ignored,
                    double* to) {
  for (int64_t i = 0; i < n; ++i) {
    to[i] = target[i] == ignored ? 0.0 : w ? w.data()[target[i]] : 1.0;
  }
}

// Losses per position to the result: as they are, summed, or divided by the sum of weights.
void reduce_losses(const RbTensor& out, const RbTensor& total_out, Reduction how,
                   const double* losses, const double* weights, int64_t n) {
  const double total = rows<double>().sum(weights, n);
  store_doubles(total_out, &total);
  if (how == Reduction::kNone) return store_doubles(out, losses);
  double loss = rows<double>().sum(losses, n);
  if (how == Reduction::kMean) loss /= total;
  store_doubles(out, &loss);
}

constexpr int64_t kTile = 64;
constexpr int64_t kLongRow = 64;  // shorter rows are gathered into columns

// Call f(first position, count, columns or null, stride) for tiles of positions; rows(p) handles
// one position whose classes are a long run.
template <class T, class RowsFn, class TileFn>
void for_positions(const Scores& s, const T* x, const RowsFn& rows_fn, const TileFn& tile_fn) {
  using C = compute_t<T>;
  const int64_t per_task = std::max<int64_t>(1, kGrain / 4 / std::max<int64_t>(s.classes, 1));
  if (s.inner == 1 && s.classes >= kLongRow) {
    rb::parallel_for(s.batch, per_task, rows_fn);
    return;
  }
  // Tiles stay within one item where its places lie side by side.
  const bool direct = !is_half_v<T> && s.inner >= 16;
  const int64_t width = direct ? s.inner : s.positions();
  const int64_t strips = (width + kTile - 1) / kTile, tiles = (direct ? s.batch : 1) * strips;
  rb::parallel_for(tiles, std::max<int64_t>(1, per_task / kTile), [&](int64_t begin, int64_t end) {
    const rb::Scratch<C> buffer(direct ? 0 : s.classes * kTile);
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t at = tile % strips * kTile, first = tile / strips * width + at;
      const int64_t cols = std::min(kTile, width - at);
      if constexpr (!is_half_v<T>) {
        if (direct) {
          tile_fn(first, cols, x + s.base(first), s.inner);
          continue;
        }
      }
      for (int64_t j = 0; j < cols; ++j) {
        const T* from = x + s.base(first + j);
        for (int64_t c = 0; c < s.classes; ++c) buffer[c * kTile + j] = C(from[c * s.inner]);
      }
      tile_fn(first, cols, buffer.data(), kTile);
    }
  });
}

void cross_entropy_kernel(const rb::Args& a) {
  const RbTensor &x = a.tensor(0), &target_tensor = a.tensor(1);
  const Scores s(x.ndim, x.shape);
  const DenseInput<int64_t> target(target_tensor);
  const Values<double> w(a.optional_tensor(2));
  const Reduction how = reduction_of(a.str(3));
  const int64_t ignored = a.integer(4), n = s.positions();
  const double smoothing = a.real(5), spread = smoothing / static_cast<double>(s.classes);
  check_targets("cross_entropy", target.data(), n, s.classes, ignored);
  rb::Scratch<double> losses(n), weights(n);
  target_weights(target.data(), n, w, ignored, weights.data());
  const double all_weights =
      w ? rows<double>().sum(w.data(), s.classes) : static_cast<double>(s.classes);
  dispatch_dtype<kMaskFloat>("cross_entropy", x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    const DenseInput<T> input(x);
    const DenseResult<C> lse_out(a.ret(1));
    C* const lse = lse_out.data();
    // x of the target and the (weighted) sum of x over the classes, `step` apart.
    auto finish = [&](int64_t p, const C* scores, int64_t step, double log_sum) {
      if (target.data()[p] == ignored) {
        losses[p] = 0;
        return;
      }
      const double picked = static_cast<double>(scores[target.data()[p] * step]);
      double loss = weights[p] * (log_sum - picked);
      if (smoothing != 0) {
        double sum = 0;
        for (int64_t c = 0; c < s.classes; ++c) {
          sum += (w ? w.data()[c] : 1.0) * static_cast<double>(scores[c * step]);
        }
        loss = loss * (1.0 - smoothing) + spread * (log_sum * all_weights - sum);
      }
      losses[p] = loss;
    };
    for_positions(
        s, input.data(),
        [&](int64_t begin, int64_t end) {
          const RunIn<T> in(s.classes);
          for (int64_t p = begin; p < end; ++p) {
            const C* row = in(input.data() + p * s.classes, s.classes);
            const double log_sum = rows<C>().logsumexp(row, s.classes);
            lse[p] = static_cast<C>(log_sum);
            finish(p, row, 1, log_sum);
          }
        },
        [&](int64_t first, int64_t cols, const C* tile, int64_t stride) {
          columns<C>().logsumexp(tile, stride, s.classes, cols, lse + first);
          for (int64_t j = 0; j < cols; ++j)
            finish(first + j, tile + j, stride, static_cast<double>(lse[first + j]));
        });
    lse_out.finish();
  });
  reduce_losses(a.ret(0), a.ret(2), how, losses.data(), weights.data(), n);
}

double first_value(const RbTensor& t) { return Values<double>(&t).data()[0]; }

void cross_entropy_backward_kernel(const rb::Args& a) {
  const RbTensor &x = a.tensor(1), &target_tensor = a.tensor(2);
  const Scores s(x.ndim, x.shape);
  const DenseInput<int64_t> target(target_tensor);
  const Values<double> grads(&a.tensor(0)), w(a.optional_tensor(3));
  const Reduction how = reduction_of(a.str(6));
  const int64_t ignored = a.integer(7), n = s.positions();
  const double divisor = how == Reduction::kMean ? first_value(a.tensor(5)) : 1.0;
  const double smoothing = a.real(8), spread = smoothing / static_cast<double>(s.classes);
  check_targets("cross_entropy", target.data(), n, s.classes, ignored);
  const double all_weights =
      w ? rows<double>().sum(w.data(), s.classes) : static_cast<double>(s.classes);
  dispatch_dtype<kMaskFloat>("cross_entropy_backward", x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    const DenseInput<T> input(x);
    const DenseResult<T> result(a.ret());
    const Values<C> lse(&a.tensor(4));
    T* const dx = result.data();
    // What softmax is multiplied with at position p, and what the target and each class lose.
    struct Factors {
      double soft, picked, each;
    };
    auto factors_of = [&](int64_t p) {
      const int64_t t = target.data()[p];
      if (t == ignored) return Factors{0, 0, 0};
      const double g = grads.data()[how == Reduction::kNone ? p : 0] / divisor;
      const double wt = (w ? w.data()[t] : 1.0) * (1.0 - smoothing);
      return Factors{g * (wt + spread * all_weights), g * wt, g * spread};
    };
    auto finish = [&](int64_t p, C* scores, int64_t step, const Factors& f) {
      const int64_t t = target.data()[p];
      if (t == ignored) {  // also where the scores are not finite
        for (int64_t c = 0; c < s.classes; ++c) scores[c * step] = C(0);
        return;
      }
      if (smoothing != 0) {
        for (int64_t c = 0; c < s.classes; ++c) {
          scores[c * step] -= static_cast<C>(f.each * (w ? w.data()[c] : 1.0));
        }
      }
      scores[t * step] -= static_cast<C>(f.picked);
    };
    for_positions(
        s, input.data(),
        [&](int64_t begin, int64_t end) {
          const RunIn<T> in(s.classes);
          const RunOut<T> out(s.classes);
          for (int64_t p = begin; p < end; ++p) {
            const Factors f = factors_of(p);
            T* to = dx + p * s.classes;
            C* row = out.at(to);
            if (target.data()[p] != ignored) {
              rows<C>().softmax_from(in(input.data() + p * s.classes, s.classes), row, s.classes,
                                     lse.data()[p], static_cast<C>(f.soft));
            }
            finish(p, row, 1, f);
            out.store(to, s.classes);
          }
        },
        [&](int64_t first, int64_t cols, const C* tile, int64_t stride) {
          C soft[kTile];
          Factors factors[kTile];
          for (int64_t j = 0; j < cols; ++j) {
            factors[j] = factors_of(first + j);
            soft[j] = static_cast<C>(factors[j].soft);
          }
          bool direct = false;
          if constexpr (!is_half_v<T>)
            direct = stride == s.inner && tile != nullptr && s.inner >= 16;
          const rb::Scratch<C> buffer(direct ? 0 : s.classes * kTile);
          C* to = buffer.data();
          int64_t step = kTile;
          if constexpr (!is_half_v<T>) {
            if (direct) {
              to = dx + s.base(first);
              step = s.inner;
            }
          }
          columns<C>().softmax_from(tile, stride, to, step, s.classes, cols, lse.data() + first,
                                    soft);
          for (int64_t j = 0; j < cols; ++j) finish(first + j, to + j, step, factors[j]);
          if (direct) return;
          for (int64_t j = 0; j < cols; ++j) {
            T* back = dx + s.base(first + j);
            for (int64_t c = 0; c < s.classes; ++c) back[c * s.inner] = T(to[c * kTile + j]);
          }
        });
    result.finish();
  });
}

void nll_kernel(const rb::Args& a) {
  const RbTensor &x = a.tensor(0), &target_tensor = a.tensor(1);
  const Scores s(x.ndim, x.shape);
  const DenseInput<int64_t> target(target_tensor);
  const Values<double> w(a.optional_tensor(2));
  const Reduction how = reduction_of(a.str(3));
  const int64_t ignored = a.integer(4), n = s.positions();
  check_targets("nll_loss", target.data(), n, s.classes, ignored);
  rb::Scratch<double> losses(n), weights(n);
  target_weights(target.data(), n, w, ignored, weights.data());
  dispatch_dtype<kMaskFloat>("nll_loss", x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const DenseInput<T> input(x);
    for (int64_t p = 0; p < n; ++p) {
      const int64_t t = target.data()[p];
      losses[p] = t == ignored ? 0.0
                               : -weights[p] * static_cast<double>(compute_t<T>(
                                                   input.data()[s.base(p) + t * s.inner]));
    }
  });
  reduce_losses(a.ret(0), a.ret(1), how, losses.data(), weights.data(), n);
}

void nll_backward_kernel(const rb::Args& a) {
  const DenseInput<int64_t> target(a.tensor(1));
  const rb::Span<int64_t> shape = a.ints(4);
  const Scores s(static_cast<int>(shape.len), shape.data);
  const Values<double> grads(&a.tensor(0)), w(a.optional_tensor(2));
  const Reduction how = reduction_of(a.str(5));
  const int64_t ignored = a.integer(6), n = s.positions();
  const double divisor = how == Reduction::kMean ? first_value(a.tensor(3)) : 1.0;
  check_targets("nll_loss", target.data(), n, s.classes, ignored);
  dispatch_dtype<kMaskFloat>("nll_loss_backward", a.ret().dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const DenseResult<T> result(a.ret());
    T* const dx = result.data();
    for (int64_t i = 0; i < n * s.classes; ++i) dx[i] = T(0);
    for (int64_t p = 0; p < n; ++p) {
      const int64_t t = target.data()[p];
      if (t == ignored) continue;
      const double g = grads.data()[how == Reduction::kNone ? p : 0] / divisor;
      dx[s.base(p) + t * s.inner] = T(static_cast<compute_t<T>>(-g * (w ? w.data()[t] : 1.0)));
    }
    result.finish();
  });
}

const rb::KernelSpec kKernels[] = {
    {"cross_entropy_loss", rb::wrap<cross_entropy_kernel>, 0, kMaskFloat},
    {"cross_entropy_backward", rb::wrap<cross_entropy_backward_kernel>, 0, kMaskFloat},
    {"nll_loss", rb::wrap<nll_kernel>, 0, kMaskFloat},
    {"nll_loss_backward", rb::wrap<nll_backward_kernel>, 0, kMaskFloat},
};

}  // namespace

int32_t add_loss(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu
