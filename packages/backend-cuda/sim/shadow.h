// What is known of each 4 bytes that kernels and copies access: who wrote and who read them last,
// and which of the bytes were ever written.
//
// Two accesses, one of them a write and not both atomic, must be ordered: of one launch by program
// order, a barrier of the block, a synchronization of the warp's lanes, or, between blocks, by a
// fence and an atomic operation on one side and an atomic operation on the same address on the
// other; of two launches or copies by their streams' clocks.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace cusim {

/// Accesses of the running kernel; what is wrong ends the launch. `initial`: whether bytes that
/// were never written are looked for.
void shadow_global(const void* p, size_t size, int kind, bool initial);
void shadow_shared(const void* p, size_t size, int kind);
/// Of a copy or a fill; in words, what is wrong, or nothing.
std::string shadow_copy(uint32_t command, const void* p, size_t size, int kind);
/// Bytes of `to` are as written as those of `from` are.
void shadow_copied(const void* to, const void* from, size_t size);
void shadow_launch();
/// A block begins with shared memory that nobody has written.
void shadow_block(const char* shared, size_t size, const char* dynamic, size_t dynamic_size);
/// Memory begins or ends: nothing is known of it.
void shadow_forget(const void* p, size_t size);

}  // namespace cusim
