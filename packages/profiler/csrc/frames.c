/* C, because the interpreter's own headers are. */
#define Py_BUILD_CORE 1
#include "frames.h"

#if PY_VERSION_HEX < 0x030E0000 && !defined(PYPY_VERSION)
/* The interpreter's frames: public functions make an object of each, which takes longer than all
 * else that an event costs. */
#include <internal/pycore_frame.h>

int profiler_frames(PyThreadState* thread, ProfilerFrame* out, int room) {
#if PY_VERSION_HEX < 0x030D0000
  struct _PyInterpreterFrame* frame = thread->cframe->current_frame;
#else
  struct _PyInterpreterFrame* frame = thread->current_frame;
#endif
  int count = 0;
  for (; frame; frame = frame->previous) {
    if (_PyFrame_IsIncomplete(frame)) continue;
#if PY_VERSION_HEX < 0x030D0000
    PyCodeObject* const code = frame->f_code;
#else
    PyCodeObject* const code = _PyFrame_GetCode(frame);
#endif
    if (count < room) {
      const int last = _PyInterpreterFrame_LASTI(frame);
      out[count].code = code;
      out[count].instruction = last < 0 ? -1 : last * (int)sizeof(_Py_CODEUNIT);
    }
    ++count;
  }
  return count;
}

#else

int profiler_frames(PyThreadState* thread, ProfilerFrame* out, int room) {
  int count = 0;
  PyFrameObject* frame = PyThreadState_GetFrame(thread);
  while (frame) {
    if (count < room) {
      out[count].code = PyFrame_GetCode(frame);
      Py_DECREF(out[count].code); /* the frame keeps it */
      out[count].instruction = PyFrame_GetLasti(frame);
    }
    ++count;
    PyFrameObject* const back = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
  }
  return count;
}

#endif
