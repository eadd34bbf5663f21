#pragma once
#include "node.h"

namespace tape {

/// The layer's fallback: every operator passes here while some argument is recorded.
int32_t handle_call(void* self, const RbCall* call, const RbValue* args, int32_t nargs,
                    RbValue* rets, int32_t nrets);

/// What it does with such a call, see RbExplain.
int32_t explain_call(const RbOp* op, const RbValue* args, int32_t nargs, char* text, uint32_t size);

}  // namespace tape
