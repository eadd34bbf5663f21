// Put before a kernel's unchanged text by the stand-in for NVRTC: CUDA C as g++ reads it. Includes
// no header of the system: compiling a kernel takes a tenth of a second that way.
// Loads and stores are reported through the hooks that -fsanitize=thread calls.
#pragma once
#include "cusim_abi.h"

#define CUSIM 1
#define CUSIM_PLAIN __attribute__((no_sanitize("thread")))
#define CUSIM_HIDDEN __attribute__((visibility("hidden")))

#define __device__
#define __global__
#define __host__
#define __constant__
#define __managed__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static  // blocks run one after another
// `name`: the memory of shared_bytes of the launch, an array of T.
#define CUSIM_DYNAMIC_SHARED(T, name) T* name = (T*)cusim_dynamic_shared()
#define memcpy __builtin_memcpy
#define memset __builtin_memset
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")

extern "C" {
extern CUSIM_HIDDEN const CusimRuntime* cusim_runtime;  // see hooks.cpp
// Constant while a thread runs, and so not instrumented.
extern CUSIM_HIDDEN const CusimIndex threadIdx __asm__("cusim_thread"),
    blockIdx __asm__("cusim_block"), blockDim __asm__("cusim_block_size"),
    gridDim __asm__("cusim_grid_size");
CUSIM_HIDDEN void* cusim_dynamic_shared();
CUSIM_HIDDEN void cusim_atomic(const void* p, CusimSize size);
}
static const int warpSize = 32;

// ---- barriers and fences
CUSIM_PLAIN inline void __syncthreads(int line = __builtin_LINE()) {
  cusim_runtime->barrier(kCusimPlain, 0, line);
}
CUSIM_PLAIN inline int __syncthreads_count(int value, int line = __builtin_LINE()) {
  return cusim_runtime->barrier(kCusimCount, value, line);
}
CUSIM_PLAIN inline int __syncthreads_or(int value, int line = __builtin_LINE()) {
  return cusim_runtime->barrier(kCusimAny, value, line);
}
CUSIM_PLAIN inline int __syncthreads_and(int value, int line = __builtin_LINE()) {
  return cusim_runtime->barrier(kCusimEvery, value, line);
}
CUSIM_PLAIN inline void __threadfence() { cusim_runtime->fence(kCusimDevice); }
CUSIM_PLAIN inline void __threadfence_block() { cusim_runtime->fence(kCusimBlock); }
CUSIM_PLAIN inline void __threadfence_system() { cusim_runtime->fence(kCusimSystem); }
CUSIM_PLAIN inline void __trap() { cusim_runtime->fault("the kernel called __trap"); }
inline void __nanosleep(unsigned) {}
inline long long clock64() { return (long long)__builtin_ia32_rdtsc(); }

#include "cusim_math.h"
#include "cusim_types.h"
#include "cusim_warp.h"

// ---- the entry of a kernel
template <class T>
struct CusimValue {
  typedef T type;
};
template <class T>
struct CusimValue<const T> {
  typedef T type;
};
template <CusimSize... I>
struct CusimSequence {};
template <class... A>
struct CusimCall {
  static constexpr unsigned kSizes[sizeof...(A) + 1] = {sizeof(A)..., 0};
  template <CusimSize... I>
  CUSIM_PLAIN static void with(void (*kernel)(A...), void** arguments, CusimSequence<I...>) {
    kernel(*static_cast<typename CusimValue<A>::type*>(arguments[I])...);
  }
  CUSIM_PLAIN static void with(void (*kernel)(A...), void** arguments) {
    with(kernel, arguments, CusimSequence<__integer_pack(sizeof...(A))...>());
  }
};
template <class... A>
constexpr CusimCall<A...> cusim_call_of(void (*)(A...)) {
  return {};
}
// `program`: its name for NVRTC.
#define CUSIM_KERNEL(kernel, program)                                                           \
  static CUSIM_PLAIN void cusim_call_##kernel(void** arguments) {                               \
    decltype(cusim_call_of(kernel))::with(kernel, arguments);                                   \
  }                                                                                             \
  extern "C" __attribute__((visibility("default"))) const CusimKernel cusim_kernel_##kernel = { \
      #kernel " of " program,                                                                   \
      sizeof(decltype(cusim_call_of(kernel))::kSizes) / sizeof(unsigned) - 1,                   \
      decltype(cusim_call_of(kernel))::kSizes, cusim_call_##kernel};
