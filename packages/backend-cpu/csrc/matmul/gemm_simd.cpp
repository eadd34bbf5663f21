// Blocked matrix products of float32 and float64, once per instruction-set level. Compiled with
// contraction, so that a * b + c is one instruction where the level has it. Each element of the
// result is summed in one order, equal blocks of at most kDepth, wherever it lies: how a caller
// cuts the product into tiles does not change a bit.
#include "common/level.h"
#include "matmul/gemm_pack.h"
#include "matmul/gemm_types.h"
#include "matmul/gemv.h"

namespace {

// The micro-kernel's block of sums fills most registers: 8 x 3 of 32, or 6 x 2 of 16.
constexpr int kMaxRows = kVectorBytes == 64 ? 8 : 6;
constexpr int kMaxVecs = kVectorBytes == 64 ? 3 : 2;
// A packed panel of b (kDepth x kCols) and the block of a stay in the second-level cache; the block
// of b may be in the third.
constexpr int64_t kDepth = 384;
constexpr int64_t kBlockRows = kMaxRows * 32;
constexpr int64_t kBlockCols = 2064;  // a multiple of every kCols
// a is packed for more panels of b than these only.
constexpr int64_t kDirectPanels = 3;
// Up to here packing b costs more than reading it where it lies, if its rows run along memory.
constexpr int64_t kDirectRows = 64;
constexpr int64_t kNarrow = 256;  // columns at a time of a narrow product, which is done transposed
template <class T>
constexpr int kCols = kMaxVecs * kLanes<T>;

using rbcpu::Gemm;

// Where a block of sums goes: c = (c | bias | 0) + alpha * sums, `cols` columns wide.
template <class T>
struct Target {
  T* c;
  int64_t ldc;
  T alpha;
  bool add;
  const T* bias;
  int cols;
};

// Rows x Vecs vectors of c from rows of a and of b, packed panels or where they lie.
template <class T, int Rows, int Vecs>
__attribute__((noinline)) void micro(int64_t depth, const T* a, int64_t as_m, int64_t as_k,
                                     const T* b, int64_t ldb, const Target<T>& to) {
  using V = typename VectorOf<T>::type;
  constexpr int L = kLanes<T>;
  V sum[Rows][Vecs];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 3
    for (int v = 0; v < Vecs; ++v) sum[r][v] = V{};
  }
  // Rows of c are fetched one after another meanwhile: at once they would hold up the loads of b.
  for (int part = 0; part < Rows; ++part) {
#pragma GCC unroll 3
    for (int v = 0; v < Vecs; ++v) __builtin_prefetch(to.c + part * to.ldc + v * L, 1);
    const int64_t end = depth * (part + 1) / Rows;
#pragma GCC unroll 2
    for (int64_t p = depth * part / Rows; p < end; ++p) {
      V row[Vecs];
#pragma GCC unroll 3
      for (int v = 0; v < Vecs; ++v) row[v] = load_vector(b + v * L);
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 3
        for (int v = 0; v < Vecs; ++v) sum[r][v] += a[r * as_m] * row[v];
      }
      a += as_k;
      b += ldb;
    }
  }
  if (to.alpha != T(1)) {
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 3
      for (int v = 0; v < Vecs; ++v) sum[r][v] *= to.alpha;
    }
  }
  if (to.cols == Vecs * L) {
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 3
      for (int v = 0; v < Vecs; ++v) {
        T* out = to.c + r * to.ldc + v * L;
        if (to.add) {
          sum[r][v] += load_vector(out);
        } else if (to.bias) {
          sum[r][v] += load_vector(to.bias + v * L);
        }
        store_vector(out, sum[r][v]);
      }
    }
    return;
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 3
    for (int v = 0; v < Vecs; ++v) {
      const int n = to.cols - v * L < L ? to.cols - v * L : L;
      T* out = to.c + r * to.ldc + v * L;
      if (to.add) {
        sum[r][v] += load_part(out, n);
      } else if (to.bias) {
        sum[r][v] += load_part(to.bias + v * L, n);
      }
      store_part(out, sum[r][v], n);
    }
  }
}

template <class T>
using Micro = void (*)(int64_t, const T*, int64_t, int64_t, const T*, int64_t, const Target<T>&);
template <class T, int Vecs>
constexpr Micro<T> kMicro[] = {
    nullptr,           micro<T, 1, Vecs>, micro<T, 2, Vecs>, micro<T, 3, Vecs>,
    micro<T, 4, Vecs>, micro<T, 5, Vecs>, micro<T, 6, Vecs>,
#if defined(__AVX512F__)
    micro<T, 7, Vecs>, micro<T, 8, Vecs>,
#endif
};
template <class T>
const Micro<T>* kernels_of(int64_t vecs) {
  if (vecs == 1) return kMicro<T, 1>;
  if (vecs == 2) return kMicro<T, 2>;
  return kMicro<T, kMaxVecs>;
}

template <class T>
struct Workspace {
  T* a;
  T* b;
  T* narrow;
  explicit Workspace(void* memory)
      : a(static_cast<T*>(memory)), b(a + kBlockRows * kDepth), narrow(b + kBlockCols * kDepth) {}
  static constexpr int64_t kElements = (kBlockRows + kBlockCols) * kDepth + kCols<T> * kNarrow;
};

// A column times a row: nothing is summed, so that rows of c are written one after another.
template <class T>
void outer(const Gemm<T>& g) {
  using V = typename VectorOf<T>::type;
  constexpr int64_t L = kLanes<T>;
  const bool add = g.mode == rbcpu::kGemmAccumulate;
  const int64_t whole = g.n / L * L;
  const int rest = static_cast<int>(g.n - whole);
  for (int64_t i = 0; i < g.m; ++i) {
    const T x = g.a[i * g.as_m];
    T* c = g.c + i * g.ldc;
    const T* more = add ? c : g.bias;
    if (g.alpha == T(1) && !more) {
      for (int64_t j = 0; j < whole; j += L) store_vector(c + j, x * load_vector(g.b + j));
    } else {
      for (int64_t j = 0; j < whole; j += L) {
        const V product = x * load_vector(g.b + j) * g.alpha;
        store_vector(c + j, more ? product + load_vector(more + j) : product);
      }
    }
    if (!rest) continue;
    const V product = x * load_part(g.b + whole, rest) * g.alpha;
    store_part(c + whole, more ? product + load_part(more + whole, rest) : product, rest);
  }
}

template <class T>
void block(const Gemm<T>& g, const Workspace<T>& space) {
  constexpr int64_t W = kCols<T>, L = kLanes<T>;
  const bool add = g.mode == rbcpu::kGemmAccumulate;
  if (g.k == 1 && g.bs_n == 1) return outer(g);
  if (g.k == 0) {
    for (int64_t i = 0; i < g.m && !add; ++i) {
      for (int64_t j = 0; j < g.n; ++j) g.c[i * g.ldc + j] = g.bias ? g.bias[j] : T(0);
    }
    return;
  }
  const int64_t blocks = (g.k + kDepth - 1) / kDepth;
  const int64_t most = ((g.k + blocks - 1) / blocks + 15) / 16 * 16;
  const bool direct_a = g.n <= kDirectPanels * W && g.k <= kDepth;
  const bool direct_b = g.bs_n == 1 && g.m <= kDirectRows;
  for (int64_t j0 = 0; j0 < g.n; j0 += kBlockCols) {
    const int64_t nb = g.n - j0 < kBlockCols ? g.n - j0 : kBlockCols;
    const int64_t direct = direct_b ? nb / W * W : 0;  // columns that are read where they lie
    for (int64_t p0 = 0; p0 < g.k; p0 += most) {
      const int64_t depth = g.k - p0 < most ? g.k - p0 : most;
      const T* b_block = g.b + p0 * g.bs_k + j0 * g.bs_n;
      if (direct < nb) {
        pack_b<T>(b_block + direct * g.bs_n, g.bs_k, g.bs_n, depth, nb - direct, W,
                  space.b + direct * depth);
      }
      for (int64_t i0 = 0; i0 < g.m; i0 += kBlockRows) {
        const int64_t mb = g.m - i0 < kBlockRows ? g.m - i0 : kBlockRows;
        // Panels of nearly equal height instead of full ones and a thin rest.
        const int64_t panels = (mb + kMaxRows - 1) / kMaxRows;
        const T* a_block = g.a + i0 * g.as_m + p0 * g.as_k;
        if (!direct_a) pack_a<T>(a_block, g.as_m, g.as_k, mb, panels, depth, space.a);
        for (int64_t j = 0; j < nb; j += W) {
          const int64_t width = panel_width<T>(nb - j, W);
          const bool in_place = j < direct;
          const T* b = in_place ? b_block + j : space.b + j * depth;
          const Micro<T>* kernels = kernels_of<T>(width / L);
          for (int64_t q = 0, r0 = 0; q < panels; ++q) {
            const int64_t rows = mb * (q + 1) / panels - r0;
            const Target<T> to{g.c + (i0 + r0) * g.ldc + j0 + j,
                               g.ldc,
                               g.alpha,
                               add || p0 > 0,
                               g.bias ? g.bias + j0 + j : nullptr,
                               static_cast<int>(nb - j < width ? nb - j : width)};
            const T* a = direct_a ? a_block + r0 * g.as_m : space.a + r0 * depth;
            kernels[rows](depth, a, direct_a ? g.as_m : 1, direct_a ? g.as_k : rows, b,
                          in_place ? g.bs_k : width, to);
            r0 += rows;
          }
        }
      }
    }
  }
}

// A product of few columns fills no vector: done transposed, its rows become the columns.
template <class T>
void narrow(const Gemm<T>& g, const Workspace<T>& space) {
  const bool add = g.mode == rbcpu::kGemmAccumulate;
  for (int64_t i0 = 0; i0 < g.m; i0 += kNarrow) {
    const int64_t mb = g.m - i0 < kNarrow ? g.m - i0 : kNarrow;
    Gemm<T> turned = g;
    turned.m = g.n;
    turned.n = mb;
    turned.a = g.b;
    turned.as_m = g.bs_n;
    turned.as_k = g.bs_k;
    turned.b = g.a + i0 * g.as_m;
    turned.bs_k = g.as_k;
    turned.bs_n = g.as_m;
    turned.c = space.narrow;
    turned.ldc = mb;
    turned.mode = rbcpu::kGemmStore;
    turned.bias = nullptr;
    block(turned, space);
    for (int64_t i = 0; i < mb; ++i) {
      T* c = g.c + (i0 + i) * g.ldc;
      for (int64_t j = 0; j < g.n; ++j)
        c[j] = space.narrow[j * mb + i] + (add ? c[j] : g.bias ? g.bias[j] : T(0));
    }
  }
}

template <class T>
void gemm(const Gemm<T>& g, void* workspace) {
  const bool add = g.mode == rbcpu::kGemmAccumulate;
  switch (g.shape) {
    case rbcpu::kGemmColumn:
      return gemv<T>(
          {g.m, g.k, g.a, g.as_m, g.as_k, g.b, g.bs_k, g.c, g.ldc, g.alpha, add, g.bias, 0});
    case rbcpu::kGemmRow:
      return gemv<T>({g.n, g.k, g.b, g.bs_n, g.bs_k, g.a, g.as_k, g.c, 1, g.alpha, add, g.bias, 1});
    case rbcpu::kGemmNarrow:
      return narrow(g, Workspace<T>(workspace));
    default:
      return block(g, Workspace<T>(workspace));
  }
}

// How a product of this size is done; its tiles are then done the same way.
template <class T>
rbcpu::GemmShape shape(int64_t m, int64_t n) {
  if (n == 1) return rbcpu::kGemmColumn;
  if (m == 1) return rbcpu::kGemmRow;
  return n <= 2 * kLanes<T> && n % kLanes<T> != 0 && m > n ? rbcpu::kGemmNarrow : rbcpu::kGemmBlock;
}

}  // namespace

namespace rbcpu {
extern const GemmTable RB_LEVEL_NAME(gemm_table) = {
    static_cast<size_t>(Workspace<double>::kElements) * sizeof(double),
    kMaxRows,
    kCols<float>,
    gemm<float>,
    gemm<double>,
    shape<float>,
    shape<double>};
}  // namespace rbcpu
