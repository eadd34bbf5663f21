// Kernels that the wheel brings compiled: kernels.seed beside the library, which
// tools/make_seed_pack.py makes. Without it, or without zlib, kernels are compiled when they are
// first used.
//
//   "rabbet seed 1\n", u32 groups, u32 kernels
//   for each group    u64 offset in the file, u32 bytes, u32 bytes once inflated (zlib)
//   for each kernel   32 bytes of key, in order; u32 group, u32 offset in it, u32 bytes
// Numbers are little-endian.
#pragma once
#include <string>
#include <vector>

namespace rbcuda {

/// Empty where it is not there. `key`: 64 hexadecimal digits. RABBET_CUDA_SEED: another file; "0":
/// none.
std::vector<char> read_seed(const std::string& key);

}  // namespace rbcuda
