// Streams: queues of work on a device, each in order by itself, and events, marks in them. A
// device's default stream is null; which of the others is a thread's is kept in its state.
#pragma once
#include <cstdint>
#include <string>

#include "thread/thread_state.h"

namespace rabbet {

void* find_stream(const ThreadState& state, int backend, int device);
/// The thread's stream of a device, as the backend knows it.
inline void* current_stream(const ThreadState& state, int backend, int device) {
  return __builtin_expect(state.has_streams, 0) ? find_stream(state, backend, device) : nullptr;
}
/// Throws RB_E_NOTIMPL if the backend has no streams and this is not the default one.
void set_current_stream(int backend, int device, void* stream);

/// One of the streams of a priority, which are made at need and then given in turn; throws
/// RB_E_NOTIMPL if the backend has none.
void* stream_from_pool(int backend, int device, int priority);
void stream_synchronize(int backend, int device, void* stream);
bool stream_query(int backend, int device, void* stream);
/// What comes to `stream` later waits for what has come to `other`.
void stream_wait(int backend, int device, void* stream, void* other);

void* event_create(int backend, int device, bool timing, bool interprocess = false);
/// What another process opens an event by that was made for it.
std::string event_export(int backend, int device, void* event);
void* event_open(int backend, int device, const std::string& handle);
void event_destroy(int backend, int device, void* event);
void event_record(int backend, int device, void* stream, void* event);
void event_wait(int backend, int device, void* stream, void* event);
void event_synchronize(int backend, int device, void* event);
bool event_query(int backend, int device, void* event);
/// Milliseconds.
double event_elapsed(int backend, int device, void* start, void* end);

}  // namespace rabbet
