// Attention of 16-bit floats on tensor cores, behind attention.cuh. A warp has 16 rows: its
// operands' fragments and its sums stay in registers, and weights, which are the sums of one
// product, are an operand of the next one as they lie. The other side's rows run through a ring in
// shared memory, loaded two steps ahead. SIZE: columns of every operand, the last of which may be
// zeros. Rows of operands lie together and are aligned to 16 bytes; there are fewer than 2**30 of
// them in a head.
#include "mma.cuh"

// Of a lane's four sums of 16 x 8: row and column.
#define RB_ROW(e) ((int)RB_LANE / 4 + (e) / 2 * 8)
#define RB_COLUMN(e) ((int)RB_LANE % 4 * 2 + (e) % 2)

// The first operand's 16 x 16 of a product of a warp, and all that a warp has of it.
struct Fragment {
  UInt32 at[4];
};
template <int SIZE>
struct Held {
  enum { AT_ONCE = SIZE / 16 };
  Fragment at[SIZE / 16];
  __device__ const Fragment& fragment(int k) const { return at[k]; }
};

// Rows of SIZE columns in shared memory. Pieces of 16 bytes are permuted so that no two of a load
// share banks.
template <int SIZE>
struct HalfRows {
  enum { PIECES = SIZE / 8 };
  static __device__ int place(int row, int piece) {
    return row * SIZE + (piece ^ (PIECES % 8 ? row / 2 % 4 : row % 8)) * 8;
  }
  // Rows [first, first + ROWS) of `m`; zeros behind its last one.
  template <int ROWS, int THREADS>
  static __device__ void load(A* shared, const Matrix<const A>& m, int first) {
    enum { LANES = PIECES > 8 ? 16 : PIECES, STEP = THREADS / LANES };  // of a row; rows at once
    const int row = threadIdx.x / LANES, piece = threadIdx.x % LANES,
              left = (int)m.columns - piece * 8, bytes = left < 8 ? left * 2 : 16;
    if (piece >= PIECES || row >= ROWS) return;
    A* to = shared + place(row, piece);  // STEP is a multiple of 8
    const A* from = m.data + (first + row) * m.row + piece * 8;
#pragma unroll
    for (int r = 0; r < ROWS; r += STEP) {
      const bool in = left > 0 && first + row + r < (int)m.rows;
      copy_ahead(to + r * SIZE, from, in ? bytes : 0);  // of 0 bytes none is read
      from += STEP * m.row;
    }
  }
  // s = x y^T: a warp's rows by 16 rows of y.
  template <class X>
  static __device__ void multiply(float (&s)[2][4], const X& x, const A* y, int row) {
    row += (int)RB_LANE / 16 * 8 + RB_LANE % 8;
#pragma unroll
    for (int e = 0; e < 8; ++e) s[e / 4][e % 4] = 0;
#pragma unroll X::AT_ONCE
    for (int k = 0; k < SIZE / 16; ++k) {
      UInt32 b[4];
      load_matrices<false>(b, y + place(row, 2 * k + RB_LANE / 8 % 2));
      const Fragment a = x.fragment(k);
      multiply_matrices(s[0], a.at, b, A());
      multiply_matrices(s[1], a.at, b + 2, A());
    }
  }
  // sums += w y of 16 rows of y; w as `multiply` has left it.
  static __device__ void gather(float (&sums)[SIZE / 8][4], const float (&w)[2][4], const A* y,
                                int row) {
    const UInt32 a[4] = {pair_of(w[0][0], w[0][1], A()), pair_of(w[0][2], w[0][3], A()),
                         pair_of(w[1][0], w[1][1], A()), pair_of(w[1][2], w[1][3], A())};
    row += RB_LANE % 16;
#pragma unroll
    for (int k = 0; k < SIZE / 16; ++k) {
      UInt32 b[4];
      load_matrices<true>(b, y + place(row, 2 * k + RB_LANE / 16));
      multiply_matrices(sums[2 * k], a, b, A());
      multiply_matrices(sums[2 * k + 1], a, b + 2, A());
    }
  }
};

template <bool FIRST, class X, class Y>
struct Choose {
  typedef X type;
};
template <class X, class Y>
struct Choose<false, X, Y> {
  typedef Y type;
};
// A warp's rows that stay in shared memory, where registers are too few.
template <int SIZE>
struct Kept {
  enum { AT_ONCE = 2 };
  const A* rows;
  __device__ Fragment fragment(int k) const {
    Fragment a;
    load_matrices<false>(a.at, rows + HalfRows<SIZE>::place(RB_LANE % 16, 2 * k + RB_LANE / 16));
    return a;
  }
};
// A warp's 16 rows from `first` on, as the first operand of products.
template <int SIZE>
__device__ inline void hold(Held<SIZE>& to, const Matrix<const A>& m, int first) {
#pragma unroll
  for (int k = 0; k < SIZE / 16; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = first + RB_ROW(i % 2 * 2), column = 16 * k + i / 2 * 8 + RB_COLUMN(0);
      const A* from = m.data + row * m.row + column;
      Pack<A, 2> pair = {};
      if (row < m.rows && column + 1 < m.columns)
        pair = load_pack<2>(from);
      else if (row < m.rows && column < m.columns)
        pair.at[0] = *from;
      to.at[k].at[i] = pair.at[0].bits | (UInt32)pair.at[1].bits << 16;
    }
}
template <int SIZE, class X>
__device__ inline void store_rows(const Matrix<X>& m, int first, const float (&sums)[SIZE / 8][4],
                                  float factor, float next_factor) {
  const bool pairs = m.column == 1 && m.row % 2 == 0 && is_packed<2>(m.data);
#pragma unroll
  for (int n = 0; n < SIZE / 8; ++n)
#pragma unroll
    for (int e = 0; e < 4; e += 2) {
      const int i = first + RB_ROW(e), j = 8 * n + RB_COLUMN(e);
      if (i >= m.rows || j >= m.columns) continue;
      const float by = e ? next_factor : factor;
      const Pack<X, 2> pair = {{As<X>::of(sums[n][e] * by), As<X>::of(sums[n][e + 1] * by)}};
      if (pairs && j + 1 < m.columns) {
        store_pack(m.data + m.place(i, j), pair);
      } else {
        m.data[m.place(i, j)] = pair.at[0];
        if (j + 1 < m.columns) m.data[m.place(i, j + 1)] = pair.at[1];
      }
    }
}
template <int COUNT>
__device__ inline void clear_rows(float (&sums)[COUNT][4]) {
#pragma unroll
  for (int e = 0; e < COUNT * 4; ++e) sums[e / 4][e % 4] = 0;
}

// Whether all of 16 queries from i on see all keys [j, j + keys) but for the mask, or any does.
__device__ inline bool all_seen(const Attention& p, int i, int j, int keys) {
  return i + 16 <= (int)p.length && j + keys <= (int)p.keys && (!p.causal || j + keys <= i + 1);
}
__device__ inline bool any_seen(const Attention& p, int i, int j) {
  return i < (int)p.length && j < (int)p.keys && (!p.causal || j <= i + 15);
}
// Scale and mask 16 queries from i on by 16 keys from j on: minus infinity where a query does not
// see a key. BY_KEY: rows are keys.
template <bool BY_KEY, bool MASKED>
__device__ inline void finish_halves(float (&s)[2][4], const Attention& p, float scale,
                                     const M* mask, int i, int j, bool all) {
  i += BY_KEY ? RB_COLUMN(0) : RB_ROW(0);
  j += BY_KEY ? RB_ROW(0) : RB_COLUMN(0);
  const Operand& of = p.at[MASK];
  if (MASKED) mask += i * of.row + j * of.column;
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    const int down = e % 4 / 2 * 8, right = e / 4 * 8 + e % 2;
    const int di = BY_KEY ? right : down, dj = BY_KEY ? down : right;
    const bool seen =
        all || (i + di < (int)p.length && j + dj < (int)p.keys && (!p.causal || j + dj <= i + di));
    float& score = s[e / 4][e % 4];
    score *= scale;
    if (MASKED && seen) score = with_mask(score, mask[di * of.row + dj * of.column]);
    if (!seen) score = -INFINITY;
  }
}

// Which of a lane's 8 weights are kept of 16 queries from i on by 16 keys from j on: bit e is
// s[e / 4][e % 4]. BY_KEY: rows are keys.
template <bool BY_KEY>
__device__ inline unsigned kept_halves(const Dropout& dropout, int i, int j) {
  unsigned kept = 0;
#pragma unroll
  for (int next = 0; next < 2; ++next) {
    const RbPhilox words = dropout.words(i + (BY_KEY ? RB_COLUMN(next) : RB_ROW(0)),
                                         j + (BY_KEY ? RB_ROW(0) : RB_COLUMN(next)));
#pragma unroll
    for (int e = next; e < 8; e += 2) {
      const int right = e / 4, down = e / 2 % 2;
      kept |= (unsigned)(words.w[BY_KEY ? right * 2 + down : down * 2 + right] <= dropout.limit)
              << e;
    }
  }
  return kept;
}

// 16 * WARPS queries of one head.
template <int SIZE, int WARPS, bool MASKED, bool DROPS>
__device__ inline void attend_halves(O* out, T* sums, const A* q, const A* k, const A* v,
                                     const M* mask, const Attention& p) {
  typedef HalfRows<SIZE> Rows;
  enum { QUERIES = 16 * WARPS, STEP = 32, STAGES = 3 };
  __shared__ Pack<A, 8> ring[STAGES][2][STEP * SIZE / 8];  // keys and values
  const int tiles = ((int)p.length + QUERIES - 1) / QUERIES, head = blockIdx.x / tiles,
            first = (tiles - 1 - blockIdx.x % tiles) * QUERIES,  // the longest ones begin
      row = first + RB_WARP * 16;
  const int begin = blockIdx.z * (int)p.part,
            most = (int)p.keys - begin < (int)p.part ? (int)p.keys : begin + (int)p.part,
            end = p.causal && first + QUERIES < most ? first + QUERIES : most;
  const auto key = matrix(k, p, KEY, head, end, p.size),
             value = matrix(v, p, VALUE, head, end, p.value_size);
  if (MASKED) mask += offset(p, MASK, head);
  const float scale = (float)p.scale;
  const auto bring = [&](int stage, int step) {
    Rows::template load<STEP, 32 * WARPS>(ring[stage][0][0].at, key, begin + step * STEP);
    Rows::template load<STEP, 32 * WARPS>(ring[stage][1][0].at, value, begin + step * STEP);
  };
  Held<SIZE> query;
  const typename Choose<DROPS, Dropout, NoDropout>::type dropout(p, head);
  float results[SIZE / 8][4], top[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};
  clear_rows(results);
  const auto attend = [&](int now, int step) {
    const int j = begin + step * STEP;
    if (!any_seen(p, row, j)) return;
    float s[STEP / 16][2][4], less[2] = {top[0], top[1]}, factor[2];
    const bool all = all_seen(p, row, j, STEP);
#pragma unroll
    for (int c = 0; c < STEP / 16; ++c) {
      Rows::multiply(s[c], query, ring[now][0][0].at, 16 * c);
      finish_halves<false, MASKED>(s[c], p, scale, mask, row, j + 16 * c, all);
#pragma unroll
      for (int e = 0; e < 8; ++e) less[e % 4 / 2] = fmax(less[e % 4 / 2], s[c][e / 4][e % 4]);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float best = warp_reduce<4>(less[r], JoinLargest());
      less[r] = best == -INFINITY ? 0 : best;  // every key so far is masked
      factor[r] = exp_of(top[r] - less[r]);
      top[r] = best;
      total[r] *= factor[r];
    }
#pragma unroll
    for (int e = 0; e < STEP / 2; ++e) {
      float& at = s[e / 8][e / 4 % 2][e % 4];
      at = exp_of(at - less[e % 4 / 2]);
      total[e % 4 / 2] += at;
    }
    if constexpr (DROPS) {
#pragma unroll
      for (int c = 0; c < STEP / 16; ++c) {
        const unsigned kept = kept_halves<false>(dropout, row, j + 16 * c);
#pragma unroll
        for (int e = 0; e < 8; ++e)
          if (!(kept >> e & 1)) s[c][e / 4][e % 4] = 0;
      }
    }
    if (__any_sync(0xffffffffu, factor[0] != 1 || factor[1] != 1)) {
#pragma unroll
      for (int e = 0; e < SIZE / 2; ++e) results[e / 4][e % 4] *= factor[e % 4 / 2];
    }
#pragma unroll
    for (int c = 0; c < STEP / 16; ++c) Rows::gather(results, s[c], ring[now][1][0].at, 16 * c);
  };
  pipeline<STAGES>(
      end > begin ? (end - begin + STEP - 1) / STEP : 0, bring,
      [&] { hold(query, matrix(q, p, QUERY, head, p.length, p.size), row); }, attend);
  to_part(out, sums, p);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int i = row + RB_ROW(2 * r);
    total[r] = warp_reduce<4>(total[r], JoinSum());
    const bool none = total[r] == 0;
    if (RB_LANE % 4 == 0 && i < p.length)
      sums[offset(p, SUMS, head) + i * p.at[SUMS].row] = none ? -INFINITY : top[r] + log(total[r]);
    total[r] = none ? 0 : (DROPS ? (float)p.factor : 1.0f) / total[r];
  }
  store_rows<SIZE>(matrix(out, p, OUT, head, p.length, p.value_size), row, results, total[0],
                   total[1]);
}

// BY_KEY: dk and dv of 16 * WARPS keys, sums over the heads of the group. Else dq of so many
// queries. Weights and gradients of scores are computed again for 16 x 16 at a time.
template <bool BY_KEY, int SIZE, int WARPS, bool MASKED, bool DROPS>
__device__ inline void grads_of_halves(A* dx, A* dy, const A* g, const A* q, const A* k, const A* v,
                                       const M* mask, const T* rows, const Attention& p) {
  typedef HalfRows<SIZE> Rows;
  enum { KEEPS = BY_KEY && SIZE > 96, STAGES = KEEPS ? 2 : 3 };
  enum { OWN = 16 * WARPS, STEP = SIZE <= 64 ? 64 : KEEPS ? 16 : 32 };
  __shared__ Pack<A, 8> ring[STAGES][2][STEP * SIZE / 8], kept[2][KEEPS ? OWN * SIZE / 8 : 1];
  static_assert(sizeof ring + sizeof kept <= 48 * 1024 + 32, "more shared memory than there is");
  const int length = (int)p.length, own = BY_KEY ? (int)p.keys : length,
            tiles = (own + OWN - 1) / OWN, tile = blockIdx.x % tiles,
            first = (BY_KEY ? tile : tiles - 1 - tile) * OWN,  // the longest ones begin
      group = BY_KEY ? (int)p.group : 1, head = blockIdx.x / tiles * group,
            row = first + RB_WARP * 16;
  const int begin = BY_KEY && p.causal ? first : 0, end = BY_KEY ? length
                                                          : p.causal && first + OWN < (int)p.keys
                                                              ? first + OWN
                                                              : (int)p.keys;
  const auto own_x = matrix(BY_KEY ? k : q, p, BY_KEY ? KEY : QUERY, head, own, p.size),
             own_y = matrix(BY_KEY ? v : g, p, BY_KEY ? VALUE : GRAD, head, own, p.value_size);
  typename Choose<KEEPS, Kept<SIZE>, Held<SIZE>>::type x, y;
  if constexpr (KEEPS) {
    Rows::template load<OWN, 32 * WARPS>(kept[0][0].at, own_x, first);
    Rows::template load<OWN, 32 * WARPS>(kept[1][0].at, own_y, first);
    x.rows = kept[0][0].at + RB_WARP * 16 * SIZE;
    y.rows = kept[1][0].at + RB_WARP * 16 * SIZE;
  } else {
    hold(x, own_x, row);
    hold(y, own_y, row);
  }
  const float scale = (float)p.scale, factor = DROPS ? (float)p.factor : 1.0f;
  float sums_x[SIZE / 8][4], sums_y[BY_KEY ? SIZE / 8 : 1][4], lse[4], delta[4];
  clear_rows(sums_x);
  clear_rows(sums_y);
#pragma unroll 1
  for (int h = head; h < head + group; ++h) {
    const auto other_x = matrix(BY_KEY ? q : k, p, BY_KEY ? QUERY : KEY, h, end, p.size),
               other_y = matrix(BY_KEY ? g : v, p, BY_KEY ? GRAD : VALUE, h, end, p.value_size);
    const M* head_mask = MASKED ? mask + offset(p, MASK, h) : nullptr;
    const T* head_rows = rows + h * p.length;
    const typename Choose<DROPS, Dropout, NoDropout>::type dropout(p, h);
    const auto read = [&](int i, int to) {
      lse[to] = i < length ? head_rows[i] : INFINITY;
      delta[to] = i < length ? head_rows[p.heads * p.length + i] : 0;
    };
    const auto bring = [&](int stage, int step) {
      Rows::template load<STEP, 32 * WARPS>(ring[stage][0][0].at, other_x, begin + step * STEP);
      Rows::template load<STEP, 32 * WARPS>(ring[stage][1][0].at, other_y, begin + step * STEP);
    };
    if (!BY_KEY)
      for (int r = 0; r < 2; ++r) read(row + RB_ROW(2 * r), r);
    const auto sum = [&](int now, int step) {
      const int at = begin + step * STEP;
      const A *xs = ring[now][0][0].at, *ys = ring[now][1][0].at;
#pragma unroll 1
      for (int c = 0; c < STEP; c += 16) {
        const int i = BY_KEY ? at + c : row, j = BY_KEY ? row : at + c;
        if (!any_seen(p, i, j)) continue;
        float w[2][4], d[2][4];
        Rows::multiply(w, x, xs, c);
        Rows::multiply(d, y, ys, c);
        finish_halves<BY_KEY, MASKED>(w, p, scale, head_mask, i, j, all_seen(p, i, j, 16));
        if (BY_KEY) {
#pragma unroll
          for (int e = 0; e < 4; ++e) read(i + e / 2 * 8 + RB_COLUMN(e), e);
        }
        unsigned kept = 0;
        if constexpr (DROPS) kept = kept_halves<BY_KEY>(dropout, i, j);
#pragma unroll
        for (int e = 0; e < 8; ++e) {
          const int of = BY_KEY ? e / 4 * 2 + e % 2 : e % 4 / 2;
          float &weight = w[e / 4][e % 4], &grad = d[e / 4][e % 4];
          weight = exp_of(weight - lse[of]);
          if (DROPS) grad = kept >> e & 1 ? grad * factor : 0;
          grad = weight * (grad - delta[of]);
          if (DROPS && !(kept >> e & 1)) weight = 0;
        }
        Rows::gather(sums_x, d, xs, c);
        if constexpr (BY_KEY) Rows::gather(sums_y, w, ys, c);
      }
    };
    pipeline<STAGES>(end > begin ? (end - begin + STEP - 1) / STEP : 0, bring, [] {}, sum);
    __syncthreads();  // before the next head's first rows
  }
  store_rows<SIZE>(matrix(dx, p, BY_KEY ? DKEY : DQUERY, head, own, p.size), row, sums_x, scale,
                   scale);
  if constexpr (BY_KEY)
    store_rows<SIZE>(matrix(dy, p, DVALUE, head, own, p.value_size), row, sums_y, factor, factor);
}

#define RB_ATTENTION_MMA(SIZE, WARPS, MASKED, DROPS)                                           \
  extern "C" __global__ void __launch_bounds__(32 * WARPS, 1) rb_kernel(                       \
      O* out, T* sums, const A* q, const A* k, const A* v, const M* mask, const Attention p) { \
    attend_halves<SIZE, WARPS, MASKED, DROPS>(out, sums, q, k, v, mask, p);                    \
  }
#define RB_ATTENTION_MMA_QUERIES(SIZE, WARPS, MASKED, DROPS)                                    \
  extern "C" __global__ void __launch_bounds__(32 * WARPS, 1)                                   \
      rb_kernel(A* dq, const A* g, const A* q, const A* k, const A* v, const M* mask,           \
                const T* rows, const Attention p) {                                             \
    grads_of_halves<false, SIZE, WARPS, MASKED, DROPS>(dq, (A*)nullptr, g, q, k, v, mask, rows, \
                                                       p);                                      \
  }
#define RB_ATTENTION_MMA_KEYS(SIZE, WARPS, MASKED, DROPS)                                    \
  extern "C" __global__ void __launch_bounds__(32 * WARPS, 1)                                \
      rb_kernel(A* dk, A* dv, const A* g, const A* q, const A* k, const A* v, const M* mask, \
                const T* rows, const Attention p) {                                          \
    grads_of_halves<true, SIZE, WARPS, MASKED, DROPS>(dk, dv, g, q, k, v, mask, rows, p);    \
  }
