// searchsorted.
#include <algorithm>

#include "common/extremes.h"
#include "common/kernels.h"
#include "common/view.h"

namespace rbcpu {
namespace {

template <class C>
bool before(C a, C b) {  // NaN counts as the largest
  return (a < b) | (is_nan(b) & !is_nan(a));
}

// The number of sorted keys before the value, including equal keys if `Right`. The steps have no
// branches that depend on the value, so the processor overlaps the searches of several values.
template <bool Right, class C>
int64_t place_of(C value, const C* keys, int64_t n) {
  const auto passes = [value](C key) { return Right ? !before(value, key) : before(key, value); };
  if (n == 0) return 0;
  const C* base = keys;
  for (int64_t rest = n; rest > 1;) {
    const int64_t half = rest / 2;
    base += half & -static_cast<int64_t>(passes(base[half - 1]));
    rest -= half;
  }
  return base - keys + passes(*base);
}

void searchsorted_kernel(const rb::Args& a) {
  const RbTensor& sorted = a.tensor(0);
  RbTensor& out = a.ret();
  const bool right = a.has(2) && a.boolean(2);
  if (sorted.ndim != 1)
    rb::fail(RB_E_ARG, "searchsorted: `sorted_sequence` must have 1 dimension, got %d",
             sorted.ndim);
  const int64_t n = sorted.shape[0];
  // Where input is a number it stands for one value of the sequence's dtype.
  rb::Scratch<char> wanted(std::max<int64_t>(out.numel, 1) * 16);
  View want = dense_view(wanted.data(), sorted.dtype_id, view_of(out));
  if (a.args[1].tag == RB_TENSOR) {
    copy_view(want, view_of(a.tensor(1)));
  } else {
    fill_view(want, a.args[1]);
  }
  rb::Scratch<int64_t> found(out.numel);
  dispatch_dtype<kMaskReal>("searchsorted", sorted.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    rb::Scratch<C> keys(n);
    const T* from = static_cast<const T*>(sorted.data);
    for (int64_t i = 0; i < n; ++i) keys[i] = C(from[i * sorted.strides[0]]);
    const T* x = reinterpret_cast<const T*>(wanted.data());
    rb::parallel_for(out.numel, 2048, [&](int64_t begin, int64_t end) {
      const auto place = right ? place_of<true, C> : place_of<false, C>;
      for (int64_t i = begin; i < end; ++i) found[i] = place(C(x[i]), keys.data(), n);
    });
  });
  copy_view(view_of(out), dense_view(found.data(), RB_I64, view_of(out)));
}

const rb::KernelSpec kKernels[] = {{"searchsorted", rb::wrap<searchsorted_kernel>, 0, kMaskReal}};

}  // namespace

int32_t add_search(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu
