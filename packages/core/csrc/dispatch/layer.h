// The layer `python`: calls on tensors whose class defines __torch_dispatch__, and inside of modes.
#pragma once
#include "rabbet/python.h"

namespace dispatch {

extern const RbPython* core;

/// Raised where a Python exception is set.
struct PythonError {};

/// Register the layer. `handler(name, args, outs)` runs its calls: the operator's record, its
/// arguments, and the tensors to be written or None. It returns a tuple of results, None where no
/// class or mode handles the call, or NotImplemented: then the operator's decomposition runs.
/// `reader(tensor, what)` returns a tensor of the values of one without memory. `on_read(tensor,
/// what)` is called inside of modes before the program reads a tensor with memory.
void add_layer(PyObject* handler, PyObject* reader, PyObject* on_read);

/// Make the calls with a tensor come to the layer.
void mark(RbTensor* t);
/// Whether the tensor is a wrapper: it has a shape, and no values.
bool is_wrapper(const RbTensor* t);
/// A wrapper with the dtype and device of `keeper`, whose Python object says of which class it is:
/// all aliases of the wrapper share it. Strides null: row-major.
RbTensor* make_wrapper(RbTensor* keeper, int32_t ndim, const int64_t* shape,
                       const int64_t* strides);

/// The Python object of a wrapper's keeper, a new reference.
PyObject* keeper_of(RbTensor* t);

// Modes of the calling thread, the innermost one last.
void push_mode(PyObject* mode);
PyObject* pop_mode();  // new reference
PyObject* mode_list();

/// What `function()` returns where the call came from that is handled: with the layers of there.
PyObject* call_outside(PyObject* function);

/// Switch the layer off (1) or on (0) in the calling thread; returns what it was.
bool set_disabled(bool on);

}  // namespace dispatch
