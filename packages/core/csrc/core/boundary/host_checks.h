// What plugins hand to the functions of the host table, checked: an error in words, not a crash.
#pragma once
#include "boundary/runtime.h"
#include "record/op.h"

namespace rabbet {

[[noreturn]] void fail_null(const char* what);
/// A pointer that must not be null, else RB_E_ARG; `what`: "add_kernel: the kernel".
template <class T>
inline T* need(T* p, const char* what) {
  if (__builtin_expect(!p, 0)) fail_null(what);
  return p;
}

/// The transaction, if it is one that was begun and neither committed nor aborted.
RbTxn& need_open(RbTxn* txn, const char* what);
/// Likewise, and not the one that `init` was given, which core commits itself.
RbTxn& need_own(RbTxn* txn, const char* what);

void check_kernel_struct(const RbTxn& txn, const RbKernel* kernel);
void check_layer_struct(const RbTxn& txn, const RbLayer* layer);
void check_backend_struct(const RbTxn& txn, const RbBackend* backend);

/// That `layer` is the key bit of a registered layer.
void check_layer_id(const char* what, int32_t layer);
/// The memory that a new tensor would have: shape, dtype, device. Strides: those of a dense block.
void check_geometry(const char* what, int backend, int device, int dtype, int ndim,
                    const int64_t* shape, const int64_t* strides, bool dense);

/// Whether core can read the values of a call as the record says; else the error is set.
int32_t check_call(const Op* op, const RbValue* args, int32_t nargs, const RbValue* rets,
                   int32_t nrets, uint32_t flags);
/// Sets the error of a call without the argument `i`, which has no default; returns its code.
int32_t missing_argument(const Op& op, int32_t i);

/// That the arguments and results that a derivative is computed from are there.
void check_derivative(const char* what, const Op& op, const RbValue* args, const RbValue* outs);
/// Whether it is a gradient or a tangent: a tensor, or RB_ZERO; else `fail_moved` says so.
bool is_moved(const RbValue& v);
[[noreturn]] void fail_moved(const char* what, const Op& op, const std::string& which,
                             const RbValue& v);

}  // namespace rabbet
