// Formulas as the parser reads them: trees in one array of nodes per operator, made into a program
// (formula_program.h) at once.
#pragma once
#include <memory>
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

constexpr int kMaxLets = 64;

/// What the parser makes.
struct Tree {
  std::vector<Node> nodes;
  std::vector<LetBinding> lets;
  int32_t locals = 0;
};

}  // namespace rabbet
