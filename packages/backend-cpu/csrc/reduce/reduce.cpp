// sum, mean, prod.dim, any, all, count_nonzero; and the geometry of every reduction.
#include "reduce/reduce.h"

#include "common/kernels.h"
#include "common/level.h"
#include "norm/norm.h"
#include "reduce/columns.h"
#include "reduce/integers.h"
#include "reduce/rows.h"

namespace rbcpu {

const RowTable& row_table() {
  static const RowTable& table = RB_PICK_LEVEL(row_table);
  return table;
}

const IntegerTable& integer_table() {
  static const IntegerTable& table = RB_PICK_LEVEL(integer_table);
  return table;
}

Reduction::Reduction(const View& x, const bool* reduced, const RbTensor* const* outs, int nouts)
    : data(x.data) {
  for (int d = 0, o = 0; d < x.ndim; ++d) {
    const bool keepdim = nouts > 0 && outs[0]->ndim == x.ndim;
    if (reduced[d]) {
      count *= x.shape[d];
      if (x.shape[d] != 1) {
        red_shape[nr] = x.shape[d];
        red_in[nr++] = x.strides[d];
      }
      if (keepdim) ++o;
      continue;
    }
    outputs *= x.shape[d];
    if (x.shape[d] != 1) {
      kept_shape[nk] = x.shape[d];
      kept_in[nk] = x.strides[d];
      for (int i = 0; i < nouts; ++i) kept_out[i][nk] = outs[i]->strides[o];
      ++nk;
    }
    ++o;
  }
  merge_kept(nouts);
  merge_reduced();
}

void Reduction::merge_kept(int nouts) {
  int last = 0;
  for (int d = 1; d < nk; ++d) {
    bool ok = kept_in[last] == kept_in[d] * kept_shape[d];
    for (int i = 0; i < nouts; ++i) ok = ok && kept_out[i][last] == kept_out[i][d] * kept_shape[d];
    if (ok) {
      kept_shape[last] *= kept_shape[d];
    } else {
      kept_shape[++last] = kept_shape[d];
    }
    kept_in[last] = kept_in[d];
    for (int i = 0; i < nouts; ++i) kept_out[i][last] = kept_out[i][d];
  }
  if (nk) nk = last + 1;
}

void Reduction::merge_reduced() {
  int last = 0;
  for (int d = 1; d < nr; ++d) {
    if (red_in[last] == red_in[d] * red_shape[d]) {
      red_shape[last] *= red_shape[d];
    } else {
      red_shape[++last] = red_shape[d];
    }
    red_in[last] = red_in[d];
  }
  if (nr) nr = last + 1;
}

void mark_dims(const rb::Args& a, int arg, int ndim, bool* reduced) {
  const bool all = !a.has(arg) || (a.args[arg].tag == RB_INTS && a.args[arg].len == 0);
  for (int d = 0; d < ndim; ++d) reduced[d] = all;
  if (all) return;
  for (int64_t d : a.ints(arg)) {
    if (d < 0 || (d >= ndim && !(ndim == 0 && d == 0)))
      rb::fail(RB_E_INDEX, "%s: dimension %lld is out of range", a.op_name(),
               static_cast<long long>(d));
    if (ndim) reduced[d] = true;
  }
}

void check_not_empty(const char* op, const Reduction& r) {
  if (r.count == 0 && r.outputs > 0)
    rb::fail(RB_E_ARG, "%s: cannot reduce over a dimension of size 0", op);
}

namespace {

constexpr uint64_t kMaskWhole = kMaskInt | kMaskBool;
constexpr uint64_t kMaskMean = kMaskFloat | kMaskComplex;

template <class T>
using sum_t = std::conditional_t<
    is_float_v<T>, double,
    std::conditional_t<is_complex_v<T>, c128,
                       std::conditional_t<std::is_unsigned_v<T>, uint64_t, int64_t>>>;

template <class T>
struct Sum {
  using C = compute_t<T>;
  using Acc = sum_t<T>;
  static Acc identity() { return Acc(0); }
  static void step(Acc& acc, C x, int64_t) { acc += Acc(x); }
  static void merge(Acc& acc, const Acc& later) { acc += later; }
  static void block(Acc& acc, const C* x, int64_t n, int64_t) {
    if constexpr (std::is_floating_point_v<C>) {
      acc += rows<C>().sum(x, n);
    } else if constexpr (std::is_integral_v<C>) {
      acc += static_cast<Acc>(integers<C>().sum(x, n));
    } else {
      for (int64_t i = 0; i < n; ++i) acc += Acc(x[i]);
    }
  }
  static void columns(Acc* acc, const C* x, int64_t stride, int64_t rows, int64_t cols,
                      int64_t index) {
    if constexpr (std::is_floating_point_v<C>) {
      norm_rows<C>().column_sums(x, stride, rows, cols, acc);
    } else {
      step_columns<Sum<T>>(acc, x, stride, rows, cols, index);
    }
  }
  static T finish(const Acc& acc, int64_t) { return convert<T>(acc); }
};
// Sums what is not NaN, of floats.
template <class T>
struct NanSum : Sum<T> {
  using C = compute_t<T>;
  static void step(double& acc, C x, int64_t) { acc += x == x ? static_cast<double>(x) : 0.0; }
  static void block(double& acc, const C* x, int64_t n, int64_t) { acc += rows<C>().nansum(x, n); }
  static void columns(double* acc, const C* x, int64_t stride, int64_t rows, int64_t cols,
                      int64_t) {
    rbcpu::columns<C>().nansum(x, stride, rows, cols, acc);
  }
};
template <class T>
struct Mean : Sum<T> {
  static T finish(const typename Sum<T>::Acc& acc, int64_t n) {
    return convert<T>(acc / static_cast<double>(n));
  }
};
template <class T>
struct Prod {
  using C = compute_t<T>;
  using Acc = sum_t<T>;
  static Acc identity() { return Acc(1); }
  static void step(Acc& acc, C x, int64_t) { acc *= Acc(x); }
  static void merge(Acc& acc, const Acc& later) { acc *= later; }
  static void block(Acc& acc, const C* x, int64_t n, int64_t) {
    if constexpr (std::is_floating_point_v<C>) {
      acc *= rows<C>().prod(x, n);
    } else {
      for (int64_t i = 0; i < n; ++i) acc *= Acc(x[i]);
    }
  }
  static void columns(Acc* acc, const C* x, int64_t stride, int64_t rows, int64_t cols,
                      int64_t index) {
    if constexpr (std::is_floating_point_v<C>) {
      rbcpu::columns<C>().prod(x, stride, rows, cols, acc);
    } else {
      step_columns<Prod<T>>(acc, x, stride, rows, cols, index);
    }
  }
  static T finish(const Acc& acc, int64_t) { return convert<T>(acc); }
};

template <class T, bool All>
struct Truth {
  using C = compute_t<T>;
  using Acc = uint8_t;  // not bool: threads write neighbours of the partial results
  static Acc identity() { return All; }
  static void step(Acc& acc, C x, int64_t) {
    if constexpr (All) {
      acc &= x != C(0);
    } else {
      acc |= x != C(0);
    }
  }
  static void merge(Acc& acc, const Acc& later) { acc = All ? acc & later : acc | later; }
  static void block(Acc& acc, const C* x, int64_t n, int64_t) {
    Acc some = All;
    for (int64_t i = 0; i < n; ++i) step(some, x[i], 0);
    merge(acc, some);
  }
  static void columns(Acc* acc, const C* x, int64_t stride, int64_t rows, int64_t cols,
                      int64_t index) {
    step_columns<Truth<T, All>>(acc, x, stride, rows, cols, index);
  }
  static bool finish(const Acc& acc, int64_t) { return acc != 0; }
};
template <class T>
using Any = Truth<T, false>;
template <class T>
using Every = Truth<T, true>;

template <class T>
struct Count {
  using C = compute_t<T>;
  using Acc = int64_t;
  static Acc identity() { return 0; }
  static void step(Acc& acc, C x, int64_t) { acc += x != C(0); }
  static void merge(Acc& acc, const Acc& later) { acc += later; }
  static void block(Acc& acc, const C* x, int64_t n, int64_t) {
    for (int64_t begin = 0; begin < n; begin += kRowChunk) {
      const int64_t end = std::min(n, begin + kRowChunk);
      int32_t part = 0;
      for (int64_t i = begin; i < end; ++i) part += x[i] != C(0);
      acc += part;
    }
  }
  static void columns(Acc* acc, const C* x, int64_t stride, int64_t rows, int64_t cols,
                      int64_t index) {
    step_columns<Count<T>>(acc, x, stride, rows, cols, index);
  }
  static int64_t finish(const Acc& acc, int64_t) { return acc; }
};

// Whether a result of type `Fixed`, or of the input's (void), may have the dtype.
template <class Fixed>
constexpr bool is_result(int dtype, int input) {
  if (std::is_void_v<Fixed>) return dtype == input;
  return std::is_same_v<Fixed, bool> ? dtype == RB_BOOL8 || dtype == RB_U8 : dtype == RB_I64;
}

// A short contiguous input, all of it: what the general way does in its only run.
template <template <class> class Op, class Fixed, uint64_t Mask>
bool reduce_short(const rb::Args& a, const RbTensor& x, RbTensor& out) {
  if (a.has(1) || !(x.flags & RB_T_CONTIGUOUS) || x.numel < 1 || x.numel > kReduceBlock)
    return false;
  bool done = false;
  visit_dtype<Mask & ~kMaskHalf>(x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using R = std::conditional_t<std::is_void_v<Fixed>, T, Fixed>;
    if constexpr (std::is_same_v<T, compute_t<T>>) {
      if (!is_result<Fixed>(out.dtype_id, x.dtype_id)) return;
      auto acc = Op<T>::identity();
      Op<T>::block(acc, static_cast<const T*>(x.data), x.numel, 0);
      *static_cast<R*>(out.data) = Op<T>::finish(acc, x.numel);
      done = true;
    }
  });
  return done;
}

Reduction reduction_of(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  bool reduced[kMaxDims];
  mark_dims(a, 1, x.ndim, reduced);
  const RbTensor* outs[] = {&a.ret()};
  return Reduction(view_of(x), reduced, outs, 1);
}

// Results of type `Fixed`, whatever the input's.
template <template <class> class Op, class Fixed>
void fixed_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  RbTensor& out = a.ret();
  if (reduce_short<Op, Fixed, kMaskAll>(a, x, out)) return;
  if (!is_result<Fixed>(out.dtype_id, x.dtype_id))
    rb::fail(RB_E_INTERNAL, "%s: result dtype %s", a.op_name(), kDTypeNames[out.dtype_id]);
  const Reduction r = reduction_of(a);
  dispatch_dtype(a.op_name(), x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    reduce_to<Op<T>, Fixed>(r, Native<T>(r.data), out);
  });
}

// Results of the dtype in which the operator computes. Integers are reduced as they are where the
// result is int64, which is the usual case; else each element is converted first.
template <template <class> class Op, uint64_t Mask>
void kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  RbTensor& out = a.ret();
  if constexpr (!std::is_same_v<Op<float>, Prod<float>>) {  // its argument 1 is one dimension
    if (reduce_short<Op, void, Mask>(a, x, out)) return;
  }
  const Reduction r = reduction_of(a);
  if constexpr ((Mask & kMaskInt) != 0) {
    const auto reduce_whole = [&](auto tag) {
      using T = typename decltype(tag)::type;
      int64_t* data = static_cast<int64_t*>(out.data);
      reduce<T, Op<T>>(r, [&](int64_t k, const auto& acc) {
        data[offset_at(k, r.nk, r.kept_shape, r.kept_out[0])] = static_cast<int64_t>(acc);
      });
    };
    if (out.dtype_id == RB_I64 && visit_dtype<kMaskWhole>(x.dtype_id, reduce_whole)) return;
  }
  dispatch_dtype<Mask>(a.op_name(), out.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    with_elements<T>(x, r.data, out.dtype_id,
                     [&](const auto& in) { reduce_to<Op<T>, T>(r, in, out); });
  });
}

const rb::KernelSpec kKernels[] = {
    {"sum", rb::wrap<kernel<Sum, kMaskAll>>, RB_K_CONVERTS, kMaskAll},
    {"nansum", rb::wrap<kernel<NanSum, kMaskFloat>>, RB_K_CONVERTS, kMaskFloat},
    {"mean", rb::wrap<kernel<Mean, kMaskMean>>, RB_K_CONVERTS, kMaskMean},
    {"prod.dim", rb::wrap<kernel<Prod, kMaskAll>>, RB_K_CONVERTS, kMaskAll},
    {"any", rb::wrap<fixed_kernel<Any, bool>>},
    {"all", rb::wrap<fixed_kernel<Every, bool>>},
    {"count_nonzero", rb::wrap<fixed_kernel<Count, int64_t>>},
};

}  // namespace

int32_t add_reduce(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu
