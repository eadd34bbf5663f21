// What is known of each 4 bytes that kernels and copies access: who wrote and who read them last,
// and which of the bytes were ever written.
#pragma once
#include <cstddef>
#include <cstdint>

namespace cusim {

/// Accesses of the running kernel; what is wrong ends the launch.
void shadow_global(const void* p, size_t size, int kind);
void shadow_shared(const void* p, size_t size, int kind);
/// A block begins with shared memory that nobody has written.
void shadow_block(const char* shared, size_t size, const char* dynamic, size_t dynamic_size);
/// Memory begins or ends: nothing is known of it.
void shadow_forget(const void* p, size_t size);

}  // namespace cusim
