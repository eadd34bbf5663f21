#include "rules/rule_functions.h"

#include <algorithm>
#include <vector>

#include "formula/formula.h"
#include "thread/error.h"
#include "thread/host_table.h"
#include "thread/thread_state.h"

namespace rabbet {

namespace {

const char* const kRuleNames[kRuleSlots] = {"decomp", "shape", "vjp", "jvp"};

void run(const Op& op, RuleSlot slot, const std::vector<RbValue>& args, RbValue* rets, int nrets) {
  RbCall c{};
  c.struct_size = sizeof c;
  c.host = &kHost;
  c.op = handle(&op);
  const Handler& rule = op.rules[slot];
  const auto who = [&] {
    const std::string what = slot == kDecompRule ? "" : std::string(kRuleNames[slot]) + " ";
    return "the " + what + "function of " + op.name + " [" + (rule.provider ? rule.provider : "?") +
           "]";
  };
  int32_t rc;
  try {
    rc = rule.fn(rule.self, &c, args.data(), static_cast<int32_t>(args.size()), rets, nrets);
  } catch (...) {
    rc = store_thrown(who());
  }
  if (rc == RB_OK) return;
  explain(rc, who());
  add_error_frame("while running " + who());
  rethrow(rc);
}

std::vector<RbValue> joined(const RbValue* a, int na, const RbValue* b, int nb, const RbValue* c,
                            int nc) {
  std::vector<RbValue> all(a, a + na);
  all.insert(all.end(), b, b + nb);
  all.insert(all.end(), c, c + nc);
  return all;
}

void set_flag(uint32_t& flags, uint32_t flag, bool on) {
  const uint32_t now = on ? flags | flag : flags & ~flag;
  __atomic_store_n(&flags, now, __ATOMIC_RELEASE);
}

// Whether the argument has a derivative: a formula, or the function gives those of all tensors.
bool has_vjp(const Op& op, size_t i) {
  if (op.rules[kVjpRule].fn) return (op.tensor_args >> i & 1) != 0;
  return std::any_of(op.vjps.begin(), op.vjps.end(),
                     [&](const auto& vjp) { return vjp.first == op.params[i].name_text; });
}

int32_t highest_level(const RbValue* args, int nargs) {
  int32_t level = 0;
  for (int i = 0; i < nargs; ++i) {
    if (args[i].tag == RB_TENSOR) level = std::max(level, args[i].v.t->level);
    for (uint32_t k = 0; args[i].tag == RB_TENSORS && k < args[i].len; ++k) {
      if (args[i].v.ts[k]) level = std::max(level, args[i].v.ts[k]->level);
    }
  }
  return level;
}

void update_rule_flags(Op& op) {
  set_flag(op.info.flags, RB_OP_HAS_VJP, !op.vjps.empty() || op.rules[kVjpRule].fn);
  set_flag(op.info.flags, RB_OP_HAS_JVP, !op.jvps.empty() || op.rules[kJvpRule].fn);
  set_flag(op.info.flags, RB_OP_HAS_DECOMP, op.has_decomp());
}

constexpr int32_t kMaxNested = 256;

}  // namespace

Nesting::Nesting(const Op& op) {
  if (thread_state().nested == kMaxNested) {
    fail(RB_E_STATE, "%s: %d operators run inside each other: is it made of itself?",
         op.name.c_str(), kMaxNested);
  }
  ++thread_state().nested;
}
Nesting::~Nesting() { --thread_state().nested; }

AtLevel::AtLevel(int32_t level) : before_(thread_state().depth) {
  thread_state().depth = std::max(before_, level);
}
AtLevel::~AtLevel() { thread_state().depth = before_; }

int find_rule(const std::string& target) {
  for (int slot = 0; slot < kRuleSlots; ++slot) {
    if (target == kRuleNames[slot]) return slot;
  }
  return -1;
}
const char* rule_name(int slot) { return kRuleNames[slot]; }

std::string why_no_rule(const Op& op, int slot) {
  const std::string has = "its record says it already: ";
  switch (slot) {
    case kDecompRule:
      return op.decomp_text.empty() || is_loaded_decomp(op) ? "" : has + "decomp " + op.decomp_text;
    case kShapeRule:
      if (op.shape_rule == ShapeRule::kKernel) return "";
      return has + (op.shape_text.empty() ? "it follows from its kind" : "shape " + op.shape_text);
    case kVjpRule:
      return op.vjps.empty() ? "" : has + "vjp " + op.vjps[0].first + " " + op.vjps[0].second;
    default:
      return op.jvps.empty() ? "" : has + "jvp " + op.jvps[0].second;
  }
}

void update_rules(Op& op) {
  for (size_t i = 0; i < op.params.size(); ++i) {
    const bool on = has_vjp(op, i);
    set_flag(op.params[i].flags, RB_ARG_HAS_VJP, on);
    set_flag(op.arg_infos[i].flags, RB_ARG_HAS_VJP, on);
    if (on && op.rules[kVjpRule].fn) continue;
    op.arg_infos[i].saves_args = op.arg_infos[i].saves_rets = 0;
    op.arg_infos[i].reads_args = op.arg_infos[i].reads_rets = 0;
  }
  __atomic_store_n(&op.info_ready, false, __ATOMIC_RELEASE);
  update_rule_flags(op);
}

void update_rules(Op& op, int changed) {
  if (changed == kVjpRule) return update_rules(op);
  update_rule_flags(op);
}

void check_given(const Op& op, const char* provider, RbValue* rets, int nrets) {
  for (int i = 0; i < nrets; ++i) {
    const RbValue& v = rets[i];
    if (op.returns_list ? v.tag == RB_TENSORS && (v.v.ts || !v.len) : v.tag == RB_TENSOR && v.v.t)
      continue;
    for (int k = 0; k < nrets; ++k) value_release(&rets[k]);
    fail(RB_E_PLUGIN, "%s: a function of %s returned RB_OK without result %d", op.name.c_str(),
         provider ? provider : "?", i);
  }
}

void run_decomp_rule(const Op& op, const RbValue* args, int nargs, RbValue* rets, int nrets) {
  for (int i = 0; i < nrets; ++i) rets[i].tag = RB_NONE;
  const AtLevel level(highest_level(args, nargs));
  run(op, kDecompRule, {args, args + nargs}, rets, nrets);
  check_given(op, op.rules[kDecompRule].provider, rets, nrets);
}

void run_shape_function(const Op& op, const RbValue* args, int nargs, Inferred& out) {
  RbValue rets[kMaxRets];
  const int nrets = op.info.nrets;
  for (int i = 0; i < nrets; ++i) rets[i].tag = RB_NONE;
  run(op, kShapeRule, {args, args + nargs}, rets, nrets);
  check_given(op, op.rules[kShapeRule].provider, rets, nrets);
  for (int i = 0; i < nrets; ++i) {
    const TensorRef like(rets[i].v.t);
    out.rets[i].ndim = like->ndim;
    out.rets[i].dtype = like->dtype_id;
    std::copy(like->shape, like->shape + like->ndim, out.rets[i].shape);
  }
}

void run_vjp_rule(const Op& op, uint64_t wanted, const RbValue* args, int nargs,
                  const RbValue* outs, int nouts, const RbValue* grads, RbValue* results) {
  for (int i = 0; i < nargs; ++i) results[i].tag = wanted >> i & 1 ? RB_NONE : RB_ZERO;
  run(op, kVjpRule, joined(args, nargs, outs, nouts, grads, nouts), results, nargs);
}

void run_jvp_rule(const Op& op, const RbValue* args, int nargs, const RbValue* outs, int nouts,
                  const RbValue* tangents, RbValue* results) {
  for (int i = 0; i < nouts; ++i) results[i].tag = RB_NONE;
  run(op, kJvpRule, joined(args, nargs, outs, nouts, tangents, nargs), results, nouts);
}

}  // namespace rabbet
