// Products on tensor cores of 16-bit floats, or of float32 in TF32, behind matmul.cuh: tiles of 128
// x 128 by 8 warps, 2 x 4 of 64 x 32, with k in steps of 64 bytes that are loaded two steps ahead.
// Each operand lies together along k or along the result, is aligned to 16 bytes, and so are its
// rows.
#include "mma.cuh"

// One operand's tile in shared memory. ALONG: k lies together, in rows of STEP; else the result's
// dimension, in rows of 128. Pieces of 16 bytes are permuted so that no two of a load share banks.
template <bool ALONG>
struct Tile128 {
  enum { WIDE = sizeof(A) == 4, EACH = 16 / sizeof(A), STEP = 4 * EACH, TILE = 128 };
  enum { SIZE = STEP * TILE, PIECES = (ALONG ? STEP : TILE) / EACH };
  static __device__ int place(int line, int piece) {
    const int by = ALONG ? line / 2 % 4 : WIDE ? line % 4 * 2 : line % 8;
    return (line * PIECES + (piece ^ by)) * EACH;
  }
  static __device__ void load(A* shared, const A* x, Int64 line_step, Int64 start, Int64 outer,
                              Int64 depth, Int64 depths) {
    for (int e = threadIdx.x; e < SIZE / EACH; e += 256) {
      const int line = e / PIECES, piece = e % PIECES;
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

template <bool ALONG_A, bool ALONG_B>
struct TensorCores {
  typedef Tile128<ALONG_A> Left;
  typedef Tile128<ALONG_B> Right;
  enum { STAGES = 3, STEP = Left::STEP };
  static __device__ void run(O* c, const A* a, const A* b, const D* d, const Product& p,
                             const Layout& batch) {
    __shared__ Pack<A, 16 / sizeof(A)> shared[STAGES][2][Left::SIZE * sizeof(A) / 16];
    const Int64 row = (Int64)blockIdx.y * 128, column = (Int64)blockIdx.x * 128;
    const int warp_row = RB_WARP / 4 * 64, warp_column = RB_WARP % 4 * 32;
    for (Int64 z = blockIdx.z; z < batch.n; z += gridDim.z) {
      const Places at = places_of(batch, z);
      const Int64 depths = length(p, z);
      const A *here_a = a + at.at[1], *here_b = b + at.at[2];
      const auto load = [&](Int64 step) {
        const int stage = step % STAGES;
        if (step * STEP < depths) {
          Left::load(shared[stage][0][0].at, here_a, ALONG_A ? p.a_row : p.a_column, row, p.m,
                     step * STEP, depths);
          Right::load(shared[stage][1][0].at, here_b, ALONG_B ? p.b_column : p.b_row, column, p.n,
                      step * STEP, depths);
        }
        end_of_step();
      };
      float sums[4][4][4];
      for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j)
          for (int e = 0; e < 4; ++e) sums[i][j][e] = 0;
      for (int step = 0; step < STAGES - 1; ++step) load(step);
#pragma unroll 1
      for (Int64 step = 0; step * STEP < depths; ++step) {
        wait_for_steps<STAGES - 2>();
        __syncthreads();
        load(step + STAGES - 1);
        const A *l = shared[step % STAGES][0][0].at, *r = shared[step % STAGES][1][0].at;
#pragma unroll
        for (int k = 0; k < STEP; k += STEP / 2) {
          UInt32 as[4][4], bs[2][4];
          for (int i = 0; i < 4; ++i) Left::template fragment<true>(as[i], l, warp_row + 16 * i, k);
          for (int j = 0; j < 2; ++j)
            Right::template fragment<false>(bs[j], r, warp_column + 16 * j, k);
#pragma unroll
          for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j)
              multiply_matrices(sums[i][j], as[i], bs[j / 2] + j % 2 * 2, A());
        }
      }
      wait_for_steps<0>();
      store(c + at.at[0], d + at.at[3], p, row, column, sums, (float*)shared);
    }
  }

  // Half of the tile at a time goes through shared memory, so that threads write what lies
  // together.
  static __device__ void store(O* c, const D* d, const Product& p, Int64 row, Int64 column,
                               const float (&sums)[4][4][4], float* shared) {
    enum { EACH = 16 / sizeof(O), PITCH = 128 + 4 };
    for (int half = 0; half < 2; ++half) {
      __syncthreads();  // what was there is read
      if (RB_WARP / 4 == half) {
        float* to = shared + RB_LANE / 4 * PITCH + RB_WARP % 4 * 32 + RB_LANE % 4 * 2;
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int j = 0; j < 4; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e)
              to[(16 * i + e / 2 * 8) * PITCH + 8 * j + e % 2] = sums[i][j][e];
      }
      __syncthreads();
#pragma unroll 1
      for (int at = threadIdx.x * EACH; at < 64 * 128; at += 256 * EACH) {
        const Int64 r = row + 64 * half + at / 128, first = column + at % 128;
        if (r >= p.m || first >= p.n) continue;
        const float* from = shared + at / 128 * PITCH + at % 128;
        Pack<O, EACH> pack;
        for (int e = 0; e < EACH; ++e)
          if (first + e < p.n) pack.at[e] = finished(p, from[e], d, r, first + e);
        if (p.vector_c && first + EACH <= p.n) {
          store_pack(c + r * p.c_row + first, pack);
          continue;
        }
        for (int e = 0; e < EACH; ++e)
          if (first + e < p.n) c[r * p.c_row + (first + e) * p.c_column] = pack.at[e];
      }
    }
    __syncthreads();  // before the next product's first elements
  }
};
