#include "ops/settings.h"

#include "rabbet/plugin.hpp"
#include "rabbet/settings.h"

namespace rbcuda {

int64_t setting(const char* name, int64_t otherwise) {
  static const auto* table =
      static_cast<const RbSettings*>(rb::host->get_ext(RB_SETTINGS_EXT, RB_SETTINGS_VERSION));
  return table ? table->get(name, otherwise) : otherwise;
}

}  // namespace rbcuda
