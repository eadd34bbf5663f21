// Lines of elements, each of which a few threads of a block work on: `width` threads for each of
// `across` lines. In rows the elements of a line lie together in memory, in columns those of
// neighbouring lines: threads that are neighbours read neighbours. Everything is joined in a fixed
// order: results are the same in every run.
#define RB_BLOCK 256
#define RB_MOST_THREADS 512  // of a block whose threads hold lines in registers
struct Lines {  // twin of rbcuda::Lines
  int width, across, columns, reserved;
};
struct Seat {
  int line, lane;  // of the block's lines; of the line's threads
};
__device__ inline Seat seat_of(const Lines& lines) {
  const int thread = threadIdx.x;
  Seat seat;
  seat.line = lines.columns ? thread % lines.across : thread / lines.width;
  seat.lane = lines.columns ? thread / lines.across : thread % lines.width;
  return seat;
}

// What the threads of a line hold, joined by Join::join(state, later). All threads of the block
// come here; `slots` is shared memory of RB_BLOCK states.
template <class Join, class State>
__device__ inline State joined_lanes(State mine, int lane, int lanes) {
  for (int by = 1; by < lanes; by *= 2) {
    State later = shuffle_xor(mine, by);
    if (lane & by) {
      const State earlier = later;
      later = mine;
      mine = earlier;
    }
    Join::join(mine, later);
  }
  return mine;
}
template <class Join, class State>
__device__ inline State joined_columns(State* slots, State mine, const Lines& lines,
                                       const Seat& seat) {
  const int slot = threadIdx.x;
  slots[slot] = mine;
  __syncthreads();
  for (int half = lines.width / 2; half > 0; half /= 2) {
    if (seat.lane < half) {
      State state = slots[slot];
      Join::join(state, slots[slot + half * lines.across]);
      slots[slot] = state;
    }
    __syncthreads();
  }
  const State all = slots[seat.line];
  __syncthreads();
  return all;
}
template <class Join, class State>
__device__ inline State joined(State* slots, State mine, const Lines& lines, const Seat& seat) {
  if (lines.columns) return joined_columns<Join>(slots, mine, lines, seat);
  mine = joined_lanes<Join>(mine, seat.lane, lines.width < 32 ? lines.width : 32);
  if (lines.width <= 32) return mine;
  const int warps = lines.width / 32;
  if (RB_LANE == 0) slots[RB_WARP] = mine;
  __syncthreads();
  const int lane = RB_LANE & (warps - 1);
  mine = slots[seat.line * warps + lane];
  __syncthreads();
  return joined_lanes<Join>(mine, lane, warps);
}
// ---- positions of a line, or of a whole call, that the host found to lie in one of three ways. With
// packs a position is that of RB_PACK elements; `singles` has a bit for each tensor that has one
// element for all of a pack. Twins of the structs of packs.h.
#define RB_PACK (16 / (int)sizeof(A))
struct Strided {
  Int64 n, steps[4];
  int singles, reserved;
  __device__ Int64 count() const { return n; }
  __device__ Places at(Int64 i) const {
    return {{i * steps[0], i * steps[1], i * steps[2], i * steps[3]}};
  }
};
struct Nested {
  Layout32 layout;
  int singles, reserved;
  __device__ Int64 count() const { return layout.n; }
  __device__ Places at(Int64 i) const {
    const Places32 p = places_of(layout, (UInt32)i);
    return {{p.at[0], p.at[1], p.at[2], p.at[3]}};
  }
};
struct NestedFar {
  Layout layout;
  int singles, reserved;
  __device__ Int64 count() const { return layout.n; }
  __device__ Places at(Int64 i) const { return places_of(layout, i); }
};

// f(k, i) for the loads of a line that a thread holds: load k is i = lane + k width, below n.
template <int HELD, class F>
__device__ inline void each_held(Int64 n, int lane, int width, F f) {
#pragma unroll
  for (int k = 0; k < HELD; ++k) {
    const Int64 i = lane + k * (Int64)width;
    if (i < n) f(k, i);
  }
}

// How many elements lie before the first pack of 16 bytes.
template <class S>
__device__ inline int head_of(const S* x) {
  return (int)((16 - (UInt64)x % 16) % 16 / sizeof(S));
}
// Whether `other` can be read or written by packs where those of `x` begin.
template <class S, class R>
__device__ inline bool goes_along(const S* x, const R* other, Int64 step) {
  return step == 1 && is_packed<16 / sizeof(S)>(other + head_of(x));
}
// The `n` elements of a line as T, `step` apart: by packs of 16 bytes if `packs`, but for the ends,
// else one by one. f(pack, i) gets elements i to i + M - 1 in a Pack<T, M>, M being one of two
// numbers; a thread takes every width-th pack.
template <class T, class S, class F>
__device__ inline void walk(const S* x, Int64 step, Int64 n, bool packs, int lane, int width, F f) {
  enum { N = 16 / sizeof(S) };
  Int64 rest = 0;
  const auto one = [&](Int64 i) {
    const Pack<T, 1> single = {{As<T>::of(x[i * step])}};
    f(single, i);
  };
  if (packs && n >= 2 * N) {
    const int head = head_of(x);
    const Int64 count = (n - head) / N;
    for (int i = lane; i < head; i += width) one(i);
    for (Int64 j = lane; j < count; j += width) {
      const Int64 i = head + j * N;
      const Pack<S, N> pack = load_pack<N>(x + i);
      Pack<T, N> wide;
      for (int e = 0; e < N; ++e) wide.at[e] = As<T>::of(pack.at[e]);
      f(wide, i);
    }
    rest = head + count * N;
  }
  for (Int64 i = rest + lane; i < n; i += width) one(i);
}
// Elements i to i + M - 1 of another line, like a pack of the one that is walked; and of the result.
template <class T, int M, class S>
__device__ inline Pack<T, M> beside(Pack<T, M> wide, const S* x, Int64 step, Int64 i) {
  const Pack<S, M> pack = load_pack<M>(x + (M > 1 ? i : i * step));
  for (int e = 0; e < M; ++e) wide.at[e] = As<T>::of(pack.at[e]);
  return wide;
}
template <class T, class S, int M>
__device__ inline void put(S* x, Int64 step, Int64 i, const Pack<T, M>& values) {
  Pack<S, M> pack;
  for (int e = 0; e < M; ++e) pack.at[e] = As<S>::of(values.at[e]);
  store_whole_pack(x + (M > 1 ? i : i * step), pack);
}

struct Adding {
  template <class T>
  static __device__ void join(T& a, const T& later) { a = (T)(a + later); }
};
struct Larger {
  template <class T>
  static __device__ void join(T& a, const T& later) { a = later > a ? later : a; }
};
template <class T>
struct Pair {
  T a, b;
};
struct AddingPairs {
  template <class T>
  static __device__ void join(Pair<T>& p, const Pair<T>& later) { p.a += later.a, p.b += later.b; }
};

// The logarithm of a sum of exponentials, as `sum` times exp(top).
template <class T>
struct Exponentials {
  T top, sum;
  static __device__ Exponentials none() { return {-(T)INFINITY, 0}; }
  __device__ void add(T v) {
    if (v == -(T)INFINITY) return;
    if (v > top) {
      sum = sum * exp(top - v) + 1;
      top = v;
    } else {
      sum += v == top ? (T)1 : exp(v - top);  // also where both are infinite
    }
  }
  // All of a pack: the sum is scaled once.
  template <int M>
  __device__ void add(const Pack<T, M>& pack) {
    T most = top;
    for (int e = 0; e < M; ++e) most = pack.at[e] > most ? pack.at[e] : most;
    if (most > top) {
      sum *= exp(top - most);
      top = most;
    }
    const T base = top == -(T)INFINITY ? (T)0 : top;  // nothing yet, or NaN alone
    for (int e = 0; e < M; ++e) sum += pack.at[e] == base ? (T)1 : exp(pack.at[e] - base);
  }
  static __device__ void join(Exponentials& e, const Exponentials& later) {
    if (later.sum == 0) return;
    if (e.sum == 0) {
      e = later;
      return;
    }
    const T top = e.top > later.top ? e.top : later.top;
    e.sum = (e.top == top ? e.sum : e.sum * exp(e.top - top)) +
            (later.top == top ? later.sum : later.sum * exp(later.top - top));
    e.top = top;
  }
  __device__ T logarithm() const { return log(sum) + top; }
};

// Places of one or two tensors only, by 32-bit divisions where they do.
template <int N>
__device__ inline Places places_in(const Layout& layout, Int64 i) {
  Places p = {{0, 0, 0, 0}};
  if (layout.ndim > 1) {
    if (layout.n <= 0x7fffffff) {
      UInt32 rest = (UInt32)i;
      for (int d = layout.ndim - 1; d > 0; --d) {
        const UInt32 size = (UInt32)layout.shape[d], above = rest / size, at = rest - above * size;
        for (int k = 0; k < N; ++k) p.at[k] += at * layout.strides[k][d];
        rest = above;
      }
      i = rest;
    } else {
      return places_of(layout, i);
    }
  }
  for (int k = 0; k < N; ++k) p.at[k] += i * layout.strides[k][0];
  return p;
}
