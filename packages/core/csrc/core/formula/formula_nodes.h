// The parsed form of formulas: a flat array of nodes per operator.
#pragma once
#include <mutex>
#include <string>
#include <vector>

#include "record/op.h"

namespace rabbet {

enum class NodeKind : uint8_t {
  kNumber,    // value
  kString,    // text
  kArgument,  // index
  kResult,    // index
  kGradient,  // index of the result
  kTangent,   // index of the argument
  kLet,       // index
  kLocal,     // index of a comprehension variable
  kDType,     // index: dtype id
  kZero,
  kUnary,   // text: - not
  kBinary,  // text: + - * / // % ** & | == != < <= > >= is "is not" and or
  kCond,    // kids: value, condition, otherwise
  kCall,    // callee with kids per parameter (-1: default)
  kHost,    // text: function on host data
  kList,
  kComprehension,  // kids: item, iterables...; index: first local, count: number of locals
  kIndex,          // kids: list, index
  kSlice,          // kids: list, from (-1), to (-1)
  kAttribute       // text: shape ndim dtype device
};

enum class Operator : uint8_t {
  kNeg,
  kNot,
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFloorDiv,
  kMod,
  kPow,
  kBitAnd,
  kBitOr,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kIs,
  kIsNot,
  kAnd,
  kOr
};

struct Node {
  explicit Node(NodeKind k) : kind(k) {}
  NodeKind kind;
  Operator op = Operator::kNeg;
  int32_t index = 0, count = 0;
  RbValue value{};
  std::string text;
  const Op* callee = nullptr;
  std::vector<int32_t> kids;
};

struct LetBinding {
  std::string name;  // empty: a value that a `def` was given
  int32_t root = -1;
};

/// A check of the record: its condition, and the message in parts, text and formulas by turns.
struct CheckNodes {
  int32_t condition = -1;
  std::vector<std::string> texts;  // one more than values
  std::vector<int32_t> values;
};

struct Formula {
  std::vector<Node> nodes;
  std::vector<LetBinding> lets;
  int32_t locals = 0;
  int32_t decomp = -1, compute = -1;
  std::vector<int32_t> dtypes, shapes;
  std::vector<CheckNodes> checks;
  std::vector<int32_t> vjps;             // per parameter, -1: none
  std::vector<int32_t> jvps;             // per result, -1: none
  mutable std::vector<uint8_t> refused;  // per parameter: the quick evaluator does not take its vjp
};

/// Compile all formulas of an operator; throws Error naming its file and line.
std::shared_ptr<Formula> compile_formulas(const Op& op);
/// Check the definitions that the operator's formulas may use, whether they do or not.
void check_definitions(const Op& op);

}  // namespace rabbet
