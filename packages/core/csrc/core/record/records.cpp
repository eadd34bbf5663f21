// The record language: text to operators. Grammar and fields: docs/reference/records.md.
#include <algorithm>
#include <cctype>
#include <cstring>

#include "record/line_text.h"
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
    {"Scalar", RB_A_SCALAR, RB_A_SCALARS},
    {"int", RB_A_INT, RB_A_INTS},
    {"float", RB_A_FLOAT, RB_A_FLOATS},
    {"bool", RB_A_BOOL, RB_A_BOOLS},
    {"str", RB_A_STR, RB_A_STRS},
    {"dtype", RB_A_DTYPE, -1},
    {"device", RB_A_DEVICE, -1},
    {"Generator", RB_A_GENERATOR, -1},
    {"layout", RB_A_LAYOUT, -1},
    {"callable", RB_A_CALLABLE, -1},
    {"dim", RB_A_DIM, RB_A_DIMS},
    {"newdim", RB_A_NEWDIM, -1},
    {"perm", RB_A_PERM, -1},
    {"size", -1, RB_A_SIZE},
    {"bsize", -1, RB_A_BSIZE},
};
const char* const kKinds[] = {"elementwise", "reduction", "along",  "movement",  "batched",
                              "indexing",    "creation",  "random", "composite", "opaque"};

class Parser {
 public:
  explicit Parser(const std::string& file)
      : file_(file), shared_defs_(std::make_shared<std::vector<Definition>>()) {}

  // `first`: the number of the first line.
  std::vector<std::unique_ptr<Op>> run(const std::string& text, int first = 1) {
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

  // A line of the file: it continues the one above if it is indented deeper than that, or the
  // signature above has not come to its results.
  void take(const std::string& raw, int number) {
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

  void read_line() {
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

  int kind(const std::string& name) const {
    for (int k = 0; k < 10; ++k) {
      if (name == kKinds[k]) return k;
    }
    error("unknown kind '" + name + "'");
  }

  // ---- signatures

  void signature(const std::string& line) {
    op_ = std::make_unique<Op>();
    op_line_ = line_;
    op_->file = place();
    op_->schema = line;
    op_->family = file_.substr(0, file_.find('.'));
    op_->shared_defs = shared_defs_;
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
    const size_t equals = text.find('=', text.find('}') == std::string::npos ? 0 : text.find('}'));
    if (equals != std::string::npos) {
      p.has_default = true;
      p.default_text = strip(text.substr(equals + 1));
      text = strip(text.substr(0, equals));
    }
    const size_t space = text.rfind(' ');
    if (space == std::string::npos) error_at(part, "expected 'type name', got '" + part + "'");
    p.name_text = strip(text.substr(space + 1));
    std::string type = strip(text.substr(0, space));
    const size_t alias = type.find('(');
    if (alias != std::string::npos) {
      const size_t end = type.find(')', alias);
      if (end == std::string::npos) error_at(part, "unclosed alias annotation in '" + part + "'");
      if (type[end - 1] == '!') p.flags |= RB_ARG_MUTATED;
      type.erase(alias, end - alias + 1);
    }
    parameter_type(p, type, part);
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
    if (!type.empty() && type.back() == '}') choices(p, type, part);
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

  // str{'a','b'}
  void choices(Param& p, std::string& type, const std::string& part) {
    const size_t brace = type.find('{');
    const std::string body = type.substr(brace + 1, type.size() - brace - 2);
    type = strip(type.substr(0, brace));
    if (type != "str") error_at(part, "only a str has values in braces, in '" + part + "'");
    for (const std::string& value : split(body, ',')) {
      const bool quoted =
          value.size() > 1 && (value[0] == '\'' || value[0] == '"') && value.back() == value[0];
      if (!quoted) error_at(part, "expected quoted values in braces, in '" + part + "'");
      p.choices.push_back(value.substr(1, value.size() - 2));
      for (size_t i = 0; i + 1 < p.choices.size(); ++i) {
        if (p.choices[i] == p.choices.back())
          error_at(part, "the value " + value + " stands twice, in '" + part + "'");
      }
    }
    if (p.choices.empty()) error_at(part, "no value in braces, in '" + part + "'");
  }

  RbValue default_value(Param& p) {
    const std::string& text = p.default_text;
    if (text.empty()) error_at("=", "the default value of '" + p.name_text + "' is missing");
    if (text == "None") return value_none();
    if (text == "True" || text == "False") return value_bool(text == "True");
    if (text[0] == '\'' || text[0] == '"') {
      p.default_str = text.substr(1, text.size() - 2);
      if (!p.choices.empty() &&
          std::find(p.choices.begin(), p.choices.end(), p.default_str) == p.choices.end())
        error_at(text, "the default value of '" + p.name_text + "' is none of its values");
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
    } else if (name == "dtypes") {
      op_->dtypes_text = value;
      op_->accepted = dtype_classes(value);
    } else if (name == "numbers") {
      if (!value.empty()) error("expected 'numbers' alone, got '" + line + "'");
      op_->numbers = true;
    } else if (name == "check") {
      check(value);
    } else if (name == "identity") {
      identity(value);
    } else if (name == "reduce") {
      reduce(value);
    } else if (name == "def") {
      definition(value, op_->defs);
    } else if (name == "or") {
      forms_.emplace_back(value, line_);
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

  // `layout ARGS`: the order of dimensions of one argument for each result; `layout RULE(ARGS)`.
  void layout(std::string value) {
    static const std::pair<const char*, LayoutRule> rules[] = {{"like", LayoutRule::kLike},
                                                               {"channels", LayoutRule::kChannels},
                                                               {"images", LayoutRule::kImages}};
    op_->layout_rule = LayoutRule::kOrder;
    const size_t open = value.find('(');
    if (open != std::string::npos) {
      op_->layout_rule = LayoutRule::kRowMajor;
      for (const auto& [word, rule] : rules) {
        if (value.substr(0, open) == word) op_->layout_rule = rule;
      }
      if (op_->layout_rule == LayoutRule::kRowMajor || value.back() != ')')
        error(
            "layout: expected arguments, or like(ARGUMENT), channels(ARGUMENTS) or "
            "images(ARGUMENTS), got '" +
            value + "'");
      value = value.substr(open + 1, value.size() - open - 2);
    }
    for (const std::string& arg : split(value, ','))
      op_->layout_args.push_back(static_cast<int8_t>(&param(arg, "layout") - op_->params.data()));
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

  // `float complex`: a bit per Category.
  uint8_t dtype_classes(const std::string& value) const {
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
  void check(const std::string& value) {
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

  void identity(const std::string& value) {
    char* end = nullptr;
    std::strtod(value.c_str(), &end);
    const bool number = !value.empty() && !*end;
    if (!number && value != "none" && value != "True" && value != "False")
      error("identity: expected none, a number, True or False, got '" + value + "'");
    op_->identity = value;
  }

  // `reduce dim, keepdim`: which arguments of a reduction say what it reduces.
  void reduce(const std::string& value) {
    const std::vector<std::string> names = split(value, ',');
    if (names.empty() || names.size() > 2)
      error("expected 'reduce DIM' or 'reduce DIM, KEEPDIM', got 'reduce " + value + "'");
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
  void definition(const std::string& value, std::vector<Definition>& to) {
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

  std::string place() const { return file_ + ":" + std::to_string(line_); }

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

  void finish_record();
  void other_form(const Op& main, const std::string& form, int number);
  void default_exposure();
  void core_dims();
  void reduced_arguments();
  void dtype_rules();
  void shape_rule();

  std::string file_;
  std::shared_ptr<std::vector<Definition>> shared_defs_;
  std::string pending_;  // the line that is read once the next one does not continue it
  size_t indent_ = 0;    // of `pending_`
  int line_ = 0;         // where it begins
  int op_line_ = 0;      // where the record begins
  int family_kind_ = RB_KIND_OPAQUE;
  std::vector<std::pair<std::string, int>> forms_;  // `or` lines, with their numbers
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

// The signature in `core`, and of every tensor argument the last dimensions that it names.
void Parser::core_dims() {
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
void Parser::reduced_arguments() {
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

void Parser::finish_record() {
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
  op.by_formula = op.shape_rule == ShapeRule::kFormula ||
                  op.compute_rule == ComputeRule::kFormula || op.dtype_rule == DTypeRule::kGeneral;
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
  info.first_arg = op.arg_infos.data();
  info.arg_size = sizeof(RbArgInfo);
  info.schema = op.schema.c_str();
  info.ret_names = op.ret_name_ptrs.data();
  ops_.push_back(std::move(op_));
  const auto forms = std::move(forms_);
  forms_.clear();
  const size_t main = ops_.size() - 1;
  for (const auto& [form, line] : forms) {
    line_ = line;
    other_form(*ops_[main], form, static_cast<int>(ops_.size() - main));
  }
  line_ = next_line;
}

// `(PARAMETERS) : ARGUMENT = FORMULA, ...`: the same operator with other parameters, a composite.
void Parser::other_form(const Op& main, const std::string& form, int number) {
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
  Parser parser(file_);
  std::vector<std::unique_ptr<Op>> made = parser.run(head, line_);
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
  op.aliases = main.aliases;
  op.family = main.family;
  op.shared_defs = shared_defs_;
  op.as_function = main.as_function;
  op.as_method = main.as_method;
  op.as_inplace = false;
  ops_.push_back(std::move(made[0]));
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
