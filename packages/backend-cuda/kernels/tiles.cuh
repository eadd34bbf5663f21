// Tiles in shared memory for products on tensor cores, behind mma.cuh: TILE x TILE results by TILE
// / 16 warps, two of them above one another, with k in steps of 64 bytes. Before it stands A (the
// operands' dtype).

// One operand's tile. ALONG: k lies together, in rows of STEP; else the result's dimension, in rows
// of TILE. Pieces of 16 bytes are permuted so that no two of a load share banks.
template <bool ALONG, int TILE_>
struct Tile {
  enum { WIDE = sizeof(A) == 4, EACH = 16 / sizeof(A), STEP = 4 * EACH, TILE = TILE_ };
  enum { SIZE = STEP * TILE, PIECES = (ALONG ? STEP : TILE) / EACH, THREADS = TILE * 2 };
  static __device__ int place(int line, int piece) {
    const int by = ALONG ? line / 2 % 4 : WIDE ? line % 4 * 2 : line % 8;
    return (line * PIECES + (piece ^ by)) * EACH;
  }
  static __device__ void load(A* shared, const A* x, Int64 line_step, Int64 start, Int64 outer,
                              Int64 depth, Int64 depths) {
#pragma unroll
    for (int i = 0; i < SIZE / EACH / THREADS; ++i) {
      const int e = threadIdx.x + i * THREADS, line = e / PIECES, piece = e % PIECES;
      const Int64 along = (ALONG ? depth : start) + piece * EACH,
                  left = (ALONG ? depths : outer) - along;
      const Int64 across = (ALONG ? start : depth) + line;
      const bool in = left > 0 && across < (ALONG ? outer : depths);
      const int count = in ? (left < EACH ? (int)left : EACH) : 0;
      copy_ahead(shared + place(line, piece), count ? x + across * line_step + along : x,
                 count * (int)sizeof(A));
    }
  }
  // Four matrices: 16 of the result's dimension from `first` on, and of k two pieces from `depth`
  // on. `outer_first`: the second matrix goes on along the result.
  template <bool OUTER_FIRST>
  static __device__ void fragment(UInt32 (&to)[4], const A* shared, int first, int depth) {
    const int lane = RB_LANE, second = lane / 8 % 2, third = lane / 16;
    const int outer = first + (OUTER_FIRST ? second : third) * 8;
    const int k = depth + (OUTER_FIRST ? third : second) * EACH;
    if (ALONG)
      load_matrices<false>(to, shared + place(outer + lane % 8, k / EACH));
    else if (WIDE)
      gather<OUTER_FIRST>(to, shared, first + lane / 4, depth + lane % 4);
    else
      load_matrices<true>(to, shared + place(k + lane % 8, outer / EACH));
    if (WIDE)
      for (int i = 0; i < 4; ++i) to[i] = tf32_of(to[i]);
  }
  // No instruction turns matrices of 32 bits.
  template <bool OUTER_FIRST>
  static __device__ void gather(UInt32 (&to)[4], const A* shared, int outer, int k) {
    for (int i = 0; i < 4; ++i) {
      const int o = outer + (OUTER_FIRST ? i % 2 : i / 2) * 8;
      memcpy(&to[i], shared + place(k + (OUTER_FIRST ? i / 2 : i % 2) * 4, o / EACH) + o % EACH,
             sizeof(A) < 4 ? sizeof(A) : 4);
    }
  }
};

// A warp's sums: TILE / 2 rows by 32 columns of the tile.
template <int TILE>
struct WarpSums {
  enum { ROWS = TILE / 32, ACROSS = TILE / 32 };  // of 16 rows; warps beside one another
  float at[ROWS][4][4];

  __device__ void clear() {
    for (int i = 0; i < ROWS; ++i)
      for (int j = 0; j < 4; ++j)
        for (int e = 0; e < 4; ++e) at[i][j][e] = 0;
  }
  // Add the product of two tiles.
  template <class Left, class Right>
  __device__ void multiply(const A* left, const A* right) {
    const int row = RB_WARP / ACROSS * (TILE / 2), column = RB_WARP % ACROSS * 32;
#pragma unroll
    for (int k = 0; k < Left::STEP; k += Left::STEP / 2) {
      UInt32 as[ROWS][4], bs[2][4];
      for (int i = 0; i < ROWS; ++i) Left::template fragment<true>(as[i], left, row + 16 * i, k);
      for (int j = 0; j < 2; ++j) Right::template fragment<false>(bs[j], right, column + 16 * j, k);
#pragma unroll
      for (int i = 0; i < ROWS; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) multiply_matrices(at[i][j], as[i], bs[j / 2] + j % 2 * 2, A());
    }
  }
  // The upper (0) or lower half of the tile, as floats whose rows and columns lie so far apart.
  __device__ void spread(float* shared, int half, int row_step, int column_step) const {
    if (RB_WARP / ACROSS != half) return;
    const int row = RB_LANE / 4, column = RB_WARP % ACROSS * 32 + RB_LANE % 4 * 2;
#pragma unroll
    for (int i = 0; i < ROWS; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          shared[(row + 16 * i + e / 2 * 8) * row_step + (column + 8 * j + e % 2) * column_step] =
              at[i][j][e];
  }
};
