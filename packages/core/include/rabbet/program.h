/* rabbet/program.h: programs that run core without Python. They link librabbet_core.so, which lies
 * in the folder `rabbet` of the wheel rabbet-core, and get the same host table as plugins.
 *
 *   rabbet_start(NULL, 0);
 *   const RbHost* host = rabbet_host();
 *   host->find_backend("cpu", &cpu);
 *
 * Errors are those of rabbet/abi.h: what returns int32_t returns RB_OK or a code, whose message
 * host->err_get() has. Functions of plugins that are written in Python are not there.
 */
#ifndef RABBET_PROGRAM_H
#define RABBET_PROGRAM_H

#include "rabbet/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Core's host table; never null, valid for the life of the process. */
RB_EXPORT const RbHost* rabbet_host(void);
/* Find the installed plugins, once in a process: read the entry points and manifests of the wheels
 * in these folders of packages (a site-packages, in the order of sys.path), and settle the order of
 * the layers that they declare. Null and 0: the folder of packages that core itself lies in. No
 * plugin is loaded by this, but the libraries that RABBET_PLUGINS names; a backend is loaded when
 * its device is first used. A plugin that is broken is an error when it is asked for. */
RB_EXPORT int32_t rabbet_start(const char* const* folders, int32_t nfolders);
/* Load the plugin that provides a name, unless it is loaded. `kind` is "backend" (of a device),
 * "transform" (of a layer) or "ops" (of a namespace of operators). */
RB_EXPORT int32_t rabbet_require(const char* kind, const char* name);
/* Load the plugin in a library, whatever is installed. */
RB_EXPORT int32_t rabbet_load(const char* path);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
