/* rabbet/compile.h: the table that the compile plugin publishes as "rabbet.compile", for its own
 * Python binding and for other plugins. */
#ifndef RABBET_COMPILE_H
#define RABBET_COMPILE_H
#include "rabbet/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RB_COMPILE_EXT "rabbet.compile"
#define RB_COMPILE_VERSION 1

typedef struct RbCompileTotals { /* since the last `clear` */
  uint32_t struct_size, flags;   /* struct_size is set by the caller */
  int64_t recorded;              /* calls that were deferred */
  int64_t flushes;               /* how often deferred calls ran */
  int64_t dropped;               /* deferred calls whose results nobody wanted */
  int64_t unstored;              /* results that never were in memory */
  int64_t tiled;                 /* flushes that ran in tiles */
  int64_t declined;              /* flushes in which a kernel declined */
  int64_t plans;                 /* in the cache */
} RbCompileTotals;

typedef struct RbCompileLine { /* a flush; pointers are valid during the call */
  uint32_t struct_size, flags;
  const char *reason, *source; /* `source` is empty where nobody knows */
  const char* const* ops;
  int32_t nops;
  int32_t run, stored; /* of them: those that ran, those whose results were written to memory */
  int32_t declined;
  int64_t numel, tiles;
  double microseconds;
} RbCompileLine;

typedef struct RbCompile {
  uint32_t struct_size;
  int32_t layer;
  int32_t (*is_on)(void); /* whether the calling thread is in a region */
  /* The calls of which backend are deferred, by its id: that of the CPU. None before this. */
  int32_t (*use_backend)(int32_t backend);
  /* Switch regions on or off for the thread; *before: whether they were on. Where they go off, what
   * is deferred runs first: its error is returned, and they are off. */
  int32_t (*set_on)(int32_t on, int32_t* before);
  /* Run what is deferred. `reason` is for reports. */
  int32_t (*flush)(const char* reason);
  /* "least_bytes", "tile", "check", "report" */
  int32_t (*set)(const char* name, int64_t value);
  int32_t (*get)(const char* name, int64_t* value);
  int32_t (*totals)(RbCompileTotals* out);
  /* Call `each` for each flush while "report" was on, oldest first; the first 10,000 are kept. */
  int32_t (*lines)(void (*each)(void* ctx, const RbCompileLine*), void* ctx);
  void (*clear)(void); /* totals, lines and plans */
} RbCompile;

#ifdef __cplusplus
}
#endif
#endif
