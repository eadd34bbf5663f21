// In every kernel's library: what the driver fills, and what code calls that was compiled with
// -fsanitize=thread.
#include "cusim_abi.h"

#define CUSIM_HIDDEN __attribute__((visibility("hidden")))
#define CUSIM_HOOK extern "C" CUSIM_HIDDEN

// These stand in .data. Behind them, in .bss, is the shared memory.
extern "C" {
CUSIM_HIDDEN const CusimRuntime* cusim_runtime = reinterpret_cast<const CusimRuntime*>(8);
CUSIM_HIDDEN CusimIndex cusim_thread = {1, 1, 1}, cusim_block = {1, 1, 1},
                        cusim_block_size = {1, 1, 1}, cusim_grid_size = {1, 1, 1};
extern CUSIM_HIDDEN char __bss_start[], _end[];
extern __attribute__((visibility("default"))) CusimModule cusim_module;
}
CusimModule cusim_module = {&cusim_runtime,   &cusim_thread, &cusim_block, &cusim_block_size,
                            &cusim_grid_size, __bss_start,   _end};

static inline bool holds(const CusimWindow& window, CusimSize at, CusimSize size) {
  const CusimSize offset = at - window.begin;
  return offset < window.size && window.size - offset >= size;
}
static inline __attribute__((always_inline)) void note(const void* p, CusimSize size, int kind,
                                                       bool aligned) {
  const CusimSize at = reinterpret_cast<CusimSize>(p);
  const CusimRuntime& r = *cusim_runtime;
  if (at - r.stacks.begin < r.stacks.size) return;
  // Of volatile accesses the driver hears each: other threads may come between.
  if (!(kind & kCusimVolatile) && (holds(r.memory, at, size) || holds(r.shared, at, size)) &&
      (!aligned || at % size == 0))
    return;
  r.access(p, size, kind, aligned, __builtin_return_address(0));
}

#define CUSIM_HOOKS(size)                                                                      \
  CUSIM_HOOK void __tsan_read##size(void* p) { note(p, size, kCusimRead, true); }              \
  CUSIM_HOOK void __tsan_write##size(void* p) { note(p, size, kCusimWrite, true); }            \
  CUSIM_HOOK void __tsan_unaligned_read##size(void* p) { note(p, size, kCusimRead, false); }   \
  CUSIM_HOOK void __tsan_unaligned_write##size(void* p) { note(p, size, kCusimWrite, false); } \
  CUSIM_HOOK void __tsan_volatile_read##size(void* p) {                                        \
    note(p, size, kCusimRead | kCusimVolatile, true);                                          \
  }                                                                                            \
  CUSIM_HOOK void __tsan_volatile_write##size(void* p) {                                       \
    note(p, size, kCusimWrite | kCusimVolatile, true);                                         \
  }                                                                                            \
  CUSIM_HOOK void __tsan_unaligned_volatile_read##size(void* p) {                              \
    note(p, size, kCusimRead | kCusimVolatile, false);                                         \
  }                                                                                            \
  CUSIM_HOOK void __tsan_unaligned_volatile_write##size(void* p) {                             \
    note(p, size, kCusimWrite | kCusimVolatile, false);                                        \
  }
CUSIM_HOOKS(1)
CUSIM_HOOKS(2)
CUSIM_HOOKS(4)
CUSIM_HOOKS(8)
CUSIM_HOOKS(16)
CUSIM_HOOK void __tsan_read_range(void* p, CusimSize n) { note(p, n, kCusimRead, false); }
CUSIM_HOOK void __tsan_write_range(void* p, CusimSize n) { note(p, n, kCusimWrite, false); }
CUSIM_HOOK void __tsan_init() {}
CUSIM_HOOK void __tsan_func_entry(void*) {}
CUSIM_HOOK void __tsan_func_exit() {}
CUSIM_HOOK void __tsan_vptr_read(void**) {}
CUSIM_HOOK void __tsan_vptr_update(void**, void*) {}
CUSIM_HOOK void cusim_atomic(const void* p, CusimSize size) {
  note(p, size, kCusimWrite | kCusimAtomic, true);
}

// Called by what -fsanitize=float-cast-overflow makes of conversions, with a float that the integer
// cannot hold. Where that is unsigned, a device's instruction gives the nearest number it has (and
// the code that C++ has on hosts another one), so that nothing may depend on it.
struct CusimTypeName {
  unsigned short kind, info;  // kind 0: an integer; bit 0 of info: with a sign
};
struct CusimConversion {
  struct {
    const char* file;
    unsigned line, column;
  } place;
  const CusimTypeName *from, *to;
};
CUSIM_HOOK void __ubsan_handle_float_cast_overflow(CusimConversion* conversion, CusimSize) {
  if (conversion->to->kind != 0 || conversion->to->info & 1) return;
  cusim_runtime->fault(
      "a float is converted to an unsigned integer that cannot hold it: devices give the nearest "
      "one, others what is left of it in int64");
}
CUSIM_HOOK void* cusim_dynamic_shared() { return cusim_runtime->dynamic_shared(); }
