// The formulas of op records: compiled into one program per operator, which one interpreter runs.
#pragma once
#include <string>

#include "record/op.h"
#include "tensor/tensor.h"

namespace rabbet {

struct Formula;  // formula_program.h

/// The compiled formulas of `op`, made at first use (thread-safe).
const Formula& compiled(const Op& op);

/// Evaluate the operator's `dtype`/`compute`/`shape` formulas on host data only (used by
/// infer.cpp).
int eval_dtype(const Op& op, int ret, const RbValue* args, int nargs);
int eval_compute(const Op& op, const RbValue* args, int nargs);
int eval_shape(const Op& op, int ret, const RbValue* args, int nargs, int64_t* shape);  // the ndim

/// Evaluate the `check` lines; throws what the first says that does not hold.
void run_checks(const Op& op, const RbValue* args, int nargs);

/// NAME of `decomp function NAME`; null: the decomposition is a formula, or there is none.
const char* decomp_function(const Op& op);
/// Whether a function in Python is the decomposition.
inline bool is_loaded_decomp(const Op& op) { return decomp_function(op) && !op.core_decomp; }

}  // namespace rabbet
