/* rabbet/functionalize.h: the table by which programs are run without writes, for the binding and
 * for other plugins (a compiler). */
#ifndef RABBET_FUNCTIONALIZE_H
#define RABBET_FUNCTIONALIZE_H
#include "rabbet/abi.h"

#define RB_FUNCTIONALIZE_EXT "rabbet.functionalize"
#define RB_FUNCTIONALIZE_VERSION 1

#ifdef __cplusplus
extern "C" {
#endif

typedef struct RbFunctionalize {
  uint32_t struct_size;
  int32_t layer;
  /* Enter a level below which nothing is written, and (`copies`) no result shares memory with an
   * argument; leave it. */
  int32_t (*push)(int32_t copies, int32_t* level);
  int32_t (*pop)(int32_t level);
  /* What stands for `t` inside; tensors that share memory do so there too. */
  int32_t (*wrap)(int32_t level, RbTensor* t, RbTensor** out);
  /* The value of a tensor now; one that does not belong to the level is itself. */
  int32_t (*unwrap)(int32_t level, RbTensor* t, RbTensor** value);
  /* Visit the tensors from outside that the level has written to and the values that they should
   * get (both borrowed), in the order in which the level met them. */
  int32_t (*visit_written)(int32_t level, void (*visit)(void*, RbTensor*, RbTensor*), void* ctx);
} RbFunctionalize;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
