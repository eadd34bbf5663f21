// Which results of a view operator are views of a composite, and what is done with the others.
#pragma once
#include <functional>
#include <string>

#include "layer/layers.h"
#include "record/op.h"
#include "tensor/tensor.h"

namespace rabbet {

/// Whether a view record can keep the arguments beside the first one.
bool can_be_recorded(const RbValue* args, int32_t nargs);

/// Make the composites among the results of a view operator views of args[0], a composite of
/// `layer`: with a view record and the version counter of args[0]. Results that share no memory
/// with args[0] become read-only. Throws where it cannot be said which of both a result is; `whose`
/// names the handler.
void finish_views(const LayerEntry& layer, const Op& op, const RbValue* args, int32_t nargs,
                  RbValue* rets, int32_t nrets, const std::function<std::string()>& whose);

}  // namespace rabbet
