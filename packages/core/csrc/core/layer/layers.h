// The registered layers and their order.
#pragma once
#include <atomic>
#include <string>
#include <vector>

#include "rabbet/composite.h"
#include "rabbet/trace.h"

namespace rabbet {

/// A handler of a layer, or a kernel, that is not Rabbet's own: `self` of run_checked and of
/// run_checked_kernel.
struct CheckedHandler {
  RbFn fn;
  void* self;
  int bit;  // of the layer or backend
};

struct LayerEntry {
  std::string name, provider;
  RbLayer desc{};
  std::vector<std::string> before, after;
  int bit = -1;
  bool active = false;
  // Of a layer that has described its composites: `desc` has what core put in front of the layer's
  // own fallback then.
  bool has_composites = false;
  RbCompositeLayer composites{};
  std::string composite_name;
  RbFn own_fallback = nullptr;
  void* own_self = nullptr;
  CheckedHandler checked{};     // its fallback as the plugin gave it, of a layer that is checked
  void* plugin_self = nullptr;  // RbLayer.self as the plugin gave it
  RbRealFn real = nullptr;      // what runs where values of its tensors are needed
  void* real_self = nullptr;
};
/// What a range of phases is for; all ranges, first to run first.
struct PhaseRange {
  uint32_t first, last;
  const char *name, *meaning;
};
const std::vector<PhaseRange>& phase_ranges();
/// The bit of the layers of `phase` that runs first; that of the others follow below.
int highest_key_bit(uint32_t phase);
/// The key bits of the layers of differentiation (phases 400 to 449) that run before `bit`.
uint64_t differentiation_above(int bit);
/// Whether layers of the phase belong on the transform stack.
bool is_transform_phase(uint32_t phase);
inline bool is_transform(const RbLayer& layer) { return is_transform_phase(layer.phase); }
/// What the manifest of an installed wheel says of a layer.
struct DeclaredLayer {
  std::string name;
  uint32_t phase;
};
/// Keep key bits for layers that may be loaded later; `order` begins with the one to run first.
void reserve_layers(const std::vector<DeclaredLayer>& order);
/// Key bits of the layers that take derivatives as single calls (RB_L_DERIVATIVES).
extern std::atomic<uint64_t> derivative_layers;
int stage_layer(const RbLayer& layer, const std::string& provider);  // returns its key bit
void activate_layer(int bit);
void drop_layer(int bit);
const LayerEntry& layer_entry(int bit);
/// The same for who changes what a layer has said of itself.
LayerEntry& own_layer_entry(int bit);
int find_layer(const char* name);  // key bit, -1: not loaded
std::vector<const LayerEntry*> layers_in_order();

/// The handler of kCompositeSlot (call/composite.cpp): a call that the layer of a composite among
/// its arguments let pass.
int32_t refuse_composite(void* self, const RbCall* call, const RbValue* args, int32_t nargs,
                         RbValue* rets, int32_t nrets);

/// Whether the layer's handlers are checked: it is of another wheel than Rabbet's own.
bool is_checked(const LayerEntry& layer);
/// In front of each handler of such a layer; call/checked_handlers.cpp defines it.
int32_t run_checked(void* self, const RbCall* call, const RbValue* args, int32_t nargs,
                    RbValue* rets, int32_t nrets);
/// In front of a kernel that writes to results which core has made: it must leave them in place.
int32_t run_checked_kernel(void* self, const RbCall* call, const RbValue* args, int32_t nargs,
                           RbValue* rets, int32_t nrets);

}  // namespace rabbet
