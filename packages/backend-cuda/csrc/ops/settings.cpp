#include "ops/settings.h"

#include <cstdlib>
#include <cstring>

#include "rabbet/plugin.hpp"
#include "rabbet/settings.h"

namespace rbcuda {

int64_t setting(const char* name, int64_t otherwise) {
  static const auto* table =
      static_cast<const RbSettings*>(rb::host->get_ext(RB_SETTINGS_EXT, RB_SETTINGS_VERSION));
  return table ? table->get(name, otherwise) : otherwise;
}

bool convolution_tf32() {
  static const char* given = std::getenv("NVIDIA_TF32_OVERRIDE");
  if (given && std::strcmp(given, "0") == 0) return false;
  return setting("cudnn.enabled", 1) ? setting("cudnn.allow_tf32", 1)
                                     : setting("cuda.matmul.allow_tf32", 0);
}

}  // namespace rbcuda
