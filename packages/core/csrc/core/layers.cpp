// Layers: their order is declared (phase, before, after) and becomes the order of key bits.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

#include "error.h"
#include "runtime.h"
#include "transforms.h"

namespace rabbet {

namespace {

constexpr int kPhaseSpan = 100, kPhases = 8, kBitsPerPhase = 5;
// Transforms are ordered by the stack, not by their bits, which no tensor carries.
constexpr uint32_t kFirstTransformPhase = 450, kLastTransformPhase = 499;
constexpr int kFirstTransformBit = 16, kTransformBits = 8;

// By key bit; never destroyed. One layer is core's own: where the transforms of the stack run.
LayerEntry* const layers = [] {
  auto* all = new LayerEntry[kKeyBits];
  LayerEntry& slot = all[kTransformSlot];
  slot.name = "transforms";
  slot.provider = "rabbet-core";
  slot.bit = kTransformSlot;
  slot.active = true;
  slot.desc.struct_size = sizeof slot.desc;
  slot.desc.name = "transforms";
  slot.desc.phase = kFirstTransformPhase;
  slot.desc.on_missing = RB_L_FALLBACK;
  slot.desc.fallback = run_transform;
  return all;
}();
std::mutex mutex;

bool names(const std::vector<std::string>& list, const std::string& name) {
  for (const std::string& entry : list) {
    if (entry == name) return true;
  }
  return false;
}

// Whether `a` must run before `b`, by declaration; null when nothing says so.
const char* must_precede(const LayerEntry& a, const LayerEntry& b) {
  if (names(a.before, b.name)) return a.provider.c_str();
  if (names(b.after, a.name)) return b.provider.c_str();
  return nullptr;
}

// Why `entry` cannot run at `bit`; null when it can.
const LayerEntry* conflict_at(const LayerEntry& entry, int bit) {
  for (int other = kBackendBits; other < kKeyBits; ++other) {
    if (layers[other].bit < 0 || other == bit) continue;
    if (other != kTransformSlot && is_transform(layers[other].desc)) continue;
    const bool runs_before = bit > other;
    if (runs_before ? must_precede(layers[other], entry) : must_precede(entry, layers[other]))
      return &layers[other];
    const uint32_t phase = layers[other].desc.phase;
    if (phase != entry.desc.phase && (entry.desc.phase < phase) != runs_before)
      return &layers[other];
  }
  return nullptr;
}

// A free key bit for `entry`; throws Error where there is none.
int place_layer(const LayerEntry& entry) {
  if (is_transform(entry.desc)) {
    for (int bit = kFirstTransformBit; bit < kFirstTransformBit + kTransformBits; ++bit) {
      if (layers[bit].bit < 0) return bit;
    }
    fail(RB_E_PLUGIN, "layer '%s' of %s: there are %d transforms already", entry.name.c_str(),
         entry.provider.c_str(), kTransformBits);
  }
  // From the middle outwards, so that later neighbours find a gap on either side.
  const int top = highest_key_bit(entry.desc.phase);
  const LayerEntry* conflict = nullptr;
  for (int offset : {2, 1, 3, 0, 4}) {
    const int bit = top - offset;
    if (layers[bit].bit >= 0) continue;
    conflict = conflict_at(entry, bit);
    if (!conflict) return bit;
  }
  if (conflict) {
    fail(RB_E_PLUGIN,
         "layer '%s' of %s cannot be ordered: its phase, before and after contradict layer '%s' of "
         "%s",
         entry.name.c_str(), entry.provider.c_str(), conflict->name.c_str(),
         conflict->provider.c_str());
  }
  fail(RB_E_PLUGIN, "layer '%s' of %s: phase %u is full", entry.name.c_str(),
       entry.provider.c_str(), entry.desc.phase);
}

}  // namespace

// Phase 0..99 gets bits 63..59, phase 100..199 bits 58..54, and so on: an earlier phase runs first.
int highest_key_bit(uint32_t phase) {
  return 63 - static_cast<int>(phase) / kPhaseSpan * kBitsPerPhase;
}
bool is_transform(const RbLayer& layer) {
  return layer.phase >= kFirstTransformPhase && layer.phase <= kLastTransformPhase;
}

int stage_layer(const RbLayer& layer, const std::string& provider) {
  std::lock_guard<std::mutex> lock(mutex);
  if (layer.phase >= kPhaseSpan * kPhases) {
    fail(RB_E_PLUGIN, "layer '%s' of %s: phase must be below %d, got %u", layer.name,
         provider.c_str(), kPhaseSpan * kPhases, layer.phase);
  }
  LayerEntry entry;
  entry.name = layer.name;
  entry.provider = provider;
  std::memcpy(&entry.desc, &layer, std::min<size_t>(layer.struct_size, sizeof layer));
  for (auto p = layer.before; p && *p; ++p) entry.before.push_back(*p);
  for (auto p = layer.after; p && *p; ++p) entry.after.push_back(*p);
  for (int bit = kBackendBits; bit < kKeyBits; ++bit) {
    if (layers[bit].bit >= 0 && layers[bit].name == entry.name) {
      fail(RB_E_PLUGIN, "layer '%s' of %s is registered already, by %s", layer.name,
           provider.c_str(), layers[bit].provider.c_str());
    }
  }
  entry.bit = place_layer(entry);
  layers[entry.bit] = entry;
  return entry.bit;
}

void activate_layer(int bit) { layers[bit].active = true; }
void drop_layer(int bit) {
  std::lock_guard<std::mutex> lock(mutex);
  layers[bit] = LayerEntry{};
}
const LayerEntry& layer_entry(int bit) { return layers[bit]; }

int find_layer(const char* name) {
  for (int bit = kBackendBits; bit < kKeyBits; ++bit) {
    if (layers[bit].bit >= 0 && layers[bit].name == name) return bit;
  }
  return -1;
}

std::vector<const LayerEntry*> layers_in_order() {
  std::vector<const LayerEntry*> order;
  for (int bit = kKeyBits - 1; bit >= kBackendBits; --bit) {
    if (layers[bit].bit >= 0) order.push_back(&layers[bit]);
  }
  return order;
}

}  // namespace rabbet
