// Operators: the parsed record, what the dispatcher derives from it, and the table of handlers.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "rabbet/abi.h"

namespace rabbet {

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
};

/// One slot of an operator's table, indexed by key bit.
struct Handler {
  RbFn fn = nullptr;
  void* self = nullptr;
  uint32_t flags = 0;  // RB_K_*
  uint64_t dtype_mask = 0;
  const char* provider = nullptr;  // wheel and version, for messages
};

/// Rules that may be functions (Op::rules); RbKernel.backend names them "decomp", "shape", ...
enum RuleSlot { kDecompRule, kShapeRule, kVjpRule, kJvpRule, kRuleSlots };

constexpr int kBackendBits = 16;  // key bits 0..15: backends by id
constexpr int kKeyBits = 64;
constexpr uint64_t kBackendMask = (1ull << kBackendBits) - 1;
constexpr int kTransformSlot = 39;  // the last bit of the phases of differentiation

enum class DTypeRule : uint8_t {
  kPromote,
  kFloat,
  kBoolean,
  kFirst,
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
  kGufunc,
  kNamed,
  kFormula,
  kData,
  kKernel
};

/// A line of a record that is kept as it is written.
struct RecordLine {
  std::string place;  // "elementwise.rec:12"
  std::string text;
};

struct Op {
  RbOpInfo info;     // what plugins see; pointers into this struct
  std::string name;  // "max.dim"
  std::string base;  // "max": what users call
  std::vector<Param> params;
  std::vector<RbArgInfo> arg_infos;
  std::vector<std::string> ret_names;
  std::vector<const char*> ret_name_ptrs;
  bool returns_list = false;  // Tensor[]
  bool detached = false;
  std::string schema, doc, ref, family;
  std::vector<std::string> aliases;
  std::vector<RecordLine> examples, domain;  // read by examples.cpp
  bool as_function = true, as_method = true, as_inplace = false, expose_given = false;
  std::string accepts;  // "int" or "real": dtypes that it is defined for; empty: all

  // Rules, parsed at registration (cheap parts) or at first use (formulas).
  std::string file;                     // "elementwise.rec:12", for messages
  std::vector<std::string> dtype_text;  // one per result
  std::string compute_text, shape_text, decomp_text, core_text;
  std::vector<std::pair<std::string, std::string>> lets;
  std::vector<std::pair<std::string, std::string>> vjps;  // argument, formula
  std::vector<std::pair<int, std::string>> jvps;          // result, formula
  DTypeRule dtype_rule = DTypeRule::kGeneral;
  ComputeRule compute_rule = ComputeRule::kNone;
  int8_t dtype_arg = -1;  // `... if dtype is None else dtype`: index of that argument
  int8_t shape_arg = -1, dim_arg = -1, keepdim_arg = -1;
  std::vector<int8_t> layout_args;  // `layout`: for each result the argument in whose order of
                                    // dimensions it lies in memory
  const void* rule = nullptr;       // the named shape or view function, found at first use
  ShapeRule shape_rule = ShapeRule::kNamed;
  uint64_t compute_args = 0;  // Tensor arguments that core casts to the compute dtype
  uint64_t never_cast = 0;    // `nocast`: masks and indices
  bool casts = true;          // compute none: false
  uint64_t dim_args = 0;      // bit per argument that is a dim, newdim, dim[] or perm
  bool mutates = false;       // some argument is written in place, beyond the results
  bool one_dtype = false;     // dtype_text holds one rule, which all results share
  int32_t first_tensor = -1;  // index of the first Tensor or Tensor[] argument
  uint64_t tensor_args = 0;   // bit per Tensor / Tensor[] argument
  std::shared_ptr<Formula>
      formula;  // compiled lets, decomp, vjps, dtype, compute, shape; null until needed
  const Formula* formula_ready = nullptr;  // the same, read without a lock
  bool info_ready = false;                 // op_info has derived what the derivatives save

  // Core itself runs the operator on every backend (core_functions.cpp); null: a kernel or a
  // decomposition.
  void (*core_fn)(const Op&, int backend, int device, const RbValue* args, int nargs,
                  RbValue* rets) = nullptr;
  uint64_t mask = ~0ull;  // key bits that this operator does not fall through
  Handler table[kKeyBits];
  // Kernels of whole derivative formulas: kBackendBits of them per argument; null: there are none.
  std::unique_ptr<Handler[]> vjp_storage;
  const Handler* vjp_table = nullptr;
  Handler rules[kRuleSlots];  // rules that are functions (rule_functions.h)
  bool retired = false;       // taken back, or replaced by a newer definition
  std::string provider;       // who registered it: "rabbet-core 0.1.0"

  /// Whether it is made of others, for layers too. The function of an opaque operator is none: it
  /// stands in for the kernels of all devices.
  bool has_decomp() const {
    return !decomp_text.empty() || (rules[kDecompRule].fn && info.kind != RB_KIND_OPAQUE);
  }
  /// Whether a number may stand where the record says Tensor.
  bool takes_numbers() const { return info.kind == RB_KIND_ELEMENTWISE || family == "elementwise"; }
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

/// What plugins see of the operator; derives saves_args and saves_rets from the formulas at first
/// use.
const RbOpInfo* op_info(const Op& op);

/// The registry (registry.cpp).
const Op* find_op(const char* name);
std::vector<const Op*> all_ops();
/// check_formulas on every registered operator: the build runs it over core's own records.
void check_all_formulas();

}  // namespace rabbet
