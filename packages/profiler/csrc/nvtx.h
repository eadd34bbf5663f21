// Ranges of calls for NVIDIA's profilers, by the library that they come with.
#pragma once
#include <string>
#include <unordered_map>

#include "rabbet/trace.h"

namespace profiler {

using Names = std::unordered_map<std::string, std::string>;  // of records, as they are shown

/// Give each call and each named part of the program a range from now on; false: there is no
/// library.
bool start_nvtx(const RbTrace* trace, const RbHost* host, Names names, bool shapes);
void stop_nvtx(const RbTrace* trace);

}  // namespace profiler
