// dtypes: names, sizes, categories and PyTorch's promotion table.
#pragma once
#include <cstdint>

#include "rabbet/abi.h"

namespace rabbet {

struct DTypeInfo {
  const char* name;  // "float32"
  uint8_t itemsize;
  uint8_t category;  // Category
  RbDType dlpack;
};
enum Category : uint8_t { kBool = 0, kInt = 1, kFloat = 2, kComplex = 3 };

extern const DTypeInfo kDTypes[RB_DTYPE_COUNT];
inline const DTypeInfo& dtype_info(int dtype) { return kDTypes[dtype]; }
inline bool is_floating(int d) { return kDTypes[d].category == kFloat; }
inline bool is_complex(int d) { return kDTypes[d].category == kComplex; }
inline bool is_integral(int d) { return kDTypes[d].category <= kInt; }  // bool included

/// The dtype that holds values of both (PyTorch's table for tensors of one priority).
int promote(int a, int b);
/// float32 -> complex64, ...; integers -> the default complex dtype.
int to_complex(int dtype);
/// complex64 -> float32, ...; others unchanged.
int to_real(int dtype);
int default_dtype();
void set_default_dtype(int dtype);
/// Id of a dtype by name ("float32", "float", "long", ...); -1 if unknown.
int dtype_by_name(const char* name);
/// Whether a result of dtype `from` may be written to a tensor of dtype `to` (PyTorch's can_cast).
bool can_cast(int from, int to);

}  // namespace rabbet
