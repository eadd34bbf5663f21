// The formulas of op records: compiled into one program per operator, which one interpreter runs.
#pragma once
#include <string>

#include "record/op.h"
#include "tensor/tensor.h"

namespace rabbet {

struct Formula;  // formula_program.h

/// The compiled formulas of `op`, made at first use (thread-safe).
const Formula& compiled(const Op& op);

/// Run the decomposition; the operators in it are full calls. Fills owned `rets` (nrets of them;
/// for a Tensor[] result one RB_TENSORS value). Throws Error.
void run_decomp(const Op& op, const RbValue* args, int nargs, RbValue* rets, int nrets);

/// What a kernel of a whole formula has to state (RbFormulaKernel.formula): the signature, the
/// lets, and the decomposition (argument -1) or the derivative for an argument; a line each.
std::string formula_text(const Op& op, int argument);

/// Evaluate derivative formulas, see RbHost.vjp. Lets are evaluated once for all wanted arguments.
void run_vjp(const Op& op, uint64_t wanted, const RbValue* args, int nargs, const RbValue* outs,
             int nouts, const RbValue* grads, RbValue* results);

/// Evaluate the `jvp` formulas, see RbHost.jvp.
void run_jvp(const Op& op, const RbValue* args, int nargs, const RbValue* outs, int nouts,
             const RbValue* tangents, RbValue* results);

/// Evaluate the operator's `dtype`/`compute`/`shape` formulas on host data only (used by
/// infer.cpp).
int eval_dtype(const Op& op, int ret, const RbValue* args, int nargs);
int eval_compute(const Op& op, const RbValue* args, int nargs);
int eval_shape(const Op& op, int ret, const RbValue* args, int nargs, int64_t* shape);  // the ndim

/// Evaluate the `check` lines; throws what the first says that does not hold.
void run_checks(const Op& op, const RbValue* args, int nargs);

/// Decompositions that are functions, `decomp function NAME`: of core, or in Python, in the module
/// of the record's family, which the loader registers at first use.
using DecompFn = void (*)(const Op& op, const RbValue* args, int nargs, RbValue* rets, int nrets);
using DecompLoader = int32_t (*)(const char* op, const char* family, const char* function);
void set_decomp_loader(DecompLoader load);
/// NAME of `decomp function NAME`; null: the decomposition is a formula, or there is none.
const char* decomp_function(const Op& op);
/// Whether the function is none of core.
bool is_loaded_decomp(const Op& op);
void run_decomp_function(const Op& op, const RbValue* args, int nargs, RbValue* rets, int nrets);

}  // namespace rabbet
