// Keys of layers that aliases keep (RB_L_STICKY).
#pragma once
#include <atomic>
#include <cstdint>

namespace rabbet {

extern std::atomic<uint64_t> sticky_keys;

}  // namespace rabbet
