// Before every kernel, behind types.cuh: what the threads of a warp and a block do together, loads
// and stores of several elements, index arithmetic in 32 bits. Blocks have one dimension and whole
// warps; what is done together is done by all threads of the warp or block.

// ---- loops over the grid. The second one is for n up to 2**31.
#define RB_LANE (threadIdx.x & 31u)
#define RB_WARP (threadIdx.x >> 5)
#define RB_WARPS (blockDim.x >> 5)
#define RB_FOR(i, n) for (Int64 i = RB_THREAD; i < (n); i += RB_THREADS)
#define RB_FOR32(i, n) \
  for (UInt32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += gridDim.x * blockDim.x)

// ---- shuffles of any type, between all lanes of a warp
template <class T>
struct Words {
  enum { count = (sizeof(T) + 3) / 4 };
  UInt32 at[count];
};
#define RB_SHUFFLE(name, shuffle)                                         \
  template <class T>                                                      \
  __device__ inline T name(T v, int by) {                                 \
    Words<T> words;                                                       \
    words.at[Words<T>::count - 1] = 0;                                    \
    memcpy(&words, &v, sizeof v);                                         \
    for (int k = 0; k < Words<T>::count; ++k)                             \
      words.at[k] = shuffle(0xffffffffu, words.at[k], by);                \
    memcpy(&v, &words, sizeof v);                                         \
    return v;                                                             \
  }
RB_SHUFFLE(shuffle_xor, __shfl_xor_sync)    // of lane ^ by
RB_SHUFFLE(shuffle_up, __shfl_up_sync)      // of lane - by
RB_SHUFFLE(shuffle_from, __shfl_sync)       // of lane `by`

// ---- what reductions and scans join by: any such struct does. NaN is the largest and the least.
struct JoinSum {
  template <class T>
  __device__ T operator()(T a, T b) const { return (T)(a + b); }
};
struct JoinProduct {
  template <class T>
  __device__ T operator()(T a, T b) const { return (T)(a * b); }
};
struct JoinLargest {
  template <class T>
  __device__ T operator()(T a, T b) const { return b > a || b != b ? b : a; }
};
struct JoinLeast {
  template <class T>
  __device__ T operator()(T a, T b) const { return b < a || b != b ? b : a; }
};

// ---- reductions: all lanes get the result of the lanes of their segment of `Width`. `join` must
// not mind the order of its two arguments.
template <int Width = 32, class T, class Join>
__device__ inline T warp_reduce(T v, Join join) {
#pragma unroll
  for (int by = Width / 2; by > 0; by /= 2) v = join(v, shuffle_xor(v, by));
  return v;
}
// All threads get the result. The order is fixed: equal in every run.
template <class T, class Join>
__device__ inline T block_reduce(T v, Join join) {
  __shared__ T parts[32];
  v = warp_reduce(v, join);
  if (RB_WARPS == 1) return v;
  __syncthreads();  // who called before has read
  if (RB_LANE == 0) parts[RB_WARP] = v;
  __syncthreads();
  v = parts[0];
  for (UInt32 warp = 1; warp < RB_WARPS; ++warp) v = join(v, parts[warp]);
  return v;
}

// ---- scans: thread i gets v_0 joined with ... v_i.
template <class T, class Join>
__device__ inline T warp_scan(T v, Join join) {
#pragma unroll
  for (int by = 1; by < 32; by *= 2) {
    const T before = shuffle_up(v, by);
    if (RB_LANE >= by) v = join(before, v);
  }
  return v;
}
// `total`: of the whole block, for all threads.
template <class T, class Join>
__device__ inline T block_scan(T v, Join join, T* total) {
  __shared__ T parts[32];
  v = warp_scan(v, join);
  __syncthreads();
  if (RB_LANE == 31) parts[RB_WARP] = v;
  __syncthreads();
  T all = parts[0], before = parts[0];
  for (UInt32 warp = 1; warp < RB_WARPS; ++warp) {
    if (warp == RB_WARP) before = all;
    all = join(all, parts[warp]);
  }
  *total = all;
  return RB_WARP == 0 ? v : join(before, v);
}
// The same without v_i: thread 0 gets `start`, which joins as nothing (0 of a sum).
template <class T, class Join>
__device__ inline T block_scan_before(T v, Join join, T start, T* total) {
  __shared__ T last[32];
  const T upto = block_scan(v, join, total);
  if (RB_LANE == 31) last[RB_WARP] = upto;
  __syncthreads();
  const T before = shuffle_up(upto, 1);
  return RB_LANE > 0 ? before : RB_WARP > 0 ? last[RB_WARP - 1] : start;
}

// ---- N elements that lie side by side: one access where they have up to 16 bytes. The address
// must be a multiple of their size.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  enum { count = N };
  T at[N];
};
template <int N, class T>
__device__ inline Pack<T, N> load_pack(const T* p) {
  return *reinterpret_cast<const Pack<T, N>*>(p);
}
template <class T, int N>
__device__ inline void store_pack(T* p, Pack<T, N> pack) {
  *reinterpret_cast<Pack<T, N>*>(p) = pack;
}
// The same to global memory by one instruction in any case: compilers take packs of 16 bits apart.
template <class T, int N>
__device__ inline void store_whole_pack(T* p, Pack<T, N> pack) {
#ifdef __CUDACC__
  if constexpr (sizeof pack == 16) {
    Words<Pack<T, N> > words;
    memcpy(&words, &pack, sizeof words);
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(words.at[0]),
                 "r"(words.at[1]), "r"(words.at[2]), "r"(words.at[3])
                 : "memory");
    return;
  }
#endif
  store_pack(p, pack);
}
// N elements side by side as T, by loads and stores of up to 16 bytes; or one element N times.
template <class S, int N>
struct Chunk {
  enum { size = 16 / sizeof(S) < N ? 16 / sizeof(S) : N, count = N / size };
};
template <class T, int N, class S>
__device__ inline void load_as(T (&to)[N], const S* x, bool single = false) {
  enum { SIZE = Chunk<S, N>::size, COUNT = Chunk<S, N>::count };
  if (N > 1 && single) {
    const T value = As<T>::of(*x);
    for (int e = 0; e < N; ++e) to[e] = value;
    return;
  }
  Pack<S, SIZE> chunks[COUNT];
  for (int c = 0; c < COUNT; ++c) chunks[c] = load_pack<SIZE>(x + c * SIZE);
  for (int e = 0; e < N; ++e) to[e] = As<T>::of(chunks[e / SIZE].at[e % SIZE]);
}
template <class T, int N, class S>
__device__ inline void store_as(S* x, const T (&from)[N]) {
  enum { SIZE = Chunk<S, N>::size, COUNT = Chunk<S, N>::count };
  for (int c = 0; c < COUNT; ++c) {
    Pack<S, SIZE> chunk;
    for (int e = 0; e < SIZE; ++e) chunk.at[e] = As<S>::of(from[c * SIZE + e]);
    store_whole_pack(x + c * SIZE, chunk);
  }
}
template <int N, class T>
__device__ inline bool is_packed(const T* p) {
  return (UInt64)p % (sizeof(T) * N) == 0;
}

// Loads i = begin + lane, begin + lane + width, ... below `end`: load(k, i) comes for AHEAD of them
// before use(k, i) does, so that they are under way together.
template <int AHEAD, class Load, class Use>
__device__ inline void sweep(Int64 begin, Int64 end, int lane, int width, Load load, Use use) {
  Int64 i = begin + lane;
  for (; i + (AHEAD - 1) * (Int64)width < end; i += AHEAD * (Int64)width) {
#pragma unroll
    for (int k = 0; k < AHEAD; ++k) load(k, i + k * (Int64)width);
#pragma unroll
    for (int k = 0; k < AHEAD; ++k) use(k, i + k * (Int64)width);
  }
#pragma unroll 1
  for (; i < end; i += width) {
    load(0, i);
    use(0, i);
  }
}

// ---- division by a number that the host knows. Twin of rbcuda::Divisor; n < 2**31.
struct Divisor {
  UInt32 value, factor, shift;
};
__device__ inline UInt32 operator/(UInt32 n, Divisor d) {
  return ((UInt32)((UInt64)n * d.factor >> 32) + n) >> d.shift;
}

// ---- positions of a call's tensors in 32 bits. Twin of rbcuda::Layout32.
struct Layout32 {
  UInt32 n;
  int ndim;
  Divisor shape[8];
  int strides[4][8];
};
struct Places32 {
  int at[4];
};
__device__ inline Places32 places_of(const Layout32& layout, UInt32 i) {
  Places32 p = {{0, 0, 0, 0}};
#pragma unroll
  for (int d = 7; d > 0; --d) {
    if (d >= layout.ndim) continue;
    const UInt32 above = i / layout.shape[d], at = i - above * layout.shape[d].value;
    for (int k = 0; k < 4; ++k) p.at[k] += (int)at * layout.strides[k][d];
    i = above;
  }
  for (int k = 0; k < 4; ++k) p.at[k] += (int)i * layout.strides[k][0];
  return p;
}
