#include "discovery/toml.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "thread/error.h"

namespace rabbet::toml {

namespace {

constexpr int kMaxDepth = 64;  // of arrays and inline tables

bool is_bare(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

void append_utf8(std::string& out, uint32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
    return;
  }
  const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  static constexpr unsigned char kLead[] = {0, 0xc0, 0xe0, 0xf0};
  out += static_cast<char>(kLead[more] | c >> (6 * more));
  for (int i = more - 1; i >= 0; --i) out += static_cast<char>(0x80 | (c >> (6 * i) & 0x3f));
}

// Bytes of the character at `at`; 0: it is not UTF-8 (RFC 3629).
size_t utf8_length(const std::string& text, size_t at) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const unsigned lead = byte(at);
  if (lead < 0x80) return 1;
  const size_t n = lead >= 0xc2 && lead < 0xe0 ? 2
                   : (lead & 0xf0) == 0xe0     ? 3
                   : (lead & 0xf8) == 0xf0     ? 4
                                               : 0;
  for (size_t i = 1; i < n; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return 0;
  }
  const unsigned second = byte(at + 1);
  const bool is_outside = (lead == 0xe0 && second < 0xa0) || (lead == 0xed && second >= 0xa0) ||
                          (lead == 0xf0 && second < 0x90) || lead > 0xf4 ||
                          (lead == 0xf4 && second >= 0x90);
  return is_outside ? 0 : n;
}

class Parser {
 public:
  explicit Parser(const std::string& text) : text_(text) {}

  Table parse() {
    check_characters();
    Table root;
    Table* current = &root;
    for (skip_lines(); at_ < text_.size(); skip_lines()) {
      if (peek() == '[') {
        current = header(root);
      } else {
        assign(*current);
      }
      end_line();
    }
    return root;
  }

 private:
  [[noreturn]] void wrong(const std::string& what) const {
    int line = 1;
    for (size_t i = 0; i < at_ && i < text_.size(); ++i) line += text_[i] == '\n';
    fail(RB_E_PLUGIN, "line %d: %s", line, what.c_str());
  }

  void check_characters() {
    for (at_ = 0; at_ < text_.size();) {
      const size_t n = utf8_length(text_, at_);
      if (n == 0) wrong("this is not UTF-8");
      const auto c = static_cast<unsigned char>(text_[at_]);
      const bool is_newline = c == '\n' || (c == '\r' && text_[at_ + 1] == '\n');
      if ((c < 0x20 && c != '\t' && !is_newline) || c == 0x7f) wrong("a control character");
      at_ += n;
    }
    at_ = 0;
  }

  char peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  bool take(const char* word) {
    const size_t n = std::strlen(word);
    if (text_.compare(at_, n, word) != 0) return false;
    at_ += n;
    return true;
  }
  void expect(const char* word) {
    if (!take(word)) wrong(std::string("expected ") + word);
  }
  void skip_blanks() {
    while (peek() == ' ' || peek() == '\t') ++at_;
  }
  void skip_comment() {
    skip_blanks();
    if (peek() != '#') return;
    while (at_ < text_.size() && peek() != '\n') ++at_;
  }
  void skip_lines() {
    do {
      skip_comment();
    } while (take("\n") || take("\r\n"));
  }
  void end_line() {
    skip_comment();
    if (at_ < text_.size() && !take("\n") && !take("\r\n")) wrong("expected the end of the line");
  }

  std::string key_part() {
    if (peek() == '"' || peek() == '\'') {
      if (text_.compare(at_, 3, std::string(3, peek())) == 0) wrong("a key of several lines");
      return string();
    }
    const size_t first = at_;
    while (is_bare(peek())) ++at_;
    if (at_ == first) wrong("expected a key");
    return text_.substr(first, at_ - first);
  }
  std::vector<std::string> key() {
    std::vector<std::string> parts;
    do {
      skip_blanks();
      parts.push_back(key_part());
      skip_blanks();
    } while (take("."));
    return parts;
  }

  static Value* find_own(Table& table, const std::string& name) {
    for (auto& [key, value] : table) {
      if (key == name) return &value;
    }
    return nullptr;
  }
  static Value& add(Table& table, const std::string& name, Value value) {
    table.emplace_back(name, std::move(value));
    return table.back().second;
  }
  [[noreturn]] void repeated(const std::string& name) const {
    wrong("'" + name + "' is there already");
  }

  // The table that the parts before the last one of a header lead to.
  Table& parent(Table& root, const std::vector<std::string>& parts) {
    Table* at = &root;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      Value* next = find_own(*at, parts[i]);
      if (!next) next = &add(*at, parts[i], {Table{}, Value::kImplicit});
      if (next->state == Value::kTables) next = &std::get<Array>(next->data).back();
      if (next->state == Value::kClosed) repeated(parts[i]);
      at = &std::get<Table>(next->data);
    }
    return *at;
  }
  Table* header(Table& root) {
    const bool is_array = take("[[");
    if (!is_array) expect("[");
    const std::vector<std::string> parts = key();
    expect(is_array ? "]]" : "]");
    Table& inside = parent(root, parts);
    Value* there = find_own(inside, parts.back());
    if (is_array) {
      if (!there) there = &add(inside, parts.back(), {Array{}, Value::kTables});
      if (there->state != Value::kTables) repeated(parts.back());
      auto& array = std::get<Array>(there->data);
      array.push_back({Table{}, Value::kHeader});
      return &std::get<Table>(array.back().data);
    }
    if (!there) there = &add(inside, parts.back(), {Table{}, Value::kImplicit});
    if (there->state != Value::kImplicit) repeated(parts.back());
    there->state = Value::kHeader;
    return &std::get<Table>(there->data);
  }
  void assign(Table& table) {
    const std::vector<std::string> parts = key();
    expect("=");
    Table* at = &table;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      Value* next = find_own(*at, parts[i]);
      if (!next) next = &add(*at, parts[i], {Table{}, Value::kDotted});
      if (next->state != Value::kDotted) repeated(parts[i]);
      at = &std::get<Table>(next->data);
    }
    if (find_own(*at, parts.back())) repeated(parts.back());
    skip_blanks();
    Value read = value();
    add(*at, parts.back(), std::move(read));
  }

  Value value() {
    switch (peek()) {
      case '"':
      case '\'':
        return {string()};
      case '[':
        return {array()};
      case '{':
        return {inline_table()};
      default:
        return word();
    }
  }
  Array array() {
    if (++depth_ > kMaxDepth) wrong("arrays inside each other, too deep");
    Array items;
    expect("[");
    for (skip_lines(); !take("]"); skip_lines()) {
      items.push_back(value());
      skip_lines();
      if (take(",")) continue;
      expect("]");
      break;
    }
    --depth_;
    return items;
  }
  static void close(Table& table) {
    for (auto& [key, value] : table) {
      value.state = Value::kClosed;
      if (auto* inner = std::get_if<Table>(&value.data)) close(*inner);
    }
  }
  Table inline_table() {
    if (++depth_ > kMaxDepth) wrong("tables inside each other, too deep");
    Table table;
    expect("{");
    skip_blanks();
    while (!take("}")) {
      assign(table);
      skip_blanks();
      if (take("}")) break;
      expect(",");
      skip_blanks();
      if (peek() == '}') wrong("expected a key");
    }
    --depth_;
    close(table);
    return table;
  }

  std::string string() {
    const char quote = peek();
    const std::string three(3, quote);
    const bool is_long = text_.compare(at_, 3, three) == 0;
    at_ += is_long ? 3 : 1;
    if (is_long && !take("\n")) take("\r\n");
    std::string out;
    while (true) {
      if (at_ >= text_.size() || (!is_long && (peek() == '\n' || peek() == '\r')))
        wrong("a string that does not end");
      if (is_long ? text_.compare(at_, 3, three) == 0 : peek() == quote) break;
      if (quote == '"' && peek() == '\\') {
        escape(out, is_long);
      } else {
        out += text_[at_++];
      }
    }
    at_ += is_long ? 3 : 1;
    // Up to two more quotes before the three that end it.
    for (int i = 0; is_long && i < 2 && peek() == quote; ++i) out += text_[at_++];
    return out;
  }
  void escape(std::string& out, bool is_long) {
    static constexpr char kNames[] = "btnfr\"\\", kMeant[] = "\b\t\n\f\r\"\\";
    ++at_;
    const char c = peek();
    if (const char* found = c ? std::strchr(kNames, c) : nullptr) {
      out += kMeant[found - kNames];
      ++at_;
    } else if (c == 'u' || c == 'U') {
      ++at_;
      append_utf8(out, code_point(c == 'u' ? 4 : 8));
    } else if (is_long && std::strchr(" \t\r\n", c) && c) {
      skip_blanks();
      if (!take("\n") && !take("\r\n")) wrong("an escape that is none");
      while (peek() && std::strchr(" \t\r\n", peek())) ++at_;
    } else {
      wrong("an escape that is none");
    }
  }
  uint32_t code_point(int digits) {
    uint32_t c = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const char d = peek();
      const int digit = d >= '0' && d <= '9'   ? d - '0'
                        : d >= 'a' && d <= 'f' ? d - 'a' + 10
                        : d >= 'A' && d <= 'F' ? d - 'A' + 10
                                               : -1;
      if (digit < 0) wrong("an escape that is none");
      c = c << 4 | static_cast<uint32_t>(digit);
    }
    if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) wrong("an escape of no character");
    return c;
  }

  // A number or a truth value.
  Value word() {
    const size_t first = at_;
    while (is_bare(peek()) || peek() == '+' || peek() == '.' || peek() == ':') ++at_;
    const std::string text = text_.substr(first, at_ - first);
    if (text.empty()) wrong("expected a value");
    if (text == "true") return {true};
    if (text == "false") return {false};
    Value number;
    if (read_int(text, number) || read_float(text, number)) return number;
    const bool is_date = text.find(':') != std::string::npos || text.find('-', 1) == 4;
    wrong("'" + text + (is_date ? "': dates and times are not supported" : "' is not a value"));
  }
  // The digits with their underscores, each of which has to stand between two digits, taken out.
  static bool strip(std::string& digits, int base) {
    std::string out;
    const auto is_digit = [&](size_t i) {
      if (i >= digits.size()) return false;
      const char c = digits[i];
      return base == 16 ? std::isxdigit(static_cast<unsigned char>(c)) != 0
                        : c >= '0' && c < '0' + base;
    };
    for (size_t i = 0; i < digits.size(); ++i) {
      if (digits[i] == '_' && i && is_digit(i - 1) && is_digit(i + 1)) continue;
      if (!is_digit(i)) return false;
      out += digits[i];
    }
    digits = out;
    return !out.empty();
  }
  bool read_int(const std::string& text, Value& out) const {
    const bool has_sign = text[0] == '+' || text[0] == '-';
    std::string digits = text.substr(has_sign);
    int base = 10;
    if (digits.size() > 2 && digits[0] == '0') {
      base = digits[1] == 'x' ? 16 : digits[1] == 'o' ? 8 : digits[1] == 'b' ? 2 : 10;
      if (base != 10) digits.erase(0, 2);
    }
    if ((base != 10 && has_sign) || !strip(digits, base)) return false;
    if (base == 10 && digits.size() > 1 && digits[0] == '0') return false;
    errno = 0;
    out.data = static_cast<int64_t>(
        std::strtoll(((text[0] == '-' ? "-" : "") + digits).c_str(), nullptr, base));
    if (errno) wrong("'" + text + "' is too large");
    return true;
  }
  static bool read_float(const std::string& text, Value& out) {
    const bool has_sign = text[0] == '+' || text[0] == '-';
    std::string rest = text.substr(has_sign);
    const double sign = text[0] == '-' ? -1 : 1;
    if (rest == "inf" || rest == "nan") {
      out.data = std::copysign(rest == "inf" ? HUGE_VAL : std::nan(""), sign);
      return true;
    }
    const size_t power_at = rest.find_first_of("eE");
    const size_t point = rest.find('.');
    std::string exponent = power_at == std::string::npos ? "0" : rest.substr(power_at + 1);
    std::string whole = rest.substr(0, std::min(point, power_at));
    std::string part = "0";
    if (point != std::string::npos) {
      if (point > power_at) return false;
      part =
          rest.substr(point + 1, power_at == std::string::npos ? power_at : power_at - point - 1);
    } else if (power_at == std::string::npos) {
      return false;
    }
    const bool is_signed = exponent[0] == '+' || exponent[0] == '-';
    const std::string exponent_sign = is_signed ? exponent.substr(0, 1) : "";
    exponent.erase(0, is_signed);
    if (!strip(whole, 10) || !strip(part, 10) || !strip(exponent, 10)) return false;
    if (whole.size() > 1 && whole[0] == '0') return false;
    out.data =
        sign * std::strtod((whole + "." + part + "e" + exponent_sign + exponent).c_str(), nullptr);
    return true;
  }

  const std::string& text_;
  size_t at_ = 0;
  int depth_ = 0;
};

std::string repr_string(const std::string& text) {
  const char quote =
      text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    if (c == quote || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else {
      out += c;
    }
  }
  return out + quote;
}
std::string repr_float(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  char text[32];
  for (int digits = 1; digits <= 17; ++digits) {
    std::snprintf(text, sizeof text, "%.*g", digits, number);
    if (std::strtod(text, nullptr) == number) break;
  }
  return std::strpbrk(text, ".e") ? text : std::string(text) + ".0";
}

struct Repr {
  std::string operator()(const std::string& s) const { return repr_string(s); }
  std::string operator()(int64_t i) const { return std::to_string(i); }
  std::string operator()(double f) const { return repr_float(f); }
  std::string operator()(bool b) const { return b ? "True" : "False"; }
  std::string operator()(const Array& array) const {
    std::string out = "[";
    for (const Value& v : array) out += (out.size() > 1 ? ", " : "") + repr(&v);
    return out + "]";
  }
  std::string operator()(const Table& table) const {
    std::string out = "{";
    for (const auto& [key, v] : table)
      out += (out.size() > 1 ? ", " : "") + repr_string(key) + ": " + repr(&v);
    return out + "}";
  }
};

}  // namespace

Table parse(const std::string& text) { return Parser(text).parse(); }

const Value* find(const Table& table, const std::string& key) {
  for (const auto& [name, value] : table) {
    if (name == key) return &value;
  }
  return nullptr;
}

std::string repr(const Value* value) { return value ? std::visit(Repr{}, value->data) : "None"; }

}  // namespace rabbet::toml
