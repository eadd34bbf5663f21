// Notifications of observers, such as a profiler, about the nodes that the tape records and
// processes.
#pragma once
#include "node.h"
#include "rabbet/trace.h"

namespace tape {

/// The observed kinds of events.
extern const uint32_t* observed_kinds __attribute__((visibility("hidden")));
inline bool has_observers(uint32_t kind) {
  return __builtin_expect(__atomic_load_n(observed_kinds, __ATOMIC_RELAXED) & kind, 0) != 0;
}
void find_observers();

void tell_recorded(const Node* n);

/// A part of a backward run: a node (RB_RANGE_NODE), or the derivative in it (RB_RANGE_DERIVATIVE).
class ObservedRange {
 public:
  ObservedRange(const Node* n, uint32_t what) : n_(n), what_(what) {
    if (has_observers(RB_EVENT_RANGE_BEGIN)) tell(RB_EVENT_RANGE_BEGIN);
  }
  ~ObservedRange() {
    if (has_observers(RB_EVENT_RANGE_END)) tell(RB_EVENT_RANGE_END);
  }
  ObservedRange(const ObservedRange&) = delete;
  ObservedRange& operator=(const ObservedRange&) = delete;

 private:
  void tell(uint32_t kind) const;

  const Node* const n_;
  const uint32_t what_;
};

}  // namespace tape
