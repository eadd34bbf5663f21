// matmul, linear and addmm.
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "common/kernels.h"
#include "common/level.h"
#include "common/operands.h"
#include "elementwise/fused.h"
#include "elementwise/ops.h"
#include "matmul/gemm.h"
#include "matmul/gemm_bf16.h"

namespace rbcpu {

void* gemm_workspace() {
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  thread_local std::unique_ptr<void, Free> space;
  if (!space) {
    space.reset(std::aligned_alloc(64, (gemm_table().workspace_bytes + 63) & ~size_t{63}));
    if (!space) throw std::bad_alloc();
  }
  return space.get();
}
const GemmTable& gemm_table() { return RB_PICK_LEVEL(gemm_table); }

namespace {

// How this CPU multiplies bfloat16, found once. Tiles need the kernel's permission.
enum class Bf16Unit { none, dot, tiles };
Bf16Unit bf16_unit() {
  static const Bf16Unit unit = [] {
#if defined(__x86_64__)
    unsigned a, b, c, d;
    constexpr unsigned kDotBit = 1u << 5;                // AVX512-BF16
    constexpr unsigned kTileBits = 1u << 22 | 1u << 24;  // AMX-BF16, AMX-TILE
    constexpr int kRequestPermission = 0x1023, kTileData = 18;
    if (cpu_level() < 4 || !__get_cpuid_count(7, 1, &a, &b, &c, &d) || !(a & kDotBit))
      return Bf16Unit::none;
    __get_cpuid_count(7, 0, &a, &b, &c, &d);
    const char* off = std::getenv("RABBET_CPU_AMX");
    if ((d & kTileBits) == kTileBits && !(off && off[0] == '0') &&
        syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0) {
      return Bf16Unit::tiles;
    }
    return Bf16Unit::dot;
#else
    return Bf16Unit::none;
#endif
  }();
  return unit;
}

// `batch` products of one geometry; at(i) gives the i-th.
template <class At>
void bf16_batch(int64_t batch, int64_t m, int64_t n, int64_t k, const At& at) {
  if (batch == 0 || m == 0 || n == 0) return;
  const bool amx = bf16_unit() == Bf16Unit::tiles;
  GemmBf16 first = at(0);
  first.m = m;
  first.n = n;
  const bool vectors = is_bf16_vectors(first);
  const Bf16Way way = vectors ? Bf16Way::vectors : amx ? Bf16Way::tiles : Bf16Way::rows;
  const double task = vectors ? 5e5 : amx ? 2e7 : 4e6;  // each about 20 us
  const GemmTiles tiles(m, n, std::max<int64_t>(k, 1), batch, task);
  for_tiles(batch, m, n, tiles,
            [&](int64_t index, int64_t i, int64_t j, int64_t rows, int64_t cols) {
              GemmBf16 g = at(index);
              g.m = rows;
              g.n = cols;
              g.a += i * g.as_m;
              g.b += j * g.bs_n;
              g.c += i * g.cs_m + j * g.cs_n;
              if (g.bias) g.bias += i * g.bias_m + j * g.bias_n;
              thread_local std::vector<float> space;
              const size_t need = (gemm_bf16_workspace(rows, cols, k) + 64) / sizeof(float);
              if (space.size() < need) space.resize(need);
              void* start = space.data();
              size_t room = space.size() * sizeof(float);
              gemm_bf16(g, way, std::align(64, need * sizeof(float) - 64, start, room));
            });
}

constexpr uint64_t kMaskMatmul = kMaskInt | kMaskFloat | kMaskComplex;

void insert_dim(View& v, int at) {
  for (int d = v.ndim; d > at; --d) {
    v.shape[d] = v.shape[d - 1];
    v.strides[d] = v.strides[d - 1];
  }
  v.shape[at] = 1;
  v.strides[at] = 0;
  ++v.ndim;
}

// Offset of batch element `index` (row-major over the result's batch dimensions) in `v`, broadcast.
int64_t batch_offset(const View& v, const View& out, int64_t index) {
  int64_t offset = 0;
  for (int d = out.ndim - 3, k = v.ndim - 3; d >= 0; --d, --k) {
    const int64_t i = index % out.shape[d];
    index /= out.shape[d];
    if (k >= 0 && v.shape[k] != 1) offset += i * v.strides[k];
  }
  return offset;
}

// What becomes of the sums of a product: activation(alpha sums + bias), or + what the result holds
// already.
struct Epilogue {
  const void* bias = nullptr;  // one per column, in the type of the sums: float for bfloat16
  int64_t bias_step = 0;       // elements from the bias of one product to that of the next
  bool bias_is_whole =
      false;  // a dense array in the shape of the result instead, for bfloat16 only
  bool add = false;
  RbValue alpha = rb::int_value(1);
  Loop activation = nullptr;  // in the type of the sums

  template <class T>
  void apply(Gemm<T>& g) const {
    g.mode = add ? kGemmAccumulate : kGemmStore;
    g.bias = static_cast<const T*>(bias);
    g.alpha = from_value<T>(alpha);
    g.activation = activation;
  }
};

void matmul_views(const char* op, View a, View b, View out, const Epilogue& end) {
  if (a.ndim == 1) {
    insert_dim(a, 0);
    insert_dim(out, b.ndim == 1 ? out.ndim : out.ndim - 1);
  }
  if (b.ndim == 1) {
    insert_dim(b, 1);
    insert_dim(out, out.ndim);
  }
  const int64_t m = out.shape[out.ndim - 2], n = out.shape[out.ndim - 1], k = a.shape[a.ndim - 1];
  int64_t batch = 1;
  for (int d = 0; d < out.ndim - 2; ++d) batch *= out.shape[d];
  // What all kinds of products share.
  auto operands = [&](auto& g, int64_t i, auto element) {
    using T = decltype(element);
    g.k = k;
    g.a = reinterpret_cast<const T*>(a.data) + batch_offset(a, out, i);
    g.as_m = a.strides[a.ndim - 2];
    g.as_k = a.strides[a.ndim - 1];
    g.b = reinterpret_cast<const T*>(b.data) + batch_offset(b, out, i);
    g.bs_k = b.strides[b.ndim - 2];
    g.bs_n = b.strides[b.ndim - 1];
    g.c = reinterpret_cast<T*>(out.data) + i * m * n;
  };
  if (out.dtype == RB_BF16) {
    return bf16_batch(batch, m, n, k, [&](int64_t i) {
      GemmBf16 g;
      operands(g, i, uint16_t{});
      g.cs_m = n;
      g.cs_n = 1;
      g.bias = static_cast<const float*>(end.bias);
      g.bias_m = end.bias_is_whole ? n : 0;
      g.bias_n = 1;
      if (end.bias_is_whole) g.bias += i * m * n;
      g.alpha = static_cast<float>(rb::to_double(end.alpha));
      g.activation = end.activation;
      return g;
    });
  }
  dispatch_dtype<kMaskMatmul & ~kMaskHalf>(op, out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    gemm_batch<T>(batch, m, n, k, [&](int64_t i) {
      Gemm<T> g;
      operands(g, i, T{});
      g.ldc = n;
      end.apply(g);
      if (g.bias) g.bias += i * end.bias_step;
      return g;
    });
  });
}

// Leading dimensions of `v` as one, if its strides allow that: a stack of rows is one tall matrix.
bool flatten_leading(View& v) {
  int64_t rows = 1, stride = 0;
  for (int d = v.ndim - 2; d >= 0; --d) {
    if (v.shape[d] == 1) continue;
    if (rows == 1) {
      stride = v.strides[d];
    } else if (v.strides[d] != stride * rows) {
      return false;
    }
    rows *= v.shape[d];
  }
  v.shape[0] = rows;
  v.strides[0] = stride;
  v.shape[1] = v.shape[v.ndim - 1];
  v.strides[1] = v.strides[v.ndim - 1];
  v.ndim = 2;
  return true;
}

void check_inner(const char* op, const View& a, const View& b, int64_t ka, int64_t kb) {
  if (ka == kb) return;
  rb::fail(RB_E_ARG, "%s: inner sizes differ: %lld and %lld (%d-d and %d-d arguments)", op,
           static_cast<long long>(ka), static_cast<long long>(kb), a.ndim, b.ndim);
}

// One row of a product; every sum goes over k in order.
struct TinySizes {
  int64_t n, k, as_k, bs_k, bs_n;
};
template <class T>
inline void tiny_row(const TinySizes s, const T* a, const T* b, T* row) {
  int64_t j = 0;
  if (s.bs_n == 1) {  // columns that lie side by side, four at a time
    typedef T Four __attribute__((vector_size(4 * sizeof(T)), aligned(alignof(T)), may_alias));
    for (; j + 4 <= s.n; j += 4) {
      Four sum = {};
      const T *x = a, *y = b + j;
      for (int64_t p = s.k; p > 0; --p, x += s.as_k, y += s.bs_k)
        sum += *x * *reinterpret_cast<const Four*>(y);
      *reinterpret_cast<Four*>(row + j) = sum;
    }
  }
  for (; j < s.n; ++j) {
    T sum = 0;
    for (int64_t p = 0; p < s.k; ++p) sum += a[p * s.as_k] * b[p * s.bs_k + j * s.bs_n];
    row[j] = sum;
  }
}

// So small that packing would cost more than the product: rows of c in registers. The limits are
// sizes alone, as everywhere in the order of summation.
template <class T>
bool tiny_product(const Gemm<T>& g) {
  constexpr int64_t kCols = 16, kWork = 512;
  if (g.n > kCols || g.m > kWork || g.k > kWork || g.m * g.n * g.k > kWork) return false;
  const TinySizes sizes{g.n, g.k, g.as_k, g.bs_k, g.bs_n};
  const bool add = g.mode == kGemmAccumulate;
  if (!add && !g.bias && g.alpha == T(1)) {  // the sums are the result
    const T *a = g.a, *const b = g.b;
    T* c = g.c;
    const int64_t step = g.as_m, ldc = g.ldc;
    for (int64_t i = g.m; i > 0; --i, a += step, c += ldc) tiny_row(sizes, a, b, c);
    if (g.activation) activate(g.activation, g.c, g.m, g.n, g.ldc);
    return true;
  }
  for (int64_t i = 0; i < g.m; ++i) {
    T row[kCols];
    T* c = g.c + i * g.ldc;
    tiny_row(sizes, g.a + i * g.as_m, g.b, row);
    for (int64_t j = 0; j < g.n; ++j)
      c[j] = g.alpha * row[j] + (add ? c[j] : g.bias ? g.bias[j] : T(0));
  }
  if (g.activation) activate(g.activation, g.c, g.m, g.n, g.ldc);
  return true;
}

// The common case without views: two matrices of float32 or float64, `b` as given or transposed.
bool plain_product(const RbTensor& a, const RbTensor& b, bool transposed, const RbTensor& out,
                   const Epilogue& end) {
  if (a.ndim != 2 || b.ndim != 2 || !(out.flags & RB_T_CONTIGUOUS) || a.dtype_id != b.dtype_id ||
      a.dtype_id != out.dtype_id || a.shape[1] != b.shape[transposed ? 1 : 0]) {
    return false;
  }
  return visit_dtype < bit(RB_F32) |
         bit(RB_F64) > (a.dtype_id, [&](auto tag) {
           using T = typename decltype(tag)::type;
           Gemm<T> g;
           g.m = a.shape[0];
           g.n = b.shape[transposed ? 0 : 1];
           g.k = a.shape[1];
           g.a = static_cast<const T*>(a.data);
           g.as_m = a.strides[0];
           g.as_k = a.strides[1];
           g.b = static_cast<const T*>(b.data);
           g.bs_k = b.strides[transposed ? 1 : 0];
           g.bs_n = b.strides[transposed ? 0 : 1];
           g.c = static_cast<T*>(out.data);
           g.ldc = g.n;
           end.apply(g);
           if (!tiny_product(g)) gemm_batch<T>(1, g.m, g.n, g.k, [&](int64_t) { return g; });
         });
}

bool native_bf16(const RbTensor& a, const RbTensor& b, const RbTensor& out) {
  return out.dtype_id == RB_BF16 && a.dtype_id == RB_BF16 && b.dtype_id == RB_BF16 &&
         bf16_unit() != Bf16Unit::none;
}

void matmul_kernel(const rb::Args& args) {
  if (plain_product(args.tensor(0), args.tensor(1), false, args.ret(), {})) return;
  const bool native = native_bf16(args.tensor(0), args.tensor(1), args.ret());
  const Operand a(view_of(args.tensor(0)), native), b(view_of(args.tensor(1)), native);
  const Result out(args.ret(), native);
  if (a.view.ndim == 0 || b.view.ndim == 0)
    rb::fail(RB_E_ARG, "matmul: both arguments need at least 1 dimension");
  check_inner("matmul", a.view, b.view, a.view.shape[a.view.ndim - 1],
              b.view.shape[b.view.ndim == 1 ? 0 : b.view.ndim - 2]);
  View av = a.view, ov = out.view;
  // (..., m, k) @ (k, n): one product of many rows.
  if (b.view.ndim == 2 && av.ndim > 2 && flatten_leading(av)) {
    ov = dense_view(ov.data, ov.dtype, ov);
    flatten_leading(ov);
  } else {
    av = a.view;
  }
  matmul_views("matmul", av, b.view, ov, {});
  out.finish();
}

// Whether `row` can be added to the columns of the matrix `out` as it lies.
bool is_plain_row(const RbTensor& row, const RbTensor& out) {
  return out.ndim == 2 && (row.flags & RB_T_CONTIGUOUS) != 0 && row.dtype_id == out.dtype_id &&
         row.numel == out.shape[1] && row.shape[row.ndim - 1] == row.numel;
}

// Whether `added` is a row for the columns of each matrix in `out`, as it lies, and how far they
// are apart: one row for a product of its own, or for all.
bool is_row_of_each(const RbTensor& added, const RbTensor& out, int64_t& step) {
  const int last = added.ndim - 1;
  if (out.ndim != 3 || last < 0 || added.dtype_id != out.dtype_id ||
      added.shape[last] != out.shape[2] || (added.strides[last] != 1 && out.shape[2] > 1) ||
      (last > 0 && added.shape[last - 1] != 1))
    return false;
  step = last == 2 && added.shape[0] > 1 ? added.strides[0] : 0;
  return true;
}

void linear_of(const rb::Args& args, Epilogue end) {
  const RbTensor* row = args.optional_tensor(2);
  if (!row || is_plain_row(*row, args.ret())) {
    end.bias = row ? row->data : nullptr;
    if (plain_product(args.tensor(0), args.tensor(1), true, args.ret(), end)) return;
  }
  const bool native = native_bf16(args.tensor(0), args.tensor(1), args.ret());
  const Operand x(view_of(args.tensor(0)), native), w(view_of(args.tensor(1)), native);
  const Result out(args.ret(), native);
  View wt = w.view, xv = x.view, ov = out.view;
  if (wt.ndim == 1) insert_dim(wt, 0);
  if (xv.ndim == 0 || wt.ndim != 2)
    rb::fail(RB_E_ARG, "linear: expected weight of 2 dimensions and input of at least 1");
  check_inner("linear", xv, wt, xv.shape[xv.ndim - 1], wt.shape[1]);
  std::swap(wt.shape[0], wt.shape[1]);
  std::swap(wt.strides[0], wt.strides[1]);
  // The bias as dense elements of the type of the sums.
  std::unique_ptr<rb::Scratch<char>> bias;
  if (const RbTensor* given = args.optional_tensor(2)) {
    const int dtype = native ? static_cast<int>(RB_F32) : ov.dtype;
    bias = std::make_unique<rb::Scratch<char>>(wt.shape[1] * kItemSize[dtype]);
    View row = wt;
    row.ndim = 1;
    row.shape[0] = wt.shape[1];
    copy_view(dense_view(bias->data(), dtype, row), view_of(*given));
  }
  if (w.view.ndim == 1) insert_dim(ov, ov.ndim);
  if (xv.ndim == 1) {
    insert_dim(xv, 0);
    insert_dim(ov, 0);
  }
  if (flatten_leading(xv)) {
    ov = dense_view(ov.data, ov.dtype, ov);
    flatten_leading(ov);
  } else if (ov.ndim > 2) {
    xv = x.view;
  }
  end.bias = bias ? bias->data() : nullptr;
  matmul_views("linear", xv, wt, ov, end);
  out.finish();
}

void linear_kernel(const rb::Args& args) { linear_of(args, {}); }

// The activation's loop in the type of the sums: float32 for the 16-bit floats.
void linear_activation_kernel(const rb::Args& args) {
  static constexpr struct {
    const char* name;
    Fn fn;
  } kActivations[] = {{"relu", Fn::k_relu},
                      {"gelu", Fn::k_gelu},
                      {"gelu_tanh", Fn::k_gelu_tanh},
                      {"tanh", Fn::k_tanh}};
  Epilogue end;
  for (const auto& a : kActivations) {
    if (!std::strcmp(a.name, args.str(3)))
      end.activation = fn_table(args.ret().dtype_id).loops[static_cast<int>(a.fn)];
  }
  if (!end.activation) end.activation = fused_unary(args.str(3), args.ret());
  if (!end.activation)
    rb::fail(RB_E_NOTIMPL, "linear_activation: no loop for '%s' on cpu", args.str(3));
  linear_of(args, end);
}

// to *= by, for dense numbers that are multiplied.
void scale(const View& to, const RbValue& by) {
  dispatch_dtype<kMaskMatmul & ~kMaskHalf>("addmm", to.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T factor = from_value<T>(by);
    T* const x = reinterpret_cast<T*>(to.data);
    rb::parallel_for(to.numel(), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) x[i] = T(x[i] * factor);
    });
  });
}

// beta * input + alpha * a @ b, of matrices or batches of them.
void addmm_kernel(const rb::Args& args) {
  const RbTensor& input = args.tensor(0);
  const RbValue& beta = args.args[3];
  const bool is_zero = beta.tag != RB_COMPLEX && rb::to_double(beta) == 0.0;
  const bool is_one = beta.tag != RB_COMPLEX && rb::to_double(beta) == 1.0;
  Epilogue end;
  end.alpha = args.args[4];
  if (is_zero || (is_one && is_plain_row(input, args.ret()))) {
    end.bias = is_zero ? nullptr : input.data;
    if (plain_product(args.tensor(1), args.tensor(2), false, args.ret(), end)) return;
    end.bias = nullptr;
  }
  const bool native = native_bf16(args.tensor(1), args.tensor(2), args.ret());
  const Operand a(view_of(args.tensor(1)), native), b(view_of(args.tensor(2)), native);
  const Result out(args.ret(), native);
  std::unique_ptr<rb::Scratch<float>> sums;  // what is added, where the result cannot hold it
  if (is_one && !native && out.view.dtype == input.dtype_id &&
      is_row_of_each(input, args.ret(), end.bias_step)) {
    end.bias = input.data;
  } else if (!is_zero) {
    View start = out.view;
    if (native) {
      sums = std::make_unique<rb::Scratch<float>>(out.view.numel());
      start = dense_view(sums->data(), RB_F32, out.view);
      end.bias = sums->data();
      end.bias_is_whole = true;
    } else {
      end.add = true;
    }
    copy_view(start, view_of(input));
    if (!is_one) scale(start, beta);
  }
  matmul_views("addmm", a.view, b.view, out.view, end);
  out.finish();
}

const rb::KernelSpec kKernels[] = {
    {"matmul", rb::wrap<matmul_kernel>, 0, kMaskMatmul},
    {"linear", rb::wrap<linear_kernel>, 0, kMaskMatmul},
    {"linear_activation", rb::wrap<linear_activation_kernel>, 0, kMaskFloat},
    {"addmm", rb::wrap<addmm_kernel>, 0, kMaskMatmul},
    {"baddbmm", rb::wrap<addmm_kernel>, 0, kMaskMatmul},
};

}  // namespace

int32_t add_matmul(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu
