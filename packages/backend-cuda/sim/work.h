// How other libraries give work to a stream of the simulated driver, as if they had launched a
// kernel.
#pragma once
#include <cstddef>

/// Memory that the work accesses: `batches` of `lines` of `line` bytes, `pitch` and `stride` apart.
struct CusimRegion {
  const void* begin;
  size_t line, pitch, lines, stride, batches;
  bool written;
};

extern "C" {
/// Gives the driver's status; `run` is called when its turn comes, `drop` then or at a failure.
int cusim_work(void* stream, const char* what, const CusimRegion* regions, int count,
               void (*run)(void*), void (*drop)(void*), void* data);
}
