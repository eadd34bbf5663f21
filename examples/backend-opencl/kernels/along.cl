// Operators along one dimension of row-major memory: line `l` begins at (l / inner) * inner *
// length + l % inner and steps by `inner`.
#define LINE                       \
  const long l = get_global_id(0); \
  if (l >= lines) return;          \
  const long first = (l / inner) * inner * length + l % inner;

#if IS_FLOAT
__kernel void softmax(__global T* to, __global const T* x, long lines, long length, long inner,
                      int logarithm) {
  LINE T top = -INFINITY;
  for (long k = 0; k < length; ++k) top = fmax(top, x[first + k * inner]);
  if (top == -INFINITY) top = isnan(x[first]) ? NAN : top;
  T sum = 0;
  for (long k = 0; k < length;) {
    T part = 0;
    const long stop = min(k + 64, length);
    for (; k < stop; ++k) part += exp(x[first + k * inner] - top);
    sum += part;
  }
  for (long k = 0; k < length; ++k) {
    const T v = x[first + k * inner];
    to[first + k * inner] = logarithm ? (v - top) - log(sum) : exp(v - top) / sum;
  }
}
#endif

__kernel void running_sum(__global T* to, __global const T* x, long lines, long length,
                          long inner) {
  LINE T sum = 0;
  for (long k = 0; k < length; ++k) to[first + k * inner] = sum = ADD(sum, x[first + k * inner]);
}
__kernel void running_product(__global T* to, __global const T* x, long lines, long length,
                              long inner) {
  LINE T product = 1;
  for (long k = 0; k < length; ++k)
    to[first + k * inner] = product = MUL(product, x[first + k * inner]);
}
__kernel void affine_scan(__global T* to, __global const T* a, __global const T* b, long lines,
                          long length, long inner) {
  LINE T r = 0;
  for (long k = 0; k < length; ++k)
    to[first + k * inner] = r = ADD(MUL(a[first + k * inner], r), b[first + k * inner]);
}
