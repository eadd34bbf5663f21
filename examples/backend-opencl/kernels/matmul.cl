// C = A B in tiles of 64 x 64 by groups of 4 x 16 work items, each of which holds sums for 4 rows
// (16 apart) and 16 neighbouring columns as vectors; strides are any.
#define TILE 64
#define DEPTH 16
#define ROWS 16
#define WIDTH 16
typedef struct {  // twin of rbcl::Product
  long m, n, k;
  long a_row, a_column, b_row, b_column, c_row, c_column;
  long batch_shape[MAX_DIMS];
  long batch_strides[3][MAX_DIMS];  // of a, b and c
  int batch_dims, accumulate;
} Product;

__kernel __attribute__((reqd_work_group_size(TILE / WIDTH, ROWS, 1))) void matmul(
    __global T* c, __global const T* a, __global const T* b, const Product p) {
  __local T left[DEPTH][TILE], right[DEPTH][TILE];
  long batch = get_group_id(2);
  for (int d = p.batch_dims - 1; d >= 0; --d) {
    const long at = batch % p.batch_shape[d];
    batch /= p.batch_shape[d];
    a += at * p.batch_strides[0][d];
    b += at * p.batch_strides[1][d];
    c += at * p.batch_strides[2][d];
  }
  const int x = get_local_id(0), y = get_local_id(1);
  const long row = get_group_id(1) * TILE, column = get_group_id(0) * TILE;
  T16 sum0 = 0, sum1 = 0, sum2 = 0, sum3 = 0;
  for (long depth = 0; depth < p.k; depth += DEPTH) {
    // Each row of work items brings one row of the tile of B, one column of that of A.
    const long k = depth + y;
    for (int i = 0; i < WIDTH; ++i) {
      const long at = x * WIDTH + i;
      left[y][at] = row + at < p.m && k < p.k ? a[(row + at) * p.a_row + k * p.a_column] : (T)0;
      right[y][at] =
          column + at < p.n && k < p.k ? b[k * p.b_row + (column + at) * p.b_column] : (T)0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (int q = 0; q < DEPTH; ++q) {
      const T16 v = vload16(x, right[q]);
      sum0 = MULTIPLY_ADD((T16)left[q][y], v, sum0);
      sum1 = MULTIPLY_ADD((T16)left[q][y + ROWS], v, sum1);
      sum2 = MULTIPLY_ADD((T16)left[q][y + 2 * ROWS], v, sum2);
      sum3 = MULTIPLY_ADD((T16)left[q][y + 3 * ROWS], v, sum3);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  for (int i = 0; i < TILE / ROWS; ++i) {
    const long r = row + y + i * ROWS;
    if (r >= p.m) break;
    T line[WIDTH];
    vstore16(i == 0 ? sum0 : i == 1 ? sum1 : i == 2 ? sum2 : sum3, 0, line);
    for (int j = 0; j < WIDTH; ++j) {
      const long q = column + x * WIDTH + j;
      if (q >= p.n) break;
      __global T* to = c + r * p.c_row + q * p.c_column;
      *to = p.accumulate ? ADD(*to, line[j]) : line[j];
    }
  }
}
