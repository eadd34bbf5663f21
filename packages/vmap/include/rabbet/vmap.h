/* rabbet/vmap.h: the table that the plugin 'rabbet-vmap' publishes, for its binding and for other
 * plugins. */
#ifndef RABBET_VMAP_H
#define RABBET_VMAP_H
#include "rabbet/abi.h"

#define RB_VMAP_EXT "rabbet.vmap"
#define RB_VMAP_VERSION 1

#ifdef __cplusplus
extern "C" {
#endif

enum { RB_RANDOM_ERROR, RB_RANDOM_SAME, RB_RANDOM_DIFFERENT };
enum { /* how a call was batched */
       RB_ROUTE_RULE = 1,
       RB_ROUTE_DECOMP = 2,
       RB_ROUTE_LOOP = 4
};

typedef struct RbVmap {
  uint32_t struct_size;
  int32_t layer;
  /* Enter a level whose tensors stand for `size` examples each; leave it. */
  int32_t (*push)(int64_t size, int32_t randomness, int32_t strict, int32_t* level);
  int32_t (*pop)(int32_t level);
  /* The examples that lie along `dim` of `t`, as one tensor of the level. */
  int32_t (*wrap)(int32_t level, RbTensor* t, int64_t dim, RbTensor** out);
  /* What a result of the level stands for: *inner is new, *dim is -1 where it is not batched. */
  int32_t (*unwrap)(int32_t level, RbTensor* t, RbTensor** inner, int64_t* dim);
  /* Called once per operator and process that runs example by example. */
  void (*set_warning)(int32_t (*warn)(const char* message));
  /* Note from now on (or no longer) how calls are batched; visit the notes. */
  void (*record_routes)(int32_t on);
  void (*visit_routes)(void (*visit)(void* ctx, const char* op, int32_t routes), void* ctx);
  /* Of an entered level: how many examples, and RB_RANDOM_*. */
  int32_t (*level_info)(int32_t level, int64_t* size, int32_t* randomness);
} RbVmap;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
