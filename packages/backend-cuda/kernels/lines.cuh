// Lines of elements, each of which a few threads of a block work on: `width` threads for each of
// `across` lines. In rows the elements of a line lie together in memory, in columns those of
// neighbouring lines: threads that are neighbours read neighbours. Everything is joined in a fixed
// order: results are the same in every run.
#define RB_BLOCK 256
struct Lines {  // twin of rbcuda::Lines
  int width, across, columns, reserved;
};
struct Seat {
  int line, lane;  // of the block's lines; of the line's threads
  int first, step; // the line's slots in shared memory
};
__device__ inline Seat seat_of(const Lines& lines) {
  const int thread = threadIdx.x;
  Seat seat;
  seat.line = lines.columns ? thread % lines.across : thread / lines.width;
  seat.lane = lines.columns ? thread / lines.across : thread % lines.width;
  seat.first = lines.columns ? seat.line : seat.line * lines.width;
  seat.step = lines.columns ? lines.across : 1;
  return seat;
}

// What the threads of a line hold, joined by Join::join(state, later). All threads of the block
// come here; `slots` is shared memory of RB_BLOCK states.
template <class Join, class State>
__device__ inline State joined(State* slots, State mine, const Lines& lines, const Seat& seat) {
  const int slot = threadIdx.x;
  slots[slot] = mine;
  __syncthreads();
  for (int half = lines.width / 2; half > 0; half /= 2) {
    if (seat.lane < half) {
      State state = slots[slot];
      Join::join(state, slots[slot + half * seat.step]);
      slots[slot] = state;
    }
    __syncthreads();
  }
  const State all = slots[seat.first];
  __syncthreads();
  return all;
}

struct Adding {
  template <class T>
  static __device__ void join(T& a, const T& later) { a = (T)(a + later); }
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
