// The scalar primitives of the language, and the host numbers and questions of emitted formulas.
#include <charconv>
#include <cmath>
#include <cstring>

#include "formula/emit.h"
#include "formula/formula_value.h"

namespace rabbet {

const std::vector<Primitive>& primitives() {
  constexpr auto kScalar = Primitive::kScalar, k32 = Primitive::kPacked32,
                 kPacked = Primitive::kPacked;
  constexpr auto kPlain = Primitive::kPlain, kSlow = Primitive::kSlow, kHeavy = Primitive::kHeavy;
  static const std::vector<Primitive> all = {{{"neg", 1, 0}, kPlain, kPacked},
                                             {{"abs", 1, 0}, kPlain, kPacked},
                                             {{"sgn", 1, 0}, kPlain, kPacked},
                                             {{"exp", 1, 0}, kHeavy, kPacked},
                                             {{"expm1", 1, 0}, kHeavy, kPacked},
                                             {{"log", 1, 0}, kHeavy, kPacked},
                                             {{"log2", 1, 0}, kHeavy, k32},
                                             {{"log10", 1, 0}, kHeavy, k32},
                                             {{"log1p", 1, 0}, kHeavy, kPacked},
                                             {{"sqrt", 1, 0}, kSlow, kPacked},
                                             {{"tan", 1, 0}, kHeavy, kScalar},
                                             {{"asin", 1, 0}, kHeavy, kPacked},
                                             {{"acos", 1, 0}, kHeavy, kPacked},
                                             {{"atan", 1, 0}, kHeavy, kPacked},
                                             {{"sinh", 1, 0}, kHeavy, kPacked},
                                             {{"cosh", 1, 0}, kHeavy, kPacked},
                                             {{"tanh", 1, 0}, kHeavy, kPacked},
                                             {{"erf", 1, 0}, kHeavy, kPacked},
                                             {{"erfc", 1, 0}, kHeavy, k32},
                                             {{"floor", 1, 0}, kPlain, kPacked},
                                             {{"ceil", 1, 0}, kPlain, kScalar},
                                             {{"trunc", 1, 0}, kPlain, kScalar},
                                             {{"round", 1, 0}, kPlain, kPacked},
                                             {{"add", 2, 0}, kPlain, kPacked},
                                             {{"sub", 2, 0}, kPlain, kPacked},
                                             {{"mul", 2, 0}, kPlain, kPacked},
                                             {{"div", 2, 0}, kSlow, kPacked},
                                             {{"div_floor", 2, 0}, kHeavy, kPacked},
                                             {{"div_trunc", 2, 0}, kPlain, kScalar},
                                             {{"remainder", 2, 0}, kHeavy, kPacked},
                                             {{"fmod", 2, 0}, kHeavy, kPacked},
                                             {{"pow", 2, 0}, kHeavy, kPacked},
                                             {{"atan2", 2, 0}, kHeavy, kPacked},
                                             {{"copysign", 2, 0}, kPlain, kPacked},
                                             {{"maximum", 2, 0}, kPlain, kPacked},
                                             {{"minimum", 2, 0}, kPlain, kPacked},
                                             {{"clamp", 3, 0}, kPlain, kPacked},
                                             {{"relu", 1, 0}, kPlain, kPacked},
                                             {{"relu_vjp", 2, 0}, kPlain, kPacked},
                                             {{"isnan", 1, 1}, kPlain, kPacked},
                                             {{"isinf", 1, 1}, kPlain, kPacked},
                                             {{"isfinite", 1, 1}, kPlain, kPacked},
                                             {{"logical_not", 1, 1}, kPlain, kScalar},
                                             {{"eq", 2, 1}, kPlain, kPacked},
                                             {{"ne", 2, 1}, kPlain, kPacked},
                                             {{"lt", 2, 1}, kPlain, kPacked},
                                             {{"le", 2, 1}, kPlain, kPacked},
                                             {{"gt", 2, 1}, kPlain, kPacked},
                                             {{"ge", 2, 1}, kPlain, kPacked}};
  return all;
}

const Primitive* find_primitive(const std::string& name) {
  for (const Primitive& p : primitives()) {
    if (name == p.info.name) return &p;
  }
  return nullptr;
}

namespace {

// The shortest text that is read back as the same number.
std::string shortest(double value) {
  if (std::isinf(value)) return value < 0 ? "-INFINITY" : "INFINITY";
  if (std::isnan(value)) return "(INFINITY - INFINITY)";  // headers of not every backend have NAN
  char text[40];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  std::string out(text, end);
  return out.find_first_of(".e") == std::string::npos ? out + ".0" : out;
}

bool compares(const std::string& sign, double x, double y) {
  if (sign == "==") return x == y;
  if (sign == "!=") return x != y;
  if (sign == "<") return x < y;
  if (sign == "<=") return x <= y;
  return sign == ">" ? x > y : x >= y;
}

}  // namespace

double HostNumber::of(const RbValue* values) const {
  switch (kind) {
    case kConstant:
      return constant;
    case kValue:
      return number_value(values[index]);
    case kNegate:
      return -a->of(values);
    case '+':
      return a->of(values) + b->of(values);
    case '-':
      return a->of(values) - b->of(values);
    case '*':
      return a->of(values) * b->of(values);
    default:
      return a->of(values) / b->of(values);
  }
}

std::string HostNumber::text() const {
  if (kind == kConstant) return shortest(constant);
  if (kind == kValue) return "number(v[" + std::to_string(index) + "])";
  if (kind == kNegate) return "(-" + a->text() + ")";
  return "(" + a->text() + " " + kind + " " + b->text() + ")";
}

bool Question::holds(const RbValue* values) const {
  if (kind == kCompares) return compares(word, left->of(values), right->of(values)) == wanted;
  const RbValue& v = values[index];
  switch (kind) {
    case kIsTensor:
      return v.tag == RB_TENSOR;
    case kIsNumber:
      return v.tag >= RB_BOOL && v.tag <= RB_FLOAT;
    case kIsNone:
      return (v.tag == RB_NONE) == wanted;
    case kIsSingle:
      return (v.tag == RB_TENSOR && v.v.t->dtype_id != RB_F64) == wanted;
    default:  // kIsText
      return (v.tag == RB_STR && word == std::string(v.v.s, v.len)) == wanted;
  }
}

std::string Question::text() const {
  const std::string v = "(v[" + std::to_string(index) + "]";
  std::string said;
  switch (kind) {
    case kIsTensor:
      return "is_tensor" + v + ")";
    case kIsNumber:
      return "is_real" + v + ")";
    case kIsNone:
      said = "is_none" + v + ")";
      break;
    case kIsSingle:
      said = "is_single" + v + ")";
      break;
    case kIsText:
      said = "is_text" + v + ", \"" + word + "\")";
      break;
    default:
      said = left->text() + " " + word + " " + right->text();
  }
  return wanted ? said : "!(" + said + ")";
}

}  // namespace rabbet
