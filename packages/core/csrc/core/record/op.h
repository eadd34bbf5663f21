// Operators: the parsed record, what the dispatcher derives from it, and the table of handlers.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "rabbet/abi.h"
#include "record/core_signature.h"
#include "thread/keys.h"

namespace rabbet {

struct Op;
struct Formula;  // formula.h
struct Inferred;

struct Param : RbArgInfo {
  std::string name_text;
  int32_t fixed_len = 0;        // int[2]: 2
  bool optional_items = false;  // Tensor?[]
  bool variadic = false;        // Tensor[] *tensors: also given one by one
  std::string default_text;     // as written; empty: required
  bool has_default = false;
  std::vector<int64_t> default_ints;  // storage of a list default
  std::string default_str;
  std::vector<std::string> choices;  // str{'a','b'}: the values that it may have; empty: any
};

/// `def NAME(PARAMS) = TEXT`: a part of formulas that is no operator.
struct Definition {
  std::string name, text, place;  // place: file:line
  std::vector<std::string> params;
};

/// `check CONDITION : MESSAGE`, with formulas in braces in the message.
struct Check {
  std::string condition, message, place;
  int32_t code;  // RB_E_*
};

/// Handler.flags of a kernel that computes a formula of the record (RbFormulaKernel).
constexpr uint32_t kFormulaFlag = 8;
/// Handler.flags of a kernel whose results are checked (is_checked_plugin).
constexpr uint32_t kCheckedFlag = uint32_t{1} << 31;

/// One slot of an operator's table, indexed by key bit.
struct Handler {
  RbFn fn = nullptr;
  void* self = nullptr;
  uint32_t flags = 0;  // RB_K_*, kFormulaFlag, kCheckedFlag
  uint64_t dtype_mask = 0;
  uint64_t uniform_dtypes = 0;  // of uniform calls that need nothing but this kernel (call/plan.h)
  uint64_t reads_args = 0, reads_rets = 0;  // of a vjp rule: whose values it reads
  const char* provider = nullptr;           // wheel and version, for messages
};

/// Rules that may be functions (Op::rules).
enum RuleSlot {
  kDecompRule = RB_RULE_DECOMP,
  kShapeRule = RB_RULE_SHAPE,
  kVjpRule = RB_RULE_VJP,
  kJvpRule = RB_RULE_JVP,
  kRuleSlots
};

constexpr int kMaxRets = RB_MAX_RETS;

enum class DTypeRule : uint8_t {
  kPromote,
  kFloat,
  kBoolean,
  kFirst,
  kSame,        // that of the tensors Op::same_args, which must have one
  kFloating,    // the first tensor's, which must be floating or complex
  kIntToInt64,  // the first tensor's, integers as int64
  kDefault,     // the default floating dtype
  kGeneral
};
/// What the Tensor arguments are cast to: nothing, the result's dtype, the promotion of them all.
enum class ComputeRule : uint8_t { kNone, kOut, kPromoteAll, kFormula };
/// Shape rules; kNamed: a function of infer.cpp, kFormula: a formula, kData: it depends on the
/// data, kKernel: the record does not say it, only the kernel knows.
enum class ShapeRule : uint8_t {
  kBroadcast,
  kReduce,
  kSameAsFirst,
  kSameAsArgument,  // of the tensor Op::shape_arg
  kSizeArgument,    // the list Op::shape_arg
  kCore,            // what Op::core says
  kNamed,
  kFormula,
  kData,
  kKernel
};

/// `accumulate`: which formulas compute in float32 where tensors are float16 or bfloat16.
enum class AccumulateRule : uint8_t {
  kNever,
  kDecomposition,  // derivatives call operators that see to it themselves
  kAlways,
};
/// `layout`: how results lie in memory.
enum class LayoutRule : uint8_t {
  kRowMajor,
  kOrder,     // each in the order of the dimensions of its argument
  kLike,      // with the strides of the argument, as far as they are dense
  kChannels,  // channels last if an argument (all of a list) is, of 4 or 5 dimensions
  kImages,    // the same of 4 dimensions
  kColumns,   // matrices of the results named: column-major, as LAPACK has them
};
/// How a destination of another shape is laid out when it is resized.
enum class ResizeRule : uint8_t {
  kAsResult,
  kRows,     // `out rows`: row-major
  kColumns,  // `out columns`: as the result if it had no elements, else row-major
};
/// `memory_format`: what the keyword of that name asks for.
enum class FormatKeyword : uint8_t { kNone, kResult, kItself };
/// `parts`: what a call on a composite tensor does with its parts (call/composite.cpp).
enum class PartsRule : uint8_t {
  kNone,
  kCopy,   // the call on each part makes the parts of a new composite
  kShare,  // the same of views: the result shares the version counter
  kWrite,  // the parts of the second argument are written to those of the first
};
/// Where users find an operator in a module below `rabbet`: {"special", "expit"}.
struct ModuleName {
  std::string module, name;
};

/// A line of a record that is kept as it is written.
struct RecordLine {
  std::string place;  // "elementwise.rec:12"
  std::string text;
};

/// A decomposition that is a function of core.
using DecompFn = void (*)(const Op& op, const RbValue* args, int nargs, RbValue* rets, int nrets);

struct Op {
  RbOpInfo info;     // what plugins see; pointers into this struct
  std::string name;  // "max.dim"
  std::string base;  // "max": what users call
  std::vector<Param> params;
  std::vector<RbArgInfo> arg_infos;
  std::vector<std::string> ret_names;
  std::vector<const char*> ret_name_ptrs;
  bool returns_list = false;    // Tensor[]
  bool optional_items = false;  // Tensor?[]: some of them may be missing
  bool detached = false;
  std::string schema, doc, ref, family;
  std::vector<std::string> aliases;
  std::vector<RecordLine> examples, domain;  // read by examples.cpp
  bool as_function = true, as_method = true, as_inplace = false, expose_given = false;
  std::vector<ModuleName> exposed_in;  // `expose linalg`: the modules that have it
  std::string dtypes_text;             // the classes of dtypes that it is defined for; empty: all
  uint8_t accepted = 0xff;             // the same, bit per Category
  bool numbers = false;                // `numbers`: a number may stand where the record says Tensor
  bool numbers_only = false;           // `numbers only`: also where none of them is a tensor
  uint64_t number_args = ~0ull;        // `numbers ARGS`: the arguments for which users may give one
  bool creation = false;               // calls take requires_grad=, pin_memory= and layout=
  bool exact_out = false;              // `out exact`: destinations have the dtype of the result
  bool separate_out = false;  // `out separate`: destinations share no memory with arguments
  bool real_out = false;      // `out real`: destinations of real results are real
  ResizeRule resize_rule = ResizeRule::kAsResult;
  bool by_formula = false;  // formulas say shapes or dtypes: what they gave is kept (rules/memo.h)
  std::vector<Check> checks;
  std::vector<std::string> data_checks;  // what kernels promise to check, as written
  std::string identity;                  // of a reduction, as written

  // Rules, parsed at registration (cheap parts) or at first use (formulas).
  std::string file;                         // "elementwise.rec:12", for messages
  std::vector<std::string> dtype_text;      // one per result
  std::vector<std::string> shape_formulas;  // of ShapeRule::kFormula: one for all results or each
  std::string compute_text, shape_text, decomp_text, core_text;
  std::vector<Definition> defs;                                // of the record
  std::shared_ptr<const std::vector<Definition>> shared_defs;  // of its file
  std::vector<std::pair<std::string, std::string>> lets;
  std::vector<std::pair<std::string, std::string>> vjps;  // argument, formula
  std::vector<std::pair<int, std::string>> jvps;          // result, formula
  DTypeRule dtype_rule = DTypeRule::kGeneral;
  ComputeRule compute_rule = ComputeRule::kNone;
  int8_t dtype_arg = -1;  // `... if dtype is None else dtype`: index of that argument
  int8_t shape_arg = -1;
  int8_t dim_arg = -1, keepdim_arg = -1;  // of a reduction
  bool reduces_listed = false;  // no dimensions in its list: the decomposition reduces nothing
  CoreSignature core;
  LayoutRule layout_rule = LayoutRule::kRowMajor;
  std::vector<int8_t> layout_args;  // `layout`: the arguments that it names
  uint32_t column_rets = 0;         // and the results (kColumns)
  FormatKeyword memory_format = FormatKeyword::kNone;
  PartsRule parts_rule = PartsRule::kNone;
  AccumulateRule accumulate = AccumulateRule::kNever;
  bool itself_if_real = false;  // `itself real`: the result is the first argument, if not complex
  const void* rule = nullptr;   // the named shape or view function, found at first use
  ShapeRule shape_rule = ShapeRule::kNamed;
  uint64_t compute_args = 0;    // Tensor arguments that core casts to the compute dtype
  uint64_t never_cast = 0;      // `nocast`: masks and indices
  bool casts = true;            // compute none: false
  uint64_t dim_args = 0;        // bit per argument that is a dim, newdim, dim[] or perm
  uint64_t choice_args = 0;     // bit per argument of Param::choices
  uint64_t fit_args = 0;        // `fits`: numbers that the first result's dtype must hold
  bool checks_values = false;   // whether `call` has to look at what the arguments are: at
                                // choices, `fits` and listed dimensions
  uint64_t factor_args = 0;     // `factor`: numbers of the class of the first result's dtype
  uint64_t same_args = 0;       // of DTypeRule::kSame
  uint64_t single_args = 0;     // `single`: tensors that users give have no dimensions there
  uint64_t elsewhere_args = 0;  // `elsewhere`: what may be on the CPU while the first tensor is not
  uint64_t mask_args = 0;       // `masks`: conditions, and lists of indices with masks
  bool mutates = false;         // some argument is written in place, beyond the results
  bool one_dtype = false;       // dtype_text holds one rule, which all results share
  int32_t first_tensor = -1;    // index of the first Tensor or Tensor[] argument
  uint64_t tensor_args = 0;     // bit per Tensor / Tensor[] argument
  std::shared_ptr<Formula>
      formula;  // compiled lets, decomp, vjps, dtype, compute, shape; null until needed
  const Formula* formula_ready = nullptr;  // the same, read without a lock
  bool info_ready = false;                 // op_info has derived what the derivatives save

  // Core itself runs the operator on every backend (core_functions.cpp); null: a kernel or a
  // decomposition.
  void (*core_fn)(const Op&, int backend, int device, const RbValue* args, int nargs,
                  RbValue* rets) = nullptr;
  DecompFn core_decomp = nullptr;  // core's, if `decomp function` names one
  uint64_t mask = ~0ull;           // key bits that this operator does not fall through
  Handler table[kKeyBits];
  // Derivatives as operators, by argument (formula_kernel.h); null: no backend has a kernel.
  std::vector<std::atomic<Op*>> derivatives;
  bool is_derivative = false;  // it is one: the last arguments are the result and its gradient
  Handler rules[kRuleSlots];   // rules that are functions (rule_functions.h)
  bool retired = false;        // taken back, or replaced by a newer definition
  std::string provider;        // who registered it: "rabbet-core 0.1.0"
  bool of_core = false;        // its record is one of core's own

  /// Whether it is made of others, for layers too. The function of an opaque operator is none: it
  /// stands in for the kernels of all devices.
  bool has_decomp() const {
    return !decomp_text.empty() || (rules[kDecompRule].fn && info.kind != RB_KIND_OPAQUE);
  }
  /// Whether a number may stand where the record says Tensor.
  bool takes_numbers() const { return info.kind == RB_KIND_ELEMENTWISE || numbers; }
  /// Whether users may give a number for argument `i`.
  bool takes_number(size_t i) const {
    return takes_numbers() && params[i].type == RB_A_TENSOR && (number_args >> i & 1);
  }
  bool has_checks() const { return !checks.empty(); }
  bool is_view() const { return (info.flags & RB_OP_VIEW) != 0; }
  /// A view whose geometry core derives itself (views.cpp).
  bool is_view_primitive() const {
    return is_view() && decomp_text.empty() && !rules[kDecompRule].fn;
  }
};

inline const Op* impl(const RbOp* op) { return reinterpret_cast<const Op*>(op); }
inline const RbOp* handle(const Op* op) { return reinterpret_cast<const RbOp*>(op); }

/// RB_AUTOCAST_* of a policy's text in records, -1: it is none; and back.
int autocast_policy(const std::string& text);
std::string autocast_text(int policy);

/// Parse record text (records.cpp). Throws Error naming file and line. Nothing is registered.
std::vector<std::unique_ptr<Op>> parse_records(const std::string& text, const std::string& file);
/// Compile every formula of `op`, which checks all names in it; throws Error naming file:line.
void check_formulas(const Op& op);
/// The same of operators that are not registered yet and may call each other.
void check_formulas(const std::vector<std::unique_ptr<Op>>& fresh);

/// What plugins see of the operator; derives saves_args and saves_rets from the formulas at first
/// use.
const RbOpInfo* op_info(const Op& op);

/// The registry (registry.cpp).
const Op* find_op(const char* name);
std::vector<const Op*> all_ops();
/// check_formulas on every registered operator: the build runs it over core's own records.
void check_all_formulas();

}  // namespace rabbet
