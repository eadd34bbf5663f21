// Which plugin a function belongs to, for messages.
#pragma once
#include <string>

namespace rabbet {

/// Whether what the plugin's functions return is checked: that of other wheels than Rabbet's own,
/// of all with RABBET_CHECK_PLUGINS=1. `provider`: "name version".
bool is_checked_plugin(const std::string& provider);
/// The library that has the address is that of the plugin `name`.
void note_plugin(const void* address, const std::string& name);
/// The plugin whose library has the address; of another library its file name.
std::string plugin_of(const void* address);
template <class R, class... Args>
std::string plugin_of(R (*fn)(Args...)) {
  return plugin_of(reinterpret_cast<const void*>(fn));
}

}  // namespace rabbet
