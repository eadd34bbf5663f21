// Switches of the process by name, which Python sets and backends read (rabbet/settings.h).
#pragma once
#include <cstdint>

namespace rabbet {

int64_t setting(const char* name, int64_t otherwise);
void set_setting(const char* name, int64_t value);
uint64_t setting_changes();

/// What happens at calls that wait for a device: nothing, a warning, an error.
enum class SyncMode : int64_t { kDefault, kWarn, kError };
SyncMode sync_mode();

}  // namespace rabbet
