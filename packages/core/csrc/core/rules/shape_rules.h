// Shape functions that records name (`shape function NAME`), and checks of arguments beyond shapes.
#pragma once
#include <string>
#include <vector>

#include "rules/infer.h"
#include "tensor/shape.h"

namespace rabbet {

/// A function that records name; those of attention and recurrent layers.
struct ShapeFunction {
  const char* name;
  void (*fn)(const Op&, const RbValue* args, int nargs, Inferred& out);
};
const std::vector<ShapeFunction>& layer_shape_functions();
/// The tensor of a list that says how many dimensions there are: the first that is not empty and
/// 1-d, as PyTorch joins those with tensors of any shape; else the first.
const RbTensor* first_joined(const RbValue& list);
/// Run the function that the record names; fills every result's shape.
void run_shape_rule(const Op& op, const RbValue* args, int nargs, Inferred& out);

}  // namespace rabbet
