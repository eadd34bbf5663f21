// From formula text to trees and on to a program: a recursive-descent parser for a subset of
// Python's expressions.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <tuple>

#include "formula/formula.h"
#include "formula/formula_program.h"
#include "formula/formula_value.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"
#include "thread/error.h"

namespace rabbet {

namespace {

struct Token {
  enum Kind { kEnd, kName, kNumber, kString, kSymbol } kind = kEnd;
  std::string text;
};

thread_local const std::vector<std::unique_ptr<Op>>* fresh_ops = nullptr;

const Op* find_callee(const std::string& name) {
  for (size_t i = 0; fresh_ops && i < fresh_ops->size(); ++i) {
    if ((*fresh_ops)[i]->name == name) return (*fresh_ops)[i].get();
  }
  return find_op(name.c_str());
}

// How often `word` stands in `text`.
int count_word(const std::string& text, const std::string& word) {
  auto in_name = [&](size_t i) {
    return i < text.size() && (std::isalnum(static_cast<unsigned char>(text[i])) || text[i] == '_');
  };
  int count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    if (!(at && in_name(at - 1)) && !in_name(at + word.size())) ++count;
  }
  return count;
}

class Compiler {
 public:
  Compiler(const Op& op, Tree& out) : op_(op), f_(out) {}

  int compile(const std::string& text, bool dtype_rule) {
    dtype_rule_ = dtype_rule;
    source_ = text;
    at_ = 0;
    next();
    const int root = expression();
    if (token_.kind != Token::kEnd) error("unexpected '" + token_.text + "'");
    return root;
  }

  void let(const std::string& name, const std::string& text) {
    const int root = compile(text, false);
    if (f_.lets.size() == kMaxLets) error("more than " + std::to_string(kMaxLets) + " lets");
    lets_.push_back(static_cast<int>(f_.lets.size()));
    f_.lets.push_back({name, root});
  }

  int condition(const Check& check) {
    place_ = check.place;
    return compile(check.condition, true);
  }

  // Texts, each with the value that follows it; -1: none.
  std::vector<std::pair<std::string, int>> message(const Check& check) {
    std::vector<std::pair<std::string, int>> parts;
    const std::string& text = check.message;
    size_t at = 0;
    for (size_t open; (open = text.find('{', at)) != std::string::npos;) {
      const size_t close = text.find('}', open);
      if (close == std::string::npos) error("a '{' without '}' in the message '" + text + "'");
      const int value = compile(text.substr(open + 1, close - open - 1), true);
      parts.emplace_back(text.substr(at, open - at), value);
      at = close + 1;
    }
    parts.emplace_back(text.substr(at), -1);
    return parts;
  }

  // The definition by itself, its arguments standing for anything; `max` and the like are functions
  // of numbers where it is of host data.
  void definition(const Definition& def, bool of_host_data) {
    dtype_rule_ = of_host_data;
    place_ = def.place;
    if (is_host_function(def.name.c_str(), true) || find_op(def.name.c_str()))
      error("def '" + def.name + "' has the name of an operator or function");
    CallArgs args;
    args.positional.assign(def.params.size(), node(NodeKind::kZero, {}));
    inlined(def, args);
  }

 private:
  // Parser and evaluators are recursive: so much of the stack they may take.
  static constexpr int kDeepest = 200;
  class Deeper {
   public:
    explicit Deeper(Compiler& c) : c_(c) { c_.check_depth(++c_.depth_); }
    ~Deeper() { --c_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    Compiler& c_;
  };
  void check_depth(int depth) const {
    if (depth > kDeepest)
      error("nested deeper than " + std::to_string(kDeepest) +
            " levels; make an operator of a part");
  }

  [[noreturn]] void error(const std::string& message) const {
    fail(RB_E_PLUGIN, "%s: %s: %s, in formula '%s'",
         place_.empty() ? op_.file.c_str() : place_.c_str(), op_.name.c_str(), message.c_str(),
         source_.size() > 400 ? (source_.substr(0, 400) + " ...").c_str() : source_.c_str());
  }

  // ---- tokens

  void next() {
    while (at_ < source_.size() && std::isspace(static_cast<unsigned char>(source_[at_]))) ++at_;
    token_ = Token();
    if (at_ >= source_.size()) return;
    const char c = source_[at_];
    const size_t start = at_;
    if (std::isalpha(static_cast<unsigned char>(c)) || c == '_') {
      while (at_ < source_.size() &&
             (std::isalnum(static_cast<unsigned char>(source_[at_])) || source_[at_] == '_')) {
        ++at_;
        // "space::name" is one name
        if (source_.compare(at_, 2, "::") == 0 && at_ + 2 < source_.size() &&
            std::isalpha(static_cast<unsigned char>(source_[at_ + 2])))
          at_ += 2;
      }
      token_.kind = Token::kName;
    } else if (std::isdigit(static_cast<unsigned char>(c)) ||
               (c == '.' && std::isdigit(static_cast<unsigned char>(source_[at_ + 1])))) {
      char* end = nullptr;
      std::strtod(source_.c_str() + at_, &end);
      at_ = end - source_.c_str();
      token_.kind = Token::kNumber;
    } else if (c == '\'' || c == '"') {
      const size_t close = source_.find(c, at_ + 1);
      if (close == std::string::npos) error("unclosed string");
      at_ = close + 1;
      token_.kind = Token::kString;
      token_.text = source_.substr(start + 1, close - start - 1);
      return;
    } else {
      static const char* const pairs[] = {"**", "//", "==", "!=", "<=", ">="};
      at_ += 1;
      for (const char* pair : pairs) {
        if (source_.compare(start, 2, pair) == 0) at_ = start + 2;
      }
      token_.kind = Token::kSymbol;
    }
    token_.text = source_.substr(start, at_ - start);
  }

  bool is_symbol(const char* s) const { return token_.kind == Token::kSymbol && token_.text == s; }
  bool is_word(const char* s) const { return token_.kind == Token::kName && token_.text == s; }
  bool accept(const char* s) {
    if (!is_symbol(s)) return false;
    next();
    return true;
  }
  bool accept_word(const char* s) {
    if (!is_word(s)) return false;
    next();
    return true;
  }
  void expect(const char* s) {
    if (!accept(s)) error(std::string("expected '") + s + "' before '" + token_.text + "'");
  }

  // ---- nodes

  int add(Node node) {
    int depth = 1;
    if (node.kind == NodeKind::kLet) depth += depths_[f_.lets[node.index].root];
    for (int kid : node.kids) depth = std::max(depth, kid < 0 ? 1 : depths_[kid] + 1);
    check_depth(depth);
    depths_.push_back(depth);
    f_.nodes.push_back(std::move(node));
    return static_cast<int>(f_.nodes.size()) - 1;
  }
  int node(NodeKind kind, std::vector<int32_t> kids, int index = 0) {
    Node n{kind};
    n.kids = std::move(kids);
    n.index = index;
    return add(std::move(n));
  }
  int operation(NodeKind kind, Operator op, std::vector<int32_t> kids) {
    Node n{kind};
    n.op = op;
    n.kids = std::move(kids);
    return add(std::move(n));
  }
  int number(RbValue value) {
    Node n{NodeKind::kNumber};
    n.value = value;
    return add(std::move(n));
  }

  // ---- grammar, loosest first

  int expression() {
    const Deeper deeper(*this);
    const int value = disjunction();
    if (!accept_word("if")) return value;
    const int condition = disjunction();
    if (!accept_word("else")) error("expected 'else'");
    const int otherwise = expression();
    return node(NodeKind::kCond, {value, condition, otherwise});
  }
  int disjunction() {
    int left = conjunction();
    while (accept_word("or"))
      left = operation(NodeKind::kBinary, Operator::kOr, {left, conjunction()});
    return left;
  }
  int conjunction() {
    int left = negation();
    while (accept_word("and"))
      left = operation(NodeKind::kBinary, Operator::kAnd, {left, negation()});
    return left;
  }
  int negation() {
    const Deeper deeper(*this);
    if (accept_word("not")) return operation(NodeKind::kUnary, Operator::kNot, {negation()});
    return comparison();
  }
  int comparison() {
    int left = bit_or();
    for (bool compared = false;; compared = true) {
      Operator op;
      const bool more = is_symbol("==") || is_symbol("!=") || is_symbol("<=") || is_symbol(">=") ||
                        is_symbol("<") || is_symbol(">");
      if (compared && more) error("comparisons are not chained: write 'a < b and b < c'");
      if (accept("=="))
        op = Operator::kEq;
      else if (accept("!="))
        op = Operator::kNe;
      else if (accept("<="))
        op = Operator::kLe;
      else if (accept(">="))
        op = Operator::kGe;
      else if (accept("<"))
        op = Operator::kLt;
      else if (accept(">"))
        op = Operator::kGt;
      else if (accept_word("is"))
        op = accept_word("not") ? Operator::kIsNot : Operator::kIs;
      else if (accept_word("in")) {
        left = membership(left);
        continue;
      } else if (accept_word("not")) {
        if (!accept_word("in")) error("expected 'in' after 'not'");
        left = operation(NodeKind::kUnary, Operator::kNot, {membership(left)});
        continue;
      } else
        return left;
      left = operation(NodeKind::kBinary, op, {left, bit_or()});
    }
  }
  // x in (a, b)
  int membership(int left) {
    const char* const end = is_symbol("[") ? "]" : ")";
    if (!accept("(") && !accept("[")) error("expected '(' or '[' after 'in'");
    left = shared(left);
    int any = -1;
    do {
      const int equal = operation(NodeKind::kBinary, Operator::kEq, {left, expression()});
      any = any < 0 ? equal : operation(NodeKind::kBinary, Operator::kOr, {any, equal});
    } while (accept(",") && !is_symbol(end));
    expect(end);
    return any;
  }
  int bit_or() {
    int left = bit_and();
    while (accept("|")) left = operation(NodeKind::kBinary, Operator::kBitOr, {left, bit_and()});
    return left;
  }
  int bit_and() {
    int left = sum();
    while (accept("&")) left = operation(NodeKind::kBinary, Operator::kBitAnd, {left, sum()});
    return left;
  }
  int sum() {
    int left = product();
    for (;;) {
      if (accept("+"))
        left = operation(NodeKind::kBinary, Operator::kAdd, {left, product()});
      else if (accept("-"))
        left = operation(NodeKind::kBinary, Operator::kSub, {left, product()});
      else
        return left;
    }
  }
  int product() {
    int left = unary();
    for (;;) {
      if (accept("*"))
        left = operation(NodeKind::kBinary, Operator::kMul, {left, unary()});
      else if (accept("/"))
        left = operation(NodeKind::kBinary, Operator::kDiv, {left, unary()});
      else if (accept("//"))
        left = operation(NodeKind::kBinary, Operator::kFloorDiv, {left, unary()});
      else if (accept("%"))
        left = operation(NodeKind::kBinary, Operator::kMod, {left, unary()});
      else
        return left;
    }
  }
  int unary() {
    const Deeper deeper(*this);
    if (!accept("-")) return power();
    const int operand = unary();
    Node& n = f_.nodes[operand];
    if (n.kind == NodeKind::kNumber && n.value.tag == RB_INT) {
      n.value.v.i = -n.value.v.i;
      return operand;
    }
    if (n.kind == NodeKind::kNumber && n.value.tag == RB_FLOAT) {
      n.value.v.f = -n.value.v.f;
      return operand;
    }
    return operation(NodeKind::kUnary, Operator::kNeg, {operand});
  }
  int power() {
    const int base = postfix();
    if (!accept("**")) return base;
    return operation(NodeKind::kBinary, Operator::kPow, {base, unary()});
  }
  int postfix() {
    int value = atom();
    for (;;) {
      if (accept("[")) {
        value = subscript(value);
      } else if (is_symbol(".")) {
        next();
        static const char* const names[] = {"shape", "ndim", "dtype", "device"};
        int which = -1;
        for (int i = 0; i < 4; ++i) {
          if (is_word(names[i])) which = i;
        }
        if (which < 0) error("unknown attribute '." + token_.text + "'");
        next();
        value = node(NodeKind::kAttribute, {value}, which);
      } else {
        return value;
      }
    }
  }
  int subscript(int value) {
    int from = -1, to = -1;
    if (!is_symbol(":")) from = expression();
    if (accept("]")) return node(NodeKind::kIndex, {value, from});
    expect(":");
    if (!is_symbol("]")) to = expression();
    expect("]");
    return node(NodeKind::kSlice, {value, from, to});
  }

  int atom() {
    if (token_.kind == Token::kNumber) {
      const std::string text = token_.text;
      next();
      if (text.find_first_of(".eE") == std::string::npos)
        return number(value_int(std::atoll(text.c_str())));
      return number(value_float(std::strtod(text.c_str(), nullptr)));
    }
    if (token_.kind == Token::kString) {
      Node n{NodeKind::kString};
      n.text = token_.text;
      next();
      return add(std::move(n));
    }
    if (accept("(")) {
      const int inner = expression();
      expect(")");
      return inner;
    }
    if (accept("[")) return list();
    if (token_.kind == Token::kName) return name();
    error(token_.kind == Token::kEnd ? "unexpected end" : "unexpected '" + token_.text + "'");
  }

  int list() {
    std::vector<int32_t> items;
    const size_t scope = scope_.size();
    // A comprehension names its variables after the item, so the item is read twice: look ahead for
    // `for`.
    const size_t mark = at_;
    const Token first = token_;
    if (const size_t loop = find_loop()) {
      at_ = loop;
      next();
      std::vector<std::string> names;
      do {
        names.push_back(token_.text);
        next();
      } while (accept(","));
      if (!accept_word("in")) error("expected 'in'");
      std::vector<int32_t> iterables;
      if (accept_word("zip")) {
        expect("(");
        do iterables.push_back(expression());
        while (accept(","));
        expect(")");
      } else {
        iterables.push_back(expression());
      }
      if (iterables.size() != names.size()) error("a comprehension needs one name for each list");
      expect("]");
      const size_t after = at_;
      const Token following = token_;
      const int base = f_.locals;
      for (const std::string& n : names)
        scope_.push_back({n, node(NodeKind::kLocal, {}, f_.locals++)});
      at_ = mark;
      token_ = first;
      const int item = expression();
      scope_.resize(scope);
      at_ = after;
      token_ = following;
      std::vector<int32_t> kids{item};
      kids.insert(kids.end(), iterables.begin(), iterables.end());
      const int made = node(NodeKind::kComprehension, kids, base);
      f_.nodes[made].count = static_cast<int32_t>(names.size());
      return made;
    }
    while (!is_symbol("]")) {
      items.push_back(expression());
      if (!accept(",")) break;
    }
    expect("]");
    return node(NodeKind::kList, items);
  }

  // Position after the `for` of the list whose first token has been read, or 0.
  size_t find_loop() const {
    int depth = 0;
    size_t i = at_ - token_.text.size();
    for (; i < source_.size(); ++i) {
      const char c = source_[i];
      if (c == '[' || c == '(') ++depth;
      if (c == ']' || c == ')') {
        if (depth-- == 0) return 0;
      }
      if (depth == 0 && source_.compare(i, 5, " for ") == 0) return i + 5;
    }
    return 0;
  }

  int name() {
    const std::string word = token_.text;
    next();
    if (word == "True" || word == "False") return number(value_bool(word == "True"));
    if (word == "None") return number(value_none());
    if (word == "inf") return number(value_float(INFINITY));
    if (word == "zero") return node(NodeKind::kZero, {});
    for (size_t i = scope_.size(); i-- > scope_start_ && !is_symbol("(");) {
      if (scope_[i].first == word) return again(scope_[i].second);
    }
    if (is_symbol("(")) return call(word);
    if (is_symbol(".") && overload_follows()) return overloaded_call(word);
    if (!outside_record_) {
      const int known = name_of_record(word);
      if (known >= 0) return known;
    }
    const int dtype = dtype_by_name(word.c_str());
    if (dtype >= 0) return node(NodeKind::kDType, {}, dtype);
    error("unknown name '" + word + "'" +
          (outside_record_ ? "; a def of a file sees only its arguments" : ""));
  }

  // An argument, result, gradient, tangent or let of the record; -1: it has no such name.
  int name_of_record(const std::string& word) {
    if (word == "grad") return node(NodeKind::kGradient, {}, 0);
    if (word.rfind("grad_", 0) == 0) {
      for (size_t i = 0; i < op_.ret_names.size(); ++i) {
        if (word.substr(5) == op_.ret_names[i])
          return node(NodeKind::kGradient, {}, static_cast<int>(i));
      }
    }
    if (word.rfind("dot_", 0) == 0) {
      for (size_t i = 0; i < op_.params.size(); ++i) {
        if (word.substr(4) == op_.params[i].name_text)
          return node(NodeKind::kTangent, {}, static_cast<int>(i));
      }
    }
    for (size_t i = 0; i < op_.params.size(); ++i) {
      if (op_.params[i].name_text == word)
        return node(NodeKind::kArgument, {}, static_cast<int>(i));
    }
    for (size_t i = 0; i < op_.lets.size(); ++i) {
      if (op_.lets[i].first != word) continue;
      if (i >= lets_.size()) error("'" + word + "' is used before its `let`");
      return node(NodeKind::kLet, {}, lets_[i]);
    }
    for (size_t i = 0; i < op_.ret_names.size(); ++i) {
      if (op_.ret_names[i] == word) return node(NodeKind::kResult, {}, static_cast<int>(i));
    }
    return -1;
  }

  // A value that was given to a definition, where the definition names it.
  int again(int value) {
    const Node& n = f_.nodes[value];
    // A number may be negated in place, see unary().
    return n.kind == NodeKind::kNumber ? add(Node(n)) : value;
  }

  bool has_local(int at) const {
    const Node& n = f_.nodes[at];
    if (n.kind == NodeKind::kLocal) return true;
    return std::any_of(n.kids.begin(), n.kids.end(),
                       [this](int kid) { return kid >= 0 && has_local(kid); });
  }

  // A node that may stand in several places and is evaluated once. What depends on a variable of a
  // comprehension has no one value.
  int shared(int value) {
    if (f_.nodes[value].kids.empty() || has_local(value) || f_.lets.size() == kMaxLets)
      return value;
    f_.lets.push_back({"", value});
    return node(NodeKind::kLet, {}, static_cast<int>(f_.lets.size()) - 1);
  }

  // Whether `.word(` follows: an overload such as split.sizes(...), not an attribute.
  bool overload_follows() const {
    size_t i = at_;
    while (i < source_.size() &&
           (std::isalnum(static_cast<unsigned char>(source_[i])) || source_[i] == '_'))
      ++i;
    return i > at_ && i < source_.size() && source_[i] == '(';
  }
  int overloaded_call(const std::string& base) {
    next();
    const std::string whole = base + "." + token_.text;
    next();
    return call(whole);
  }

  struct CallArgs {
    std::vector<int32_t> positional;
    std::vector<std::pair<std::string, int32_t>> named;
  };
  CallArgs arguments() {
    CallArgs args;
    expect("(");
    while (!is_symbol(")")) {
      size_t i = at_;
      while (i < source_.size() && std::isspace(static_cast<unsigned char>(source_[i]))) ++i;
      if (token_.kind == Token::kName && source_[i] == '=' && source_[i + 1] != '=') {
        const std::string key = token_.text;
        next();
        next();
        args.named.emplace_back(key, expression());
      } else {
        args.positional.push_back(expression());
      }
      if (!accept(",")) break;
    }
    expect(")");
    return args;
  }

  const Definition* find_definition(const std::string& name) const {
    for (const std::vector<Definition>& defs : {std::cref(op_.defs), std::cref(*op_.shared_defs)}) {
      for (const Definition& def : defs) {
        if (def.name == name) return &def;
      }
    }
    return nullptr;
  }

  // The definition's formula with `args` in the place of its parameters.
  int inlined(const Definition& def, const CallArgs& args) {
    std::string chain;
    for (const Definition* outer : inside_) {
      if (!chain.empty() || outer == &def) chain += outer->name + " -> ";
    }
    if (!chain.empty()) error("def '" + def.name + "' is made of itself: " + chain + def.name);
    std::vector<int32_t> values(def.params.size(), -1);
    const std::string takes = "def '" + def.name + "' takes " + std::to_string(values.size()) +
                              " argument" + (values.size() == 1 ? "" : "s");
    if (args.positional.size() > values.size())
      error(takes + ", got " + std::to_string(args.positional.size()));
    std::copy(args.positional.begin(), args.positional.end(), values.begin());
    for (auto& [key, value] : args.named) {
      const auto at = std::find(def.params.begin(), def.params.end(), key);
      if (at == def.params.end()) error("def '" + def.name + "' has no argument '" + key + "'");
      values[at - def.params.begin()] = value;
    }
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] < 0) error(takes + ", '" + def.params[i] + "' is missing");
      if (count_word(def.text, def.params[i]) > 1) values[i] = shared(values[i]);
    }
    const bool of_file = std::none_of(op_.defs.begin(), op_.defs.end(),
                                      [&](const Definition& own) { return &own == &def; });
    const auto before =
        std::make_tuple(source_, at_, token_, scope_start_, outside_record_, place_);
    inside_.push_back(&def);
    scope_start_ = scope_.size();
    outside_record_ = of_file;
    place_ = def.place;
    for (size_t i = 0; i < values.size(); ++i) scope_.push_back({def.params[i], values[i]});
    const int root = compile(def.text, dtype_rule_);
    scope_.resize(scope_start_);
    std::tie(source_, at_, token_, scope_start_, outside_record_, place_) = before;
    inside_.pop_back();
    return root;
  }

  int call(const std::string& callee) {
    const CallArgs args = arguments();
    if (const Definition* def = find_definition(callee)) return inlined(*def, args);
    if (is_host_function(callee.c_str(), dtype_rule_)) {
      if (!args.named.empty()) error("'" + callee + "' takes no keyword arguments");
      const int made = node(NodeKind::kHost, args.positional);
      f_.nodes[made].text = callee;
      return made;
    }
    const Op* target = callee == op_.name ? &op_ : find_callee(callee);
    if (!target) error("unknown operator '" + callee + "'");
    std::vector<int32_t> kids(target->params.size(), -1);
    if (args.positional.size() > kids.size()) error("too many arguments for '" + callee + "'");
    std::copy(args.positional.begin(), args.positional.end(), kids.begin());
    for (auto& [key, value] : args.named) {
      size_t i = 0;
      while (i < kids.size() && target->params[i].name_text != key) ++i;
      if (i == kids.size()) error("'" + callee + "' has no argument '" + key + "'");
      kids[i] = value;
    }
    for (size_t i = 0; i < kids.size(); ++i) {
      const Param& p = target->params[i];
      if (kids[i] < 0 && !p.has_default)
        error("'" + callee + "' needs the argument '" + p.name_text + "'");
      if (kids[i] < 0 || p.choices.empty() || f_.nodes[kids[i]].kind != NodeKind::kString) continue;
      const std::string& given = f_.nodes[kids[i]].text;
      if (std::find(p.choices.begin(), p.choices.end(), given) == p.choices.end())
        error("'" + given + "' is no value of '" + p.name_text + "' of '" + callee + "'");
    }
    const int made = node(NodeKind::kCall, kids);
    f_.nodes[made].callee = target;
    f_.nodes[made].text = callee;
    return made;
  }

  const Op& op_;
  Tree& f_;
  int depth_ = 0;            // of the parser
  std::vector<int> depths_;  // of the trees under the nodes
  bool dtype_rule_ = false;
  std::string source_;
  size_t at_ = 0;
  Token token_;
  std::string place_;      // file and line of what is compiled, where it is not the record's
  std::vector<int> lets_;  // of Op::lets the index in Formula::lets
  // Names of comprehensions and of definitions' arguments, with their nodes; those from
  // scope_start_ on can be seen.
  std::vector<std::pair<std::string, int>> scope_;
  size_t scope_start_ = 0;
  bool outside_record_ = false;  // in a definition of the file
  std::vector<const Definition*> inside_;
};

}  // namespace

FreshOps::FreshOps(const std::vector<std::unique_ptr<Op>>& ops) { fresh_ops = &ops; }
FreshOps::~FreshOps() { fresh_ops = nullptr; }

std::shared_ptr<Formula> compile_formulas(const Op& op) {
  auto f = std::make_shared<Formula>();
  Tree tree;
  Compiler compiler(op, tree);
  auto block = [&](const std::string& text, bool dtype_rule = false) {
    return append_block(tree, compiler.compile(text, dtype_rule), *f);
  };
  for (auto& [name, text] : op.lets) compiler.let(name, text);
  if (!op.decomp_text.empty() && !decomp_function(op)) f->decomp = block(op.decomp_text);
  f->vjps.assign(op.params.size(), -1);
  for (auto& [arg, text] : op.vjps) {
    for (size_t i = 0; i < op.params.size(); ++i) {
      if (op.params[i].name_text == arg) f->vjps[i] = block(text);
    }
  }
  f->jvps.assign(op.ret_names.size(), -1);
  for (auto& [ret, text] : op.jvps) f->jvps[ret] = block(text);
  for (const std::string& text : op.dtype_text) f->dtypes.push_back(block(text, true));
  if (!op.compute_text.empty() && op.compute_text != "out" && op.compute_text != "promote(all)")
    f->compute = block(op.compute_text, true);
  for (const std::string& text : op.shape_formulas) f->shapes.push_back(block(text, true));
  for (const Check& check : op.checks) {
    CheckBlocks blocks;
    blocks.condition = append_block(tree, compiler.condition(check), *f);
    for (const auto& [text, value] : compiler.message(check)) {
      blocks.texts.push_back(text);
      if (value >= 0) blocks.values.push_back(append_block(tree, value, *f));
    }
    f->checks.push_back(std::move(blocks));
  }
  // Those without a name are values that definitions were given.
  for (const LetBinding& let : tree.lets) {
    f->let_names.push_back(let.name);
    f->lets.push_back(append_block(tree, let.root, *f));
  }
  f->locals = tree.locals;
  return f;
}

void check_definitions(const Op& op) {
  auto compile = [&op](const Definition& def, bool of_host_data) {
    Tree scratch;
    Compiler compiler(op, scratch);
    for (auto& [name, text] : op.lets) compiler.let(name, text);
    compiler.definition(def, of_host_data);
  };
  for (const std::vector<Definition>& defs : {std::cref(op.defs), std::cref(*op.shared_defs)}) {
    for (const Definition& def : defs) {
      try {
        compile(def, true);
        continue;
      } catch (const Error&) {
      }
      compile(def, false);  // of tensors: `max` and others are then operators
    }
  }
}

}  // namespace rabbet
