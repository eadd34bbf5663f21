// The record language: text to operators. Grammar and fields: docs/reference/records.md.
#include <algorithm>
#include <cctype>
#include <cstring>

#include "record/join.h"
#include "record/record_parser.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"
#include "thread/error.h"

namespace rabbet {

namespace {

const char* const kKinds[] = {"elementwise", "reduction", "along",  "movement",  "batched",
                              "indexing",    "creation",  "random", "composite", "opaque"};
}  // namespace

std::vector<std::unique_ptr<Op>> RecordParser::run(const std::string& text, int first) {
  size_t at = 0;
  for (int number = first; at < text.size(); ++number) {
    size_t end = text.find('\n', at);
    if (end == std::string::npos) end = text.size();
    take(text.substr(at, end - at), number);
    at = end + 1;
  }
  read_line();
  finish_record();
  return std::move(ops_);
}

void RecordParser::error(const std::string& message) const {
  fail(RB_E_PLUGIN, "%s:%d: %s", file_.c_str(), line_, message.c_str());
}

// The same for a part of the signature, with the line and a mark under the part.
void RecordParser::error_at(const std::string& part, const std::string& message) const {
  const std::string& line = op_->schema;
  const size_t at = part.empty() ? std::string::npos : line.find(part);
  const std::string mark = at == std::string::npos ? "" : "\n  " + std::string(at, ' ') + "^";
  error(message + "\n  " + line + mark);
}

// A line of the file: it continues the one above if it is indented deeper than that, or the
// signature above has not come to its results.
void RecordParser::take(const std::string& raw, int number) {
  const std::string line = strip(raw);
  if (line.empty() || line[0] == '#') return;
  const size_t indent = raw.find(line[0]);
  const bool open = !pending_.empty() && (indent_ || pending_.rfind("def ", 0) == 0 ||
                                          pending_.find("->") == std::string::npos);
  if (open && indent > indent_ && pending_.rfind("family ", 0) != 0) {
    pending_ += " " + line;
    return;
  }
  read_line();
  pending_ = line;
  indent_ = indent;
  line_ = number;
}

void RecordParser::read_line() {
  const std::string line = std::move(pending_);
  pending_.clear();
  if (line.empty()) return;
  if (indent_) {
    if (!op_) error("a field without a record: '" + line + "'");
    return field(line);
  }
  finish_record();
  if (line.rfind("family ", 0) == 0) {
    const std::string rest = strip(line.substr(7));
    if (rest.rfind("kind ", 0) != 0) error("expected 'family kind KIND', got '" + line + "'");
    family_kind_ = kind(strip(rest.substr(5)));
  } else if (line.rfind("def ", 0) == 0) {
    definition(line.substr(4), *shared_defs_);
  } else {
    signature(line);
  }
}

int RecordParser::kind(const std::string& name) const {
  for (int k = 0; k < 10; ++k) {
    if (name == kKinds[k]) return k;
  }
  error("unknown kind '" + name + "'");
}

// ---- fields

Param& RecordParser::param(const std::string& name, const char* field) {
  for (Param& p : op_->params) {
    if (p.name_text == name) return p;
  }
  error(std::string(field) + ": '" + op_->name + "' has no argument '" + name + "'");
}

const char* const kExposeExpected =
    "expected function, method, inplace, none, or a module such as linalg or nn.functional";

// Whether one letter was left out, added or replaced.
bool differs_by_one_letter(const std::string& given, const std::string& word) {
  const std::string& longer = given.size() < word.size() ? word : given;
  const std::string& shorter = given.size() < word.size() ? given : word;
  const size_t more = longer.size() - shorter.size();
  if (more > 1 || given == word) return false;
  const auto [a, b] = std::mismatch(shorter.begin(), shorter.end(), longer.begin());
  return std::equal(a + (a != shorter.end() && !more), shorter.end(), b + 1, longer.end());
}

// Fields of which a second line would replace the first.
const std::set<std::string> kOnce = {"kind",   "dtype",         "compute",    "shape", "core",
                                     "decomp", "autocast",      "expose",     "alias", "ref",
                                     "doc",    "memory_format", "layout",     "parts", "dtypes",
                                     "reduce", "identity",      "accumulate", "join"};

void RecordParser::field(const std::string& line) {
  const size_t space = line.find_first_of(" \t");
  const std::string name = line.substr(0, space);
  const std::string value = space == std::string::npos ? "" : strip(line.substr(space));
  if (name != "example") below_or_ = name == "or";
  if (kOnce.count(name) && !seen_.insert(name).second)
    error("a second line '" + name + "' of '" + op_->name + "'");
  if (name == "kind") {
    op_->info.kind = kind(value);
  } else if (name == "dtype") {
    op_->dtype_text = split(value, ',');
  } else if (name == "compute") {
    op_->compute_text = value;
  } else if (name == "shape") {
    op_->shape_text = value;
  } else if (name == "core") {
    op_->core_text = value;
  } else if (name == "batch") {
    batch(value);
  } else if (name == "decomp") {
    op_->decomp_text = value;
  } else if (name == "accumulate") {
    if (!value.empty() && value != "decomp" && value != "none")
      error("accumulate: expected nothing, decomp or none, got '" + value + "'");
    op_->accumulate = value.empty()       ? AccumulateRule::kAlways
                      : value == "decomp" ? AccumulateRule::kDecomposition
                                          : AccumulateRule::kNever;
  } else if (name == "autocast") {
    autocast(value);
  } else if (name == "linear" || name == "bilinear" || name == "flat") {
    const uint32_t flag = name == "linear"     ? RB_ARG_LINEAR
                          : name == "bilinear" ? RB_ARG_BILINEAR
                                               : RB_ARG_FLAT;
    for (const std::string& arg : split(value, ',')) param(arg, name.c_str()).flags |= flag;
  } else if (name == "let") {
    const size_t equals = value.find('=');
    if (equals == std::string::npos) error("expected 'let NAME = FORMULA'");
    op_->lets.emplace_back(strip(value.substr(0, equals)), strip(value.substr(equals + 1)));
  } else if (name == "vjp") {
    const size_t gap = value.find_first_of(" \t");
    if (gap == std::string::npos) error("expected 'vjp ARGUMENT FORMULA'");
    Param& p = param(value.substr(0, gap), "vjp");
    if (p.flags & RB_ARG_HAS_VJP) error("a second vjp for '" + p.name_text + "'");
    p.flags |= RB_ARG_HAS_VJP;
    op_->vjps.emplace_back(p.name_text, strip(value.substr(gap)));
  } else if (name == "jvp") {
    jvp(value);
  } else if (name == "expose") {
    expose(value);
  } else if (name == "alias") {
    op_->aliases = split(value, ',');
  } else if (name == "ref") {
    op_->ref = value;
  } else if (name == "nocast") {
    for (const std::string& arg : split(value, ','))
      op_->never_cast |= 1ull << (&param(arg, "nocast") - op_->params.data());
  } else if (name == "fits" || name == "factor" || name == "single") {
    uint64_t& args = name == "fits"     ? op_->fit_args
                     : name == "factor" ? op_->factor_args
                                        : op_->single_args;
    for (const std::string& arg : split(value, ',')) {
      const Param& p = param(arg, name.c_str());
      if (p.type != RB_A_SCALAR && p.type != RB_A_TENSOR)
        error(name + ": '" + arg + "' is neither a Scalar nor a Tensor");
      args |= 1ull << (&p - op_->params.data());
    }
  } else if (name == "elsewhere") {
    for (const std::string& arg : split(value, ',')) {
      const Param& p = param(arg, "elsewhere");
      if ((p.type != RB_A_TENSOR && p.type != RB_A_TENSORS) || &p == op_->params.data())
        error("elsewhere: '" + arg + "' is no Tensor or Tensor[] behind the first argument");
      op_->elsewhere_args |= 1ull << (&p - op_->params.data());
    }
  } else if (name == "masks") {
    const Param& p = param(value, "masks");
    if (p.type != RB_A_TENSOR && p.type != RB_A_TENSORS)
      error("masks: '" + value + "' is no Tensor or Tensor[]");
    op_->mask_args |= 1ull << (&p - op_->params.data());
  } else if (name == "layout") {
    layout(value);
  } else if (name == "memory_format") {
    if (value != "result" && value != "itself")
      error("memory_format: expected result or itself, got '" + value + "'");
    op_->memory_format = value == "result" ? FormatKeyword::kResult : FormatKeyword::kItself;
  } else if (name == "itself") {
    if (value != "real") error("itself: expected real, got '" + value + "'");
    if (op_->params.empty() || op_->params[0].type != RB_A_TENSOR)
      error("itself: the first argument must be a Tensor");
    op_->itself_if_real = true;
  } else if (name == "parts") {
    parts(value);
  } else if (name == "dtypes") {
    op_->dtypes_text = value;
    op_->accepted = dtype_classes(value);
  } else if (name == "numbers") {
    op_->numbers = true;
    op_->numbers_only = value == "only";
    if (value.empty() || op_->numbers_only) return;
    op_->number_args = 0;
    for (const std::string& arg : split(value, ',')) {
      const Param& p = param(arg, "numbers");
      if (p.type != RB_A_TENSOR) error("numbers: '" + arg + "' is no Tensor");
      op_->number_args |= 1ull << (&p - op_->params.data());
    }
  } else if (name == "out") {
    for (const std::string& condition : split(value, ',')) {
      if (condition == "exact") {
        op_->exact_out = true;
      } else if (condition == "separate") {
        op_->separate_out = true;
      } else if (condition == "real") {
        op_->real_out = true;
      } else if (condition == "rows" || condition == "columns") {
        op_->resize_rule = condition == "rows" ? ResizeRule::kRows : ResizeRule::kColumns;
      } else {
        error("out: expected exact, separate, real, rows or columns, got '" + condition + "'");
      }
    }
  } else if (name == "check") {
    check(value);
  } else if (name == "identity") {
    identity(value);
  } else if (name == "join") {
    join(value);
  } else if (name == "reduce") {
    reduce(value);
  } else if (name == "def") {
    definition(value, op_->defs);
  } else if (name == "or") {
    forms_.push_back({value, line_, {}});
  } else if (name == "example" || name == "domain") {
    if (value.empty()) error("expected '" + name + "' and what it says");
    auto& lines = name == "domain" ? op_->domain
                  : below_or_      ? forms_.back().examples
                                   : op_->examples;
    lines.push_back({file_ + ":" + std::to_string(line_), value});
  } else if (name == "doc") {
    op_->doc = value;
  } else if (name == "detached") {
    op_->detached = true;
  } else {
    error("unknown field '" + name + "'");
  }
}

// `parts RULE`: what a call on a composite does with its parts.
void RecordParser::parts(const std::string& value) {
  static const std::pair<const char*, PartsRule> kRules[] = {
      {"copy", PartsRule::kCopy}, {"share", PartsRule::kShare}, {"write", PartsRule::kWrite}};
  for (const auto& [word, rule] : kRules) {
    if (value == word) op_->parts_rule = rule;
  }
  if (op_->parts_rule == PartsRule::kNone)
    error("parts: expected copy, share or write, got '" + value + "'");
  const size_t read = op_->parts_rule == PartsRule::kWrite ? 2 : 1;
  for (size_t i = 0; i < read; ++i) {
    if (i == op_->params.size() || op_->params[i].type != RB_A_TENSOR)
      error("parts: argument " + std::to_string(i) + " must be a Tensor");
  }
  if (op_->ret_names.size() != 1 || op_->returns_list)
    error("parts: the operator must have one result, a Tensor");
  const bool shares = op_->parts_rule == PartsRule::kShare;
  if (shares != ((op_->info.flags & RB_OP_VIEW) != 0))
    error("parts: 'share' is for operators whose result is view(ARGUMENT), and for no others");
}

int RecordParser::result_index(const std::string& name, const char* field) const {
  const auto found = std::find(op_->ret_names.begin(), op_->ret_names.end(), name);
  if (found == op_->ret_names.end())
    error(std::string(field) + ": '" + name + "' is no result of the operator");
  return static_cast<int>(found - op_->ret_names.begin());
}

// `layout ARGS`: the order of dimensions of one argument for each result; `layout RULE(ARGS)`.
void RecordParser::layout(std::string value) {
  static const std::pair<const char*, LayoutRule> rules[] = {{"like", LayoutRule::kLike},
                                                             {"channels", LayoutRule::kChannels},
                                                             {"images", LayoutRule::kImages},
                                                             {"columns", LayoutRule::kColumns}};
  op_->layout_rule = LayoutRule::kOrder;
  const size_t open = value.find('(');
  if (open != std::string::npos) {
    op_->layout_rule = LayoutRule::kRowMajor;
    for (const auto& [word, rule] : rules) {
      if (value.substr(0, open) == word) op_->layout_rule = rule;
    }
    if (op_->layout_rule == LayoutRule::kRowMajor || value.back() != ')')
      error(
          "layout: expected arguments, or like(ARGUMENT), channels(ARGUMENTS), images(ARGUMENTS) "
          "or columns(RESULTS), got '" +
          value + "'");
    value = value.substr(open + 1, value.size() - open - 2);
  }
  if (op_->layout_rule == LayoutRule::kColumns) {
    for (const std::string& name : split(value, ','))
      op_->column_rets |= 1u << result_index(name, "layout");
    return;
  }
  for (const std::string& arg : split(value, ','))
    op_->layout_args.push_back(static_cast<int8_t>(&param(arg, "layout") - op_->params.data()));
}

// `jvp FORMULA`, or `jvp RESULT FORMULA` where there are several.
void RecordParser::jvp(const std::string& value) {
  const size_t gap = value.find_first_of(" \t");
  int ret = 0;
  std::string text = value;
  if (op_->ret_names.size() > 1) {
    if (gap == std::string::npos) error("expected 'jvp RESULT FORMULA', got 'jvp " + value + "'");
    ret = result_index(value.substr(0, gap), "jvp");
    text = strip(value.substr(gap));
  }
  if (text.empty()) error("expected 'jvp FORMULA'");
  for (const auto& [other, formula] : op_->jvps) {
    if (other == ret) error("a second jvp for '" + op_->ret_names[ret] + "'");
  }
  op_->jvps.emplace_back(ret, text);
}

// `batch leading NAMES` or `batch fold NAMES`: what an additional dimension of these means.
void RecordParser::batch(const std::string& value) {
  const size_t gap = value.find_first_of(" \t");
  const std::string how = value.substr(0, gap);
  if ((how != "leading" && how != "fold") || gap == std::string::npos)
    error("batch: expected 'leading ARGUMENTS' or 'fold ARGUMENTS', got '" + value + "'");
  const uint32_t flag = how == "fold" ? RB_ARG_FOLD : RB_ARG_LEADING;
  for (const std::string& arg : split(strip(value.substr(gap)), ','))
    param(arg, "batch").flags |= flag;
}

// `float complex`: a bit per Category.
uint8_t RecordParser::dtype_classes(const std::string& value) const {
  static const std::pair<const char*, int> kClasses[] = {{"bool", 1 << kBool},
                                                         {"int", 1 << kInt},
                                                         {"float", 1 << kFloat},
                                                         {"complex", 1 << kComplex},
                                                         {"real", 1 << kInt | 1 << kFloat}};
  int mask = 0;
  for (const std::string& word : split(value, ' ')) {
    if (word.empty()) continue;
    const auto* known = std::find_if(std::begin(kClasses), std::end(kClasses),
                                     [&](const auto& entry) { return word == entry.first; });
    if (known == std::end(kClasses))
      error("dtypes: expected float, complex, int, bool or real, got '" + word + "'");
    mask |= known->second;
  }
  if (!mask) error("dtypes: expected float, complex, int, bool or real");
  return static_cast<uint8_t>(mask);
}

// `CONDITION : MESSAGE`, the message after the name of an exception if it is no ValueError.
void RecordParser::check(const std::string& value) {
  const size_t colon = find_outside(value, " : ");
  if (colon == std::string::npos)
    error("expected 'check CONDITION : MESSAGE', got 'check " + value + "'");
  Check made{strip(value.substr(0, colon)), strip(value.substr(colon + 3)), place(), RB_E_ARG};
  if (made.condition.rfind("data ", 0) == 0) {
    op_->data_checks.push_back(strip(value.substr(5)));
    return;
  }
  static const std::pair<const char*, int> kClasses[] = {{"ValueError: ", RB_E_ARG},
                                                         {"TypeError: ", RB_E_TYPE},
                                                         {"IndexError: ", RB_E_INDEX},
                                                         {"NotImplementedError: ", RB_E_NOTIMPL}};
  for (auto& [prefix, code] : kClasses) {
    if (made.message.rfind(prefix, 0) != 0) continue;
    made.code = code;
    made.message = strip(made.message.substr(std::strlen(prefix)));
  }
  if (made.message.empty()) error("a check without a message: 'check " + value + "'");
  op_->checks.push_back(std::move(made));
}

void RecordParser::identity(const std::string& value) {
  char* end = nullptr;
  std::strtod(value.c_str(), &end);
  const bool number = !value.empty() && !*end;
  if (!number && value != "none" && value != "True" && value != "False")
    error("identity: expected none, a number, True or False, got '" + value + "'");
  op_->identity = value;
}

// `join sum`: how the results of the parts of a tensor make that of the whole.
void RecordParser::join(const std::string& value) {
  const auto* found = std::find(std::begin(kJoinNames) + 1, std::end(kJoinNames), value);
  if (found == std::end(kJoinNames))
    error("join: expected sum, mean, product, max, min, and, or or, got '" + value + "'");
  op_->info.join = static_cast<int32_t>(found - kJoinNames);
}

// `reduce dim, keepdim`: which arguments of a reduction say what it reduces.
void RecordParser::reduce(const std::string& value) {
  const std::vector<std::string> names = split(value, ',');
  if (names.empty() || names.size() > 3 || (names.size() == 3 && names[2] != "listed"))
    error(
        "expected 'reduce DIM', 'reduce DIM, KEEPDIM' or 'reduce DIM, KEEPDIM, listed', got "
        "'reduce " +
        value + "'");
  op_->reduces_listed = names.size() == 3;
  const Param& dim = param(names[0], "reduce");
  if (dim.type != RB_A_DIM && dim.type != RB_A_DIMS)
    error("reduce: '" + names[0] + "' is no dim or dim[]");
  op_->dim_arg = static_cast<int8_t>(&dim - op_->params.data());
  if (names.size() == 1) return;
  const Param& keepdim = param(names[1], "reduce");
  if (keepdim.type != RB_A_BOOL) error("reduce: '" + names[1] + "' is no bool");
  op_->keepdim_arg = static_cast<int8_t>(&keepdim - op_->params.data());
}

// `NAME(ARGUMENTS) = FORMULA`
void RecordParser::definition(const std::string& value, std::vector<Definition>& to) {
  const size_t open = value.find('('), close = value.find(')');
  const size_t equals = close == std::string::npos ? close : value.find('=', close);
  Definition made;
  if (open != std::string::npos && open < close && equals != std::string::npos) {
    made = {strip(value.substr(0, open)), strip(value.substr(equals + 1)), place(),
            split(value.substr(open + 1, close - open - 1), ',')};
  }
  bool named = is_name(made.name) && !made.text.empty() &&
               strip(value.substr(close + 1, equals - close - 1)).empty();
  for (const std::string& p : made.params) named = named && is_name(p);
  if (!named) error("expected 'def NAME(ARGUMENTS) = FORMULA', got 'def " + value + "'");
  for (size_t i = 0; i < made.params.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      if (made.params[i] == made.params[k])
        error("def " + made.name + ": two arguments are called '" + made.params[i] + "'");
    }
  }
  for (const auto* defs : {shared_defs_.get(), &to}) {
    for (const Definition& other : *defs) {
      if (other.name == made.name)
        error("a second def '" + made.name + "', the first is in " + other.place);
    }
  }
  to.push_back(std::move(made));
}

void RecordParser::expose(const std::string& value) {
  Op& op = *op_;
  op.expose_given = true;
  op.as_function = op.as_method = op.as_inplace = false;
  const std::vector<std::string> entries = split(value, ',');
  if (entries.empty()) error(std::string("expose: ") + kExposeExpected + ", got nothing");
  std::set<std::string> seen;
  for (const std::string& entry : entries) {
    if (!seen.insert(entry).second) error("expose: '" + entry + "' stands twice");
    if (entry == "none" && entries.size() > 1)
      error("expose: 'none' stands alone, got '" + value + "'");
    if (entry == "function") {
      op.as_function = true;
    } else if (entry == "method") {
      op.as_method = true;
    } else if (entry == "inplace") {
      op.as_inplace = true;
    } else if (entry != "none") {
      expose_in_module(entry);
    }
  }
}

// `MODULE` or `MODULE as NAME`.
void RecordParser::expose_in_module(const std::string& entry) {
  const size_t as = entry.find(" as ");
  const std::string module = strip(entry.substr(0, as));
  const std::vector<std::string> parts = split(module, '.');
  if (module.empty() || !std::all_of(parts.begin(), parts.end(), is_name))
    error(std::string("expose: ") + kExposeExpected + ", got '" + entry + "'");
  for (const char* word : {"function", "method", "inplace", "none"}) {
    if (differs_by_one_letter(module, word))
      error("expose: '" + module + "' is taken for a misspelled '" + word + "'");
  }
  std::string name = op_->base.substr(op_->base.rfind(':') + 1);
  std::string prefix = module + "_";
  std::replace(prefix.begin(), prefix.end(), '.', '_');
  if (name.rfind(prefix, 0) == 0) name = name.substr(prefix.size());
  if (as != std::string::npos) name = strip(entry.substr(as + 4));
  if (!is_name(name)) error("expose: expected a name after 'as', got '" + entry + "'");
  for (const ModuleName& other : op_->exposed_in) {
    if (other.module == module && other.name == name)
      error("expose: '" + module + "." + name + "' stands twice");
  }
  op_->exposed_in.push_back({module, name});
}

void RecordParser::autocast(const std::string& value) {
  op_->info.autocast = autocast_policy(value);
  if (op_->info.autocast < 0) {
    error("autocast: expected low, fp32, promote, pass, float16, bfloat16 or float32, got '" +
          value + "'");
  }
}

// ---- what follows from the fields

int autocast_policy(const std::string& text) {
  static const char* const names[] = {"pass", "low", "fp32", "promote"};
  for (int policy = 0; policy < 4; ++policy) {
    if (text == names[policy]) return policy;
  }
  for (int dtype : {RB_F16, RB_BF16, RB_F32}) {
    if (text == kDTypes[dtype].name) return RB_AUTOCAST_TO + dtype;
  }
  return -1;
}
std::string autocast_text(int policy) {
  static const char* const names[] = {"pass", "low", "fp32", "promote"};
  return policy >= RB_AUTOCAST_TO ? kDTypes[policy - RB_AUTOCAST_TO].name : names[policy];
}

std::vector<std::unique_ptr<Op>> parse_records(const std::string& text, const std::string& file) {
  return RecordParser(file).run(text);
}

}  // namespace rabbet
