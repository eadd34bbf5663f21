// Kernels of whole formulas (RbFormulaKernel): what they state, and derivatives as operators.
#include "formula/formula_kernel.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "formula/formula.h"

namespace rabbet {

namespace {

std::string definition_text(const Definition& def) {
  std::string params;
  for (const std::string& p : def.params) params += (params.empty() ? "" : ", ") + p;
  return "def " + def.name + "(" + params + ") = " + def.text + "\n";
}

// The definitions that the formulas in `body` use, also by way of each other; a line each.
std::string used_definitions(const Op& op, const std::string& body) {
  auto uses = [](const std::string& text, const std::string& name) {
    const std::string call = name + "(";
    for (size_t at = text.find(call); at != std::string::npos; at = text.find(call, at + 1)) {
      const char before = at ? text[at - 1] : ' ';
      if (!std::isalnum(static_cast<unsigned char>(before)) && before != '_') return true;
    }
    return false;
  };
  std::vector<const Definition*> unused, used;
  for (const Definition& def : op.defs) unused.push_back(&def);
  for (const Definition& def : *op.shared_defs) unused.push_back(&def);
  std::string known = body;
  for (bool more = true; more;) {
    more = false;
    for (const Definition*& def : unused) {
      if (!def || !uses(known, def->name)) continue;
      known += def->text;
      used.push_back(def);
      def = nullptr;
      more = true;
    }
  }
  std::sort(used.begin(), used.end(),
            [](const Definition* a, const Definition* b) { return a->name < b->name; });
  std::string lines;
  for (const Definition* def : used) lines += definition_text(*def);
  return lines;
}

}  // namespace

std::string formula_text(const Op& op, int argument) {
  std::string body;
  for (auto& [name, formula] : op.lets) body += "let " + name + " = " + formula + "\n";
  if (argument < 0) {
    body += "decomp " + op.decomp_text + "\n";
  } else {
    for (auto& [name, formula] : op.vjps) {
      if (name == op.params[argument].name_text) body += "vjp " + name + " " + formula + "\n";
    }
  }
  return op.schema + "\n" + used_definitions(op, body) + body;
}

std::unique_ptr<Op> derivative_op(const Op& op, int argument) {
  const std::string name = op.name + ".vjp." + op.params[argument].name_text;
  const size_t open = op.schema.find('('), close = op.schema.rfind(") ->");
  std::string text = name + op.schema.substr(open, close - open) +
                     ", Tensor? result_=None, Tensor? grad_=None) -> Tensor\n  kind composite\n";
  for (const Definition& def : op.defs) text += "  " + definition_text(def);
  for (auto& [let, formula] : op.lets) text += "  let " + let + " = " + formula + "\n";
  for (auto& [of, formula] : op.vjps) {
    if (of == op.params[argument].name_text) text += "  decomp " + formula + "\n";
  }
  std::unique_ptr<Op> made = std::move(parse_records(text, op.file)[0]);
  made->ret_names = op.ret_names;  // the formula calls the result by its name
  made->is_derivative = true;
  made->provider = op.provider;
  made->of_core = op.of_core;
  made->shared_defs = op.shared_defs;
  made->numbers = op.takes_numbers();
  for (size_t i = 0; i < made->params.size(); ++i) {
    for (RbArgInfo* info : {static_cast<RbArgInfo*>(&made->params[i]), &made->arg_infos[i]}) {
      info->core_ndim = 0;
      info->flags |= RB_ARG_OPTIONAL;  // what the formula does not read
    }
  }
  return made;
}

}  // namespace rabbet
