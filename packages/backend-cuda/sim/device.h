// The state of the simulated driver: devices, and what calls share.
#pragma once
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "modules.h"
#include "status.h"
#include "streams.h"

namespace cusim {

struct Device {
  int index;
  size_t memory, in_use = 0;
  int sticky = 0;     // the error that all calls give from then on
  std::string words;  // what happened
  Stream first;
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<std::unique_ptr<Module>> modules;
  std::set<int> peers;  // whose memory its kernels may access

  Device(int index, size_t memory) : index(index), memory(memory), first(*this, true) {}
};

using Lock = std::lock_guard<std::recursive_mutex>;
extern std::recursive_mutex mutex;
extern std::vector<std::unique_ptr<Device>> devices;
/// Of the calling thread; null before cuCtxSetCurrent.
extern thread_local Device* current;

/// Remember an error of a device, and write it to stderr and to the file CUSIM_REPORT.
void report(Device& device, int status, const std::string& words);

}  // namespace cusim
