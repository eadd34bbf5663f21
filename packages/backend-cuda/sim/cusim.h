// Put before a kernel's unchanged text by the stand-in for NVRTC: CUDA C as g++ reads it. Threads
// of a block are fibers that run one after another, each until it ends or waits at a barrier;
// shuffles are not here, so a kernel that uses them does not compile. Loads and stores are reported
// through the hooks that -fsanitize=thread calls.
#pragma once
#include <ucontext.h>

#include <cmath>
#include <cstddef>
#include <functional>
#include <memory>
#include <tuple>
#include <vector>
using std::copysign, std::fabs, std::fmod, std::pow, std::floor, std::ceil, std::trunc, std::rint,
    std::exp, std::log, std::sqrt, std::sin, std::cos, std::tan, std::erf, std::erfc, std::atan2,
    std::log2, std::log10, std::log1p, std::expm1, std::asin, std::acos, std::atan, std::sinh,
    std::cosh, std::tanh;

#define __device__
#define __global__
#define __host__
#define __forceinline__ inline
#define __shared__ static  // blocks run one after another
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

// The simulated driver sets it: what a kernel did that a device would not survive.
extern "C" __attribute__((visibility("default"))) void (*cusim_fault)(const char*);
void (*cusim_fault)(const char*) = nullptr;

#define CUSIM_PLAIN __attribute__((no_sanitize("thread")))
using CusimBody = std::function<void()>;
struct CusimFiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack{new char[kStack]};
  CusimIndex thread = {0, 0, 0};
  bool waits = false;
  static constexpr size_t kStack = 64 << 10;
};
static ucontext_t cusim_scheduler;
static CusimFiber* cusim_running = nullptr;
static const CusimBody* cusim_body = nullptr;

CUSIM_PLAIN inline void __syncthreads() {
  cusim_running->waits = true;
  swapcontext(&cusim_running->context, &cusim_scheduler);
}
CUSIM_PLAIN inline void cusim_enter() { (*cusim_body)(); }

// To the next barrier or the end.
CUSIM_PLAIN inline void cusim_resume(CusimFiber& fiber) {
  fiber.waits = false;
  threadIdx = fiber.thread;
  cusim_running = &fiber;
  swapcontext(&cusim_scheduler, &fiber.context);
}

CUSIM_PLAIN inline void cusim_block(const CusimBody& body, CusimIndex size) {
  static std::vector<std::unique_ptr<CusimFiber>> fibers;
  std::vector<CusimFiber*> waiting;
  cusim_body = &body;
  size_t used = 0;
  const size_t count = size_t{size.x} * size.y * size.z;
  for (unsigned z = 0; z < size.z; ++z)
    for (unsigned y = 0; y < size.y; ++y)
      for (unsigned x = 0; x < size.x; ++x) {
        if (used == fibers.size()) fibers.push_back(std::make_unique<CusimFiber>());
        CusimFiber& fiber = *fibers[used];
        fiber.thread = {x, y, z};
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.get();
        fiber.context.uc_stack.ss_size = CusimFiber::kStack;
        fiber.context.uc_link = &cusim_scheduler;
        makecontext(&fiber.context, cusim_enter, 0);
        cusim_resume(fiber);
        if (!fiber.waits) continue;  // its stack serves the next one
        waiting.push_back(&fiber);
        ++used;
      }
  while (!waiting.empty()) {
    if (waiting.size() != count)
      return cusim_fault("a barrier that not all threads of a block reach");
    std::vector<CusimFiber*> again;
    for (CusimFiber* fiber : waiting) {
      cusim_resume(*fiber);
      if (fiber->waits) again.push_back(fiber);
    }
    waiting = std::move(again);
  }
}

// One launch with copies of its arguments.
template <class... A, size_t... I>
CUSIM_PLAIN std::function<void(CusimIndex, CusimIndex)>* cusim_bind(void (*kernel)(A...),
                                                                    void** arguments,
                                                                    std::index_sequence<I...>) {
  auto copies = std::make_tuple(*static_cast<std::remove_const_t<A>*>(arguments[I])...);
  return new std::function<void(CusimIndex, CusimIndex)>(
      [kernel, copies](CusimIndex grid, CusimIndex block) CUSIM_PLAIN {
        gridDim = grid;
        blockDim = block;
        const CusimBody body = [&]() CUSIM_PLAIN { std::apply(kernel, copies); };
        for (blockIdx.z = 0; blockIdx.z < grid.z; ++blockIdx.z)
          for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y)
            for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x) cusim_block(body, block);
      });
}
#define CUSIM_KERNEL(name) \
  extern "C" void* cusim_bind_##name(void** arguments) { return cusim_wrap(name, arguments); }
template <class... A>
void* cusim_wrap(void (*kernel)(A...), void** arguments) {
  return cusim_bind(kernel, arguments, std::index_sequence_for<A...>());
}
