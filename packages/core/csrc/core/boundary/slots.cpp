#include "boundary/slots.h"

#include <mutex>

#include "boundary/plugin.h"
#include "tensor/tensor.h"
#include "thread/error.h"

namespace rabbet {

int slot_layers[kSlots];

namespace {
std::string slot_names[kSlots];
}

int slot_new(const char* name, int layer, void (*del)(void*)) {
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  for (int slot = 0; slot < kSlots; ++slot) {
    if (slot_deleters[slot]) continue;
    slot_deleters[slot] = del;
    slot_layers[slot] = layer;
    slot_names[slot] = name;
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
