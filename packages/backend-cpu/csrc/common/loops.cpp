#include "common/loops.h"

#include <unistd.h>

#include <algorithm>

#include "common/dtype.h"
#include "common/stream.h"

namespace rbcpu {
namespace {

struct Task {
  const LoopSpace* space;
  Loop loop;
  int status;
};

// Elements [begin, end) of the row-major order of `space`, whose last dimension is the inner one.
void run_range(int64_t begin, int64_t end, void* ctx) {
  Task& task = *static_cast<Task*>(ctx);
  const LoopSpace& s = *task.space;
  const int inner = s.ndim - 1;
  int64_t index[kMaxDims];
  LoopArgs args;
  args.out = s.out;
  args.out_stride = s.out_strides[inner];
  args.ctx = s.ctx;
  for (int k = 0; k < s.nin; ++k) {
    args.in[k] = s.in[k];
    args.in_stride[k] = s.in_strides[k][inner];
  }
  int64_t rest = begin;
  for (int d = inner; d >= 0; --d) {
    index[d] = rest % s.shape[d];
    rest /= s.shape[d];
    args.out += index[d] * s.out_strides[d];
    for (int k = 0; k < s.nin; ++k) args.in[k] += index[d] * s.in_strides[k][d];
  }
  int status = 0;
  for (int64_t at = begin; at < end;) {
    args.n = std::min(s.shape[inner] - index[inner], end - at);
    status |= task.loop(&args);
    at += args.n;
    if (at >= end) break;
    // Back to the start of the row, then one step in the next dimension that has room.
    args.out -= index[inner] * s.out_strides[inner];
    for (int k = 0; k < s.nin; ++k) args.in[k] -= index[inner] * s.in_strides[k][inner];
    index[inner] = 0;
    for (int d = inner - 1; d >= 0; --d) {
      args.out += s.out_strides[d];
      for (int k = 0; k < s.nin; ++k) args.in[k] += s.in_strides[k][d];
      if (++index[d] < s.shape[d]) break;
      args.out -= s.shape[d] * s.out_strides[d];
      for (int k = 0; k < s.nin; ++k) args.in[k] -= s.shape[d] * s.in_strides[k][d];
      index[d] = 0;
    }
  }
  if (status) __atomic_fetch_or(&task.status, status, __ATOMIC_RELAXED);
}

int64_t magnitude(int64_t x) { return x < 0 ? -x : x; }

void swap_dims(LoopSpace& s, int a, int b) {
  std::swap(s.shape[a], s.shape[b]);
  std::swap(s.out_strides[a], s.out_strides[b]);
  for (int k = 0; k < s.nin; ++k) std::swap(s.in_strides[k][a], s.in_strides[k][b]);
}

// Whether dimension a should stand further in than b: by the output's stride, then by the inputs'.
// A stride of 0 says nothing (scattering freezes a dimension of the output): the last input, the
// source, decides.
bool faster(const LoopSpace& s, int a, int b) {
  int64_t x = magnitude(s.out_strides[a]), y = magnitude(s.out_strides[b]);
  if (x == 0 || y == 0)
    return magnitude(s.in_strides[s.nin - 1][a]) < magnitude(s.in_strides[s.nin - 1][b]);
  for (int k = 0; x == y && k < s.nin; ++k) {
    x = magnitude(s.in_strides[k][a]);
    y = magnitude(s.in_strides[k][b]);
  }
  return x < y;
}

bool mergeable(const LoopSpace& s, int outer, int inner) {
  if (s.out_strides[outer] != s.out_strides[inner] * s.shape[inner]) return false;
  for (int k = 0; k < s.nin; ++k) {
    if (s.in_strides[k][outer] != s.in_strides[k][inner] * s.shape[inner]) return false;
  }
  return true;
}

}  // namespace

void simplify(LoopSpace& s) {
  int n = 0;
  for (int d = 0; d < s.ndim; ++d) {
    if (s.shape[d] == 1) continue;
    if (n != d) {
      s.shape[n] = s.shape[d];
      s.out_strides[n] = s.out_strides[d];
      for (int k = 0; k < s.nin; ++k) s.in_strides[k][n] = s.in_strides[k][d];
    }
    ++n;
  }
  if (n == 0) {
    s.shape[0] = 1;
    s.out_strides[0] = 0;
    for (int k = 0; k < s.nin; ++k) s.in_strides[k][0] = 0;
    s.ndim = 1;
    return;
  }
  for (int i = 1; i < n; ++i) {  // insertion sort: stable, and few dimensions
    for (int j = i; j > 0 && faster(s, j - 1, j); --j) swap_dims(s, j - 1, j);
  }
  int last = 0;
  for (int d = 1; d < n; ++d) {
    if (mergeable(s, last, d)) {
      s.shape[last] *= s.shape[d];
      s.out_strides[last] = s.out_strides[d];
      for (int k = 0; k < s.nin; ++k) s.in_strides[k][last] = s.in_strides[k][d];
    } else {
      ++last;
      s.shape[last] = s.shape[d];
      s.out_strides[last] = s.out_strides[d];
      for (int k = 0; k < s.nin; ++k) s.in_strides[k][last] = s.in_strides[k][d];
    }
  }
  s.ndim = last + 1;
}

int run_space(LoopSpace& space, Loop loop, int64_t grain) {
  int64_t total = 1;
  for (int d = 0; d < space.ndim; ++d) total *= space.shape[d];
  if (total == 0) return 0;
  simplify(space);
  Task task{&space, loop, 0};
  if (total <= grain) {
    run_range(0, total, &task);
  } else {
    rb::host->parallel_for(total, grain, run_range, &task);
  }
  return task.status;
}

namespace {
// Results from this size on are streamed: eight times the L2 cache of a core. What is smaller is
// often read again from the L3 cache, whose share for one process nobody knows.
int64_t stream_bytes() {
  static const int64_t bytes = [] {
    long l2 = 0;
#ifdef _SC_LEVEL2_CACHE_SIZE
    l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
    return 8 * int64_t{l2 > 0 ? l2 : 1 << 20};
  }();
  return bytes;
}

struct FlatTask {
  LoopArgs args;
  int nin;
  Loop loop;
  int status;
};
void run_flat(int64_t begin, int64_t end, void* ctx) {
  FlatTask& task = *static_cast<FlatTask*>(ctx);
  LoopArgs args = task.args;
  args.n = end - begin;
  args.out += begin * args.out_stride;
  for (int k = 0; k < task.nin; ++k) args.in[k] += begin * args.in_stride[k];
  if (int status = task.loop(&args)) __atomic_fetch_or(&task.status, status, __ATOMIC_RELAXED);
}

// The same through a buffer that is then streamed out: for results that are not an operand too.
constexpr int64_t kStreamBuffer = 8192;
void run_flat_streamed(int64_t begin, int64_t end, void* ctx) {
  FlatTask& task = *static_cast<FlatTask*>(ctx);
  alignas(64) char buffer[kStreamBuffer];
  LoopArgs args = task.args;
  const int64_t item = args.out_stride;
  char* out = args.out + begin * item;
  args.out = buffer;
  for (int k = 0; k < task.nin; ++k) args.in[k] += begin * args.in_stride[k];
  int status = 0;
  for (int64_t at = begin; at < end; at += args.n) {
    args.n = std::min(kStreamBuffer / item, end - at);
    status |= task.loop(&args);
    stream_copy(out, buffer, args.n * item);
    out += args.n * item;
    for (int k = 0; k < task.nin; ++k) args.in[k] += args.n * args.in_stride[k];
  }
  stream_fence();
  if (status) __atomic_fetch_or(&task.status, status, __ATOMIC_RELAXED);
}
}  // namespace

int run_elementwise(Loop loop, const RbTensor& out, const LoopInput* inputs, int nin, int64_t grain,
                    const void* ctx) {
  const int64_t n = out.numel;
  const int out_item = item_size(out);
  bool flat = (out.flags & RB_T_CONTIGUOUS) != 0;
  for (int k = 0; k < nin; ++k) {
    const RbTensor* t = inputs[k].tensor;
    flat = flat && (!t || t->numel == 1 || ((t->flags & RB_T_CONTIGUOUS) != 0 && t->numel == n));
  }
  if (__builtin_expect(flat, 1)) {
    FlatTask task;
    task.args.n = n;
    task.args.ctx = ctx;
    task.args.out = static_cast<char*>(out.data);
    task.args.out_stride = out_item;
    for (int k = 0; k < nin; ++k) {
      const RbTensor* t = inputs[k].tensor;
      task.args.in[k] = static_cast<const char*>(t ? t->data : inputs[k].value);
      task.args.in_stride[k] = t && (t->numel != 1 || n == 1) ? inputs[k].item : 0;
    }
    if (n <= grain) return n ? loop(&task.args) : 0;
    task.nin = nin;
    task.loop = loop;
    task.status = 0;
    // Long functions leave the memory time to read the lines that they write.
    bool streamed = grain >= kGrain && n * out_item >= stream_bytes();
    for (int k = 0; k < nin; ++k) streamed = streamed && task.args.in[k] != task.args.out;
    rb::host->parallel_for(n, grain, streamed ? run_flat_streamed : run_flat, &task);
    return task.status;
  }
  LoopSpace space;
  space.ndim = out.ndim;
  space.nin = nin;
  space.ctx = ctx;
  space.out = static_cast<char*>(out.data);
  for (int d = 0; d < out.ndim; ++d) {
    space.shape[d] = out.shape[d];
    space.out_strides[d] = out.strides[d] * out_item;
  }
  for (int k = 0; k < nin; ++k) {
    const RbTensor* t = inputs[k].tensor;
    space.in[k] = static_cast<const char*>(t ? t->data : inputs[k].value);
    for (int d = 0; d < out.ndim; ++d) {
      int from = t ? d - (out.ndim - t->ndim) : -1;
      space.in_strides[k][d] =
          from < 0 || t->shape[from] == 1 ? 0 : t->strides[from] * inputs[k].item;
    }
  }
  return run_space(space, loop, grain);
}

}  // namespace rbcpu
