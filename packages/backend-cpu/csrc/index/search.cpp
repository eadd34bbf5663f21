// searchsorted.
#include <algorithm>

#include "common/kernels.h"
#include "common/view.h"

namespace rbcpu {
namespace {

template <class C>
bool before(C a, C b) {  // NaN counts as the largest
  if constexpr (std::is_floating_point_v<C>)
    return a < b || (b != b && a == a);
  else
    return a < b;
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
      for (int64_t i = begin; i < end; ++i) {
        const C value = C(x[i]);
        const C* at = right ? std::upper_bound(keys.data(), keys.data() + n, value, before<C>)
                            : std::lower_bound(keys.data(), keys.data() + n, value, before<C>);
        found[i] = at - keys.data();
      }
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
