// The observer: writes events into the log of their thread.
#pragma once
#include <cstdint>

#include "rabbet/trace.h"

namespace profiler {

enum Part : uint32_t {  // what entries hold besides times
  kShapes = 1,          // of arguments
  kMemory = 2,
  kStacks = 4,
  kResults = 8,  // shapes of results
  kDevices = 16  // work that is given to devices
};

/// Begin a recording; `parts` is a mask of Part.
void start(const RbTrace* trace, uint32_t parts);
/// Record nothing until `resume`; both within one recording.
void pause();
void resume();
bool is_recording();
/// End the recording; its number, for `logs_of`. Not `complete`: memory ran out.
uint64_t stop(bool* complete);

}  // namespace profiler
