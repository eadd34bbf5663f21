#include "errors.h"

#include <cstring>
#include <string>

#include "device/backends.h"
#include "thread/host_table.h"

namespace rabbet::python {

namespace {

constexpr int kLastCode = RB_E_DTYPE;

PyObject* classes[kLastCode + 1];  // by status code; kept for the process

struct Spec {
  int code;
  const char* name;
  PyObject** mixin;  // the built-in class that callers may catch instead
  const char* doc;
};

const Spec kSpecs[] = {
    {RB_E_ARG, "rabbet.ArgumentError", &PyExc_ValueError, "A wrong value or shape."},
    {RB_E_TYPE, "rabbet.DTypeError", &PyExc_TypeError, "A wrong type or dtype."},
    {RB_E_INDEX, "rabbet.OutOfRangeError", &PyExc_IndexError,
     "An index or dimension out of range."},
    {RB_E_NOTIMPL, "rabbet.NotImplementedForError", &PyExc_NotImplementedError,
     "No kernel or rule for this operator, device or dtype."},
    {RB_E_OOM, "rabbet.OutOfMemoryError", &PyExc_MemoryError, "Memory could not be allocated."},
    {RB_E_DEVICE, "rabbet.DeviceError", nullptr, "A device failed or is not there."},
    {RB_E_STATE, "rabbet.StateError", nullptr, "A call in the wrong state."},
    {RB_E_INTERNAL, "rabbet.InternalError", nullptr, "A defect of rabbet or of a plugin."},
    {RB_E_PLUGIN, "rabbet.PluginError", nullptr, "A plugin is missing or failed."},
};

PyObject* current_exception() {
#if PY_VERSION_HEX >= 0x030C0000
  return PyErr_GetRaisedException();
#else
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (traceback) PyException_SetTraceback(value, traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  return value;
#endif
}

void restore_exception(PyObject* owned) {
#if PY_VERSION_HEX >= 0x030C0000
  PyErr_SetRaisedException(owned);
#else
  PyErr_Restore(Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(owned))), owned,
                PyException_GetTraceback(owned));
#endif
}

// What was running, for the end of the traceback.
void add_note(PyObject* exception, const char* frames) {
  Ref note(PyUnicode_DecodeUTF8(frames, static_cast<Py_ssize_t>(std::strlen(frames)), "replace"));
  Ref done(note ? PyObject_CallMethod(exception, "add_note", "O", note.get()) : nullptr);
  if (!done) PyErr_Clear();
}

void drop_exception(void* exception) {
  if (!interpreter_alive()) return;
  WithGil gil;
  Py_DECREF(static_cast<PyObject*>(exception));
}

Ref text(const char* s) {
  return Ref(s ? PyUnicode_DecodeUTF8(s, static_cast<Py_ssize_t>(std::strlen(s)), "replace")
               : Py_NewRef(Py_None));
}

bool define(PyObject* module, const Spec& spec, PyObject* base) {
  Ref bases(spec.mixin ? PyTuple_Pack(2, base, *spec.mixin) : PyTuple_Pack(1, base));
  if (!bases) return false;
  PyObject* cls = PyErr_NewExceptionWithDoc(spec.name, spec.doc, bases.get(), nullptr);
  if (!cls) return false;
  classes[spec.code] = cls;
  return PyModule_AddObjectRef(module, std::strchr(spec.name, '.') + 1, cls) == 0;
}

// The class of RB_E_DTYPE: callers catch it as a wrong dtype or, as in PyTorch, as not implemented.
bool define_unsupported_dtype(PyObject* module) {
  Ref bases(PyTuple_Pack(2, classes[RB_E_TYPE], classes[RB_E_NOTIMPL]));
  if (!bases) return false;
  PyObject* cls =
      PyErr_NewExceptionWithDoc("rabbet.UnsupportedDTypeError",
                                "The operator is not defined for the dtype.", bases.get(), nullptr);
  if (!cls) return false;
  classes[RB_E_DTYPE] = cls;
  return PyModule_AddObjectRef(module, "UnsupportedDTypeError", cls) == 0;
}

}  // namespace

bool init_errors(PyObject* module) {
  Ref attributes(Py_BuildValue("{s:O,s:O}", "op", Py_None, "frames", Py_None));
  if (!attributes) return false;
  PyObject* base = PyErr_NewExceptionWithDoc("rabbet.RabbetError",
                                             "Base of rabbet's errors. `op`: the operator in whose "
                                             "call it arose; `frames`: what was running.",
                                             PyExc_RuntimeError, attributes.get());
  if (!base || PyModule_AddObjectRef(module, "RabbetError", base) < 0) return false;
  classes[RB_OK] = base;
  for (const Spec& spec : kSpecs) {
    if (!define(module, spec, base)) return false;
  }
  return define_unsupported_dtype(module);
}

PyObject* raise_error(int32_t code) {
  const RbError* e = kHost.err_get();
  if (e && e->code == RB_E_FOREIGN && e->foreign && e->foreign_tag &&
      !std::strcmp(e->foreign_tag, "pyobj")) {
    PyObject* exception = Py_NewRef(static_cast<PyObject*>(e->foreign));
    if (e->frames && *e->frames) add_note(exception, e->frames);
    kHost.err_clear();
    restore_exception(exception);
    return nullptr;
  }
  if (!e || e->code == RB_OK) {
    PyErr_Format(classes[RB_E_INTERNAL], "a call failed with code %d and left no message",
                 static_cast<int>(code));
    return nullptr;
  }
  PyObject* cls =
      e->code > 0 && e->code <= kLastCode && classes[e->code] ? classes[e->code] : classes[RB_OK];
  std::string message = e->message ? e->message : "";
  if (e->frames && *e->frames) message.append("\n").append(e->frames);
  Ref op = text(e->op), frames = text(e->frames), full = text(message.c_str());
  kHost.err_clear();
  if (!op || !frames || !full) return nullptr;
  Ref exception(PyObject_CallOneArg(cls, full.get()));
  if (!exception || PyObject_SetAttrString(exception.get(), "op", op.get()) < 0 ||
      PyObject_SetAttrString(exception.get(), "frames", frames.get()) < 0) {
    return nullptr;
  }
  PyErr_SetObject(cls, exception.get());
  return nullptr;
}

int32_t capture_error() {
  if (!PyErr_Occurred())
    return set_error(RB_E_INTERNAL, "a Python call failed without an exception");
  return kHost.err_foreign("pyobj", current_exception(), drop_exception);
}

void raise_current_exception() noexcept { raise_error(store_current_exception()); }

}  // namespace rabbet::python
