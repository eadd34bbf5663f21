// Elementwise loops of bool and the integers, once per instruction-set level.
#include "common/level.h"
#include "elementwise/elementwise_loops.h"

namespace rbcpu {
extern const IntTables RB_LEVEL_NAME(int_tables) = {
    &table<bool>,    &table<uint8_t>,  &table<int8_t>,   &table<int16_t>, &table<int32_t>,
    &table<int64_t>, &table<uint16_t>, &table<uint32_t>, &table<uint64_t>};
}
