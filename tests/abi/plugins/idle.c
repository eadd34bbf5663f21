// A plugin that registers nothing, for every version of the header: what core says of those that it
// does not take any more.
#include "rabbet/abi.h"

#ifndef RB_ABI_NEEDED
#define RB_ABI_NEEDED RB_ABI_MINOR
#endif

static int32_t init(const RbHost* host, RbTxn* txn) {
  (void)host, (void)txn;
  return RB_OK;
}

RB_EXPORT const RbPlugin* rabbet_plugin_v0(void) {
  static RbPlugin plugin;
  plugin.struct_size = RB_SIZE(RbPlugin, retire);
  plugin.abi_major = RB_ABI_MAJOR;
  plugin.abi_built = RB_ABI_MINOR;
  plugin.abi_min = RB_ABI_NEEDED;
  plugin.name = "idle";
  plugin.version = "1.0";
  plugin.init = init;
  return &plugin;
}
