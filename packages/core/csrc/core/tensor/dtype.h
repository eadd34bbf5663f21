// dtypes: names, sizes, classes and PyTorch's promotion table. What a dtype is, is data: those of
// the header, those that core adds, and those of plugins are entries of one table.
#pragma once
#include <cstdint>

#include "rabbet/abi.h"

namespace rabbet {

/// What type promotion asks for; in its order.
enum Category : uint8_t { kBool = 0, kInt = 1, kFloat = 2, kComplex = 3, kOpaque = 4 };
struct DTypeInfo : RbDTypeInfo {
  Category category;
};

extern DTypeInfo kDTypes[RB_MAX_DTYPES];
extern uint8_t kDTypeKinds[RB_MAX_DTYPES];  // RbHost.dtype_kinds
inline const DTypeInfo& dtype_info(int dtype) { return kDTypes[dtype]; }
inline bool is_floating(int d) { return kDTypes[d].category == kFloat; }
inline bool is_complex(int d) { return kDTypes[d].category == kComplex; }
inline bool is_integral(int d) { return kDTypes[d].category <= kInt; }  // bool included
/// Whether it is not of the header: kernels do not know it, core converts it.
inline bool is_added(int d) { return d >= RB_DTYPE_COUNT; }
/// complex32, the added dtype that promotes with others: two float16.
constexpr int kComplex32 = RB_DTYPE_COUNT + 2;
/// The dtypes of the header, a bit each.
constexpr uint64_t kHeaderDTypes = (uint64_t{1} << RB_DTYPE_COUNT) - 1;

/// How many dtypes there are; their ids are below it.
int dtype_count();
inline bool is_dtype(int64_t d) { return d >= 0 && d < dtype_count(); }
/// Add a dtype, or find the same one; returns its id. Throws RB_E_PLUGIN where the name stands for
/// another, RB_E_ARG where the description cannot be.
int add_dtype(const RbDTypeInfo& info);
/// Take it back: of a registration that failed.
void drop_dtype(int dtype);

/// The dtype that holds values of both (PyTorch's table for tensors of one priority); throws
/// RB_E_TYPE where there is none.
int promote(int a, int b);
/// float32 -> complex64, float16 -> complex32, ...; integers -> the default complex dtype.
int to_complex(int dtype);
/// complex64 -> float32, complex32 -> float16, ...; others unchanged.
int to_real(int dtype);
int default_dtype();
void set_default_dtype(int dtype);
/// Id of a dtype by name ("float32", "float", "long", ...); -1 if unknown.
int dtype_by_name(const char* name);
/// Whether a result of dtype `from` may be written to a tensor of dtype `to` (PyTorch's can_cast).
bool can_cast(int from, int to);

}  // namespace rabbet
