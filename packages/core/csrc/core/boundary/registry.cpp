// The registry of operators and the transactions that fill it.
#include "boundary/registry.h"

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <unordered_map>

#include "boundary/host_checks.h"
#include "boundary/plugin.h"
#include "call/core_functions.h"
#include "call/decomp_functions.h"
#include "call/plan.h"
#include "device/backends.h"
#include "formula/formula.h"
#include "formula/formula_kernel.h"
#include "formula/formula_program.h"
#include "layer/layers.h"
#include "rabbet/capture.h"
#include "rabbet/convert.h"
#include "record/examples.h"
#include "rules/rule_functions.h"
#include "tensor/dtype.h"
#include "thread/error.h"
#include "thread/plugin_names.h"

namespace rabbet {

struct EmbeddedFile {
  const char* name;
  const char* text;
};
extern const EmbeddedFile kRecordFiles[];
extern const int kRecordFileCount;

namespace {

struct Registry {
  std::mutex mutex;  // serialises registration; lookups after it take it too, dispatch never does
  std::unordered_map<std::string, Op*> by_name;
  std::vector<std::unique_ptr<Op>> ops;
  std::vector<std::unique_ptr<Op>> derivatives;  // of them, see Op::derivatives
  std::vector<Registration> kernels;   // also those whose operator or backend is not here yet
  std::deque<std::string> providers;   // stable storage for Handler::provider
  std::deque<CheckedHandler> checked;  // stable storage for Handler::self of run_checked
  int64_t next_ticket = 1;
  Registry();
};

Registry& registry() {
  static Registry* instance = new Registry;
  return *instance;
}

int key_bit(const std::string& target) {
  const int backend = find_backend(target.c_str());
  return backend >= 0 ? backend : find_layer(target.c_str());
}

const char* keep(Registry& r, const std::string& text) {
  for (const std::string& known : r.providers) {
    if (known == text) return known.c_str();
  }
  r.providers.push_back(text);
  return r.providers.back().c_str();
}

Op* named(const Registry& r, const std::string& name) {
  const auto found = r.by_name.find(name);
  return found == r.by_name.end() ? nullptr : found->second;
}

// The handler of a kernel of a formula; null where the record says another one.
Handler* formula_handler(Registry& r, Op& op, const Registration& k) {
  const int bit = key_bit(k.target);
  if (bit < 0 || bit >= kBackendBits || k.slot >= static_cast<int32_t>(op.params.size()) ||
      formula_text(op, k.slot) != k.text)
    return nullptr;
  if (k.slot < 0) return &op.table[bit];
  std::atomic<Op*>& derivative = op.derivatives[k.slot];
  if (!derivative) {
    r.derivatives.push_back(derivative_op(op, k.slot));
    derivative = r.derivatives.back().get();
  }
  return &derivative.load()->table[bit];
}

// The handler of the kernel's place, made if it is not there yet; null where there is none.
Handler* find_handler(Registry& r, Op* op, const Registration& k) {
  if (!op) return nullptr;
  if (k.kind == Registration::kRule)
    return why_no_rule(*op, k.slot).empty() ? &op->rules[k.slot] : nullptr;
  if (k.kind == Registration::kFormula) return formula_handler(r, *op, k);
  const int bit = key_bit(k.target);
  return bit < 0 ? nullptr : &op->table[bit];
}

// What stands in front of a function whose results are checked; null: nothing does. A kernel that
// makes its results is checked where it is called.
RbFn checks_of(const Registration& k) {
  if (k.kind != Registration::kKernel) return nullptr;
  const int bit = key_bit(k.target);
  if (bit >= kBackendBits) return is_checked(layer_entry(bit)) ? run_checked : nullptr;
  const bool writes = !(k.flags & (RB_K_ALLOCATES | RB_K_NEEDS_GIL));
  return writes && is_checked_plugin(k.provider) ? run_checked_kernel : nullptr;
}
void* checked_handler(Registry& r, const Registration& k) {
  const int bit = key_bit(k.target);
  for (CheckedHandler& known : r.checked) {
    if (known.fn == k.fn && known.self == k.self && known.bit == bit) return &known;
  }
  r.checked.push_back({k.fn, k.self, bit});
  return &r.checked.back();
}

// Put the kernel into its operator's table if both ends exist by now.
void place(Registry& r, const Registration& k) {
  Op* const op = named(r, k.op);
  Handler* const handler = find_handler(r, op, k);
  if (!handler) return;
  // A kernel of the operator's own goes before that of its formula.
  if (k.kind == Registration::kFormula && handler->fn && !(handler->flags & kFormulaFlag)) return;
  handler->self = k.self;
  handler->flags = k.flags | (k.kind == Registration::kFormula ? kFormulaFlag : 0);
  if (k.flags & RB_K_ALLOCATES && is_checked_plugin(k.provider)) handler->flags |= kCheckedFlag;
  handler->dtype_mask = k.dtype_mask;
  handler->reads_args = k.reads_args;
  handler->reads_rets = k.reads_rets;
  handler->provider = keep(r, k.provider);
  const bool of_derivative = k.kind == Registration::kFormula && k.slot >= 0;
  const Op& computed = of_derivative ? *op->derivatives[k.slot].load() : *op;
  if (k.kind != Registration::kRule) {
    handler->uniform_dtypes = uniform_dtypes(computed, *handler);
    if (is_direct(computed, *handler)) handler->flags |= kDirectFlag;
  }
  RbFn fn = k.fn;
  if (const RbFn checks = checks_of(k)) {
    handler->self = checked_handler(r, k);
    fn = checks;
  }
  __atomic_store_n(&handler->fn, fn, __ATOMIC_RELEASE);
  if (k.kind == Registration::kRule) update_rules(*op, k.slot);
}

// Whether the registration is what is in the place.
bool is_placed(const Handler& handler, const Registration& k) {
  if (handler.fn != run_checked && handler.fn != run_checked_kernel)
    return handler.self == k.self && handler.fn == k.fn;
  const auto& checked = *static_cast<const CheckedHandler*>(handler.self);
  return checked.self == k.self && checked.fn == k.fn;
}

// Take it out of its operator's table. A call on another thread may be on the way to it: the rest
// of the handler stays as it is.
void unplace(Registry& r, const Registration& k) {
  Op* const op = named(r, k.op);
  Handler* const handler = find_handler(r, op, k);
  if (!handler || !is_placed(*handler, k)) return;
  __atomic_store_n(&handler->fn, nullptr, __ATOMIC_RELEASE);
  if (k.kind == Registration::kRule) update_rules(*op, k.slot);
}

void free_self(const Registration& k) {
  if (!k.self_free) return;
  try {
    k.self_free(k.self);
  } catch (...) {
    log_thrown("`self_free` of the kernel of '" + k.op + "' of " + k.provider);
  }
}

bool uses(const Op& op, const Op* callee) {
  if (!op.formula) return false;
  const std::vector<Callee>& callees = op.formula->callees;
  return std::any_of(callees.begin(), callees.end(),
                     [&](const Callee& c) { return c.op == callee; });
}

// Calls on the way, graphs and objects refer to operators for ever: nothing of it is freed.
void retire(Registry& r, Op& op) {
  static std::vector<std::shared_ptr<Formula>>* const old_formulas =
      new std::vector<std::shared_ptr<Formula>>;
  r.by_name.erase(op.name);
  op.retired = true;
  auto renew = [&](Op& other) {  // a formula that calls it is compiled anew
    if (&other == &op || !uses(other, &op)) return;
    old_formulas->push_back(other.formula);
    __atomic_store_n(&other.formula_ready, nullptr, __ATOMIC_RELEASE);
    other.formula.reset();
  };
  for (auto& other : r.ops) renew(*other);
  for (auto& other : r.derivatives) renew(*other);
}

// Without its kernels and rules a retired operator says so when it is called.
void disarm(Op& op) {
  for (Handler& handler : op.table) __atomic_store_n(&handler.fn, nullptr, __ATOMIC_RELEASE);
  for (Handler& rule : op.rules) __atomic_store_n(&rule.fn, nullptr, __ATOMIC_RELEASE);
  update_rules(op);
}

void add_op(Registry& r, std::unique_ptr<Op> op) {
  core_attach(*op);
  op->derivatives = std::vector<std::atomic<Op*>>(op->params.size());
  r.by_name[op->name] = op.get();
  r.ops.push_back(std::move(op));
}

Registry::Registry() {
  for (int i = 0; i < kRecordFileCount; ++i) {
    for (auto& op : parse_records(kRecordFiles[i].text, kRecordFiles[i].name)) {
      if (by_name.count(op->name)) {
        fail(RB_E_INTERNAL, "%s: operator '%s' is recorded twice", op->file.c_str(),
             op->name.c_str());
      }
      op->provider = "rabbet-core " RABBET_VERSION;
      op->of_core = true;
      add_op(*this, std::move(op));
    }
  }
}

void check_kernel(const Registry& r, const RbTxn& txn, const Registration& kernel,
                  bool replace = false) {
  const Op* op = named(r, kernel.op);
  for (auto& staged : txn.ops) {
    if (staged->name == kernel.op) op = staged.get();
  }
  const char* const who = kernel.provider.c_str();
  if (op && !kernel.text.empty() && kernel.kind != Registration::kFormula &&
      op->schema != kernel.text) {
    fail(RB_E_PLUGIN,
         "%s: the kernel of '%s' was compiled against the schema\n  %s\nbut this core has\n  %s",
         who, kernel.op.c_str(), kernel.text.c_str(), op->schema.c_str());
  }
  const bool is_rule = kernel.kind == Registration::kRule;
  const std::string refusal = op && is_rule ? why_no_rule(*op, kernel.slot) : "";
  if (!refusal.empty()) {
    fail(RB_E_PLUGIN, "%s: '%s' takes no %s function: %s", who, kernel.op.c_str(),
         kernel.target.c_str(), refusal.c_str());
  }
  for (const Registration& other : r.kernels) {
    if (replace || !other.same_place(kernel) || other.provider == kernel.provider) continue;
    fail(RB_E_PLUGIN, "%s: a %s of '%s'%s is registered already, by %s", who,
         is_rule ? (kernel.target + " function").c_str() : "kernel", kernel.op.c_str(),
         is_rule ? "" : (" for '" + kernel.target + "'").c_str(), other.provider.c_str());
  }
}

}  // namespace

const Op* find_op(const char* name) {
  Registry& r = registry();
  std::lock_guard<std::mutex> lock(r.mutex);
  auto found = r.by_name.find(name);
  return found == r.by_name.end() ? nullptr : found->second;
}

std::vector<const Op*> all_ops() {
  Registry& r = registry();
  std::lock_guard<std::mutex> lock(r.mutex);
  std::vector<const Op*> ops;
  for (auto& op : r.ops) {
    if (!op->retired) ops.push_back(op.get());
  }
  return ops;
}

void txn_add_ops(RbTxn& txn, const std::string& text, const std::string& file) {
  for (auto& op : parse_records(text, file)) {
    op->provider = txn.provider;
    txn.ops.push_back(std::move(op));
  }
}

namespace {
Registration staged(const RbTxn& txn, const char* op, const char* text, RbFn fn, void* self,
                    void (*self_free)(void*), uint32_t flags) {
  Registration k;
  k.op = op;
  k.text = text ? text : "";
  k.fn = fn;
  k.self = self;
  k.self_free = self_free;
  k.flags = flags;
  k.provider = txn.provider;
  return k;
}
}  // namespace

void stage_kernel(RbTxn& txn, const RbKernel& kernel) {
  const RbKernel k = whole(kernel);
  constexpr uint32_t kFlags = RB_K_ALLOCATES | RB_K_NEEDS_GIL | RB_K_CONTIGUOUS | RB_K_MOVES |
                              RB_K_CONVERTS | RB_K_NO_CAPTURE;
  txn.kernels.push_back(staged(txn, k.op, k.schema, k.fn, k.self, k.self_free, k.flags & kFlags));
  Registration& made = txn.kernels.back();
  made.target = k.backend;
  made.dtype_mask = k.dtype_mask ? k.dtype_mask : dtypes_of(txn.minor);
}

void stage_rule(RbTxn& txn, const RbRule& rule) {
  const RbRule k = whole(rule);
  txn.kernels.push_back(
      staged(txn, k.op, k.schema, k.fn, k.self, k.self_free, k.flags & RB_K_NEEDS_GIL));
  Registration& made = txn.kernels.back();
  made.kind = Registration::kRule;
  made.target = rule_name(k.rule);
  made.slot = k.rule;
  if (!(k.flags & RB_RULE_READS)) return;
  made.reads_args = k.reads_args;
  made.reads_rets = k.reads_rets;
}

void stage_formula_kernel(RbTxn& txn, const RbFormulaKernel& kernel) {
  const RbFormulaKernel k = whole(kernel);
  txn.kernels.push_back(
      staged(txn, k.op, k.formula, k.fn, k.self, k.self_free, k.flags & RB_K_CONTIGUOUS));
  Registration& made = txn.kernels.back();
  made.kind = Registration::kFormula;
  made.target = k.backend;
  made.slot = k.argument;
  made.dtype_mask = k.dtype_mask ? k.dtype_mask : dtypes_of(txn.minor);
}

void undo(RbTxn& txn) {
  for (int bit : txn.layers) drop_layer(bit);
  drop_backends(txn.backends.size());
  for (auto id = txn.dtypes.rbegin(); id != txn.dtypes.rend(); ++id) drop_dtype(*id);
}

namespace {
// Two operators cannot have one name in a module; overloads are one operator there.
void check_module_names(const Registry& r, const RbTxn& txn) {
  std::map<std::pair<std::string, std::string>, const Op*> taken;
  const auto take = [&](const Op& op) {
    for (const ModuleName& place : op.exposed_in) {
      const Op& other = *taken.emplace(std::pair(place.module, place.name), &op).first->second;
      if (other.base == op.base) continue;
      fail(RB_E_PLUGIN, "%s: '%s' and '%s' are both exposed as '%s.%s'", txn.provider.c_str(),
           other.name.c_str(), op.name.c_str(), place.module.c_str(), place.name.c_str());
    }
  };
  const auto exposes = [](const auto& op) { return !op->exposed_in.empty(); };
  if (std::none_of(txn.ops.begin(), txn.ops.end(), exposes)) return;
  for (const auto& op : r.ops) {
    if (!op->retired) take(*op);
  }
  for (const auto& op : txn.ops) take(*op);
}
}  // namespace

void txn_commit(RbTxn& txn) {
  check_formulas(txn.ops);
  check_decomp_functions(txn.ops);
  for (auto& op : txn.ops) check_examples(*op);
  Registry& r = registry();
  std::lock_guard<std::mutex> lock(r.mutex);
  for (auto& op : txn.ops) {
    auto found = r.by_name.find(op->name);
    if (found != r.by_name.end() && found->second->schema != op->schema && !txn.replace) {
      fail(RB_E_PLUGIN,
           "%s: operator '%s' is registered already, by %s, with another schema:\n  %s\n  %s",
           txn.provider.c_str(), op->name.c_str(), found->second->provider.c_str(),
           found->second->schema.c_str(), op->schema.c_str());
    }
  }
  check_module_names(r, txn);
  for (const Registration& kernel : txn.kernels) check_kernel(r, txn, kernel);

  std::vector<std::string> fresh;
  for (auto& op : txn.ops) {
    const auto old = r.by_name.find(op->name);
    if (old != r.by_name.end() && !txn.replace) continue;  // the same schema twice is one operator
    if (old != r.by_name.end()) {
      Op& replaced = *old->second;
      retire(r, replaced);
      disarm(replaced);
    }
    fresh.push_back(op->name);
    add_op(r, std::move(op));
  }
  for (int bit : txn.layers) activate_layer(bit);
  for (const Registration& kernel : txn.kernels) {
    r.kernels.push_back(kernel);
    r.kernels.back().ticket = r.next_ticket++;
    place(r, r.kernels.back());
  }
  // Kernels that waited for an operator, a backend or a layer of this transaction.
  if (!fresh.empty() || !txn.layers.empty() || !txn.backends.empty()) {
    for (const Registration& k : r.kernels) place(r, k);
  }
  for (int id : txn.backends) complete_backend(id);
}

int64_t register_kernel(Registration kernel, bool replace) {
  Registry& r = registry();
  std::vector<Registration> old;
  int64_t ticket = 0;
  {
    std::lock_guard<std::mutex> lock(r.mutex);
    check_kernel(r, RbTxn(), kernel, replace);
    const auto same =
        std::stable_partition(r.kernels.begin(), r.kernels.end(),
                              [&](const Registration& k) { return !k.same_place(kernel); });
    old.assign(same, r.kernels.end());
    r.kernels.erase(same, r.kernels.end());
    ticket = kernel.ticket = r.next_ticket++;
    r.kernels.push_back(std::move(kernel));
    place(r, r.kernels.back());
  }
  for (const Registration& k : old) free_self(k);
  return ticket;
}

bool unregister_kernel(int64_t ticket) {
  Registry& r = registry();
  Registration old;
  {
    std::lock_guard<std::mutex> lock(r.mutex);
    const auto it = std::find_if(r.kernels.begin(), r.kernels.end(),
                                 [&](const Registration& k) { return k.ticket == ticket; });
    if (it == r.kernels.end()) return false;
    unplace(r, *it);
    old = *it;
    r.kernels.erase(it);
  }
  free_self(old);
  return true;
}

void retire_op(const std::string& name) {
  Registry& r = registry();
  std::lock_guard<std::mutex> lock(r.mutex);
  const auto found = r.by_name.find(name);
  if (found == r.by_name.end()) return;
  Op& op = *found->second;
  retire(r, op);
  disarm(op);
}

std::vector<KernelEntry> registered_kernels() {
  Registry& r = registry();
  std::lock_guard<std::mutex> lock(r.mutex);
  std::vector<KernelEntry> all;
  for (const Registration& k : r.kernels) {
    Op* const op = named(r, k.op);
    const Handler* handler = find_handler(r, op, k);
    const bool is_formula = k.kind == Registration::kFormula;
    if (is_formula && !handler) continue;  // no record has this formula
    const bool vjp = is_formula && k.slot >= 0;
    all.push_back({k.ticket, vjp ? k.op + ".vjp." + op->params[k.slot].name_text : k.op, k.target,
                   k.provider, !handler});
  }
  return all;
}

void check_all_formulas() {
  for (const Op* op : all_ops()) {
    check_formulas(*op);
    check_examples(*op);
  }
}

}  // namespace rabbet
