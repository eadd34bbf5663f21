/* rabbet/philox.h: Philox-4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as
 * 1, 2, 3", SC 2011) and the mapping from counters to tensor elements, shared by all backends so
 * that a seed gives the same numbers on every device (up to the last bits of log, sin and cos).
 * C99, C++ and CUDA.
 *
 * A kernel reserves a slice of counters (RbHost.rng_reserve): key = seed, counters offset, offset +
 * 1, ... One counter gives four 32-bit words. Element i of the row-major result uses
 *
 *   32 bits per element (everything but the cases below): counter offset + i / 4, word i % 4
 *   64 bits per element (float64 results; integers from a range wider than 2^32):
 *                                                 counter offset + i / 2, words 2 * (i % 2) and 2 *
 * (i % 2) + 1
 *
 * and reserves rb_philox_counters(n, bits) counters.
 *   uniform      rb_uniform_f32(word) in [0, 1) with 24 bits; rb_uniform_f64(low, high) with 53
 * bits normal       elements 2 j and 2 j + 1 are one Box-Muller pair of their two values (words or
 * pairs of words): the first gives the radius, the second the angle; the even element is the cosine
 *   integers     from + (word * range >> 32), or from + the high half of word64 * range
 *   exponential  -log(1 - uniform) / rate
 *
 * Dropout inside of attention takes no slice: which weights it keeps follows from a seed (an int64
 * that was drawn) and from each weight's place, so that a derivative finds it again. A tile of 16 x
 * 16 weights has 64 counters; tiles are counted row by row, matrix by matrix. The four words of a
 * counter are those of the places (i, j), (i, j + 8), (i + 8, j) and (i + 8, j + 8) of its tile,
 * which one thread has of a product on tensor cores. A weight is kept where rb_uniform_f32(word) is
 * below 1 - p as a float.
 */
#ifndef RABBET_PHILOX_H
#define RABBET_PHILOX_H

#include <math.h>
#include <stdint.h>

#if defined(__CUDACC__)
#define RB_PHILOX_FN static inline __host__ __device__
#else
#define RB_PHILOX_FN static inline
#endif

typedef struct RbPhilox {
  uint32_t w[4];
} RbPhilox;

/* The four words of one counter. */
RB_PHILOX_FN RbPhilox rb_philox(uint64_t seed, uint64_t counter) {
  uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = 0, c3 = 0;
  uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
  RbPhilox r;
  int round;
  for (round = 0; round < 10; ++round) {
    uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
    uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c1 = (uint32_t)p1;
    c3 = (uint32_t)p0;
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  r.w[0] = c0;
  r.w[1] = c1;
  r.w[2] = c2;
  r.w[3] = c3;
  return r;
}

/* Counters that n elements of `bits` (32 or 64) take. */
RB_PHILOX_FN uint64_t rb_philox_counters(uint64_t n, int bits) {
  return bits == 64 ? n / 2 + (n & 1) : n / 4 + ((n & 3) != 0);
}

RB_PHILOX_FN float rb_uniform_f32(uint32_t word) {
  return (float)(word >> 8) * 5.9604644775390625e-8f;
}
RB_PHILOX_FN double rb_uniform_f64(uint32_t low, uint32_t high) {
  return (double)((((uint64_t)high << 32) | low) >> 11) * 1.1102230246251565e-16;
}

/* Two standard normal values out of two words. The radius takes 1 - u, which is never 0. */
RB_PHILOX_FN void rb_normal_f32(uint32_t a, uint32_t b, float* even, float* odd) {
  float radius = sqrtf(-2.0f * logf(1.0f - rb_uniform_f32(a)));
  float angle = 6.2831853071795865f * rb_uniform_f32(b);
  *even = radius * cosf(angle);
  *odd = radius * sinf(angle);
}
/* The same out of the four words of one counter. */
RB_PHILOX_FN void rb_normal_f64(RbPhilox r, double* even, double* odd) {
  double radius = sqrt(-2.0 * log(1.0 - rb_uniform_f64(r.w[0], r.w[1])));
  double angle = 6.283185307179586 * rb_uniform_f64(r.w[2], r.w[3]);
  *even = radius * cos(angle);
  *odd = radius * sin(angle);
}

/* An integer below `range` (1 .. 2^32) out of one word. */
RB_PHILOX_FN uint64_t rb_below_32(uint32_t word, uint64_t range) {
  return range >> 32 ? word : ((uint64_t)word * range) >> 32;
}
/* An integer below `range` out of 64 bits; 0 stands for 2^64. */
RB_PHILOX_FN uint64_t rb_below_64(uint32_t low, uint32_t high, uint64_t range) {
  uint64_t x = ((uint64_t)high << 32) | low;
  uint64_t xl = x & 0xffffffffu, xh = x >> 32, rl = range & 0xffffffffu, rh = range >> 32;
  uint64_t mid = xh * rl + ((xl * rl) >> 32);
  uint64_t mid2 = xl * rh + (mid & 0xffffffffu);
  return range == 0 ? x : xh * rh + (mid >> 32) + (mid2 >> 32);
}

/* The counter of weight (i, j) of a matrix of rows by columns; its word is rb_dropout_word. */
RB_PHILOX_FN uint64_t rb_dropout_counter(uint64_t matrix, uint64_t rows, uint64_t columns,
                                         uint64_t i, uint64_t j) {
  uint64_t tile = (matrix * ((rows + 15) / 16) + i / 16) * ((columns + 15) / 16) + j / 16;
  return tile * 64 + i % 8 * 8 + j % 8;
}
RB_PHILOX_FN int rb_dropout_word(uint64_t i, uint64_t j) {
  return (int)(i / 8 % 2 * 2 + j / 8 % 2);
}
/* The largest word of a weight that is kept, for 0 <= p < 1. */
RB_PHILOX_FN uint32_t rb_dropout_limit(double p) {
  return (uint32_t)ceil((double)(float)(1.0 - p) * 16777216.0) * 256u - 1u;
}

#endif
