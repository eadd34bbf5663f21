// Modes: code of the user that stands around every operator call of a thread, below the tape and
// all transforms.
#pragma once
#include "node.h"

namespace tape {

int32_t add_call_mode_layer(RbTxn* txn);
/// See RbAutograd.push_call_mode and the members after it.
void push_call_mode(RbCallMode fn, void* ctx, void (*del)(void*));
void pop_call_mode();
int32_t call_mode_run(const RbCall* call, const RbValue* args, int32_t nargs, RbValue* rets,
                      int32_t nrets);

}  // namespace tape
