// Plugins: loading, versions of the boundary, published tables.
#pragma once
#include <string>
#include <vector>

#include "rabbet/abi.h"

namespace rabbet {

struct LoadedPlugin {
  std::string name, version, path;
  int abi_major, abi_built, abi_min;
};
/// The minor version of the plugin ABI that this core offers: its header's, or the older one that
/// the environment variable RABBET_ABI_MINOR asks for, whose host table it then has.
int offered_minor();
/// The oldest minor version that a plugin may be built with.
int oldest_minor();
/// Bytes of the host table of a minor version, from the oldest on.
uint32_t host_size(int minor);
/// The dtypes that the header of a minor version has, a bit each.
uint64_t dtypes_of(int minor);
/// The minor version that the loaded plugin `name` was built with; unknown: that of core.
int built_minor(const std::string& name);
/// Throw RB_E_PLUGIN where `who` needs more than core offers.
void check_abi(const char* who, int major, int needed);
/// dlopen, negotiate, run init in a transaction. Sets the error record and returns a code on
/// failure.
int32_t load_plugin(const char* path);
std::vector<LoadedPlugin> loaded_plugins();
/// While a plugin's `init` runs on this thread, the name is known when it has succeeded.
void publish(const char* name, uint32_t version, const void* table);
/// The slot is taken; a plugin whose `init` runs on this thread and fails gives it back.
void note_slot(int slot);
const void* published(const char* name, uint32_t min_version);

}  // namespace rabbet
