// sort: stable, NaN counts as the largest.
#include <algorithm>

#include "kernels.h"
#include "lines.h"

namespace rbcpu {
namespace {

template <class C>
struct Item {
  C value;
  int64_t index;
};
template <class C>
bool ordered(C a, C b) {  // a strictly before b, ascending
  if constexpr (std::is_floating_point_v<C>)
    return a < b || (b != b && a == a);
  else
    return a < b;
}

void sort_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  RbTensor &values = a.ret(0), &indices = a.ret(1);
  const bool descending = a.has(2) && a.boolean(2);
  const Lines<3> lines({view_of(x), view_of(values), view_of(indices)},
                       static_cast<int>(a.integer(1)));
  dispatch_dtype<kMaskReal>("sort", x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    for_lines(lines, 32, [&](int64_t begin, int64_t end) {
      std::vector<Item<C>> items(lines.n);
      for (int64_t line = begin; line < end; ++line) {
        const T* from = static_cast<const T*>(x.data) + lines.offset(0, line);
        for (int64_t i = 0; i < lines.n; ++i) items[i] = {C(from[i * lines.step[0]]), i};
        if (descending) {
          std::stable_sort(items.begin(), items.end(), [](const Item<C>& p, const Item<C>& q) {
            return ordered(q.value, p.value);
          });
        } else {
          std::stable_sort(items.begin(), items.end(), [](const Item<C>& p, const Item<C>& q) {
            return ordered(p.value, q.value);
          });
        }
        T* to = static_cast<T*>(values.data) + lines.offset(1, line);
        int64_t* at = static_cast<int64_t*>(indices.data) + lines.offset(2, line);
        for (int64_t i = 0; i < lines.n; ++i) {
          to[i * lines.step[1]] = T(items[i].value);
          at[i * lines.step[2]] = items[i].index;
        }
      }
    });
  });
}

const rb::KernelSpec kKernels[] = {{"sort", rb::wrap<sort_kernel>, 0, kMaskReal}};

}  // namespace

int32_t add_sort(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu
