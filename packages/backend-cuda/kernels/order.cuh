// Sorting and selecting by keys: unsigned integers in the order of the values, in which NaN is the
// largest and -0 equals 0. Equal keys keep the order of their places. Before it stand A, the
// elements, and K, the keys.
template <class S>
struct KeyOf {  // of integers: the sign's bit is turned
  static __device__ K of(S x) {
    const bool is_signed = (S)-1 < (S)0;
    return (K)((K)x ^ (is_signed ? (K)((K)1 << (8 * sizeof(K) - 1)) : (K)0));
  }
};
// Of floats by their bits: those below 0 are turned.
template <class B>
__device__ inline K key_of_bits(B bits, bool is_nan, bool is_zero) {
  if (is_nan) return (K) ~(K)0;
  const B sign = (B)((B)1 << (8 * sizeof(B) - 1));
  if (is_zero) return (K)sign;
  return (K)(B)(bits & sign ? ~bits : bits | sign);
}
template <>
struct KeyOf<bool> {
  static __device__ K of(bool x) { return x ? 1 : 0; }
};
template <>
struct KeyOf<Half> {
  static __device__ K of(Half x) {
    return key_of_bits<UInt16>(x.bits, (x.bits & 0x7fff) > 0x7c00, (x.bits & 0x7fff) == 0);
  }
};
template <>
struct KeyOf<BFloat16> {
  static __device__ K of(BFloat16 x) {
    return key_of_bits<UInt16>(x.bits, (x.bits & 0x7fff) > 0x7f80, (x.bits & 0x7fff) == 0);
  }
};
template <>
struct KeyOf<float> {
  static __device__ K of(float x) { return key_of_bits<UInt32>(__float_as_uint(x), x != x, x == 0); }
};
template <>
struct KeyOf<double> {
  static __device__ K of(double x) {
    return key_of_bits<UInt64>((UInt64)__double_as_longlong(x), x != x, x == 0);
  }
};
struct Sorting {  // twin of rbcuda's
  Int64 n, k;           // elements of a line, and how many of them are wanted
  Int64 steps[3];       // of values, x and indices along a line
  int descending, digit;  // digit: which byte of the keys a launch sorts by
  Int64 tiles;          // of a line
};
__device__ inline K key_at(const A* x, Int64 i, const Sorting& s) {
  const K key = KeyOf<A>::of(x[i * s.steps[1]]);
  return s.descending ? (K)~key : key;
}

// Lines of up to CAPACITY elements: a block sorts one in shared memory by Batcher's network. chosen:
// the places of the elements of each line; null: all.
template <int CAPACITY>
__device__ inline void sort_small(A* values, const A* x, Int64* indices, const Layout& lines,
                                  const Sorting& s, int size, const UInt32* chosen) {
  __shared__ K keys[CAPACITY];
  __shared__ UInt32 places[CAPACITY];
  for (Int64 l = blockIdx.x; l < lines.n; l += gridDim.x) {
    const Places p = places_of(lines, l);
    const A* from = x + p.at[1];
    const Int64 count = chosen ? s.k : s.n;
    for (int i = threadIdx.x; i < size; i += blockDim.x) {
      const bool is_there = i < count;
      const UInt32 place = is_there ? (chosen ? chosen[l * s.k + i] : (UInt32)i) : ~0u;
      places[i] = place;
      keys[i] = is_there ? key_at(from, place, s) : (K) ~(K)0;
    }
    __syncthreads();
    for (int run = 2; run <= size; run *= 2)
      for (int by = run / 2; by > 0; by /= 2) {
        for (int t = threadIdx.x; t < size / 2; t += blockDim.x) {
          const int i = 2 * t - (t & (by - 1)), j = i + by;
          const bool up = (i & run) == 0;
          const K a = keys[i], b = keys[j];
          const UInt32 pa = places[i], pb = places[j];
          if ((a > b || (a == b && pa > pb)) == up) {
            keys[i] = b, keys[j] = a;
            places[i] = pb, places[j] = pa;
          }
        }
        __syncthreads();
      }
    for (Int64 i = threadIdx.x; i < s.k; i += blockDim.x) {
      values[p.at[0] + i * s.steps[0]] = from[(Int64)places[i] * s.steps[1]];
      indices[p.at[2] + i * s.steps[2]] = places[i];
    }
    __syncthreads();
  }
}

// ---- long lines, by the bytes of the keys from the last to the first; tiles of 4096 elements
#define RB_TILE_ITEMS 16
#define RB_TILE_THREADS 256
#define RB_TILE (RB_TILE_ITEMS * RB_TILE_THREADS)
__device__ inline int digit_of(K key, int digit) { return (int)(key >> (8 * digit) & 255); }

__device__ inline void sort_keys(K* keys, UInt32* places, const A* x, const Layout& lines,
                                 const Sorting& s) {
  RB_FOR(i, lines.n * s.n) {
    const Int64 l = i / s.n, at = i - l * s.n;
    keys[i] = key_at(x + places_of(lines, l).at[1], at, s);
    places[i] = (UInt32)at;
  }
}
// counts: for each line and digit those of the tiles.
__device__ inline void sort_count(UInt32* counts, const K* keys, Int64 lines, const Sorting& s) {
  __shared__ UInt32 found[256];
  for (Int64 b = blockIdx.x; b < lines * s.tiles; b += gridDim.x) {
    const Int64 l = b / s.tiles, tile = b - l * s.tiles;
    found[threadIdx.x] = 0;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < RB_TILE_ITEMS; ++k) {
      const Int64 i = tile * RB_TILE + k * RB_TILE_THREADS + threadIdx.x;
      if (i < s.n) atomicAdd(&found[digit_of(keys[l * s.n + i], s.digit)], 1u);
    }
    __syncthreads();
    counts[(l * 256 + threadIdx.x) * s.tiles + tile] = found[threadIdx.x];
    __syncthreads();
  }
}
// A block for each line and digit: the counts of the tiles before; all of them to `totals`.
__device__ inline void sort_starts(UInt32* counts, UInt32* totals, Int64 lines, const Sorting& s) {
  enum { EACH = 8 };
  for (Int64 row = blockIdx.x; row < lines * 256; row += gridDim.x) {
    UInt32* line = counts + row * s.tiles;
    UInt32 carry = 0, total;
    for (Int64 begin = 0; begin < s.tiles; begin += EACH * blockDim.x) {
      const Int64 first = begin + EACH * threadIdx.x;
      UInt32 own[EACH], sum = 0;
      for (int k = 0; k < EACH; ++k) {
        own[k] = first + k < s.tiles ? line[first + k] : 0;
        sum += own[k];
      }
      UInt32 before = carry + block_scan(sum, JoinSum(), &total) - sum;
      for (int k = 0; k < EACH; ++k) {
        if (first + k < s.tiles) line[first + k] = before;
        before += own[k];
      }
      carry += total;
    }
    if (threadIdx.x == 0) totals[row] = carry;
  }
}
// Each warp owns a run of a tile; lanes with the same digit get their places in order.
__device__ inline void sort_move(K* to_keys, UInt32* to_places, const K* keys, const UInt32* places,
                                 const UInt32* starts, const UInt32* totals, Int64 lines,
                                 const Sorting& s) {
  __shared__ UInt32 found[RB_TILE_THREADS / 32][256];
  const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  for (Int64 b = blockIdx.x; b < lines * s.tiles; b += gridDim.x) {
    const Int64 l = b / s.tiles, tile = b - l * s.tiles;
    for (int w = 0; w < RB_TILE_THREADS / 32; ++w) found[w][threadIdx.x] = 0;
    __syncthreads();
    const Int64 first = tile * RB_TILE + warp * 32 * RB_TILE_ITEMS + lane;
    UInt32 rank[RB_TILE_ITEMS];
    for (int k = 0; k < RB_TILE_ITEMS; ++k) {
      const Int64 i = first + 32 * k;
      const int digit = i < s.n ? digit_of(keys[l * s.n + i], s.digit) : 256;
      const unsigned same = __match_any_sync(0xffffffffu, digit);
      const UInt32 before = i < s.n ? found[warp][digit] : 0;
      rank[k] = before + __popc(same & ((1u << lane) - 1));
      __syncwarp();
      if (i < s.n && (same >> lane) == 1) found[warp][digit] = rank[k] + 1;
      __syncwarp();
    }
    __syncthreads();
    UInt32 all;  // thread d: where digit d begins in the line, then in this tile
    const UInt32 own_total = totals[l * 256 + threadIdx.x];
    UInt32 start = block_scan(own_total, JoinSum(), &all) - own_total +
                   starts[(l * 256 + threadIdx.x) * s.tiles + tile];
    for (int w = 0; w < RB_TILE_THREADS / 32; ++w) {
      const UInt32 own = found[w][threadIdx.x];
      found[w][threadIdx.x] = start;
      start += own;
    }
    __syncthreads();
    for (int k = 0; k < RB_TILE_ITEMS; ++k) {
      const Int64 i = first + 32 * k;
      if (i >= s.n) continue;
      const K key = keys[l * s.n + i];
      const Int64 at = l * s.n + found[warp][digit_of(key, s.digit)] + rank[k];
      to_keys[at] = key;
      to_places[at] = places[l * s.n + i];
    }
    __syncthreads();
  }
}
__device__ inline void sort_results(A* values, const A* x, Int64* indices, const Layout& lines,
                                    const Sorting& s, const UInt32* sorted) {
  RB_FOR(i, lines.n * s.k) {
    const Int64 l = i / s.k, at = i - l * s.k;
    const Places p = places_of(lines, l);
    const Int64 place = sorted[l * s.n + at];
    values[p.at[0] + at * s.steps[0]] = x[p.at[1] + place * s.steps[1]];
    indices[p.at[2] + at * s.steps[2]] = place;
  }
}

// ---- the places of the k first of a line, in no order: the k-th key is found byte by byte, from the
// first one on; of those that equal it the first ones are taken.
struct Chosen {
  K prefix;     // of the k-th key
  UInt32 left;  // how many are wanted of those whose keys begin so
};
// The bucket of a digit that holds the k-th key; found: counts of its 256 buckets. By a whole block.
__device__ inline void choose_bucket(Chosen& chosen, const UInt32* found, int digit) {
  __shared__ UInt32 bucket, below;
  UInt32 carry = 0, total;
  for (int begin = 0; begin < 256; begin += blockDim.x) {
    const int d = begin + threadIdx.x;
    const UInt32 own = d < 256 ? found[d] : 0;
    const UInt32 upto = carry + block_scan(own, JoinSum(), &total);
    if (upto >= chosen.left && upto - own < chosen.left) bucket = (UInt32)d, below = upto - own;
    carry += total;
  }
  __syncthreads();
  chosen.prefix = (K)(chosen.prefix | (K)((K)bucket << (8 * digit)));
  chosen.left -= below;
  __syncthreads();
}
__device__ inline bool begins_so(K key, const Chosen& chosen, int digit) {
  const int above = 8 * (digit + 1);
  return above >= 8 * (int)sizeof(K) || (K)(key >> above) == (K)(chosen.prefix >> above);
}
enum { kTopDigit = sizeof(K) - 1 };

// A block for each line.
__device__ inline void select_lines(UInt32* chosen, const A* x, const Layout& lines,
                                    const Sorting& s) {
  enum { AHEAD = 4 };
  __shared__ UInt32 found[256], taken;
  for (Int64 l = blockIdx.x; l < lines.n; l += gridDim.x) {
    const A* from = x + places_of(lines, l).at[1];
    Chosen all = {0, (UInt32)s.k};
    for (int digit = kTopDigit; digit >= 0; --digit) {
      for (int d = threadIdx.x; d < 256; d += blockDim.x) found[d] = 0;
      if (threadIdx.x == 0) taken = 0;
      __syncthreads();
      for (Int64 begin = threadIdx.x; begin < s.n; begin += AHEAD * blockDim.x) {
        K keys[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; ++k) {
          const Int64 i = begin + k * blockDim.x;
          if (i < s.n) keys[k] = key_at(from, i, s);
        }
#pragma unroll
        for (int k = 0; k < AHEAD; ++k)
          if (begin + k * blockDim.x < s.n && begins_so(keys[k], all, digit))
            atomicAdd(&found[digit_of(keys[k], digit)], 1u);
      }
      __syncthreads();
      choose_bucket(all, found, digit);
    }
    UInt32* to = chosen + l * s.k;
    const UInt32 sure = (UInt32)s.k - all.left;
    UInt32 ties = 0, total;
    for (Int64 begin = 0; begin < s.n; begin += blockDim.x) {
      const Int64 i = begin + threadIdx.x;
      const K key = i < s.n ? key_at(from, i, s) : (K) ~(K)0;
      if (i < s.n && key < all.prefix) to[atomicAdd(&taken, 1u)] = (UInt32)i;
      if (ties >= all.left) continue;
      const UInt32 equal = i < s.n && key == all.prefix;
      const UInt32 rank = ties + block_scan(equal, JoinSum(), &total) - equal;
      if (equal && rank < all.left) to[sure + rank] = (UInt32)i;
      ties += total;
    }
    __syncthreads();
  }
}

// Few lines: blocks for the tiles of each, a launch for each digit, then one for the ties, and one
// that takes the places. Of each line there are the counts of the digits' buckets and of what is
// taken, which begin at 0, and the tiles' ties.
#define RB_SELECT_COUNTS ((kTopDigit + 1) * 256 + 1)
struct SelectMemory {  // twin of rbcuda's
  UInt32 *counts, *ties;
};
// The prefix down to `digit`, from the counts that earlier launches left.
__device__ inline Chosen chosen_above(const UInt32* counts, const Sorting& s, int digit) {
  Chosen chosen = {0, (UInt32)s.k};
  for (int d = kTopDigit; d > digit; --d) choose_bucket(chosen, counts + d * 256, d);
  return chosen;
}
// f(i, key) for the elements of a tile, of which a thread has every RB_TILE_THREADS-th.
template <class F>
__device__ inline void each_of_tile(const A* from, Int64 tile, const Sorting& s, F f) {
  K keys[RB_TILE_ITEMS];
#pragma unroll
  for (int k = 0; k < RB_TILE_ITEMS; ++k) {
    const Int64 i = tile * RB_TILE + k * RB_TILE_THREADS + threadIdx.x;
    if (i < s.n) keys[k] = key_at(from, i, s);
  }
#pragma unroll
  for (int k = 0; k < RB_TILE_ITEMS; ++k) {
    const Int64 i = tile * RB_TILE + k * RB_TILE_THREADS + threadIdx.x;
    f(i, keys[k], i < s.n);
  }
}
__device__ inline void select_count(const SelectMemory& memory, const A* x, const Layout& lines,
                                    const Sorting& s) {
  __shared__ UInt32 found[256];
  const Int64 l = blockIdx.x / s.tiles, tile = blockIdx.x - l * s.tiles;
  UInt32* counts = memory.counts + l * RB_SELECT_COUNTS;
  const Chosen chosen = chosen_above(counts, s, s.digit);
  found[threadIdx.x] = 0;
  __syncthreads();
  each_of_tile(x + places_of(lines, l).at[1], tile, s, [&](Int64, K key, bool in) {
    if (in && begins_so(key, chosen, s.digit)) atomicAdd(&found[digit_of(key, s.digit)], 1u);
  });
  __syncthreads();
  if (found[threadIdx.x]) atomicAdd(&counts[s.digit * 256 + threadIdx.x], found[threadIdx.x]);
}
__device__ inline void select_ties(const SelectMemory& memory, const A* x, const Layout& lines,
                                   const Sorting& s) {
  const Int64 l = blockIdx.x / s.tiles, tile = blockIdx.x - l * s.tiles;
  const Chosen chosen = chosen_above(memory.counts + l * RB_SELECT_COUNTS, s, -1);
  UInt32 ties = 0;
  each_of_tile(x + places_of(lines, l).at[1], tile, s,
               [&](Int64, K key, bool in) { ties += in && key == chosen.prefix; });
  ties = block_reduce(ties, JoinSum());
  if (threadIdx.x == 0) memory.ties[blockIdx.x] = ties;
}
__device__ inline void select_take(UInt32* to, const SelectMemory& memory, const A* x,
                                   const Layout& lines, const Sorting& s) {
  const Int64 l = blockIdx.x / s.tiles, tile = blockIdx.x - l * s.tiles;
  UInt32* counts = memory.counts + l * RB_SELECT_COUNTS;
  const Chosen chosen = chosen_above(counts, s, -1);
  UInt32 before = 0, total;  // ties of the tiles before
  for (Int64 t = threadIdx.x; t < tile; t += blockDim.x) before += memory.ties[l * s.tiles + t];
  before = block_reduce(before, JoinSum());
  to += l * s.k;
  const UInt32 sure = (UInt32)s.k - chosen.left;
  each_of_tile(x + places_of(lines, l).at[1], tile, s, [&](Int64 i, K key, bool in) {
    if (in && key < chosen.prefix) to[atomicAdd(&counts[RB_SELECT_COUNTS - 1], 1u)] = (UInt32)i;
    if (before >= chosen.left) return;
    const UInt32 equal = in && key == chosen.prefix;
    const UInt32 rank = before + block_scan(equal, JoinSum(), &total) - equal;
    if (equal && rank < chosen.left) to[sure + rank] = (UInt32)i;
    before += total;
  });
}

#define RB_SORT_SMALL(CAPACITY)                                                                  \
  extern "C" __global__ void rb_kernel(A* values, const A* x, Int64* indices,                    \
                                       const Layout lines, const Sorting s, int size,            \
                                       const UInt32* chosen) {                                   \
    sort_small<CAPACITY>(values, x, indices, lines, s, size, chosen);                            \
  }
#define RB_SORT_KEYS()                                                                           \
  extern "C" __global__ void rb_kernel(K* keys, UInt32* places, const A* x, const Layout lines,  \
                                       const Sorting s) {                                        \
    sort_keys(keys, places, x, lines, s);                                                        \
  }
#define RB_SORT_COUNT()                                                                          \
  extern "C" __global__ void rb_kernel(UInt32* counts, const K* keys, Int64 lines,               \
                                       const Sorting s) {                                        \
    sort_count(counts, keys, lines, s);                                                          \
  }
#define RB_SORT_STARTS()                                                                         \
  extern "C" __global__ void rb_kernel(UInt32* counts, UInt32* totals, Int64 lines,              \
                                       const Sorting s) {                                        \
    sort_starts(counts, totals, lines, s);                                                       \
  }
#define RB_SORT_MOVE()                                                                           \
  extern "C" __global__ void rb_kernel(K* to_keys, UInt32* to_places, const K* keys,             \
                                       const UInt32* places, const UInt32* starts,               \
                                       const UInt32* totals, Int64 lines, const Sorting s) {     \
    sort_move(to_keys, to_places, keys, places, starts, totals, lines, s);                       \
  }
#define RB_SORT_RESULTS()                                                                        \
  extern "C" __global__ void rb_kernel(A* values, const A* x, Int64* indices,                    \
                                       const Layout lines, const Sorting s,                      \
                                       const UInt32* sorted) {                                   \
    sort_results(values, x, indices, lines, s, sorted);                                          \
  }
#define RB_SELECT()                                                                              \
  extern "C" __global__ void rb_kernel(UInt32* chosen, const A* x, const Layout lines,           \
                                       const Sorting s) {                                        \
    select_lines(chosen, x, lines, s);                                                           \
  }
#define RB_SELECT_COUNT()                                                                        \
  extern "C" __global__ void rb_kernel(const SelectMemory memory, const A* x,                    \
                                       const Layout lines, const Sorting s) {                    \
    select_count(memory, x, lines, s);                                                           \
  }
#define RB_SELECT_TIES()                                                                         \
  extern "C" __global__ void rb_kernel(const SelectMemory memory, const A* x,                    \
                                       const Layout lines, const Sorting s) {                    \
    select_ties(memory, x, lines, s);                                                            \
  }
#define RB_SELECT_TAKE()                                                                         \
  extern "C" __global__ void rb_kernel(UInt32* to, const SelectMemory memory, const A* x,        \
                                       const Layout lines, const Sorting s) {                    \
    select_take(to, memory, x, lines, s);                                                        \
  }
