// What plugins hand to the functions of the host table, checked: an error in words, not a crash.
#pragma once
#include "boundary/registry.h"
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

/// That `backend` is the id of one.
void check_backend_id(const char* what, int32_t backend);
/// That `layer` is the key bit of a registered layer.
void check_layer_id(const char* what, int32_t layer);
/// That `layer` may own composites: it is registered, and no transform.
void check_owner(const char* what, int32_t layer);
/// The memory that a new tensor would have: shape, dtype, device. Strides: those of a dense block.
void check_geometry(const char* what, int backend, int device, int dtype, int ndim,
                    const int64_t* shape, const int64_t* strides, bool dense);

}  // namespace rabbet
