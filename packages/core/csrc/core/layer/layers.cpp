// Layers: their order is declared (phase, before, after) and becomes the order of key bits.
#include "layer/layers.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "device/reserved.h"
#include "layer/transforms.h"
#include "tensor/sticky.h"
#include "thread/error.h"
#include "thread/plugin_names.h"

namespace rabbet {

namespace {

constexpr int kPhaseSpan = 100, kPhases = 8, kBitsPerPhase = 5;
// Transforms are ordered by the stack, not by their bits, which no tensor carries.
constexpr uint32_t kFirstTransformPhase = 450, kLastTransformPhase = 499;
constexpr int kFirstTransformBit = kCompositeSlot + 1, kTransformBits = 7;

LayerEntry make_own(int bit, const char* name, uint32_t phase, RbFn fallback) {
  LayerEntry own;
  own.name = name;
  own.provider = "rabbet-core";
  own.bit = bit;
  own.active = true;
  own.desc.struct_size = sizeof own.desc;
  own.desc.name = name;
  own.desc.phase = phase;
  own.desc.on_missing = RB_L_FALLBACK;
  own.desc.fallback = fallback;
  return own;
}

// By key bit; never destroyed. Two layers are core's own: where the transforms of the stack run,
// and where calls end that a composite's layer did not take.
LayerEntry* const layers = [] {
  auto* all = new LayerEntry[kKeyBits];
  all[kTransformSlot] = make_own(kTransformSlot, "transforms", kFirstTransformPhase, run_transform);
  all[kCompositeSlot] =
      make_own(kCompositeSlot, "composites", kPhaseSpan * kPhases, refuse_composite);
  return all;
}();
std::mutex mutex;

// Places kept for the layers of installed wheels, by name.
struct Place {
  int bit;
  uint32_t phase;
};
std::unordered_map<std::string, Place>& places() {
  static auto* all = new std::unordered_map<std::string, Place>;
  return *all;
}
bool is_kept_for_another(int bit, const std::string& name) {
  for (const auto& [owner, place] : places()) {
    if (place.bit == bit) return owner != name;
  }
  return false;
}

bool names(const std::vector<std::string>& list, const std::string& name) {
  for (const std::string& entry : list) {
    if (entry == name) return true;
  }
  return false;
}

// Why a layer runs before another.
struct Claim {
  const LayerEntry *first, *second;
  const LayerEntry* by;  // who declared it; null: the phases say so

  std::string text() const {
    if (!by) {
      return "'" + first->name + "' has phase " + std::to_string(first->desc.phase) + ", '" +
             second->name + "' has phase " + std::to_string(second->desc.phase);
    }
    const bool forwards = by == first;
    return "'" + by->name + "' (" + by->provider + ") declares to run " +
           (forwards ? "before '" + second->name : "after '" + first->name) + "'";
  }
};

// Whether `a` has to run before `b`.
std::optional<Claim> must_precede(const LayerEntry& a, const LayerEntry& b) {
  if (names(a.before, b.name)) return Claim{&a, &b, &a};
  if (names(b.after, a.name)) return Claim{&a, &b, &b};
  if (a.desc.phase < b.desc.phase) return Claim{&a, &b, nullptr};
  return std::nullopt;
}

[[noreturn]] void fail_contradiction(const LayerEntry& entry, const Claim& one, const Claim& other,
                                     const LayerEntry& neighbour) {
  fail(RB_E_PLUGIN,
       "layer '%s' of %s cannot be ordered together with layer '%s' of %s: %s, but %s. What was "
       "loaded first keeps working without '%s'; uninstall one of the two wheels, or ask their "
       "authors to drop one of the declarations",
       entry.name.c_str(), entry.provider.c_str(), neighbour.name.c_str(),
       neighbour.provider.c_str(), one.text().c_str(), other.text().c_str(), entry.name.c_str());
}

// The key bits between which `entry` has to run: below those of the layers that precede it by
// phase or declaration, above those of the layers that it precedes.
struct Room {
  int above = kKeyBits, below = kBackendBits - 1;  // both exclusive
};
Room find_room(const LayerEntry& entry) {
  std::optional<Claim> upper, lower;
  Room room;
  for (int bit = kBackendBits; bit < kKeyBits; ++bit) {
    const LayerEntry& other = layers[bit];
    if (other.bit < 0 || (bit != kTransformSlot && is_transform(other.desc))) continue;
    const std::optional<Claim> comes_after = must_precede(other, entry),
                               goes_before = must_precede(entry, other);
    if (comes_after && goes_before) fail_contradiction(entry, *goes_before, *comes_after, other);
    if (comes_after && bit < room.above) {
      room.above = bit;
      upper = comes_after;
    }
    if (goes_before && bit > room.below) {
      room.below = bit;
      lower = goes_before;
    }
  }
  if (upper && lower && room.above < room.below) {
    fail(RB_E_PLUGIN,
         "layer '%s' of %s cannot be ordered: %s, and %s, but '%s' (%s) runs before '%s' (%s) "
         "already. Those two keep working without '%s'; uninstall one of the three wheels, or ask "
         "their authors to drop one of the declarations",
         entry.name.c_str(), entry.provider.c_str(), upper->text().c_str(), lower->text().c_str(),
         layers[room.below].name.c_str(), layers[room.below].provider.c_str(),
         layers[room.above].name.c_str(), layers[room.above].provider.c_str(), entry.name.c_str());
  }
  return room;
}

// Where the name alone decides: layers of one phase run in the order of their names.
bool agrees_with_names(const LayerEntry& entry, int bit) {
  for (int other = kBackendBits; other < kKeyBits; ++other) {
    if (layers[other].bit < 0 || layers[other].desc.phase != entry.desc.phase) continue;
    if ((entry.name < layers[other].name) != (bit > other)) return false;
  }
  return true;
}

int place_transform(const LayerEntry& entry) {
  for (int bit = kFirstTransformBit; bit < kFirstTransformBit + kTransformBits; ++bit) {
    if (layers[bit].bit < 0) return bit;
  }
  fail(RB_E_PLUGIN, "layer '%s' of %s: there are %d transforms already", entry.name.c_str(),
       entry.provider.c_str(), kTransformBits);
}

// A free key bit for `entry`; throws Error where there is none.
int place_layer(const LayerEntry& entry) {
  if (names(entry.before, entry.name) || names(entry.after, entry.name)) {
    fail(RB_E_PLUGIN, "layer '%s' of %s declares to run before or after itself", entry.name.c_str(),
         entry.provider.c_str());
  }
  if (is_transform(entry.desc)) return place_transform(entry);
  const Room room = find_room(entry);
  const auto own = places().find(entry.name);
  if (own != places().end() && own->second.phase != entry.desc.phase) {
    fail(RB_E_PLUGIN, "layer '%s' of %s has phase %u, but the manifest of its wheel declares %u",
         entry.name.c_str(), entry.provider.c_str(), entry.desc.phase, own->second.phase);
  }
  const auto fits = [&](int bit) {
    return layers[bit].bit < 0 && bit < room.above && bit > room.below;
  };
  if (own != places().end() && fits(own->second.bit)) return own->second.bit;
  const int top = highest_key_bit(entry.desc.phase);
  int found = -1;
  // From the middle outwards, so that later neighbours find a gap on either side.
  for (int offset : {2, 1, 3, 0, 4}) {
    const int bit = top - offset;
    if (!fits(bit)) continue;
    const bool kept = is_kept_for_another(bit, entry.name);
    if (!kept && agrees_with_names(entry, bit)) return bit;
    if (found < 0 || (!kept && is_kept_for_another(found, entry.name))) found = bit;
  }
  if (found >= 0) return found;
  fail(RB_E_PLUGIN,
       "layer '%s' of %s: there is no place left between its neighbours in the phases %d to %d, "
       "which hold at most %d layers; another phase has room",
       entry.name.c_str(), entry.provider.c_str(),
       static_cast<int>(entry.desc.phase) / kPhaseSpan * kPhaseSpan,
       static_cast<int>(entry.desc.phase) / kPhaseSpan * kPhaseSpan + kPhaseSpan - 1,
       kBitsPerPhase);
}

}  // namespace

const std::vector<PhaseRange>& phase_ranges() {
  static const std::vector<PhaseRange> ranges = {
      {0, 99, "outermost", "sees every call before all others do"},
      {100, 299, "intercept", "sees calls as they were made: not cast, not recorded, not batched"},
      {300, 399, "precision",
       "chooses dtypes; above differentiation, so that a gradient flows back through the casts"},
      {400, 449, "differentiation",
       "records calls for backward; above the transforms, so that what is recorded inside a "
       "transform is the call that was made there"},
      {450, 499, "transforms",
       "vmap, jvp and their like; not ordered here: the order in which a thread enters them "
       "counts, the innermost runs first and hands its calls to the next"},
      {500, 599, "aliasing", "changes what views and writes do; below, tensors are plain ones"},
      {600, 699, "layout", "changes how elements lie in memory"},
      {700, 799, "placement",
       "moves or watches what runs: the calls of every transform, of casts and of backward pass "
       "here as plain tensors, each once, just before the device"},
  };
  return ranges;
}

// Phase 0..99 gets bits 63..59, phase 100..199 bits 58..54, and so on: an earlier phase runs first.
int highest_key_bit(uint32_t phase) {
  return 63 - static_cast<int>(phase) / kPhaseSpan * kBitsPerPhase;
}
uint64_t differentiation_above(int bit) {
  constexpr uint32_t kFirst = 400;
  const uint64_t to_top = (uint64_t{2} << highest_key_bit(kFirst)) - 1;
  return to_top & ~((uint64_t{2} << std::max(bit, kTransformSlot)) - 1);
}
bool is_transform_phase(uint32_t phase) {
  return phase >= kFirstTransformPhase && phase <= kLastTransformPhase;
}

void reserve_layers(const std::vector<DeclaredLayer>& order) {
  std::lock_guard<std::mutex> lock(mutex);
  places().clear();
  for (auto first = order.begin(); first != order.end();) {
    const int top = highest_key_bit(first->phase);
    const auto last = std::find_if(
        first, order.end(), [&](const auto& one) { return highest_key_bit(one.phase) != top; });
    const int count = static_cast<int>(last - first);
    // More than there are bits: those that are loaded share them as they come.
    for (int i = 0; first != last; ++first, ++i) {
      if (count <= kBitsPerPhase)  // evenly, with gaps for layers that no manifest names
        places()[first->name] = {top - (2 * i + 1) * kBitsPerPhase / (2 * count), first->phase};
    }
  }
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
  check_layer_name(layer.name, provider);
  entry.bit = place_layer(entry);
  entry.plugin_self = entry.desc.self;
  layers[entry.bit] = entry;
  if (entry.desc.fallback && is_checked(entry)) {
    LayerEntry& own = layers[entry.bit];
    own.checked = {entry.desc.fallback, entry.desc.self, entry.bit};
    own.desc.fallback = run_checked;
    own.desc.self = &own.checked;
  }
  return entry.bit;
}

bool is_checked(const LayerEntry& layer) { return is_checked_plugin(layer.provider); }

std::atomic<uint64_t> derivative_layers{0};

void activate_layer(int bit) {
  layers[bit].active = true;
  if (layers[bit].desc.flags & RB_L_DERIVATIVES) derivative_layers |= uint64_t{1} << bit;
  if (layers[bit].desc.flags & RB_L_STICKY) sticky_keys |= uint64_t{1} << bit;
}
void drop_layer(int bit) {
  std::lock_guard<std::mutex> lock(mutex);
  layers[bit] = LayerEntry{};
  derivative_layers &= ~(uint64_t{1} << bit);
  sticky_keys &= ~(uint64_t{1} << bit);
}
const LayerEntry& layer_entry(int bit) { return layers[bit]; }
LayerEntry& own_layer_entry(int bit) { return layers[bit]; }

int find_layer(const char* name) {
  for (int bit = kBackendBits; bit < kKeyBits; ++bit) {
    if (layers[bit].bit >= 0 && layers[bit].name == name) return bit;
  }
  return -1;
}

std::vector<const LayerEntry*> layers_in_order() {
  std::vector<const LayerEntry*> order;
  for (int bit = kKeyBits - 1; bit >= kBackendBits; --bit) {
    if (layers[bit].bit >= 0 && bit != kCompositeSlot) order.push_back(&layers[bit]);
  }
  return order;
}

}  // namespace rabbet
