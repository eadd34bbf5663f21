// How calls that write to given tensors are recorded.
#pragma once
#include "recorder.h"

namespace tape {

/// A write of values that carry no gradient over a recorded tensor: random numbers.
int32_t write_detached(const RbCall* call, const RbOpInfo* info, const RbValue* args, int32_t nargs,
                       RbValue* rets, int32_t nrets);
/// A write in place by a decomposition. It reads a copy of the target, because its operators may
/// save values that the result then overwrites.
int32_t decompose_write(const RbCall* call, const RbValue* args, int32_t nargs, RbValue* rets);
/// A write in place whose arguments require gradients.
int32_t record_write(const RbCall* call, const RbOpInfo* info, const RbValue* args, int32_t nargs,
                     RbValue* rets, int32_t nrets, const Recorded& recorded, const Reads& reads);
/// A write of results that carry no gradient, over values that may carry one.
int32_t write_unrecorded(const RbCall* call, const RbOpInfo* info, const RbValue* args,
                         int32_t nargs, RbValue* rets, int32_t nrets, const Recorded& recorded);
/// A user's function wrote `view` in place, and result `output` of `value` is its history now: give
/// the base of the view the history that follows.
int32_t record_view_write(RbTensor* view, Node* value, uint32_t output);

}  // namespace tape
