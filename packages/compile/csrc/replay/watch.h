// Shows Python code to a callback, one instruction at a time.
#pragma once
#include <Python.h>

namespace replay {

/// Whether this Python's frames can be read (`watch.cpp` knows the layout of each version).
bool can_watch();

/// Add the types `Watch` and `Frame`, and `NULL`, to the module. Returns -1 with an exception.
int add_watch(PyObject* module);

}  // namespace replay
