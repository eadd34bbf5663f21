// In which order the dimensions of a tensor lie in memory: PyTorch's memory formats.
#pragma once
#include "tensor/tensor.h"

namespace rabbet {

enum class MemoryFormat : int32_t { kContiguous, kPreserve, kChannelsLast, kChannelsLast3d };
constexpr int kMemoryFormats = 4;

const char* memory_format_name(MemoryFormat format);
/// Throw unless tensors of `ndim` dimensions can have `format`; `what` names the caller.
void check_memory_format(MemoryFormat format, int ndim, const int64_t* shape, const char* what);
/// The format of that number, for a tensor of at least as many dimensions as it orders.
MemoryFormat numbered_format(int64_t number, int ndim, const char* what);
/// Dense strides in `format`; dimensions in front of its 4 or 5 (a transform's) lie outside.
void format_strides(MemoryFormat format, int ndim, const int64_t* shape, int64_t* strides);
/// Whether the strides are those of `format`; strides of dimensions of size 1 do not matter.
bool is_contiguous_in(MemoryFormat format, const RbTensor* t);
/// The format that the order of the strides suggests: channels last, or contiguous.
MemoryFormat suggested_format(const RbTensor* t);
/// Dense strides for a result of `shape` in the order that the operands, which broadcast to it,
/// have in memory: the first one decides, later ones where it does not (a broadcast dimension).
/// False: row-major.
bool joint_strides(const RbTensor* const* operands, int n, int ndim, const int64_t* shape,
                   int64_t* strides);
/// The strides of `t` if it is dense, else dense ones in their order. False: row-major.
bool preserved_strides(const RbTensor* t, int64_t* strides);

}  // namespace rabbet
