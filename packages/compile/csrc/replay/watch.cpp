#include "replay/watch.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030C0000
#define RB_CAN_WATCH 1
#ifndef Py_BUILD_CORE
#define Py_BUILD_CORE 1
#endif
#include <internal/pycore_frame.h>
#include <opcode.h>
#else
#define RB_CAN_WATCH 0
#endif

namespace replay {

bool can_watch() { return RB_CAN_WATCH; }

#if RB_CAN_WATCH

namespace {

PyObject* null_mark = nullptr;  // stands for an empty place of the stack

// ---- the frame that is shown; valid only during a callback

struct Frame {
  PyObject_HEAD _PyInterpreterFrame* frame;
  int at;  // in instructions
};

_PyInterpreterFrame* checked(PyObject* self) {
  auto* frame = reinterpret_cast<Frame*>(self)->frame;
  if (!frame) PyErr_SetString(PyExc_RuntimeError, "Frame: it is valid only during a callback");
  return frame;
}

PyObject* shown(PyObject* object) { return Py_NewRef(object ? object : null_mark); }

PyObject* frame_peek(PyObject* self, PyObject* number) {
  auto* frame = checked(self);
  const long n = frame ? PyLong_AsLong(number) : -1;
  if (PyErr_Occurred()) return nullptr;
  const int at = frame->stacktop - static_cast<int>(n);
  if (n < 1 || at < frame->f_code->co_nlocalsplus) {
    PyErr_Format(PyExc_IndexError, "Frame.peek: the stack has no item %ld", n);
    return nullptr;
  }
  return shown(frame->localsplus[at]);
}

PyObject* frame_local(PyObject* self, PyObject* number) {
  auto* frame = checked(self);
  const long n = frame ? PyLong_AsLong(number) : -1;
  if (PyErr_Occurred()) return nullptr;
  if (n < 0 || n >= frame->f_code->co_nlocalsplus) {
    PyErr_Format(PyExc_IndexError, "Frame.local: there is no local %ld", n);
    return nullptr;
  }
  return shown(frame->localsplus[n]);
}

PyObject* frame_replace(PyObject* self, PyObject* const* given, Py_ssize_t n) {
  auto* frame = checked(self);
  const long number = frame && n == 2 ? PyLong_AsLong(given[0]) : -1;
  if (PyErr_Occurred()) return nullptr;
  if (n != 2 || number < 1 || frame->stacktop - number < frame->f_code->co_nlocalsplus) {
    PyErr_SetString(PyExc_IndexError, "Frame.replace: the stack has no such item");
    return nullptr;
  }
  PyObject*& place = frame->localsplus[frame->stacktop - number];
  Py_XDECREF(std::exchange(place, Py_NewRef(given[1])));
  Py_RETURN_NONE;
}

PyObject* frame_code(PyObject* self, void*) {
  auto* frame = checked(self);
  return frame ? shown(reinterpret_cast<PyObject*>(frame->f_code)) : nullptr;
}
PyObject* frame_function(PyObject* self, void*) {
  auto* frame = checked(self);
  return frame ? shown(reinterpret_cast<PyObject*>(frame->f_func)) : nullptr;
}
PyObject* frame_globals(PyObject* self, void*) {
  auto* frame = checked(self);
  return frame ? shown(frame->f_globals) : nullptr;
}
PyObject* frame_builtins(PyObject* self, void*) {
  auto* frame = checked(self);
  return frame ? shown(frame->f_builtins) : nullptr;
}
PyObject* frame_at(PyObject* self, void*) {
  return PyLong_FromLong(reinterpret_cast<Frame*>(self)->at);
}
PyObject* frame_id(PyObject* self, void*) {
  return PyLong_FromVoidPtr(reinterpret_cast<Frame*>(self)->frame);
}
PyObject* frame_line(PyObject* self, void*) {
  auto* frame = checked(self);
  if (!frame) return nullptr;
  const int at = std::max(0, reinterpret_cast<Frame*>(self)->at);
  return PyLong_FromLong(PyCode_Addr2Line(frame->f_code, at * int(sizeof(_Py_CODEUNIT))));
}

PyMethodDef frame_methods[] = {
    {"peek", frame_peek, METH_O, "The n-th object of the stack, from 1 at its top; or `NULL`."},
    {"replace", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(frame_replace)),
     METH_FASTCALL, "Put an object in the place of the n-th one of the stack."},
    {"local", frame_local, METH_O, "The n-th local variable, cell or free variable; or `NULL`."},
    {nullptr, nullptr, 0, nullptr}};
PyGetSetDef frame_getset[] = {{"code", frame_code, nullptr, nullptr, nullptr},
                              {"function", frame_function, nullptr, nullptr, nullptr},
                              {"globals", frame_globals, nullptr, nullptr, nullptr},
                              {"builtins", frame_builtins, nullptr, nullptr, nullptr},
                              {"at", frame_at, nullptr, nullptr, nullptr},
                              {"id", frame_id, nullptr, nullptr, nullptr},
                              {"line", frame_line, nullptr, nullptr, nullptr},
                              {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot frame_slots[] = {
    {Py_tp_doc, const_cast<char*>("A running frame, as callbacks of a Watch see it.")},
    {Py_tp_methods, frame_methods},
    {Py_tp_getset, frame_getset},
    {0, nullptr}};
PyType_Spec frame_spec = {"rabbet_compile._replay.Frame", sizeof(Frame), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, frame_slots};
PyTypeObject* frame_type = nullptr;

// ---- the watch

struct Watch {
  PyObject_HEAD PyObject* on_enter;  // (frame) -> whether its instructions are shown
  PyObject* on_op;                   // (frame, opcode, argument)
  PyObject* error;                   // what a callback raised
  Frame* frame;
  int paused;
  bool all;  // whether every instruction is shown
  bool wanted[256];
  std::unordered_map<PyCodeObject*, PyObject*>* codes;  // their instructions; owned, both
};

const uint8_t* instructions(Watch* w, PyCodeObject* code) {
  PyObject*& bytes = (*w->codes)[code];
  if (!bytes) {
    bytes = PyCode_GetCode(code);  // as the compiler made it, without specialised instructions
    if (!bytes) return nullptr;
    Py_INCREF(code);
  }
  return reinterpret_cast<const uint8_t*>(PyBytes_AS_STRING(bytes));
}

// A callback must not fail in the middle of the program that it sees: the error is kept.
void keep_error(Watch* w) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (traceback) PyException_SetTraceback(value, traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  if (w->error)
    Py_XDECREF(value);
  else
    w->error = value;
}

void show_call(Watch* w, PyFrameObject* object) {
  w->frame->frame = object->f_frame;
  w->frame->at = _PyInterpreterFrame_LASTI(object->f_frame);
  PyObject* wants = PyObject_CallOneArg(w->on_enter, reinterpret_cast<PyObject*>(w->frame));
  w->frame->frame = nullptr;
  if (!wants) keep_error(w);
  object->f_trace_lines = 0;
  object->f_trace_opcodes = wants && PyObject_IsTrue(wants) == 1;
  Py_XDECREF(wants);
}

void show_instruction(Watch* w, PyFrameObject* object) {
  auto* frame = object->f_frame;
  const int at = _PyInterpreterFrame_LASTI(frame);
  const uint8_t* units = instructions(w, frame->f_code);
  if (!units) return keep_error(w);
  int last = at;
  unsigned long arg = units[2 * last + 1];
  while (units[2 * last] == EXTENDED_ARG) {  // Python runs it together with what follows
    ++last;
    arg = arg << 8 | units[2 * last + 1];
  }
  const int opcode = units[2 * last];
  if (!w->wanted[opcode] && !w->all) return;
  w->frame->frame = frame;
  w->frame->at = last;
  PyObject* made = PyObject_CallFunction(w->on_op, "Oik", w->frame, opcode, arg);
  w->frame->frame = nullptr;
  if (!made) return keep_error(w);
  Py_DECREF(made);
}

int trace(PyObject* self, PyFrameObject* object, int what, PyObject*) {
  auto* w = reinterpret_cast<Watch*>(self);
  if (w->error) return 0;
  if (what == PyTrace_CALL) {
    if (w->paused)
      object->f_trace_opcodes = 0;
    else
      show_call(w, object);
  } else if (what == PyTrace_OPCODE && !w->paused) {
    show_instruction(w, object);
  }
  return 0;
}

PyObject* watch_new(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject *on_enter, *on_op;
  Py_buffer wanted;
  if (!PyArg_ParseTuple(args, "OOy*", &on_enter, &on_op, &wanted)) return nullptr;
  auto* w = reinterpret_cast<Watch*>(type->tp_alloc(type, 0));
  if (w) {
    w->on_enter = Py_NewRef(on_enter);
    w->on_op = Py_NewRef(on_op);
    for (Py_ssize_t i = 0; i < wanted.len; ++i)
      w->wanted[static_cast<const uint8_t*>(wanted.buf)[i]] = true;
    w->codes = new std::unordered_map<PyCodeObject*, PyObject*>;
    w->frame = PyObject_New(Frame, frame_type);
    if (w->frame) w->frame->frame = nullptr;
  }
  PyBuffer_Release(&wanted);
  return reinterpret_cast<PyObject*>(w);
}

int watch_clear(PyObject* self) {
  auto* w = reinterpret_cast<Watch*>(self);
  Py_CLEAR(w->on_enter);
  Py_CLEAR(w->on_op);
  Py_CLEAR(w->error);
  return 0;
}

int watch_traverse(PyObject* self, visitproc visit, void* arg) {
  auto* w = reinterpret_cast<Watch*>(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(w->on_enter);
  Py_VISIT(w->on_op);
  Py_VISIT(w->error);
  return 0;
}

void watch_dealloc(PyObject* self) {
  auto* w = reinterpret_cast<Watch*>(self);
  PyObject_GC_UnTrack(self);
  watch_clear(self);
  Py_CLEAR(w->frame);
  for (const auto& [code, bytes] : *w->codes) {
    Py_XDECREF(bytes);
    if (bytes) Py_DECREF(code);
  }
  delete w->codes;
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* watch_start(PyObject* self, PyObject*) {
  if (PyThreadState_Get()->c_tracefunc) return PyBool_FromLong(0);  // of a debugger, or of coverage
  PyEval_SetTrace(trace, self);
  return PyBool_FromLong(1);
}

PyObject* watch_stop(PyObject*, PyObject*) {
  PyEval_SetTrace(nullptr, nullptr);
  Py_RETURN_NONE;
}

PyObject* watch_pause(PyObject* self, PyObject*) {
  ++reinterpret_cast<Watch*>(self)->paused;
  Py_RETURN_NONE;
}

PyObject* watch_resume(PyObject* self, PyObject*) {
  --reinterpret_cast<Watch*>(self)->paused;
  Py_RETURN_NONE;
}

PyObject* watch_show_all(PyObject* self, PyObject* on) {
  reinterpret_cast<Watch*>(self)->all = on == Py_True;
  Py_RETURN_NONE;
}

PyObject* watch_error(PyObject* self, void*) {
  PyObject* error = reinterpret_cast<Watch*>(self)->error;
  return Py_NewRef(error ? error : Py_None);
}

PyMethodDef watch_methods[] = {
    {"start", watch_start, METH_NOARGS,
     "Show what the calling thread runs, in frames that it enters from now on; False: another "
     "trace function is set."},
    {"stop", watch_stop, METH_NOARGS, "Show nothing more."},
    {"pause", watch_pause, METH_NOARGS, "Show nothing until `resume`; nests."},
    {"show_all", watch_show_all, METH_O, "Show the other instructions, too, or no longer."},
    {"resume", watch_resume, METH_NOARGS, "End a `pause`."},
    {nullptr, nullptr, 0, nullptr}};
PyGetSetDef watch_getset[] = {{"error", watch_error, nullptr, nullptr, nullptr},
                              {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot watch_slots[] = {
    {Py_tp_doc,
     const_cast<char*>("Watch(on_enter, on_op, opcodes): shows Python code to callbacks.")},
    {Py_tp_new, reinterpret_cast<void*>(watch_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(watch_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(watch_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(watch_clear)},
    {Py_tp_methods, watch_methods},
    {Py_tp_getset, watch_getset},
    {0, nullptr}};
PyType_Spec watch_spec = {"rabbet_compile._replay.Watch", sizeof(Watch), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, watch_slots};

}  // namespace

int add_watch(PyObject* module) {
  null_mark = PyBaseObject_Type.tp_alloc(&PyBaseObject_Type, 0);
  if (!null_mark || PyModule_AddObjectRef(module, "NULL", null_mark) < 0) return -1;
  frame_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&frame_spec));
  if (!frame_type ||
      PyModule_AddObjectRef(module, "Frame", reinterpret_cast<PyObject*>(frame_type)) < 0)
    return -1;
  PyObject* watch_type = PyType_FromSpec(&watch_spec);
  const int rc = watch_type ? PyModule_AddObjectRef(module, "Watch", watch_type) : -1;
  Py_XDECREF(watch_type);
  return rc;
}

#else

int add_watch(PyObject*) { return 0; }

#endif

}  // namespace replay
