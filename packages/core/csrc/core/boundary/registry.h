// Registration: transactions of plugins, and kernels outside of them.
#pragma once
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "record/op.h"

struct RbTxn {  // what a plugin has staged; applied whole or not at all
  RbTxn();
  ~RbTxn();
  RbTxn(const RbTxn&) = delete;
  RbTxn& operator=(const RbTxn&) = delete;
  std::string provider;
  bool of_init = false;  // core's own, which `init` is given
  bool replace = false;  // its operators take the place of those of the same name
  std::vector<std::unique_ptr<rabbet::Op>> ops;
  std::vector<std::pair<RbKernel, std::string>> kernels;  // with the backend's or layer's name
  std::deque<std::string> names;                          // the kernels' operator names
  std::vector<int> layers, backends, slots;               // ids, provisional until commit
  struct Published {
    std::string name;
    uint32_t version;
    const void* table;
  };
  std::vector<Published> published;
};

namespace rabbet {

void txn_add_ops(RbTxn& txn, const std::string& text, const std::string& file);
void txn_commit(RbTxn& txn);  // throws Error and changes nothing if something does not fit
/// Register kernels outside a plugin; returns a ticket for unregister_kernel. With `replace` it
/// takes the place of another provider's.
int64_t register_kernel(const RbKernel& kernel, const std::string& provider, bool replace);
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
