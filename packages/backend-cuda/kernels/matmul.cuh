// activation(alpha A B + beta added), and sums of its parts. Before it stand A (the operands'
// dtype), T (computed in), O (the results') and D (what is added); `behind` it a kernel's macro.
struct Factor {  // twin of rbcuda::Factor
  double re, im;
  Int64 whole;
};
template <class T>
struct FactorAs {
  static __device__ T of(const Factor& f) { return (T)f.whole; }
};
template <>
struct FactorAs<float> {
  static __device__ float of(const Factor& f) { return (float)f.re; }
};
template <>
struct FactorAs<double> {
  static __device__ double of(const Factor& f) { return f.re; }
};
template <class R>
struct FactorAs<Complex<R>> {
  static __device__ Complex<R> of(const Factor& f) {
    Complex<R> result = {(R)f.re, (R)f.im};
    return result;
  }
};

struct Product {  // twin of rbcuda::ProductCall
  Int64 m, n, k;
  Int64 whole_k, parts;  // `parts` products after one another go on along k; the last may be short
  Int64 a_row, a_column, b_row, b_column, c_row, c_column, d_row, d_column;
  Factor alpha, beta;
  // Whether 16 bytes of a, b and c lie together and are aligned; has_d: something is added.
  int vector_a, vector_b, vector_c, has_d;
};

__device__ inline Int64 length(const Product& p, Int64 product) {
  const Int64 left = p.whole_k - product % p.parts * p.k;
  return left < p.k ? left : p.k;
}

// Contracted also where the compiler does not contract by itself.
template <class T>
__device__ inline T multiply_add(T a, T b, T sum) {
  return (T)(sum + a * b);
}
#ifndef CUSIM
__device__ inline float multiply_add(float a, float b, float sum) { return fmaf(a, b, sum); }
__device__ inline double multiply_add(double a, double b, double sum) { return fma(a, b, sum); }
template <class R>
__device__ inline Complex<R> multiply_add(Complex<R> a, Complex<R> b, Complex<R> sum) {
  Complex<R> result = {fma(a.re, b.re, fma(-a.im, b.im, sum.re)),
                       fma(a.re, b.im, fma(a.im, b.re, sum.im))};
  return result;
}
#endif

__device__ T activated(T x);  // of the kernel's macro
__device__ inline O finished(const Product& p, T sum, const D* d, Int64 row, Int64 column) {
  T x = (T)(FactorAs<T>::of(p.alpha) * sum);
  if (p.has_d)
    x = (T)(x + FactorAs<T>::of(p.beta) * As<T>::of(d[row * p.d_row + column * p.d_column]));
  return As<O>::of(activated(x));
}

// ---- tiles of TILE x TILE by 256 threads. A thread sums for groups of 4 x 4 that lie 64 apart.

template <int TILE, int DEPTH>
struct Tiles {
  enum { GROUPS = TILE / 64, EACH = TILE * DEPTH / 256, PITCH = TILE / 4 + 1 };

  // A thread's share of an operand: EACH elements along the dimension that lies together.
  // `outer` is the dimension of the result, `inner` k; from (start, depth) on.
  static __device__ void load(T* kept, const A* x, Int64 outer_step, Int64 inner_step, Int64 start,
                              Int64 outer, Int64 depth, Int64 inner, bool vector) {
    const int at = threadIdx.x * EACH;
    const bool along = inner_step == 1;  // k lies together
    const Int64 o = start + (along ? at / DEPTH : at % TILE);
    const Int64 i = depth + (along ? at % DEPTH : at / TILE);
    const A* from = x + o * outer_step + i * inner_step;
    if (vector && (along ? o < outer && i + EACH <= inner : i < inner && o + EACH <= outer)) {
      const Pack<A, EACH> pack = load_pack<EACH>(from);
      for (int e = 0; e < EACH; ++e) kept[e] = As<T>::of(pack.at[e]);
      return;
    }
    for (int e = 0; e < EACH; ++e) {
      const bool in = along ? o < outer && i + e < inner : i < inner && o + e < outer;
      kept[e] = in ? As<T>::of(from[along ? e * inner_step : e * outer_step]) : As<T>::of(0);
    }
  }
  static __device__ void keep(Pack<T, 4> (*shared)[PITCH], const T* kept, Int64 inner_step) {
    const int at = threadIdx.x * EACH;
    for (int e = 0; e < EACH; ++e) {
      const bool along = inner_step == 1;
      const int k = along ? at % DEPTH + e : at / TILE, o = along ? at / DEPTH : at % TILE + e;
      shared[k][o / 4].at[o % 4] = kept[e];
    }
  }

  static __device__ void run(O* c, const A* a, const A* b, const D* d, const Product& p,
                             const Layout& batch) {
    __shared__ Pack<T, 4> left[2][DEPTH][PITCH], right[2][DEPTH][PITCH];
    const Int64 row = (Int64)blockIdx.y * TILE, column = (Int64)blockIdx.x * TILE;
    const int x = threadIdx.x % 16 * 4, y = threadIdx.x / 16 * 4;
    for (Int64 z = blockIdx.z; z < batch.n; z += gridDim.z) {
      const Places at = places_of(batch, z);
      const Int64 depths = length(p, z);
      const A *here_a = a + at.at[1], *here_b = b + at.at[2];
      T sums[GROUPS * 4][GROUPS * 4], next_a[EACH], next_b[EACH];
      for (int i = 0; i < GROUPS * 4; ++i)
        for (int j = 0; j < GROUPS * 4; ++j) sums[i][j] = As<T>::of(0);
      load(next_a, here_a, p.a_row, p.a_column, row, p.m, 0, depths, p.vector_a);
      load(next_b, here_b, p.b_column, p.b_row, column, p.n, 0, depths, p.vector_b);
      int now = 0;
      for (Int64 depth = 0; depth < depths; depth += DEPTH, now ^= 1) {
        keep(left[now], next_a, p.a_column);
        keep(right[now], next_b, p.b_row);
        __syncthreads();
        if (depth + DEPTH < depths) {
          load(next_a, here_a, p.a_row, p.a_column, row, p.m, depth + DEPTH, depths, p.vector_a);
          load(next_b, here_b, p.b_column, p.b_row, column, p.n, depth + DEPTH, depths, p.vector_b);
        }
#pragma unroll 4
        for (int k = 0; k < DEPTH; ++k) {
          Pack<T, 4> l[GROUPS], r[GROUPS];
          for (int g = 0; g < GROUPS; ++g) {
            l[g] = left[now][k][g * 16 + y / 4];
            r[g] = right[now][k][g * 16 + x / 4];
          }
#pragma unroll
          for (int i = 0; i < GROUPS * 4; ++i)
#pragma unroll
            for (int j = 0; j < GROUPS * 4; ++j)
              sums[i][j] = multiply_add(l[i / 4].at[i % 4], r[j / 4].at[j % 4], sums[i][j]);
        }
      }
      __syncthreads();  // before the next product's first elements
      O* to = c + at.at[0];
      const D* added = d + at.at[3];
#pragma unroll
      for (int i = 0; i < GROUPS * 4; ++i)
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
          const Int64 r = row + i / 4 * 64 + y + i % 4, first = column + g * 64 + x;
          if (r >= p.m) continue;
          if (p.vector_c && first + 4 <= p.n) {
            Pack<O, 4> pack;
            for (int j = 0; j < 4; ++j)
              pack.at[j] = finished(p, sums[i][g * 4 + j], added, r, first + j);
            store_pack(to + r * p.c_row + first, pack);
          } else {
            for (int j = 0; j < 4; ++j)
              if (first + j < p.n)
                to[r * p.c_row + (first + j) * p.c_column] =
                    finished(p, sums[i][g * 4 + j], added, r, first + j);
          }
        }
    }
  }
};

// ---- one column: results are sums along rows of `a`; of `b` only row 0 along k is read.

// A warp for each row, whose lanes take elements of k by turns.
struct Rows {
  enum { LANES = 32, EACH = 16 / sizeof(A), AHEAD = 4 };
  static __device__ void run(O* c, const A* a, const A* b, const D* d, const Product& p,
                             const Layout& batch) {
    const int lane = RB_LANE;
    const Int64 blocks = (p.m + 7) / 8;
    for (Int64 block = blockIdx.x; block < blocks * batch.n; block += gridDim.x) {
      const Places at = places_of(batch, block / blocks);
      const Int64 depths = length(p, block / blocks);
      const Int64 row = block % blocks * 8 + RB_WARP;
      const A *from = a + at.at[1] + row * p.a_row, *by = b + at.at[2];
      T sum = As<T>::of(0);
      if (row < p.m) {
        const Int64 packs = p.vector_a && p.vector_b ? depths / EACH : 0;
        Pack<A, EACH> l[AHEAD], r[AHEAD];
        sweep<AHEAD>(
            0, packs, lane, LANES,
            [&](int k, Int64 i) {
              l[k] = load_pack<EACH>(from + i * EACH);
              r[k] = load_pack<EACH>(by + i * EACH);
            },
            [&](int k, Int64) {
              for (int e = 0; e < EACH; ++e)
                sum = multiply_add(As<T>::of(l[k].at[e]), As<T>::of(r[k].at[e]), sum);
            });
        A x[AHEAD], y[AHEAD];
        sweep<AHEAD>(
            packs * EACH, depths, lane, LANES,
            [&](int k, Int64 i) { x[k] = from[i * p.a_column], y[k] = by[i * p.b_row]; },
            [&](int k, Int64) { sum = multiply_add(As<T>::of(x[k]), As<T>::of(y[k]), sum); });
      }
      sum = warp_reduce(sum, JoinSum());
      if (lane == 0 && row < p.m)
        c[at.at[0] + row * p.c_row] = finished(p, sum, d + at.at[3], row, 0);
    }
  }
};

// Where rows lie together: 32 rows in a block, k by turns between its 8 groups.
struct Columns {
  static __device__ void run(O* c, const A* a, const A* b, const D* d, const Product& p,
                             const Layout& batch) {
    __shared__ T parts[8][33];
    const int lane = threadIdx.x % 32, group = threadIdx.x / 32;
    const Int64 blocks = (p.m + 31) / 32;
    for (Int64 block = blockIdx.x; block < blocks * batch.n; block += gridDim.x) {
      const Places at = places_of(batch, block / blocks);
      const Int64 depths = length(p, block / blocks);
      const Int64 row = block % blocks * 32 + lane;
      const A *from = a + at.at[1] + row * p.a_row, *by = b + at.at[2];
      T sum = As<T>::of(0);
      if (row < p.m) {
        enum { AHEAD = sizeof(A) > 8 ? 4 : 8 };
        A x[AHEAD], y[AHEAD];
        sweep<AHEAD>(
            0, depths, group, 8,
            [&](int k, Int64 i) { x[k] = from[i * p.a_column], y[k] = by[i * p.b_row]; },
            [&](int k, Int64) { sum = multiply_add(As<T>::of(x[k]), As<T>::of(y[k]), sum); });
      }
      parts[group][lane] = sum;
      __syncthreads();
      if (group == 0 && row < p.m) {
        for (int g = 1; g < 8; ++g) sum = (T)(sum + parts[g][lane]);
        c[at.at[0] + row * p.c_row] = finished(p, sum, d + at.at[3], row, 0);
      }
      __syncthreads();
    }
  }
};

// ---- the sum of `k` parts that lie `a_column` apart, each as the result in rows

struct Sums {
  static __device__ void run(O* c, const A* a, const A*, const D* d, const Product& p,
                             const Layout& batch) {
    const Int64 size = p.m * p.n;
    RB_FOR(i, size * batch.n) {
      const Places at = places_of(batch, i / size);
      const Int64 row = i % size / p.n, column = i % size % p.n;
      T sum = As<T>::of(0);
      for (Int64 k = 0; k < p.k; ++k) sum = (T)(sum + As<T>::of(a[i + k * p.a_column]));
      c[at.at[0] + row * p.c_row + column * p.c_column] =
          finished(p, sum, d + at.at[3], row, column);
    }
  }
};

#define RB_PRODUCT(threads, activation, ...)                                                     \
  __device__ T activated(T x) { return (T)(activation); }                                        \
  extern "C" __global__ void __launch_bounds__(threads, 1)                                       \
      rb_kernel(O* c, const A* a, const A* b, const D* d, const Product p, const Layout batch) { \
    __VA_ARGS__::run(c, a, b, d, p, batch);                                                      \
  }
