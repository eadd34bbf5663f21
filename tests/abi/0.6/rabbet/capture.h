/* rabbet/capture.h: recording the work of a stream, to launch it again as a whole. A backend that
 * can do so publishes RbCapture under "NAME.capture", version 1 (RbHost.publish), where NAME is its
 * own. All members but the last are required; the table stays valid for the rest of the process.
 * docs/reference/memory.md says when core calls what.
 */
#ifndef RABBET_CAPTURE_H
#define RABBET_CAPTURE_H

#include "rabbet/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RB_CAPTURE_EXT "capture" /* "NAME.capture" */
#define RB_CAPTURE_VERSION 1
#define RB_CAPTURE_RNG_EXT "rabbet.capture"
#define RB_CAPTURE_RNG_VERSION 1

/* RbKernel.flags: the kernel waits for the device, so it cannot be captured: core refuses it there
 * and names the operator, and elsewhere where `sync_debug_mode` asks for that. */
enum { RB_K_NO_CAPTURE = 32 };

typedef struct RbCapture {
  uint32_t struct_size, flags;
  void* self;
  /* What the stream is given from now on by the calling thread is recorded and does not run. The
   * allocator may be asked for memory meanwhile. */
  int32_t (*capture_begin)(void* self, int32_t device, void* stream);
  /* Also where the capture failed: it is over then, and nothing is left of it. */
  int32_t (*capture_end)(void* self, int32_t device, void* stream, void** graph);
  int32_t (*graph_instantiate)(void* self, int32_t device, void* graph, void** executable);
  /* Put the recorded work behind what the stream has been given. */
  int32_t (*graph_launch)(void* self, int32_t device, void* executable, void* stream);
  /* Either may be null; waits for launches that run. */
  void (*graph_destroy)(void* self, int32_t device, void* graph, void* executable);
  /* Write the graph to a file, for people to look at; may be null, or missing in a shorter table.
   */
  int32_t (*graph_dump)(void* self, int32_t device, void* graph, const char* path);
} RbCapture;

/* A slice of random counters whose begin a replay moves on. While `base` is null it is an
 * RbRngSlice. Else `base` is the address, in device memory, of two uint64 that each launch of the
 * graph sets anew before it runs: the kernel's key is base[0], its counters begin at base[1] +
 * offset, and `seed` is not used. */
typedef struct RbCaptureSlice {
  uint32_t struct_size, flags;
  uint64_t seed, offset;
  const uint64_t* base;
} RbCaptureSlice;

/* Got by host->get_ext(RB_CAPTURE_RNG_EXT, RB_CAPTURE_RNG_VERSION). */
typedef struct RbCaptureRng {
  uint32_t struct_size, flags;
  /* Takes the place of RbHost.rng_reserve, which is an error in a capture. `out->struct_size` is
   * set by the caller. */
  int32_t (*reserve)(RbGenerator* generator, int32_t backend, int32_t device, uint64_t counters,
                     RbCaptureSlice* out);
  /* Whether the calling thread captures work of the device; 0 for a device that is not there. */
  int32_t (*is_capturing)(int32_t backend, int32_t device);
} RbCaptureRng;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
