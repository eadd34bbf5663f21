// Registration: transactions of plugins, and kernels outside of them.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "record/op.h"

namespace rabbet {

/// A kernel, a layer's handler, a rule or a kernel of a formula, on its way into an operator's
/// table.
struct Registration {
  enum Kind { kKernel, kRule, kFormula };
  Kind kind = kKernel;
  std::string op, target;  // target: the backend or layer; of a rule its name
  int32_t slot =
      -1;  // of a rule: its RuleSlot; of a formula: whose derivative, -1: the decomposition
  std::string text;  // the schema (or formula) compiled against; empty: not said
  RbFn fn = nullptr;
  void* self = nullptr;
  void (*self_free)(void*) = nullptr;
  uint32_t flags = 0;  // RB_K_*
  uint64_t dtype_mask = ~0ull;
  uint64_t reads_args = ~0ull, reads_rets = ~0ull;  // of a vjp rule
  std::string provider;
  int64_t ticket = 0;

  /// Whether the other goes to the same place.
  bool same_place(const Registration& other) const {
    return op == other.op && target == other.target && (kind == kRule) == (other.kind == kRule) &&
           slot == other.slot;
  }
};

}  // namespace rabbet

struct RbTxn {  // what a plugin has staged; applied whole or not at all
  RbTxn();
  ~RbTxn();
  RbTxn(const RbTxn&) = delete;
  RbTxn& operator=(const RbTxn&) = delete;
  std::string provider;
  bool of_init = false;      // core's own, which `init` is given
  bool replace = false;      // its operators take the place of those of the same name
  int minor = RB_ABI_MINOR;  // of the header that the plugin was built with
  std::vector<std::unique_ptr<rabbet::Op>> ops;
  std::vector<rabbet::Registration> kernels;
  std::vector<int> layers, backends, slots, dtypes;  // ids, provisional until commit
  struct Published {
    std::string name;
    uint32_t version;
    const void* table;
  };
  std::vector<Published> published;
};

namespace rabbet {

/// Stage what a plugin hands in, whose struct has been checked.
void stage_kernel(RbTxn& txn, const RbKernel& kernel);
void stage_rule(RbTxn& txn, const RbRule& rule);
void stage_formula_kernel(RbTxn& txn, const RbFormulaKernel& kernel);
/// Take back what was given an id on staging.
void undo(RbTxn& txn);
void txn_add_ops(RbTxn& txn, const std::string& text, const std::string& file);
void txn_commit(RbTxn& txn);  // throws Error and changes nothing if something does not fit
/// Register a kernel or rule outside a plugin; returns a ticket for unregister_kernel. With
/// `replace` it takes the place of another provider's.
int64_t register_kernel(Registration kernel, bool replace);
bool unregister_kernel(int64_t ticket);  // false: it is not registered any more
/// Take an operator back: its name is free again, calls through what still refers to it fail.
void retire_op(const std::string& name);

struct KernelEntry {
  int64_t ticket;
  std::string op, target, provider;
  bool pending;  // it waits for its operator, backend or layer
};
/// Every registered kernel and rule function, but for kernels of formulas that no record has.
std::vector<KernelEntry> registered_kernels();

}  // namespace rabbet
