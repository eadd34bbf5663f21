// The observer: writes what it is told into the log of the thread.
#pragma once
#include <cstdint>

#include "rabbet/trace.h"

namespace profiler {

struct Options {
  bool shapes = false, memory = false, stacks = false;
};

/// Begin a recording.
void start(const RbTrace* trace, const Options& options);
/// Record nothing until `resume`; both within one recording.
void pause();
void resume();
bool is_recording();
/// End the recording; its number, for `logs_of`. Not `complete`: memory ran out.
uint64_t stop(bool* complete);

}  // namespace profiler
