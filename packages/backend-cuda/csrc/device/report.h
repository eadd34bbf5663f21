// What kernels find wrong in their data, such as an index out of range: they go on without touching
// memory and leave a word in pinned memory. It is read where the host waits, and raised there.
#pragma once
#include "device/device.h"

namespace rbcuda {

enum { kBadIndex, kBadProbability };

struct Report;
/// What a call's kernel knows of its own check. Twin of Finder in kernels/report.cuh.
struct Finder {
  Report* report;
  const char* op;  // lives as long as the process
  int64_t size;
  int32_t kind, dim;
};
Finder finder(Device& device, const char* op, int kind, int64_t size = 0, int dim = 0);

/// Throw the finding there is, once. After a wait; what is still running may report later.
void check_report(int device);

}  // namespace rbcuda
