#include "device/dtypes.h"

namespace rbcuda {
namespace {

constexpr const char* kNames[RB_DTYPE_COUNT] = {
    "bool",   "UInt8", "Int8",     "Int16", "int",    "Int64",          "UInt16",         "UInt32",
    "UInt64", "Half",  "BFloat16", "float", "double", "Complex<float>", "Complex<double>"};

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
  if (dtype < RB_DTYPE_COUNT) return kNames[dtype];
  if (!float8_dtypes().has(dtype))
    rb::fail(RB_E_NOTIMPL, "cuda: no kernels for dtype number %d", dtype);
  return dtype == float8_dtypes().e5m2 ? "Float8E5M2" : "Float8E4M3FN";
}

int size_of_added(int dtype) {
  RbDTypeInfo info = {};
  info.struct_size = RB_SIZE(RbDTypeInfo, itemsize);
  rb::check(rb::host->dtype_info(dtype, &info));
  return info.itemsize;
}

}  // namespace rbcuda
