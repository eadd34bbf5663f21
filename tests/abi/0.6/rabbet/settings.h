/* rabbet/settings.h: switches of the process that users set from Python and backends follow, such
 * as whether float32 products may round their inputs. docs/reference/cuda.md lists the names.
 */
#ifndef RABBET_SETTINGS_H
#define RABBET_SETTINGS_H

#include "rabbet/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RB_SETTINGS_EXT "rabbet.settings"
#define RB_SETTINGS_VERSION 1

/* Got by host->get_ext(RB_SETTINGS_EXT, RB_SETTINGS_VERSION). Any thread may call. */
typedef struct RbSettings {
  uint32_t struct_size, flags;
  /* What the setting of this name is; `otherwise` where nothing was set. */
  int64_t (*get)(const char* name, int64_t otherwise);
  /* Counts the changes: what `get` said holds while this stays the same. */
  uint64_t (*changes)(void);
} RbSettings;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
