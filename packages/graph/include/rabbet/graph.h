/* rabbet/graph.h: programs, which call operators one after the other without Python. The module
 * rabbet.graph publishes the table as "rabbet.graph" when it is imported. Functions return a status
 * code unless said otherwise. */
#ifndef RABBET_GRAPH_H
#define RABBET_GRAPH_H
#include "rabbet/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RB_GRAPH_EXT "rabbet.graph"
#define RB_GRAPH_VERSION 1

/* Tensors lie in numbered slots: first the inputs, then what steps make. */
typedef struct RbProgram RbProgram;

typedef struct RbPlace { /* where a step's arguments have a tensor */
  int32_t arg, item;     /* item: of a list of tensors, or -1 */
  uint32_t slot;
} RbPlace;

typedef struct RbNumberPlace { /* where a step's arguments have a number of the run */
  int32_t arg;
  uint32_t number;
} RbNumberPlace;

enum { RB_STEP_LIST = 1 }; /* RbStep.flags: the operator has one result, a list of tensors */

typedef struct RbStep {
  uint32_t struct_size, flags;
  const RbOp* op;
  /* One for each parameter, which the program copies. Generators and Python objects are borrowed as
   * long as the program lives. Tensors are left out: `places` says where they go. */
  const RbValue* args;
  int32_t nargs;
  int32_t nplaces;
  const RbPlace* places;
  /* Slots of the tensors that the call writes in place of making results; none: it makes them. */
  const uint32_t* outs;
  int32_t nouts;
  int32_t nresults;        /* the length of the list, with RB_STEP_LIST */
  const uint32_t* results; /* their slots, which nothing else has made */
  /* Slots of steps that nothing reads after this one. */
  const uint32_t* last;
  int32_t nlast;
  int32_t reserved;
  uint64_t
      exclude; /* layers that are off during the call, beside those of the thread: bits by id */
  /* Numbers that each run gives anew: integers or floats in the place of those in `args`. */
  const RbNumberPlace* numbers;
  int32_t nnumbers;
  int32_t reserved2;
} RbStep;

typedef struct RbGraph {
  uint32_t struct_size, flags;
  int32_t (*program_new)(uint32_t ninputs, uint32_t nslots, RbProgram** out);
  int32_t (*program_add)(RbProgram*, const RbStep*);
  /* Which slots a run gives back; once, after all steps. */
  int32_t (*program_finish)(RbProgram*, const uint32_t* slots, uint32_t n);
  /* Any number of threads may run a program. `outputs` receives owned tensors, one for each slot of
   * program_finish. After an error *failed is the number of the step that raised it, from 0 on, or
   * -1; it may be null. */
  int32_t (*program_run)(const RbProgram*, RbTensor* const* inputs, uint32_t ninputs,
                         RbTensor** outputs, uint32_t noutputs, int32_t* failed);
  void (*program_free)(RbProgram*); /* null is ignored */
  /* program_run for programs whose steps have numbers of the run. A float in the place of an
   * integer is refused. */
  int32_t (*program_run_with)(const RbProgram*, RbTensor* const* inputs, uint32_t ninputs,
                              const RbValue* numbers, uint32_t nnumbers, RbTensor** outputs,
                              uint32_t noutputs, int32_t* failed);
} RbGraph;

#ifdef __cplusplus
}
#endif
#endif
