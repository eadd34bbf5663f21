// nonzero and searchsorted.
// ---- nonzero: elements in segments, of which a block has one; a thread has 8 side by side. Before
// it stands A.
#define RB_FIND_ITEMS 8
#define RB_FIND_SEGMENT (256 * RB_FIND_ITEMS)
struct Coordinates {  // twin of rbcuda's
  int ndim, reserved;
  Int64 shape[32];
};
// counts: of each segment; a last one is left for their sum.
#define RB_FIND_COUNT()                                                                    \
  extern "C" __global__ void rb_kernel(Int64* counts, const A* x, const Layout layout,     \
                                       Int64 segments) {                                   \
    for (Int64 b = blockIdx.x; b < segments; b += gridDim.x) {                             \
      int count = 0;                                                                       \
      for (int k = 0; k < RB_FIND_ITEMS; ++k) {                                            \
        const Int64 i = b * RB_FIND_SEGMENT + k * 256 + threadIdx.x;                       \
        if (i < layout.n) count += As<bool>::of(x[places_of(layout, i).at[0]]);            \
      }                                                                                    \
      count = block_reduce(count, JoinSum());                                              \
      if (threadIdx.x == 0) counts[b] = count;                                             \
    }                                                                                      \
  }
// The sums of the counts before, and of all, by one block.
#define RB_FIND_STARTS()                                                                   \
  extern "C" __global__ void rb_kernel(Int64* counts, Int64 segments) {                    \
    Int64 carry = 0, total;                                                                \
    for (Int64 begin = 0; begin < segments; begin += blockDim.x) {                         \
      const Int64 i = begin + threadIdx.x, own = i < segments ? counts[i] : 0;             \
      const Int64 upto = block_scan(own, JoinSum(), &total);                               \
      if (i < segments) counts[i] = carry + upto - own;                                    \
      carry += total;                                                                      \
    }                                                                                      \
    if (threadIdx.x == 0) counts[segments] = carry;                                        \
  }
// The indices of a dimension lie side by side, `count` of them.
#define RB_FIND_WRITE()                                                                    \
  extern "C" __global__ void rb_kernel(Int64* to, const A* x, const Layout layout,         \
                                       const Coordinates shape, const Int64* starts,       \
                                       Int64 segments, Int64 count) {                      \
    for (Int64 b = blockIdx.x; b < segments; b += gridDim.x) {                             \
      const Int64 first = b * RB_FIND_SEGMENT + threadIdx.x * RB_FIND_ITEMS;               \
      int own = 0, total, bits = 0;                                                        \
      for (int k = 0; k < RB_FIND_ITEMS; ++k) {                                            \
        if (first + k < layout.n && As<bool>::of(x[places_of(layout, first + k).at[0]]))   \
          bits |= 1 << k, ++own;                                                           \
      }                                                                                    \
      Int64 at = starts[b] + block_scan(own, JoinSum(), &total) - own;                     \
      for (int k = 0; k < RB_FIND_ITEMS; ++k) {                                            \
        if (!(bits >> k & 1)) continue;                                                    \
        Int64 i = first + k;                                                               \
        for (int d = shape.ndim - 1; d >= 0; --d) {                                        \
          const Int64 above = i / shape.shape[d];                                          \
          to[d * count + at] = i - above * shape.shape[d];                                 \
          i = above;                                                                       \
        }                                                                                  \
        ++at;                                                                              \
      }                                                                                    \
    }                                                                                      \
  }

// ---- searchsorted: a thread for each value. Before it stand A, the sequence's elements, B, the
// values', and T, which is compared in; NaN counts as the largest.
template <class V>
__device__ inline bool is_before(V a, V b) {
  return a < b || (b != b && a == a);
}
#define RB_SEARCH(RIGHT)                                                                   \
  extern "C" __global__ void rb_kernel(Int64* out, const A* sorted, const B* values,       \
                                       const Layout layout, Int64 n, Int64 step,           \
                                       const Number number) {                              \
    RB_FOR(i, layout.n) {                                                                  \
      const Places p = places_of(layout, i);                                               \
      const T v = values ? As<T>::of(As<A>::of(values[p.at[1]])) : as_number<T>(number);   \
      Int64 low = 0, high = n;                                                             \
      while (low < high) {                                                                 \
        const Int64 middle = (low + high) / 2;                                             \
        const T at = As<T>::of(sorted[middle * step]);                                     \
        const bool below = RIGHT ? !is_before(v, at) : is_before(at, v);                   \
        if (below) low = middle + 1;                                                       \
        else high = middle;                                                                \
      }                                                                                    \
      out[p.at[0]] = low;                                                                  \
    }                                                                                      \
  }
