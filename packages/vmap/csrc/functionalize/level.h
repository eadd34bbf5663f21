// What the plugin registers, and the levels of a thread.
#pragma once
#include "rabbet/abi.h"

namespace functional {

/// Register the layer and publish its table.
int32_t add(const RbHost* host, RbTxn* txn);
int32_t add_level(const RbHost* host, RbTxn* txn, const RbLayer& desc);

}  // namespace functional
