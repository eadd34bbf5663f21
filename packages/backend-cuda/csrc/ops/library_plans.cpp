#include "ops/library_plans.h"

#include <set>

#include "rabbet/plugin.hpp"

namespace rbcuda {
namespace {

// Whether this is the first call for the two.
bool is_first(const char* library, const char* op) {
  static std::mutex mutex;
  static auto* said = new std::set<std::pair<std::string, std::string>>;
  const std::lock_guard<std::mutex> lock(mutex);
  return said->emplace(library, op).second;
}

}  // namespace

void warn_not_started(const char* library, int device, int status) {
  const std::string text = "cuda:" + std::to_string(device) + ": " + library +
                           " does not start (status " + std::to_string(status) +
                           "); kernels of ours go on without it";
  rb::host->log(2, text.c_str());
}

std::string failure_on(const char* op, const Device& device, const std::string& what) {
  return std::string(op) + " on 'cuda:" + std::to_string(device.index()) + "': " + what;
}

void check_recovers(Device& device, CuStream stream, const std::string& text) {
  if (is_capture_invalid(stream))
    rb::fail(RB_E_DEVICE, "%s; this has invalidated the capture in progress", text.c_str());
  if (!is_capturing(stream)) {
    const CuResult status = driver().stream_query(stream);
    if (status != kNotReady) check_cuda(status, device.index(), text.c_str());
  }
}

void plan_failed(const char* library, const char* op, Device& device, CuStream stream,
                 const std::string& what) {
  const std::string text = failure_on(op, device, what);
  check_recovers(device, stream, text);
  if (!is_first(library, op)) return;
  const std::string warning =
      text + "; another plan of " + library + " or a kernel of this backend takes its place";
  rb::host->log(2, warning.c_str());
}

}  // namespace rbcuda
