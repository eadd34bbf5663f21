// From trees to a program: slots numbered, operators resolved, conditions as jumps.
#include "formula/formula_program.h"

#include <algorithm>
#include <cstring>

#include "formula/formula_value.h"

namespace rabbet {

namespace {

const char* tensor_operator(Operator op) {
  switch (op) {
    case Operator::kNeg:
      return "neg";
    case Operator::kAdd:
      return "add";
    case Operator::kSub:
      return "sub";
    case Operator::kMul:
      return "mul";
    case Operator::kDiv:
      return "div";
    case Operator::kPow:
      return "pow";
    case Operator::kBitAnd:
      return "bitwise_and";
    case Operator::kBitOr:
      return "bitwise_or";
    case Operator::kEq:
      return "eq";
    case Operator::kNe:
      return "ne";
    case Operator::kLt:
      return "lt";
    case Operator::kLe:
      return "le";
    case Operator::kGt:
      return "gt";
    case Operator::kGe:
      return "ge";
    default:
      return nullptr;
  }
}

struct Way {
  const char *name, *creator;
  ShortWay way;
};
constexpr Way kWays[] = {
    {"conj", nullptr, ShortWay::kRealPart},   {"real", nullptr, ShortWay::kRealPart},
    {"where", nullptr, ShortWay::kWhere},     {"mT", nullptr, ShortWay::kTranspose},
    {"zeros_like", "zeros", ShortWay::kLike}, {"ones_like", "ones", ShortWay::kLike},
    {"empty_like", "empty", ShortWay::kLike}};

class Writer {
 public:
  Writer(const Tree& tree, Formula& f) : tree_(tree), f_(f) {}

  // The item blocks of comprehensions come after the block that they are part of.
  int32_t block(int32_t root) {
    const int32_t first = begin(root);
    while (!items_.empty()) {
      const Item item = items_.back();
      items_.pop_back();
      f_.code[item.loop].index = static_cast<int32_t>(f_.loops.size());
      f_.loops.push_back({0, item.first_local});
      f_.loops.back().block = begin(item.root);
    }
    return first;
  }

 private:
  struct Item {
    int32_t loop, root, first_local;
  };

  int32_t begin(int32_t root) {
    const int32_t first = next();
    most_ = 0;
    add(Code::kEnter, 0);
    value(root, 0);
    add(Code::kReturn, 0);
    f_.code[first].count = static_cast<int16_t>(most_ + 1);
    return first;
  }

  int32_t next() const { return static_cast<int32_t>(f_.code.size()); }
  int32_t add(Code code, int to, int32_t index = 0, int count = 0, Operator op = Operator::kNeg) {
    most_ = std::max(most_, to);
    f_.code.push_back({code, op, static_cast<int16_t>(to), static_cast<int16_t>(count), index});
    return next() - 1;
  }
  void land(int32_t jump) { f_.code[jump].index = next(); }

  int32_t constant(const RbValue& v) {
    f_.constants.push_back(v);
    return static_cast<int32_t>(f_.constants.size()) - 1;
  }

  int32_t callee(const Op* op, std::vector<int8_t> places) {
    Callee c;
    c.op = op;
    c.places = std::move(places);
    for (const Param& p : op->params) c.arguments.push_back(p.default_value);
    for (const Way& w : kWays) {
      if (op->name != w.name) continue;
      c.way = w.way;
      if (w.creator) c.creator = find_op(w.creator);
    }
    f_.callees.push_back(std::move(c));
    return static_cast<int32_t>(f_.callees.size()) - 1;
  }
  int32_t callee_of(Operator op, int count) {
    const char* name = tensor_operator(op);
    if (!name) return -1;
    return callee(find_op(name), count == 1 ? std::vector<int8_t>{0} : std::vector<int8_t>{0, 1});
  }

  void values(const int32_t* kids, int count, int to) {
    for (int i = 0; i < count; ++i) value(kids[i], to + i);
  }

  void value(int32_t at, int to) {
    const Node& n = tree_.nodes[at];
    const int count = static_cast<int>(n.kids.size());
    switch (n.kind) {
      case NodeKind::kNumber:
        add(Code::kConstant, to, constant(n.value));
        return;
      case NodeKind::kString: {
        f_.strings.push_back(n.text);
        RbValue v = value_none();
        v.tag = RB_STR;
        v.len = static_cast<uint32_t>(n.text.size());
        v.v.s = f_.strings.back().c_str();
        add(Code::kConstant, to, constant(v));
        return;
      }
      case NodeKind::kDType: {
        RbValue v = value_int(n.index);
        v.tag = RB_DTYPE;
        add(Code::kConstant, to, constant(v));
        return;
      }
      case NodeKind::kZero:
        add(Code::kZero, to);
        return;
      case NodeKind::kArgument:
        add(Code::kArgument, to, n.index);
        return;
      case NodeKind::kResult:
        add(Code::kResult, to, n.index);
        return;
      case NodeKind::kGradient:
        add(Code::kGradient, to, n.index);
        return;
      case NodeKind::kTangent:
        add(Code::kTangent, to, n.index);
        return;
      case NodeKind::kLet:
        add(Code::kLet, to, n.index);
        return;
      case NodeKind::kLocal:
        add(Code::kLocal, to, n.index);
        return;
      case NodeKind::kUnary:
        value(n.kids[0], to);
        if (n.op == Operator::kNot)
          add(Code::kNot, to);
        else
          add(Code::kNegate, to, callee_of(Operator::kNeg, 1));
        return;
      case NodeKind::kBinary:
        return binary(n, to);
      case NodeKind::kCond: {
        value(n.kids[1], to);
        const int32_t unless = add(Code::kUnless, to);
        value(n.kids[0], to);
        const int32_t end = add(Code::kJump, to);
        land(unless);
        value(n.kids[2], to);
        land(end);
        return;
      }
      case NodeKind::kCall: {
        std::vector<int8_t> places;
        for (int i = 0; i < count; ++i) {
          if (n.kids[i] < 0) continue;
          value(n.kids[i], to + static_cast<int>(places.size()));
          places.push_back(static_cast<int8_t>(i));
        }
        const int given = static_cast<int>(places.size());
        add(Code::kCall, to, callee(n.callee, std::move(places)), given);
        return;
      }
      case NodeKind::kHost:
        values(n.kids.data(), count, to);
        f_.functions.push_back(find_host_function(n.text.c_str()));
        add(Code::kHost, to, static_cast<int32_t>(f_.functions.size()) - 1, count);
        return;
      case NodeKind::kList:
        values(n.kids.data(), count, to);
        add(Code::kList, to, 0, count);
        return;
      case NodeKind::kComprehension:
        values(n.kids.data() + 1, n.count, to);
        items_.push_back({add(Code::kEach, to, 0, n.count), n.kids[0], n.index});
        return;
      case NodeKind::kIndex:
        values(n.kids.data(), 2, to);
        add(Code::kItem, to, is_shape(n.kids[0]) ? 1 : 0);
        return;
      case NodeKind::kSlice:
        for (int i = 0; i < 3; ++i) {
          if (n.kids[i] >= 0)
            value(n.kids[i], to + i);
          else
            add(Code::kConstant, to + i, constant(value_none()));
        }
        add(Code::kSlice, to);
        return;
      case NodeKind::kAttribute:
        value(n.kids[0], to);
        add(Code::kAttribute, to, n.index);
        return;
    }
  }

  bool is_shape(int32_t at) const {
    const Node& n = tree_.nodes[at];
    return n.kind == NodeKind::kAttribute && n.index == 0;
  }

  void binary(const Node& n, int to) {
    value(n.kids[0], to);
    if (n.op == Operator::kAnd || n.op == Operator::kOr) {
      const int32_t end = add(n.op == Operator::kAnd ? Code::kIfFalse : Code::kIfTrue, to);
      value(n.kids[1], to);
      return land(end);
    }
    value(n.kids[1], to + 1);
    add(Code::kBinary, to, callee_of(n.op, 2), 2, n.op);
  }

  const Tree& tree_;
  Formula& f_;
  int most_ = 0;
  std::vector<Item> items_;
};

}  // namespace

int32_t append_block(const Tree& tree, int32_t root, Formula& out) {
  return Writer(tree, out).block(root);
}

}  // namespace rabbet
