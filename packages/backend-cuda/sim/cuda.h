// What the driver's functions begin with.
#pragma once
#include "capture.h"
#include "check.h"
#include "device.h"

namespace cusim {

bool known(int device);
/// The stream of a handle: null and 1, the current device's null stream; null: there is none.
Stream* stream_of(void* handle);
/// Work that was enqueued, or what is to be done about it.
int enqueue_on(void* handle, const std::string& what, std::function<void(uint32_t)> run);
inline char* pointer(unsigned long long address) { return reinterpret_cast<char*>(address); }

}  // namespace cusim

// One call at a time; a device that has failed answers nothing else.
#define CUSIM_ENTER                     \
  Lock lock(mutex);                     \
  if (!current) return kInvalidContext; \
  if (current->sticky) return current->sticky
#define CUSIM_STREAM(name, handle)           \
  Stream* name##_stream = stream_of(handle); \
  if (!name##_stream) return kInvalidHandle; \
  Stream& name = *name##_stream
