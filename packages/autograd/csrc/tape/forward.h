// Forward mode: dual numbers as levels of the transform stack. A dual is a wrapper of a primal and
// its tangent, or none, which is zero.
#pragma once
#include "node.h"

namespace tape {

int32_t add_dual_layer(RbTxn* txn);

/// See RbAutograd.
int32_t dual_enter(int32_t* level);
int32_t dual_exit(int32_t level);
int32_t dual_make(int32_t level, RbTensor* primal, RbTensor* tangent, int32_t linked,
                  RbTensor** out);
int32_t dual_unpack(int32_t level, RbTensor* t, RbTensor** primal, RbTensor** tangent);
int32_t is_dual_level(int32_t level);

/// Whether all levels of `t` above `level` are live ones of forward mode.
bool duals_above(const RbTensor* t, int32_t level);

/// What a dual call knows: the operator, its arguments below the level, and their tangents.
struct DualCall {
  const RbCall* call;
  const RbOpInfo* info;
  const RbValue* args;  // of the inner tensors
  int32_t nargs;
  const RbValue* tangents;  // per argument: RB_TENSOR, RB_TENSORS (entries may be null), or RB_ZERO
  uint64_t moving;          // arguments that have a tangent, a bit each
  const RbValue* rets;      // the results, once they are known
  int32_t nrets;
};

/// The tangents of the results by the rule that the record has; owned, null: zero. RB_E_NOTIMPL
/// without a message: there is none. rules: forward_rules.cpp.
int32_t tangents_of(const DualCall& c, RbTensor** out);
/// Whether tangents_of has a rule; else the decomposition is to run.
bool has_rule(const DualCall& c);

}  // namespace tape
