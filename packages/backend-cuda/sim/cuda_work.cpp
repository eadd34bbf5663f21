// Work that other libraries give to streams.
#include <chrono>
#include <condition_variable>
#include <cstdlib>

#include "cuda.h"
#include "work.h"

namespace cusim {
namespace {

const char* line_of(const CusimRegion& r, size_t batch, size_t line) {
  return static_cast<const char*>(r.begin) + batch * r.stride + line * r.pitch;
}

bool is_there(const CusimRegion& r) {
  if (!r.line || !r.lines || !r.batches) return true;
  return memory().holds(line_of(r, 0, 0), r.line) &&
         memory().holds(line_of(r, r.batches - 1, r.lines - 1), r.line);
}

// Lines without gaps are one.
bool accesses(int device, uint32_t command, const CusimRegion& r) {
  const CusimAccess kind = r.written ? kCusimWrite : kCusimRead;
  const bool joined = r.pitch == r.line;
  for (size_t batch = 0; batch < (r.stride ? r.batches : 1); ++batch) {
    if (reinterpret_cast<uintptr_t>(line_of(r, batch, 0)) % r.aligned) {
      report(*devices[device], kMisaligned,
             commands().at(command).what + ": a batch is not aligned to " +
                 std::to_string(r.aligned) + " bytes");
      return false;
    }
    for (size_t line = 0; line < (joined ? 1 : r.lines); ++line) {
      if (!check_copy(device, command, line_of(r, batch, line), joined ? r.line * r.lines : r.line,
                      kind))
        return false;
    }
  }
  return true;
}

// The running work, for cusim_touch.
thread_local int running_device = -1;
thread_local uint32_t running_command = 0;

}  // namespace
}  // namespace cusim

using namespace cusim;

extern "C" int cusim_work(void* handle, const char* what, const CusimRegion* regions, int count,
                          void (*run)(void*), void (*drop)(void*), void* data) {
  const std::shared_ptr<void> owned(data, drop);
  CUSIM_ENTER;
  const std::vector<CusimRegion> all(regions, regions + count);
  for (const CusimRegion& region : all)
    if (!is_there(region)) return kInvalid;
  CUSIM_STREAM(stream, handle);
  const int device = stream.device.index;
  return enqueue_on(handle, what, [=](uint32_t command) {
    for (const CusimRegion& region : all)
      if (!accesses(device, command, region)) return;
    running_device = device;
    running_command = command;
    run(owned.get());
  });
}

extern "C" int cusim_touch(const CusimRegion* regions, int count) {
  for (int i = 0; i < count; ++i) {
    if (!is_there(regions[i])) {
      report(
          *devices[running_device], kIllegalAddress,
          commands().at(running_command).what + ": an address of a list is none of the device's");
      return 0;
    }
    if (!accesses(running_device, running_command, regions[i])) return 0;
  }
  return 1;
}

extern "C" void cusim_spoil_capture(void* handle) {
  Lock lock(mutex);
  Stream* stream = current ? stream_of(handle) : nullptr;
  if (stream && stream->capture) stream->capture->invalid = true;
}

extern "C" int cusim_meet() {
  static std::mutex meeting;
  static std::condition_variable came;
  static int inside = 0;
  const char* given = std::getenv("CUSIM_MEET");
  if (!given) return 1;
  const int wanted = std::atoi(given);
  std::unique_lock<std::mutex> lock(meeting);
  ++inside;
  came.notify_all();
  return came.wait_for(lock, std::chrono::seconds(20), [&] { return inside >= wanted; });
}
