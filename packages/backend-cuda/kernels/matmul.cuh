// C = A B in tiles of 64 x 64 by blocks of 256 threads, each of which sums for 4 x 4 elements that
// lie 16 apart; strides are any. Before it stand A, B (operands), T (computed in) and O (results).
#define RB_TILE 64
#define RB_DEPTH 16
struct Product {  // twin of rbcuda::Product
  Int64 m, n, k;
  Int64 a_row, a_column, b_row, b_column, c_row, c_column;
};

// batch: strides of c, a and b.
extern "C" __global__ void rb_kernel(O* c, const A* a, const B* b, const Product p,
                                     const Layout batch) {
  __shared__ T left[RB_DEPTH][RB_TILE + 1];
  __shared__ T right[RB_DEPTH][RB_TILE + 1];
  const Int64 row = (Int64)blockIdx.y * RB_TILE, column = (Int64)blockIdx.x * RB_TILE;
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  for (Int64 z = blockIdx.z; z < batch.n; z += gridDim.z) {
    const Places at = places_of(batch, z);
    T sums[4][4];
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 4; ++j) sums[i][j] = As<T>::of(0);
    for (Int64 depth = 0; depth < p.k; depth += RB_DEPTH) {
      for (int e = threadIdx.x; e < RB_TILE * RB_DEPTH; e += blockDim.x) {
        // Neighbouring threads read what lies together in memory.
        const int ra = p.a_column == 1 ? e / RB_DEPTH : e % RB_TILE;
        const int ka = p.a_column == 1 ? e % RB_DEPTH : e / RB_TILE;
        const bool in_a = row + ra < p.m && depth + ka < p.k;
        left[ka][ra] = in_a ? As<T>::of(a[at.at[1] + (row + ra) * p.a_row + (depth + ka) * p.a_column])
                            : As<T>::of(0);
        const int rb = p.b_column == 1 ? e % RB_TILE : e / RB_DEPTH;
        const int kb = p.b_column == 1 ? e / RB_TILE : e % RB_DEPTH;
        const bool in_b = column + rb < p.n && depth + kb < p.k;
        right[kb][rb] =
            in_b ? As<T>::of(b[at.at[2] + (depth + kb) * p.b_row + (column + rb) * p.b_column])
                 : As<T>::of(0);
      }
      __syncthreads();
      for (int k = 0; k < RB_DEPTH; ++k) {
        T l[4], r[4];
        for (int i = 0; i < 4; ++i) l[i] = left[k][y + 16 * i], r[i] = right[k][x + 16 * i];
        for (int i = 0; i < 4; ++i)
          for (int j = 0; j < 4; ++j) sums[i][j] = (T)(sums[i][j] + l[i] * r[j]);
      }
      __syncthreads();
    }
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 4; ++j) {
        const Int64 to_row = row + y + 16 * i, to_column = column + x + 16 * j;
        if (to_row < p.m && to_column < p.n)
          c[at.at[0] + to_row * p.c_row + to_column * p.c_column] = As<O>::of(sums[i][j]);
      }
  }
}
