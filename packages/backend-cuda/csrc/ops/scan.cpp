// cumsum, cumprod and affine_scan; kernels/scan.cuh says how the work is split.
#include <algorithm>

#include "launch/jit.h"
#include "launch/temporary.h"
#include "launch/texts.h"
#include "launch/view.h"
#include "ops/families.h"

namespace rbcuda {
namespace {

constexpr int64_t kBlock = 256;  // RB_SCAN_BLOCK
constexpr int64_t kWarp = 32;
constexpr int64_t kShort = 64;            // elements that a thread may scan alone
constexpr int64_t kEnough = 512;          // lines from which on each has one block
constexpr int64_t kMostBlocks = 1 << 16;  // kernels step by the grid beyond that

// Twin of ScanLine in scan.cuh.
struct ScanLine {
  int64_t n, steps[3];
};
// Twin of LookBack in scan.cuh.
struct LookBack {
  void *flags, *words;
  int64_t tiles, groups, supers;
};

int summed(int dtype) {
  if (kFloat >> dtype & 1) return RB_F64;
  return dtype == RB_C64 ? +RB_C128 : dtype;
}

struct Texts {
  const char *lines, *rows, *blocks, *tiles;
  int state;  // numbers of the dtype computed in that a state has
};

// A call: lines along one dimension, and how they are cut.
class Scan {
 public:
  Scan(const char* op, const Texts& texts, const RbTensor& out, const RbTensor& x,
       const RbTensor* y, int dim)
      : op_(op), texts_(texts), out_(out), x_(x), y_(y ? y->data : x.data) {
    View to(out), from(x), also(y ? *y : x);
    if (x.ndim > 0) {
      line_ = {x.shape[dim], {to.stride(dim), from.stride(dim), also.stride(dim)}};
      for (View* view : {&to, &from, &also}) view->drop(dim);
    }
    lines_ = layout_of(op, {&to.tensor(), &from.tensor(), &also.tensor()});
    state_bytes_ = texts.state * stored_size(summed(x.dtype_id));
    items_ = state_bytes_ > 16 ? 4 : 8;
  }

  void run() {
    const int64_t n = line_.n, columns = line_.steps[1] != 1;
    if (columns && (n <= kShort || lines_.n >= kEnough * 8)) {
      launch_as(texts_.lines, (lines_.n + kBlock - 1) / kBlock, kBlock, nullptr);
    } else if (n <= kWarp * items_) {
      int32_t width = static_cast<int32_t>(threads_for(n, 1, kWarp));
      const int64_t across = kBlock / width;
      launch_as(texts_.rows, (lines_.n + across - 1) / across, kBlock, &width);
    } else if (lines_.n >= kEnough || n <= 2 * kBlock * items_) {
      launch_as(texts_.blocks, lines_.n, threads_for(n, kWarp, kBlock), nullptr);
    } else {
      run_tiles();
    }
  }

 private:
  // Threads that hold `n` elements.
  int64_t threads_for(int64_t n, int64_t least, int64_t most) const {
    int64_t threads = least;
    while (threads < most && threads * items_ < n) threads *= 2;
    return threads;
  }

  void run_tiles() {
    LookBack back = {};
    back.tiles = (line_.n + kBlock * items_ - 1) / (kBlock * items_);
    back.groups = back.tiles / kWarp;
    back.supers = back.groups / kWarp;
    const int64_t sums = lines_.n * (back.tiles + back.groups + back.supers), flags = sums + 1;
    const Temporary held(out_, RB_I32, 1, &flags),
        states(out_, sums * ((state_bytes_ + 3) / 4) * 4);
    fill(op_, held.tensor(), rb::int_value(0), rb::int_value(0));
    back.flags = held.data();
    back.words = states.data();
    launch_as(texts_.tiles, lines_.n * back.tiles, kBlock, &back);
  }

  void launch_as(const char* text, int64_t blocks, int64_t threads, void* last) {
    const Kernel kernel{op_, {{"A", x_.dtype_id}, {"T", summed(x_.dtype_id)}}, kText_scan, text};
    void *to = out_.data, *from = x_.data;
    void* arguments[] = {&to, &from, &y_, &lines_, &line_, last};
    launch(device_of(out_), kernel,
           Grid{static_cast<unsigned>(std::min(blocks, kMostBlocks)), 1, 1,
                static_cast<unsigned>(threads)},
           arguments);
  }

  const char* op_;
  const Texts& texts_;
  const RbTensor &out_, &x_;
  void* y_;
  ScanLine line_ = {1, {1, 1, 1}};
  Layout lines_;
  int64_t state_bytes_, items_;
};

void scan(const char* op, const Texts& texts, const RbTensor& out, const RbTensor& x,
          const RbTensor* y, int dim) {
  if (out.numel) Scan(op, texts, out, x, y, dim).run();
}

#define RB_SCAN_TEXTS(state, join, count)                                         \
  {"RB_SCAN_LINES(" state ", " join ")\n", "RB_SCAN_ROWS(" state ", " join ")\n", \
   "RB_SCAN_BLOCKS(" state ", " join ")\n", "RB_SCAN_TILES(" state ", " join ")\n", count}
constexpr Texts kAdd = RB_SCAN_TEXTS("T", "JoinSum", 1),
                kMultiply = RB_SCAN_TEXTS("T", "JoinProduct", 1),
                kOr = RB_SCAN_TEXTS("T", "JoinOr", 1), kAnd = RB_SCAN_TEXTS("T", "JoinAnd", 1),
                kAffine = RB_SCAN_TEXTS("Affine", "JoinAffine", 2);
#undef RB_SCAN_TEXTS

// The sum of bools is whether any is true, their product whether all are.
template <bool Product>
void scan_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  const bool truth = x.dtype_id == RB_BOOL8;
  scan(a.op_name(), Product ? (truth ? kAnd : kMultiply) : (truth ? kOr : kAdd), a.ret(), x,
       nullptr, static_cast<int>(a.integer(1)));
}

void affine_scan_kernel(const rb::Args& a) {
  const RbTensor &x = a.tensor(0), &y = a.tensor(1);
  bool same = x.ndim == y.ndim && x.dtype_id == y.dtype_id;
  for (int d = 0; same && d < x.ndim; ++d) same = x.shape[d] == y.shape[d];
  if (!same) rb::fail(RB_E_ARG, "affine_scan: expected `a` and `b` of one shape and dtype");
  scan("affine_scan", kAffine, a.ret(), x, &y, static_cast<int>(a.integer(2)));
}

const rb::KernelSpec kKernels[] = {
    {"cumsum", rb::wrap<scan_kernel<false>>, 0, kAll},
    {"cumprod", rb::wrap<scan_kernel<true>>, 0, kAll},
    {"affine_scan", rb::wrap<affine_scan_kernel>, 0, kAll & ~bit(RB_BOOL8)},
};

}  // namespace

int32_t add_scan(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcuda
