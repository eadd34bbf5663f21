// What kernels and copies do wrong. CUSIM_CHECK: fast (memory: bounds, alignment, memory that is
// none of the device's; barriers and lanes are always looked at), or all, or names of
//   initial  reads of bytes that were never written
//   races    of threads of a launch
//   streams  of work that nothing orders
//   host     devices' memory is closed to the host
// separated by commas.
#pragma once
#include <cstddef>
#include <cstdint>

#include "launch.h"
#include "memory.h"

namespace cusim {

struct Checks {
  bool initial = false, races = false, streams = false, host = false;
  bool shadow() const { return initial || races || streams; }
};
const Checks& checks();

/// A kernel's access that the window did not let pass.
/// `site`: see CusimRuntime.
void access(const void* p, CusimSize size, int kind, int aligned, const void* site);
void begin_launch(const Launch& launch);
void begin_block(char* shared, size_t size, char* dynamic, size_t dynamic_size);
/// An access by a copy or a fill; false: it was reported.
bool check_copy(int device, uint32_t command, const void* p, size_t size, CusimAccess kind);

}  // namespace cusim
