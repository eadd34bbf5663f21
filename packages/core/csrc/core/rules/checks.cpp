#include "rules/checks.h"

#include <cmath>

#include "formula/formula.h"
#include "rules/core_shapes.h"
#include "rules/memo.h"
#include "rules/shape_rules.h"
#include "tensor/dtype.h"
#include "tensor/promotion.h"
#include "thread/error.h"

namespace rabbet {

namespace {

std::string quoted_list(const std::vector<std::string>& values) {
  std::string text;
  for (size_t i = 0; i < values.size(); ++i) {
    if (i) text += i + 1 == values.size() ? " or " : ", ";
    text += "'" + values[i] + "'";
  }
  return text;
}

// "real bool" as "real or bool".
std::string class_words(std::string text) {
  for (size_t at = text.find(' '); at != std::string::npos; at = text.find(' ', at + 1)) {
    const bool last = text.find(' ', at + 1) == std::string::npos;
    text.insert(at, last ? " or" : ",");
    at += last ? 3 : 1;
  }
  return text;
}

bool is_choice(const Param& p, const RbValue& v) {
  if (v.tag != RB_STR) return true;  // None, where it is optional
  for (const std::string& choice : p.choices) {
    if (choice.size() == v.len && !choice.compare(0, v.len, v.v.s, v.len)) return true;
  }
  return false;
}

}  // namespace

void check_choices(const Op& op, const RbValue* args, int nargs) {
  for (uint64_t rest = op.choice_args; rest; rest &= rest - 1) {
    const int i = __builtin_ctzll(rest);
    if (i >= nargs) return;
    const Param& p = op.params[i];
    if (__builtin_expect(is_choice(p, args[i]), 1)) continue;
    fail(RB_E_ARG, "%s: '%s' must be %s%s, got '%.*s'", op.name.c_str(), p.name,
         p.flags & RB_ARG_OPTIONAL ? "None, " : "", quoted_list(p.choices).c_str(),
         static_cast<int>(args[i].len), args[i].v.s);
  }
}

namespace {

// Numbers that every dtype holds, or every floating one where the first tensor is floating.
inline bool fits_all(const Op& op, const RbValue* args, const RbValue& v) {
  if (v.tag == RB_INT) return v.v.i >= -128 && v.v.i <= 127;
  if (v.tag != RB_FLOAT) return v.tag == RB_BOOL;
  if (v.v.f >= 0 && v.v.f <= 127) return true;
  const RbValue* first = op.first_tensor < 0 ? nullptr : args + op.first_tensor;
  return first && first->tag == RB_TENSOR && is_floating(first->v.t->dtype_id) &&
         std::fabs(v.v.f) <= 448;
}

}  // namespace

void check_fits(const Op& op, const RbValue* args, int nargs) {
  for (uint64_t rest = op.fit_args; rest; rest &= rest - 1) {
    const int i = __builtin_ctzll(rest);
    if (i >= nargs) return;
    if (!is_number(args[i]) || fits_all(op, args, args[i])) continue;
    const int dtype = result_dtype(op, 0, args, nargs);
    if (dtype >= 0) check_number_fits(op.base.c_str(), op.params[i].name, args[i], dtype);
  }
}

void check_factors(const Op& op, const RbValue* args, int nargs, int dtype) {
  for (uint64_t rest = op.factor_args; rest; rest &= rest - 1) {
    const int i = __builtin_ctzll(rest);
    if (i >= nargs || (args[i].tag == RB_INT && args[i].v.i == 1)) continue;
    const char *name = op.params[i].name, *what = op.name.c_str();
    if (args[i].tag == RB_BOOL && dtype != RB_BOOL8)
      fail(RB_E_TYPE, "%s: Boolean %s only supported for Boolean results, got %s", what, name,
           kDTypes[dtype].name);
    if ((args[i].tag == RB_FLOAT || args[i].tag == RB_COMPLEX) && is_integral(dtype))
      fail(RB_E_TYPE,
           "%s: For integral input tensors, argument %s must not be a floating point number", what,
           name);
    if (args[i].tag == RB_COMPLEX && !is_complex(dtype))
      fail(RB_E_TYPE, "%s: For non-complex input tensors, argument %s must not be a complex number",
           what, name);
    check_number_fits(op.base.c_str(), name, args[i], dtype);
  }
}

void check_arguments(const Op& op, const RbValue* args, int nargs) {
  Facts* facts = recall(op, args, nargs);
  if (facts && facts->checked) return;
  if (op.shape_rule == ShapeRule::kCore) {  // the lines may rely on it
    Inferred out;
    core_shapes(op, args, nargs, out);
  }
  run_checks(op, args, nargs);
  if (facts) recall(op, args, nargs)->checked = true;
}

void check_accepted(const Op& op, int dtype) {
  if (op.dtypes_text.empty() || __builtin_expect(op.accepted >> kDTypes[dtype].category & 1, 1))
    return;
  fail(RB_E_DTYPE, "%s: expected %s dtypes, got %s", op.name.c_str(),
       class_words(op.dtypes_text).c_str(), kDTypes[dtype].name);
}

void check_reducible(const Op& op, const RbTensor& x, const bool* gone) {
  if (op.identity != "none") return;
  for (int d = 0; d < x.ndim; ++d) {
    if (!gone[d] || x.shape[d]) continue;
    fail(RB_E_INDEX,
         "%s: dimension %d of shape %s is empty, and the reduction of no elements has no value",
         op.name.c_str(), d, shape_text(x.ndim, x.shape).c_str());
  }
}

}  // namespace rabbet
