/* rabbet/emit.h: the elementwise formulas of the operator records as source text, for backends that
 * compile their kernels at run time. `host->get_ext(RB_EMIT_EXT, RB_EMIT_VERSION)` gives an RbEmit.
 *
 * A body is the text of one C function, in the part of C that OpenCL C and CUDA C share:
 *
 *   RB_BODY T rb_body_7(T x0, T x1, T p0) { ... return t3; }
 *
 * The backend writes loops around it and defines, in front of it, the type T, RB_BODY (such as
 * `__device__ inline`) and the scalar primitives that core names: rb_exp(x), rb_add(x, y), ... with
 * arguments and results of type T (`tests` give 0 or 1). To do what the formula does step by step,
 * to the bit, compile without contraction.
 *
 * A kernel of a formula is registered as RbFormulaKernel with the op, argument and text of an
 * RbEmitFormula. When it is called, `choose` says which body the call means. */
#ifndef RABBET_EMIT_H
#define RABBET_EMIT_H

#include "rabbet/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RB_EMIT_EXT "rabbet.emit"
#define RB_EMIT_VERSION 1

#define RB_EMIT_INPUTS 3  /* most tensors that a body reads */
#define RB_EMIT_NUMBERS 4 /* most numbers of the call that a body reads */

/* A scalar function of the language; a backend supplies them all. */
typedef struct RbPrimitive {
  const char* name;
  int32_t arity;
  int32_t tests; /* 1: the result is a truth value */
} RbPrimitive;

typedef struct RbEmitFormula {
  const char* op;   /* the record */
  const char* text; /* what the kernel states */
  int32_t argument; /* the formula is its derivative; -1: the decomposition */
  int32_t nvalues;  /* of a call: the operator's arguments; of a derivative also result, gradient */
  int32_t id;
  int32_t reserved;
} RbEmitFormula;

/* How a call reaches a body. */
typedef struct RbEmitted {
  uint32_t struct_size; /* set by the caller */
  int32_t body;         /* calls with equal ones have the same text */
  int32_t ninputs, nnumbers;
  int32_t inputs[RB_EMIT_INPUTS];    /* x0, x1, ...: which value of the call it is */
  int32_t is_number[RB_EMIT_INPUTS]; /* 1: that value is a number, in the place of a tensor */
  double constants[RB_EMIT_INPUTS];  /* then the number */
  double numbers[RB_EMIT_NUMBERS];   /* p0, p1, ... */
  const char* text; /* of the function rb_body_BODY; lives as long as the process */
} RbEmitted;

typedef struct RbEmit {
  uint32_t struct_size;
  uint32_t reserved;
  /* The primitives; their number in *count. */
  const RbPrimitive* (*primitives)(int32_t* count);
  /* The elementwise formulas of the records, for the life of the process; their number in *count.
   * Null on failure. */
  const RbEmitFormula* (*formulas)(int32_t* count);
  /* Which body computes formula `id` for a call with these values. RB_E_NOTIMPL: none, the kernel
   * declines. */
  int32_t (*choose)(int32_t id, const RbValue* values, int32_t nvalues, RbEmitted* out);
} RbEmit;

#ifdef __cplusplus
}
#endif

#endif
