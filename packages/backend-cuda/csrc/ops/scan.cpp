// cumsum, cumprod and affine_scan; kernels/scan.cuh says how the work is split.
#include <algorithm>

#include "launch/jit.h"
#include "launch/temporary.h"
#include "launch/texts.h"
#include "launch/view.h"
#include "ops/families.h"

namespace rbcuda {
namespace {

constexpr unsigned kBlock = 256, kItems = 4;  // twins of RB_SCAN_BLOCK and RB_SCAN_ITEMS
constexpr int64_t kShortest = 4096;           // elements that are worth a segment of their own
constexpr int64_t kMostSegments = kBlock;     // a block joins the states of those before its own
constexpr int64_t kEnough = 512;              // blocks: lines from which on none is split
constexpr int64_t kStateBytes = 32;           // the largest state: two of complex128

// Twin of ScanLine in scan.cuh.
struct ScanLine {
  int64_t n, segment, segments, steps[3];
};

int summed(int dtype) {
  if (kFloat >> dtype & 1) return RB_F64;
  return dtype == RB_C64 ? +RB_C128 : dtype;
}

struct Texts {
  const char *lines, *segments;
};

void scan(const char* op, const Texts& texts, const RbTensor& out, const RbTensor& x,
          const RbTensor* y, int dim) {
  if (out.numel == 0) return;
  View to(out), from(x), also(y ? *y : x);
  ScanLine line = {1, 1, 1, {1, 1, 1}};
  if (x.ndim > 0) {
    line.n = x.shape[dim];
    line.steps[0] = to.stride(dim);
    line.steps[1] = from.stride(dim);
    line.steps[2] = also.stride(dim);
    for (View* view : {&to, &from, &also}) view->drop(dim);
  }
  Layout lines = layout_of(op, {&to.tensor(), &from.tensor(), &also.tensor()});
  Device& device = device_of(out);
  const auto kernel = [&](const char* text) {
    return Kernel{op, {{"A", x.dtype_id}, {"T", summed(x.dtype_id)}}, kText_scan, text};
  };
  void *target = out.data, *given = x.data, *second = also.tensor().data;
  if (line.n <= 64 || (line.steps[1] != 1 && lines.n >= kEnough * 8)) {
    void* arguments[] = {&target, &given, &second, &lines, &line};
    return launch(device, kernel(texts.lines), lines.n, arguments);
  }
  if (lines.n < kEnough)
    line.segments =
        std::clamp<int64_t>(line.n / kShortest, 1, std::min(kMostSegments, kEnough / lines.n + 1));
  line.segment = (line.n + line.segments - 1) / line.segments;
  line.segments = (line.n + line.segment - 1) / line.segment;
  unsigned threads = 32;
  while (threads < kBlock && threads * kItems < line.segment) threads *= 2;
  if (line.segments > 1) threads = kBlock;
  const Grid grid{static_cast<unsigned>(std::min<int64_t>(lines.n * line.segments, 1 << 20)), 1, 1,
                  threads};
  const Temporary states =
      line.segments > 1 ? Temporary(out, lines.n * line.segments * kStateBytes) : Temporary();
  void* sums = states.data();
  for (int writes = line.segments > 1 ? 0 : 1; writes < 2; ++writes) {
    void* arguments[] = {&target, &given, &second, &lines, &line, &sums, &writes};
    launch(device, kernel(texts.segments), grid, arguments);
  }
}

#define RB_SCAN_TEXTS(state, join) \
  {"RB_SCAN_LINES(" state ", " join ")\n", "RB_SCAN_SEGMENTS(" state ", " join ")\n"}
constexpr Texts kAdd = RB_SCAN_TEXTS("T", "JoinSum"), kMultiply = RB_SCAN_TEXTS("T", "JoinProduct"),
                kOr = RB_SCAN_TEXTS("T", "JoinOr"), kAnd = RB_SCAN_TEXTS("T", "JoinAnd"),
                kAffine = RB_SCAN_TEXTS("Affine", "JoinAffine");
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
