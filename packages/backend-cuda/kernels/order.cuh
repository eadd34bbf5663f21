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
#define RB_SORT_SMALL(CAPACITY)                                                              \
  extern "C" __global__ void rb_kernel(A* values, const A* x, Int64* indices,                \
                                       const Layout lines, const Sorting s, int size,        \
                                       const UInt32* chosen) {                               \
    __shared__ K keys[CAPACITY];                                                             \
    __shared__ UInt32 places[CAPACITY];                                                      \
    for (Int64 l = blockIdx.x; l < lines.n; l += gridDim.x) {                                \
      const Places p = places_of(lines, l);                                                  \
      const A* from = x + p.at[1];                                                           \
      const Int64 count = chosen ? s.k : s.n;                                                \
      for (int i = threadIdx.x; i < size; i += blockDim.x) {                                 \
        const bool is_there = i < count;                                                     \
        const UInt32 place = is_there ? (chosen ? chosen[l * s.k + i] : (UInt32)i) : ~0u;    \
        places[i] = place;                                                                   \
        keys[i] = is_there ? key_at(from, place, s) : (K) ~(K)0;                             \
      }                                                                                      \
      __syncthreads();                                                                       \
      for (int run = 2; run <= size; run *= 2)                                               \
        for (int by = run / 2; by > 0; by /= 2) {                                            \
          for (int t = threadIdx.x; t < size / 2; t += blockDim.x) {                         \
            const int i = 2 * t - (t & (by - 1)), j = i + by;                                \
            const bool up = (i & run) == 0;                                                  \
            const K a = keys[i], b = keys[j];                                                \
            const UInt32 pa = places[i], pb = places[j];                                     \
            if ((a > b || (a == b && pa > pb)) == up) {                                      \
              keys[i] = b, keys[j] = a;                                                      \
              places[i] = pb, places[j] = pa;                                                \
            }                                                                                \
          }                                                                                  \
          __syncthreads();                                                                   \
        }                                                                                    \
      for (Int64 i = threadIdx.x; i < s.k; i += blockDim.x) {                                \
        values[p.at[0] + i * s.steps[0]] = from[(Int64)places[i] * s.steps[1]];              \
        indices[p.at[2] + i * s.steps[2]] = places[i];                                       \
      }                                                                                      \
      __syncthreads();                                                                       \
    }                                                                                        \
  }

// ---- long lines, by the bytes of the keys from the last to the first; tiles of 4096 elements
#define RB_TILE_ITEMS 16
#define RB_TILE_THREADS 256
#define RB_TILE (RB_TILE_ITEMS * RB_TILE_THREADS)
__device__ inline int digit_of(K key, int digit) { return (int)(key >> (8 * digit) & 255); }

#define RB_SORT_KEYS()                                                                       \
  extern "C" __global__ void rb_kernel(K* keys, UInt32* places, const A* x,                  \
                                       const Layout lines, const Sorting s) {                \
    for (Int64 i = RB_THREAD; i < lines.n * s.n; i += RB_THREADS) {                          \
      const Int64 l = i / s.n, at = i - l * s.n;                                             \
      keys[i] = key_at(x + places_of(lines, l).at[1], at, s);                                \
      places[i] = (UInt32)at;                                                                \
    }                                                                                        \
  }
// counts: for each line and digit those of the tiles.
#define RB_SORT_COUNT()                                                                      \
  extern "C" __global__ void rb_kernel(UInt32* counts, const K* keys, Int64 lines,           \
                                       const Sorting s) {                                    \
    __shared__ UInt32 found[256];                                                            \
    for (Int64 b = blockIdx.x; b < lines * s.tiles; b += gridDim.x) {                        \
      const Int64 l = b / s.tiles, tile = b - l * s.tiles;                                   \
      found[threadIdx.x] = 0;                                                                \
      __syncthreads();                                                                       \
      for (int k = 0; k < RB_TILE_ITEMS; ++k) {                                              \
        const Int64 i = tile * RB_TILE + k * RB_TILE_THREADS + threadIdx.x;                  \
        if (i < s.n) atomicAdd(&found[digit_of(keys[l * s.n + i], s.digit)], 1u);            \
      }                                                                                      \
      __syncthreads();                                                                       \
      counts[(l * 256 + threadIdx.x) * s.tiles + tile] = found[threadIdx.x];                 \
      __syncthreads();                                                                       \
    }                                                                                        \
  }
// In each line: the sum of the counts before.
#define RB_SORT_STARTS()                                                                     \
  extern "C" __global__ void rb_kernel(UInt32* counts, Int64 lines, const Sorting s) {       \
    const Int64 n = 256 * s.tiles;                                                           \
    for (Int64 l = blockIdx.x; l < lines; l += gridDim.x) {                                  \
      UInt32* line = counts + l * n;                                                         \
      UInt32 carry = 0, total;                                                               \
      for (Int64 begin = 0; begin < n; begin += 8 * blockDim.x) {                            \
        const Int64 first = begin + 8 * threadIdx.x;                                         \
        UInt32 own[8], sum = 0;                                                              \
        for (int k = 0; k < 8; ++k) {                                                        \
          own[k] = first + k < n ? line[first + k] : 0;                                      \
          sum += own[k];                                                                     \
        }                                                                                    \
        UInt32 before = carry + block_scan(sum, JoinSum(), &total) - sum;                    \
        for (int k = 0; k < 8; ++k) {                                                        \
          if (first + k < n) line[first + k] = before;                                       \
          before += own[k];                                                                  \
        }                                                                                    \
        carry += total;                                                                      \
      }                                                                                      \
    }                                                                                        \
  }
// Each warp owns a run of a tile; lanes with the same digit get their places in order.
#define RB_SORT_MOVE()                                                                       \
  extern "C" __global__ void rb_kernel(K* to_keys, UInt32* to_places, const K* keys,         \
                                       const UInt32* places, const UInt32* starts,           \
                                       Int64 lines, const Sorting s) {                       \
    __shared__ UInt32 found[RB_TILE_THREADS / 32][256];                                      \
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;                              \
    for (Int64 b = blockIdx.x; b < lines * s.tiles; b += gridDim.x) {                        \
      const Int64 l = b / s.tiles, tile = b - l * s.tiles;                                   \
      for (int w = 0; w < RB_TILE_THREADS / 32; ++w) found[w][threadIdx.x] = 0;              \
      __syncthreads();                                                                       \
      const Int64 first = tile * RB_TILE + warp * 32 * RB_TILE_ITEMS + lane;                 \
      UInt32 rank[RB_TILE_ITEMS];                                                            \
      for (int k = 0; k < RB_TILE_ITEMS; ++k) {                                              \
        const Int64 i = first + 32 * k;                                                      \
        const int digit = i < s.n ? digit_of(keys[l * s.n + i], s.digit) : 256;              \
        const unsigned same = __match_any_sync(0xffffffffu, digit);                          \
        const UInt32 before = i < s.n ? found[warp][digit] : 0;                              \
        rank[k] = before + __popc(same & ((1u << lane) - 1));                                \
        __syncwarp();                                                                        \
        if (i < s.n && (same >> lane) == 1) found[warp][digit] = rank[k] + 1;                \
        __syncwarp();                                                                        \
      }                                                                                      \
      __syncthreads();                                                                       \
      UInt32 start = starts[(l * 256 + threadIdx.x) * s.tiles + tile];                       \
      for (int w = 0; w < RB_TILE_THREADS / 32; ++w) {                                       \
        const UInt32 own = found[w][threadIdx.x];                                            \
        found[w][threadIdx.x] = start;                                                       \
        start += own;                                                                        \
      }                                                                                      \
      __syncthreads();                                                                       \
      for (int k = 0; k < RB_TILE_ITEMS; ++k) {                                              \
        const Int64 i = first + 32 * k;                                                      \
        if (i >= s.n) continue;                                                              \
        const K key = keys[l * s.n + i];                                                     \
        const Int64 at = l * s.n + found[warp][digit_of(key, s.digit)] + rank[k];            \
        to_keys[at] = key;                                                                   \
        to_places[at] = places[l * s.n + i];                                                 \
      }                                                                                      \
      __syncthreads();                                                                       \
    }                                                                                        \
  }
#define RB_SORT_RESULTS()                                                                    \
  extern "C" __global__ void rb_kernel(A* values, const A* x, Int64* indices,                \
                                       const Layout lines, const Sorting s,                  \
                                       const UInt32* sorted) {                               \
    for (Int64 i = RB_THREAD; i < lines.n * s.k; i += RB_THREADS) {                          \
      const Int64 l = i / s.k, at = i - l * s.k;                                             \
      const Places p = places_of(lines, l);                                                  \
      const Int64 place = sorted[l * s.n + at];                                              \
      values[p.at[0] + at * s.steps[0]] = x[p.at[1] + place * s.steps[1]];                   \
      indices[p.at[2] + at * s.steps[2]] = place;                                            \
    }                                                                                        \
  }

// The places of the k first of a line, in no order: the k-th key is found byte by byte, from the
// first one on; of those that equal it the first ones are taken.
#define RB_SELECT()                                                                          \
  extern "C" __global__ void rb_kernel(UInt32* chosen, const A* x, const Layout lines,       \
                                       const Sorting s) {                                    \
    __shared__ UInt32 found[256], taken, bucket, below;                                      \
    for (Int64 l = blockIdx.x; l < lines.n; l += gridDim.x) {                                \
      const A* from = x + places_of(lines, l).at[1];                                         \
      K prefix = 0;                                                                          \
      UInt32 left = (UInt32)s.k;                                                             \
      for (int digit = sizeof(K) - 1; digit >= 0; --digit) {                                 \
        for (int d = threadIdx.x; d < 256; d += blockDim.x) found[d] = 0;                    \
        __syncthreads();                                                                     \
        const int above = 8 * (digit + 1);                                                   \
        for (Int64 i = threadIdx.x; i < s.n; i += blockDim.x) {                              \
          const K key = key_at(from, i, s);                                                  \
          if (above >= 8 * (int)sizeof(K) || (K)(key >> above) == (K)(prefix >> above))      \
            atomicAdd(&found[digit_of(key, digit)], 1u);                                     \
        }                                                                                    \
        __syncthreads();                                                                     \
        if (threadIdx.x == 0) {                                                              \
          UInt32 sum = 0;                                                                    \
          int d = 0;                                                                         \
          while (sum + found[d] < left) sum += found[d++];                                   \
          bucket = (UInt32)d;                                                                \
          below = sum;                                                                       \
          taken = 0;                                                                         \
        }                                                                                    \
        __syncthreads();                                                                     \
        prefix = (K)(prefix | (K)((K)bucket << (8 * digit)));                                \
        left -= below;                                                                       \
        __syncthreads();                                                                     \
      }                                                                                      \
      UInt32* to = chosen + l * s.k;                                                         \
      const UInt32 sure = (UInt32)s.k - left;                                                \
      UInt32 ties = 0, total;                                                                \
      for (Int64 begin = 0; begin < s.n; begin += blockDim.x) {                              \
        const Int64 i = begin + threadIdx.x;                                                 \
        const K key = i < s.n ? key_at(from, i, s) : (K) ~(K)0;                              \
        if (i < s.n && key < prefix) to[atomicAdd(&taken, 1u)] = (UInt32)i;                  \
        if (ties >= left) continue;                                                          \
        const UInt32 equal = i < s.n && key == prefix;                                       \
        const UInt32 rank = ties + block_scan(equal, JoinSum(), &total) - equal;             \
        if (equal && rank < left) to[sure + rank] = (UInt32)i;                               \
        ties += total;                                                                       \
      }                                                                                      \
      __syncthreads();                                                                       \
    }                                                                                        \
  }
