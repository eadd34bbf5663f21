// Resizing along the last dimensions by weights that depend on the position, and its transpose.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/kernels.h"
#include "common/level.h"
#include "common/operands.h"
#include "common/workspace.h"
#include "sampling/cubic.h"
#include "sampling/resample_rows.h"

namespace rbcpu {
namespace {

inline const ResampleTable<float>& table(float) { return RB_PICK_LEVEL(resample_table).f32; }
inline const ResampleTable<double>& table(double) { return RB_PICK_LEVEL(resample_table).f64; }

enum class Mode { kNearest, kNearestExact, kLinear, kCubic };
Mode mode_of(const char* name) {
  if (!std::strcmp(name, "nearest")) return Mode::kNearest;
  if (!std::strcmp(name, "nearest-exact")) return Mode::kNearestExact;
  return std::strcmp(name, "linear") ? Mode::kCubic : Mode::kLinear;
}
int taps_of(Mode mode) { return mode == Mode::kLinear ? 2 : mode == Mode::kCubic ? 4 : 1; }

/// The number of elements that results [begin, end) read, beginning at `first`.
template <class T>
int64_t reach(const Taps<T>& taps, int64_t begin, int64_t end, int64_t* first) {
  int32_t low = INT32_MAX, high = 0;
  for (int k = 0; k < taps.count; ++k) {
    for (int64_t o = begin; o < end; ++o) {
      low = std::min(low, taps.index[k * taps.out + o]);
      high = std::max(high, taps.index[k * taps.out + o]);
    }
  }
  *first = low;
  return high - low + 1;
}

// The taps of one direction and their memory.
template <class T>
class Direction {
 public:
  Direction(int64_t in, int64_t out, double step, Mode mode, bool align)
      : count_(taps_of(mode)),
        in_(in),
        out_(out),
        index_(static_cast<size_t>(count_ * out)),
        weight_(static_cast<size_t>(count_ > 1 ? count_ * out : 0)),
        start_(static_cast<size_t>((out + kTapBlock - 1) / kTapBlock)) {
    if (count_ == 1) {
      nearest(static_cast<float>(step), mode == Mode::kNearestExact);
    } else {
      weigh(static_cast<T>(step), align);
    }
    narrow_ = find_starts();
  }
  Taps<T> taps() const {
    return {count_,
            in_,
            out_,
            index_.data(),
            count_ > 1 ? weight_.data() : nullptr,
            narrow_ ? start_.data() : nullptr};
  }

 private:
  // This uses float32 for every dtype, since the rounding decides which neighbour is taken.
  void nearest(float step, bool exact) {
    for (int64_t o = 0; o < out_; ++o) {
      const float place = static_cast<float>(o) + (exact ? 0.5f : 0.0f);
      const float at = std::min(std::floor(place * step), static_cast<float>(in_ - 1));
      index_[o] = static_cast<int32_t>(std::min(static_cast<int64_t>(at), in_ - 1));
    }
  }
  void weigh(T step, bool align) {
    for (int64_t o = 0; o < out_; ++o) {
      T source = align ? T(o) * step : (T(o) + T(0.5)) * step - T(0.5);
      if (count_ == 2) source = std::max(source, T(0));
      const T low = std::floor(source), part = source - low;
      const int64_t first = static_cast<int64_t>(low) - (count_ == 2 ? 0 : 1);
      for (int k = 0; k < count_; ++k)
        index_[k * out_ + o] = static_cast<int32_t>(std::clamp<int64_t>(first + k, 0, in_ - 1));
      T weight[kMaxTaps] = {1 - part, part};
      if (count_ == 4) cubic_weights(part, weight);
      for (int k = 0; k < count_; ++k) weight_[k * out_ + o] = weight[k];
    }
  }
  bool find_starts() {
    for (int64_t o = 0; o < out_; o += kTapBlock) {
      int64_t first;
      if (reach(taps(), o, std::min<int64_t>(out_, o + kTapBlock), &first) > 2 * kTapBlock)
        return false;
      start_[o / kTapBlock] = static_cast<int32_t>(first);
    }
    return true;
  }

  const int count_;
  const int64_t in_, out_;
  const rb::Scratch<int32_t> index_;
  const rb::Scratch<T> weight_;
  const rb::Scratch<int32_t> start_;
  bool narrow_ = false;
};

// `planes` arrays of in[0] * ... * in[rank - 1] positions with `inner` elements each.
struct Planes {
  int rank;
  int64_t planes, inner, in[3], out[3];

  // Elements of one position along direction d, or of a plane if d is -1.
  int64_t in_size(int d) const { return size_below(in, d); }
  int64_t out_size(int d) const { return size_below(out, d); }

 private:
  int64_t size_below(const int64_t* sizes, int d) const {
    int64_t n = inner;
    for (int e = d + 1; e < rank; ++e) n *= sizes[e];
    return n;
  }
};

template <class T>
class Resampling {
 public:
  Resampling(const Planes& planes, const Taps<T>* taps)
      : p_(planes), taps_(taps), table_(table(T())) {}

  /// Compute results [begin, end) of direction d. `from` points to the first element, `to` to
  /// result `begin`.
  void expand(const T* from, int d, int64_t begin, int64_t end, T* to) const {
    const Taps<T>& taps = taps_[d];
    const bool last = d == p_.rank - 1;
    if (last && p_.inner == 1) return table_.line(from, taps, to);
    const int64_t n = p_.out_size(d), below = p_.in_size(d);
    int64_t first = 0;
    const int64_t used = last ? 0 : reach(taps, begin, end, &first);
    const Workspace<T> rows(used * n);
    if (!last) {
      for (int64_t i = 0; i < used; ++i)
        expand(from + (first + i) * below, d + 1, 0, p_.out[d + 1], rows.data() + i * n);
      from = rows.data();
    }
    for (int64_t o = begin; o < end; ++o, to += n) {
      const T* row[kMaxTaps];
      T weight[kMaxTaps];
      for (int k = 0; k < taps.count; ++k) {
        row[k] = from + (taps.index[k * taps.out + o] - first) * n;
        if (taps.weight) weight[k] = taps.weight[k * taps.out + o];
      }
      table_.mix(row, taps.weight ? weight : nullptr, taps.count, n, to);
    }
  }

  /// The transpose: compute elements [begin, end) of direction d from all results.
  void fold(const T* from, int d, int64_t begin, int64_t end, T* to) const {
    const Taps<T>& taps = taps_[d];
    const bool last = d == p_.rank - 1;
    const int64_t n = p_.out_size(d), below = p_.in_size(d);
    if (last && p_.inner == 1) {
      std::fill_n(to, end - begin, T(0));
      return table_.spread_line(from, taps, to);
    }
    const Workspace<T> sums(last ? 0 : (end - begin) * n);
    T* const rows = last ? to : sums.data();
    std::fill_n(rows, (end - begin) * n, T(0));
    for (int64_t o = 0; o < taps.out; ++o) {
      for (int k = 0; k < taps.count; ++k) {
        const int64_t i = taps.index[k * taps.out + o];
        if (i < begin || i >= end) continue;
        const T weight = taps.weight ? taps.weight[k * taps.out + o] : T(1);
        table_.add_row(from + o * n, weight, n, rows + (i - begin) * n);
      }
    }
    if (last) return;
    for (int64_t i = begin; i < end; ++i)
      fold(rows + (i - begin) * n, d + 1, 0, p_.in[d + 1], to + (i - begin) * below);
  }

 private:
  const Planes& p_;
  const Taps<T>* taps_;
  const ResampleTable<T>& table_;
};

// The geometry of one call. With channels last, each image is one plane and its channels are the
// `inner` elements.
struct Call {
  Planes planes;
  const double* steps;
  Mode mode;
  bool align;
  int64_t blocks, rows;  // blocks of direction 0 of the written tensor, and rows of each

  Call(const rb::Args& a, const RbTensor& in, const RbTensor& out, bool last, int first)
      : mode(mode_of(a.str(first + 1))), align(a.boolean(first + 2)) {
    planes.rank = in.ndim - 2;
    planes.planes = in.shape[0] * (last ? 1 : in.shape[1]);
    planes.inner = last ? in.shape[1] : 1;
    for (int d = 0; d < planes.rank; ++d) {
      planes.in[d] = in.shape[d + 2];
      planes.out[d] = out.shape[d + 2];
      if (planes.in[d] > INT32_MAX || planes.out[d] > INT32_MAX)
        rb::fail(RB_E_NOTIMPL, "%s: sizes of 2**31 and more", a.op_name());
    }
    if (a.args[first].tag != RB_FLOATS || a.args[first].len != uint32_t(planes.rank))
      rb::fail(RB_E_ARG, "%s: `steps` must be %d floats, got %u", a.op_name(), planes.rank,
               a.args[first].len);
    steps = a.args[first].v.fs;
  }
  int64_t size(bool results) const { return results ? planes.out_size(-1) : planes.in_size(-1); }
  /// Divide the `n` rows of direction 0 into blocks if there are few planes.
  void divide(int64_t n) {
    constexpr int64_t kEnough = 16, kLeastRows = 8;
    const int64_t work = size(false) + size(true);
    blocks = planes.rank == 1 || planes.planes >= kEnough
                 ? 1
                 : std::clamp<int64_t>(work / kGrain, 1, std::max<int64_t>(1, n / kLeastRows));
    rows = (n + blocks - 1) / blocks;
    blocks = (n + rows - 1) / rows;
  }
  template <class F>
  void for_blocks(int64_t n, const F& f) const {
    const int64_t work = (size(false) + size(true)) / blocks + 1;
    rb::parallel_for(planes.planes * blocks, std::max<int64_t>(1, kGrain / work),
                     [&](int64_t from, int64_t to) {
                       for (int64_t i = from; i < to; ++i) {
                         const int64_t begin = i % blocks * rows;
                         f(i / blocks, begin, std::min(n, begin + rows));
                       }
                     });
  }
};

template <class T>
struct Directions {
  Direction<T> all[3];
  Taps<T> taps[3];

  explicit Directions(const Call& c)
      : all{direction(c, 0), direction(c, 1), direction(c, 2)},
        taps{all[0].taps(), all[1].taps(), all[2].taps()} {}
  static Direction<T> direction(const Call& c, int d) {
    return d < c.planes.rank
               ? Direction<T>(c.planes.in[d], c.planes.out[d], c.steps[d], c.mode, c.align)
               : Direction<T>(1, 0, 1, c.mode, c.align);
  }
};

bool is_last(const RbTensor& t) { return is_channels_last(t) && !is_dense(view_of(t)); }

// `Transposed` computes gradients of elements from gradients of results.
template <class T, bool Transposed>
void run(Call& c, const T* from, T* to) {
  using C = compute_t<T>;
  const int64_t n = Transposed ? c.planes.in[0] : c.planes.out[0];
  c.divide(n);
  const Directions<C> directions(c);
  const Resampling<C> resampling(c.planes, directions.taps);
  const int64_t read = c.size(Transposed), written = c.size(!Transposed), row = written / n;
  c.for_blocks(n, [&](int64_t plane, int64_t begin, int64_t end) {
    const T* const source = from + plane * read;
    T* const target = to + plane * written + begin * row;
    const auto compute_block = [&](const C* elements, C* results) {
      if constexpr (Transposed) {
        resampling.fold(elements, 0, begin, end, results);
      } else {
        resampling.expand(elements, 0, begin, end, results);
      }
    };
    if constexpr (std::is_same_v<T, C>) {
      compute_block(source, target);
    } else {
      const Workspace<C> wide(read), sums((end - begin) * row);
      for (int64_t i = 0; i < read; ++i) wide[i] = C(source[i]);
      compute_block(wide.data(), sums.data());
      for (int64_t i = 0; i < (end - begin) * row; ++i) target[i] = T(sums[i]);
    }
  });
}

template <bool Transposed>
void resample_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  RbTensor& result = a.ret();
  if (result.numel == 0) return;
  const bool last = is_last(x) && is_channels_last(result);
  Call c(a, Transposed ? result : x, Transposed ? x : result, last, 2);
  dispatch_dtype<kMaskFloat>(a.op_name(), x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (last)
      return run<T, Transposed>(c, static_cast<const T*>(x.data), static_cast<T*>(result.data));
    const DenseView from(view_of(x));
    const Result to(result, true);
    run<T, Transposed>(c, reinterpret_cast<const T*>(from.view.data),
                       reinterpret_cast<T*>(to.view.data));
    to.finish();
  });
}

const rb::KernelSpec kKernels[] = {
    {"resample", rb::wrap<resample_kernel<false>>, 0, kMaskFloat},
    {"resample_dx", rb::wrap<resample_kernel<true>>, 0, kMaskFloat},
};

}  // namespace

int32_t add_resample(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu
