// Pooling of float32 and float64 rows, once per instruction-set level.
#include "common/level.h"
#include "pool/pool_rows.h"

namespace rbcpu {
namespace {
template <class T>
constexpr PoolTable<T> kTable = {
    max_row<T, T, int32_t>, max_windows<T, T>, max_channels<T, T, int32_t>,
    add_row<T, T>,          spread_row<T>,     sum_run<T, T>};
}  // namespace

extern const PoolTables RB_LEVEL_NAME(pool_table) = {kTable<float>, kTable<double>};
}  // namespace rbcpu
