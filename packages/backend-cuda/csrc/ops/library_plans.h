// Plans of NVIDIA's libraries: a bounded cache and a lock for each device, and what happens when a
// plan fails.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "device/device.h"

namespace rbcuda {

/// For keys that are structs of 8-byte words without padding.
struct HashWords {
  template <class Key>
  size_t operator()(const Key& key) const {
    static_assert(sizeof(Key) % 8 == 0 && std::has_unique_object_representations_v<Key>);
    const auto* words = reinterpret_cast<const uint64_t*>(&key);
    uint64_t hash = 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < sizeof key / 8; ++i) {
      hash = (hash ^ words[i]) * 0xff51afd7ed558ccdu;
      hash ^= hash >> 32;
    }
    return hash;
  }
};
struct EqualWords {
  template <class Key>
  bool operator()(const Key& x, const Key& y) const {
    return !std::memcmp(&x, &y, sizeof x);
  }
};

/// At most `most` values by key; the least recently used one is dropped first.
template <class Key, class Value, class Hash = std::hash<Key>, class Equal = std::equal_to<Key>>
class LruCache {
 public:
  explicit LruCache(size_t most) : most_(most) {}

  size_t size() const { return kept_.size(); }
  /// Changes the limit, and drops the least recently used values beyond it.
  void set_most(size_t most) {
    most_ = most;
    while (kept_.size() > most_) drop_oldest();
  }
  void drop(const Key& key) {
    const auto at = kept_.find(key);
    if (at == kept_.end()) return;
    order_.erase(at->second.place);
    kept_.erase(at);
  }

  /// The value, which is the most recently used one now; `make` makes a missing one. The reference
  /// is valid until the next call. `most` must not be 0.
  template <class Make>
  Value& get(const Key& key, Make make) {
    const auto at = kept_.find(key);
    if (at != kept_.end()) {
      if (at->second.place != order_.begin())
        order_.splice(order_.begin(), order_, at->second.place);
      return at->second.value;
    }
    Value made = make();
    if (kept_.size() >= most_) drop_oldest();
    const auto added = kept_.emplace(key, Kept{std::move(made), {}}).first;
    order_.push_front(&added->first);
    added->second.place = order_.begin();
    return added->second.value;
  }
  Value& get(const Key& key) {
    return get(key, [] { return Value{}; });
  }

 private:
  struct Kept {
    Value value;
    typename std::list<const Key*>::iterator place;
  };
  void drop_oldest() {
    const auto oldest = kept_.find(*order_.back());
    order_.pop_back();
    kept_.erase(oldest);
  }

  size_t most_;
  std::unordered_map<Key, Kept, Hash, Equal> kept_;
  std::list<const Key*> order_;  // most recently used first
};

/// The `State` of a device, which must exist.
template <class State>
State& state_of(int device) {
  static auto* all = new std::vector<State>(  // never destroyed: the driver may be gone by then
      static_cast<size_t>(device_count()));
  return (*all)[static_cast<size_t>(device)];
}

void warn_not_started(const char* library, int device, int status);

/// A library's handle, created on first use.
template <class Handle>
class Started {
 public:
  /// Null, with one warning, if the library does not start on the device.
  Handle get(const char* library, int device, int (*create)(Handle*)) {
    if (is_tried_) return handle_;
    is_tried_ = true;
    if (const int status = create(&handle_)) {
      handle_ = nullptr;
      warn_not_started(library, device, status);
    }
    return handle_;
  }

 private:
  Handle handle_ = nullptr;
  bool is_tried_ = false;
};

/// "OP on 'cuda:N': WHAT", for messages about failures.
std::string failure_on(const char* op, const Device& device, const std::string& what);

/// Throws if a failure of a library on `stream` has invalidated a capture or left the device
/// unusable. `text` says what failed.
void check_recovers(Device& device, CuStream stream, const std::string& text);

/// Call this after a plan of `library` has failed for `op`, before another plan or our kernel takes
/// its place. Warns once for each operator and library. Throws if nothing else can run, because the
/// device does not recover or the failure has invalidated a capture. `what` says what failed.
void plan_failed(const char* library, const char* op, Device& device, CuStream stream,
                 const std::string& what);

enum class Attempt { kDone, kNoMemory, kFailed };

/// Runs `plans` in their order until one is done, which is then the first. One that fails is
/// dropped; one whose workspace cannot be had is passed over. `more` adds another one to `plans`,
/// or is false. False: none was done.
template <class Plan, class Run, class More>
bool run_first(std::vector<Plan>& plans, Run run, More more) {
  for (size_t i = 0; i < plans.size() || more();) {
    const auto at = plans.begin() + static_cast<std::ptrdiff_t>(i);
    const Attempt attempt = run(*at);
    if (attempt == Attempt::kDone) {
      if (i > 0) std::rotate(plans.begin(), at, at + 1);
      return true;
    }
    if (attempt == Attempt::kFailed) {
      plans.erase(at);
    } else {
      ++i;
    }
  }
  return false;
}

}  // namespace rbcuda
