// embedding, its derivative and bag_sums: whole rows of a table at int64 indices.
#include "common/kernels.h"
#include "common/level.h"
#include "index/bags.h"
#include "index/indexing.h"
#include "reduce/dense.h"

namespace rbcpu {
namespace {

void embedding_kernel(const rb::Args& a) {
  const RbTensor& weight = a.tensor(0);
  const CheckedIndex index("embedding: index out of range in self", a.tensor(1), weight.shape[0], 0,
                           false);
  const int64_t n = index.view.numel(), width = weight.shape[1];
  dispatch_dtype<kMaskAll>("embedding", weight.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const DenseInput<T> table(weight);
    const DenseResult<T> result(a.ret());
    copy_rows(reinterpret_cast<const char*>(table.data()), index.data(), n, width * sizeof(T),
              reinterpret_cast<char*>(result.data()));
    result.finish();
  });
}

// A task owns a range of the table's rows and adds what belongs to them in the order of the
// indices, whatever the number of threads.
void embedding_backward_kernel(const rb::Args& a) {
  const RbTensor& g = a.tensor(0);
  const rb::Span<int64_t> shape = a.ints(2);
  const int64_t rows = shape[0], width = shape[1], padding = a.integer(3);
  const CheckedIndex index("embedding_backward", a.tensor(1), rows, 0, false);
  const int64_t n = index.view.numel();
  constexpr int64_t kMostTasks = 8;  // each of them reads all indices
  dispatch_dtype<kMaskAll>("embedding_backward", g.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    const DenseInput<T> grad(g);
    const DenseResult<T> result(a.ret());
    // Sums of 16-bit floats are rounded once.
    rb::Scratch<C> wide(is_half_v<T> ? rows * width : 0);
    C* sums = wide.data();
    if constexpr (!is_half_v<T>) sums = result.data();
    const int64_t* at = index.data();
    const int64_t per_task = std::max<int64_t>((rows + kMostTasks - 1) / kMostTasks,
                                               kGrain / std::max<int64_t>(width, 1));
    rb::parallel_for(rows, per_task, [&](int64_t begin, int64_t end) {
      std::fill(sums + begin * width, sums + end * width, C(0));
      for (int64_t i = 0; i < n; ++i) {
        if (at[i] < begin || at[i] >= end || at[i] == padding) continue;
        C* to = sums + at[i] * width;
        const T* from = grad.data() + i * width;
        for (int64_t j = 0; j < width; ++j) to[j] = C(to[j] + C(from[j]));
      }
      if constexpr (is_half_v<T>) {
        for (int64_t i = begin * width; i < end * width; ++i) result.data()[i] = T(sums[i]);
      }
    });
    result.finish();
  });
}

constexpr uint64_t kMaskSum = kMaskFloat & ~kMaskHalf;

void bag_sums_kernel(const rb::Args& a) {
  static const BagTable& table = RB_PICK_LEVEL(bag_table);
  const RbTensor& weight = a.tensor(0);
  const int64_t bags = a.integer(3), width = weight.shape[1], padding = a.integer(5);
  const CheckedIndex index("bag_sums: index out of range in self", a.tensor(1), weight.shape[0], 0,
                           false);
  const CheckedIndex bag("bag_sums", a.tensor(2), bags, 0, false);
  const int64_t n = index.view.numel();
  const int64_t* const own = bag.data();
  rb::Scratch<int64_t> first(bags + 1);  // entry of each bag
  std::fill_n(first.data(), bags + 1, 0);
  bool ascends = true;
  for (int64_t i = 0; i < n; ++i) {
    ++first[own[i] + 1];
    ascends = ascends && (i == 0 || own[i - 1] <= own[i]);
  }
  for (int64_t b = 0; b < bags; ++b) first[b + 1] += first[b];
  // Entries in another order are sorted by their bags.
  rb::Scratch<int64_t> entries(ascends ? 0 : n), sorted(ascends ? 0 : n);
  if (!ascends) {
    rb::Scratch<int64_t> next(bags);
    std::copy_n(first.data(), bags, next.data());
    for (int64_t i = 0; i < n; ++i) entries[next[own[i]]++] = i;
    for (int64_t i = 0; i < n; ++i) sorted[i] = index.data()[entries[i]];
  }
  const int64_t* const at = ascends ? index.data() : sorted.data();
  dispatch_dtype<kMaskSum>("bag_sums", weight.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    BagSum<T> sum;
    if constexpr (std::is_same_v<T, double>) {
      sum = table.f64;
    } else {
      sum = table.f32;
    }
    const DenseInput<T> rows(weight);
    const Values<T> given(a.optional_tensor(4));
    const T* factors = given.data();
    rb::Scratch<T> moved(factors && !ascends ? n : 0);
    if (factors && !ascends) {
      for (int64_t i = 0; i < n; ++i) moved[i] = factors[entries[i]];
      factors = moved.data();
    }
    const DenseResult<T> result(a.ret());
    const int64_t cost = std::max<int64_t>(1, n / std::max<int64_t>(bags, 1) * width);
    rb::parallel_for(bags, std::max<int64_t>(1, kGrain / cost), [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b)
        sum(rows.data(), width, at + first[b], factors ? factors + first[b] : nullptr,
            first[b + 1] - first[b], padding, result.data() + b * width);
    });
    result.finish();
  });
}

const rb::KernelSpec kKernels[] = {
    {"embedding", rb::wrap<embedding_kernel>},
    {"embedding_backward", rb::wrap<embedding_backward_kernel>},
    {"bag_sums", rb::wrap<bag_sums_kernel>, 0, kMaskSum},
};

}  // namespace

int32_t add_embedding(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu
