// searchsorted.
#include <algorithm>

#include "common/extremes.h"
#include "common/kernels.h"
#include "common/view.h"

namespace rbcpu {
namespace {

constexpr int kBlock = 32;

// The number of keys below each of kBlock values, or not above it if `Right`; no key is NaN. The
// searches run side by side: all take the same steps, none of which branches.
template <bool Right, class C>
void search_block(const C* keys, int64_t n, const C* value, int64_t* found) {
  const auto passes = [](C key, C x) { return Right ? key <= x : key < x; };
  std::fill_n(found, kBlock, 0);
  for (int64_t rest = n; rest > 1;) {
    const int64_t half = rest / 2;
    for (int k = 0; k < kBlock; ++k)
      found[k] += half & -static_cast<int64_t>(passes(keys[found[k] + half - 1], value[k]));
    rest -= half;
  }
  for (int k = 0; k < kBlock && n > 0; ++k) found[k] += passes(keys[found[k]], value[k]);
}

// Sorted keys, of which those that are NaN count as the largest.
template <class C>
struct Keys {
  const C* keys;
  int64_t n, numbers;  // numbers: those before the first NaN

  Keys(const C* keys, int64_t n) : keys(keys), n(n), numbers(n) {
    while (numbers > 0 && is_nan(keys[numbers - 1])) --numbers;
  }
  template <class T>
  void find(const T* value, int64_t values, bool right, int64_t* found) const {
    for (int64_t i = 0; i < values; i += kBlock) {
      const int count = static_cast<int>(std::min<int64_t>(kBlock, values - i));
      C x[kBlock] = {};
      int64_t place[kBlock];
      for (int k = 0; k < count; ++k) x[k] = C(value[i + k]);
      right ? search_block<true>(keys, numbers, x, place)
            : search_block<false>(keys, numbers, x, place);
      for (int k = 0; k < count; ++k)
        found[i + k] = is_nan(x[k]) ? (right ? n : numbers) : place[k];
    }
  }
};

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
    const Keys<C> sorted_keys(keys.data(), n);
    const T* x = reinterpret_cast<const T*>(wanted.data());
    rb::parallel_for(out.numel, 2048, [&](int64_t begin, int64_t end) {
      sorted_keys.find(x + begin, end - begin, right, found.data() + begin);
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
