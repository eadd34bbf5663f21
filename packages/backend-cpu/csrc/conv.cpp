// conv2d and its two derivatives: im2col and matrix products, image by image.
#include <algorithm>
#include <cstring>

#include "gemm.h"
#include "kernels.h"
#include "operands.h"

namespace rbcpu {
namespace {

constexpr uint64_t kMaskConv = kMaskFloat | kMaskComplex;
constexpr int64_t kStripElements =
    65536;  // of the column matrix at a time: stays in the second-level cache
constexpr int64_t kManyJobs =
    8;  // from here on images go to threads, below that tiles of one product

struct Geometry {
  int64_t n, c, h, w;  // input
  int64_t o, kh, kw;   // output channels, window
  int64_t oh, ow;      // output plane
  int64_t sh, sw, ph, pw, dh, dw, groups;
  int64_t cg() const { return c / groups; }
  int64_t og() const { return o / groups; }
  int64_t depth() const { return cg() * kh * kw; }
  int64_t plane() const { return oh * ow; }
  bool pointwise() const { return kh == 1 && kw == 1 && sh == 1 && sw == 1 && ph == 0 && pw == 0; }
  // Output rows per strip.
  int64_t strip() const {
    return pointwise()
               ? oh
               : std::clamp<int64_t>(kStripElements / std::max<int64_t>(1, depth() * ow), 1, oh);
  }
};

long long ll(int64_t x) { return static_cast<long long>(x); }

// Input of shape x, weight of shape w, output of shape y; the numbers are arguments `first`, ... of
// the call.
Geometry geometry(const rb::Args& a, const int64_t* x, const int64_t* w, const int64_t* y,
                  int first) {
  const char* op = a.op_name();
  auto pair = [&](int i, const char* name, int64_t least, int64_t& p, int64_t& q) {
    const auto v = a.ints(i);
    if (v.len != 1 && v.len != 2)
      rb::fail(RB_E_ARG, "%s: `%s` must have 2 entries, got %u", op, name, v.len);
    p = v[0];
    q = v[v.len - 1];
    if (p < least || q < least)
      rb::fail(RB_E_ARG, "%s: `%s` must be at least %lld", op, name, ll(least));
  };
  Geometry g;
  pair(first, "stride", 1, g.sh, g.sw);
  pair(first + 1, "padding", 0, g.ph, g.pw);
  pair(first + 2, "dilation", 1, g.dh, g.dw);
  g.groups = a.integer(first + 3);
  g.n = x[0];
  g.c = x[1];
  g.h = x[2];
  g.w = x[3];
  g.o = w[0];
  g.kh = w[2];
  g.kw = w[3];
  if (g.groups < 1 || g.c % g.groups || g.o % g.groups || w[1] != g.c / g.groups) {
    rb::fail(RB_E_ARG,
             "%s: weight (%lld, %lld, %lld, %lld) does not fit %lld input channels in %lld groups",
             op, ll(w[0]), ll(w[1]), ll(w[2]), ll(w[3]), ll(g.c), ll(g.groups));
  }
  const int64_t rows = g.h + 2 * g.ph - g.dh * (g.kh - 1) - 1,
                cols = g.w + 2 * g.pw - g.dw * (g.kw - 1) - 1;
  g.oh = rows < 0 ? 0 : rows / g.sh + 1;
  g.ow = cols < 0 ? 0 : cols / g.sw + 1;
  if (g.kh < 1 || g.kw < 1 || y[0] != g.n || y[1] != g.o || y[2] != g.oh || y[3] != g.ow) {
    rb::fail(RB_E_ARG,
             "%s: expected an output of (%lld, %lld, %lld, %lld), got (%lld, %lld, %lld, %lld)", op,
             ll(g.n), ll(g.o), ll(g.oh), ll(g.ow), ll(y[0]), ll(y[1]), ll(y[2]), ll(y[3]));
  }
  return g;
}

// First and last + 1 output column whose input column lies inside.
struct Inside {
  int64_t begin, end;
};
Inside inside(const Geometry& g, int64_t j) {
  const int64_t shift = j * g.dw - g.pw;  // input column of output column 0
  const int64_t begin = shift >= 0 ? 0 : (-shift + g.sw - 1) / g.sw;
  const int64_t end = g.w - shift <= 0 ? 0 : (g.w - shift + g.sw - 1) / g.sw;
  return {std::min(begin, g.ow), std::max(std::min(begin, g.ow), std::min(end, g.ow))};
}

// Rows [r0, r1) of the output plane: col[(c, i, j), (row, column)] = the input element under it, or
// 0.
template <class T>
void im2col(const Geometry& g, const T* x, int64_t r0, int64_t r1, T* col) {
  for (int64_t c = 0; c < g.cg(); ++c) {
    for (int64_t i = 0; i < g.kh; ++i) {
      for (int64_t j = 0; j < g.kw; ++j) {
        const Inside in = inside(g, j);
        for (int64_t r = r0; r < r1; ++r, col += g.ow) {
          const int64_t row = r * g.sh - g.ph + i * g.dh;
          if (row < 0 || row >= g.h || in.begin == in.end) {
            std::fill_n(col, g.ow, T(0));
            continue;
          }
          const T* from = x + (c * g.h + row) * g.w + j * g.dw - g.pw;
          std::fill_n(col, in.begin, T(0));
          if (g.sw == 1) {
            std::copy(from + in.begin, from + in.end, col + in.begin);
          } else {
            for (int64_t k = in.begin; k < in.end; ++k) col[k] = from[k * g.sw];
          }
          std::fill(col + in.end, col + g.ow, T(0));
        }
      }
    }
  }
}

// The transpose: add every column element to the input element it came from.
template <class T>
void col2im(const Geometry& g, const T* col, int64_t r0, int64_t r1, T* x) {
  for (int64_t c = 0; c < g.cg(); ++c) {
    for (int64_t i = 0; i < g.kh; ++i) {
      for (int64_t j = 0; j < g.kw; ++j) {
        const Inside in = inside(g, j);
        for (int64_t r = r0; r < r1; ++r, col += g.ow) {
          const int64_t row = r * g.sh - g.ph + i * g.dh;
          if (row < 0 || row >= g.h) continue;
          T* to = x + (c * g.h + row) * g.w + j * g.dw - g.pw;
          for (int64_t k = in.begin; k < in.end; ++k) to[k * g.sw] += col[k];
        }
      }
    }
  }
}

// Run one product on this thread, or its tiles on the pool.
template <class T>
void product(const Gemm<T>& g, bool split) {
  if (split) return gemm_batch<T>(1, g.m, g.n, g.k, [&](int64_t) { return g; });
  gemm_run(g);
}

// f(job, split) for every image and group.
template <class F>
void for_images(const Geometry& g, const F& f) {
  const int64_t jobs = g.n * g.groups;
  if (jobs < kManyJobs) {
    for (int64_t job = 0; job < jobs; ++job) f(job, true);
    return;
  }
  const int64_t flops = std::max<int64_t>(1, 2 * g.og() * g.depth() * g.plane());
  rb::parallel_for(jobs, std::max<int64_t>(1, 1000000 / flops), [&](int64_t begin, int64_t end) {
    for (int64_t job = begin; job < end; ++job) f(job, false);
  });
}

void conv2d_kernel(const rb::Args& a) {
  const RbTensor &xt = a.tensor(0), &wt = a.tensor(1);
  const RbTensor* bt = a.optional_tensor(2);
  if (xt.ndim != 4 || wt.ndim != 4)
    rb::fail(RB_E_ARG, "conv2d: expected input and weight of 4 dimensions, got %d and %d", xt.ndim,
             wt.ndim);
  const Geometry g = geometry(a, xt.shape, wt.shape, a.ret().shape, 3);
  const Operand x(view_of(xt)), w(view_of(wt));
  const Result out(a.ret());
  dispatch_dtype<kMaskConv & ~kMaskHalf>("conv2d", out.view.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* weight = reinterpret_cast<const T*>(w.view.data);
    rb::Scratch<T> bias(g.o);
    std::fill_n(bias.data(), g.o, T(0));
    if (bt) {
      View dense = view_of(*bt);
      if (dense.ndim != 1 || dense.shape[0] != g.o)
        rb::fail(RB_E_ARG, "conv2d: `bias` must have %lld elements", ll(g.o));
      copy_view(dense_view(bias.data(), out.view.dtype, dense), dense);
    }
    if (out.target.numel() == 0) return;
    const int64_t strip = g.strip();
    for_images(g, [&](int64_t job, bool split) {
      const int64_t image = job / g.groups, group = job % g.groups;
      const T* from =
          reinterpret_cast<const T*>(x.view.data) + (image * g.c + group * g.cg()) * g.h * g.w;
      T* to = reinterpret_cast<T*>(out.view.data) + (image * g.o + group * g.og()) * g.plane();
      rb::Scratch<T> col(g.pointwise() ? 0 : g.depth() * strip * g.ow);
      for (int64_t o = 0; bt && o < g.og(); ++o)
        std::fill_n(to + o * g.plane(), g.plane(), bias[group * g.og() + o]);
      for (int64_t r0 = 0; r0 < g.oh; r0 += strip) {
        const int64_t r1 = std::min(g.oh, r0 + strip), width = (r1 - r0) * g.ow;
        if (!g.pointwise()) im2col(g, from, r0, r1, col.data());
        product<T>({g.og(), width, g.depth(), weight + group * g.og() * g.depth(), g.depth(), 1,
                    g.pointwise() ? from : col.data(), width, 1, to + r0 * g.ow, g.plane(),
                    bt ? kGemmAccumulate : kGemmStore, nullptr},
                   split);
      }
    });
  });
  out.finish();
}

void check_shape_argument(const rb::Args& a, rb::Span<int64_t> shape) {
  if (shape.len != 4)
    rb::fail(RB_E_ARG, "%s: `shape` must have 4 entries, got %u", a.op_name(), shape.len);
}

void conv2d_dx_kernel(const rb::Args& a) {
  const RbTensor &gt = a.tensor(0), &wt = a.tensor(1);
  if (gt.ndim != 4 || wt.ndim != 4)
    rb::fail(RB_E_ARG, "conv2d_dx: expected `g` and `w` of 4 dimensions, got %d and %d", gt.ndim,
             wt.ndim);
  check_shape_argument(a, a.ints(2));
  const Geometry g = geometry(a, a.ret().shape, wt.shape, gt.shape, 3);
  const Operand grad(view_of(gt)), w(view_of(wt));
  const Result out(a.ret());
  dispatch_dtype<kMaskConv & ~kMaskHalf>("conv2d_dx", out.view.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* weight = reinterpret_cast<const T*>(w.view.data);
    if (out.target.numel() == 0) return;
    const int64_t strip = g.strip();
    for_images(g, [&](int64_t job, bool split) {
      const int64_t image = job / g.groups, group = job % g.groups;
      const T* from =
          reinterpret_cast<const T*>(grad.view.data) + (image * g.o + group * g.og()) * g.plane();
      T* to = reinterpret_cast<T*>(out.view.data) + (image * g.c + group * g.cg()) * g.h * g.w;
      rb::Scratch<T> col(g.pointwise() ? 0 : g.depth() * strip * g.ow);
      if (!g.pointwise()) std::fill_n(to, g.cg() * g.h * g.w, T(0));
      for (int64_t r0 = 0; r0 < g.oh; r0 += strip) {
        const int64_t r1 = std::min(g.oh, r0 + strip), width = (r1 - r0) * g.ow;
        // weight transposed by its strides
        product<T>({g.depth(), width, g.og(), weight + group * g.og() * g.depth(), 1, g.depth(),
                    from + r0 * g.ow, g.plane(), 1, g.pointwise() ? to : col.data(), width,
                    kGemmStore, nullptr},
                   split);
        if (!g.pointwise()) col2im(g, col.data(), r0, r1, to);
      }
    });
  });
  out.finish();
}

// dweight = sum over images of g (og x plane) times the transposed column matrix. Images fall into
// a fixed number of chunks with sums of their own, added in order.
void conv2d_dw_kernel(const rb::Args& a) {
  const RbTensor &xt = a.tensor(0), &gt = a.tensor(1);
  if (xt.ndim != 4 || gt.ndim != 4)
    rb::fail(RB_E_ARG, "conv2d_dw: expected `x` and `g` of 4 dimensions, got %d and %d", xt.ndim,
             gt.ndim);
  check_shape_argument(a, a.ints(2));
  const Geometry g = geometry(a, xt.shape, a.ret().shape, gt.shape, 3);
  const Operand x(view_of(xt)), grad(view_of(gt));
  const Result out(a.ret());
  dispatch_dtype<kMaskConv & ~kMaskHalf>("conv2d_dw", out.view.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* total = reinterpret_cast<T*>(out.view.data);
    const int64_t size = out.target.numel(), strip = g.strip();
    constexpr int64_t kPartialBytes = int64_t{16} << 20;
    const int64_t room =
        kPartialBytes / std::max<int64_t>(1, size * static_cast<int64_t>(sizeof(T)));
    const int64_t chunks = std::clamp<int64_t>(room, 1, std::clamp<int64_t>(g.n, 1, kManyJobs));
    rb::Scratch<T> partial(size * (chunks - 1));
    auto run = [&](int64_t chunk, bool split) {
      T* sum = chunk ? partial.data() + size * (chunk - 1) : total;
      std::fill_n(sum, size, T(0));
      rb::Scratch<T> col(g.pointwise() ? 0 : g.depth() * strip * g.ow);
      for (int64_t image = g.n * chunk / chunks; image < g.n * (chunk + 1) / chunks; ++image) {
        for (int64_t group = 0; group < g.groups; ++group) {
          const T* from =
              reinterpret_cast<const T*>(x.view.data) + (image * g.c + group * g.cg()) * g.h * g.w;
          const T* dy = reinterpret_cast<const T*>(grad.view.data) +
                        (image * g.o + group * g.og()) * g.plane();
          for (int64_t r0 = 0; r0 < g.oh; r0 += strip) {
            const int64_t r1 = std::min(g.oh, r0 + strip), width = (r1 - r0) * g.ow;
            if (!g.pointwise()) im2col(g, from, r0, r1, col.data());
            product<T>({g.og(), g.depth(), width, dy + r0 * g.ow, g.plane(), 1,
                        g.pointwise() ? from : col.data(), 1, width,
                        sum + group * g.og() * g.depth(), g.depth(), kGemmAccumulate, nullptr},
                       split);
          }
        }
      }
    };
    if (size == 0) return;
    if (chunks == 1) {
      run(0, true);
      return;
    }
    rb::parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t chunk = begin; chunk < end; ++chunk) run(chunk, false);
    });
    for (int64_t chunk = 1; chunk < chunks; ++chunk) {
      const T* part = partial.data() + size * (chunk - 1);
      for (int64_t i = 0; i < size; ++i) total[i] += part[i];
    }
  });
  out.finish();
}

const rb::KernelSpec kKernels[] = {
    {"conv2d", rb::wrap<conv2d_kernel>, RB_K_CONTIGUOUS, kMaskConv},
    {"conv2d_dx", rb::wrap<conv2d_dx_kernel>, RB_K_CONTIGUOUS, kMaskConv},
    {"conv2d_dw", rb::wrap<conv2d_dw_kernel>, RB_K_CONTIGUOUS, kMaskConv},
};

}  // namespace

int32_t add_conv(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu
