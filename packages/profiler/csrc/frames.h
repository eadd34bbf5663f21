// The frames of the Python code that a thread runs.
#pragma once
#include <Python.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  PyCodeObject* code; /* borrowed from the frame */
  int instruction;    /* as PyFrame_GetLasti */
} ProfilerFrame;

/* Write the frames of the calling thread, which holds Python's lock, innermost first. Returns how
 * many there are; those beyond `room` are left out. */
int profiler_frames(PyThreadState* thread, ProfilerFrame* out, int room);

#ifdef __cplusplus
} /* extern "C" */
#endif
