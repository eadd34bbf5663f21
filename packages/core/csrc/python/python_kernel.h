// Kernels and rules written in Python.
#pragma once
#include <atomic>
#include <string>

#include "boundary/registry.h"
#include "ref.h"

namespace rabbet::python {

/// Whether what takes time is checked of functions, too: that they write to `out`.
extern std::atomic<bool> strict_functions;

/// A kernel (or rule, or layer's handler, by `target`) that calls `fn`. What `fn` is given:
///   a backend: the arguments; it returns the result (a tuple of them), or with `fills` takes the
///     results as `out=` and fills them;
///   "decomp": the arguments; it returns the result;
///   a layer: the call's level, then the arguments;
///   "shape": the arguments as meta tensors; it returns a tuple of meta tensors;
///   "vjp": a tuple that says which gradients are wanted, then the tuples of the arguments, the
///     results and their gradients; it returns a tuple with an entry for each argument;
///   "jvp": the tuples of the arguments, the results and the tangents of the arguments; it returns
///   a
///     tuple with an entry for each result.
/// `reads`: of "vjp", the arguments whose values it reads in the lower 32 bits, results in the
/// upper; 0: all.
Registration make_python_kernel(const std::string& op, const std::string& target, PyObject* fn,
                                bool fills, uint64_t reads);

/// A layer's handler for the operator.
Registration make_python_layer_rule(const std::string& op, const std::string& layer, PyObject* fn);

}  // namespace rabbet::python
