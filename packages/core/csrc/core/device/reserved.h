// Names of devices and layers that belong to plugins which are installed, loaded or not.
#pragma once
#include <map>
#include <string>

namespace rabbet {

/// By name, the wheel whose manifest provides it.
struct ReservedNames {
  std::map<std::string, std::string> devices, layers;
};

/// While it lives, what this thread registers must not take these names.
class Reserve {
 public:
  explicit Reserve(const ReservedNames& names);
  ~Reserve();
  Reserve(const Reserve&) = delete;
  Reserve& operator=(const Reserve&) = delete;

 private:
  const ReservedNames* before_;
};

/// Throws RB_E_PLUGIN naming both if the name is another's.
void check_device_name(const char* name, const std::string& provider);
void check_layer_name(const char* name, const std::string& provider);

}  // namespace rabbet
