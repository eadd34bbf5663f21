// The layer that defers calls (RbTrace.defer), and the threads that it must know of.
#pragma once
#include <atomic>
#include <cstdint>

#include "rabbet/trace.h"

namespace rabbet {

/// The table that a layer has registered with RbTrace.defer.
struct Deferral {
  uint64_t layer;  // its key
  RbDeferral table;
};
extern std::atomic<const Deferral*> deferral;  // null: no layer defers calls

/// Key of the layer that defers calls; 0: none does.
inline uint64_t deferring_layer() {
  const Deferral* d = deferral.load(std::memory_order_acquire);
  return d ? d->layer : 0;
}

/// Number of layers that are asked before values are read (RbTrace.read_gate).
extern std::atomic<int32_t> read_gates;
/// Set the function that is asked where the layer with the key `layer` is on; null: none.
void set_read_gate(uint64_t layer, RbReadFn fn, void* self);
/// Throws what one of them fails with.
void ask_read_gates(const RbTensor* t, const char* what);

/// Have the kernels run that write the memory of `t`, which `what` is about to read. Throws what
/// they fail with.
void make_ready_slow(const Deferral& d, const RbTensor* t, const char* what);
inline void make_ready(const RbTensor* t, const char* what) {
  if (read_gates.load(std::memory_order_acquire)) ask_read_gates(t, what);
  if (const Deferral* d = deferral.load(std::memory_order_acquire)) make_ready_slow(*d, t, what);
}

/// Register `table` for the layer with the key `layer`; null takes it back. Throws RB_E_STATE where
/// another layer defers calls.
void set_deferral(uint64_t layer, const RbDeferral* table);

/// Threads that have used core and not ended, but for those of its pool.
int32_t using_threads();
void thread_begins();
void thread_ends();

}  // namespace rabbet
