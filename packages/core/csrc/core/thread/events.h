// What profilers see of calls and memory: a ring of events for readers, and observers that are
// called.
#pragma once
#include <atomic>

#include "rabbet/trace.h"

namespace rabbet {

/// Masks of RB_EVENT_*: the kinds that somebody reads from the ring, that somebody observes, and
/// both together.
extern std::atomic<uint32_t> read_kinds, observed_kinds, watched_kinds;
inline bool is_among(uint32_t kind, const std::atomic<uint32_t>& kinds) {
  return (kinds.load(std::memory_order_relaxed) & kind) != 0;
}

/// Put an event into the ring, with thread and time of now.
void record_event(RbEvent& event);
/// An event for observers with the members that every kind has.
inline RbObserved observed_event(uint32_t kind) {
  RbObserved event{};
  event.struct_size = sizeof event;
  event.kind = kind;
  return event;
}
/// Call the observers of the event's kind.
void notify(const RbObserved& event);

void record_memory_event(uint32_t kind, int backend, int device, const void* data, uint64_t nbytes);
/// Report memory that the allocator handed out or took back, if that kind of event is watched.
inline void record_memory(uint32_t kind, int backend, int device, const void* data,
                          uint64_t nbytes) {
  if (__builtin_expect(is_among(kind, watched_kinds), 0))
    record_memory_event(kind, backend, device, data, nbytes);
}

RbEvents* open_events(uint32_t kinds);
/// Copy at most `max` events that the reader has not seen; `lost`: how many it came too late for.
uint32_t read_events(RbEvents& reader, void* out, uint32_t size, uint32_t max, uint64_t* lost);
/// Throws for one that is not open.
RbEvents& need_open(RbEvents* reader, const char* what);
void close_events(RbEvents& reader);

/// Let an observer see `kinds` from now on; 0 ends it.
void observe(uint32_t kinds, RbObserveFn fn, void* self);

}  // namespace rabbet
