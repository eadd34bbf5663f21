#include "device/failure.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "rabbet/trace.h"

namespace rbcuda {

void InFlight::finish(CuStream stream) {
  for (Launch& launch : ring_) {
    if (launch.stream.load(std::memory_order_relaxed) == stream)
      launch.op.store(nullptr, std::memory_order_relaxed);
  }
}

void InFlight::finish_all() {
  for (Launch& launch : ring_) launch.op.store(nullptr, std::memory_order_relaxed);
}

std::string InFlight::names() const {
  std::vector<std::string> found;
  const unsigned next = next_.load(std::memory_order_relaxed);
  for (unsigned i = 0; i < kCount; ++i) {
    const char* op = ring_[(next + i) % kCount].op.load(std::memory_order_relaxed);
    if (op && std::find(found.begin(), found.end(), op) == found.end()) found.emplace_back(op);
  }
  std::string text;
  for (const std::string& op : found) (text += text.empty() ? "" : ", ") += op;
  return text;
}

namespace {

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value && *value && std::strcmp(value, "0") != 0;
}

bool is_sticky(CuResult status) {
  constexpr CuResult kSticky[] = {kEccError,          kNvlinkError,         kContained,
                                  kIllegalAddress,    kLaunchTimeout,       kContextDestroyed,
                                  kAssertion,         kHardwareStack,       kIllegalInstruction,
                                  kMisalignedAddress, kInvalidAddressSpace, kInvalidProgramCounter,
                                  kLaunchFailed,      kTensorMemoryLeak};
  return std::find(std::begin(kSticky), std::end(kSticky), status) != std::end(kSticky);
}

bool forbidden_in_capture(CuResult status) {
  return status >= kCaptureUnsupported && status <= kCaptureWrongThread;
}

}  // namespace

const bool launch_blocking =
    is_set("RABBET_CUDA_LAUNCH_BLOCKING") || is_set("CUDA_LAUNCH_BLOCKING");

std::string source_line() {
  const auto* trace =
      static_cast<const RbTrace*>(rb::host->get_ext(RB_TRACE_EXT, RB_TRACE_VERSION));
  const char* line = trace && RB_HAS(trace, source_get) ? trace->source_get() : nullptr;
  return line ? std::string("; at ") + line : "";
}

std::string explain(CuResult status, int index, const std::string& text) {
  if (forbidden_in_capture(status))
    return text + "; work is captured into a graph, where this call is not possible" +
           source_line();
  if (!is_sticky(status)) return text;
  Device& failed = device(index);
  const std::string before = failed.failure();
  if (!before.empty()) return before;
  const std::string names = failed.in_flight.names();
  std::string whole = text;
  if (!names.empty() && !launch_blocking)
    whole += "; in flight was one of: " + names +
             "; RABBET_CUDA_LAUNCH_BLOCKING=1 tells which one, and where it was called";
  failed.set_failure(whole);
  return whole;
}

void finish_launch(Device& device, CuStream stream, const char* op, CuResult status) {
  std::string what = std::string("launch of ") + op;
  if (status == kSuccess) {
    if (is_capturing(stream)) return;
    status = driver().stream_synchronize(stream);
    what = op;
    if (status == kSuccess) return device.in_flight.finish(stream);
  }
  check_cuda(status, device.index(), (what + source_line()).c_str());
}

}  // namespace rbcuda
