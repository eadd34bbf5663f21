#include "named_dtypes.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "tensor/dtype.h"
#include "tensor/float8.h"
#include "value_types.h"

namespace rabbet::python {

namespace {

constexpr uint8_t kDLPackFloat4 = 17;

struct NamedDType {
  const char* name;
  int bits, itemsize;
  RbDType dlpack = {};
};

// Dtypes without arithmetic: programs name them, and reinterpret memory as them.
const NamedDType kOpaque[] = {
    {"float4_e2m1fn_x2", 8, 1, {kDLPackFloat4, 4, 2}},
    {"bits16", 16, 2},
    {"bits1x8", 8, 1},
    {"bits2x4", 8, 1},
    {"bits4x2", 8, 1},
    {"bits8", 8, 1},
    {"int1", 1, 1},
    {"int2", 2, 1},
    {"int3", 3, 1},
    {"int4", 4, 1},
    {"int5", 5, 1},
    {"int6", 6, 1},
    {"int7", 7, 1},
    {"qint32", 32, 4},
    {"qint8", 8, 1},
    {"quint2x4", 8, 1},
    {"quint4x2", 8, 1},
    {"quint8", 8, 1},
    {"uint1", 1, 1},
    {"uint2", 2, 1},
    {"uint3", 3, 1},
    {"uint4", 4, 1},
    {"uint5", 5, 1},
    {"uint6", 6, 1},
    {"uint7", 7, 1},
};

// Scales of the OCP Microscaling formats, section 5.4.1: powers of two, 2^(x - 127); 255 is NaN.
void decode_e8m0(const void* from, void* to, int64_t n) {
  const auto* x = static_cast<const uint8_t*>(from);
  auto* y = static_cast<float*>(to);
  for (int64_t i = 0; i < n; ++i)
    y[i] = x[i] == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, x[i] - 127);
}

// The nearest power of two of the absolute value; ties go up, save between 0 and the smallest one.
void encode_e8m0(const void* from, void* to, int64_t n) {
  const auto* x = static_cast<const float*>(from);
  auto* y = static_cast<uint8_t*>(to);
  for (int64_t i = 0; i < n; ++i) {
    uint32_t bits;
    std::memcpy(&bits, &x[i], sizeof bits);
    const uint32_t exponent = bits >> 23 & 255, mantissa = bits & 0x7fffff;
    const bool up =
        exponent != 255 && (mantissa > 0x400000 || (mantissa == 0x400000 && exponent > 0));
    y[i] = static_cast<uint8_t>(exponent + (up ? 1 : 0));
  }
}

// Floats of 8 bits beside those that core always has.
struct NamedFloat {
  const char* name;
  uint8_t dlpack;
  decltype(RbDTypeInfo::decode) decode;
  decltype(RbDTypeInfo::encode) encode;
  double max, tiny, eps;
};
const NamedFloat kFloats[] = {
    {"float8_e8m0fnu", 14, decode_e8m0, encode_e8m0, 0x1p127, 0x1p-127, 1},
    {"float8_e4m3fnuz", 11, decode_float8<float8::kE4M3FNUZ>, encode_float8<float8::kE4M3FNUZ>, 240,
     0x1p-7, 0x1p-3},
    // 0x1p-3 is PyTorch's `eps`, although the next float after 1 is 0x1p-2 away.
    {"float8_e5m2fnuz", 13, decode_float8<float8::kE5M2FNUZ>, encode_float8<float8::kE5M2FNUZ>,
     57344, 0x1p-15, 0x1p-3},
};

int add_named(const char* name) {
  RbDTypeInfo info{};
  info.struct_size = sizeof info;
  for (const NamedFloat& d : kFloats) {
    if (std::strcmp(name, d.name) != 0) continue;
    info.name = name;
    info.kind = RB_CLASS_FLOAT;
    info.bits = 8;
    info.itemsize = 1;
    info.compute = RB_F32;
    info.dlpack = {d.dlpack, 8, 1};
    info.decode = d.decode;
    info.encode = d.encode;
    info.max = d.max;
    info.tiny = d.tiny;
    info.eps = d.eps;
    return add_dtype(info);
  }
  for (const NamedDType& d : kOpaque) {
    if (std::strcmp(name, d.name) != 0) continue;
    info.name = name;
    info.kind = RB_CLASS_OPAQUE;
    info.bits = d.bits;
    info.itemsize = d.itemsize;
    info.dlpack = d.dlpack;
    return add_dtype(info);
  }
  raise(PyExc_ValueError, "named_dtype: there is no dtype '%s'", name);
}

}  // namespace

bool holds_floats(int dtype) {
  return is_floating(dtype) || dtype_info(dtype).dlpack.code == kDLPackFloat4;
}

PyObject* named_dtype(const char* name) {
  const int dtype = add_named(name);
  refresh_dtypes();
  return dtype_object(dtype);
}

}  // namespace rabbet::python
