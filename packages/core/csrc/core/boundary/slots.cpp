#include "boundary/slots.h"

#include <mutex>

#include "boundary/plugin.h"
#include "layer/layers.h"
#include "tensor/tensor.h"
#include "thread/error.h"

namespace rabbet {

int slot_layers[kSlots];

namespace {
std::string slot_names[kSlots];
void (*given_deleters[kSlots])(void*);

// In front of the deleter of a plugin that is checked.
template <int kSlot>
void run_checked_deleter(void* value) {
  try {
    given_deleters[kSlot](value);
  } catch (...) {
    log_thrown("the deleter of the slot '" + slot_names[kSlot] + "' of " +
               layer_entry(slot_layers[kSlot]).provider);
  }
}
constexpr void (*kCheckedDeleters[])(void*) = {run_checked_deleter<0>, run_checked_deleter<1>,
                                               run_checked_deleter<2>, run_checked_deleter<3>};
static_assert(sizeof kCheckedDeleters / sizeof *kCheckedDeleters == kSlots);
}  // namespace

int slot_new(const char* name, int layer, void (*del)(void*)) {
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  for (int slot = 0; slot < kSlots; ++slot) {
    if (slot_deleters[slot]) continue;
    given_deleters[slot] = del;
    slot_layers[slot] = layer;
    slot_names[slot] = name;
    slot_deleters[slot] = is_checked(layer_entry(layer)) ? kCheckedDeleters[slot] : del;
    note_slot(slot);
    return slot;
  }
  fail(RB_E_PLUGIN, "slot '%s': all %d per-tensor slots are taken", name, kSlots);
}

std::vector<SlotEntry> slot_entries() {
  std::vector<SlotEntry> entries;
  for (int slot = 0; slot < kSlots; ++slot) {
    if (slot_deleters[slot])
      entries.push_back({slot_names[slot], slot_layers[slot], tensors_with_slot(slot)});
  }
  return entries;
}

}  // namespace rabbet
