// AddressSanitizer sees what malloc hands out. Where core keeps blocks for reuse or hands out more
// than was asked for, a build with it marks the unused bytes itself.
#pragma once
#include <cstdint>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace rabbet {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kAddressSanitizer = true;
inline void mark_used(void* p, uint64_t nbytes) { __asan_unpoison_memory_region(p, nbytes); }
inline void mark_unused(void* p, uint64_t nbytes) { __asan_poison_memory_region(p, nbytes); }
#else
constexpr bool kAddressSanitizer = false;
inline void mark_used(void*, uint64_t) {}
inline void mark_unused(void*, uint64_t) {}
#endif

}  // namespace rabbet
