// Transforms of the last dimensions of tensors.
#include <algorithm>
#include <cmath>

#include "common/kernels.h"
#include "common/view.h"
#include "common/workspace.h"
#include "fourier/lines.h"

namespace rbcpu {
namespace {

using fourier::Leaf;
using fourier::Lines;
using fourier::Method;
using fourier::Plan;

constexpr int64_t kShort = 64;          // up to this length, lines are transformed side by side
constexpr double kCostOfTask = 100000;  // operations that are worth another thread
constexpr int64_t kLongLine = int64_t{1} << 15;  // one line is worth several threads

double cost_of(int64_t n) {
  return 5.0 * static_cast<double>(n) * std::log2(static_cast<double>(n) + 1);
}
int64_t grain_of(double cost) {
  return std::max<int64_t>(1, static_cast<int64_t>(kCostOfTask / (cost + 1)));
}

/// Transforms lines of `n` adjacent complex numbers.
template <class T>
class LineTransform {
 public:
  LineTransform(int64_t n, bool backward, T scale)
      : f_(fourier::lines<T>()),
        n_(n),
        backward_(backward),
        scale_(scale),
        plan_(fourier::plan_of<T>(n)),
        leaf_(n <= kShort || plan_->method == Method::kLanes ? fourier::leaf_of<T>(n) : nullptr) {}

  int64_t work() const { return std::max(plan_->work(f_.lanes), leaf_ ? 4 * f_.lanes * n_ : 0); }

  /// The lines begin `apart` complex numbers from each other, their results `to_apart`.
  void run(const T* from, int64_t apart, T* to, int64_t to_apart, int64_t count, T* work) const {
    int64_t i = 0;
    while (leaf_ && (count - i >= f_.lanes || (plan_->method == Method::kLanes && i < count))) {
      const int some = static_cast<int>(std::min<int64_t>(count - i, f_.lanes));
      f_.side_by_side(*leaf_, from + 2 * apart * i, 1, apart, to + 2 * to_apart * i, 1, to_apart,
                      some, work, backward_, scale_);
      i += some;
    }
    for (; i < count; ++i)
      f_.line(*plan_, from + 2 * apart * i, to + 2 * to_apart * i, work, backward_, scale_);
  }

  /// Like run(), in parallel on the pool. Calls finish(i) after the transform of line i.
  template <class Finish>
  void run_parallel(const T* from, int64_t apart, T* to, int64_t to_apart, int64_t count,
                    Finish&& finish) const {
    if (count < 4 && n_ >= kLongLine && plan_->columns > 1) {
      for (int64_t i = 0; i < count; ++i) {
        run_long(from + 2 * apart * i, to + 2 * to_apart * i);
        finish(i);
      }
      return;
    }
    const int64_t block = leaf_ ? f_.lanes : 1;
    rb::parallel_for(
        count, std::max(block, grain_of(cost_of(n_))), [&](int64_t begin, int64_t end) {
          const Workspace<T> memory(work());
          for (int64_t i = begin; i < end; i += block) {
            const int64_t some = std::min(block, end - i);
            run(from + 2 * apart * i, apart, to + 2 * to_apart * i, to_apart, some, memory.data());
            for (int64_t j = i; j < i + some; ++j) finish(j);
          }
        });
  }

 private:
  void run_long(const T* from, T* to) const {
    const Workspace<T> between(2 * n_);
    const auto blocks = [&](int64_t total, auto&& body) {
      const int64_t count = (total + f_.lanes - 1) / f_.lanes;
      rb::parallel_for(count, grain_of(cost_of(n_) / static_cast<double>(count)),
                       [&](int64_t begin, int64_t end) {
                         const Workspace<T> memory(plan_->work(f_.lanes));
                         body(begin * f_.lanes, std::min(total, end * f_.lanes), memory.data());
                       });
    };
    blocks(plan_->columns, [&](int64_t begin, int64_t end, T* work) {
      f_.columns(*plan_, from, between.data(), begin, end, work, backward_);
    });
    blocks(plan_->rows, [&](int64_t begin, int64_t end, T* work) {
      f_.rows(*plan_, between.data(), to, begin, end, work, backward_, scale_);
    });
  }

  const Lines<T>& f_;
  const int64_t n_;
  const bool backward_;
  const T scale_;
  const std::shared_ptr<const Plan<T>> plan_;
  const std::shared_ptr<const Leaf<T>> leaf_;
};

/// Transforms the middle dimension of contiguous complex numbers of shape (outer, n, inner).
template <class T>
void transform_middle(const T* from, T* to, int64_t outer, int64_t n, int64_t inner, bool backward,
                      T scale) {
  if (inner == 1)
    return LineTransform<T>(n, backward, scale).run_parallel(from, n, to, n, outer, [](int64_t) {});
  const Lines<T>& f = fourier::lines<T>();
  if (const auto leaf = fourier::leaf_of<T>(n)) {
    // The lanes hold adjacent lines or, if there are few of those, lines from different outer
    // indices.
    const bool adjacent = inner >= f.lanes || inner >= outer;
    const int64_t across = adjacent ? inner : outer, others = adjacent ? outer : inner;
    const int64_t apart = adjacent ? 1 : n * inner, others_apart = adjacent ? n * inner : 1;
    const int64_t groups = (across + f.lanes - 1) / f.lanes;
    rb::parallel_for(
        others * groups, grain_of(cost_of(n) * f.lanes), [&](int64_t begin, int64_t end) {
          const Workspace<T> memory(4 * f.lanes * n);
          for (int64_t i = begin; i < end; ++i) {
            const int64_t first = i % groups * f.lanes,
                          at = 2 * (i / groups * others_apart + first * apart);
            const int count = static_cast<int>(std::min<int64_t>(f.lanes, across - first));
            f.side_by_side(*leaf, from + at, inner, apart, to + at, inner, apart, count,
                           memory.data(), backward, scale);
          }
        });
    return;
  }
  const LineTransform<T> transform(n, backward, scale);
  rb::parallel_for(outer * inner, grain_of(cost_of(n)), [&](int64_t begin, int64_t end) {
    const Workspace<T> memory(2 * n + transform.work());
    T* const line = memory.data();
    for (int64_t i = begin; i < end; ++i) {
      const int64_t at = 2 * (i / inner * n * inner + i % inner);
      for (int64_t k = 0; k < n; ++k) {
        line[2 * k] = from[at + 2 * k * inner];
        line[2 * k + 1] = from[at + 2 * k * inner + 1];
      }
      transform.run(line, n, line, n, 1, line + 2 * n);
      for (int64_t k = 0; k < n; ++k) {
        to[at + 2 * k * inner] = line[2 * k];
        to[at + 2 * k * inner + 1] = line[2 * k + 1];
      }
    }
  });
}

/// Run body(first, count, block, work) on the pool for groups of lines that go through `transform`
/// as a block of contiguous numbers, which body fills and empties.
template <class T, class Body>
void for_blocks(const LineTransform<T>& transform, int64_t n, int64_t lines, Body&& body) {
  const int64_t lanes = fourier::lines<T>().lanes;
  rb::parallel_for(lines, std::max(lanes, grain_of(cost_of(n))), [&](int64_t begin, int64_t end) {
    const int64_t most = std::min(lanes, end - begin);
    const Workspace<T> memory(2 * n * most + transform.work());
    for (int64_t i = begin; i < end; i += most)
      body(i, std::min(most, end - i), memory.data(), memory.data() + 2 * n * most);
  });
}

/// The last dimensions of a tensor that are transformed; `last` is the length of the last one as
/// real numbers.
struct Signal {
  int rank;
  int64_t outer = 1;
  int64_t shape[kMaxDims];
  int64_t last;

  Signal(const RbTensor& t, int64_t rank_, int64_t last_)
      : rank(static_cast<int>(rank_)), last(last_) {
    for (int d = 0; d < t.ndim; ++d) {
      if (d < t.ndim - rank)
        outer *= t.shape[d];
      else
        shape[d - (t.ndim - rank)] = t.shape[d];
    }
  }
  double scale(int64_t normalization) const {
    double n = 1;
    for (int d = 0; d < rank; ++d) n *= static_cast<double>(d == rank - 1 ? last : shape[d]);
    return normalization == 0 ? 1 : normalization == 1 ? 1 / std::sqrt(n) : 1 / n;
  }
};

/// Transforms of the first `count` dimensions of the signal, from the last of them on; whether `to`
/// was written.
template <class T>
bool transform_dims(const T* from, T* to, const Signal& s, int count, bool backward, T scale) {
  bool written = false;
  for (int d = count - 1; d >= 0; --d) {
    int64_t outer = s.outer, inner = 1;
    for (int e = 0; e < d; ++e) outer *= s.shape[e];
    for (int e = d + 1; e < s.rank; ++e) inner *= s.shape[e];
    if (s.shape[d] == 1 && !(d == 0 && scale != T(1))) continue;
    transform_middle(written ? to : from, to, outer, s.shape[d], inner, backward,
                     d == 0 ? scale : T(1));
    written = true;
  }
  return written;
}

/// The elements of `t` in row-major order: its own memory where they lie so, else a copy in
/// `memory`.
template <class T>
const T* dense(const RbTensor& t, T* memory) {
  if (t.flags & RB_T_CONTIGUOUS) return static_cast<const T*>(t.data);
  const View view = view_of(t);
  copy_view(dense_view(memory, t.dtype_id, view), view);
  return memory;
}

template <class F>
void dispatch_precision(int dtype, F&& body) {
  if (dtype == RB_F32 || dtype == RB_C64)
    body(float{});
  else
    body(double{});
}

void fourier_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  const RbTensor& out = a.ret(0);
  const Signal s(x, a.integer(1), x.ndim ? x.shape[x.ndim - 1] : 1);
  const bool backward = !a.boolean(3);
  if (!x.numel) return;
  dispatch_precision(x.dtype_id, [&](auto tag) {
    using T = decltype(tag);
    T* const to = static_cast<T*>(out.data);
    const T* const from = dense(x, to);
    if (!transform_dims(from, to, s, s.rank, backward, static_cast<T>(s.scale(a.integer(2)))) &&
        from != to)
      std::copy(from, from + 2 * x.numel, to);
  });
}

void half_fourier_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  const RbTensor& out = a.ret(0);
  if (!out.numel) return;
  const int64_t n = x.shape[x.ndim - 1], half = n / 2;
  const Signal s(out, a.integer(1), n);
  dispatch_precision(x.dtype_id, [&](auto tag) {
    using T = decltype(tag);
    const Workspace<T> copy(x.flags & RB_T_CONTIGUOUS ? 1 : x.numel);
    const T* const from = dense(x, copy.data());
    T* const to = static_cast<T*>(out.data);
    const int64_t lines = x.numel / n;
    const T scale = static_cast<T>(s.scale(a.integer(2))), of_last = s.rank == 1 ? scale : T(1);
    if (n % 2 == 0) {
      const auto turn = fourier::half_turn_of<T>(n);
      LineTransform<T>(half, false, of_last)
          .run_parallel(from, half, to, half + 1, lines, [&](int64_t i) {
            fourier::lines<T>().unpack_real(n, turn->data(), to + 2 * (half + 1) * i);
          });
    } else {
      const LineTransform<T> transform(n, false, of_last);
      for_blocks(transform, n, lines, [&](int64_t i, int64_t count, T* block, T* work) {
        for (int64_t k = 0; k < count * n; ++k) {
          block[2 * k] = from[i * n + k];
          block[2 * k + 1] = 0;
        }
        transform.run(block, n, block, n, count, work);
        for (int64_t l = 0; l < count; ++l)
          std::copy_n(block + 2 * n * l, 2 * (half + 1), to + 2 * (half + 1) * (i + l));
      });
    }
    transform_dims(static_cast<const T*>(to), to, s, s.rank - 1, false, scale);
  });
}

void fourier_to_real_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  const RbTensor& out = a.ret(0);
  if (!out.numel) return;
  const int64_t n = out.shape[out.ndim - 1], half = n / 2;
  const Signal s(x, a.integer(1), n);
  dispatch_precision(x.dtype_id, [&](auto tag) {
    using T = decltype(tag);
    const bool copied = s.rank > 1 || !(x.flags & RB_T_CONTIGUOUS);
    const Workspace<T> copy(copied ? 2 * x.numel : 1);
    const T* from = dense(x, copy.data());
    if (transform_dims(from, copy.data(), s, s.rank - 1, true, T(1))) from = copy.data();
    T* const to = static_cast<T*>(out.data);
    const T scale = static_cast<T>(s.scale(a.integer(3)));
    const int64_t lines = out.numel / n, length = n % 2 ? n : half;
    const LineTransform<T> transform(length, true, scale);
    const auto turn = n % 2 ? nullptr : fourier::half_turn_of<T>(n);
    for_blocks(transform, length, lines, [&](int64_t i, int64_t count, T* block, T* work) {
      for (int64_t l = 0; l < count; ++l) {
        const T* const line = from + 2 * (half + 1) * (i + l);
        T* const b = block + 2 * length * l;
        if (n % 2 == 0) {
          fourier::lines<T>().pack_real(n, turn->data(), line, b);
          continue;
        }
        b[0] = line[0];
        b[1] = 0;
        for (int64_t k = 1; k <= half; ++k) {
          b[2 * k] = b[2 * (n - k)] = line[2 * k];
          b[2 * k + 1] = line[2 * k + 1];
          b[2 * (n - k) + 1] = -line[2 * k + 1];
        }
      }
      if (n % 2 == 0) return transform.run(block, length, to + n * i, length, count, work);
      transform.run(block, n, block, n, count, work);
      for (int64_t k = 0; k < count * n; ++k) to[n * i + k] = block[2 * k];
    });
  });
}

const rb::KernelSpec kKernels[] = {
    {"fourier", rb::wrap<fourier_kernel>},
    {"half_fourier", rb::wrap<half_fourier_kernel>},
    {"fourier_to_real", rb::wrap<fourier_to_real_kernel>},
};

}  // namespace

int32_t add_fourier(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu
