// How a recording runs: which nodes, where their results lie, and the tensors that kernels get.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "region/recording.h"

namespace compile {

/// Where a value lies while a tile is computed.
struct Place {
  enum Kind : uint8_t { kUnused, kMemory, kSlot } kind = kUnused;
  int16_t slot = -1;  // of the tile's scratch memory
};

/// The tensors that the kernels of one thread get, a shell for each value, and its scratch memory.
class Shells {
 public:
  Shells(const Recording& r, const std::vector<Place>& places, int slots);
  ~Shells();
  Shells(const Shells&) = delete;
  Shells& operator=(const Shells&) = delete;

  RbTensor* shell(int value) const { return shells_[value]; }
  /// Have all scratch slots of `bytes` bytes.
  void reserve(uint64_t bytes);
  char* slot(int i) const { return scratch_ + i * slot_bytes_; }

 private:
  std::vector<RbTensor*> shells_;
  int slots_;
  uint64_t slot_bytes_ = 0;
  char* scratch_ = nullptr;
};

/// The execution plan that recordings of the same structure share. It does not depend on sizes.
class Plan {
 public:
  explicit Plan(const Recording& r, const std::vector<bool>& needed);

  std::vector<int16_t> nodes;  // that run, in order
  std::vector<Place> places;   // by value
  int slots = 0;
  int largest_item = 1;  // bytes of a result's element
  int stored = 0;        // results that are written to memory
  std::vector<int16_t> stored_values;
  bool overwrites = false;  // memory that it reads
  // Under the lock of the region: it has run in tiles; a kernel has declined or failed in one.
  bool proven = false, declines = false;

  std::unique_ptr<Shells> take(const Recording& r);
  void give(std::unique_ptr<Shells> shells);

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Shells>> free_;
};

/// The plan of a recording, out of the cache or new. The cache is bounded. Null: nothing has to
/// run.
std::shared_ptr<Plan> plan_of(const Recording& r);
/// The number of cached plans; `forget_plans` drops them.
int64_t plan_count();
void forget_plans();

}  // namespace compile
