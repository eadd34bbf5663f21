#include "device/reserved.h"

#include "thread/error.h"

namespace rabbet {

namespace {

thread_local const ReservedNames* reserved = nullptr;

void check_free(const std::map<std::string, std::string>& names, const char* what, const char* name,
                const std::string& provider) {
  const auto taken = names.find(name);
  if (taken == names.end()) return;
  fail(RB_E_PLUGIN, "%s '%s' of %s belongs to %s, which is installed and provides it", what, name,
       provider.c_str(), taken->second.c_str());
}

}  // namespace

Reserve::Reserve(const ReservedNames& names) : before_(reserved) { reserved = &names; }
Reserve::~Reserve() { reserved = before_; }

void check_device_name(const char* name, const std::string& provider) {
  if (reserved) check_free(reserved->devices, "device", name, provider);
}
void check_layer_name(const char* name, const std::string& provider) {
  if (reserved) check_free(reserved->layers, "layer", name, provider);
}

}  // namespace rabbet
