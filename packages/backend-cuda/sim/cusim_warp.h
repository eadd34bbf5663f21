// What the lanes of a warp do together, copies that run ahead, and atomic operations.
#pragma once

#define CUSIM_FULL 0xffffffffu

// The other lane's `value`, any type of 1 to 8 bytes, or -1: the result of a sum of lanes.
CUSIM_PLAIN inline unsigned long long cusim_lanes(CusimWarp what, unsigned mask,
                                                  unsigned long long value, int argument, int width,
                                                  int line) {
  CusimLane lane = {what, mask, value, 0, argument, width, line};
  cusim_runtime->warp(&lane);
  return lane.result;
}
template <class T>
CUSIM_PLAIN inline T cusim_shuffle(CusimWarp what, unsigned mask, T value, int argument, int width,
                                   int line) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles take types of 32 and 64 bits");
  unsigned long long bits = 0;
  __builtin_memcpy(&bits, &value, sizeof value);
  bits = cusim_lanes(what, mask, bits, argument, width, line);
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}
#define CUSIM_SHUFFLES(T)                                                                    \
  CUSIM_PLAIN inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32,         \
                                   int line = __builtin_LINE()) {                            \
    return cusim_shuffle(kCusimShuffle, mask, value, lane, width, line);                     \
  }                                                                                          \
  CUSIM_PLAIN inline T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32,    \
                                       int line = __builtin_LINE()) {                        \
    return cusim_shuffle(kCusimShuffleXor, mask, value, lanes, width, line);                 \
  }                                                                                          \
  CUSIM_PLAIN inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32, \
                                        int line = __builtin_LINE()) {                       \
    return cusim_shuffle(kCusimShuffleDown, mask, value, (int)by, width, line);              \
  }                                                                                          \
  CUSIM_PLAIN inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32,   \
                                      int line = __builtin_LINE()) {                         \
    return cusim_shuffle(kCusimShuffleUp, mask, value, (int)by, width, line);                \
  }
CUSIM_SHUFFLES(int)
CUSIM_SHUFFLES(unsigned)
CUSIM_SHUFFLES(long)
CUSIM_SHUFFLES(unsigned long)
CUSIM_SHUFFLES(long long)
CUSIM_SHUFFLES(unsigned long long)
CUSIM_SHUFFLES(float)
CUSIM_SHUFFLES(double)
CUSIM_PLAIN inline unsigned __ballot_sync(unsigned mask, int value, int line = __builtin_LINE()) {
  return (unsigned)cusim_lanes(kCusimBallot, mask, value != 0, 0, 32, line);
}
CUSIM_PLAIN inline int __any_sync(unsigned mask, int value, int line = __builtin_LINE()) {
  return __ballot_sync(mask, value, line) != 0;
}
CUSIM_PLAIN inline int __all_sync(unsigned mask, int value, int line = __builtin_LINE()) {
  return __ballot_sync(mask, value, line) == mask;
}
CUSIM_PLAIN inline void __syncwarp(unsigned mask = CUSIM_FULL, int line = __builtin_LINE()) {
  cusim_lanes(kCusimSync, mask, 0, 0, 32, line);
}
template <class T>
CUSIM_PLAIN inline unsigned __match_any_sync(unsigned mask, T value, int line = __builtin_LINE()) {
  unsigned long long bits = 0;
  __builtin_memcpy(&bits, &value, sizeof value);
  return (unsigned)cusim_lanes(kCusimMatch, mask, bits, 0, 32, line);
}
#define CUSIM_REDUCE(T, name, first, step)                                   \
  CUSIM_PLAIN inline T __reduce_##name##_sync(unsigned mask, T value,        \
                                              int line = __builtin_LINE()) { \
    T a = first;                                                             \
    for (int lane = 0; lane < 32; ++lane) {                                  \
      if (!(mask >> lane & 1)) continue;                                     \
      const T b = cusim_shuffle(kCusimShuffle, mask, value, lane, 32, line); \
      a = step;                                                              \
    }                                                                        \
    return a;                                                                \
  }
CUSIM_REDUCE(int, add, 0, a + b)
CUSIM_REDUCE(unsigned, add, 0, a + b)
CUSIM_REDUCE(int, max, -2147483647 - 1, a > b ? a : b)
CUSIM_REDUCE(unsigned, max, 0, a > b ? a : b)
CUSIM_REDUCE(int, min, 2147483647, a < b ? a : b)
CUSIM_REDUCE(unsigned, min, CUSIM_FULL, a < b ? a : b)
CUSIM_REDUCE(unsigned, and, CUSIM_FULL, a& b)
CUSIM_REDUCE(unsigned, or, 0, a | b)
CUSIM_REDUCE(unsigned, xor, 0, a ^ b)

// ---- 16 bytes into shared memory, of which those behind the first `bytes` are zero: they arrive
// when the thread waits until at most `left` of its steps are under way
CUSIM_PLAIN inline void cusim_copy_ahead(void* shared, const void* from, int bytes) {
  cusim_runtime->copy_ahead(shared, from, bytes);
}
CUSIM_PLAIN inline void cusim_end_of_step() { cusim_runtime->end_of_step(); }
CUSIM_PLAIN inline void cusim_wait_for_steps(int left) { cusim_runtime->wait_for_steps(left); }
// A row that a lane names for loads of matrices: 16 bytes, aligned.
CUSIM_PLAIN inline void cusim_matrix_row(const void* row) {
  cusim_runtime->access(row, 16, kCusimRead, 1, 0);
}

// ---- atomic operations: no other thread runs meanwhile
#define CUSIM_ATOMIC(T, name, ...)       \
  CUSIM_PLAIN inline T name(T* p, T b) { \
    cusim_atomic(p, sizeof(T));          \
    const T a = *p;                      \
    *p = __VA_ARGS__;                    \
    return a;                            \
  }
#define CUSIM_ATOMIC_SUM(T)              \
  CUSIM_ATOMIC(T, atomicAdd, (T)(a + b)) \
  CUSIM_ATOMIC(T, atomicExch, b)
#define CUSIM_ATOMIC_ORDER(T)               \
  CUSIM_ATOMIC(T, atomicMax, a > b ? a : b) \
  CUSIM_ATOMIC(T, atomicMin, a < b ? a : b) \
  CUSIM_ATOMIC(T, atomicAnd, a& b)          \
  CUSIM_ATOMIC(T, atomicOr, a | b)          \
  CUSIM_ATOMIC(T, atomicXor, a ^ b)
#define CUSIM_ATOMIC_CAS(T)                                  \
  CUSIM_PLAIN inline T atomicCAS(T* p, T compare, T value) { \
    cusim_atomic(p, sizeof(T));                              \
    const T a = *p;                                          \
    if (a == compare) *p = value;                            \
    return a;                                                \
  }
CUSIM_ATOMIC_SUM(int)
CUSIM_ATOMIC_SUM(unsigned)
CUSIM_ATOMIC_SUM(unsigned long long)
CUSIM_ATOMIC_SUM(float)
CUSIM_ATOMIC_SUM(double)
CUSIM_ATOMIC(int, atomicSub, (int)((unsigned)a - (unsigned)b))
CUSIM_ATOMIC(unsigned, atomicSub, a - b)
CUSIM_ATOMIC(unsigned, atomicInc, a >= b ? 0 : a + 1)
CUSIM_ATOMIC(unsigned, atomicDec, a == 0 || a > b ? b : a - 1)
CUSIM_ATOMIC_ORDER(int)
CUSIM_ATOMIC_ORDER(unsigned)
CUSIM_ATOMIC_ORDER(long long)
CUSIM_ATOMIC_ORDER(unsigned long long)
CUSIM_ATOMIC_CAS(int)
CUSIM_ATOMIC_CAS(unsigned)
CUSIM_ATOMIC_CAS(unsigned long long)
CUSIM_ATOMIC_CAS(unsigned short)
