// What backends get of the emitted formulas: files for their builds, and the table of
// rabbet/emit.h.
#include <algorithm>
#include <cctype>
#include <cstddef>
#include <deque>
#include <mutex>

#include "formula/emit.h"
#include "thread/error.h"

namespace rabbet {

namespace {

const char* const kHead =
    "// Written by `python -m rabbet emit` from the op records. Do not edit.\n";

std::string number_text(int n) { return std::to_string(n); }

// C++ of the questions, as far as the operands of the body that they lead to.
void write_ways(const Ways& ways, const std::string& indent, std::string& out) {
  if (ways.body >= 0) {
    for (size_t i = 0; i < ways.inputs.size(); ++i) {
      const std::string v = "v[" + number_text(ways.inputs[i].index) + "]", k = number_text(i);
      if (ways.inputs[i].is_number) {
        out += indent + "o.constants[" + k + "] = number(" + v + ");\n";
      } else {
        out += indent + "if (!is_tensor(" + v + ")) return -1;\n";
        out += indent + "o.in[" + k + "] = " + v + ".v.t;\n";
      }
    }
    for (size_t i = 0; i < ways.numbers.size(); ++i)
      out += indent + "o.numbers[" + number_text(i) + "] = " + ways.numbers[i]->text() + ";\n";
    out += indent + "return " + number_text(ways.body) + ";\n";
    return;
  }
  for (auto& [question, branch] : ways.branches) {
    out += indent + "if (" + question.text() + ") {\n";
    write_ways(*branch, indent + "  ", out);
    out += indent + "}\n";
  }
  out += indent + "return -1;\n";
}

// Statements of a body as C++ in which the long parts of a formula that only one side of an
// `op_where` reads are computed where a lane takes that side.
class LazyText {
 public:
  explicit LazyText(const LoopBody& body) : result_(parse(body.result).operands) {
    std::map<std::string, int> places;
    for (const std::string& text : body.statements) {
      const size_t equals = text.find(" = "), space = text.rfind(' ', equals - 1);
      places[text.substr(space + 1, equals - space - 1)] = static_cast<int>(statements_.size());
      Statement s = parse(text.substr(equals + 3));
      s.head = text.substr(0, equals + 3);
      statements_.push_back(std::move(s));
    }
    for (Statement& s : statements_) {
      for (const std::string& operand : s.operands) {
        const auto at = places.find(operand);
        s.reads.push_back(at == places.end() ? -1 : at->second);
      }
    }
    const int count = static_cast<int>(statements_.size());
    for (int i = 0; i < count; ++i) {
      for (int read : statements_[i].reads) {
        if (read >= 0) statements_[read].readers.push_back(i);
      }
    }
    for (const std::string& operand : result_) {
      const auto at = places.find(operand);
      if (at != places.end()) statements_[at->second].readers.push_back(count);
    }
  }

  std::string text() const {
    std::vector<int> all(statements_.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
    return block(all, "    ");
  }

 private:
  struct Statement {
    std::string head, code;
    std::vector<std::string> operands;
    std::vector<int> reads, readers;  // other statements; -1: none
    int cost = 0;
  };
  static constexpr int kLong = 24;  // costs more than to ask whether a lane takes it

  static Statement parse(const std::string& code) {
    Statement s;
    s.code = code;
    const auto is_word = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
    };
    for (size_t i = 0; i < code.size();) {
      size_t end = i;
      while (end < code.size() && is_word(code[end])) ++end;
      if (end > i && code[i] == 't') s.operands.push_back(code.substr(i, end - i));
      i = std::max(end, i + 1);
    }
    const std::string name =
        code.compare(0, 3, "op_") == 0 ? code.substr(3, code.find(':') - 3) : "";
    const Primitive* p = find_primitive(name);
    s.cost = p ? p->cost : Primitive::kPlain;
    return s;
  }

  // Those of `among` that nothing reads but, in the end, operand `side` of statement `at`.
  std::vector<int> only_for(const std::vector<int>& among, int at, const std::string& side) const {
    std::vector<int> found;
    const Statement& choice = statements_[at];
    if (std::count(choice.operands.begin(), choice.operands.end(), side) != 1) return found;
    const int first = choice.reads[std::find(choice.operands.begin(), choice.operands.end(), side) -
                                   choice.operands.begin()];
    std::vector<char> in(statements_.size() + 1, 0);
    for (auto i = among.rbegin(); i != among.rend(); ++i) {
      if (*i >= at) continue;
      const auto& readers = statements_[*i].readers;
      const bool only = std::all_of(readers.begin(), readers.end(), [&](int reader) {
        return in[reader] || (reader == at && *i == first);
      });
      if (!only || readers.empty()) continue;
      in[*i] = 1;
      found.push_back(*i);
    }
    std::reverse(found.begin(), found.end());
    return found;
  }
  bool is_long(const std::vector<int>& statements) const {
    int cost = 0;
    for (int i : statements) cost += statements_[i].cost;
    return cost >= kLong;
  }

  std::string block(const std::vector<int>& among, const std::string& indent) const {
    std::vector<std::string> lines;
    std::vector<char> inside(statements_.size(), 0);
    for (auto i = among.rbegin(); i != among.rend(); ++i) {
      if (inside[*i]) continue;
      const Statement& s = statements_[*i];
      std::string code = s.code;
      static const std::string kWhere = "op_where::f<T>(";
      if (code.compare(0, kWhere.size(), kWhere) == 0) {
        const size_t comma = code.find(", "), next = code.find(", ", comma + 2);
        const std::string mask = code.substr(kWhere.size(), comma - kWhere.size());
        const std::string sides[] = {code.substr(comma + 2, next - comma - 2),
                                     code.substr(next + 2, code.size() - next - 4)};
        std::vector<int> parts[2];
        for (int k = 0; k < 2; ++k) parts[k] = only_for(among, *i, sides[k]);
        if (is_long(parts[0]) || is_long(parts[1])) {
          code = "op_where::lazy<T>(" + mask;
          for (int k = 0; k < 2; ++k) {
            code += ", [&]() RB_LAMBDA {\n" + block(parts[k], indent + "  ") + indent +
                    "  return " + sides[k] + ";\n" + indent + "}";
            for (int part : parts[k]) inside[part] = 1;
          }
          code += ");";
        }
      }
      lines.push_back(indent + s.head + code + "\n");
    }
    std::string out;
    for (auto line = lines.rbegin(); line != lines.rend(); ++line) out += *line;
    return out;
  }

  std::vector<Statement> statements_;
  const std::vector<std::string> result_;
};

std::string plain_text(const LoopBody& body) {
  std::string out;
  for (const std::string& s : body.statements) out += "    " + s + "\n";
  return out;
}

}  // namespace

std::map<std::string, std::string> Emission::files() const {
  std::string bodies = kHead, kernels = kHead, table;
  kernels += "constexpr FusedShape kShapes[] = {\n";
  for (size_t i = 0; i < bodies_.size(); ++i) {
    const LoopBody& b = bodies_[i];
    const std::string name = "fused_" + number_text(i);
    bodies += "struct " + name + " {\n  static constexpr int inputs = " + number_text(b.inputs) +
              ", numbers = " + number_text(b.numbers) + ", packs = " + number_text(b.packs) +
              ";\n  static constexpr bool wide = " + (b.wide ? "true" : "false") +
              ", narrow = " + (b.narrow ? "true" : "false") +
              ";\n  template <class T>\n  RB_INLINE T f(";
    for (int k = 0; k < RB_EMIT_INPUTS; ++k)
      bodies += "[[maybe_unused]] T x" + number_text(k) + ", ";
    bodies += "[[maybe_unused]] const T* p) {\n";
    bodies += b.packs == Primitive::kScalar ? plain_text(b) : LazyText(b).text();
    bodies += "    return " + b.result + ";\n  }\n};\n";
    table += (i ? ", body<" : "body<") + name + ">()";
    kernels += "    {" + number_text(b.inputs) + (b.heavy ? ", true},\n" : ", false},\n");
  }
  bodies += "constexpr FusedBody kBodies[] = {" + table + "};\n";
  kernels += "};\n";
  table.clear();
  for (size_t i = 0; i < formulas_.size(); ++i) {
    const EmittedFormula& f = formulas_[i];
    kernels += "int choose_" + number_text(i) + "(const RbValue* v, FusedOperands& o) {  // " +
               f.name + "\n";
    write_ways(*f.ways, "  ", kernels);
    kernels += "}\n";
    table += "    {\"" + f.op->name + "\", " + number_text(f.argument) + ", R\"~(" + f.text +
             ")~\", choose_" + number_text(i) + ", " + number_text(f.nvalues) + "},\n";
  }
  kernels += "const FusedKernel kKernels[] = {\n" + table + "};\n";
  if (dialect_ == Dialect::kC) {
    bodies = kHead;
    for (size_t i = 0; i < bodies_.size(); ++i) bodies += function(static_cast<int>(i));
  }
  return {{"fused_bodies.inc", std::move(bodies)}, {"fused_kernels.inc", std::move(kernels)}};
}

std::string Emission::function(int body) const {
  const LoopBody& b = bodies_[body];
  std::string parameters;
  for (int k = 0; k < b.inputs; ++k) parameters += (k ? ", T x" : "T x") + number_text(k);
  for (int k = 0; k < b.numbers; ++k) parameters += ", T p" + number_text(k);
  std::string text = "RB_BODY T rb_body_" + number_text(body) + "(" + parameters + ") {\n";
  for (const std::string& s : b.statements) text += "  " + s + "\n";
  return text + "  return " + b.result + ";\n}\n";
}

// ---- the table

namespace {

/// The formulas of all operators that were registered when it was first asked for.
struct Catalogue {
  Emission emission{Dialect::kC};
  std::vector<RbEmitFormula> formulas;
  std::vector<std::string> functions;

  Catalogue() {
    for (const Op* op : all_ops()) emission.add(*op);
    for (const EmittedFormula& f : emission.formulas()) {
      formulas.push_back({f.op->name.c_str(), f.text.c_str(), f.argument, f.nvalues,
                          static_cast<int32_t>(formulas.size()), 0});
    }
    for (size_t i = 0; i < emission.bodies().size(); ++i)
      functions.push_back(emission.function(static_cast<int>(i)));
  }
};
const Catalogue& catalogue() {
  static const Catalogue* const all = new Catalogue;
  return *all;
}

const RbPrimitive* list_primitives(int32_t* count) {
  static const std::vector<RbPrimitive>* const all = [] {
    auto* infos = new std::vector<RbPrimitive>;
    for (const Primitive& p : primitives()) infos->push_back(p.info);
    return infos;
  }();
  *count = static_cast<int32_t>(all->size());
  return all->data();
}

const RbEmitFormula* list_formulas(int32_t* count) {
  *count = 0;
  const RbEmitFormula* all = nullptr;
  guarded([&] {
    all = catalogue().formulas.data();
    *count = static_cast<int32_t>(catalogue().formulas.size());
  });
  return all;
}

int32_t choose(int32_t id, const RbValue* values, int32_t nvalues, RbEmitted* out) {
  return guarded([&] {
    const auto& formulas = catalogue().emission.formulas();
    if (id < 0 || static_cast<size_t>(id) >= formulas.size())
      fail(RB_E_ARG, "emit: choose: there is no formula %d", id);
    if (!values || !out || out->struct_size < sizeof(RbEmitted))
      fail(RB_E_ARG, "emit: choose: expected values and an RbEmitted with its struct_size");
    const EmittedFormula& f = formulas[id];
    if (nvalues != f.nvalues) {
      fail(RB_E_ARG, "emit: choose: %s takes %d values, got %d", f.name.c_str(), f.nvalues,
           nvalues);
    }
    const Ways* ways = f.ways.get();
    while (ways && ways->body < 0) {
      const Ways* next = nullptr;
      for (auto& [question, branch] : ways->branches) {
        if (!next && question.holds(values)) next = branch.get();
      }
      ways = next;
    }
    if (!ways) fail(RB_E_NOTIMPL, "%s: no body fits these values", f.name.c_str());
    out->body = ways->body;
    out->ninputs = static_cast<int32_t>(ways->inputs.size());
    out->nnumbers = static_cast<int32_t>(ways->numbers.size());
    for (int i = 0; i < out->ninputs; ++i) {
      const BodyInput& in = ways->inputs[i];
      const RbValue& v = values[in.index];
      if (!in.is_number && v.tag != RB_TENSOR)
        fail(RB_E_NOTIMPL, "%s: value %d is no tensor", f.name.c_str(), in.index);
      out->inputs[i] = in.index;
      out->is_number[i] = in.is_number;
      out->constants[i] = !in.is_number       ? 0
                          : v.tag == RB_FLOAT ? v.v.f
                                              : static_cast<double>(v.v.i);
    }
    for (int i = 0; i < out->nnumbers; ++i) out->numbers[i] = ways->numbers[i]->of(values);
    out->text = catalogue().functions[ways->body].c_str();
  });
}

}  // namespace

const RbEmit* emit_table() {
  static const RbEmit table = {sizeof(RbEmit), 0, list_primitives, list_formulas, choose};
  return &table;
}

}  // namespace rabbet
