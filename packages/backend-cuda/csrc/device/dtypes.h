// What the backend knows of dtypes beside their ids: those of the header, and floats of 8 bits,
// whose ids hold for the process.
#pragma once
#include "rabbet/plugin.hpp"

namespace rbcuda {

/// The ids of the floats of 8 bits; -1 where core has none.
struct Float8Dtypes {
  int32_t e4m3fn = -1, e5m2 = -1;

  bool has(int dtype) const { return dtype >= 0 && (dtype == e4m3fn || dtype == e5m2); }
  uint64_t bits() const;
};
const Float8Dtypes& float8_dtypes();

/// What kernels/types.cuh and float8.cuh call it; throws RB_E_NOTIMPL where they do not know it.
const char* type_name(int dtype);
int size_of_added(int dtype);
/// Bytes of an element in memory, also of a dtype that a plugin added.
inline int stored_size(int dtype) {
  static constexpr int8_t kSizes[RB_DTYPE_COUNT] = {1, 1, 1, 2, 4, 8, 2, 4, 8, 2, 2, 4, 8, 8, 16};
  return dtype < RB_DTYPE_COUNT ? kSizes[dtype] : size_of_added(dtype);
}

inline bool is_complex(int dtype) { return dtype == RB_C64 || dtype == RB_C128; }

/// A dtype of 1, 2, 4, 8 or 16 bytes, for kernels that only move elements.
inline int unit_dtype(int64_t bytes) {
  return bytes == 1   ? +RB_U8
         : bytes == 2 ? +RB_U16
         : bytes == 4 ? +RB_U32
         : bytes == 8 ? +RB_U64
                      : +RB_C128;
}

/// The dtype that kernels compute in for a stored one: float32 for 16 and 8 bits.
inline int computed(int dtype) {
  return dtype == RB_F16 || dtype == RB_BF16 || dtype >= RB_DTYPE_COUNT ? +RB_F32 : dtype;
}

}  // namespace rbcuda
