#include "cache.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <utility>

#include "modes.h"
#include "rabbet/autograd.h"

namespace autocast {

namespace {

// The tape's table; null while autograd is not loaded.
const RbAutograd* tape() {
  static std::atomic<const RbAutograd*> known{nullptr};
  const RbAutograd* table = known.load(std::memory_order_acquire);
  if (!table) {
    table = static_cast<const RbAutograd*>(host->get_ext(RB_AUTOGRAD_EXT, RB_AUTOGRAD_VERSION));
    known.store(table, std::memory_order_release);
  }
  return table;
}

}  // namespace

Cache& cache() {
  static thread_local Cache instance;
  return instance;
}

Cache::~Cache() {
  // At the end of the process the interpreter, which tensors may belong to, is gone.
  if (syscall(SYS_gettid) != getpid()) clear();
}

bool Cache::takes(const RbTensor* t, bool* recorded) {
  if (t->dtype_id != RB_F32 || t->level || (t->flags & RB_T_VIEW)) return false;
  const RbAutograd* table = tape();
  if (!table || !(t->keys[0] >> table->layer & 1)) return false;
  if (!table->requires_grad(t) || !table->is_leaf(t)) return false;
  const RbThread state = rb::thread_get();
  *recorded = !(state.exclude >> table->layer & 1);
  return state.depth == 0;
}

RbTensor* Cache::find(const RbTensor* leaf, int32_t dtype, bool recorded) const {
  const auto found = entries_.find(leaf);
  if (found == entries_.end()) return nullptr;
  const Cast& cast = found->second.casts[recorded];
  const bool fits =
      cast.tensor && cast.tensor->dtype_id == dtype && cast.version == host->version_get(leaf);
  return fits ? cast.tensor : nullptr;
}

void Cache::put(RbTensor* leaf, RbTensor* tensor, bool recorded) {
  Entry& entry = entries_[leaf];
  if (!entry.leaf) {
    entry.leaf = leaf;
    host->retain(leaf);
  }
  Cast& cast = entry.casts[recorded];
  host->retain(tensor);
  RbTensor* old = std::exchange(cast.tensor, tensor);
  cast.version = host->version_get(leaf);
  if (old) host->release(old);
}

void Cache::clear() {
  const auto dropped = std::exchange(entries_, {});
  for (const auto& [leaf, entry] : dropped) {
    for (const Cast& cast : entry.casts) {
      if (cast.tensor) host->release(cast.tensor);
    }
    host->release(entry.leaf);
  }
}

int64_t Cache::size() const {
  int64_t count = 0;
  for (const auto& [leaf, entry] : entries_)
    count += (entry.casts[0].tensor != nullptr) + (entry.casts[1].tensor != nullptr);
  return count;
}

}  // namespace autocast
