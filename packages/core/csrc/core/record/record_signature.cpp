// The signatures of records.
#include <cctype>
#include <cstring>

#include "record/record_parser.h"
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
}  // namespace

void RecordParser::signature(const std::string& line) {
  op_ = std::make_unique<Op>();
  seen_.clear();
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

void RecordParser::parameters(const std::string& text) {
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

namespace {
// Whether the default value is of the parameter's type.
bool takes_default(const Param& p) {
  const uint32_t tag = p.default_value.tag;
  const bool whole = tag == RB_INT, real = whole || tag == RB_FLOAT;
  const bool none = tag == RB_NONE && (p.flags & RB_ARG_OPTIONAL);
  switch (p.type) {
    case RB_A_INT:
    case RB_A_DIM:
    case RB_A_NEWDIM:
      return whole || none;
    case RB_A_FLOAT:
      return real || none;
    case RB_A_SCALAR:
      return real || tag == RB_BOOL || none;
    case RB_A_BOOL:
      return tag == RB_BOOL || none;
    case RB_A_STR:
      return tag == RB_STR || none;
    case RB_A_TENSOR:
      return tag == RB_NONE || real;
    default:
      return tag == RB_NONE || tag == RB_INTS;
  }
}
}  // namespace

Param RecordParser::parameter(const std::string& part) {
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
  if (p.has_default) {
    p.default_value = default_value(p);
    if (!takes_default(p))
      error_at(part,
               "the default value " + p.default_text + " of '" + p.name_text + "' is no " + type);
  }
  return p;
}

void RecordParser::parameter_type(Param& p, std::string type, const std::string& part) {
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
      error_at(part, "type '" + type + (list ? "[]" : "") + "' does not exist, in '" + part + "'");
    if (optional) p.flags |= RB_ARG_OPTIONAL;
    return;
  }
  error_at(part, "unknown type '" + type + "' in '" + part + "'");
}

// str{'a','b'}
void RecordParser::choices(Param& p, std::string& type, const std::string& part) {
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

RbValue RecordParser::default_value(Param& p) {
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
    for (const std::string& item : split(body, ',')) {
      char* end = nullptr;
      p.default_ints.push_back(std::strtoll(item.c_str(), &end, 10));
      if (item.empty() || *end)
        error_at(text, "cannot read the default value '" + text + "' of '" + p.name_text + "'");
    }
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

void RecordParser::results(const std::string& text) {
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
    const size_t open = body.find('(', view);
    const std::string name = strip(body.substr(open + 1, body.find(')', view) - open - 1));
    op_->info.aliased_args = 1ull << (&param(name, "view(...)") - op_->params.data());
    body = strip(body.substr(0, view));
  }
  op_->optional_items = body == "Tensor?[]";
  op_->returns_list = op_->optional_items || body == "Tensor[]";
  if (!op_->returns_list && body != "Tensor") {
    error_at(text,
             "expected a result 'Tensor', 'Tensor[]', 'Tensor?[]' or '(Tensor name, ...)', "
             "got '" +
                 text + "'");
  }
  op_->ret_names.push_back("out");
}

}  // namespace rabbet
