// Running a recording.
#pragma once
#include "run/plan.h"

namespace compile {

/// Statistics of one run, for reports.
struct Ran {
  int nodes = 0, stored = 0;
  int64_t tiles = 0;  // 0: node by node
  bool declined = false;
};

/// Write the memory of all results that are still wanted. Throws what a kernel fails with.
Ran run(const Recording& r);

}  // namespace compile
