// Casts of weights, kept until the outermost region ends.
#pragma once
#include <unordered_map>

#include "rabbet/abi.h"

namespace autocast {

/// The thread's casts of float32 leaves that require grad. Each is good for one version of the
/// leaf, and for the mode, recorded or not, in which it was made: under no_grad() a cast has no
/// history.
class Cache {
 public:
  Cache() = default;
  ~Cache();
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  /// Whether casts of `t` are kept; `*recorded` says whether they are recorded now.
  static bool takes(const RbTensor* t, bool* recorded);
  /// Borrowed, or null.
  RbTensor* find(const RbTensor* leaf, int32_t dtype, bool recorded) const;
  void put(RbTensor* leaf, RbTensor* cast, bool recorded);
  void clear();
  int64_t size() const;

 private:
  struct Cast {
    RbTensor* tensor = nullptr;
    uint32_t version = 0;
  };
  struct Entry {
    RbTensor* leaf = nullptr;  // held: its address stays its own
    Cast casts[2];             // plain, recorded
  };
  std::unordered_map<const RbTensor*, Entry> entries_;
};

Cache& cache();

}  // namespace autocast
