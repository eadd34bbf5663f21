#include "observers.h"

#include "engine.h"

namespace tape {

namespace {

const uint32_t nobody = 0;
const RbTrace* trace = nullptr;

RbObserved event_of(const Node* n, uint32_t kind) {
  RbObserved event{};
  event.struct_size = sizeof event;
  event.kind = kind;
  event.text = node_name(n);
  event.id = n->seq;
  return event;
}

}  // namespace

const uint32_t* observed_kinds = &nobody;

void find_observers() {
  trace = static_cast<const RbTrace*>(host->get_ext(RB_TRACE_EXT, RB_TRACE_VERSION));
  if (trace && RB_HAS(trace, observed)) observed_kinds = trace->observed;
}

void tell_recorded(const Node* n) {
  const RbObserved event = event_of(n, RB_EVENT_NODE);
  trace->emit(&event);
}

void ObservedRange::tell(uint32_t kind) const {
  RbObserved event = event_of(n_, kind);
  event.flags = what_;
  trace->emit(&event);
}

}  // namespace tape
