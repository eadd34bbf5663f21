// Device properties that other folders add to those of table.cpp.
#pragma once
#include <cstdint>

namespace rbcuda {

/// Adds a property; to be called while the plugin is registered. `value` may be called from any
/// thread, and may throw. `name` must live as long as the process.
void add_property(const char* name, int64_t (*value)(int device));

}  // namespace rbcuda
