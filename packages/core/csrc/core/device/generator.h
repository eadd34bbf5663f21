// Random number generators: Philox counters by device.
#pragma once
#include <atomic>
#include <cstdint>

#include "rabbet/abi.h"

struct RbGenerator {  // Philox counters; guarded by its own lock
  std::atomic<uint64_t> seed{0}, offset{0};
};

namespace rabbet {

RbGenerator& default_generator(int backend, int device);
void seed_all(uint64_t seed);
RbRngSlice reserve(RbGenerator& generator, uint64_t counters);

}  // namespace rabbet
