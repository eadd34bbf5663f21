// Products on tensor cores of 16-bit floats, or of float32 in TF32, behind matmul.cuh: tiles of 128
// x 128 by 8 warps, with k in steps of 64 bytes that are loaded two steps ahead. Each operand lies
// together along k or along the result, is aligned to 16 bytes, and so are its rows.
#include "mma.cuh"
#include "tiles.cuh"

template <bool ALONG_A, bool ALONG_B>
struct TensorCores {
  typedef Tile<ALONG_A, 128> Left;
  typedef Tile<ALONG_B, 128> Right;
  enum { STAGES = 3, STEP = Left::STEP };
  static __device__ void run(O* c, const A* a, const A* b, const D* d, const Product& p,
                             const Layout& batch) {
    __shared__ Pack<A, 16 / sizeof(A)> shared[STAGES][2][Left::SIZE * sizeof(A) / 16];
    const Int64 row = (Int64)blockIdx.y * 128, column = (Int64)blockIdx.x * 128;
    for (Int64 z = blockIdx.z; z < batch.n; z += gridDim.z) {
      const Places at = places_of(batch, z);
      const Int64 depths = length(p, z);
      const A *here_a = a + at.at[1], *here_b = b + at.at[2];
      WarpSums<128> sums;
      sums.clear();
      pipeline<STAGES>(
          (int)((depths + STEP - 1) / STEP),
          [&](int place, int step) {
            const Int64 k = (Int64)step * STEP;
            Left::load(shared[place][0][0].at, here_a, ALONG_A ? p.a_row : p.a_column, row, p.m, k,
                       depths);
            Right::load(shared[place][1][0].at, here_b, ALONG_B ? p.b_column : p.b_row, column, p.n,
                        k, depths);
          },
          [] {},
          [&](int place, int) {
            sums.multiply<Left, Right>(shared[place][0][0].at, shared[place][1][0].at);
          });
      store(c + at.at[0], d + at.at[3], p, row, column, sums, (float*)shared);
    }
  }

  // Half of the tile at a time goes through shared memory, so that threads write what lies
  // together.
  static __device__ void store(O* c, const D* d, const Product& p, Int64 row, Int64 column,
                               const WarpSums<128>& sums, float* shared) {
    enum { EACH = 16 / sizeof(O), PITCH = 128 + 4 };
    for (int half = 0; half < 2; ++half) {
      __syncthreads();  // what was there is read
      sums.spread(shared, half, PITCH, 1);
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
