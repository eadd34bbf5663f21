/* rabbet/autocast.h: the table that the autocast plugin publishes as "rabbet.autocast", for its own
 * Python binding and for other plugins. All state is the thread's, but for the default dtypes. */
#ifndef RABBET_AUTOCAST_H
#define RABBET_AUTOCAST_H
#include "rabbet/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RB_AUTOCAST_EXT "rabbet.autocast"
#define RB_AUTOCAST_VERSION 1

typedef struct RbAutocast {
  uint32_t struct_size;
  int32_t layer;
  int32_t (*is_enabled)(int32_t backend); /* 1 or 0; 0 while a backward pass runs */
  void (*set_enabled)(int32_t backend, int32_t on);
  int32_t (*get_dtype)(int32_t backend); /* a dtype id */
  void (*set_dtype)(int32_t backend, int32_t dtype);
  void (*set_default_dtype)(int32_t backend, int32_t dtype); /* of all threads */
  int32_t (*is_cache_enabled)(void);
  void (*set_cache_enabled)(int32_t on);
  void (*clear_cache)(void);
  int64_t (*cached_casts)(void); /* how many the thread holds */
  /* Count the regions that the thread is in; both return the new number. */
  int32_t (*enter)(void);
  int32_t (*leave)(void);
} RbAutocast;

#ifdef __cplusplus
}
#endif
#endif
