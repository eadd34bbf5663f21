#include "index/indexing.h"

#include <algorithm>

#include "common/extremes.h"
#include "common/stream.h"

namespace rbcpu {
namespace {

struct Wide {
  uint64_t a, b;
};

// Where the index does not change along the run, whole slices move.
template <class T>
int gather(const LoopArgs* a) {
  const int64_t step = static_cast<const IndexStep*>(a->ctx)->bytes;
  const char *index = a->in[0], *from = a->in[1];
  char* to = a->out;
  const int64_t si = a->in_stride[0], sf = a->in_stride[1], so = a->out_stride, n = a->n;
  if (si == 0) {
    from += *reinterpret_cast<const int64_t*>(index) * step;
    if (sf == sizeof(T) && so == sizeof(T)) {
      std::memcpy(to, from, n * sizeof(T));
      return 0;
    }
    for (int64_t i = 0; i < n; ++i)
      *reinterpret_cast<T*>(to + i * so) = *reinterpret_cast<const T*>(from + i * sf);
    return 0;
  }
  for (int64_t i = 0; i < n; ++i) {
    const int64_t k = *reinterpret_cast<const int64_t*>(index + i * si);
    *reinterpret_cast<T*>(to + i * so) = *reinterpret_cast<const T*>(from + i * sf + k * step);
  }
  return 0;
}

template <class T>
int scatter(const LoopArgs* a) {
  const int64_t step = static_cast<const IndexStep*>(a->ctx)->bytes;
  const char *index = a->in[0], *from = a->in[1];
  char* to = a->out;
  const int64_t si = a->in_stride[0], sf = a->in_stride[1], so = a->out_stride, n = a->n;
  if (si == 0) {
    to += *reinterpret_cast<const int64_t*>(index) * step;
    if (so == sizeof(T) && sf == sizeof(T)) {
      std::memmove(to, from, n * sizeof(T));
    } else if (so == sizeof(T) && sf == 0) {
      std::fill_n(reinterpret_cast<T*>(to), n, *reinterpret_cast<const T*>(from));
    } else {
      for (int64_t i = 0; i < n; ++i)
        *reinterpret_cast<T*>(to + i * so) = *reinterpret_cast<const T*>(from + i * sf);
    }
    return 0;
  }
  for (int64_t i = 0; i < n; ++i) {
    const int64_t k = *reinterpret_cast<const int64_t*>(index + i * si);
    *reinterpret_cast<T*>(to + i * so + k * step) = *reinterpret_cast<const T*>(from + i * sf);
  }
  return 0;
}

struct Add {
  template <class C>
  static C join(C to, C x) {
    return C(to + x);
  }
};
struct Multiply {
  template <class C>
  static C join(C to, C x) {
    return C(to * x);
  }
};
struct Maximum {
  template <class C>
  static C join(C to, C x) {
    return to > x || is_nan(to) ? to : x;
  }
};

// Replace the element at the index by join(element, value). The value is multiplied by the factor
// if there is one.
template <class T, class Join>
int scatter_join(const LoopArgs* a) {
  using C = compute_t<T>;
  const IndexStep& ctx = *static_cast<const IndexStep*>(a->ctx);
  const int64_t si = a->in_stride[0], sf = a->in_stride[1], so = a->out_stride, n = a->n;
  const C factor = ctx.factor ? *static_cast<const C*>(ctx.factor) : C(1);
  if (si == 0 && sf == sizeof(T) && so == sizeof(C) && !ctx.factor) {
    C* to = reinterpret_cast<C*>(a->out + *reinterpret_cast<const int64_t*>(a->in[0]) * ctx.bytes);
    const T* from = reinterpret_cast<const T*>(a->in[1]);
    for (int64_t i = 0; i < n; ++i) to[i] = Join::join(to[i], C(from[i]));
    return 0;
  }
  for (int64_t i = 0; i < n; ++i) {
    const int64_t k = *reinterpret_cast<const int64_t*>(a->in[0] + i * si);
    C& to = *reinterpret_cast<C*>(a->out + i * so + k * ctx.bytes);
    const C x = C(*reinterpret_cast<const T*>(a->in[1] + i * sf));
    to = Join::join(to, ctx.factor ? C(factor * x) : x);
  }
  return 0;
}
template <uint64_t Mask, class Join>
Loop scatter_join_loop(int dtype) {
  Loop loop = nullptr;
  visit_dtype<Mask>(dtype,
                    [&](auto tag) { loop = &scatter_join<typename decltype(tag)::type, Join>; });
  return loop;
}

}  // namespace

Loop gather_loop(int item) {
  switch (item) {
    case 1:
      return gather<uint8_t>;
    case 2:
      return gather<uint16_t>;
    case 4:
      return gather<uint32_t>;
    case 8:
      return gather<uint64_t>;
    default:
      return gather<Wide>;
  }
}
Loop scatter_loop(int item) {
  switch (item) {
    case 1:
      return scatter<uint8_t>;
    case 2:
      return scatter<uint16_t>;
    case 4:
      return scatter<uint32_t>;
    case 8:
      return scatter<uint64_t>;
    default:
      return scatter<Wide>;
  }
}
Loop scatter_add_loop(int dtype) { return scatter_join_loop<kMaskAll, Add>(dtype); }
Loop scatter_multiply_loop(int dtype) { return scatter_join_loop<kMaskAll, Multiply>(dtype); }
Loop scatter_maximum_loop(int dtype) { return scatter_join_loop<kMaskReal, Maximum>(dtype); }

Accumulator::Accumulator(const RbTensor& x, const RbTensor& out) : view(view_of(out)), out_(out) {
  if (kMaskHalf >> out.dtype_id & 1) {
    sums_ = std::make_unique<rb::Scratch<float>>(out.numel);
    view = dense_view(sums_->data(), RB_F32, view);
    copy_view(view, view_of(x));
  } else {
    copy_into_result(out, x);
  }
}
void Accumulator::store() const {
  if (sums_) copy_view(view_of(out_), view);
}

CheckedIndex::CheckedIndex(const char* op, const RbTensor& index, int64_t size, int dim,
                           bool negative, bool expanded) {
  if (!(kMaskInt >> index.dtype_id & 1)) {
    rb::fail(RB_E_TYPE, "%s: expected indices of int64, got %s", op, kDTypeNames[index.dtype_id]);
  }
  view = view_of(index);
  const auto repeats = [&](int d) {
    return expanded && index.strides[d] == 0 && index.shape[d] > 1;
  };
  for (int d = 0; d < view.ndim; ++d) {
    if (repeats(d)) view.shape[d] = 1;
  }
  if (index.dtype_id != RB_I64 || !is_dense(view)) copy();
  const int64_t low = negative ? -size : 0, n = view.numel();
  const int64_t* v = data();
  // Two sweeps in one: whether one is out of range, whether one is negative. Each is a sign bit.
  int found = 0;
  rb::parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
    int64_t outside = 0, below = 0;
    for (int64_t i = begin; i < end; ++i) {
      outside |= (v[i] - low) | (size - 1 - v[i]);
      below |= v[i];
    }
    const int bits = (outside < 0) << 1 | (below < 0);
    if (bits) __atomic_fetch_or(&found, bits, __ATOMIC_RELAXED);
  });
  if (found & 2) {
    int64_t i = 0;
    while (v[i] >= low && v[i] < size) ++i;
    rb::fail(RB_E_INDEX, "%s: index %lld is out of range for dimension %d with size %lld", op,
             static_cast<long long>(v[i]), dim, static_cast<long long>(size));
  }
  if (found) {
    if (!values_) copy();
    int64_t* own = values_->data();
    rb::parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) own[i] += own[i] < 0 ? size : 0;
    });
  }
  for (int d = 0; d < view.ndim; ++d) {
    if (!repeats(d)) continue;
    view.shape[d] = index.shape[d];
    view.strides[d] = 0;
  }
}

void CheckedIndex::copy() {
  values_ = std::make_unique<rb::Scratch<int64_t>>(view.numel());
  const View dense = dense_view(values_->data(), RB_I64, view);
  copy_view(dense, view);
  view = dense;
}

int run_split(LoopSpace& space, Loop loop, int64_t busy) {
  int64_t total = 1;
  int split = -1;
  for (int d = 0; d < space.ndim; ++d) {
    total *= space.shape[d];
    if (busy >> d & 1 || space.shape[d] < 2) continue;
    if (split < 0 || space.shape[d] > space.shape[split]) split = d;
  }
  if (total == 0) return 0;
  constexpr int64_t kSerial = INT64_MAX;
  if (split < 0 || total <= kGrain) return run_space(space, loop, kSerial);
  const int64_t size = space.shape[split], per = total / size;
  // Runs of the split dimension stay long enough to be worth a task of their own.
  const int64_t grain = std::max<int64_t>(kGrain / per, std::min<int64_t>(size, 64));
  rb::parallel_for(size, grain, [&](int64_t begin, int64_t end) {
    LoopSpace part = space;
    part.shape[split] = end - begin;
    part.out += begin * part.out_strides[split];
    for (int k = 0; k < part.nin; ++k) part.in[k] += begin * part.in_strides[k][split];
    run_space(part, loop, kSerial);
  });
  return 0;
}

void copy_rows(const char* table, const int64_t* index, int64_t n, int64_t row_bytes, char* out) {
  if (n == 0 || row_bytes == 0) return;
  const bool stream = n * row_bytes >= kStreamBytes;
  // The rows lie anywhere: those of the next few kilobytes are fetched by their addresses.
  constexpr int64_t kAhead = 4096, kLine = 64;
  const int64_t ahead = std::max<int64_t>(1, kAhead / row_bytes);
  const int64_t fetched = std::min(row_bytes, kAhead);
  const int64_t grain =
      std::max<int64_t>(1, kGrain * static_cast<int64_t>(sizeof(float)) / row_bytes);
  rb::parallel_for(n, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (i + ahead < end) {
        const char* next = table + index[i + ahead] * row_bytes;
        for (int64_t b = 0; b < fetched; b += kLine) __builtin_prefetch(next + b);
      }
      const char* from = table + index[i] * row_bytes;
      char* to = out + i * row_bytes;
      if (stream) {
        stream_copy(to, from, row_bytes);
      } else {
        std::memcpy(to, from, row_bytes);
      }
    }
    if (stream) stream_fence();
  });
}

int64_t freeze_dim(const View& v, int dim, int64_t* strides) {
  for (int d = 0; d < v.ndim; ++d) strides[d] = d == dim ? 0 : v.strides[d] * v.item();
  return v.ndim ? v.strides[dim] * v.item() : 0;
}

}  // namespace rbcpu
