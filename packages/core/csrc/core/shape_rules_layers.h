// Shape functions of attention and of recurrent layers.
#pragma once
#include "infer.h"

namespace rabbet {

void attention_shape(const Op& op, const RbValue* args, int nargs, Inferred& out);
void attention_backward_shape(const Op& op, const RbValue* args, int nargs, Inferred& out);
void recurrent_layer_shape(const Op& op, const RbValue* args, int nargs, Inferred& out);
void recurrent_layer_backward_shape(const Op& op, const RbValue* args, int nargs, Inferred& out);

}  // namespace rabbet
