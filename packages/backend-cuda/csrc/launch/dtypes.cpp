#include "launch/dtypes.h"

namespace rbcuda {
namespace {

struct Known {
  const char* name;
  int size;
};
constexpr Known kKnown[RB_DTYPE_COUNT] = {
    {"bool", 1},     {"UInt8", 1},  {"Int8", 1},   {"Int16", 2},          {"int", 4},
    {"Int64", 8},    {"UInt16", 2}, {"UInt32", 4}, {"UInt64", 8},         {"Half", 2},
    {"BFloat16", 2}, {"float", 4},  {"double", 8}, {"Complex<float>", 8}, {"Complex<double>", 16}};

int32_t find(const char* name) {
  int32_t dtype = -1;
  return rb::host->find_dtype(name, &dtype) == RB_OK ? dtype : -1;
}

}  // namespace

uint64_t Float8Dtypes::bits() const {
  uint64_t all = 0;
  for (const int32_t dtype : {e4m3fn, e5m2}) all |= dtype < 0 ? 0 : uint64_t{1} << dtype;
  return all;
}

const Float8Dtypes& float8_dtypes() {
  static const Float8Dtypes found = {find("float8_e4m3fn"), find("float8_e5m2")};
  return found;
}

const char* type_name(int dtype) {
  if (dtype < RB_DTYPE_COUNT) return kKnown[dtype].name;
  if (!float8_dtypes().has(dtype))
    rb::fail(RB_E_NOTIMPL, "cuda: no kernels for dtype number %d", dtype);
  return dtype == float8_dtypes().e5m2 ? "Float8E5M2" : "Float8E4M3FN";
}

int stored_size(int dtype) { return dtype < RB_DTYPE_COUNT ? kKnown[dtype].size : 1; }

}  // namespace rbcuda
