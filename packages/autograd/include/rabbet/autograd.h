/* rabbet/autograd.h: the table that the autograd plugin publishes as "rabbet.autograd", for its own
 * Python binding and for other plugins (func.grad). All functions return a status code unless said
 * otherwise. */
#ifndef RABBET_AUTOGRAD_H
#define RABBET_AUTOGRAD_H
#include "rabbet/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RB_AUTOGRAD_EXT "rabbet.autograd"
#define RB_AUTOGRAD_VERSION 1

typedef struct RbNode RbNode; /* one recorded call; reference-counted */

enum {                              /* flags of `run` */
       RB_BACKWARD_RETAIN = 1,      /* keep saved values for another run */
       RB_BACKWARD_CREATE = 2,      /* record the run itself */
       RB_BACKWARD_ACCUMULATE = 4,  /* add to .grad of leaves (of `inputs` only, if given) */
       RB_BACKWARD_ALLOW_UNUSED = 8 /* an input that the outputs do not depend on gives null */
};

/* A hook sees a gradient and may replace it by an owned tensor. */
typedef int32_t (*RbGradHook)(void* ctx, RbTensor* grad, RbTensor** replacement);
/* A node hook sees the gradients of a node's inputs (after) or outputs (before); entries may be
 * null and may be replaced by owned tensors, the old ones being released. */
typedef int32_t (*RbNodeHook)(void* ctx, RbTensor** inputs, int32_t ninputs, RbTensor** outputs,
                              int32_t noutputs);
/* The backward of a user's function: grads has `noutputs` entries (null: zero), results receives
 * owned tensors or null for each of the `ninputs` inputs. */
typedef int32_t (*RbCustomBackward)(void* ctx, RbTensor* const* grads, int32_t noutputs,
                                    RbTensor** results, int32_t ninputs);

/* Hooks that replace tensors while they wait for backward. `pack` may return a code; `*packed` is
 * owned and goes through `drop`. `unpack` gives an owned tensor, and may be called several times.
 */
typedef struct RbSavedHooks {
  int32_t (*pack)(void* ctx, RbTensor* tensor, void** packed);
  int32_t (*unpack)(void* ctx, void* packed, RbTensor** tensor);
  void (*drop)(void* packed);
} RbSavedHooks;

/* Stands around the calls of a thread. It fills `rets` by `call_mode_run` with the same arguments,
 * or itself; where RB_CALL_OUT is set they are given. The thread records nothing meanwhile. */
typedef int32_t (*RbCallMode)(void* ctx, const RbCall* call, const RbValue* args, int32_t nargs,
                              RbValue* rets, int32_t nrets);

/* What is known of a saved value: where it stands (an argument's or a result's name). */
typedef struct RbSaved {
  const char* name; /* null: there are no more */
  int32_t is_result;
  int32_t is_kept;   /* 0: only its shape is */
  int32_t is_packed; /* a saved-tensors hook has packed it */
} RbSaved;

/* A `grad` that has been entered: differentiation of a function, nested like the calls themselves.
 */
typedef struct RbGradFrame {
  uint32_t struct_size;
  uint16_t nest;      /* from 1 on */
  int16_t depth;      /* levels of transforms around it */
  int16_t enclosing;  /* the same of the grad around it; 0 if there is none */
  uint16_t recording; /* whether the code around it records */
} RbGradFrame;

typedef struct RbAutograd {
  uint32_t struct_size;
  int32_t layer;
  int32_t (*requires_grad)(const RbTensor*); /* 1 or 0 */
  int32_t (*set_requires_grad)(RbTensor*, int32_t on);
  int32_t (*is_leaf)(const RbTensor*);            /* 1 or 0 */
  RbTensor* (*get_grad)(const RbTensor*);         /* borrowed or null */
  int32_t (*set_grad)(RbTensor*, RbTensor* grad); /* null clears */
  int32_t (*retain_grad)(RbTensor*);
  int32_t (*retains_grad)(const RbTensor*);        /* 1 or 0 */
  RbNode* (*grad_fn)(RbTensor*, uint32_t* output); /* owned, or null for a leaf */
  RbNode* (*accumulator)(RbTensor* leaf);          /* owned */
  void (*node_retain)(RbNode*);
  void (*node_release)(RbNode*);
  const char* (*node_name)(const RbNode*);
  int32_t (*node_inputs)(const RbNode*);
  RbNode* (*node_input)(const RbNode*, int32_t i, uint32_t* output); /* borrowed or null */
  RbTensor* (*node_variable)(const RbNode*); /* the leaf of an accumulator, borrowed; else null */
  uint64_t (*node_sequence)(const RbNode*);

  /* d(outputs) with output gradients `grads` (entries may be null for scalars). With inputs:
   * results receives owned gradients unless accumulating. */
  int32_t (*run)(RbTensor* const* outputs, RbTensor* const* grads, int32_t noutputs,
                 RbTensor* const* inputs, int32_t ninputs, uint32_t flags, RbTensor** results);

  /* Hooks return an id > 0 for `remove_*_hook`. `del(ctx)` runs when the hook goes. */
  int64_t (*add_grad_hook)(RbTensor*, RbGradHook, void* ctx, void (*del)(void*),
                           int32_t after_accumulation);
  int64_t (*add_node_hook)(RbNode*, RbNodeHook, void* ctx, void (*del)(void*), int32_t before);
  void (*remove_grad_hook)(RbTensor*, int64_t id);
  void (*remove_node_hook)(RbNode*, int64_t id);

  /* Give `outputs`, of floating or complex dtypes, a history made of a user's backward. */
  int32_t (*record_custom)(const char* name, RbTensor* const* inputs, int32_t ninputs,
                           RbTensor* const* outputs, int32_t noutputs, RbCustomBackward, void* ctx,
                           void (*del)(void*), RbNode** out);
  int32_t (*detach_in_place)(RbTensor*);
  void (*set_anomaly)(int32_t check_nan); /* per process */
  int64_t (*live_nodes)(void);

  /* The thread's stack of saved-tensors hooks. `del(ctx)` runs when nothing is packed with it. */
  void (*push_saved_hooks)(const RbSavedHooks*, void* ctx, void (*del)(void*));
  void (*pop_saved_hooks)(void);
  /* The custom node whose backward runs on this thread, borrowed; null: none. */
  RbNode* (*running_node)(void);
  /* Make result `output` of a node the history of a tensor. */
  void (*set_history)(RbTensor*, RbNode*, uint32_t output);

  /* Differentiation as a transform. Enter, give the function `inside` for each input, `run` with
   * the `handles` as inputs (with RB_BACKWARD_CREATE where an output is open), pass all that leaves
   * the function through `grad_result`, exit; also after an error. */
  int32_t (*grad_enter)(RbGradFrame* out);
  int32_t (*grad_exit)(const RbGradFrame*);
  int32_t (*grad_input)(const RbGradFrame*, RbTensor* x, RbTensor** inside, RbTensor** handle);
  /* 1 if a tensor's history reaches what is outside the frame, else 0. */
  int32_t (*grad_open)(const RbGradFrame*, const RbTensor*);
  /* After grad_exit: the graph of the outputs stays, to be run later; `grad_open` and `grad_result`
   * then ask for whoever is around at the time. */
  void (*grad_close)(RbGradFrame*, RbTensor* const* outputs, int32_t n);
  /* The tensor without the history that nobody outside can ask for; owned. */
  int32_t (*grad_result)(const RbGradFrame*, RbTensor*, RbTensor** out);

  /* Dual numbers (forward mode): a level on the transform stack. `tangent` null: zero. With
   * `linked`, the dual itself has a history if the primal has one. */
  int32_t (*dual_enter)(int32_t* level);
  int32_t (*dual_exit)(int32_t level);
  int32_t (*dual_make)(int32_t level, RbTensor* primal, RbTensor* tangent, int32_t linked,
                       RbTensor** out);
  /* Owned; a tensor that is no dual of the level is its own primal. *tangent is null for zero. */
  int32_t (*dual_unpack)(int32_t level, RbTensor*, RbTensor** primal, RbTensor** tangent);

  /* The backward run that goes on in the thread, innermost: a number of its own; 0: none. */
  uint64_t (*current_run)(void);
  int32_t (*run_has_inputs)(void); /* 1 if it asks for the gradients of some tensors, else 0 */
  /* Which of the nodes run in it: 1 or 0 for each. */
  void (*run_reaches)(RbNode* const* nodes, int32_t n, uint8_t* out);
  /* The `ctx` of the thread's innermost saved-tensors hooks where their `pack` is this one; else
   * null. Borrowed. */
  void* (*saved_hooks)(int32_t (*pack)(void*, RbTensor*, void**));

  /* The thread's stack of modes, and what is below the innermost one. */
  void (*push_call_mode)(RbCallMode, void* ctx, void (*del)(void*));
  void (*pop_call_mode)(void);
  int32_t (*call_mode_run)(const RbCall*, const RbValue* args, int32_t nargs, RbValue* rets,
                           int32_t nrets);

  /* What a recorded call keeps, by number from 0 on. node_load gives the value to `use`, unpacked
   * where a hook packed it, or returns the code of a tensor that was written or freed. */
  RbSaved (*node_saved)(const RbNode*, int32_t i);
  int32_t (*node_load)(RbNode*, int32_t i, int32_t (*use)(void* ctx, const RbValue*), void* ctx);
  /* Put what `pack` makes of a kept tensor in its place. The ctx is taken over, also on errors. */
  int32_t (*node_pack)(RbNode*, int32_t i, const RbSavedHooks*, void* ctx, void (*del)(void*));
  /* An object that lives as long as the node, in place of the last one. */
  void* (*node_object)(const RbNode*);
  void (*node_set_object)(RbNode*, void* object, void (*del)(void*));
  /* The line of the program that made the node ("file.py:12 in name"), or null: it is kept while
   * `keep_sources` is on in the process. */
  const char* (*node_source)(const RbNode*);
  void (*keep_sources)(int32_t on);
  /* What hooks and user functions hold of a tensor that has a single user, and of the part of its
   * graph that only it can reach: their `ctx` with their `del`. A non-zero answer of `visit` ends
   * it and is returned. */
  int32_t (*each_context)(RbTensor*, int32_t (*visit)(void* arg, void* ctx, void (*del)(void*)),
                          void* arg);
  /* Drop the hooks among them. */
  void (*drop_hooks)(RbTensor*);
  /* Runs after each node of this thread's backward runs with the node's gradients, before its own
   * hooks; null: nothing. */
  void (*watch_nodes)(int32_t (*fn)(void* ctx, RbNode*, RbTensor* const* grads, int32_t n),
                      void* ctx, void (*del)(void*));
  /* The `ctx` of what runs now where that is `fn`; else null. */
  void* (*node_watcher)(int32_t (*fn)(void* ctx, RbNode*, RbTensor* const* grads, int32_t n));
  int32_t (*node_is_freed)(const RbNode*);
  int32_t (*is_dual_level)(int32_t level); /* 1 or 0, of the calling thread */

  /* 1 if a call is recorded that has the tensor among its arguments, the highest of which has
   * `level`; else 0. */
  int32_t (*recorded_at)(const RbTensor*, int32_t level);
  /* The flags of the run that running_node() belongs to. */
  uint32_t (*running_flags)(void);
  /* What record_custom got as `ctx`, if the node is one of that backward; else null. */
  void* (*custom_context)(const RbNode*, RbCustomBackward);
  /* Shape, dtype and device of a result; null: the node has not so many. */
  const RbMeta* (*node_result)(const RbNode*, uint32_t output);
  /* Call fn(ctx) when the outermost backward run of the calling thread has ended, as one of several
   * in their order: its code is that of the run. `del` runs once, whether `fn` was called or, where
   * the run failed, was not; it may be null. RB_E_STATE outside of a run. */
  int32_t (*at_end)(int32_t (*fn)(void* ctx), void* ctx, void (*del)(void* ctx));
  /* 1 if backward passes may run hooks of the tensor, or of the accumulator of a leaf; else 0. */
  int32_t (*has_hooks)(const RbTensor*);
} RbAutograd;

#ifdef __cplusplus
}
#endif
#endif
