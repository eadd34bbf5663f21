// Key bits: which backends and layers a call concerns.
#pragma once
#include <cstdint>

namespace rabbet {

constexpr int kBackendBits = 16;  // key bits 0..15: backends by id
constexpr int kKeyBits = 64;
constexpr uint64_t kBackendMask = (1ull << kBackendBits) - 1;
constexpr int kCompositeSlot = 16;  // below all layers: refuses what a composite's layer let pass
constexpr int kTransformSlot = 39;  // the last bit of the phases of differentiation

}  // namespace rabbet
