// Errors of work that was enqueued: they come with a later call, which did nothing wrong.
#pragma once
#include "device/device.h"

namespace rbcuda {

/// Throws what a launch of `op` gave, or with RABBET_CUDA_LAUNCH_BLOCKING=1 its work.
void finish_launch(Device& device, CuStream stream, const char* op, CuResult status);
extern const bool launch_blocking;

/// To be called behind each launch.
inline void launched(Device& device, CuStream stream, const char* op, CuResult status) {
  device.in_flight.add(stream, op);
  if (__builtin_expect(status != kSuccess || launch_blocking, 0))
    finish_launch(device, stream, op, status);
}

/// The line of the user's program that runs, as "; at train.py:12 in step"; empty where unknown.
std::string source_line();

/// See explain_failure.
std::string explain(CuResult status, int device, const std::string& text);

}  // namespace rbcuda
