// Decompositions that run over the steps of recurrent networks.
#pragma once
#include "record/op.h"

namespace rabbet {

void recurrent_layer_decomp(const Op& op, const RbValue* args, int nargs, RbValue* rets, int nrets);
void recurrent_layer_backward_decomp(const Op& op, const RbValue* args, int nargs, RbValue* rets,
                                     int nrets);

}  // namespace rabbet
