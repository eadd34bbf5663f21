// The registry of operators and the transactions that fill it.
#include "boundary/registry.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <mutex>
#include <unordered_map>

#include "call/core_functions.h"
#include "device/backends.h"
#include "formula/formula.h"
#include "formula/formula_nodes.h"
#include "layer/layers.h"
#include "record/examples.h"
#include "rules/rule_functions.h"
#include "thread/error.h"

namespace rabbet {

struct EmbeddedFile {
  const char* name;
  const char* text;
};
extern const EmbeddedFile kRecordFiles[];
extern const int kRecordFileCount;

namespace {

struct Registered {
  int64_t ticket;
  RbKernel kernel;
  std::string op, target, provider;
};

struct Registry {
  std::mutex mutex;  // serialises registration; lookups after it take it too, dispatch never does
  std::unordered_map<std::string, Op*> by_name;
  std::vector<std::unique_ptr<Op>> ops;
  std::vector<Registered> kernels;    // also those whose operator or backend is not here yet
  std::deque<std::string> providers;  // stable storage for Handler::provider
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

// Where the kernel `name` goes: an operator, and the argument for "NAME.vjp.ARGUMENT", else -1.
struct Place {
  Op* op = nullptr;
  int argument = -1;
};
Place find_place(const Registry& r, const std::string& name) {
  Place place;
  auto found = r.by_name.find(name);
  if (found != r.by_name.end()) {
    place.op = found->second;
    return place;
  }
  const size_t dot = name.rfind(".vjp.");
  if (dot == std::string::npos) return place;
  found = r.by_name.find(name.substr(0, dot));
  if (found == r.by_name.end()) return place;
  for (size_t i = 0; i < found->second->params.size(); ++i) {
    if (found->second->params[i].name_text != name.substr(dot + 5)) continue;
    place.op = found->second;
    place.argument = static_cast<int>(i);
  }
  return place;
}

// The handler of the kernel's place, made if it is not there yet; null where there is none.
Handler* find_handler(const Registered& k, const Place& place) {
  const int rule = find_rule(k.target);
  if (rule >= 0) {
    const bool fits = place.op && place.argument < 0 && why_no_rule(*place.op, rule).empty();
    return fits ? &place.op->rules[rule] : nullptr;
  }
  const int bit = key_bit(k.target);
  if (!place.op || bit < 0) return nullptr;
  if (k.kernel.flags & RB_K_FORMULA) {
    const std::string text = formula_text(*place.op, place.argument);
    if (bit >= kBackendBits || !k.kernel.schema || text != k.kernel.schema) return nullptr;
  }
  if (place.argument < 0) return &place.op->table[bit];
  if (!(k.kernel.flags & RB_K_FORMULA)) return nullptr;
  if (!place.op->vjp_table) {
    place.op->vjp_storage.reset(new Handler[place.op->params.size() * kBackendBits]);
    __atomic_store_n(&place.op->vjp_table, place.op->vjp_storage.get(), __ATOMIC_RELEASE);
  }
  return &place.op->vjp_storage[place.argument * kBackendBits + bit];
}

// Put the kernel into its operator's table if both ends exist by now.
void place(Registry& r, const Registered& k) {
  const Place found = find_place(r, k.op);
  Handler* const target = find_handler(k, found);
  if (!target) return;
  Handler& handler = *target;
  handler.self = k.kernel.self;
  handler.flags = k.kernel.flags;
  handler.dtype_mask = k.kernel.dtype_mask ? k.kernel.dtype_mask : ~0ull;
  handler.provider = keep(r, k.provider);
  __atomic_store_n(&handler.fn, k.kernel.fn, __ATOMIC_RELEASE);
  if (find_rule(k.target) >= 0) update_rules(*found.op);
}

// Take it out of its operator's table. A call on another thread may be on the way to it: the rest
// of the handler stays as it is.
void unplace(const Registry& r, const Registered& k) {
  const Place found = find_place(r, k.op);
  Handler* const handler = find_handler(k, found);
  if (!handler || handler->self != k.kernel.self || handler->fn != k.kernel.fn) return;
  __atomic_store_n(&handler->fn, nullptr, __ATOMIC_RELEASE);
  if (find_rule(k.target) >= 0) update_rules(*found.op);
}

void free_self(const RbKernel& kernel) {
  if (kernel.self_free) kernel.self_free(kernel.self);
}

bool uses(const Op& op, const Op* callee) {
  if (!op.formula) return false;
  for (const Node& n : op.formula->nodes) {
    if (n.callee == callee) return true;
  }
  return false;
}

// Calls on the way, graphs and objects refer to operators for ever: nothing of it is freed.
void retire(Registry& r, Op& op) {
  static std::vector<std::shared_ptr<Formula>>* const old_formulas =
      new std::vector<std::shared_ptr<Formula>>;
  r.by_name.erase(op.name);
  op.retired = true;
  for (auto& other : r.ops) {  // formulas that call it are compiled anew
    if (other.get() == &op || !uses(*other, &op)) continue;
    old_formulas->push_back(other->formula);
    __atomic_store_n(&other->formula_ready, nullptr, __ATOMIC_RELEASE);
    other->formula.reset();
  }
}

// Without its kernels and rules a retired operator says so when it is called.
void disarm(Op& op) {
  for (Handler& handler : op.table) __atomic_store_n(&handler.fn, nullptr, __ATOMIC_RELEASE);
  for (Handler& rule : op.rules) __atomic_store_n(&rule.fn, nullptr, __ATOMIC_RELEASE);
  update_rules(op);
}

void add_op(Registry& r, std::unique_ptr<Op> op) {
  core_attach(*op);
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
      add_op(*this, std::move(op));
    }
  }
}

void check_kernel(const Registry& r, const RbTxn& txn, const RbKernel& kernel,
                  const std::string& target, bool replace = false) {
  const Op* op = nullptr;
  auto found = r.by_name.find(kernel.op);
  if (found != r.by_name.end()) op = found->second;
  for (auto& staged : txn.ops) {
    if (staged->name == kernel.op) op = staged.get();
  }
  if (op && kernel.schema && !(kernel.flags & RB_K_FORMULA) && op->schema != kernel.schema) {
    fail(RB_E_PLUGIN,
         "%s: the kernel of '%s' was compiled against the schema\n  %s\nbut this core has\n  %s",
         txn.provider.c_str(), kernel.op, kernel.schema, op->schema.c_str());
  }
  const int rule = find_rule(target);
  const std::string refusal = op && rule >= 0 ? why_no_rule(*op, rule) : "";
  if (!refusal.empty()) {
    fail(RB_E_PLUGIN, "%s: '%s' takes no %s function: %s", txn.provider.c_str(), kernel.op,
         target.c_str(), refusal.c_str());
  }
  for (const Registered& other : r.kernels) {
    if (replace || other.op != kernel.op || other.target != target ||
        other.provider == txn.provider)
      continue;
    fail(RB_E_PLUGIN, "%s: a %s of '%s'%s is registered already, by %s", txn.provider.c_str(),
         rule >= 0 ? (target + " function").c_str() : "kernel", kernel.op,
         rule >= 0 ? "" : (" for '" + target + "'").c_str(), other.provider.c_str());
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

void txn_commit(RbTxn& txn) {
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
  for (auto& [kernel, target] : txn.kernels) check_kernel(r, txn, kernel, target);

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
  for (auto& [kernel, target] : txn.kernels) {
    r.kernels.push_back({r.next_ticket++, kernel, kernel.op, target, txn.provider});
    place(r, r.kernels.back());
  }
  // Kernels that waited for an operator, a backend or a layer of this transaction.
  if (!fresh.empty() || !txn.layers.empty() || !txn.backends.empty()) {
    for (const Registered& k : r.kernels) place(r, k);
  }
  for (int id : txn.backends) complete_backend(id);
}

int64_t register_kernel(const RbKernel& kernel, const std::string& provider, bool replace) {
  Registry& r = registry();
  std::vector<RbKernel> old;
  int64_t ticket = 0;
  {
    std::lock_guard<std::mutex> lock(r.mutex);
    RbTxn txn;
    txn.provider = provider;
    check_kernel(r, txn, kernel, kernel.backend, replace);
    for (auto it = r.kernels.begin(); it != r.kernels.end();) {
      const bool same = it->op == kernel.op && it->target == kernel.backend;
      if (same) old.push_back(it->kernel);
      it = same ? r.kernels.erase(it) : it + 1;
    }
    r.kernels.push_back({r.next_ticket++, kernel, kernel.op, kernel.backend, provider});
    place(r, r.kernels.back());
    ticket = r.kernels.back().ticket;
  }
  for (const RbKernel& k : old) free_self(k);
  return ticket;
}

bool unregister_kernel(int64_t ticket) {
  Registry& r = registry();
  RbKernel old{};
  {
    std::lock_guard<std::mutex> lock(r.mutex);
    const auto it = std::find_if(r.kernels.begin(), r.kernels.end(),
                                 [&](const Registered& k) { return k.ticket == ticket; });
    if (it == r.kernels.end()) return false;
    unplace(r, *it);
    old = it->kernel;
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
  for (const Registered& k : r.kernels) {
    const Handler* handler = find_handler(k, find_place(r, k.op));
    const bool declined = !handler && (k.kernel.flags & RB_K_FORMULA);
    if (!declined) all.push_back({k.ticket, k.op, k.target, k.provider, !handler});
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
