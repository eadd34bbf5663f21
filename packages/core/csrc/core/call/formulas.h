// Formulas whose operators are calls: decompositions and derivatives.
#pragma once
#include "record/op.h"

namespace rabbet {

/// Run the decomposition; the operators in it are full calls. Fills owned `rets` (nrets of them;
/// for a Tensor[] result one RB_TENSORS value). Throws Error.
void run_decomp(const Op& op, const RbValue* args, int nargs, RbValue* rets, int nrets);

/// Evaluate derivative formulas, see RbHost.vjp. Lets are evaluated once for all wanted arguments.
void run_vjp(const Op& op, uint64_t wanted, const RbValue* args, int nargs, const RbValue* outs,
             int nouts, const RbValue* grads, RbValue* results);

/// Evaluate the `jvp` formulas, see RbHost.jvp.
void run_jvp(const Op& op, const RbValue* args, int nargs, const RbValue* outs, int nouts,
             const RbValue* tangents, RbValue* results);

}  // namespace rabbet
