// Copies, casts, filling.
__kernel void copy_bits(__global BITS* to, __global const BITS* from, const Space s) {
  const long i = get_global_id(0);
  if (i >= s.n) return;
  PLACES2(s, i)
  to[p0] = from[p1];
}

#if IS_BOOL
#define TO_T(x) ((x) != 0)
#else
#define TO_T(x) ((T)(x))
#endif
#define CAST(NAME, FROM)                                                                \
  __kernel void cast_##NAME(__global T* to, __global const FROM* from, const Space s) { \
    const long i = get_global_id(0);                                                    \
    if (i >= s.n) return;                                                               \
    PLACES2(s, i)                                                                       \
    to[p0] = TO_T(from[p1]);                                                            \
  }
CAST(bool, uchar)
CAST(int32, int)
CAST(int64, long)
CAST(float32, float)
#if HAS_FP64
CAST(float64, double)
#endif

__kernel void fill(__global T* to, const T value, const Space s) {
  const long i = get_global_id(0);
  if (i >= s.n) return;
  PLACES1(s, i)
  to[p0] = value;
}

// The part of each matrix on one side of a diagonal: keep where (column - row) * side <= limit.
__kernel void triangle(__global T* to, __global const T* from, long rows, long columns, long limit,
                       int side, long n) {
  const long i = get_global_id(0);
  if (i >= n) return;
  const long c = i % columns, r = i / columns % rows;
  to[i] = (c - r) * side <= limit ? from[i] : (T)0;
}

#if IS_FLOAT
#define REAL T
#else
#define REAL double
#endif
__kernel void range(__global T* to, REAL first, REAL step, long integer_first, long integer_step,
                    long n) {
  const long i = get_global_id(0);
  if (i >= n) return;
  to[i] = IS_FLOAT ? TO_T(first + step * i) : TO_T(integer_first + integer_step * i);
}
__kernel void linspace(__global T* to, REAL start, REAL end, REAL step, long n) {
  const long i = get_global_id(0);
  if (i >= n) return;
  to[i] = TO_T(i < (n + 1) / 2 ? start + step * i : end - step * (n - 1 - i));
}
