// The compiled form of an operator's formulas: one flat program of numbered values.
#pragma once
#include <deque>
#include <string>
#include <vector>

#include "formula/formula_nodes.h"

namespace rabbet {

struct HostFunction;

/// What one instruction does with the values in its slots `to`, `to + 1`, ...; the result goes to
/// slot `to`.
enum class Code : uint8_t {
  kEnter,     // a block begins; count: slots that it needs
  kConstant,  // index: of `constants`
  kZero,      // a gradient known to be zero
  kArgument,  // index
  kResult,    // index of the result
  kGradient,  // index of the result
  kTangent,   // index of the argument
  kLocal,     // index of a comprehension's variable
  kLet,       // index of `lets`: the value of that block, which runs once
  kNegate,
  kNot,
  kBinary,     // of two values by `op`; index: the operator for tensors in `callees`, -1: none
  kJump,       // index: of the instruction where to go on
  kUnless,     // go there unless the value, which is dropped, holds
  kIfFalse,    // go there and keep the value if it does not hold, else drop it
  kIfTrue,     // go there and keep the value if it holds, else drop it
  kCall,       // index: of `callees`; count values
  kHost,       // index: of `functions`; count values
  kList,       // count values
  kEach,       // count lists; index: of `loops`
  kItem,       // list, index; index: 1 for the list of a `.shape`, else 0
  kSlice,      // list, from, to (None: the ends)
  kAttribute,  // index: 0 shape, 1 ndim, 2 dtype, 3 device
  kReturn      // the value of the block
};

struct Instruction {
  Code code;
  Operator op = Operator::kNeg;
  int16_t to = 0, count = 0;
  int32_t index = 0;
};

/// Operators that the interpreter knows a short way for.
enum class ShortWay : uint8_t {
  kNone,
  kRealPart,   // conj, real: what is real already stays as it is
  kWhere,      // a condition on host data chooses one of the two
  kTranspose,  // mT: a view, made without dispatch where no layer would see it
  kLike        // zeros_like and the like: of what was not kept the shape is enough
};

struct Callee {
  const Op* op = nullptr;
  std::vector<int8_t> places;      // which argument each given value is
  std::vector<RbValue> arguments;  // one per argument, the defaults set
  ShortWay way = ShortWay::kNone;
  const Op* creator = nullptr;  // of kLike
};

/// A check of the record: blocks of its condition and of the values in its message, which stand
/// between the texts.
struct CheckBlocks {
  int32_t condition = -1;
  std::vector<std::string> texts;
  std::vector<int32_t> values;
};

struct Formula {
  std::vector<Instruction> code;
  std::vector<RbValue> constants;
  std::deque<std::string> strings;  // of the constants
  std::vector<Callee> callees;
  std::vector<const HostFunction*> functions;
  // First instructions of blocks.
  std::vector<std::string> let_names;
  std::vector<int32_t> lets;
  int32_t decomp = -1, compute = -1;
  std::vector<int32_t> dtypes, shapes;
  std::vector<CheckBlocks> checks;
  std::vector<int32_t> vjps;  // per parameter, -1: none
  std::vector<int32_t> jvps;  // per result, -1: none
  struct Loop {
    int32_t block, first_local;
  };
  std::vector<Loop> loops;  // of kEach
  int32_t locals = 0;
};

/// Compile all formulas of an operator; throws Error naming its file and line.
std::shared_ptr<Formula> compile_formulas(const Op& op);
/// While it lives, formulas of the thread may also call `ops`, which are not registered yet.
class FreshOps {
 public:
  explicit FreshOps(const std::vector<std::unique_ptr<Op>>& ops);
  ~FreshOps();
  FreshOps(const FreshOps&) = delete;
  FreshOps& operator=(const FreshOps&) = delete;
};
/// Check the definitions that the operator's formulas may use, whether they do or not.
void check_definitions(const Op& op);

/// Append the block that computes node `root` of `tree`; returns its first instruction.
int32_t append_block(const Tree& tree, int32_t root, Formula& out);

}  // namespace rabbet
