// Symbolic evaluation of elementwise formulas: the program of a formula run on names instead of
// values, by the rules of formula_run.cpp. What a formula asks about the call becomes a choice
// between bodies; everything that is not elementwise is left to the interpreter.
#include "formula/emit.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>

#include "formula/formula.h"
#include "formula/formula_kernel.h"
#include "formula/formula_program.h"
#include "formula/formula_value.h"
#include "tensor/dtype.h"

namespace rabbet {

namespace {

/// The formula, or this way through it, is left to the interpreter.
struct Unsupported {};

/// The way on depends on the call.
struct Choice {
  std::string key;
  std::vector<Question> options;
};

struct Symbol {
  enum Kind {
    kTensor,    // text: a value per element
    kInput,     // index: the call's value, a tensor
    kMask,      // text: a truth value per element
    kNumber,    // number
    kConstant,  // constant: a string, a bool or None
    kWord,      // index: a str argument of the call
    kZero,
    kArgument,  // index: a Tensor argument, which may be a number
    kOptional,  // index: a Tensor? argument, which may be None as well
    kUnknown
  } kind = kUnknown;
  std::string text;
  int index = 0;
  HostNumberRef number;
  RbValue constant = value_none();

  bool is_tensor() const { return kind == kTensor || kind == kInput; }
};

Symbol symbol(Symbol::Kind kind, int index = 0) {
  Symbol s;
  s.kind = kind;
  s.index = index;
  return s;
}
Symbol named(Symbol::Kind kind, std::string text) {
  Symbol s = symbol(kind);
  s.text = std::move(text);
  return s;
}
Symbol constant(const RbValue& v) {
  Symbol s = symbol(Symbol::kConstant);
  s.constant = v;
  return s;
}
Symbol number(HostNumber n) {
  Symbol s = symbol(Symbol::kNumber);
  s.number = std::make_shared<const HostNumber>(std::move(n));
  return s;
}
Symbol number(double value) { return number(HostNumber{HostNumber::kConstant, value, 0, {}, {}}); }

Symbol of_value(const RbValue& v) {
  if (v.tag == RB_INT || v.tag == RB_FLOAT) return number(number_value(v));
  if (v.tag == RB_NONE || v.tag == RB_BOOL || v.tag == RB_STR) return constant(v);
  throw Unsupported();
}

const char* sign_of(Operator op) {
  switch (op) {
    case Operator::kEq:
      return "==";
    case Operator::kNe:
      return "!=";
    case Operator::kLt:
      return "<";
    case Operator::kLe:
      return "<=";
    case Operator::kGt:
      return ">";
    case Operator::kGe:
      return ">=";
    default:
      return nullptr;
  }
}

/// What the names in a formula mean.
struct Scope {
  const Formula& f;
  std::vector<Symbol> arguments;
  Symbol result, gradient;
  std::vector<std::optional<Symbol>> lets;
};

class Evaluation {
 public:
  /// `numbers_stand_in`: a Tensor argument may be a number.
  Evaluation(Dialect dialect, const EmitPath& path, bool numbers_stand_in)
      : dialect_(dialect), path_(path), numbers_stand_in_(numbers_stand_in) {}

  Symbol block(Scope& scope, int32_t entry) {
    const Instruction* const code = scope.f.code.data();
    const Instruction* at = code + entry;
    std::vector<Symbol> slots(at->count);
    for (++at;; ++at) {
      Symbol* const s = &slots[at->to];
      switch (at->code) {
        case Code::kConstant:
          s[0] = of_value(scope.f.constants[at->index]);
          break;
        case Code::kZero:
          s[0] = symbol(Symbol::kZero);
          break;
        case Code::kArgument:
          s[0] = argument(scope.arguments[at->index]);
          break;
        case Code::kResult:
          s[0] = argument(scope.result);
          break;
        case Code::kGradient:
          s[0] = argument(scope.gradient);
          break;
        case Code::kLet:
          if (!scope.lets[at->index]) {
            const Symbol value = block(scope, scope.f.lets[at->index]);
            scope.lets[at->index] = value;
          }
          s[0] = *scope.lets[at->index];
          break;
        case Code::kNegate:
          s[0] = negate(s[0]);
          break;
        case Code::kNot:
          s[0] = constant(value_bool(!truth(s[0])));
          break;
        case Code::kBinary:
          s[0] = binary(at->op, s[0], s[1]);
          break;
        case Code::kJump:
          at = code + at->index - 1;
          break;
        case Code::kUnless:
        case Code::kIfFalse:
          if (!truth(s[0])) at = code + at->index - 1;
          break;
        case Code::kIfTrue:
          if (truth(s[0])) at = code + at->index - 1;
          break;
        case Code::kCall:
          s[0] = call(scope.f.callees[at->index], s, at->count);
          break;
        case Code::kHost:
          s[0] = constant(value_bool(host_fact(scope.f.functions[at->index], s[0])));
          break;
        case Code::kReturn:
          return s[0];
        default:
          throw Unsupported();
      }
    }
  }

  std::vector<BodyInput> inputs;
  std::vector<HostNumberRef> numbers;
  LoopBody body;
  bool is_wide = false;  // the way is one of float64

  std::string operand(const Symbol& x) {
    if (x.kind == Symbol::kNumber) {
      if (x.number->is_constant()) return literal(x.number->constant);
      // A number in the place of a tensor takes that place.
      if (x.number->kind == HostNumber::kValue && stands_in(x.number->index))
        return slot({x.number->index, true});
      const std::string text = x.number->text();
      size_t i = 0;
      while (i < numbers.size() && numbers[i]->text() != text) ++i;
      if (i == numbers.size()) numbers.push_back(x.number);
      return dialect_ == Dialect::kCpu ? "p[" + std::to_string(i) + "]" : "p" + std::to_string(i);
    }
    if (x.kind == Symbol::kInput) return slot({x.index, false});
    if (x.kind != Symbol::kTensor) throw Unsupported();
    return x.text;
  }

 private:
  // ---- choices

  int choose(const std::string& key, std::vector<Question> options) {
    for (auto& [asked, answer] : path_) {
      if (asked == key) return answer;
    }
    throw Choice{key, std::move(options)};
  }
  bool decide(Question question) {
    const std::string key = question.text();
    Question opposite = question;
    opposite.wanted = false;
    return choose(key, {std::move(question), std::move(opposite)}) == 0;
  }
  bool decide(const char* sign, const HostNumberRef& x, const HostNumberRef& y) {
    Question q{Question::kCompares, 0, sign, x, y, true};
    return x->is_constant() && y->is_constant() ? q.holds(nullptr) : decide(std::move(q));
  }
  bool equals(const Symbol& x, double value) {
    return decide("==", x.number, number(value).number);
  }

  bool truth(const Symbol& x) {
    if (x.kind == Symbol::kConstant)
      return x.constant.tag == RB_STR ? x.constant.len != 0
                                      : x.constant.tag == RB_BOOL && x.constant.v.i != 0;
    if (x.kind == Symbol::kNumber) return !equals(x, 0);
    throw Unsupported();
  }

  template <class Function>
  bool host_fact(const Function& function, const Symbol& x) {
    if (function == find_host_function("is_complex")) return false;  // plain operands are real
    if (function != find_host_function("is_single")) throw Unsupported();
    if (x.kind == Symbol::kNumber) return true;
    if (x.kind != Symbol::kInput) throw Unsupported();
    const bool single = decide({Question::kIsSingle, x.index, "", {}, {}, true});
    (single ? body.narrow : is_wide) = true;
    return single;
  }

  // A Tensor argument may be a number, an optional one None: which of them is a choice.
  Symbol argument(const Symbol& x) {
    if (x.kind == Symbol::kUnknown) throw Unsupported();
    if (x.kind != Symbol::kArgument && x.kind != Symbol::kOptional) return x;
    auto question = [&](Question::Kind kind) { return Question{kind, x.index, "", {}, {}, true}; };
    std::vector<Question> options{question(Question::kIsTensor)};
    if (numbers_stand_in_) options.push_back(question(Question::kIsNumber));
    if (x.kind == Symbol::kOptional) options.push_back(question(Question::kIsNone));
    const Question::Kind kind = options[choose("kind " + std::to_string(x.index), options)].kind;
    if (kind == Question::kIsNone) return constant(value_none());
    if (kind == Question::kIsTensor) return symbol(Symbol::kInput, x.index);
    stand_ins_.push_back(x.index);
    return number(HostNumber{HostNumber::kValue, 0, x.index, {}, {}});
  }

  // ---- code

  bool stands_in(int index) const {
    return std::find(stand_ins_.begin(), stand_ins_.end(), index) != stand_ins_.end();
  }
  std::string slot(BodyInput input) {
    size_t i = std::find(inputs.begin(), inputs.end(), input) - inputs.begin();
    if (i == inputs.size()) inputs.push_back(input);
    return "x" + std::to_string(i);
  }
  std::string literal(double value) const {
    const std::string text = number(value).number->text();
    return dialect_ == Dialect::kCpu ? "T(" + text + ")" : "(T)(" + text + ")";
  }
  Symbol statement(Symbol::Kind kind, const std::string& code) {
    auto [at, is_new] = known_.emplace(code, "t" + std::to_string(known_.size()));
    if (is_new) {
      const char* type = kind == Symbol::kTensor     ? "T "
                         : dialect_ == Dialect::kCpu ? "auto "  // of packs a mask
                                                     : "int ";
      body.statements.push_back(std::string("const ") + type + at->second + " = " + code + ";");
    }
    return named(kind, at->second);
  }

  Symbol apply(const std::string& name, const std::vector<Symbol>& args) {
    const Primitive* p = find_primitive(name);
    if (!p || static_cast<size_t>(p->info.arity) != args.size()) throw Unsupported();
    if (std::none_of(args.begin(), args.end(), [](const Symbol& a) { return a.is_tensor(); }))
      throw Unsupported();  // a function of numbers
    body.heavy |= p->cost == Primitive::kHeavy;
    packs_ = std::min<int>(packs_, p->packs);
    std::string code = dialect_ == Dialect::kCpu ? "op_" + name + "::f<T>(" : "rb_" + name + "(";
    for (size_t i = 0; i < args.size(); ++i) code += (i ? ", " : "") + operand(args[i]);
    return statement(p->info.tests ? Symbol::kMask : Symbol::kTensor, code + ")");
  }

 public:
  /// The packs that all of the body can go through.
  int packs() const { return packs_; }

 private:
  // ---- operators

  Symbol negate(const Symbol& x) {
    if (x.kind == Symbol::kZero) return x;
    if (x.kind != Symbol::kNumber) return apply("neg", {x});
    if (x.number->is_constant()) return number(-x.number->constant);
    return number(HostNumber{HostNumber::kNegate, 0, 0, x.number, {}});
  }

  Symbol binary(Operator op, const Symbol& x, const Symbol& y) {
    if (op == Operator::kIs || op == Operator::kIsNot) return is(op == Operator::kIs, x, y);
    if (op == Operator::kBitAnd || op == Operator::kBitOr)
      return combine(op == Operator::kBitAnd, x, y);
    if (x.kind == Symbol::kZero || y.kind == Symbol::kZero) return with_zero(op, x, y);
    if (sign_of(op)) return compare(op, x, y);
    if (x.kind == Symbol::kNumber && y.kind == Symbol::kNumber) return host(op, x, y);
    switch (op) {
      case Operator::kAdd:
        return x.kind == Symbol::kNumber ? apply("add", {y, x}) : apply("add", {x, y});
      case Operator::kSub:
        return apply("sub", {x, y});
      case Operator::kMul:
        return x.kind == Symbol::kNumber ? apply("mul", {y, x}) : apply("mul", {x, y});
      case Operator::kDiv:
        return apply("div", {x, y});
      case Operator::kPow:
        return power(x, y);
      default:
        throw Unsupported();
    }
  }

  Symbol host(Operator op, const Symbol& x, const Symbol& y) {
    const char kind = op == Operator::kAdd   ? '+'
                      : op == Operator::kSub ? '-'
                      : op == Operator::kMul ? '*'
                      : op == Operator::kDiv ? '/'
                                             : 0;
    if (!kind) throw Unsupported();
    HostNumber n{kind, 0, 0, x.number, y.number};
    return x.number->is_constant() && y.number->is_constant() ? number(n.of(nullptr))
                                                              : number(std::move(n));
  }

  Symbol with_zero(Operator op, const Symbol& x, const Symbol& y) {
    const bool x_zero = x.kind == Symbol::kZero;
    if (op == Operator::kAdd) return x_zero ? y : x;
    if (op == Operator::kSub) return x_zero ? negate(y) : x;
    if (op == Operator::kMul || (op == Operator::kDiv && x_zero)) return symbol(Symbol::kZero);
    throw Unsupported();
  }

  // A host bool says "everywhere" or "nowhere" of a mask.
  Symbol combine(bool is_and, const Symbol& x, const Symbol& y) {
    if (x.kind == Symbol::kConstant && y.kind == Symbol::kConstant) {
      const bool a = truth(x), b = truth(y);
      return constant(value_bool(is_and ? a && b : a || b));
    }
    const Symbol &flag = x.kind == Symbol::kConstant ? x : y,
                 &mask = x.kind == Symbol::kConstant ? y : x;
    if (flag.kind == Symbol::kConstant) return is_and == truth(flag) ? mask : flag;
    if (x.kind != Symbol::kMask || y.kind != Symbol::kMask) throw Unsupported();
    return statement(Symbol::kMask, x.text + (is_and ? " & " : " | ") + y.text);
  }

  // The powers that kernels of `pow` compute in other ways, with the same roundings.
  Symbol power(const Symbol& x, const Symbol& y) {
    if (y.kind == Symbol::kNumber) {
      if (equals(y, 2)) return apply("mul", {x, x});
      if (equals(y, -1)) return apply("div", {number(1), x});
      if (equals(y, 0.5)) return apply("sqrt", {x});
      if (equals(y, -0.5)) return apply("div", {number(1), apply("sqrt", {x})});
      if (equals(y, 3)) return apply("mul", {apply("mul", {x, x}), x});
    }
    return apply("pow", {x, y});
  }

  Symbol is(bool same, const Symbol& x, const Symbol& y) {
    if (y.kind != Symbol::kConstant || y.constant.tag != RB_NONE) throw Unsupported();
    const bool none = x.kind == Symbol::kWord
                          ? decide({Question::kIsNone, x.index, "", {}, {}, true})
                          : x.kind == Symbol::kConstant && x.constant.tag == RB_NONE;
    return constant(value_bool(none == same));
  }

  Symbol compare(Operator op, const Symbol& x, const Symbol& y) {
    const bool equality = op == Operator::kEq || op == Operator::kNe;
    if (equality && y.kind == Symbol::kConstant && y.constant.tag == RB_STR) {
      const std::string word(y.constant.v.s, y.constant.len);
      bool same;
      if (x.kind == Symbol::kWord) {
        same = decide({Question::kIsText, x.index, word, {}, {}, true});
      } else if (x.kind == Symbol::kConstant) {
        same = x.constant.tag == RB_STR && word == std::string(x.constant.v.s, x.constant.len);
      } else {
        throw Unsupported();
      }
      return constant(value_bool(same == (op == Operator::kEq)));
    }
    if (x.kind == Symbol::kNumber && y.kind == Symbol::kNumber)
      return constant(value_bool(decide(sign_of(op), x.number, y.number)));
    const char* names[] = {"eq", "ne", "lt", "le", "gt", "ge"};
    return apply(names[static_cast<int>(op) - static_cast<int>(Operator::kEq)], {x, y});
  }

  // ---- calls

  Symbol call(const Callee& callee, const Symbol* given, int count) {
    const Op& op = *callee.op;
    const std::string& name = op.name;
    if (callee.way == ShortWay::kRealPart &&
        (given[0].is_tensor() || given[0].kind == Symbol::kNumber ||
         given[0].kind == Symbol::kZero))
      return given[0];
    if (name == "zeros_like" && count == 1 && given[0].is_tensor())
      return named(Symbol::kTensor, literal(0));
    std::vector<Symbol> args;  // by parameter; those that are not given have their defaults
    for (size_t i = 0; i < op.params.size(); ++i) {
      const auto place = std::find(callee.places.begin(), callee.places.end(), static_cast<int>(i));
      if (place != callee.places.end())
        args.push_back(given[place - callee.places.begin()]);
      else if (op.params[i].has_default)
        args.push_back(of_value(callee.arguments[i]));
      else
        throw Unsupported();
    }
    if (name == "where") return where(args[0], args[1], args[2]);
    if (std::any_of(args.begin(), args.end(),
                    [](const Symbol& a) { return a.kind == Symbol::kZero; }))
      throw Unsupported();
    if (name == "clamp") return clamp(args[0], args[1], args[2]);
    if (name == "pow") return power(args[0], args[1]);
    if (name == "div") return divide(args[0], args[1], args[2]);
    if (name == "add" || name == "sub") return scaled(name, args[0], args[1], args[2]);
    if (name == "sign") return apply("sgn", {args[0]});
    if (find_primitive(name)) {
      for (int i = 1; i < count; ++i) {
        if (callee.places[i] >= find_primitive(name)->info.arity) throw Unsupported();
      }
      args.resize(find_primitive(name)->info.arity);
      return apply(name, args);
    }
    return inlined(op, std::move(args));
  }

  Symbol inlined(const Op& op, std::vector<Symbol> args) {
    if (op.info.nrets != 1 || op.returns_list || op.is_view()) throw Unsupported();
    if (dtype_by_name(op.compute_text.c_str()) >= 0)
      throw Unsupported();  // not in the body's dtype
    if (++depth_ > 16) throw Unsupported();
    const Formula& f = compiled(op);
    if (f.decomp < 0) throw Unsupported();
    Scope scope{f, std::move(args), {}, {}, {}};
    scope.lets.resize(f.lets.size());
    const Symbol value = block(scope, f.decomp);
    --depth_;
    return value;
  }

  Symbol where(const Symbol& condition, Symbol x, Symbol y) {
    if (condition.kind == Symbol::kConstant) return truth(condition) ? x : y;
    if (condition.kind != Symbol::kMask) throw Unsupported();
    if (x.kind == Symbol::kZero && y.kind == Symbol::kZero) return x;
    for (Symbol* s : {&x, &y}) {
      if (s->kind == Symbol::kZero) *s = number(0);
    }
    // Of two numbers `where` makes a tensor of the default dtype: the values must fit any.
    auto fits_any = [](const Symbol& s) {
      if (!s.number->is_constant()) return false;
      const double c = s.number->constant;
      return c == 0 || c == 0.5 || c == 1 || !std::isfinite(c);
    };
    if (x.kind == Symbol::kNumber && y.kind == Symbol::kNumber && (!fits_any(x) || !fits_any(y)))
      throw Unsupported();
    if (dialect_ == Dialect::kCpu)
      return statement(Symbol::kTensor, "op_where::f<T>(" + condition.text + ", " + operand(x) +
                                            ", " + operand(y) + ")");
    return statement(Symbol::kTensor, condition.text + " ? " + operand(x) + " : " + operand(y));
  }

  Symbol clamp(const Symbol& x, const Symbol& low, const Symbol& high) {
    auto none = [](const Symbol& s) {
      return s.kind == Symbol::kConstant && s.constant.tag == RB_NONE;
    };
    if (none(low)) return apply("minimum", {x, high});
    return none(high) ? apply("maximum", {x, low}) : apply("clamp", {x, low, high});
  }

  Symbol divide(const Symbol& x, const Symbol& y, const Symbol& mode) {
    if (mode.kind != Symbol::kConstant) throw Unsupported();
    if (mode.constant.tag == RB_NONE) return binary(Operator::kDiv, x, y);
    return apply("div_" + std::string(mode.constant.v.s, mode.constant.len), {x, y});
  }

  Symbol scaled(const std::string& name, const Symbol& x, const Symbol& y, const Symbol& alpha) {
    if (alpha.kind != Symbol::kNumber) throw Unsupported();
    return apply(name, {x, equals(alpha, 1) ? y : apply("mul", {y, alpha})});
  }

  const Dialect dialect_;
  const EmitPath& path_;
  const bool numbers_stand_in_;
  std::vector<int> stand_ins_;
  std::map<std::string, std::string> known_;
  int packs_ = Primitive::kPacked, depth_ = 0;
};

// Arguments are the call's values 0, 1, ...; of a derivative the result and its gradient follow.
Scope scope_of(const Op& op, const Formula& f, int argument) {
  Scope scope{f, {}, {}, {}, {}};
  scope.lets.resize(f.lets.size());
  const int count = static_cast<int>(op.params.size());
  for (int i = 0; i < count; ++i) {
    const Param& p = op.params[i];
    Symbol s;
    switch (p.type) {
      case RB_A_TENSOR:  // a number has no gradient
        s = symbol(i == argument                      ? Symbol::kInput
                   : (p.flags & RB_ARG_OPTIONAL) != 0 ? Symbol::kOptional
                                                      : Symbol::kArgument,
                   i);
        break;
      case RB_A_SCALAR:
      case RB_A_INT:
      case RB_A_FLOAT:
      case RB_A_BOOL:
        if (!(p.flags & RB_ARG_OPTIONAL)) s = number(HostNumber{HostNumber::kValue, 0, i, {}, {}});
        break;
      case RB_A_STR:
        s = symbol(Symbol::kWord, i);
        break;
      default:
        break;
    }
    scope.arguments.push_back(std::move(s));
  }
  if (argument >= 0) {
    scope.result = symbol(Symbol::kInput, count);
    scope.gradient = symbol(Symbol::kInput, count + 1);
  }
  return scope;
}

bool may_have_body(const Op& op) {
  return op.info.nrets == 1 && !op.returns_list && op.info.kind != RB_KIND_OPAQUE &&
         !op.is_view() && !op.mutates;
}

bool mentions(const std::string& code, const std::string& name) {
  const auto is_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
  };
  for (size_t at = code.find(name); at != std::string::npos; at = code.find(name, at + 1)) {
    const size_t end = at + name.size();
    if ((at == 0 || !is_word(code[at - 1])) && (end == code.size() || !is_word(code[end])))
      return true;
  }
  return false;
}

// A `let`, or a condition that the answers decide, may compute what nothing reads.
void drop_unused(LoopBody& body) {
  std::vector<std::string> kept;
  for (auto s = body.statements.rbegin(); s != body.statements.rend(); ++s) {
    const size_t equals = s->find(" = "), space = s->rfind(' ', equals - 1);
    const std::string name = s->substr(space + 1, equals - space - 1);
    const auto reads = [&](const std::string& code) { return mentions(code, name); };
    if (name == body.result || std::any_of(kept.begin(), kept.end(), reads))
      kept.push_back(std::move(*s));
  }
  body.statements.assign(std::make_move_iterator(kept.rbegin()),
                         std::make_move_iterator(kept.rend()));
}

// Statements that cost more than memory traffic.
constexpr size_t kLongBody = 40;

// Only users give numbers instead of tensors, so the other records need no bodies for numbers.
bool users_see(const Op& op) {
  return op.as_function || op.as_method || op.as_inplace || !op.exposed_in.empty();
}

}  // namespace

std::unique_ptr<Ways> Emission::explore(const Op& op, int argument, int32_t entry, EmitPath& path) {
  Evaluation evaluation(dialect_, path, users_see(op));
  auto ways = std::make_unique<Ways>();
  try {
    const Formula& f = compiled(op);
    Scope scope = scope_of(op, f, argument);
    const Symbol result = evaluation.block(scope, entry);
    if (result.kind != Symbol::kTensor) return nullptr;
    LoopBody& body = evaluation.body;
    body.result = result.text;
    drop_unused(body);
    body.inputs = static_cast<int>(evaluation.inputs.size());
    body.numbers = static_cast<int>(evaluation.numbers.size());
    body.heavy |= body.statements.size() > kLongBody;
    body.packs = body.heavy ? evaluation.packs() : +Primitive::kScalar;
    body.wide = evaluation.is_wide || (argument < 0 && op.compute_text == "float64");
    const bool of_tensors = std::any_of(evaluation.inputs.begin(), evaluation.inputs.end(),
                                        [](const BodyInput& in) { return !in.is_number; });
    if (!of_tensors || body.inputs > RB_EMIT_INPUTS || body.numbers > RB_EMIT_NUMBERS)
      return nullptr;
    ways->body = index_of(std::move(body));
    ways->inputs = std::move(evaluation.inputs);
    ways->numbers = std::move(evaluation.numbers);
    return ways;
  } catch (const Unsupported&) {
    return nullptr;
  } catch (Choice& choice) {
    for (size_t i = 0; i < choice.options.size(); ++i) {
      path.emplace_back(choice.key, static_cast<int>(i));
      auto branch = explore(op, argument, entry, path);
      path.pop_back();
      if (branch) ways->branches.emplace_back(std::move(choice.options[i]), std::move(branch));
    }
    return ways->branches.empty() ? nullptr : std::move(ways);
  }
}

int Emission::index_of(LoopBody body) {
  std::string key = std::to_string(body.inputs) + " " + std::to_string(body.numbers);
  for (const std::string& s : body.statements) key += "\n" + s;
  key += "\n" + body.result;
  const auto [at, is_new] = known_.emplace(std::move(key), static_cast<int>(bodies_.size()));
  if (is_new) {
    bodies_.push_back(std::move(body));
  } else {
    bodies_[at->second].wide &= body.wide;
    bodies_[at->second].narrow &= body.narrow;
  }
  return at->second;
}

void Emission::add(const Op& op, int argument, int32_t entry) {
  EmitPath path;
  auto ways = explore(op, argument, entry, path);
  if (!ways) return;
  const int count = static_cast<int>(op.params.size());
  formulas_.push_back({argument < 0 ? op.name : op.name + ".vjp." + op.params[argument].name_text,
                       formula_text(op, argument), &op, argument, argument < 0 ? count : count + 2,
                       std::move(ways)});
}

void Emission::add(const Op& op) {
  if (!may_have_body(op)) return;
  const Formula& f = compiled(op);
  // A primitive has a kernel of its own in every backend that takes the text.
  if (f.decomp >= 0 && !find_primitive(op.name)) add(op, -1, f.decomp);
  for (size_t i = 0; i < op.params.size(); ++i) {
    if (f.vjps[i] >= 0) add(op, static_cast<int>(i), f.vjps[i]);
  }
}

bool is_pointwise(const Op& op) {
  if (op.info.kind != RB_KIND_COMPOSITE || !may_have_body(op) || op.decomp_text.empty())
    return false;
  Emission emission(Dialect::kC);
  emission.add(op);
  return !emission.formulas().empty() && emission.formulas()[0].name == op.name;
}

}  // namespace rabbet
