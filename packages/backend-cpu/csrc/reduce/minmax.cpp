// amax, amin, max.dim, min.dim, argmax, argmin. NaN counts as the extreme; of equals the first
// index is taken.
#include "common/extremes.h"
#include "common/kernels.h"
#include "reduce/columns.h"
#include "reduce/integers.h"
#include "reduce/reduce.h"
#include "reduce/rows.h"

namespace rbcpu {
namespace {

// Whether x replaces `best`.
template <bool Max, class C>
bool beats(C x, C best) {
  return (Max ? x > best : x < best) || (is_nan(x) && !is_nan(best));
}
template <bool Max, class C>
C extreme_of(const C* x, int64_t n) {
  if constexpr (std::is_floating_point_v<C>) {
    return Max ? rows<C>().max(x, n) : rows<C>().min(x, n);
  } else {
    return Max ? integers<C>().max(x, n) : integers<C>().min(x, n);
  }
}

template <class T, bool Max>
struct Extreme {
  using C = compute_t<T>;
  struct Acc {  // a struct, because a vector of bool would not do
    C value;
  };
  static Acc identity() { return {worst<C>(Max)}; }
  static void step(Acc& acc, C x, int64_t) {
    acc.value = (Max ? x > acc.value : x < acc.value) || is_nan(x) ? x : acc.value;
  }
  static void merge(Acc& acc, const Acc& later) { step(acc, later.value, 0); }
  static void block(Acc& acc, const C* x, int64_t n, int64_t) {
    if (n > 0) step(acc, extreme_of<Max>(x, n), 0);
  }
  static void columns(Acc* acc, const C* x, int64_t stride, int64_t n, int64_t cols, int64_t) {
    static_assert(sizeof(Acc) == sizeof(C));
    if constexpr (std::is_floating_point_v<C>) {
      const Columns<C>& f = rbcpu::columns<C>();
      (Max ? f.max : f.min)(x, stride, n, cols, &acc->value);
    } else {
      const Integers<C>& f = integers<C>();
      (Max ? f.column_max : f.column_min)(x, stride, n, cols, &acc->value);
    }
  }
  static T finish(const Acc& acc, int64_t) { return convert<T>(acc.value); }
};

template <class T, bool Max>
struct ArgExtreme {
  using C = compute_t<T>;
  struct Acc {
    C value;
    int64_t index;  // -1: nothing yet
  };
  static Acc identity() { return {worst<C>(Max), -1}; }
  static void step(Acc& acc, C x, int64_t index) {
    if (acc.index < 0 || beats<Max>(x, acc.value)) acc = {x, index};
  }
  static void merge(Acc& acc, const Acc& later) {
    if (later.index >= 0) step(acc, later.value, later.index);
  }
  static void block(Acc& acc, const C* x, int64_t n, int64_t index) {
    if (n <= 0) return;
    const C best = extreme_of<Max>(x, n);
    if (acc.index >= 0 && !beats<Max>(best, acc.value)) return;
    int64_t i = 0;
    if constexpr (std::is_floating_point_v<C>) {
      i = rows<C>().find(x, n, best);
    } else {
      while (x[i] != best) ++i;
    }
    acc = {best, index + i};
  }
  static void columns(Acc* acc, const C* x, int64_t stride, int64_t n, int64_t cols,
                      int64_t index) {
    if constexpr (std::is_floating_point_v<C>) {
      const Columns<C>& f = rbcpu::columns<C>();
      C top[kColumns];
      typename Columns<C>::Index at[kColumns];
      (Max ? f.argmax : f.argmin)(x, stride, n, cols, top, at);
      for (int64_t j = 0; j < cols; ++j) step(acc[j], top[j], index + at[j]);
    } else {
      step_columns<ArgExtreme<T, Max>>(acc, x, stride, n, cols, index);
    }
  }
};

template <bool Max>
void extreme_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  RbTensor& out = a.ret();
  bool reduced[kMaxDims];
  mark_dims(a, 1, x.ndim, reduced);
  const RbTensor* outs[] = {&out};
  const Reduction r(view_of(x), reduced, outs, 1);
  check_not_empty(a.op_name(), r);
  dispatch_dtype<kMaskReal>(a.op_name(), x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    reduce_to<Extreme<T, Max>, T>(r, Native<T>(r.data), out);
  });
}

// Results `values` (may be null) and `indices`.
template <bool Max>
void run_arg(const rb::Args& a, RbTensor* values, RbTensor& indices) {
  const RbTensor& x = a.tensor(0);
  bool reduced[kMaxDims];
  mark_dims(a, 1, x.ndim, reduced);
  const RbTensor* outs[] = {&indices, values};
  const Reduction r(view_of(x), reduced, outs, values ? 2 : 1);
  check_not_empty(a.op_name(), r);
  dispatch_dtype<kMaskReal>(a.op_name(), x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    int64_t* at = static_cast<int64_t*>(indices.data);
    T* best = values ? static_cast<T*>(values->data) : nullptr;
    reduce<T, ArgExtreme<T, Max>>(r, [&](int64_t k, const auto& acc) {
      at[offset_at(k, r.nk, r.kept_shape, r.kept_out[0])] = acc.index;
      if (best) best[offset_at(k, r.nk, r.kept_shape, r.kept_out[1])] = convert<T>(acc.value);
    });
  });
}
template <bool Max>
void with_index_kernel(const rb::Args& a) {
  run_arg<Max>(a, &a.ret(0), a.ret(1));
}
template <bool Max>
void arg_kernel(const rb::Args& a) {
  run_arg<Max>(a, nullptr, a.ret(0));
}

const rb::KernelSpec kKernels[] = {
    {"amax", rb::wrap<extreme_kernel<true>>, 0, kMaskReal},
    {"amin", rb::wrap<extreme_kernel<false>>, 0, kMaskReal},
    {"max.dim", rb::wrap<with_index_kernel<true>>, 0, kMaskReal},
    {"min.dim", rb::wrap<with_index_kernel<false>>, 0, kMaskReal},
    {"argmax", rb::wrap<arg_kernel<true>>, 0, kMaskReal},
    {"argmin", rb::wrap<arg_kernel<false>>, 0, kMaskReal},
};

}  // namespace

int32_t add_minmax(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu
