// Copies from a device's memory to shared memory that run while the thread goes on (cp.async).
#pragma once
#include <cstdint>

namespace cusim {

/// Of the running thread. Until it waits for the copy's step, the 16 bytes at `shared` are a NaN.
void copy_ahead(void* shared, const void* from, int bytes);
/// What was copied since the last end is one step.
void end_of_step();
void wait_for_steps(int left);
/// A block of `threads` begins.
void forget_copies(uint32_t threads);

}  // namespace cusim
