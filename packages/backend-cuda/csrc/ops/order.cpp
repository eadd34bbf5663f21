// sort and topk: stable, NaN counts as the largest; kernels/order.cuh has the methods.
#include <algorithm>

#include "launch/jit.h"
#include "launch/temporary.h"
#include "launch/texts.h"
#include "launch/view.h"
#include "ops/families.h"
#include "ops/radix.h"

namespace rbcuda {
namespace {

constexpr int64_t kSmall = 2048, kSmallest = 128;  // capacities of the sort in shared memory
constexpr int64_t kMostBlocks = 1 << 20;
constexpr int64_t kEnough = 128;  // lines from which on a block for each will do
constexpr int64_t kTiles = 4;     // of a line that is worth several blocks

struct SelectMemory {  // twin of the kernels'
  void *counts, *ties;
};

unsigned blocks_of(int64_t count) { return static_cast<unsigned>(std::min(count, kMostBlocks)); }

// One call: lines of `x` whose first k elements in order become `values` and `indices`.
class Sort {
 public:
  Sort(const char* op, const RbTensor& values, const RbTensor& x, const RbTensor& indices, int dim,
       bool descending)
      : op_(op), x_(x), device_(device_of(x)), values_(values.data), indices_(indices.data) {
    View to(values), from(x), at(indices);
    s_ = sorting_of(1);
    if (x.ndim > 0) {
      s_ = {x.shape[dim],
            values.shape[dim],
            {to.stride(dim), from.stride(dim), at.stride(dim)},
            descending,
            0,
            sorting_of(x.shape[dim]).tiles};
      for (View* view : {&to, &from, &at}) view->drop(dim);
    }
    if (s_.n > INT32_MAX) rb::fail(RB_E_NOTIMPL, "%s on 'cuda': lines of 2**31 elements", op);
    lines_ = layout_of(op, {&to.tensor(), &from.tensor(), &at.tensor()});
  }

  void run() {
    if (s_.k == 0 || lines_.n == 0) return;
    if (s_.n <= kSmall) return sort_small(s_.n, nullptr);
    if (s_.k <= kSmall) return select();
    sort_large();
  }

 private:
  Kernel kernel(const char* text) const {
    return {op_, {{"A", x_.dtype_id}, {"K", unit_dtype(key_bytes())}}, kText_order, text};
  }
  int key_bytes() const { return x_.dtype.bits / 8; }
  void sort_small(int64_t count, void* chosen) {
    int size = 2;
    while (size < count) size *= 2;
    const bool smallest = size <= kSmallest;
    void *to = values_, *from = x_.data, *at = indices_;
    void* arguments[] = {&to, &from, &at, &lines_, &s_, &size, &chosen};
    const unsigned threads = static_cast<unsigned>(std::clamp(size / 2, 32, 512));
    launch(device_, kernel(smallest ? "RB_SORT_SMALL(128)\n" : "RB_SORT_SMALL(2048)\n"),
           Grid{blocks_of(lines_.n), 1, 1, threads}, arguments);
  }

  // Few long lines have a block for each tile, and a launch for each byte of the keys.
  void select() {
    const Temporary places(x_, 4 * lines_.n * s_.k);
    void *to = places.data(), *from = x_.data;
    if (lines_.n < kEnough && s_.tiles >= kTiles) {
      select_by_tiles(to);
      return sort_small(s_.k, to);
    }
    void* arguments[] = {&to, &from, &lines_, &s_};
    launch(device_, kernel("RB_SELECT()\n"), Grid{blocks_of(lines_.n), 1, 1, 512}, arguments);
    sort_small(s_.k, to);
  }

  void select_by_tiles(void* to) {
    const int64_t counts = lines_.n * (key_bytes() * 256 + 1);
    const Temporary counted(x_, RB_I32, 1, &counts), ties(x_, 4 * lines_.n * s_.tiles);
    fill(op_, counted.tensor(), rb::int_value(0), rb::int_value(0));
    SelectMemory memory = {counted.data(), ties.data()};
    void* from = x_.data;
    const Grid grid{static_cast<unsigned>(lines_.n * s_.tiles), 1, 1, 256};
    void* arguments[] = {&memory, &from, &lines_, &s_};
    for (s_.digit = key_bytes() - 1; s_.digit >= 0; --s_.digit)
      launch(device_, kernel("RB_SELECT_COUNT()\n"), grid, arguments);
    launch(device_, kernel("RB_SELECT_TIES()\n"), grid, arguments);
    void* take[] = {&to, &memory, &from, &lines_, &s_};
    launch(device_, kernel("RB_SELECT_TAKE()\n"), grid, take);
  }

  void sort_large() {
    RadixSort sorted(op_, x_, key_bytes(), lines_.n, s_.n);
    void *key = sorted.keys(), *place = sorted.places(), *from = x_.data;
    void* first[] = {&key, &place, &from, &lines_, &s_};
    launch(device_, kernel("RB_SORT_KEYS()\n"), lines_.n * s_.n, first);
    sorted.run();
    void *to = values_, *at = indices_;
    place = sorted.places();
    void* last[] = {&to, &from, &at, &lines_, &s_, &place};
    launch(device_, kernel("RB_SORT_RESULTS()\n"), lines_.n * s_.k, last);
  }

  const char* op_;
  const RbTensor& x_;
  Device& device_;
  void *values_, *indices_;
  Sorting s_;
  Layout lines_;
};

void sort_kernel(const rb::Args& a) {
  Sort(a.op_name(), a.ret(0), a.tensor(0), a.ret(1), static_cast<int>(a.integer(1)),
       a.has(2) && a.boolean(2))
      .run();
}

void topk_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  const int64_t k = a.integer(1), n = x.ndim ? x.shape[a.integer(2)] : 1;
  if (k < 0 || k > n)
    rb::fail(RB_E_ARG, "topk: k = %lld is out of range for a dimension of size %lld",
             static_cast<long long>(k), static_cast<long long>(n));
  Sort("topk", a.ret(0), x, a.ret(1), static_cast<int>(a.integer(2)), !a.has(3) || a.boolean(3))
      .run();
}

const rb::KernelSpec kKernels[] = {
    {"sort", rb::wrap<sort_kernel>, 0, kReal},
    {"topk", rb::wrap<topk_kernel>, 0, kReal},
};

}  // namespace

int32_t add_order(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcuda
