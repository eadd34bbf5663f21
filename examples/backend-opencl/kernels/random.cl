// Random numbers: rabbet/philox.h, which stands before this text, maps counters to elements; one
// work item per counter. Elements are U, of 64 bits (two per counter) for double, else of 32 bits
// (four per counter).
#if IS_FLOAT && IS_WIDE
#define U double
#define PER_COUNTER 2
#define UNIFORM(r, k) rb_uniform_f64((r).w[2 * (k)], (r).w[2 * (k) + 1])
#else
#define U float
#define PER_COUNTER 4
#define UNIFORM(r, k) rb_uniform_f32((r).w[k])
#endif
#define FOR_COUNTER(BODY)                                               \
  const long counter = get_global_id(0), first = counter * PER_COUNTER; \
  if (first >= n) return;                                               \
  const RbPhilox r = rb_philox(seed, offset + (ulong)counter);          \
  for (int k = 0; k < PER_COUNTER && first + k < n; ++k) {              \
    const U u = UNIFORM(r, k);                                          \
    const long i = first + k;                                           \
    BODY                                                                \
  }

__kernel void bernoulli(__global T* to, ulong seed, ulong offset, U p, long n) {
  FOR_COUNTER(to[i] = u < p ? 1 : 0;)
}
__kernel void bernoulli_each(__global T* to, ulong seed, ulong offset, __global const U* p,
                             long n) {
  FOR_COUNTER(to[i] = u < p[i] ? 1 : 0;)
}
#if IS_FLOAT
__kernel void uniform_numbers(__global T* to, ulong seed, ulong offset, T from, T range, T top,
                              long n) {
  FOR_COUNTER(to[i] = fmin(from + u * range, top);)
}
__kernel void exponential(__global T* to, ulong seed, ulong offset, T rate, long n) {
  FOR_COUNTER(to[i] = -log(1 - u) / rate;)
}
__kernel void normal(__global T* to, ulong seed, ulong offset, T mean, T spread, long n) {
  const long counter = get_global_id(0), first = counter * PER_COUNTER;
  if (first >= n) return;
  const RbPhilox r = rb_philox(seed, offset + (ulong)counter);
  T z[PER_COUNTER];
#if IS_WIDE
  rb_normal_f64(r, z, z + 1);
#else
  rb_normal_f32(r.w[0], r.w[1], z, z + 1);
  rb_normal_f32(r.w[2], r.w[3], z + 2, z + 3);
#endif
  for (int k = 0; k < PER_COUNTER && first + k < n; ++k) to[first + k] = mean + spread * z[k];
}
#endif

// Integers from + [0, range); `wide`: 64 bits each, two per counter.
__kernel void integers(__global T* to, ulong seed, ulong offset, long from, ulong range, int wide,
                       long n) {
  const long counter = get_global_id(0);
  const int each = wide ? 2 : 4;
  const long first = counter * each;
  if (first >= n) return;
  const RbPhilox r = rb_philox(seed, offset + (ulong)counter);
  for (int k = 0; k < each && first + k < n; ++k) {
    const ulong x =
        wide ? rb_below_64(r.w[2 * k], r.w[2 * k + 1], range) : rb_below_32(r.w[k], range);
    to[first + k] = TO_T((long)((ulong)from + x));
  }
}

// Fisher-Yates from the end is one chain of exchanges: a single work item.
__kernel void permutation(__global long* to, ulong seed, ulong offset, long n) {
  if (get_global_id(0) != 0) return;
  for (long i = 0; i < n; ++i) to[i] = i;
  RbPhilox r;
  for (long k = 0; k + 1 < n; ++k) {
    if (k % 2 == 0) r = rb_philox(seed, offset + (ulong)k / 2);
    const long place = n - 1 - k;
    const int w = (int)(k % 2) * 2;
    const long other = (long)rb_below_64(r.w[w], r.w[w + 1], (ulong)place + 1);
    const long held = to[place];
    to[place] = to[other];
    to[other] = held;
  }
}
