// sort and topk: stable, NaN counts as the largest. Values of up to 32 bits are packed with their
// index into one integer, whose order is that of the result.
#include <algorithm>

#include "common/kernels.h"
#include "common/level.h"
#include "index/select.h"
#include "reduce/lines.h"

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

// ---- values of up to 32 bits

template <class T>
constexpr bool is_packed_v = sizeof(compute_t<T>) <= 4;

// An integer with the order of the values: -0 equals 0, NaN is largest.
template <class C>
int32_t order_key(C x) {
  if constexpr (std::is_same_v<C, float>) {
    return float_key(x);
  } else if constexpr (std::is_same_v<C, uint32_t>) {
    return static_cast<int32_t>(x ^ 0x80000000u);
  } else {
    return static_cast<int32_t>(x);
  }
}
inline int64_t index_of(int64_t packed) { return packed & 0xffffffff; }

// Least significant digit first over the upper half; the lower half, the index, is in order
// already.
void radix_sort(int64_t* items, int64_t* spare, int64_t n) {
  if (n < 256) {
    std::sort(items, items + n);
    return;
  }
  int64_t counts[4][256] = {};
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t key = static_cast<uint32_t>(static_cast<uint64_t>(items[i]) >> 32) ^ 0x80000000u;
    ++counts[0][key & 255];
    ++counts[1][key >> 8 & 255];
    ++counts[2][key >> 16 & 255];
    ++counts[3][key >> 24];
  }
  int64_t *from = items, *to = spare;
  for (int digit = 0; digit < 4; ++digit) {
    int64_t* places = counts[digit];
    const int shift = 32 + 8 * digit;
    const uint64_t flip = digit == 3 ? 0x80 : 0;
    if (places[((static_cast<uint64_t>(from[0]) >> shift) & 255) ^ flip] == n) continue;
    int64_t sum = 0;
    for (int b = 0; b < 256; ++b) {
      const int64_t count = places[b];
      places[b] = sum;
      sum += count;
    }
    for (int64_t i = 0; i < n; ++i) {
      const int64_t item = from[i];
      to[places[((static_cast<uint64_t>(item) >> shift) & 255) ^ flip]++] = item;
    }
    std::swap(from, to);
  }
  if (from != items) std::copy(from, from + n, items);
}

const SelectTable& select_table() {
  static const SelectTable& table = RB_PICK_LEVEL(select_table);
  return table;
}

// The k first of the packed items, in order: what lies up to a bound is collected, and cut back to
// k when there is too much. The bound begins as the k-th least of the minima of groups of elements,
// which is close where the elements are in no order.
class Selection {
 public:
  explicit Selection(int64_t k)
      : k_(k),
        room_(2 * k + 4 * SelectTable::kBlock),
        groups_((2 * k + 15) / 16 * 16),
        items_(room_),
        keys_(kPiece),
        minima_(groups_) {}

  template <class T>
  const int64_t* run(const T* x, int64_t step, int64_t n, bool largest) {
    const int32_t flip = largest ? -1 : 0;
    count_ = 0;
    bound_ = INT32_MAX;
    full_ = false;
    for (int64_t begin = 0; begin < n && !full_; begin += kPiece) {
      const int64_t m = std::min(kPiece, n - begin);
      set_keys(x + begin * step, step, m, flip);
      if (begin == 0 && m >= 4 * groups_) set_bound(m);
      for (int64_t i = 0; i < m && !full_;) {
        i = select_table().collect(keys_.data(), i, m, bound_, begin, items_.data(), &count_,
                                   room_);
        if (count_ + SelectTable::kBlock > room_) cut();
      }
    }
    if (count_ > k_) cut();
    std::sort(items_.data(), items_.data() + k_);
    return items_.data();
  }

 private:
  static constexpr int64_t kPiece = 4096;

  template <class T>
  void set_keys(const T* x, int64_t step, int64_t n, int32_t flip) {
    if constexpr (std::is_same_v<T, float>) {
      if (step == 1) return select_table().float_keys(x, n, flip, keys_.data());
    }
    for (int64_t i = 0; i < n; ++i) keys_[i] = order_key(compute_t<T>(x[i * step])) ^ flip;
  }
  void set_bound(int64_t n) {
    select_table().group_minima(keys_.data(), n, groups_, minima_.data());
    std::nth_element(minima_.data(), minima_.data() + k_ - 1, minima_.data() + groups_);
    bound_ = minima_[k_ - 1];
  }
  // A later item must have a lower key than the k-th.
  void cut() {
    std::nth_element(items_.data(), items_.data() + k_ - 1, items_.data() + count_);
    count_ = k_;
    const int32_t last = static_cast<int32_t>(items_[k_ - 1] >> 32);
    full_ = last == INT32_MIN;
    if (!full_) bound_ = last - 1;
  }

  int64_t k_, room_, groups_, count_ = 0;
  int32_t bound_ = INT32_MAX;
  bool full_ = false;  // with the least key there is
  rb::Scratch<int64_t> items_;
  rb::Scratch<int32_t> keys_, minima_;
};

// ---- kernels

void sort_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  RbTensor &values = a.ret(0), &indices = a.ret(1);
  const bool descending = a.has(2) && a.boolean(2);
  const Lines<3> lines({view_of(x), view_of(values), view_of(indices)},
                       static_cast<int>(a.integer(1)));
  const int64_t n = lines.n;
  dispatch_dtype<kMaskReal>("sort", x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    const bool packed = is_packed_v<T> && n < INT32_MAX;
    for_lines(lines, 32, [&](int64_t begin, int64_t end) {
      std::vector<Item<C>> items(packed ? 0 : n);
      const rb::Scratch<int64_t> keys(packed ? 2 * n : 0);
      for (int64_t line = begin; line < end; ++line) {
        const T* from = static_cast<const T*>(x.data) + lines.offset(0, line);
        T* to = static_cast<T*>(values.data) + lines.offset(1, line);
        int64_t* at = static_cast<int64_t*>(indices.data) + lines.offset(2, line);
        const int64_t step = lines.step[0];
        if constexpr (is_packed_v<T>) {
          if (packed) {
            const int32_t flip = descending ? -1 : 0;
            for (int64_t i = 0; i < n; ++i)
              keys[i] = key_at(order_key(C(from[i * step])) ^ flip, i);
            radix_sort(keys.data(), keys.data() + n, n);
            for (int64_t i = 0; i < n; ++i) {
              const int64_t k = index_of(keys[i]);
              to[i * lines.step[1]] = from[k * step];
              at[i * lines.step[2]] = k;
            }
            continue;
          }
        }
        for (int64_t i = 0; i < n; ++i) items[i] = {C(from[i * step]), i};
        if (descending) {
          std::stable_sort(items.begin(), items.end(), [](const Item<C>& p, const Item<C>& q) {
            return ordered(q.value, p.value);
          });
        } else {
          std::stable_sort(items.begin(), items.end(), [](const Item<C>& p, const Item<C>& q) {
            return ordered(p.value, q.value);
          });
        }
        for (int64_t i = 0; i < n; ++i) {
          to[i * lines.step[1]] = T(items[i].value);
          at[i * lines.step[2]] = items[i].index;
        }
      }
    });
  });
}

void topk_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  RbTensor &values = a.ret(0), &indices = a.ret(1);
  const int64_t k = a.integer(1);
  const bool largest = !a.has(3) || a.boolean(3);
  const Lines<3> lines({view_of(x), view_of(values), view_of(indices)},
                       static_cast<int>(a.integer(2)));
  const int64_t n = lines.n;
  if (k < 0 || k > n) {
    rb::fail(RB_E_ARG, "topk: k = %lld is out of range for a dimension of size %lld",
             static_cast<long long>(k), static_cast<long long>(n));
  }
  if (k == 0) return;
  dispatch_dtype<kMaskReal>("topk", x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    const bool packed = is_packed_v<T> && n < INT32_MAX;
    for_lines(lines, 4, [&](int64_t begin, int64_t end) {
      Selection selection(packed ? k : 1);
      std::vector<Item<C>> items(packed ? 0 : n);
      for (int64_t line = begin; line < end; ++line) {
        const T* from = static_cast<const T*>(x.data) + lines.offset(0, line);
        T* to = static_cast<T*>(values.data) + lines.offset(1, line);
        int64_t* at = static_cast<int64_t*>(indices.data) + lines.offset(2, line);
        const int64_t step = lines.step[0];
        auto write = [&](int64_t i, int64_t index) {
          to[i * lines.step[1]] = from[index * step];
          at[i * lines.step[2]] = index;
        };
        if constexpr (is_packed_v<T>) {
          if (packed) {
            const int64_t* found = selection.run(from, step, n, largest);
            for (int64_t i = 0; i < k; ++i) write(i, index_of(found[i]));
            continue;
          }
        }
        auto before = [largest](const Item<C>& p, const Item<C>& q) {
          if (largest ? ordered(q.value, p.value) : ordered(p.value, q.value)) return true;
          if (largest ? ordered(p.value, q.value) : ordered(q.value, p.value)) return false;
          return p.index < q.index;
        };
        for (int64_t i = 0; i < n; ++i) items[i] = {C(from[i * step]), i};
        if (k < n) std::nth_element(items.begin(), items.begin() + (k - 1), items.end(), before);
        std::sort(items.begin(), items.begin() + k, before);
        for (int64_t i = 0; i < k; ++i) write(i, items[i].index);
      }
    });
  });
}

const rb::KernelSpec kKernels[] = {
    {"sort", rb::wrap<sort_kernel>, 0, kMaskReal},
    {"topk", rb::wrap<topk_kernel>, 0, kMaskReal},
};

}  // namespace

int32_t add_sort(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu
