// The record language: text to operators. Grammar and fields: docs/reference/records.md.
#include <cctype>
#include <cstring>
#include <map>

#include "record/op.h"
#include "rules/infer.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"
#include "thread/error.h"

namespace rabbet {

namespace {

struct TypeName {
  const char* text;
  int plain, list;  // argument types of `text` and `text[]`; -1: there is none
};
const TypeName kTypes[] = {
    {"Tensor", RB_A_TENSOR, RB_A_TENSORS},
    {"Scalar", RB_A_SCALAR, -1},
    {"int", RB_A_INT, RB_A_INTS},
    {"float", RB_A_FLOAT, RB_A_FLOATS},
    {"bool", RB_A_BOOL, -1},
    {"str", RB_A_STR, -1},
    {"dtype", RB_A_DTYPE, -1},
    {"device", RB_A_DEVICE, -1},
    {"Generator", RB_A_GENERATOR, -1},
    {"dim", RB_A_DIM, RB_A_DIMS},
    {"newdim", RB_A_NEWDIM, -1},
    {"perm", RB_A_PERM, -1},
    {"size", -1, RB_A_SIZE},
    {"bsize", -1, RB_A_BSIZE},
};
const char* const kKinds[] = {"elementwise", "reduction", "along",  "movement",  "batched",
                              "indexing",    "creation",  "random", "composite", "opaque"};

std::string strip(const std::string& s) {
  size_t a = 0, b = s.size();
  while (a < b && std::isspace(static_cast<unsigned char>(s[a]))) ++a;
  while (b > a && std::isspace(static_cast<unsigned char>(s[b - 1]))) --b;
  return s.substr(a, b - a);
}

// Split at `separator` outside brackets and quotes.
std::vector<std::string> split(const std::string& s, char separator) {
  std::vector<std::string> parts;
  int depth = 0;
  char quote = 0;
  std::string part;
  for (char c : s) {
    if (quote) {
      if (c == quote) quote = 0;
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == '(' || c == '[') {
      ++depth;
    } else if (c == ')' || c == ']') {
      --depth;
    } else if (c == separator && depth == 0) {
      parts.push_back(strip(part));
      part.clear();
      continue;
    }
    part += c;
  }
  if (!strip(part).empty() || !parts.empty()) parts.push_back(strip(part));
  return parts;
}

class Parser {
 public:
  explicit Parser(const std::string& file) : file_(file) {}

  std::vector<std::unique_ptr<Op>> run(const std::string& text) {
    size_t at = 0;
    while (at < text.size()) {
      size_t end = text.find('\n', at);
      if (end == std::string::npos) end = text.size();
      ++line_;
      read_line(text.substr(at, end - at));
      at = end + 1;
    }
    finish_record();
    return std::move(ops_);
  }

 private:
  [[noreturn]] void error(const std::string& message) const {
    fail(RB_E_PLUGIN, "%s:%d: %s", file_.c_str(), line_, message.c_str());
  }

  // The same for a part of the signature, with the line and a mark under the part.
  [[noreturn]] void error_at(const std::string& part, const std::string& message) const {
    const std::string& line = op_->schema;
    const size_t at = part.empty() ? std::string::npos : line.find(part);
    const std::string mark = at == std::string::npos ? "" : "\n  " + std::string(at, ' ') + "^";
    error(message + "\n  " + line + mark);
  }

  void read_line(const std::string& raw) {
    const std::string line = strip(raw);
    if (line.empty() || line[0] == '#') return;
    if (std::isspace(static_cast<unsigned char>(raw[0]))) {
      if (!op_) error("a field without a record: '" + line + "'");
      return field(line);
    }
    if (line.rfind("family ", 0) == 0) {
      finish_record();
      const std::string rest = strip(line.substr(7));
      if (rest.rfind("kind ", 0) != 0) error("expected 'family kind KIND', got '" + line + "'");
      family_kind_ = kind(strip(rest.substr(5)));
      return;
    }
    finish_record();
    signature(line);
  }

  int kind(const std::string& name) const {
    for (int k = 0; k < 10; ++k) {
      if (name == kKinds[k]) return k;
    }
    error("unknown kind '" + name + "'");
  }

  // ---- signatures

  void signature(const std::string& line) {
    op_ = std::make_unique<Op>();
    op_->file = file_ + ":" + std::to_string(line_);
    op_->schema = line;
    op_->family = file_.substr(0, file_.find('.'));
    op_->info.kind = family_kind_;
    const size_t open = line.find('(');
    if (open == std::string::npos)
      error_at(line, "expected 'name(parameters) -> result', got '" + line + "'");
    op_->name = strip(line.substr(0, open));
    size_t close = open;
    for (int depth = 0; close < line.size(); ++close) {
      if (line[close] == '(') ++depth;
      if (line[close] == ')' && --depth == 0) break;
    }
    const size_t arrow = line.find("->", close);
    if (op_->name.empty() || close >= line.size() || arrow == std::string::npos) {
      const bool closed = close < line.size();
      error_at(op_->name.empty() ? line
               : closed          ? line.substr(close)
                                 : line.substr(open),
               "expected 'name(parameters) -> result', got '" + line + "'" +
                   (closed ? "" : ": the parenthesis is not closed"));
    }
    const size_t colons = op_->name.rfind("::");
    const size_t dot = op_->name.find('.', colons == std::string::npos ? 0 : colons);
    op_->base = op_->name.substr(0, dot);
    parameters(line.substr(open + 1, close - open - 1));
    results(strip(line.substr(arrow + 2)));
  }

  void parameters(const std::string& text) {
    bool keyword_only = false;
    for (const std::string& part : split(text, ',')) {
      if (part == "*") {
        keyword_only = true;
        continue;
      }
      op_->params.push_back(parameter(part));
      for (size_t i = 0; i + 1 < op_->params.size(); ++i) {
        if (op_->params[i].name_text == op_->params.back().name_text)
          error_at(part, "two parameters are called '" + op_->params[i].name_text + "'");
      }
      if (keyword_only) op_->params.back().flags |= RB_ARG_KEYWORD_ONLY;
    }
    if (op_->params.size() > 31) error("more than 31 parameters");
  }

  Param parameter(const std::string& part) {
    Param p{};
    std::string text = part;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) {
      p.has_default = true;
      p.default_text = strip(text.substr(equals + 1));
      text = strip(text.substr(0, equals));
    }
    const size_t space = text.rfind(' ');
    if (space == std::string::npos) error_at(part, "expected 'type name', got '" + part + "'");
    p.name_text = strip(text.substr(space + 1));
    p.variadic = p.name_text[0] == '*';
    if (p.variadic) p.name_text.erase(0, 1);
    std::string type = strip(text.substr(0, space));
    const size_t alias = type.find('(');
    if (alias != std::string::npos) {
      const size_t end = type.find(')', alias);
      if (end == std::string::npos) error_at(part, "unclosed alias annotation in '" + part + "'");
      if (type[end - 1] == '!') p.flags |= RB_ARG_MUTATED;
      type.erase(alias, end - alias + 1);
    }
    parameter_type(p, type, part);
    if (p.variadic && p.type != RB_A_TENSORS)
      error_at(part, "only Tensor[] can be given one by one, in '" + part + "'");
    if (p.has_default) p.default_value = default_value(p);
    return p;
  }

  void parameter_type(Param& p, std::string type, const std::string& part) {
    bool list = false;
    auto take = [&type](const char* suffix) {
      const size_t n = std::strlen(suffix);
      if (type.size() < n || type.compare(type.size() - n, n, suffix)) return false;
      type.resize(type.size() - n);
      return true;
    };
    bool optional = take("?");
    if (take("[]")) {
      list = true;
    } else if (!type.empty() && type.back() == ']') {
      const size_t bracket = type.find('[');
      p.fixed_len = std::atoi(type.c_str() + bracket + 1);
      type.resize(bracket);
      list = true;
    }
    if (list && take("?")) p.optional_items = true;
    for (const TypeName& known : kTypes) {
      if (type != known.text) continue;
      p.type = list ? known.list : known.plain;
      if (p.type < 0)
        error_at(part,
                 "type '" + type + (list ? "[]" : "") + "' does not exist, in '" + part + "'");
      if (optional) p.flags |= RB_ARG_OPTIONAL;
      return;
    }
    error_at(part, "unknown type '" + type + "' in '" + part + "'");
  }

  RbValue default_value(Param& p) {
    const std::string& text = p.default_text;
    if (text.empty()) error_at("=", "the default value of '" + p.name_text + "' is missing");
    if (text == "None") return value_none();
    if (text == "True" || text == "False") return value_bool(text == "True");
    if (text[0] == '\'' || text[0] == '"') {
      p.default_str = text.substr(1, text.size() - 2);
      RbValue v = value_none();
      v.tag = RB_STR;
      v.len = static_cast<uint32_t>(p.default_str.size());
      return v;  // the pointer is set once the parameter stays in place
    }
    const bool is_list = p.type == RB_A_INTS || p.type == RB_A_DIMS || p.type == RB_A_SIZE;
    if (text[0] == '[' || is_list) {
      const std::string body = text[0] == '[' ? text.substr(1, text.size() - 2) : text;
      for (const std::string& item : split(body, ','))
        p.default_ints.push_back(std::atoll(item.c_str()));
      if (text[0] != '[') p.default_ints.resize(p.fixed_len ? p.fixed_len : 1, p.default_ints[0]);
      RbValue v = value_none();
      v.tag = RB_INTS;
      v.len = static_cast<uint32_t>(p.default_ints.size());
      return v;
    }
    char* end = nullptr;
    if (p.type == RB_A_FLOAT || text.find_first_of(".e") != std::string::npos) {
      const double f = std::strtod(text.c_str(), &end);
      if (!*end) return value_float(f);
    } else {
      const long long i = std::strtoll(text.c_str(), &end, 10);
      if (!*end) return value_int(i);
    }
    error_at(text, "cannot read the default value '" + text + "' of '" + p.name_text + "'");
  }

  void results(const std::string& text) {
    std::string body = text;
    if (!body.empty() && body[0] == '(') {
      const size_t end = body.rfind(')');
      if (end == std::string::npos) error_at(text, "the parenthesis of the results is not closed");
      for (const std::string& part : split(body.substr(1, end - 1), ',')) {
        const size_t space = part.find(' ');
        if (space == std::string::npos || part.substr(0, space) != "Tensor") {
          error_at(part, "expected 'Tensor name' among several results, got '" + part + "'");
        }
        op_->ret_names.push_back(strip(part.substr(space + 1)));
      }
      if (op_->ret_names.size() > kMaxRets)
        error_at(text, "more than " + std::to_string(kMaxRets) + " results");
      return;
    }
    const size_t view = body.find("view");
    if (view != std::string::npos) {
      const bool maybe = body.compare(view, 6, "view?(") == 0;
      op_->info.flags |= maybe ? RB_OP_MAYBE_VIEW : RB_OP_VIEW;
      body = strip(body.substr(0, view));
    }
    if (body == "Tensor[]") {
      op_->returns_list = true;
    } else if (body != "Tensor") {
      error_at(text, "expected a result 'Tensor', 'Tensor[]' or '(Tensor name, ...)', got '" +
                         text + "'");
    }
    op_->ret_names.push_back("out");
  }

  // ---- fields

  Param& param(const std::string& name, const char* field) {
    for (Param& p : op_->params) {
      if (p.name_text == name) return p;
    }
    error(std::string(field) + ": '" + op_->name + "' has no argument '" + name + "'");
  }

  void field(const std::string& line) {
    const size_t space = line.find_first_of(" \t");
    const std::string name = line.substr(0, space);
    const std::string value = space == std::string::npos ? "" : strip(line.substr(space));
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
    } else if (name == "autocast") {
      autocast(value);
    } else if (name == "linear" || name == "bilinear") {
      const uint32_t flag = name == "linear" ? RB_ARG_LINEAR : RB_ARG_BILINEAR;
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
      op_->expose_given = true;
      op_->as_function = op_->as_method = op_->as_inplace = false;
      for (const std::string& word : split(value, ',')) expose(word);
    } else if (name == "alias") {
      op_->aliases = split(value, ',');
    } else if (name == "ref") {
      op_->ref = value;
    } else if (name == "nocast") {
      for (const std::string& arg : split(value, ','))
        op_->never_cast |= 1ull << (&param(arg, "nocast") - op_->params.data());
    } else if (name == "layout") {
      for (const std::string& arg : split(value, ','))
        op_->layout_args.push_back(static_cast<int8_t>(&param(arg, "layout") - op_->params.data()));
    } else if (name == "accepts") {
      if (value != "int" && value != "real" && value != "float")
        error("accepts: expected int, real or float, got '" + value + "'");
      op_->accepts = value;
    } else if (name == "example" || name == "domain") {
      if (value.empty()) error("expected '" + name + "' and what it says");
      auto& lines = name == "example" ? op_->examples : op_->domain;
      lines.push_back({file_ + ":" + std::to_string(line_), value});
    } else if (name == "doc") {
      op_->doc = value;
    } else if (name == "detached") {
      op_->detached = true;
    } else {
      error("unknown field '" + name + "'");
    }
  }

  // `jvp FORMULA`, or `jvp RESULT FORMULA` where there are several.
  void jvp(const std::string& value) {
    const size_t gap = value.find_first_of(" \t");
    int ret = 0;
    std::string text = value;
    if (op_->ret_names.size() > 1) {
      const std::string name = value.substr(0, gap);
      while (ret < static_cast<int>(op_->ret_names.size()) && op_->ret_names[ret] != name) ++ret;
      if (gap == std::string::npos || ret == static_cast<int>(op_->ret_names.size()))
        error("expected 'jvp RESULT FORMULA', got 'jvp " + value + "'");
      text = strip(value.substr(gap));
    }
    if (text.empty()) error("expected 'jvp FORMULA'");
    for (const auto& [other, formula] : op_->jvps) {
      if (other == ret) error("a second jvp for '" + op_->ret_names[ret] + "'");
    }
    op_->jvps.emplace_back(ret, text);
  }

  // `batch leading NAMES` or `batch fold NAMES`: what an additional dimension of these means.
  void batch(const std::string& value) {
    const size_t gap = value.find_first_of(" \t");
    const std::string how = value.substr(0, gap);
    if ((how != "leading" && how != "fold") || gap == std::string::npos)
      error("batch: expected 'leading ARGUMENTS' or 'fold ARGUMENTS', got '" + value + "'");
    const uint32_t flag = how == "fold" ? RB_ARG_FOLD : RB_ARG_LEADING;
    for (const std::string& arg : split(strip(value.substr(gap)), ','))
      param(arg, "batch").flags |= flag;
  }

  void expose(const std::string& word) {
    if (word == "function") {
      op_->as_function = true;
    } else if (word == "method") {
      op_->as_method = true;
    } else if (word == "inplace") {
      op_->as_inplace = true;
    } else if (word != "none") {
      error("expose: expected function, method, inplace or none, got '" + word + "'");
    }
  }

  void autocast(const std::string& value) {
    op_->info.autocast = autocast_policy(value);
    if (op_->info.autocast < 0) {
      error("autocast: expected low, fp32, promote, pass, float16, bfloat16 or float32, got '" +
            value + "'");
    }
  }

  // ---- what follows from the fields

  int8_t param_index(const char* name) const {
    for (size_t i = 0; i < op_->params.size(); ++i) {
      if (op_->params[i].name_text == name) return static_cast<int8_t>(i);
    }
    return -1;
  }

  void finish_record();
  void default_exposure();
  void core_dims();
  void dtype_rules();
  void shape_rule();

  std::string file_;
  int line_ = 0;
  int family_kind_ = RB_KIND_OPAQUE;
  std::unique_ptr<Op> op_;
  std::vector<std::unique_ptr<Op>> ops_;
};

// The arguments that a rule such as `promote(input, other)` names; 0 if it is not of that form.
uint64_t named_arguments(const Op& op, const std::string& rule, const char* function) {
  const std::string head = std::string(function) + "(";
  if (rule.rfind(head, 0) != 0 || rule.find(')') != rule.size() - 1) return 0;
  uint64_t mask = 0;
  for (const std::string& name :
       split(rule.substr(head.size(), rule.size() - head.size() - 1), ',')) {
    for (size_t i = 0; i < op.params.size(); ++i) {
      if (op.params[i].name_text == name) mask |= 1ull << i;
    }
  }
  return mask;
}

void Parser::default_exposure() {
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

// Of every tensor argument: the last dimensions that the signature in `core` names.
void Parser::core_dims() {
  const size_t arrow = op_->core_text.find("->");
  const std::vector<std::string> groups = split(op_->core_text.substr(0, arrow), ',');
  size_t at = 0;
  for (Param& p : op_->params) {
    p.core_ndim = -1;
    if (p.type != RB_A_TENSOR) continue;
    if (op_->info.kind == RB_KIND_ELEMENTWISE) p.core_ndim = 0;
    if (groups.empty()) continue;
    if (at == groups.size()) error("core: a group for each Tensor argument is needed");
    const std::string& group = groups[at++];
    if (group.size() < 2 || group.front() != '(' || group.back() != ')')
      error("core: expected '(m,n),...->...', got '" + op_->core_text + "'");
    p.core_ndim = static_cast<int32_t>(split(group.substr(1, group.size() - 2), ',').size());
  }
}

void Parser::dtype_rules() {
  Op& op = *op_;
  const uint64_t tensors = op.tensor_args;
  if (op.dtype_text.empty()) {
    if (op.info.kind == RB_KIND_ELEMENTWISE) {
      std::string all = "promote(";
      for (size_t i = 0; i < op.params.size(); ++i) {
        if (tensors >> i & 1) all += (all.back() == '(' ? "" : ", ") + op.params[i].name_text;
      }
      op.dtype_text.push_back(all + ")");
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
  static const std::string kGiven = " if dtype is None else dtype";
  if (rule.size() > kGiven.size() &&
      rule.compare(rule.size() - kGiven.size(), kGiven.size(), kGiven) == 0) {
    rule.resize(rule.size() - kGiven.size());
    op.dtype_arg = param_index("dtype");
  }
  const uint64_t promoted = named_arguments(op, rule, "promote"),
                 floated = named_arguments(op, rule, "float");
  if (promoted == tensors && promoted) {
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
    if (promoted | floated | named_arguments(op, rule, "floating")) {
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

void Parser::shape_rule() {
  Op& op = *op_;
  op.dim_arg = param_index("dim");
  op.keepdim_arg = param_index("keepdim");
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
    return;
  }
  switch (op.info.kind) {
    case RB_KIND_ELEMENTWISE:
      op.shape_rule = ShapeRule::kBroadcast;
      break;
    case RB_KIND_REDUCTION:
      op.shape_rule = ShapeRule::kReduce;
      break;
    case RB_KIND_BATCHED:
      op.shape_rule = ShapeRule::kGufunc;
      break;
    default:
      op.shape_rule = ShapeRule::kSameAsFirst;
  }
}

void Parser::finish_record() {
  if (!op_) return;
  Op& op = *op_;
  for (size_t i = 0; i < op.params.size(); ++i) {
    Param& p = op.params[i];
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
  }
  default_exposure();
  dtype_rules();
  op.one_dtype = op.dtype_text.size() == 1 && op.dtype_rule != DTypeRule::kGeneral;
  if (op.casts && !op.compute_text.empty()) {
    op.compute_rule = op.compute_text == "out"            ? ComputeRule::kOut
                      : op.compute_text == "promote(all)" ? ComputeRule::kPromoteAll
                                                          : ComputeRule::kFormula;
  }
  op.compute_args &= ~op.never_cast;
  shape_rule();
  core_dims();
  for (size_t i = 0; i < op.params.size(); ++i) {
    if (op.compute_args >> i & 1) op.params[i].flags |= RB_ARG_COMPUTED;
  }
  for (const Param& p : op.params) op.arg_infos.push_back(p);
  for (const std::string& name : op.ret_names) op.ret_name_ptrs.push_back(name.c_str());
  if (op.info.kind == RB_KIND_RANDOM || op.info.kind == RB_KIND_CREATION) op.detached = true;
  RbOpInfo& info = op.info;
  info.struct_size = sizeof(RbOpInfo);
  if (!op.vjps.empty()) info.flags |= RB_OP_HAS_VJP;
  if (!op.jvps.empty()) info.flags |= RB_OP_HAS_JVP;
  if (op.has_decomp()) info.flags |= RB_OP_HAS_DECOMP;
  if (op.detached) info.flags |= RB_OP_DETACHED;
  if (op.shape_rule == ShapeRule::kData) info.flags |= RB_OP_DATA_SHAPE;
  info.name = op.name.c_str();
  info.nargs = static_cast<int32_t>(op.params.size());
  info.nrets = static_cast<int32_t>(op.ret_names.size());
  info.args = op.arg_infos.data();
  info.ret_names = op.ret_name_ptrs.data();
  ops_.push_back(std::move(op_));
}

}  // namespace

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
  return Parser(file).run(text);
}

}  // namespace rabbet
