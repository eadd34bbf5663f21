// Pooling over planes: max_pool2d_with_indices, avg_pool2d, adaptive_avg_pool2d and their
// derivatives.
#include <algorithm>
#include <memory>

#include "kernels.h"
#include "view.h"

namespace rbcpu {
namespace {

// Dense memory for a result, copied to its place at the end where the result is not dense.
template <class T>
struct Dense {
  RbTensor& out;
  std::unique_ptr<rb::Scratch<T>> copy;
  T* data;

  explicit Dense(RbTensor& target) : out(target), data(static_cast<T*>(target.data)) {
    if (target.flags & RB_T_CONTIGUOUS) return;
    copy = std::make_unique<rb::Scratch<T>>(target.numel);
    data = copy->data();
  }
  void finish() const {
    if (copy) copy_view(view_of(out), dense_view(data, out.dtype_id, view_of(out)));
  }
};

struct Planes {
  int64_t count, h, w, oh, ow;
};
Planes planes(const rb::Args& a, const RbTensor& in, const RbTensor& out) {
  if ((in.ndim != 3 && in.ndim != 4) || out.ndim != in.ndim) {
    rb::fail(RB_E_ARG, "%s: expected input of 3 or 4 dimensions, got %d", a.op_name(), in.ndim);
  }
  Planes p = {1, in.shape[in.ndim - 2], in.shape[in.ndim - 1], out.shape[out.ndim - 2],
              out.shape[out.ndim - 1]};
  for (int d = 0; d < in.ndim - 2; ++d) {
    if (in.shape[d] != out.shape[d])
      rb::fail(RB_E_ARG, "%s: the result has another number of planes than the input", a.op_name());
    p.count *= in.shape[d];
  }
  return p;
}

struct Window {
  int64_t kh, kw, sh, sw, ph, pw, dh = 1, dw = 1;
};
void read_pair(const rb::Args& a, int arg, const char* name, int64_t least, int64_t& p,
               int64_t& q) {
  const auto v = a.ints(arg);
  if (v.len == 0) return;
  if (v.len > 2)
    rb::fail(RB_E_ARG, "%s: `%s` must have 2 entries, got %u", a.op_name(), name, v.len);
  p = v[0];
  q = v[v.len - 1];
  if (p < least || q < least)
    rb::fail(RB_E_ARG, "%s: `%s` must be at least %lld", a.op_name(), name,
             static_cast<long long>(least));
}
Window window(const rb::Args& a, int first, bool dilation) {
  Window w;
  w.kh = w.kw = 0;
  read_pair(a, first, "kernel_size", 1, w.kh, w.kw);
  if (w.kh == 0) rb::fail(RB_E_ARG, "%s: `kernel_size` is empty", a.op_name());
  w.sh = w.kh;
  w.sw = w.kw;
  w.ph = w.pw = 0;
  if (a.has(first + 1)) read_pair(a, first + 1, "stride", 1, w.sh, w.sw);
  read_pair(a, first + 2, "padding", 0, w.ph, w.pw);
  if (dilation) read_pair(a, first + 3, "dilation", 1, w.dh, w.dw);
  if (2 * w.ph > w.kh || 2 * w.pw > w.kw)
    rb::fail(RB_E_ARG, "%s: `padding` must be at most half of `kernel_size`", a.op_name());
  return w;
}

template <class F>
void for_planes(const Planes& p, int64_t work, const F& f) {
  rb::parallel_for(p.count, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, work)),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; ++i) f(i);
                   });
}

void max_pool_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  const Planes p = planes(a, x, a.ret(0));
  const Window w = window(a, 1, true);
  const Dense<int64_t> indices(a.ret(1));
  dispatch_dtype<kMaskInt | kMaskFloat>(a.op_name(), x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    const Dense<T> values(a.ret(0));
    const T* data = static_cast<const T*>(x.data);
    for_planes(p, p.oh * p.ow * w.kh * w.kw, [&](int64_t plane) {
      const T* from = data + plane * p.h * p.w;
      T* to = values.data + plane * p.oh * p.ow;
      int64_t* at = indices.data + plane * p.oh * p.ow;
      for (int64_t r = 0; r < p.oh; ++r) {
        for (int64_t c = 0; c < p.ow; ++c) {
          int64_t best_at = -1;
          C best = C(0);
          for (int64_t i = 0; i < w.kh; ++i) {
            const int64_t row = r * w.sh - w.ph + i * w.dh;
            if (row < 0 || row >= p.h) continue;
            for (int64_t j = 0; j < w.kw; ++j) {
              const int64_t col = c * w.sw - w.pw + j * w.dw;
              if (col < 0 || col >= p.w) continue;
              const C v = C(from[row * p.w + col]);
              if (best_at < 0 || v > best || v != v) {
                best = v;
                best_at = row * p.w + col;
              }
            }
          }
          if (best_at < 0)
            rb::fail(RB_E_ARG, "max_pool2d: a window lies in the padding altogether");
          to[r * p.ow + c] = T(best);
          at[r * p.ow + c] = best_at;
        }
      }
    });
    values.finish();
  });
  indices.finish();
}

// One window of average pooling: its elements and what their sum is divided by.
struct Span1 {
  int64_t begin, end, full;  // inside the plane; with padding
};
Span1 span(int64_t i, int64_t stride, int64_t pad, int64_t size, int64_t n) {
  const int64_t begin = i * stride - pad, end = std::min(begin + size, n + pad);
  return {std::max<int64_t>(begin, 0), std::min(end, n), end - begin};
}

struct Average {
  Window w;
  bool count_pad;
  int64_t divisor;  // 0: none given

  Average(const rb::Args& a, int first) : w(window(a, first, false)) {
    count_pad = !a.has(first + 4) || a.boolean(first + 4);
    divisor = a.has(first + 5) ? a.integer(first + 5) : 0;
    if (a.has(first + 5) && divisor == 0)
      rb::fail(RB_E_ARG, "avg_pool2d: `divisor_override` must not be 0");
  }
  Span1 rows(int64_t r, const Planes& p) const { return span(r, w.sh, w.ph, w.kh, p.h); }
  Span1 cols(int64_t c, const Planes& p) const { return span(c, w.sw, w.pw, w.kw, p.w); }
  int64_t divide_by(const Span1& r, const Span1& c) const {
    if (divisor) return divisor;
    return count_pad
               ? r.full * c.full
               : std::max<int64_t>(0, r.end - r.begin) * std::max<int64_t>(0, c.end - c.begin);
  }
};
struct Adaptive {
  static Span1 part(int64_t i, int64_t n, int64_t parts) {
    const int64_t begin = i * n / parts, end = ((i + 1) * n + parts - 1) / parts;
    return {begin, end, end - begin};
  }
  Span1 rows(int64_t r, const Planes& p) const { return part(r, p.h, p.oh); }
  Span1 cols(int64_t c, const Planes& p) const { return part(c, p.w, p.ow); }
  int64_t divide_by(const Span1& r, const Span1& c) const { return r.full * c.full; }
};

template <class Rule>
void average(const rb::Args& a, const Rule& rule) {
  const RbTensor& x = a.tensor(0);
  const Planes p = planes(a, x, a.ret());
  dispatch_dtype<kMaskFloat>(a.op_name(), x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    const Dense<T> out(a.ret());
    const T* data = static_cast<const T*>(x.data);
    for_planes(p, 2 * (p.h * p.w + p.oh * p.ow), [&](int64_t plane) {
      const T* from = data + plane * p.h * p.w;
      T* to = out.data + plane * p.oh * p.ow;
      for (int64_t r = 0; r < p.oh; ++r) {
        const Span1 rows = rule.rows(r, p);
        for (int64_t c = 0; c < p.ow; ++c) {
          const Span1 cols = rule.cols(c, p);
          C sum = C(0);
          for (int64_t i = rows.begin; i < rows.end; ++i) {
            for (int64_t j = cols.begin; j < cols.end; ++j) sum += C(from[i * p.w + j]);
          }
          to[r * p.ow + c] = T(sum / C(rule.divide_by(rows, cols)));
        }
      }
    });
    out.finish();
  });
}

// The transpose: each gradient is spread over its window.
template <class Rule>
void spread(const rb::Args& a, const Rule& rule) {
  const RbTensor& g = a.tensor(0);
  const Planes p = planes(a, a.ret(), g);
  dispatch_dtype<kMaskFloat>(a.op_name(), g.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    const Dense<T> out(a.ret());
    const T* data = static_cast<const T*>(g.data);
    for_planes(p, 2 * (p.h * p.w + p.oh * p.ow), [&](int64_t plane) {
      const T* from = data + plane * p.oh * p.ow;
      T* to = out.data + plane * p.h * p.w;
      rb::Scratch<C> sum(p.h * p.w);
      std::fill_n(sum.data(), p.h * p.w, C(0));
      for (int64_t r = 0; r < p.oh; ++r) {
        const Span1 rows = rule.rows(r, p);
        for (int64_t c = 0; c < p.ow; ++c) {
          const Span1 cols = rule.cols(c, p);
          const C share = C(from[r * p.ow + c]) / C(rule.divide_by(rows, cols));
          for (int64_t i = rows.begin; i < rows.end; ++i) {
            for (int64_t j = cols.begin; j < cols.end; ++j) sum[i * p.w + j] += share;
          }
        }
      }
      for (int64_t i = 0; i < p.h * p.w; ++i) to[i] = T(sum[i]);
    });
    out.finish();
  });
}

void avg_pool_kernel(const rb::Args& a) { average(a, Average(a, 1)); }
void avg_pool_dx_kernel(const rb::Args& a) { spread(a, Average(a, 2)); }
void adaptive_kernel(const rb::Args& a) { average(a, Adaptive()); }
void adaptive_dx_kernel(const rb::Args& a) { spread(a, Adaptive()); }

const rb::KernelSpec kKernels[] = {
    {"max_pool2d_with_indices", rb::wrap<max_pool_kernel>, RB_K_CONTIGUOUS, kMaskInt | kMaskFloat},
    {"avg_pool2d", rb::wrap<avg_pool_kernel>, RB_K_CONTIGUOUS, kMaskFloat},
    {"avg_pool2d_dx", rb::wrap<avg_pool_dx_kernel>, RB_K_CONTIGUOUS, kMaskFloat},
    {"adaptive_avg_pool2d", rb::wrap<adaptive_kernel>, RB_K_CONTIGUOUS, kMaskFloat},
    {"adaptive_avg_pool2d_dx", rb::wrap<adaptive_dx_kernel>, RB_K_CONTIGUOUS, kMaskFloat},
};

}  // namespace

int32_t add_pool(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu
