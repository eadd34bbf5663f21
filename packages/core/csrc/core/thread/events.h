// The ring of events that profilers read: calls, and what the allocator gives and takes back.
#pragma once
#include <atomic>

#include "rabbet/trace.h"

namespace rabbet {

/// The kinds that somebody reads, RB_EVENT_*.
extern std::atomic<uint32_t> read_kinds;
inline bool is_read(uint32_t kinds) {
  return (read_kinds.load(std::memory_order_relaxed) & kinds) != 0;
}

/// Put an event into the ring, with thread and time of now.
void record_event(RbEvent& event);
void record_memory_event(uint32_t kind, int backend, int device, const void* data, uint64_t nbytes);
/// What the allocator gave or got back, if somebody reads events of that kind.
inline void record_memory(uint32_t kind, int backend, int device, const void* data,
                          uint64_t nbytes) {
  if (__builtin_expect(is_read(kind), 0)) record_memory_event(kind, backend, device, data, nbytes);
}

RbEvents* open_events(uint32_t kinds);
/// Copy at most `max` events that the reader has not seen; `lost`: how many it came too late for.
uint32_t read_events(RbEvents& reader, void* out, uint32_t size, uint32_t max, uint64_t* lost);
/// Throws for one that is not open.
RbEvents& need_open(RbEvents* reader, const char* what);
void close_events(RbEvents& reader);

}  // namespace rabbet
