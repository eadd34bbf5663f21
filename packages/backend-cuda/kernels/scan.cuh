// Scans along lines. Before it stand A, the elements, and T, which is computed in. Floats are summed
// in float64, as the CPU does.
#define RB_SCAN_BLOCK 256

struct JoinOr {
  __device__ bool operator()(bool a, bool b) const { return a || b; }
};
struct JoinAnd {
  __device__ bool operator()(bool a, bool b) const { return a && b; }
};
// acc -> factor * acc + term; `b` comes after `a`.
struct Affine {
  T factor, term;
};
struct JoinAffine {
  __device__ Affine operator()(Affine a, Affine b) const {
    const Affine result = {(T)(a.factor * b.factor), (T)((T)(b.factor * a.term) + b.term)};
    return result;
  }
};
struct ScanLine {  // twin of rbcuda's: steps of out, x and y along a line
  Int64 n, steps[3];
};
__device__ inline T state_of(T*, A x, A) { return As<T>::of(x); }
__device__ inline Affine state_of(Affine*, A x, A y) { return {As<T>::of(x), As<T>::of(y)}; }
// What a scan begins with.
__device__ inline T start_of(T*, JoinSum) { return As<T>::of(0); }
__device__ inline T start_of(T*, JoinProduct) { return As<T>::of(1); }
__device__ inline bool start_of(bool*, JoinOr) { return false; }
__device__ inline bool start_of(bool*, JoinAnd) { return true; }
__device__ inline Affine start_of(Affine*, JoinAffine) { return {As<T>::of(1), As<T>::of(0)}; }
__device__ inline T result_of(T s) { return s; }
__device__ inline T result_of(Affine s) { return s.term; }
template <class S>
struct HasTwo {
  enum { value = 0 };
};
template <>
struct HasTwo<Affine> {
  enum { value = 1 };
};

// Lines that lie side by side: a thread for each line, which loads several elements ahead.
template <class S, class Join>
__device__ inline void scan_lines(A* out, const A* x, const A* y, const Layout& lines,
                                  const ScanLine& line) {
  enum { AHEAD = 8 };
  const Join join = Join();
  RB_FOR(l, lines.n) {
    const Places p = places_of(lines, l);
    S all = start_of((S*)0, join);
    for (Int64 first = 0; first < line.n; first += AHEAD) {
      A a[AHEAD], b[AHEAD];
#pragma unroll
      for (int k = 0; k < AHEAD; ++k) {
        const Int64 i = first + k;
        if (i < line.n) a[k] = x[p.at[1] + i * line.steps[1]];
        if (HasTwo<S>::value && i < line.n) b[k] = y[p.at[2] + i * line.steps[2]];
      }
#pragma unroll
      for (int k = 0; k < AHEAD; ++k) {
        if (first + k >= line.n) break;
        all = join(all, state_of((S*)0, a[k], b[k]));
        out[p.at[0] + (first + k) * line.steps[0]] = As<A>::of(result_of(all));
      }
    }
  }
}

// A tile of a line: `width` threads have ITEMS elements each. Neighbouring threads load and store
// neighbours; shared memory gives each thread its own elements, which lie one after another.
template <class S, class Join>
struct Tile {
  enum {
    ITEMS = sizeof(S) > 16 ? 4 : 8,
    SIZE = RB_SCAN_BLOCK * ITEMS,
    ROOM = SIZE + SIZE / 32,  // one more after each 32: threads that are neighbours use other banks
  };
  S items[ITEMS], all;  // of this thread: sums up to each element, and of all of them

  static __device__ int place(int first, int j) { return first + j + (first + j) / 32; }
  // first: the tile's first place in shared memory.
  __device__ void load(A* held, A* also, int first, const A* x, const A* y, int count,
                       const ScanLine& line, int lane, int width) {
    const Join join = Join();
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
      const int j = lane + k * width;
      if (j < count) held[place(first, j)] = x[j * line.steps[1]];
      if (HasTwo<S>::value && j < count) also[place(first, j)] = y[j * line.steps[2]];
    }
    __syncthreads();
    all = start_of((S*)0, join);
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
      const int j = lane * ITEMS + k, at = place(first, j);
      if (j < count) all = join(all, state_of((S*)0, held[at], also[HasTwo<S>::value ? at : 0]));
      items[k] = all;
    }
    __syncthreads();
  }
  // before: of all elements that come before this thread's.
  __device__ void store(A* held, int first, A* out, int count, const ScanLine& line, int lane,
                        int width, S before) const {
    const Join join = Join();
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
      const int j = lane * ITEMS + k;
      if (j < count) held[place(first, j)] = As<A>::of(result_of(join(before, items[k])));
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
      const int j = lane + k * width;
      if (j < count) out[j * line.steps[0]] = held[place(first, j)];
    }
    __syncthreads();
  }
};
#define RB_TILE_MEMORY(S, JOIN)                        \
  __shared__ A held[Tile<S, JOIN>::ROOM];              \
  __shared__ A also[HasTwo<S>::value ? Tile<S, JOIN>::ROOM : 1]

// Short lines: `width` lanes of a warp for each.
template <class S, class Join>
__device__ inline void scan_rows(A* out, const A* x, const A* y, const Layout& lines,
                                 const ScanLine& line, int width) {
  RB_TILE_MEMORY(S, Join);
  const Join join = Join();
  const S start = start_of((S*)0, join);
  const int across = blockDim.x / width, own = threadIdx.x / width, lane = threadIdx.x % width;
  const int first = own * width * Tile<S, Join>::ITEMS;
  for (Int64 at = (Int64)blockIdx.x * across; at < lines.n; at += (Int64)gridDim.x * across) {
    const bool here = at + own < lines.n;
    const Places p = places_of(lines, here ? at + own : 0);
    const int count = here ? (int)line.n : 0;
    Tile<S, Join> tile;
    tile.load(held, also, first, x + p.at[1], y + p.at[2], count, line, lane, width);
    S upto = tile.all;
    for (int by = 1; by < width; by *= 2) {
      const S before = shuffle_up(upto, by);
      if (lane >= by) upto = join(before, upto);
    }
    const S before = shuffle_up(upto, 1);
    tile.store(held, first, out + p.at[0], count, line, lane, width, lane ? before : start);
  }
}

// Many lines: a block for each, tile by tile.
template <class S, class Join>
__device__ inline void scan_blocks(A* out, const A* x, const A* y, const Layout& lines,
                                   const ScanLine& line) {
  RB_TILE_MEMORY(S, Join);
  const Join join = Join();
  const S start = start_of((S*)0, join);
  const int size = blockDim.x * Tile<S, Join>::ITEMS;
  for (Int64 l = blockIdx.x; l < lines.n; l += gridDim.x) {
    const Places p = places_of(lines, l);
    S carry = start, total;
    for (Int64 at = 0; at < line.n; at += size) {
      const int count = line.n - at < size ? (int)(line.n - at) : size;
      Tile<S, Join> tile;
      tile.load(held, also, 0, x + p.at[1] + at * line.steps[1], y + p.at[2] + at * line.steps[2],
                count, line, threadIdx.x, blockDim.x);
      const S before = join(carry, block_scan_before(tile.all, join, start, &total));
      tile.store(held, 0, out + p.at[0] + at * line.steps[0], count, line, threadIdx.x, blockDim.x,
                 before);
      carry = join(carry, total);
    }
  }
}

// Few long lines: a block for each tile, which looks back at the sums that other blocks leave
// (Merrill and Garland 2016). Their scheme adds what happens to be there; here sums are joined by
// fixed groups of 32 tiles, and of 32 groups, so that results are the same in every run. Blocks take
// their tiles from a counter: those that a block waits for have begun.
struct LookBack {  // twin of rbcuda's
  UInt32 *flags, *words;  // the counter, then a flag for each sum; the sums of tiles, groups and theirs
  Int64 tiles, groups, supers;  // of a line
};
template <class S>
__device__ inline void publish(const LookBack& back, Int64 at, S sum) {
  Words<S> words;
  words.at[Words<S>::count - 1] = 0;
  memcpy(&words, &sum, sizeof sum);
  for (int k = 0; k < Words<S>::count; ++k) back.words[at * Words<S>::count + k] = words.at[k];
  __threadfence();
  atomicExch(back.flags + 1 + at, 1u);
}
template <class S>
__device__ inline S awaited(const LookBack& back, Int64 at) {
  while (atomicOr(back.flags + 1 + at, 0u) == 0) {
  }
  __threadfence();
  const volatile UInt32* from = back.words + at * Words<S>::count;
  Words<S> words;
  for (int k = 0; k < Words<S>::count; ++k) words.at[k] = from[k];
  S sum;
  memcpy(&sum, &words, sizeof sum);
  return sum;
}
// The sums `first` to `first + count - 1`, joined in their order; all lanes of a warp get it.
template <class S, class Join>
__device__ inline S joined_sums(const LookBack& back, Int64 first, Int64 count, S start) {
  S all = start;
  for (Int64 at = 0; at < count; at += 32) {
    const Int64 i = at + RB_LANE;
    const S mine = i < count ? awaited<S>(back, first + i) : start;
    all = Join()(all, shuffle_from(warp_scan(mine, Join()), 31));
  }
  return all;
}
template <class S, class Join>
__device__ inline S look_back(const LookBack& back, Int64 l, Int64 own, S total, S start) {
  const Join join = Join();
  const Int64 tiles = l * (back.tiles + back.groups + back.supers), groups = tiles + back.tiles,
              supers = groups + back.groups, group = own / 32, super = group / 32;
  if (RB_LANE == 0) publish(back, tiles + own, total);
  const S in_group = joined_sums<S, Join>(back, tiles + group * 32, own % 32, start);
  const bool ends_group = own % 32 == 31, ends_super = ends_group && group % 32 == 31;
  const S of_group = join(in_group, total);
  if (ends_group && RB_LANE == 0) publish(back, groups + group, of_group);
  const S in_super = joined_sums<S, Join>(back, groups + super * 32, group % 32, start);
  if (ends_super && RB_LANE == 0) publish(back, supers + super, join(in_super, of_group));
  const S far = joined_sums<S, Join>(back, supers, super, start);
  return join(join(far, in_super), in_group);
}
template <class S, class Join>
__device__ inline void scan_tiles(A* out, const A* x, const A* y, const Layout& lines,
                                  const ScanLine& line, const LookBack& back) {
  RB_TILE_MEMORY(S, Join);
  __shared__ Int64 taken;
  __shared__ S carried;
  const Join join = Join();
  const S start = start_of((S*)0, join);
  const int size = Tile<S, Join>::SIZE;
  for (;;) {
    if (threadIdx.x == 0) taken = atomicAdd(back.flags, 1u);
    __syncthreads();
    const Int64 t = taken, l = t / back.tiles, own = t - l * back.tiles, at = own * size;
    if (l >= lines.n) return;
    const Places p = places_of(lines, l);
    const int count = line.n - at < size ? (int)(line.n - at) : size;
    Tile<S, Join> tile;
    S total;
    tile.load(held, also, 0, x + p.at[1] + at * line.steps[1], y + p.at[2] + at * line.steps[2],
              count, line, threadIdx.x, blockDim.x);
    const S before = block_scan_before(tile.all, join, start, &total);
    if (RB_WARP == 0) {
      const S carry = look_back<S, Join>(back, l, own, total, start);
      if (RB_LANE == 0) carried = carry;
    }
    __syncthreads();
    tile.store(held, 0, out + p.at[0] + at * line.steps[0], count, line, threadIdx.x, blockDim.x,
               join(carried, before));
  }
}

#define RB_SCAN_LINES(S, JOIN)                                                                   \
  extern "C" __global__ void rb_kernel(A* out, const A* x, const A* y, const Layout lines,       \
                                       const ScanLine line) {                                    \
    scan_lines<S, JOIN>(out, x, y, lines, line);                                                 \
  }
#define RB_SCAN_ROWS(S, JOIN)                                                                    \
  extern "C" __global__ void rb_kernel(A* out, const A* x, const A* y, const Layout lines,       \
                                       const ScanLine line, int width) {                         \
    scan_rows<S, JOIN>(out, x, y, lines, line, width);                                           \
  }
#define RB_SCAN_BLOCKS(S, JOIN)                                                                  \
  extern "C" __global__ void rb_kernel(A* out, const A* x, const A* y, const Layout lines,       \
                                       const ScanLine line) {                                    \
    scan_blocks<S, JOIN>(out, x, y, lines, line);                                                \
  }
#define RB_SCAN_TILES(S, JOIN)                                                                   \
  extern "C" __global__ void rb_kernel(A* out, const A* x, const A* y, const Layout lines,       \
                                       const ScanLine line, const LookBack back) {               \
    scan_tiles<S, JOIN>(out, x, y, lines, line, back);                                           \
  }
