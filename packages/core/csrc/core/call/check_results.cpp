#include "call/check_results.h"

namespace rabbet {

bool says_results(const Op& op) {
  if (op.returns_list || op.is_view()) return false;
  if (op.rules[kShapeRule].fn) return true;
  return op.shape_rule != ShapeRule::kData && op.shape_rule != ShapeRule::kKernel &&
         (op.info.kind != RB_KIND_COMPOSITE || !op.shape_text.empty());
}

bool takes_device(const Op& op) {
  return std::any_of(op.params.begin(), op.params.end(),
                     [](const Param& p) { return p.type == RB_A_DEVICE; });
}

}  // namespace rabbet
