// Elementwise loops of bool and the integers.
#include "elementwise/elementwise_loops.h"
#include "rabbet/abi.h"

namespace rbcpu {

const FnTable* int_table(int dtype) {
  switch (dtype) {
    case RB_BOOL8:
      return &table<bool>;
    case RB_U8:
      return &table<uint8_t>;
    case RB_I8:
      return &table<int8_t>;
    case RB_I16:
      return &table<int16_t>;
    case RB_I32:
      return &table<int32_t>;
    case RB_I64:
      return &table<int64_t>;
    case RB_U16:
      return &table<uint16_t>;
    case RB_U32:
      return &table<uint32_t>;
    case RB_U64:
      return &table<uint64_t>;
    default:
      return nullptr;
  }
}

}  // namespace rbcpu
