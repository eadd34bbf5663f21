// What follows from the fields of a record, and what they leave unsaid.
#include <algorithm>

#include "record/record_parser.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

namespace rabbet {

namespace {

// The arguments that a rule such as `promote(input, other)` names; 0 if it is not of that form.
uint64_t named_arguments(const Op& op, const std::string& rule, const char* function) {
  const std::string head = std::string(function) + "(";
  if (rule.rfind(head, 0) != 0 || rule.find(')') != rule.size() - 1) return 0;
  uint64_t mask = 0;
  for (const std::string& name :
       split(rule.substr(head.size(), rule.size() - head.size() - 1), ',')) {
    size_t i = 0;
    while (i < op.params.size() && op.params[i].name_text != name) ++i;
    if (i == op.params.size()) return 0;
    mask |= 1ull << i;
  }
  return mask;
}

}  // namespace

void RecordParser::default_exposure() {
  if (op_->expose_given) return;
  const int k = op_->info.kind;
  if (op_->name.find("::") != std::string::npos) {  // rabbet.ops.space.name
    op_->as_method = op_->as_inplace = false;
    return;
  }
  op_->as_function = k != RB_KIND_RANDOM;
  op_->as_method = k != RB_KIND_RANDOM && k != RB_KIND_CREATION && k != RB_KIND_OPAQUE;
  op_->as_inplace = k == RB_KIND_ELEMENTWISE || k == RB_KIND_INDEXING || k == RB_KIND_RANDOM;
}

// The signature in `core`, and of every tensor argument the last dimensions that it names.
void RecordParser::core_dims() {
  Op& op = *op_;
  uint64_t tensors = 0;
  for (size_t i = 0; i < op.params.size(); ++i) {
    Param& p = op.params[i];
    p.core_ndim = p.type == RB_A_TENSOR && op.info.kind == RB_KIND_ELEMENTWISE ? 0 : -1;
    if (p.type == RB_A_TENSOR) tensors |= 1ull << i;
  }
  if (op.core_text.empty()) return;
  std::string why;
  if (!parse_core(op.core_text, tensors, static_cast<int>(op.ret_names.size()), op.core, why))
    error("core of '" + op.name + "': " + why + ", got '" + op.core_text + "'");
  // Transforms add dimensions in front of all arguments or of none.
  bool extends = true;
  for (const auto* groups : {&op.core.args, &op.core.rets}) {
    for (const CoreGroup& group : *groups) extends = extends && group.batch && !group.optional;
  }
  for (const CoreGroup& group : op.core.args) {
    if (extends) op.params[group.index].core_ndim = group.ndim;
  }
}

void RecordParser::dtype_rules() {
  Op& op = *op_;
  const uint64_t tensors = op.tensor_args;
  if (op.dtype_text.empty()) {
    const bool rounds = op.accumulate != AccumulateRule::kNever &&
                        op.info.kind == RB_KIND_COMPOSITE && op.first_tensor >= 0;
    if (op.info.kind == RB_KIND_ELEMENTWISE || rounds) {
      std::string all = "promote(";
      for (size_t i = 0; i < op.params.size(); ++i) {
        if (tensors >> i & 1) all += (all.back() == '(' ? "" : ", ") + op.params[i].name_text;
      }
      op.dtype_text.assign(rounds ? op.ret_names.size() : 1, all + ")");
    } else if (op.first_tensor >= 0) {
      op.dtype_text.assign(op.ret_names.size(), op.params[op.first_tensor].name_text);
    }
  }
  const bool unsaid = op.info.kind == RB_KIND_COMPOSITE || op.shape_text == "kernel";
  if (!unsaid && op.dtype_text.size() != op.ret_names.size() && !op.is_view()) {
    error("'" + op.name + "' has " + std::to_string(op.ret_names.size()) + " results and " +
          std::to_string(op.dtype_text.size()) + " dtype rules");
  }
  if (op.dtype_text.empty()) return;
  std::string rule = op.dtype_text[0];
  for (size_t i = 0; i < op.params.size(); ++i) {
    const std::string& name = op.params[i].name_text;
    const std::string given = " if " + name + " is None else " + name;
    if (op.params[i].type != RB_A_DTYPE || rule.size() <= given.size() ||
        rule.compare(rule.size() - given.size(), given.size(), given) != 0)
      continue;
    rule.resize(rule.size() - given.size());
    op.dtype_arg = static_cast<int8_t>(i);
  }
  const uint64_t promoted = named_arguments(op, rule, "promote"),
                 floated = named_arguments(op, rule, "float");
  op.same_args = named_arguments(op, rule, "same") & tensors;
  if (op.same_args) {
    op.dtype_rule = DTypeRule::kSame;
  } else if (promoted == tensors && promoted) {
    op.dtype_rule = DTypeRule::kPromote;
  } else if (floated == tensors && floated) {
    op.dtype_rule = DTypeRule::kFloat;
  } else if (rule == "bool") {
    op.dtype_rule = DTypeRule::kBoolean;
  } else if (op.first_tensor >= 0 && rule == op.params[op.first_tensor].name_text &&
             tensors == 1ull << op.first_tensor) {
    op.dtype_rule = DTypeRule::kFirst;
  } else if (op.first_tensor >= 0 &&
             rule == "floating(" + op.params[op.first_tensor].name_text + ")") {
    op.dtype_rule = DTypeRule::kFloating;
  } else if (op.first_tensor >= 0 &&
             rule == "int_to_int64(" + op.params[op.first_tensor].name_text + ")") {
    op.dtype_rule = DTypeRule::kIntToInt64;
  } else if (rule == "default_float()") {
    op.dtype_rule = DTypeRule::kDefault;
  }
  if (op.compute_text == "none") {
    op.casts = false;
    op.compute_text.clear();
    op.dtype_rule = DTypeRule::kGeneral;
    return;
  }
  if (op.compute_text.empty()) {
    if (promoted | floated | op.same_args | named_arguments(op, rule, "floating")) {
      op.compute_text = "out";
    } else if (op.info.kind == RB_KIND_ELEMENTWISE && rule.find(" if ") != std::string::npos) {
      op.compute_text = "out";
    } else if (op.info.kind == RB_KIND_ELEMENTWISE) {
      op.compute_text = "promote(all)";
    }
  }
  if (op.compute_text.empty()) return;
  if (op.compute_text == "out") {
    op.compute_args = promoted | floated | named_arguments(op, rule, "floating");
    if (!op.compute_args) op.compute_args = tensors;
  } else {
    op.compute_args = named_arguments(op, op.compute_text, "promote");
    if (!op.compute_args) op.compute_args = tensors;
  }
}

void RecordParser::shape_rule() {
  Op& op = *op_;
  for (size_t i = 0; i < op.params.size(); ++i) {
    const Param& p = op.params[i];
    const bool size = p.type == RB_A_SIZE && op.shape_text == p.name_text;
    const bool tensor = p.type == RB_A_TENSOR && op.shape_text == p.name_text + ".shape";
    if (!size && !tensor) continue;
    op.shape_arg = static_cast<int8_t>(i);
    op.shape_rule = size ? ShapeRule::kSizeArgument : ShapeRule::kSameAsArgument;
    return;
  }
  if (!op.shape_text.empty()) {
    op.shape_rule = op.shape_text == "data"                    ? ShapeRule::kData
                    : op.shape_text == "kernel"                ? ShapeRule::kKernel
                    : op.shape_text.rfind("function ", 0) == 0 ? ShapeRule::kNamed
                                                               : ShapeRule::kFormula;
    if (op.shape_rule != ShapeRule::kFormula) return;
    op.shape_formulas = split(op.shape_text, ',');
    if (op.shape_formulas.size() != 1 && op.shape_formulas.size() != op.ret_names.size()) {
      error("'" + op.name + "' has " + std::to_string(op.ret_names.size()) + " results and " +
            std::to_string(op.shape_formulas.size()) + " shapes");
    }
    return;
  }
  if (!op.core_text.empty()) {
    op.shape_rule = ShapeRule::kCore;
    return;
  }
  switch (op.info.kind) {
    case RB_KIND_ELEMENTWISE:
      op.shape_rule = ShapeRule::kBroadcast;
      break;
    case RB_KIND_REDUCTION:
      op.shape_rule = ShapeRule::kReduce;
      reduced_arguments();
      break;
    case RB_KIND_BATCHED:
      error("'" + op.name + "' is of kind batched and has neither 'core' nor 'shape'");
    default:
      op.shape_rule = ShapeRule::kSameAsFirst;
  }
}

// What a reduction goes over: the arguments that `reduce` names, or its first dim and first bool.
void RecordParser::reduced_arguments() {
  Op& op = *op_;
  if (op.first_tensor < 0 || op.params[op.first_tensor].type != RB_A_TENSOR)
    error("'" + op.name + "' is a reduction of no Tensor");
  if (op.dim_arg >= 0) return;
  for (size_t i = 0; i < op.params.size(); ++i) {
    const int type = op.params[i].type;
    if (op.dim_arg < 0 && (type == RB_A_DIM || type == RB_A_DIMS))
      op.dim_arg = static_cast<int8_t>(i);
    if (op.keepdim_arg < 0 && type == RB_A_BOOL) op.keepdim_arg = static_cast<int8_t>(i);
  }
}

void RecordParser::finish_record() {
  if (!op_) return;
  Op& op = *op_;
  const int next_line = line_;
  line_ = op_line_;  // for errors
  for (size_t i = 0; i < op.params.size(); ++i) {
    Param& p = op.params[i];
    p.struct_size = sizeof(RbArgInfo);
    p.name = p.name_text.c_str();
    if (p.default_value.tag == RB_INTS) p.default_value.v.is = p.default_ints.data();
    if (p.default_value.tag == RB_STR) p.default_value.v.s = p.default_str.c_str();
    if (p.type == RB_A_TENSOR || p.type == RB_A_TENSORS) {
      if (op.first_tensor < 0) op.first_tensor = static_cast<int32_t>(i);
      op.tensor_args |= 1ull << i;
    }
    if (p.type == RB_A_DIM || p.type == RB_A_NEWDIM || p.type == RB_A_DIMS || p.type == RB_A_PERM)
      op.dim_args |= 1ull << i;
    if (p.flags & RB_ARG_MUTATED) op.mutates = true;
    if (!p.choices.empty()) op.choice_args |= 1ull << i;
  }
  op.checks_values = op.choice_args || op.fit_args || op.reduces_listed;
  default_exposure();
  if (op.info.kind == RB_KIND_ELEMENTWISE && !seen_.count("accumulate"))
    op.accumulate = AccumulateRule::kDecomposition;
  dtype_rules();
  op.one_dtype = op.dtype_text.size() == 1 && op.dtype_rule != DTypeRule::kGeneral;
  if (op.casts && !op.compute_text.empty()) {
    op.compute_rule = op.compute_text == "out"            ? ComputeRule::kOut
                      : op.compute_text == "promote(all)" ? ComputeRule::kPromoteAll
                                                          : ComputeRule::kFormula;
  }
  op.compute_args &= ~op.never_cast;
  shape_rule();
  op.by_formula = op.shape_rule == ShapeRule::kFormula ||
                  op.compute_rule == ComputeRule::kFormula || op.dtype_rule == DTypeRule::kGeneral;
  core_dims();
  for (size_t i = 0; i < op.params.size(); ++i) {
    if (op.compute_args >> i & 1) op.params[i].flags |= RB_ARG_COMPUTED;
  }
  for (const Param& p : op.params) op.arg_infos.push_back(p);
  for (const std::string& name : op.ret_names) op.ret_name_ptrs.push_back(name.c_str());
  op.creation = op.info.kind == RB_KIND_RANDOM || op.info.kind == RB_KIND_CREATION;
  if (op.creation) op.detached = true;
  RbOpInfo& info = op.info;
  info.struct_size = sizeof(RbOpInfo);
  if (!op.vjps.empty()) info.flags |= RB_OP_HAS_VJP;
  if (!op.jvps.empty()) info.flags |= RB_OP_HAS_JVP;
  if (op.has_decomp()) info.flags |= RB_OP_HAS_DECOMP;
  if (op.detached) info.flags |= RB_OP_DETACHED;
  if (op.shape_rule == ShapeRule::kData) info.flags |= RB_OP_DATA_SHAPE;
  const bool draws = op.info.kind == RB_KIND_RANDOM ||
                     std::any_of(op.params.begin(), op.params.end(),
                                 [](const Param& p) { return p.type == RB_A_GENERATOR; });
  if (draws) info.flags |= RB_OP_RANDOM;
  if (!op.data_checks.empty()) info.flags |= RB_OP_CHECKS_DATA;
  info.core = op.core_text.empty() ? nullptr : op.core_text.c_str();
  info.shape_arg = op.shape_rule == ShapeRule::kSizeArgument ? op.shape_arg : -1;
  info.name = op.name.c_str();
  info.nargs = static_cast<int32_t>(op.params.size());
  info.nrets = static_cast<int32_t>(op.ret_names.size());
  info.first_arg = op.arg_infos.data();
  info.arg_size = sizeof(RbArgInfo);
  info.schema = op.schema.c_str();
  info.ret_names = op.ret_name_ptrs.data();
  for (size_t i = 0; i < op.params.size(); ++i) {
    if (op.params[i].flags & RB_ARG_MUTATED) info.mutated_args |= uint64_t{1} << i;
  }
  info.effects = (info.mutated_args ? +RB_EFFECT_WRITES : 0) | (draws ? +RB_EFFECT_DRAWS : 0) |
                 (op.data_checks.empty() ? 0 : +RB_EFFECT_FAILS);
  ops_.push_back(std::move(op_));
  const auto forms = std::move(forms_);
  forms_.clear();
  const size_t main = ops_.size() - 1;
  for (const Form& form : forms) {
    line_ = form.line;
    other_form(*ops_[main], form, static_cast<int>(ops_.size() - main));
  }
  line_ = next_line;
}

// `(PARAMETERS) : ARGUMENT = FORMULA, ...`: the same operator with other parameters, a composite.
void RecordParser::other_form(const Op& main, const Form& written, int number) {
  const std::string& form = written.text;
  const size_t close = form[0] == '(' ? find_outside(form.substr(1), ")") : std::string::npos;
  const std::string rest = close == std::string::npos ? "" : strip(form.substr(close + 2));
  if (close == std::string::npos || (!rest.empty() && rest[0] != ':'))
    error("expected 'or (PARAMETERS) : ARGUMENT = FORMULA, ...', got 'or " + form + "'");
  std::string given;
  std::vector<std::string> set;
  for (const std::string& assignment : split(rest.empty() ? rest : rest.substr(1), ',')) {
    const size_t equals = assignment.find('=');
    set.push_back(strip(assignment.substr(0, equals)));
    const bool known = std::any_of(main.params.begin(), main.params.end(),
                                   [&](const Param& p) { return p.name_text == set.back(); });
    if (equals == std::string::npos || !known)
      error("or: '" + assignment + "' sets no argument of '" + main.name + "'");
    given += (given.empty() ? "" : ", ") + assignment;
  }
  const std::string name = main.name + (main.name == main.base ? ".or" : "_or");
  const std::string head = name + std::to_string(number) + form.substr(0, close + 2) +
                           main.schema.substr(main.schema.rfind("->") - 1);
  RecordParser parser(file_);
  std::vector<std::unique_ptr<Op>> made = parser.run(head + "\n  kind composite\n", line_);
  for (const Param& p : main.params) {
    if (std::find(set.begin(), set.end(), p.name_text) != set.end()) continue;
    const bool same = std::any_of(made[0]->params.begin(), made[0]->params.end(),
                                  [&](const Param& own) { return own.name_text == p.name_text; });
    if (!same && !p.has_default)
      error("or: nothing gives the argument '" + p.name_text + "' of '" + main.name + "'");
    if (same) given += (given.empty() ? "" : ", ") + p.name_text + "=" + p.name_text;
  }
  made =
      parser.run(head + "\n  kind composite\n  decomp " + main.name + "(" + given + ")\n", line_);
  Op& op = *made[0];
  op.schema = head;
  op.doc = main.doc;
  op.numbers = main.takes_numbers();
  op.numbers_only = main.numbers_only;
  op.dtypes_text = main.dtypes_text;
  op.accepted = main.accepted;
  op.creation = main.creation;
  op.aliases = main.aliases;
  op.family = main.family;
  op.shared_defs = shared_defs_;
  op.as_function = main.as_function;
  op.as_method = main.as_method;
  op.as_inplace = false;
  op.exposed_in = main.exposed_in;
  op.examples = written.examples;
  op.domain = main.domain;
  ops_.push_back(std::move(made[0]));
}

}  // namespace rabbet
