// SHA-256 (FIPS 180-4): names of compiled kernels, and checks of files.
#pragma once
#include <cstddef>
#include <string>

namespace rbcuda {

/// 64 hexadecimal digits.
std::string sha256(const void* data, size_t size);
inline std::string sha256(const std::string& text) { return sha256(text.data(), text.size()); }

}  // namespace rbcuda
