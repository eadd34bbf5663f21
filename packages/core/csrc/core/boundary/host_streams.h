// The functions of the host table for backends, streams, events and generators.
#pragma once
#include "rabbet/abi.h"

namespace rabbet {

int32_t host_find_backend(const char* name, int32_t* backend);
const char* host_backend_name(int32_t backend);
int32_t host_device_count(int32_t backend, int32_t* count);

int32_t host_stream_get(int32_t backend, int32_t device, void** stream);
int32_t host_stream_set(int32_t backend, int32_t device, void* stream);
int32_t host_stream_wait(int32_t backend, int32_t device, void* stream, void* other);
int32_t host_stream_new(int32_t backend, int32_t device, int32_t priority, void** stream);
int32_t host_stream_sync(int32_t backend, int32_t device, void* stream);
int32_t host_event_new(int32_t backend, int32_t device, uint32_t flags, void** event);
int32_t host_event_free(int32_t backend, int32_t device, void* event);
int32_t host_event_record(int32_t backend, int32_t device, void* stream, void* event);
int32_t host_event_wait(int32_t backend, int32_t device, void* stream, void* event);
int32_t host_event_query(int32_t backend, int32_t device, void* event, int32_t* done);
int32_t host_record_stream(RbTensor* t, void* stream);
int32_t host_wait(int32_t (*ready)(void* ctx), void* ctx, double seconds, int32_t* done);

int32_t host_rng_reserve(RbGenerator* generator, int32_t backend, int32_t device, uint64_t counters,
                         RbRngSlice* out);
int32_t host_generator_at(uint64_t seed, uint64_t offset, RbGenerator** out);
void host_generator_free(RbGenerator* generator);
int32_t host_generator_state(const RbGenerator* generator, int32_t backend, int32_t device,
                             RbRngSlice* out);
int32_t host_generator_set(RbGenerator* generator);

}  // namespace rabbet
