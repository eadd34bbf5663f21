// What both plugins share: a layer just above the devices that each thread switches on for itself,
// by entering a listener, and what its library exports.
#pragma once
#include <algorithm>
#include <atomic>
#include <iterator>
#include <mutex>
#include <string>
#include <vector>

#include "rabbet/plugin.hpp"

namespace instruments {

inline int32_t layer = 0;  // this library's: its key bit, a number from core

/// Each plugin has one: registers its layer.
int32_t init(const RbHost* host, RbTxn* txn);

/// Register the layer `name`, to run after those named in `after` (a list that ends with null).
inline int32_t add_layer(const RbHost* host, RbTxn* txn, const char* name, const char* const* after,
                         RbFn fallback) {
  rb::host = host;
  RbLayer desc{};
  desc.struct_size = RB_SIZE(RbLayer, self);
  desc.name = name;
  desc.phase = 700;  // `python -m rabbet doctor --layers` says what that means
  desc.on_missing = RB_L_FALLBACK;
  desc.after = after;
  desc.fallback = fallback;
  return host->add_layer(txn, &desc, &layer);
}

/// Several threads may enter one.
struct Listener {
  virtual ~Listener() = default;
  virtual std::string text() const = 0;  // for Python; called with the lock held
  void release() {
    if (--owners == 0) delete this;
  }
  std::mutex mutex;
  std::atomic<int> owners{1};  // Python, and each entry of a thread
};

/// Those of this thread, innermost last. The layer's key is on while there are some: otherwise it
/// costs nothing.
inline std::vector<Listener*>& listeners() {
  static thread_local std::vector<Listener*> all;
  return all;
}

/// Calls made in this scope pass by the layers from key bit `first` up, which run before the lower.
class Without {
 public:
  explicit Without(int32_t first) {
    RbThread inside = outside_.saved();
    inside.exclude |= ~0ull << first;
    rb::host->thread_set(&inside);
  }

 private:
  rb::ThreadGuard outside_;
};

/// The result of an operator that takes one tensor and gives one; throws what went wrong.
inline rb::Ref call(const char* op, RbTensor* argument) {
  const RbValue value = rb::tensor_value(argument);
  rb::Ref result;
  rb::check(rb::call1(rb::host->find_op(op), &value, 1, result));
  return result;
}

template <class Visit>
void each_tensor(const RbValue& v, Visit visit) {
  if (v.tag == RB_TENSOR) visit(v.v.t);
  for (uint32_t i = 0; v.tag == RB_TENSORS && i < v.len; ++i) {
    if (v.v.ts[i]) visit(v.v.ts[i]);
  }
}

inline bool is_floating(const RbTensor* t) { return rb::is_differentiable(t->dtype_id); }

}  // namespace instruments

// What a library exports; each is one source file, which includes this once.
extern "C" {
RB_EXPORT const RbPlugin* rabbet_plugin_v0() {  // for core
  static const RbPlugin plugin = {
      RB_SIZE(RbPlugin, retire), RB_ABI_MAJOR,         RB_ABI_MINOR,      RB_ABI_NEEDED, 0, 0,
      "rabbet-instruments",      RABBET_WHEEL_VERSION, instruments::init, nullptr};
  return &plugin;
}
// For Python, by ctypes.
RB_EXPORT void listener_free(instruments::Listener* one) { one->release(); }
RB_EXPORT void listener_enter(instruments::Listener* one) {
  ++one->owners;
  instruments::listeners().push_back(one);
  rb::host->layer_mode(instruments::layer, 1, -1);
}
/// 0 where the thread has not entered it.
RB_EXPORT int32_t listener_leave(instruments::Listener* one) {
  auto& all = instruments::listeners();
  const auto last = std::find(all.rbegin(), all.rend(), one);
  if (last == all.rend()) return 0;
  all.erase(std::next(last).base());
  one->release();
  if (all.empty()) rb::host->layer_mode(instruments::layer, 0, -1);
  return 1;
}
/// Valid until the thread's next call.
RB_EXPORT const char* listener_read(instruments::Listener* one) {
  static thread_local std::string text;
  const std::lock_guard<std::mutex> lock(one->mutex);
  text = one->text();
  return text.c_str();
}
}
