// Convolutions of 16-bit floats, and of float32 in TF32, on tensor cores: products of matrices of
// which one is read where it lies (implicit GEMM). Its lines are positions of a volume, its columns
// (k) are taps with their channels. Pieces of 16 bytes are channels: where they lie together they
// are copied two steps ahead (AHEAD); else threads gather them one step ahead, neighbours at
// neighbouring positions. Before it stand A (operands), O (results) and V (bias).
#include "mma.cuh"
#include "tiles.cuh"
#define RB_FAR \
  (-0x40000000)  // positions and moves are below its half: no sum with it is in a volume

// In one direction, the positions of the result and the taps that meet there. An input's gradient
// has a phase for each remainder by the stride, which is a convolution without stride; others have
// one. Twin of rbcuda's.
struct Phase {
  Divisor size, taps;                              // taps: 1 where there are none
  int first, first_tap, shift, tap_count, before;  // before: taps of the phases before
};
struct ConvCall {  // twin of rbcuda's; directions that are missing have size 1
  Phase phase[3][16];
  int phases[3], step[3], tap_step[3], all_taps[3];  // step: between positions of a phase
  // A tap of a position is read at position * scale + shift + tap * move, if that is below limit.
  int scale[3], move[3], limit[3];
  Divisor pitch;                  // of taps along k: `channels`, or zeros behind them
  int channels, columns, groups;  // of a group: what is read, and the result's (or gradient's)
  int at[3], to[3];               // strides in the directions: of what is read, and of the result
  Int64 batch, channel, to_batch, to_channel;  // (of weights: of the output's gradient)
  // Of the weight. Row: of k in memory, for each of the result's channels; 0: as conv_pack has it.
  Int64 w_group, w_column, w_channel, w_tap[3], row;
  Int64 bias, batches, segment, segment_step;  // segment: of the sum over positions
  // Results: channels lie together, else positions; 16 bytes of them can be written.
  int last, packs;
};

// The phase of a block in all directions.
struct Place {
  int phase[3];
};
__device__ inline Place place_of(const ConvCall& c, UInt32 index) {
  Place p;
  for (int d = 2; d >= 0; --d) {
    p.phase[d] = index % (UInt32)c.phases[d];
    index /= (UInt32)c.phases[d];
  }
  return p;
}
#define RB_PHASE(d) c.phase[d][place.phase[d]]
__device__ inline UInt32 depths_of(const ConvCall& c, const Place& place) {
  return RB_PHASE(0).tap_count * RB_PHASE(1).tap_count * RB_PHASE(2).tap_count * c.pitch.value;
}
__device__ inline Int64 positions_of(const ConvCall& c, const Place& place) {
  return c.batches * RB_PHASE(0).size.value * RB_PHASE(1).size.value * RB_PHASE(2).size.value;
}
// Where the rows of k of a phase begin, and how far they are from each other.
__device__ inline Int64 row_step(const ConvCall& c, UInt32 depths) {
  enum { EACH = 16 / sizeof(A) };
  return c.row ? c.row : ((Int64)depths + EACH - 1) / EACH * EACH;
}
__device__ inline Int64 rows_of(const ConvCall& c, const Place& place) {
  const Int64 after = (Int64)c.all_taps[1] * c.all_taps[2], taps = RB_PHASE(0).tap_count;
  const Int64 before = RB_PHASE(0).before * after + taps * RB_PHASE(1).before * c.all_taps[2] +
                       taps * RB_PHASE(1).tap_count * RB_PHASE(2).before;
  return before * c.pitch.value * c.groups * c.columns;
}

// A position of the phase's volume.
struct Position {
  UInt32 batch;
  int at[3];
};
__device__ inline Position position_of(const ConvCall& c, const Place& place, UInt32 i) {
  Position p;
#pragma unroll
  for (int d = 2; d >= 0; --d) {
    const UInt32 above = i / RB_PHASE(d).size;
    p.at[d] = i - above * RB_PHASE(d).size.value;
    i = above;
  }
  p.batch = i;
  return p;
}
// A line of the operand: what its first tap would read.
struct Line {
  int at[3];
  const A* from;
};
__device__ inline Line line_of(const ConvCall& c, const Place& place, const A* from, UInt32 i,
                               bool in) {
  const Position p = position_of(c, place, i);
  Line line;
  line.from = from + p.batch * c.batch;
#pragma unroll
  for (int d = 0; d < 3; ++d) {
    line.at[d] = p.at[d] * c.scale[d] + RB_PHASE(d).shift;
    line.from += (Int64)line.at[d] * c.at[d];
  }
  if (!in) line.at[0] = RB_FAR;
  return line;
}
// A column of the operand: a tap and a channel.
struct Column {
  int tap[3], channel, moved[3];
  Int64 place;  // without the channel
};
__device__ inline void settle(Column& column, const ConvCall& c, const Place& place) {
  column.place = 0;
#pragma unroll
  for (int d = 0; d < 3; ++d) {
    column.moved[d] = column.tap[d] * c.move[d];
    column.place += (Int64)column.moved[d] * c.at[d];
  }
  if (column.tap[0] >= RB_PHASE(0).tap_count) column.moved[0] = RB_FAR;
}
__device__ inline Column column_of(const ConvCall& c, const Place& place, UInt32 k) {
  Column column;
  UInt32 tap = k / c.pitch;
  column.channel = k - tap * c.pitch.value;
#pragma unroll
  for (int d = 2; d > 0; --d) {
    const UInt32 above = tap / RB_PHASE(d).taps;
    column.tap[d] = tap - above * RB_PHASE(d).taps.value;
    tap = above;
  }
  column.tap[0] = tap;
  settle(column, c, place);
  return column;
}
// From k - by to k.
__device__ inline void advance(Column& column, const ConvCall& c, const Place& place, int by,
                               UInt32 k) {
  column.channel += by;
  if (column.channel >= (int)c.pitch.value) column = column_of(c, place, k);
}
__device__ inline bool meet(const ConvCall& c, const Line& line, const Column& column) {
  return (UInt32)(line.at[0] + column.moved[0]) < (UInt32)c.limit[0] &&
         (UInt32)(line.at[1] + column.moved[1]) < (UInt32)c.limit[1] &&
         (UInt32)(line.at[2] + column.moved[2]) < (UInt32)c.limit[2];
}

// What a thread brings of a tile whose lines are positions: two pieces.
template <class Tiles, bool AHEAD>
struct Share {
  enum { EACH = Tiles::EACH, PIECES = Tiles::PIECES, LINES = Tiles::SIZE / EACH / PIECES };
  A kept[2 * EACH];

  static __device__ int piece() { return AHEAD ? threadIdx.x % PIECES : threadIdx.x / LINES * 2; }
  static __device__ int line(int i) {
    return AHEAD ? threadIdx.x / PIECES + i * (LINES / 2) : threadIdx.x % LINES;
  }
  static __device__ void copy(A* shared, int i, const A* from, bool in) {
    copy_ahead(shared + Tiles::place(line(i), piece()), from, in ? 16 : 0);
  }
  // The elements of a line from a column on. Columns are those of the whole warp, or of its half.
  __device__ void gather(const ConvCall& c, const Place& place, const Line& line, Column column) {
    const A zero = {};
    bool in = meet(c, line, column);
    const A* from = line.from + column.place + column.channel * c.channel;
#pragma unroll
    for (int e = 0; e < 2 * EACH; ++e) {
      kept[e] = in && column.channel < c.channels ? *from : zero;
      from += c.channel;
      if (__builtin_expect(++column.channel < (int)c.pitch.value, 1)) continue;
      column.channel = 0;
      for (int d = 2; d >= 0; --d) {
        if (++column.tap[d] < RB_PHASE(d).tap_count || d == 0) break;
        column.tap[d] = 0;
      }
      settle(column, c, place);
      in = meet(c, line, column);
      from = line.from + column.place;
    }
  }
  // `count` elements, `step` apart; zeros behind them.
  __device__ void gather(const A* from, Int64 step, int count) {
    const A zero = {};
#pragma unroll
    for (int e = 0; e < 2 * EACH; ++e) {
      kept[e] = e < count ? *from : zero;
      from += step;
    }
  }
  __device__ void keep(A* shared) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      Pack<A, EACH> pack;
      for (int e = 0; e < EACH; ++e) pack.at[e] = kept[i * EACH + e];
      store_pack(shared + Tiles::place(line(0), piece() + i), pack);
    }
  }
};

// Outputs, or the input's gradient: lines of tiles are positions, columns channels of the result.
// Blocks: tiles, columns next to each other; phases of groups.
template <int TILE, bool AHEAD>
struct ConvTiles {
  typedef Tile<true, TILE> Tiles;
  enum { STAGES = 3, STEP = Tiles::STEP, EACH = Tiles::EACH, THREADS = Tiles::THREADS };

  static __device__ void run(O* to, const A* from, const A* weight, const V* bias,
                             const ConvCall& c) {
    __shared__ Pack<A, EACH> shared[STAGES][2][Tiles::SIZE / EACH];
    const UInt32 across = ((UInt32)c.columns + TILE - 1) / TILE;
    const UInt32 phases = (UInt32)(c.phases[0] * c.phases[1] * c.phases[2]);
    const UInt32 group = blockIdx.z / phases;
    const Place place = place_of(c, blockIdx.z % phases);
    const Int64 positions = positions_of(c, place), row = (Int64)(blockIdx.x / across) * TILE;
    if (row >= positions) return;
    const int column = blockIdx.x % across * TILE, depths = depths_of(c, place);
    const Int64 line_step = row_step(c, depths);
    weight += rows_of(c, place) + group * c.columns * line_step;
    from += (Int64)group * c.channels * c.channel;
    Share<Tiles, AHEAD> share;
    Line lines[AHEAD ? 2 : 1];
    for (int i = 0; i < (AHEAD ? 2 : 1); ++i) {
      const Int64 at = row + share.line(i);
      lines[i] = line_of(c, place, from, at < positions ? (UInt32)at : 0, at < positions);
    }
    const int piece = threadIdx.x % Tiles::PIECES, first = threadIdx.x / Tiles::PIECES;
    const A* rows[2];  // of k: this thread's pieces
    bool in_rows[2];
    for (int i = 0; i < 2; ++i) {
      const int n = column + first + i * (TILE / 2);
      in_rows[i] = n < c.columns;
      rows[i] = weight + (in_rows[i] ? n : 0) * line_step + piece * EACH;
    }
    Column k = column_of(c, place, share.piece() * EACH);  // of the next step
    const auto bring = [&](int stage, int step) {
      A *left = shared[stage][0][0].at, *right = shared[stage][1][0].at;
      for (int i = 0; i < 2; ++i) {
        const bool in = in_rows[i] && step * STEP + piece * EACH < depths;
        copy_ahead(right + Tiles::place(first + i * (TILE / 2), piece), rows[i], in ? 16 : 0);
        rows[i] += STEP;
      }
      if (AHEAD) {
        for (int i = 0; i < (AHEAD ? 2 : 1); ++i)
          share.copy(left, i, lines[i].from + k.place + k.channel, meet(c, lines[i], k));
        advance(k, c, place, STEP, (step + 1) * STEP + share.piece() * EACH);
      }
    };
    const auto gather = [&](int step) {
      if (AHEAD || step * STEP >= depths) return;
      share.gather(c, place, lines[0], k);
      advance(k, c, place, STEP, (step + 1) * STEP + share.piece() * EACH);
    };
    const auto keep = [&](int stage, int step) {
      if (!AHEAD && step * STEP < depths) share.keep(shared[stage][0][0].at);
    };
    WarpSums<TILE> sums;
    sums.clear();
    pipeline<STAGES>(
        (depths + STEP - 1) / STEP, bring,
        [&] {
          gather(0);
          keep(0, 0);
        },
        [&](int stage, int step) {
          gather(step + 1);
          sums.template multiply<Tiles, Tiles>(shared[stage][0][0].at, shared[stage][1][0].at);
          keep((stage + 1) % STAGES, step + 1);
        });
    store(to, bias, c, place, group, row, positions, column, sums, (float*)shared);
  }

  // Half of the tile at a time goes through shared memory, as it lies in the result.
  static __device__ void store(O* to, const V* bias, const ConvCall& c, const Place& place,
                               UInt32 group, Int64 row, Int64 positions, int column,
                               const WarpSums<TILE>& sums, float* shared) {
    enum { HALF = TILE / 2, PACK = 16 / sizeof(O) };
    const int by_row = c.last ? TILE + 4 : 1, by_column = c.last ? 1 : HALF + 4;
    const int each = c.packs ? PACK : 1;
    for (int half = 0; half < 2; ++half) {
      __syncthreads();  // what was there is read
      sums.spread(shared, half, by_row, by_column);
      __syncthreads();
#pragma unroll 1
      for (int at = threadIdx.x * each; at < HALF * TILE; at += THREADS * each) {
        const int r = c.last ? at / TILE : at % HALF, n = c.last ? at % TILE : at / HALF;
        const Int64 i = row + half * HALF + r;
        if (i >= positions || column + n >= c.columns) continue;
        const Position p = position_of(c, place, (UInt32)i);
        const Int64 channel = (Int64)group * c.columns + column + n;
        O* result = to + p.batch * c.to_batch + channel * c.to_channel;
        for (int d = 0; d < 3; ++d)
          result += (RB_PHASE(d).first + (Int64)p.at[d] * c.step[d]) * c.to[d];
        const float* sum = shared + r * by_row + n * by_column;
        Pack<O, PACK> pack;
#pragma unroll
        for (int e = 0; e < PACK; ++e) {
          if (e >= each) break;
          float v = sum[e];
          if (bias) v += As<float>::of(bias[(channel + (c.last ? e : 0)) * c.bias]);
          pack.at[e] = As<O>::of(v);
        }
        if (c.packs)
          store_pack(result, pack);
        else
          *result = pack.at[0];
      }
    }
  }
};

// Weights' gradients: rows of tiles are outputs, columns taps with channels; lines are positions,
// which are summed over. AHEAD: the input's channels lie together; AHEAD_G: the gradient's. Blocks:
// tiles of groups, columns next to each other; segments.
template <int TILE, bool AHEAD, bool AHEAD_G>
struct ConvWeights {
  typedef Tile<false, TILE> Tiles;
  enum { STAGES = 3, STEP = Tiles::STEP, EACH = Tiles::EACH, THREADS = Tiles::THREADS };

  static __device__ void run(O* dw, const A* x, const A* g, const ConvCall& c) {
    __shared__ Pack<A, EACH> shared[STAGES][2][Tiles::SIZE / EACH];
    const Place place = place_of(c, 0);
    const UInt32 columns = depths_of(c, place), across = (columns + TILE - 1) / TILE;
    const UInt32 down = ((UInt32)c.columns + TILE - 1) / TILE;
    const UInt32 column = blockIdx.x % across * TILE, row = blockIdx.x / across % down * TILE;
    const UInt32 group = blockIdx.x / across / down;
    const Int64 positions = positions_of(c, place), begin = blockIdx.z * c.segment;
    const Int64 end = begin + c.segment < positions ? begin + c.segment : positions;
    const int depths = (int)(end - begin);
    x += (Int64)group * c.channels * c.channel;
    g += (Int64)group * c.columns * c.to_channel;
    Share<Tiles, AHEAD_G> outputs;
    Share<Tiles, AHEAD> inputs;
    const Column own = column_of(c, place, column + inputs.piece() * EACH);
    const int output = row + outputs.piece() * EACH;
    const auto line = [&](int at) {
      return line_of(c, place, x, (UInt32)begin + (at < depths ? at : 0), at < depths);
    };
    const auto gradient = [&](int at) {
      const Position p = position_of(c, place, (UInt32)begin + (at < depths ? at : 0));
      return g + p.batch * c.to_batch + (Int64)p.at[0] * c.to[0] + (Int64)p.at[1] * c.to[1] +
             (Int64)p.at[2] * c.to[2] + output * c.to_channel;
    };
    const auto bring = [&](int stage, int step) {
      for (int i = 0; AHEAD_G && i < 2; ++i) {
        const int at = step * STEP + outputs.line(i);
        outputs.copy(shared[stage][0][0].at, i, gradient(at), at < depths && output < c.columns);
      }
      for (int i = 0; AHEAD && i < 2; ++i) {
        const Line l = line(step * STEP + inputs.line(i));
        inputs.copy(shared[stage][1][0].at, i, l.from + own.place + own.channel, meet(c, l, own));
      }
    };
    const auto gather = [&](int step) {
      if (step * STEP >= depths) return;
      if (!AHEAD_G) {
        const int at = step * STEP + outputs.line(0);
        outputs.gather(gradient(at), c.to_channel, at < depths ? c.columns - output : 0);
      }
      if (!AHEAD) inputs.gather(c, place, line(step * STEP + inputs.line(0)), own);
    };
    const auto keep = [&](int stage, int step) {
      if (step * STEP >= depths) return;
      if (!AHEAD_G) outputs.keep(shared[stage][0][0].at);
      if (!AHEAD) inputs.keep(shared[stage][1][0].at);
    };
    WarpSums<TILE> sums;
    sums.clear();
    pipeline<STAGES>(
        (depths + STEP - 1) / STEP, bring,
        [&] {
          gather(0);
          keep(0, 0);
        },
        [&](int stage, int step) {
          gather(step + 1);
          sums.template multiply<Tiles, Tiles>(shared[stage][0][0].at, shared[stage][1][0].at);
          keep((stage + 1) % STAGES, step + 1);
        });
    dw += blockIdx.z * c.segment_step + group * c.w_group;
    store(dw, c, place, row, column, columns, sums, (float*)shared);
  }

  static __device__ void store(O* dw, const ConvCall& c, const Place& place, UInt32 row,
                               UInt32 column, UInt32 columns, const WarpSums<TILE>& sums,
                               float* shared) {
    enum { HALF = TILE / 2, PITCH = TILE + 4 };
    const int own = threadIdx.x % TILE;
    const Column k = column_of(c, place, column + own);
    for (int d = 0; d < 3; ++d) dw += k.tap[d] * c.w_tap[d];
    dw += k.channel * c.w_channel;
    for (int half = 0; half < 2; ++half) {
      __syncthreads();  // what was there is read
      sums.spread(shared, half, PITCH, 1);
      __syncthreads();
      if (column + own >= columns) continue;
      for (int r = threadIdx.x / TILE; r < HALF; r += THREADS / TILE) {
        const int output = row + half * HALF + r;
        if (output < c.columns) dw[output * c.w_column] = As<O>::of(shared[r * PITCH + own]);
      }
    }
  }
};

// Rows of k of all phases: for each channel of the result its taps with their channels, and zeros
// up to 16 bytes. Blocks: elements; phases.
__device__ inline void conv_pack(A* to, const A* weight, const ConvCall& c) {
  const Place place = place_of(c, blockIdx.y);
  const UInt32 depths = depths_of(c, place), row = (UInt32)row_step(c, depths);
  const UInt32 n = row * c.groups * c.columns;
  to += rows_of(c, place);
  RB_FOR32(i, n) {
    const UInt32 line = i / row, k = i - line * row, group = line / (UInt32)c.columns;
    const Column column = column_of(c, place, k);
    A v = {};
    if (k < depths && column.channel < c.channels) {
      const A* from = weight + group * c.w_group + (line - group * c.columns) * c.w_column +
                      column.channel * c.w_channel;
      for (int d = 0; d < 3; ++d)
        from += (RB_PHASE(d).first_tap + (Int64)column.tap[d] * c.tap_step[d]) * c.w_tap[d];
      v = *from;
    }
    to[i] = v;
  }
}

#define RB_CONV_MMA(TILE, AHEAD)                                                          \
  extern "C" __global__ void __launch_bounds__(2 * TILE, 1)                               \
      rb_kernel(O* to, const A* from, const A* weight, const V* bias, const ConvCall c) { \
    ConvTiles<TILE, AHEAD>::run(to, from, weight, bias, c);                               \
  }
#define RB_CONV_MMA_DW(TILE, AHEAD, AHEAD_G)                       \
  extern "C" __global__ void __launch_bounds__(2 * TILE, 1)        \
      rb_kernel(O* dw, const A* x, const A* g, const ConvCall c) { \
    ConvWeights<TILE, AHEAD, AHEAD_G>::run(dw, x, g, c);           \
  }
#define RB_CONV_PACK                                                               \
  extern "C" __global__ void rb_kernel(A* to, const A* weight, const ConvCall c) { \
    conv_pack(to, weight, c);                                                      \
  }
