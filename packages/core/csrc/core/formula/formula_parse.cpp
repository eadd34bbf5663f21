// From formula text to trees and on to a program: a recursive-descent parser for a subset of
// Python's expressions.
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <cstring>

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
    fail(RB_E_PLUGIN, "%s: %s: %s, in formula '%s'", op_.file.c_str(), op_.name.c_str(),
         message.c_str(),
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
    for (;;) {
      Operator op;
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
      else
        return left;
      left = operation(NodeKind::kBinary, op, {left, bit_or()});
    }
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
      for (const std::string& n : names) scope_.emplace_back(n, f_.locals++);
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
    for (auto entry = scope_.rbegin(); entry != scope_.rend(); ++entry) {
      if (entry->first == word && !is_symbol("(")) return node(NodeKind::kLocal, {}, entry->second);
    }
    if (is_symbol("(")) return call(word);
    if (is_symbol(".") && overload_follows()) return overloaded_call(word);
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
      if (i >= f_.lets.size()) error("'" + word + "' is used before its `let`");
      return node(NodeKind::kLet, {}, static_cast<int>(i));
    }
    for (size_t i = 0; i < op_.ret_names.size(); ++i) {
      if (op_.ret_names[i] == word) return node(NodeKind::kResult, {}, static_cast<int>(i));
    }
    if (dtype_rule_) {
      const int dtype = dtype_by_name(word.c_str());
      if (dtype >= 0) return node(NodeKind::kDType, {}, dtype);
    }
    error("unknown name '" + word + "'");
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

  int call(const std::string& callee) {
    const CallArgs args = arguments();
    if (is_host_function(callee.c_str(), dtype_rule_)) {
      if (!args.named.empty()) error("'" + callee + "' takes no keyword arguments");
      const int made = node(NodeKind::kHost, args.positional);
      f_.nodes[made].text = callee;
      return made;
    }
    const Op* target = callee == op_.name ? &op_ : find_op(callee.c_str());
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
  std::vector<std::pair<std::string, int>> scope_;
};

}  // namespace

std::shared_ptr<Formula> compile_formulas(const Op& op) {
  auto f = std::make_shared<Formula>();
  Tree tree;
  Compiler compiler(op, tree);
  auto block = [&](const std::string& text, bool dtype_rule = false) {
    return append_block(tree, compiler.compile(text, dtype_rule), *f);
  };
  for (auto& [name, text] : op.lets) {
    tree.lets.push_back({name, compiler.compile(text, false)});
    f->let_names.push_back(name);
    f->lets.push_back(append_block(tree, tree.lets.back().root, *f));
  }
  if (!op.decomp_text.empty() && op.decomp_text.rfind("function ", 0) != 0)
    f->decomp = block(op.decomp_text);
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
  if (op.shape_rule == ShapeRule::kFormula) f->shape = block(op.shape_text);
  f->locals = tree.locals;
  return f;
}

}  // namespace rabbet
