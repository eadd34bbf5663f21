#pragma once
#include "rabbet/plugin.hpp"

namespace rbcuda {
int32_t add_elementwise(const RbHost* host, RbTxn* txn);
}
