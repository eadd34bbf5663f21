// Slots: data that plugins attach to tensors.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace rabbet {

int slot_new(const char* name, int layer, void (*del)(void*));
struct SlotEntry {
  std::string name;
  int layer;        // its key bit
  int64_t tensors;  // live ones that have it
};
std::vector<SlotEntry> slot_entries();
/// The key bit of each slot's layer.
extern int slot_layers[kSlots];

}  // namespace rabbet
