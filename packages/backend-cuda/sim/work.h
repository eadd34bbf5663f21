// How other libraries give work to a stream of the simulated driver, as if they had launched a
// kernel.
#pragma once
#include <cstddef>

/// Memory that the work accesses: `batches` of `lines` of `line` bytes, `pitch` and `stride` apart.
struct CusimRegion {
  const void* begin;
  size_t line, pitch, lines, stride, batches;
  bool written;
  size_t aligned = 1;  // what must divide the address of every batch
};

extern "C" {
/// Gives the driver's status; `run` is called when its turn comes, `drop` then or at a failure.
int cusim_work(void* stream, const char* what, const CusimRegion* regions, int count,
               void (*run)(void*), void (*drop)(void*), void* data);
/// For running work: checks accesses to memory whose addresses it has just read. False: it must
/// stop.
int cusim_touch(const CusimRegion* regions, int count);
/// Makes the capture invalid that the stream takes part in, if any.
void cusim_spoil_capture(void* stream);
/// Waits until as many calls as CUSIM_MEET says are in here at once; false: they did not come.
int cusim_meet();
}
