// The arguments and results of a call as the words that a log keeps.
//
//   tensor   kTensor | dtype << 8 | ndim << 32, then the sizes
//   list     kList | length << 32, then its tensors
//   sizes    kSizes | length << 32, then the numbers
//   number   tag of the value, then its bits
//   other    tag of the value
#pragma once
#include <cstddef>
#include <cstdint>

#include "rabbet/abi.h"

namespace profiler {

constexpr uint64_t kTensor = RB_TENSOR, kList = RB_TENSORS, kSizes = RB_INTS;

size_t signature_words(const RbValue* values, int32_t n);
/// Writes `signature_words` words.
void write_signature(const RbValue* values, int32_t n, uint64_t* out);

}  // namespace profiler
