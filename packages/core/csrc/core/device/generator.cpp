// Random number state: Philox counters, reserved in slices, one default generator per device.
#include "device/generator.h"

#include <map>
#include <mutex>
#include <string>

#include "thread/error.h"
#include "thread/fork.h"
#include "thread/plugin_names.h"
#include "thread/thread_state.h"

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

struct Gates {  // by key bit of the layer
  struct Gate {
    RbGeneratorFn fn;
    void* self;
  };
  std::mutex mutex;
  std::atomic<int> count{0};
  std::map<int, Gate> of;
};
Gates& generator_gates() {
  static Gates* instance = [] {
    auto* made = new Gates;
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

RbGenerator& current_generator(int backend, int device) {
  RbGenerator* const own = thread_state().generator;
  return own ? *own : default_generator(backend, device);
}

void set_generator_gate(int layer, RbGeneratorFn fn, void* self) {
  Gates& gates = generator_gates();
  std::lock_guard<std::mutex> lock(gates.mutex);
  gates.of.erase(layer);
  if (fn) gates.of[layer] = {fn, self};
  gates.count.store(static_cast<int>(gates.of.size()), std::memory_order_release);
}

void ask_generator_gates(const RbGenerator* generator, const char* what) {
  Gates& gates = generator_gates();
  if (!gates.count.load(std::memory_order_acquire)) return;
  std::map<int, Gates::Gate> of;  // a copy: they may call core
  {
    std::lock_guard<std::mutex> lock(gates.mutex);
    of = gates.of;
  }
  for (const auto& [layer, gate] : of) {
    const std::string who = "the generator gate of " + plugin_of(gate.fn);
    int32_t rc;
    try {
      rc = gate.fn(gate.self, generator, what);
    } catch (...) {
      rc = store_thrown(who);
    }
    if (rc != RB_OK) rethrow(explain(rc, who));
  }
}

void seed_all(uint64_t seed) {
  ask_generator_gates(nullptr, "manual_seed()");
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
