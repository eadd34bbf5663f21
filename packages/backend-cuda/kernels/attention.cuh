// Attention by tiles: scores stay in registers and shared memory, softmax is taken online (Dao et
// al. 2022). A block of 256 threads has a square tile of queries and keys; thread (y, x) of 16 x 16
// has SIDE x SIDE of its scores and of each tile of columns of the results. A: the operands' dtype,
// M: the mask's, S: that of the given logsumexp, T: the dtype of sums, O: the results', which is T
// where the keys of a head are split and each part has results and a logsumexp of its own. DROPS:
// weights are dropped as core's header says, for the derivative once more.
#define RB_CONTRACTED  // see compile.h
#include "philox.cuh"
enum {
  SIDE = 16 / sizeof(T),
  TILE = 16 * SIDE,
  PITCH = TILE + 32 / sizeof(T),  // of shared rows: what a warp writes lies in different banks
  DEPTH = TILE / 2                // columns of a step of a product
};
enum {
  QUERY,
  KEY,
  VALUE,
  MASK,
  OUT,
  SUMS,
  GRAD,
  GRAD_SUMS,
  DQUERY,
  DKEY,
  DVALUE,
  SEED,
  NUMBER,
  OPERANDS
};

// Twins of rbcuda::AttentionOperand and rbcuda::Attention.
struct Operand {
  Int64 heads[6], row, column, group;  // strides; heads of a group share one of this operand
};
struct Attention {
  Int64 length, keys, size, value_size, heads, group;
  Int64 part;  // keys that a block sees at most; blockIdx.z is the part
  Int64 shape[6];
  double scale, factor;  // of scores; of weights that are kept
  const UInt64* seed;
  int ndim, causal;
  UInt32 limit, unused;  // the largest word of a weight that is kept
  Operand at[OPERANDS];
};

template <class X>
struct Matrix {
  X* data;
  Int64 rows, columns, row, column;
  __device__ Int64 place(Int64 i, Int64 j) const { return i * row + j * column; }
};
__device__ inline Int64 offset(const Attention& p, int which, Int64 head) {
  const Operand& o = p.at[which];
  Int64 at = 0;
  for (int d = p.ndim - 1; d >= 0; --d) {
    const Int64 above = head / p.shape[d], i = head - above * p.shape[d];
    at += (d == p.ndim - 1 ? i / o.group : i) * o.heads[d];
    head = above;
  }
  return at;
}
template <class X>
__device__ inline Matrix<X> matrix(X* data, const Attention& p, int which, Int64 head, Int64 rows,
                                   Int64 columns) {
  return {data ? data + offset(p, which, head) : data, rows, columns, p.at[which].row,
          p.at[which].column};
}

// Dropout of one head's weights: its seed, and its number among the matrices of that seed.
struct Dropout {
  UInt64 seed, number, rows, columns;
  UInt32 limit;
  __device__ Dropout(const Attention& p, Int64 head)
      : seed(p.seed[offset(p, SEED, head)]),
        number(offset(p, NUMBER, head)),
        rows(p.length),
        columns(p.keys),
        limit(p.limit) {}
  // Of the places (i, j), (i, j + 8), (i + 8, j) and (i + 8, j + 8).
  __device__ RbPhilox words(Int64 i, Int64 j) const {
    return rb_philox(seed, rb_dropout_counter(number, rows, columns, i, j));
  }
};

struct NoDropout {
  __device__ NoDropout(const Attention&, Int64) {}
};

typedef T Scores[SIDE][SIDE];
#define RB_Y ((int)threadIdx.x / 16)
#define RB_X ((int)threadIdx.x % 16)
#define RB_SCORES(r, c) \
  _Pragma("unroll") for (int r = 0; r < SIDE; ++r) _Pragma("unroll") for (int c = 0; c < SIDE; ++c)

__device__ inline void clear(Scores& s) { RB_SCORES(r, c) s[r][c] = 0; }
// s += a^T b of two parts of shared memory, rows of which are steps of the sums.
__device__ inline void multiply(Scores& s, const T* a, const T* b, int depth) {
#pragma unroll 4
  for (int k = 0; k < depth; ++k) {
    const Pack<T, SIDE> x = load_pack<SIDE>(a + k * PITCH + RB_Y * SIDE),
                        y = load_pack<SIDE>(b + k * PITCH + RB_X * SIDE);
    RB_SCORES(r, c) s[r][c] = fma(x.at[r], y.at[c], s[r][c]);
  }
}
// Rows of shared memory are columns [column, column + depth) of `m`; a warp reads 8 rows by 4.
__device__ inline void load_across(T* to, const Matrix<const A>& m, Int64 first, Int64 column,
                                   int depth) {
  for (int e = threadIdx.x; e < TILE * DEPTH; e += 256) {
    const int k = e % 4 + e / 32 % (DEPTH / 4) * 4, i = e / 4 % 8 + e / (8 * DEPTH) * 8;
    if (k < depth)
      to[k * PITCH + i] =
          first + i < m.rows ? As<T>::of(m.data[m.place(first + i, column + k)]) : T(0);
  }
}
// Rows of shared memory are rows [first, first + count) of `m`, by columns [column, column + TILE).
__device__ inline void load_along(T* to, const Matrix<const A>& m, Int64 first, int count,
                                  Int64 column) {
  for (int e = threadIdx.x; e < TILE * TILE; e += 256) {
    const int k = e / TILE, j = e % TILE;
    if (k < count)
      to[k * PITCH + j] =
          column + j < m.columns ? As<T>::of(m.data[m.place(first + k, column + j)]) : T(0);
  }
}
// s = rows of x from `i` on by rows of y from `j` on.
__device__ inline void products(Scores& s, const Matrix<const A>& x, Int64 i,
                                const Matrix<const A>& y, Int64 j, T* stage) {
  clear(s);
  for (Int64 column = 0; column < x.columns; column += DEPTH) {
    const int depth = x.columns - column < DEPTH ? (int)(x.columns - column) : DEPTH;
    load_across(stage, x, i, column, depth);
    load_across(stage + DEPTH * PITCH, y, j, column, depth);
    __syncthreads();
    multiply(s, stage, stage + DEPTH * PITCH, depth);
    __syncthreads();
  }
}
// results[c] += weights^T m: rows [first, first + count) of m, CHUNKS tiles of columns.
template <int CHUNKS>
__device__ inline void gather(Scores (&results)[CHUNKS], const T* weights, const Matrix<const A>& m,
                              Int64 first, int count, Int64 column, T* stage) {
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) {
    if (column + c * TILE >= m.columns) continue;
    load_along(stage, m, first, count, column + c * TILE);
    __syncthreads();
    multiply(results[c], weights, stage, count);
    __syncthreads();
  }
}
template <int CHUNKS, class X>
__device__ inline void store(const Matrix<X>& m, Int64 first, Int64 column,
                             const Scores (&results)[CHUNKS], const T (&factors)[SIDE]) {
#pragma unroll
  for (int k = 0; k < CHUNKS; ++k) RB_SCORES(r, c) {
      const Int64 i = first + RB_Y * SIDE + r, j = column + k * TILE + RB_X * SIDE + c;
      if (i < m.rows && j < m.columns)
        m.data[m.place(i, j)] = As<X>::of(results[k][r][c] * factors[r]);
    }
}
// Into shared memory: rows are queries, or keys.
template <bool BY_KEY>
__device__ inline void share(T* to, const Scores& s) {
  RB_SCORES(r, c) {
    const int i = RB_Y * SIDE + r, j = RB_X * SIDE + c;
    to[BY_KEY ? j * PITCH + i : i * PITCH + j] = s[r][c];
  }
}
template <class X>
__device__ inline T with_mask(T score, X mask) {
  return score + As<T>::of(mask);
}
__device__ inline T with_mask(T score, bool mask) {  // NaN stays
  return mask ? score : score - (T)INFINITY;
}
// Scale and mask; minus infinity where a query does not see a key.
__device__ inline void finish_scores(Scores& s, const Attention& p, const Matrix<const M>& mask,
                                     Int64 first, Int64 key) {
  RB_SCORES(r, c) {
    const Int64 i = first + RB_Y * SIDE + r, j = key + RB_X * SIDE + c;
    const bool seen = i < p.length && j < p.keys && (!p.causal || j <= i);
    T score = s[r][c] * (T)p.scale;
    if (seen && mask.data) score = with_mask(score, mask.data[mask.place(i, j)]);
    s[r][c] = seen ? score : -(T)INFINITY;
  }
}

// Which weights of a tile from (i, j) on are kept, in shared memory.
template <bool DROPS>
struct KeptTile {
  unsigned char at[TILE * TILE];
  __device__ void fill(const Attention& p, Int64 head, Int64 i, Int64 j) {
    const Dropout dropout(p, head);
    for (int e = threadIdx.x; e < TILE * TILE / 4; e += 256) {
      const int tile = e / 64, r = tile / (TILE / 16) * 16 + e % 64 / 8,
                c = tile % (TILE / 16) * 16 + e % 8;
      const RbPhilox words = dropout.words(i + r, j + c);
      for (int w = 0; w < 4; ++w)
        at[(r + w / 2 * 8) * TILE + c + w % 2 * 8] = words.w[w] <= dropout.limit;
    }
    __syncthreads();
  }
  __device__ bool operator()(int r, int c) const {
    return at[(RB_Y * SIDE + r) * TILE + RB_X * SIDE + c];
  }
};
template <>
struct KeptTile<false> {
  __device__ void fill(const Attention&, Int64, Int64, Int64) {}
  __device__ bool operator()(int, int) const { return true; }
};

// Where the results of the block's part begin.
__device__ inline void to_part(O*& out, T*& sums, const Attention& p) {
  const Int64 rows = blockIdx.z * p.heads * p.length;
  out += rows * p.value_size;
  sums += rows;
}

// One tile of queries, all keys that they see, CHUNKS tiles of the value's columns.
template <int CHUNKS, bool DROPS>
__device__ inline void attend(O* out, T* sums, const A* q, const A* k, const A* v, const M* mask,
                              const Attention& p) {
  __shared__ Pack<T, SIDE> stage_[TILE * PITCH / SIDE], weights_[TILE * PITCH / SIDE];
  __shared__ KeptTile<DROPS> kept;
  T *stage = stage_[0].at, *weights = weights_[0].at;
  const Int64 tiles = (p.length + TILE - 1) / TILE, head = blockIdx.x / tiles,
              first = (tiles - 1 - blockIdx.x % tiles) * TILE,  // the longest ones begin
      column = (Int64)blockIdx.y * CHUNKS * TILE;
  const auto query = matrix(q, p, QUERY, head, p.length, p.size),
             key = matrix(k, p, KEY, head, p.keys, p.size),
             value = matrix(v, p, VALUE, head, p.keys, p.value_size);
  const auto masked = matrix(mask, p, MASK, head, p.length, p.keys);
  Scores s, results[CHUNKS];
  T top[SIDE], total[SIDE];
  for (int r = 0; r < SIDE; ++r) top[r] = -(T)INFINITY, total[r] = 0;
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) clear(results[c]);
  const Int64 begin = blockIdx.z * p.part, most = begin + p.part < p.keys ? begin + p.part : p.keys,
              end = p.causal && first + TILE < most ? first + TILE : most;
#pragma unroll 1
  for (Int64 j = begin; j < end; j += TILE) {
    kept.fill(p, head, first, j);
    products(s, query, first, key, j, stage);
    finish_scores(s, p, masked, first, j);
#pragma unroll
    for (int r = 0; r < SIDE; ++r) {
      T best = s[r][0];
      for (int c = 1; c < SIDE; ++c) best = JoinLargest()(best, s[r][c]);
      const T now = JoinLargest()(top[r], warp_reduce<16>(best, JoinLargest()));
      const bool none = now == -(T)INFINITY;  // every key so far is masked
      const T factor = none ? T(1) : exp(top[r] - now);
      T sum = 0;
      for (int c = 0; c < SIDE; ++c) sum += s[r][c] = exp(s[r][c] - (none ? T(0) : now));
      total[r] = total[r] * factor + warp_reduce<16>(sum, JoinSum());
      top[r] = now;
#pragma unroll
      for (int k = 0; k < CHUNKS; ++k)
        for (int c = 0; c < SIDE; ++c) results[k][r][c] *= factor;
    }
    if (DROPS) RB_SCORES(r, c) s[r][c] = kept(r, c) ? s[r][c] : 0;
    __syncthreads();  // where the value has no columns
    share<true>(weights, s);
    gather<CHUNKS>(results, weights, value, j, end - j < TILE ? (int)(end - j) : TILE, column,
                   stage);
  }
  to_part(out, sums, p);
  for (int r = 0; r < SIDE; ++r) {
    const Int64 i = first + RB_Y * SIDE + r;
    const bool none = total[r] == 0;
    if (RB_X == 0 && column == 0 && i < p.length)
      sums[offset(p, SUMS, head) + i * p.at[SUMS].row] =
          none ? -(T)INFINITY : top[r] + log(total[r]);
    total[r] = none ? T(0) : (DROPS ? (T)p.factor : T(1)) / total[r];
  }
  store<CHUNKS>(matrix(out, p, OUT, head, p.length, p.value_size), first, column, results, total);
}

// Results and logsumexp of whole rows from those of `parts` parts. A warp has a row.
__device__ inline void combine(A* out, T* sums, const T* part_out, const T* part_sums,
                               const Attention& p, Int64 parts) {
  const Int64 rows = p.heads * p.length;
  for (Int64 row = (Int64)blockIdx.x * RB_WARPS + RB_WARP; row < rows;
       row += (Int64)gridDim.x * RB_WARPS) {
    const Int64 head = row / p.length, i = row - head * p.length;
    T top = -(T)INFINITY, total = 0;
    for (Int64 k = 0; k < parts; ++k) top = JoinLargest()(top, part_sums[k * rows + row]);
    const T less = top == -(T)INFINITY ? T(0) : top;
    for (Int64 k = 0; k < parts; ++k) total += exp(part_sums[k * rows + row] - less);
    const bool none = total == 0;
    const auto outs = matrix(out, p, OUT, head, p.length, p.value_size);
    for (Int64 j = RB_LANE; j < p.value_size; j += 32) {
      T sum = 0;
      for (Int64 k = 0; k < parts; ++k)
        sum = fma(exp(part_sums[k * rows + row] - less),
                  part_out[(k * rows + row) * p.value_size + j], sum);
      outs.data[outs.place(i, j)] = As<A>::of(none ? T(0) : sum / total);
    }
    if (RB_LANE == 0)
      sums[offset(p, SUMS, head) + i * p.at[SUMS].row] = none ? -(T)INFINITY : top + log(total);
  }
}

// For each query of each head, two numbers that its derivative needs: logsumexp (infinity where no
// key is seen), and sum(g * out) less the gradient of logsumexp. A warp has a row.
__device__ inline void row_sums(T* to, const A* g, const A* out, const S* sums, const S* grad_sums,
                                const Attention& p) {
  const Int64 rows = p.heads * p.length;
  for (Int64 row = (Int64)blockIdx.x * RB_WARPS + RB_WARP; row < rows;
       row += (Int64)gridDim.x * RB_WARPS) {
    const Int64 head = row / p.length, i = row - head * p.length;
    const auto grads = matrix(g, p, GRAD, head, p.length, p.value_size),
               outs = matrix(out, p, OUT, head, p.length, p.value_size);
    T sum = 0;
    for (Int64 j = RB_LANE; j < p.value_size; j += 32)
      sum = fma(As<T>::of(grads.data[grads.place(i, j)]), As<T>::of(outs.data[outs.place(i, j)]),
                sum);
    sum = warp_reduce(sum, JoinSum());
    if (RB_LANE != 0) continue;
    const T lse = As<T>::of(sums[offset(p, SUMS, head) + i * p.at[SUMS].row]);
    to[row] = lse == -(T)INFINITY ? (T)INFINITY : lse;
    if (grad_sums)
      sum -= As<T>::of(grad_sums[offset(p, GRAD_SUMS, head) + i * p.at[GRAD_SUMS].row]);
    to[rows + row] = sum;
  }
}

// What both halves of the derivative read of one head.
struct Given {
  Matrix<const A> query, key, value, grad;
  Matrix<const M> mask;
  const T *lse, *delta;
  __device__ Given(const A* g, const A* q, const A* k, const A* v, const M* masks, const T* rows,
                   const Attention& p, Int64 head)
      : query(matrix(q, p, QUERY, head, p.length, p.size)),
        key(matrix(k, p, KEY, head, p.keys, p.size)),
        value(matrix(v, p, VALUE, head, p.keys, p.value_size)),
        grad(matrix(g, p, GRAD, head, p.length, p.value_size)),
        mask(matrix(masks, p, MASK, head, p.length, p.keys)),
        lse(rows + head * p.length),
        delta(lse + p.heads * p.length) {}
  // Weights, after dropout, and the gradients of scores of one tile.
  template <bool DROPS>
  __device__ void tile(Scores& weights, Scores& grads, const Attention& p, Int64 i, Int64 j,
                       T* stage, const KeptTile<DROPS>& kept) const {
    products(weights, query, i, key, j, stage);
    finish_scores(weights, p, mask, i, j);
    products(grads, grad, i, value, j, stage);
    RB_SCORES(r, c) {
      const Int64 row = i + RB_Y * SIDE + r, at = row < p.length ? row : 0;
      weights[r][c] = exp(weights[r][c] - lse[at]);
      if (row >= p.length) weights[r][c] = 0;
      if (DROPS) grads[r][c] = kept(r, c) ? grads[r][c] * (T)p.factor : 0;
      grads[r][c] = weights[r][c] * (grads[r][c] - delta[at]) * (T)p.scale;
      if (DROPS) weights[r][c] = kept(r, c) ? weights[r][c] * (T)p.factor : 0;
    }
  }
};

// CHUNKS tiles of columns of dq of one tile of queries.
template <int CHUNKS, bool DROPS>
__device__ inline void query_grads(A* dq, const A* g, const A* q, const A* k, const A* v,
                                   const M* mask, const T* rows, const Attention& p) {
  __shared__ Pack<T, SIDE> stage_[TILE * PITCH / SIDE], shared_[TILE * PITCH / SIDE];
  __shared__ KeptTile<DROPS> kept;
  T *stage = stage_[0].at, *shared = shared_[0].at;
  const Int64 tiles = (p.length + TILE - 1) / TILE, head = blockIdx.x / tiles,
              first = (tiles - 1 - blockIdx.x % tiles) * TILE,
              column = (Int64)blockIdx.y * CHUNKS * TILE;
  const Given given(g, q, k, v, mask, rows, p, head);
  Scores weights, grads, results[CHUNKS];
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) clear(results[c]);
  const Int64 end = p.causal && first + TILE < p.keys ? first + TILE : p.keys;
#pragma unroll 1
  for (Int64 j = 0; j < end; j += TILE) {
    kept.fill(p, head, first, j);
    given.tile(weights, grads, p, first, j, stage, kept);
    __syncthreads();
    share<true>(shared, grads);
    gather<CHUNKS>(results, shared, given.key, j, end - j < TILE ? (int)(end - j) : TILE, column,
                   stage);
  }
  T ones[SIDE];
  for (int r = 0; r < SIDE; ++r) ones[r] = 1;
  store<CHUNKS>(matrix(dq, p, DQUERY, head, p.length, p.size), first, column, results, ones);
}

// CHUNKS tiles of columns of dk and dv of one tile of keys: sums over the heads of its group.
template <int CHUNKS, bool DROPS>
__device__ inline void key_grads(A* dk, A* dv, const A* g, const A* q, const A* k, const A* v,
                                 const M* mask, const T* rows, const Attention& p) {
  __shared__ Pack<T, SIDE> stage_[TILE * PITCH / SIDE], shared_[TILE * PITCH / SIDE];
  __shared__ KeptTile<DROPS> kept;
  T *stage = stage_[0].at, *shared = shared_[0].at;
  const Int64 tiles = (p.keys + TILE - 1) / TILE, head = blockIdx.x / tiles * p.group,
              key = blockIdx.x % tiles * TILE, column = (Int64)blockIdx.y * CHUNKS * TILE;
  Scores weights, grads, keys[CHUNKS], values[CHUNKS];
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) clear(keys[c]), clear(values[c]);
#pragma unroll 1
  for (Int64 h = head; h < head + p.group; ++h) {
    const Given given(g, q, k, v, mask, rows, p, h);
#pragma unroll 1
    for (Int64 i = p.causal ? key : 0; i < p.length; i += TILE) {
      const int count = p.length - i < TILE ? (int)(p.length - i) : TILE;
      kept.fill(p, h, i, key);
      given.tile(weights, grads, p, i, key, stage, kept);
      __syncthreads();
      share<false>(shared, weights);
      gather<CHUNKS>(values, shared, given.grad, i, count, column, stage);
      __syncthreads();
      share<false>(shared, grads);
      gather<CHUNKS>(keys, shared, given.query, i, count, column, stage);
    }
  }
  T ones[SIDE];
  for (int r = 0; r < SIDE; ++r) ones[r] = 1;
  store<CHUNKS>(matrix(dk, p, DKEY, head, p.keys, p.size), key, column, keys, ones);
  store<CHUNKS>(matrix(dv, p, DVALUE, head, p.keys, p.value_size), key, column, values, ones);
}

#define RB_ATTENTION(CHUNKS, DROPS)                                                            \
  extern "C" __global__ void __launch_bounds__(256, 1) rb_kernel(                              \
      O* out, T* sums, const A* q, const A* k, const A* v, const M* mask, const Attention p) { \
    attend<CHUNKS, DROPS>(out, sums, q, k, v, mask, p);                                        \
  }
#define RB_ATTENTION_COMBINE                                                                    \
  extern "C" __global__ void __launch_bounds__(256, 1) rb_kernel(                               \
      A* out, T* sums, const T* part_out, const T* part_sums, const Attention p, Int64 parts) { \
    combine(out, sums, part_out, part_sums, p, parts);                                          \
  }
#define RB_ATTENTION_ROWS                                                                        \
  extern "C" __global__ void __launch_bounds__(256, 1) rb_kernel(                                \
      T* rows, const A* g, const A* out, const S* sums, const S* grad_sums, const Attention p) { \
    row_sums(rows, g, out, sums, grad_sums, p);                                                  \
  }
#define RB_ATTENTION_QUERIES(CHUNKS, DROPS)                                           \
  extern "C" __global__ void __launch_bounds__(256, 1)                                \
      rb_kernel(A* dq, const A* g, const A* q, const A* k, const A* v, const M* mask, \
                const T* rows, const Attention p) {                                   \
    query_grads<CHUNKS, DROPS>(dq, g, q, k, v, mask, rows, p);                        \
  }
#define RB_ATTENTION_KEYS(CHUNKS, DROPS)                                                     \
  extern "C" __global__ void __launch_bounds__(256, 1)                                       \
      rb_kernel(A* dk, A* dv, const A* g, const A* q, const A* k, const A* v, const M* mask, \
                const T* rows, const Attention p) {                                          \
    key_grads<CHUNKS, DROPS>(dk, dv, g, q, k, v, mask, rows, p);                             \
  }

// Dropout of weights that are in memory: `length` by `keys` of each head. A thread has one counter.
__device__ inline void drop_weights(A* out, const A* in, const Attention& p) {
  const Int64 down = (p.length + 15) / 16, across = (p.keys + 15) / 16,
              counters = p.heads * down * across * 64;
  for (Int64 e = RB_THREAD; e < counters; e += RB_THREADS) {
    const Int64 tile = e / 64, head = tile / (down * across),
                i = tile / across % down * 16 + e % 64 / 8, j = tile % across * 16 + e % 8;
    const auto to = matrix(out, p, OUT, head, p.length, p.keys);
    const auto from = matrix(in, p, QUERY, head, p.length, p.keys);
    const RbPhilox words = Dropout(p, head).words(i, j);
    for (int w = 0; w < 4; ++w) {
      const Int64 r = i + w / 2 * 8, c = j + w % 2 * 8;
      if (r >= p.length || c >= p.keys) continue;
      const T x = As<T>::of(from.data[from.place(r, c)]) * (T)p.factor;
      to.data[to.place(r, c)] = As<A>::of(words.w[w] <= p.limit ? x : T(0));
    }
  }
}
#define RB_ATTENTION_DROPOUT                                                     \
  extern "C" __global__ void rb_kernel(A* out, const A* in, const Attention p) { \
    drop_weights(out, in, p);                                                    \
  }
