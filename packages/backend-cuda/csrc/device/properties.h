// Properties of devices that other folders know: they are told with those of table.cpp.
#pragma once
#include <cstdint>

namespace rbcuda {

/// `value` may be called from any thread, and may throw. `name` lives as long as the process. To be
/// called while the plugin is registered.
void add_property(const char* name, int64_t (*value)(int device));

}  // namespace rbcuda
