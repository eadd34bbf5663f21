// Instruction-set levels. A file named simd_*.cpp is compiled once per level with RB_LEVEL = v2,
// v3, v4 (x86-64-v2,
// ...; other machines: v2 only, with the compiler's default) and exports one table named
// <name>_<level>. Such a file defines nothing with external or weak linkage but that table: a weak
// symbol compiled for AVX-512 that the linker picked for all would crash older machines
// (tests/test_native_library.py).
#pragma once

/// What a level file uses from a header must not remain as a function of its own.
#define RB_ALWAYS inline __attribute__((always_inline))

#define RB_CONCAT_(a, b) a##_##b
#define RB_CONCAT(a, b) RB_CONCAT_(a, b)
#define RB_LEVEL_NAME(name) RB_CONCAT(name, RB_LEVEL)

namespace rbcpu {

/// 2, 3 or 4: the best level of this CPU, overridden downwards by RABBET_CPU_LEVEL.
int cpu_level();

/// The table that belongs to this CPU.
template <class T>
const T& pick_level([[maybe_unused]] const T& v2, [[maybe_unused]] const T& v3,
                    [[maybe_unused]] const T& v4) {
  const int level = cpu_level();
  return level >= 4 ? v4 : level == 3 ? v3 : v2;
}
#if defined(RB_ONLY_LEVEL)
#define RB_PICK_LEVEL(name) RB_CONCAT(name, RB_ONLY_LEVEL)
#elif defined(__x86_64__)
#define RB_PICK_LEVEL(name) ::rbcpu::pick_level(name##_v2, name##_v3, name##_v4)
#else
#define RB_PICK_LEVEL(name) name##_v2
#endif

}  // namespace rbcpu
