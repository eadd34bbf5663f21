// Examples of records: a parser of the small language in which calls are written, and whether they
// fit the signature.
#include "record/examples.h"

#include <cctype>
#include <cstdlib>
#include <cstring>

#include "tensor/dtype.h"
#include "thread/error.h"

namespace rabbet {

namespace {

struct MakerForm {
  const char* name;
  int values;      // before `;`
  bool has_shape;  // after it, or all there is
};
// What makes a tensor, beside a shape alone; docs/reference/records.md says what each holds.
const MakerForm kMakers[] = {
    {"index", 1, true},      {"mask", 0, true},        {"ties", 0, true},    {"nan", 0, true},
    {"wide", 1, false},      {"positive", 0, true},    {"fixed", 0, true},   {"spd", 1, false},
    {"hermitian", 1, false}, {"orthogonal", 1, false}, {"sorted", 1, false}, {"data", 1, false}};

class Reader {
 public:
  Reader(const Op& op, const char* field, const RecordLine& line)
      : op_(op), field_(field), line_(line), text_(line.text) {}

  std::vector<Example> examples() {
    std::vector<Example> all;
    do {
      space();
      const size_t from = at_;
      Example made;
      made.args = arguments(";");
      made.text = text_.substr(from, at_ - from);
      while (!made.text.empty() && made.text.back() == ' ') made.text.pop_back();
      all.push_back(std::move(made));
    } while (take(';'));
    if (at_ < text_.size()) error("expected ',' or ';' before '" + text_.substr(at_) + "'");
    return all;
  }

  std::vector<Bound> bounds() {
    std::vector<Bound> all;
    do {
      all.push_back(bound());
    } while (take(','));
    if (at_ < text_.size()) error("expected ',' before '" + text_.substr(at_) + "'");
    return all;
  }

  [[noreturn]] void error(const std::string& message) const {
    fail(RB_E_PLUGIN, "%s: %s of '%s': %s, in '%s'", line_.place.c_str(), field_, op_.name.c_str(),
         message.c_str(), text_.c_str());
  }

 private:
  void space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  char peek() {
    space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void need(char c) {
    if (take(c)) return;
    const std::string rest = at_ < text_.size() ? "'" + text_.substr(at_) + "'" : "the end";
    error(std::string("expected '") + c + "' before " + rest);
  }
  bool ends(const char* stops) {
    const char c = peek();
    return c == '\0' || std::strchr(stops, c);
  }

  std::string word() {
    space();
    const size_t from = at_;
    auto part = [&](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == ':';
    };
    while (at_ < text_.size() && part(text_[at_])) ++at_;
    return text_.substr(from, at_ - from);
  }

  // Values up to one of `stops`, which is left; each may have a keyword.
  std::vector<ExampleValue> arguments(const char* stops) {
    std::vector<ExampleValue> args;
    while (!ends(stops)) {
      const std::string keyword = keyword_here();
      args.push_back(value());
      args.back().keyword = keyword;
      if (!take(',')) break;
    }
    return args;
  }

  std::string keyword_here() {
    space();
    const size_t from = at_;
    const std::string name = word();
    if (!name.empty() && !std::isdigit(static_cast<unsigned char>(name[0])) && take('='))
      return name;
    at_ = from;
    return "";
  }

  ExampleValue value() {
    ExampleValue v;
    const char c = peek();
    if (c == '(') {
      ++at_;
      v.kind = ExampleValue::kTensor;
      v.shape = sizes();
    } else if (c == '[') {
      ++at_;
      v.kind = ExampleValue::kList;
      v.items = arguments("]");
      need(']');
    } else if (c == '\'' || c == '"') {
      const size_t end = text_.find(c, at_ + 1);
      if (end == std::string::npos) error("a string is not closed");
      v.kind = ExampleValue::kString;
      v.text = text_.substr(at_ + 1, end - at_ - 1);
      at_ = end + 1;
    } else if (std::isdigit(static_cast<unsigned char>(c)) || c == '-' || c == '+' || c == '.') {
      number(v);
    } else {
      named(v, word());
    }
    return v;
  }

  void number(ExampleValue& v) {
    const char* begin = text_.c_str() + at_;
    char *whole_end = nullptr, *end = nullptr;
    v.whole = std::strtoll(begin, &whole_end, 10);
    v.number = std::strtod(begin, &end);
    if (end == begin) error("expected a value before '" + text_.substr(at_) + "'");
    v.kind = end == whole_end ? ExampleValue::kInt : ExampleValue::kFloat;
    at_ += end - begin;
  }

  // Sizes and the parenthesis that closes them.
  std::vector<int64_t> sizes() {
    std::vector<int64_t> shape;
    while (peek() != ')') {
      ExampleValue v;
      if (!std::isdigit(static_cast<unsigned char>(peek()))) {
        error("a shape holds sizes, got '" + text_.substr(at_) + "'");
      }
      number(v);
      if (v.kind != ExampleValue::kInt) error("a shape holds sizes, got a number with a fraction");
      shape.push_back(v.whole);
      if (!take(',')) break;
    }
    need(')');
    return shape;
  }

  void named(ExampleValue& v, const std::string& name) {
    if (name.empty()) error("expected a value before '" + text_.substr(at_) + "'");
    if (peek() != '(') {
      v.kind = name == "None"                      ? ExampleValue::kNone
               : name == "True" || name == "False" ? ExampleValue::kBool
               : name == "inf"                     ? ExampleValue::kFloat
                                                   : ExampleValue::kName;
      v.whole = name == "True";
      v.number = std::strtod("inf", nullptr);
      v.text = name;
      return;
    }
    ++at_;
    if (name == "result") return result(v);
    for (const MakerForm& maker : kMakers) {
      if (name == maker.name) return made(v, maker);
    }
    std::string known = "result";
    for (const MakerForm& maker : kMakers) known += std::string(", ") + maker.name;
    error("unknown maker '" + name + "', known are " + known);
  }

  void made(ExampleValue& v, const MakerForm& maker) {
    v.kind = ExampleValue::kTensor;
    v.text = maker.name;
    for (int i = 0; i < maker.values; ++i) {
      if (i) need(',');
      v.items.push_back(value());
    }
    const bool counts = std::strcmp(maker.name, "data") != 0;
    for (const ExampleValue& given : v.items) {
      const bool numbers = given.kind == ExampleValue::kList || given.kind == ExampleValue::kFloat;
      if (counts ? given.kind != ExampleValue::kInt : !numbers && given.kind != ExampleValue::kInt)
        error(std::string(maker.name) + " takes " + (counts ? "a whole number" : "numbers"));
    }
    if (maker.values && maker.has_shape) need(';');
    if (maker.has_shape) {
      v.shape = sizes();
    } else {
      need(')');
    }
  }

  // result(OPERATOR, ARGUMENTS...)[K]
  void result(ExampleValue& v) {
    v.kind = ExampleValue::kResult;
    v.text = word();
    if (!find_op(v.text.c_str())) error("result: there is no operator '" + v.text + "'");
    if (take(',')) v.items = arguments(")");
    need(')');
    if (!take('[')) return;
    ExampleValue k;
    number(k);
    v.whole = k.whole;
    need(']');
  }

  // NAME < 1, 0 <= NAME <= 1, NAME != 0
  Bound bound() {
    Bound b;
    double left = 0;
    const bool number_first = limit(left);
    char sign = 0;
    bool closed = false;
    if (number_first) {
      compare(sign, closed);
      (sign == '<' ? b.low : b.high) = left;
      (sign == '<' ? b.has_low : b.has_high) = true;
      (sign == '<' ? b.low_closed : b.high_closed) = closed;
    }
    b.argument = word();
    bool found = false;
    for (const Param& p : op_.params) {
      const bool tensor = p.type == RB_A_TENSOR || p.type == RB_A_TENSORS;
      found = found || (tensor && p.name_text == b.argument);
    }
    if (!found) error("there is no tensor argument '" + b.argument + "'");
    if (take('!')) return nonzero(b);
    if (peek() != '<' && peek() != '>') {
      if (number_first) return b;
      error("expected '" + b.argument + "' to be compared with a number");
    }
    compare(sign, closed);
    double right = 0;
    if (!limit(right)) error("expected a number before '" + text_.substr(at_) + "'");
    (sign == '<' ? b.high : b.low) = right;
    (sign == '<' ? b.has_high : b.has_low) = true;
    (sign == '<' ? b.high_closed : b.low_closed) = closed;
    if (b.has_low && b.has_high && b.low >= b.high) error("no number lies between the bounds");
    return b;
  }

  // The rest of `NAME != 0`.
  Bound nonzero(Bound b) {
    need('=');
    double excluded = 1;
    if (!limit(excluded) || excluded != 0) error("only 0 may be excluded by '!='");
    b.nonzero = true;
    return b;
  }

  bool limit(double& number) {
    space();
    char* end = nullptr;
    const char* begin = text_.c_str() + at_;
    if (std::isalpha(static_cast<unsigned char>(*begin))) return false;
    number = std::strtod(begin, &end);
    at_ += end - begin;
    return end != begin;
  }

  void compare(char& sign, bool& closed) {
    sign = peek();
    if (sign != '<' && sign != '>') error("expected '<' or '>' before '" + text_.substr(at_) + "'");
    ++at_;
    closed = at_ < text_.size() && text_[at_] == '=';
    if (closed) ++at_;
  }

  const Op& op_;
  const char* field_;
  const RecordLine& line_;
  const std::string& text_;
  size_t at_ = 0;
};

// ---- whether a call fits the signature

bool all_of_kind(const ExampleValue& v, ExampleValue::Kind kind) {
  if (v.kind != ExampleValue::kList) return v.kind == kind;
  for (const ExampleValue& item : v.items) {
    if (item.kind != kind) return false;
  }
  return true;
}

bool is_number(const ExampleValue& v) {
  return v.kind == ExampleValue::kInt || v.kind == ExampleValue::kFloat ||
         v.kind == ExampleValue::kBool;
}

bool is_dtype(const std::string& name) {
  return name == "dtype" || dtype_by_name(name.c_str()) >= 0;  // "dtype": the one under test
}

bool is_tensor(const ExampleValue& v) {
  return v.kind == ExampleValue::kTensor || v.kind == ExampleValue::kResult;
}

// What a parameter takes, or "" if `v` is that.
std::string misfit(const Op& op, const Param& p, const ExampleValue& v) {
  const bool none = v.kind == ExampleValue::kNone;
  if (none && (p.flags & RB_ARG_OPTIONAL)) return "";
  switch (p.type) {
    case RB_A_TENSOR:
      return is_tensor(v) || (is_number(v) && op.takes_numbers()) ? "" : "a tensor";
    case RB_A_TENSORS:
      if (v.kind != ExampleValue::kList) return "a list of tensors";
      for (const ExampleValue& item : v.items) {
        const bool left_out = item.kind == ExampleValue::kNone && p.optional_items;
        if (!is_tensor(item) && !left_out) return "a list of tensors";
      }
      return "";
    case RB_A_SCALAR:
      return is_number(v) ? "" : "a number";
    case RB_A_FLOAT:
      return v.kind == ExampleValue::kInt || v.kind == ExampleValue::kFloat ? "" : "a number";
    case RB_A_INT:
    case RB_A_DIM:
    case RB_A_NEWDIM:
      return v.kind == ExampleValue::kInt ? "" : "a whole number";
    case RB_A_BOOL:
      return v.kind == ExampleValue::kBool ? "" : "True or False";
    case RB_A_STR:
    case RB_A_DEVICE:
      return v.kind == ExampleValue::kString ? "" : "a string";
    case RB_A_DTYPE:
      return v.kind == ExampleValue::kName && is_dtype(v.text) ? "" : "the name of a dtype";
    case RB_A_FLOATS:
      return all_of_kind(v, ExampleValue::kInt) || all_of_kind(v, ExampleValue::kFloat)
                 ? ""
                 : "a list of numbers";
    case RB_A_GENERATOR:
      return "nothing: examples draw from the default generator";
    default:
      return all_of_kind(v, ExampleValue::kInt) ? "" : "a list of whole numbers";
  }
}

int parameter(const Op& op, const std::string& name) {
  for (size_t i = 0; i < op.params.size(); ++i) {
    if (op.params[i].name_text == name) return static_cast<int>(i);
  }
  return -1;
}

// Names in `result(...)` stand for arguments of the call.
void check_names(const Op& op, const ExampleValue& v, const Reader& reader) {
  for (const ExampleValue& item : v.items) {
    if (item.kind == ExampleValue::kName && !is_dtype(item.text) && parameter(op, item.text) < 0)
      reader.error("'" + item.text + "' is neither an argument of the call nor a dtype");
    check_names(op, item, reader);
  }
}

void check_call(const Op& op, const Example& call, const Reader& reader) {
  uint64_t given = 0;
  for (size_t i = 0; i < call.args.size(); ++i) {
    const ExampleValue& v = call.args[i];
    int at = static_cast<int>(i);
    if (!v.keyword.empty()) {
      at = parameter(op, v.keyword);
      if (at < 0) reader.error("there is no argument '" + v.keyword + "'");
    } else if (i >= op.params.size() || (op.params[i].flags & RB_ARG_KEYWORD_ONLY)) {
      reader.error("more arguments than the signature has without keywords");
    } else if (i && !call.args[i - 1].keyword.empty()) {
      reader.error("an argument without a keyword comes after one with a keyword");
    }
    const Param& p = op.params[at];
    if (given >> at & 1) reader.error("argument '" + p.name_text + "' is given twice");
    given |= uint64_t{1} << at;
    const std::string wanted = misfit(op, p, v);
    if (!wanted.empty()) reader.error("argument '" + p.name_text + "' takes " + wanted);
    if (v.kind == ExampleValue::kResult || v.kind == ExampleValue::kList)
      check_names(op, v, reader);
  }
  for (size_t i = 0; i < op.params.size(); ++i) {
    const Param& p = op.params[i];
    if (!p.has_default && !(given >> i & 1))
      reader.error("argument '" + p.name_text + "' is missing");
  }
}

}  // namespace

std::vector<Example> read_examples(const Op& op) {
  std::vector<Example> all;
  for (const RecordLine& line : op.examples) {
    Reader reader(op, "example", line);
    for (Example& call : reader.examples()) {
      check_call(op, call, reader);
      all.push_back(std::move(call));
    }
  }
  return all;
}

std::vector<Bound> read_domain(const Op& op) {
  std::vector<Bound> all;
  for (const RecordLine& line : op.domain) {
    Reader reader(op, "domain", line);
    for (Bound& b : reader.bounds()) all.push_back(std::move(b));
  }
  return all;
}

void check_examples(const Op& op) {
  read_examples(op);
  read_domain(op);
}

}  // namespace rabbet
