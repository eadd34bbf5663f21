// Random number state: Philox counters, reserved in slices, one default generator per device.
#include "device/generator.h"

#include <map>
#include <mutex>

#include "thread/fork.h"

namespace rabbet {

namespace {
struct Generators {
  std::mutex mutex;
  std::map<std::pair<int, int>, RbGenerator> defaults;
  uint64_t seed = 5489;  // of generators made later
};
Generators& generators() {
  static Generators* instance = [] {
    auto* made = new Generators;
    hold_over_fork(made->mutex);
    return made;
  }();
  return *instance;
}
}  // namespace

RbGenerator& default_generator(int backend, int device) {
  Generators& g = generators();
  std::lock_guard<std::mutex> lock(g.mutex);
  auto [entry, fresh] = g.defaults.try_emplace({backend, device});
  if (fresh) entry->second.seed = g.seed;
  return entry->second;
}

void seed_all(uint64_t seed) {
  Generators& g = generators();
  std::lock_guard<std::mutex> lock(g.mutex);
  g.seed = seed;
  for (auto& [key, generator] : g.defaults) {
    generator.seed = seed;
    generator.offset = 0;
  }
}

RbRngSlice reserve(RbGenerator& generator, uint64_t counters) {
  return {sizeof(RbRngSlice), 0, generator.seed.load(), generator.offset.fetch_add(counters)};
}

}  // namespace rabbet
