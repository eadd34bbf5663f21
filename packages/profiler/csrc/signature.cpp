#include "signature.h"

#include <cstring>

namespace profiler {

namespace {

bool is_number(uint32_t tag) { return tag == RB_BOOL || tag == RB_INT || tag == RB_FLOAT; }

uint64_t* write_tensor(const RbTensor* t, uint64_t* out) {
  if (!t) {
    *out = RB_NONE;
    return out + 1;
  }
  *out++ = kTensor | uint64_t{t->dtype_id} << 8 | static_cast<uint64_t>(t->ndim) << 32;
  std::memcpy(out, t->shape, t->ndim * 8);
  return out + t->ndim;
}

size_t tensor_words(const RbTensor* t) { return t ? 1 + t->ndim : 1; }

}  // namespace

size_t signature_words(const RbValue* values, int32_t n) {
  size_t words = 0;
  for (int32_t i = 0; i < n; ++i) {
    const RbValue& v = values[i];
    if (v.tag == RB_TENSOR) {
      words += tensor_words(v.v.t);
    } else if (v.tag == RB_TENSORS) {
      ++words;
      for (uint32_t j = 0; j < v.len; ++j) words += tensor_words(v.v.ts[j]);
    } else if (v.tag == RB_INTS) {
      words += 1 + v.len;
    } else {
      words += is_number(v.tag) ? 2 : 1;
    }
  }
  return words;
}

void write_signature(const RbValue* values, int32_t n, uint64_t* out) {
  for (int32_t i = 0; i < n; ++i) {
    const RbValue& v = values[i];
    if (v.tag == RB_TENSOR) {
      out = write_tensor(v.v.t, out);
    } else if (v.tag == RB_TENSORS) {
      *out++ = kList | uint64_t{v.len} << 32;
      for (uint32_t j = 0; j < v.len; ++j) out = write_tensor(v.v.ts[j], out);
    } else if (v.tag == RB_INTS) {
      *out++ = kSizes | uint64_t{v.len} << 32;
      std::memcpy(out, v.v.is, v.len * 8);
      out += v.len;
    } else {
      *out++ = v.tag;
      if (is_number(v.tag)) *out++ = v.v.u;
    }
  }
}

}  // namespace profiler
