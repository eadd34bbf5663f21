// Put before a kernel's unchanged text by the stand-in for NVRTC: CUDA C as g++ reads it. Threads
// of a grid run one after another; barriers, shuffles and shared memory are not here, so a kernel
// that uses them does not compile. Loads and stores are reported through the hooks that
// -fsanitize=thread calls.
#pragma once
#include <cmath>
#include <cstddef>
#include <functional>
#include <tuple>
using std::copysign, std::fabs, std::fmod, std::pow, std::floor, std::ceil, std::trunc, std::rint,
    std::exp, std::log, std::sqrt, std::sin, std::cos, std::tan, std::erf, std::erfc, std::atan2,
    std::log2, std::log10, std::log1p, std::expm1, std::asin, std::acos, std::atan, std::sinh,
    std::cosh, std::tanh;

#define __device__
#define __global__
#define __host__
#define __forceinline__ inline
inline float __uint_as_float(unsigned bits) {
  float x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}
inline unsigned __float_as_uint(float x) {
  unsigned bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return bits;
}

struct CusimIndex {
  unsigned x, y, z;
};
static CusimIndex threadIdx, blockIdx, blockDim, gridDim;

#define CUSIM_HOOK extern "C" __attribute__((visibility("hidden"), no_sanitize("thread")))
// The simulated driver sets it: an access of `size` bytes.
extern "C" __attribute__((visibility("default"))) void (*cusim_access)(const void*, size_t);
void (*cusim_access)(const void*, size_t) = nullptr;

#define CUSIM_ACCESS(size)                                                        \
  CUSIM_HOOK void __tsan_read##size(void* p) { cusim_access(p, size); }           \
  CUSIM_HOOK void __tsan_write##size(void* p) { cusim_access(p, size); }          \
  CUSIM_HOOK void __tsan_unaligned_read##size(void* p) { cusim_access(p, size); } \
  CUSIM_HOOK void __tsan_unaligned_write##size(void* p) { cusim_access(p, size); }
CUSIM_ACCESS(1)
CUSIM_ACCESS(2)
CUSIM_ACCESS(4)
CUSIM_ACCESS(8)
CUSIM_ACCESS(16)
CUSIM_HOOK void __tsan_read_range(void* p, size_t n) { cusim_access(p, n); }
CUSIM_HOOK void __tsan_write_range(void* p, size_t n) { cusim_access(p, n); }
CUSIM_HOOK void __tsan_init() {}
CUSIM_HOOK void __tsan_func_entry(void*) {}
CUSIM_HOOK void __tsan_func_exit() {}
CUSIM_HOOK void __tsan_vptr_read(void**) {}
CUSIM_HOOK void __tsan_vptr_update(void**, void*) {}

// One launch with copies of its arguments.
template <class... A, size_t... I>
__attribute__((no_sanitize("thread"))) std::function<void(CusimIndex, CusimIndex)>* cusim_bind(
    void (*kernel)(A...), void** arguments, std::index_sequence<I...>) {
  auto copies = std::make_tuple(*static_cast<std::remove_const_t<A>*>(arguments[I])...);
  return new std::function<void(CusimIndex, CusimIndex)>(
      [kernel, copies](CusimIndex grid, CusimIndex block) __attribute__((no_sanitize("thread"))) {
        gridDim = grid;
        blockDim = block;
        for (blockIdx.z = 0; blockIdx.z < grid.z; ++blockIdx.z)
          for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y)
            for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x)
              for (threadIdx.z = 0; threadIdx.z < block.z; ++threadIdx.z)
                for (threadIdx.y = 0; threadIdx.y < block.y; ++threadIdx.y)
                  for (threadIdx.x = 0; threadIdx.x < block.x; ++threadIdx.x)
                    std::apply(kernel, copies);
      });
}
#define CUSIM_KERNEL(name) \
  extern "C" void* cusim_bind_##name(void** arguments) { return cusim_wrap(name, arguments); }
template <class... A>
void* cusim_wrap(void (*kernel)(A...), void** arguments) {
  return cusim_bind(kernel, arguments, std::index_sequence_for<A...>());
}
