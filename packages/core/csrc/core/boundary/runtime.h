// Services of the running process: plugins, layers, registration, threads, random numbers.
#pragma once
#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "device/backends.h"
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

/// Constant from the first use of `offered_minor` on.
extern RbHost kHost;

// -- registration (registry.cpp)
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

// -- layers (layers.cpp)
struct LayerEntry {
  std::string name, provider;
  RbLayer desc{};
  std::vector<std::string> before, after;
  int bit = -1;
  bool active = false;
};
/// What a range of phases is for; all ranges, first to run first.
struct PhaseRange {
  uint32_t first, last;
  const char *name, *meaning;
};
const std::vector<PhaseRange>& phase_ranges();
/// The bit of the layers of `phase` that runs first; that of the others follow below.
int highest_key_bit(uint32_t phase);
/// Whether the layer belongs on the transform stack.
bool is_transform(const RbLayer& layer);
/// What the manifest of an installed wheel says of a layer.
struct DeclaredLayer {
  std::string name;
  uint32_t phase;
};
/// Keep key bits for layers that may be loaded later; `order` begins with the one to run first.
void reserve_layers(const std::vector<DeclaredLayer>& order);
int stage_layer(const RbLayer& layer, const std::string& provider);  // returns its key bit
void activate_layer(int bit);
void drop_layer(int bit);
const LayerEntry& layer_entry(int bit);
int find_layer(const char* name);  // key bit, -1: not loaded
std::vector<const LayerEntry*> layers_in_order();

// -- plugins (plugin.cpp)
struct LoadedPlugin {
  std::string name, version, path;
  int abi_major, abi_built, abi_min;
};
/// The minor version of the plugin ABI that this core offers: its header's, or the older one that
/// the environment variable RABBET_ABI_MINOR asks for, whose host table it then has.
int offered_minor();
/// The oldest minor version that a plugin may be built with.
int oldest_minor();
/// Bytes of the host table of a minor version, from the oldest on.
uint32_t host_size(int minor);
/// Throw RB_E_PLUGIN where `who` needs more than core offers.
void check_abi(const char* who, int major, int needed);
/// dlopen, negotiate, run init in a transaction. Sets the error record and returns a code on
/// failure.
int32_t load_plugin(const char* path);
std::vector<LoadedPlugin> loaded_plugins();
/// While a plugin's `init` runs on this thread, the name is known when it has succeeded.
void publish(const char* name, uint32_t version, const void* table);
/// The slot is taken; a plugin whose `init` runs on this thread and fails gives it back.
void note_slot(int slot);
const void* published(const char* name, uint32_t min_version);

// -- slots (host.cpp)
int slot_new(const char* name, int layer, void (*del)(void*));
struct SlotEntry {
  std::string name;
  int layer;        // its key bit
  int64_t tensors;  // live ones that have it
};
std::vector<SlotEntry> slot_entries();

// -- threads (pool.cpp)
void parallel_for(int64_t n, int64_t grain, void (*f)(int64_t, int64_t, void*), void* ctx);
int num_threads();
void set_num_threads(int n);

}  // namespace rabbet

struct RbGenerator {  // Philox counters; guarded by its own lock
  std::atomic<uint64_t> seed{0}, offset{0};
};

namespace rabbet {
// -- random numbers (generator.cpp)
RbGenerator& default_generator(int backend, int device);
void seed_all(uint64_t seed);
RbRngSlice reserve(RbGenerator& generator, uint64_t counters);
}  // namespace rabbet
