// Random number generators: Philox counters by device.
#pragma once
#include <atomic>
#include <cstdint>

#include "rabbet/trace.h"

struct RbGenerator {  // Philox counters; guarded by its own lock
  std::atomic<uint64_t> seed{0}, offset{0};
};

namespace rabbet {

RbGenerator& default_generator(int backend, int device);
/// What the thread draws from: the generator that RbHost.generator_set named, else the default one.
RbGenerator& current_generator(int backend, int device);
void seed_all(uint64_t seed);
/// Set the function that a layer wants called before a generator is seeded, set or read; null
/// removes it. `layer` is the layer's key bit.
void set_generator_gate(int layer, RbGeneratorFn fn, void* self);
/// Call these functions, and throw the first error. A null generator stands for those of all
/// devices.
void ask_generator_gates(const RbGenerator* generator, const char* what);
RbRngSlice reserve(RbGenerator& generator, uint64_t counters);

}  // namespace rabbet
