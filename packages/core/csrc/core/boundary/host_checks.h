// What plugins hand to the functions of the host table, checked: an error in words, not a crash.
#pragma once
#include <algorithm>
#include <cstring>

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

/// A struct that a plugin handed in, with nulls behind what its size says.
template <class T>
T whole(const T& given) {
  T full{};
  std::memcpy(&full, &given, std::min<size_t>(given.struct_size, sizeof full));
  return full;
}
[[noreturn]] void fail_short(const char* what, uint32_t size, uint32_t least);
/// Fill a plugin's struct as far as its size says, with zeros behind the members that core knows;
/// it has to hold `least` bytes.
template <class T>
void fill_struct(const char* what, const T& from, T* out, uint32_t least) {
  const uint32_t size = out->struct_size;
  if (size < least) fail_short(what, size, least);
  std::memcpy(out, &from, std::min<size_t>(size, sizeof from));
  if (size > sizeof from)
    std::memset(reinterpret_cast<char*>(out) + sizeof from, 0, size - sizeof from);
  out->struct_size = size;
}

/// The transaction, if it is one that was begun and neither committed nor aborted.
RbTxn& need_open(RbTxn* txn, const char* what);
/// Likewise, and not the one that `init` was given, which core commits itself.
RbTxn& need_own(RbTxn* txn, const char* what);

void check_kernel_struct(const RbTxn& txn, const RbKernel* kernel);
void check_rule_struct(const RbTxn& txn, const RbRule* rule);
void check_formula_kernel_struct(const RbTxn& txn, const RbFormulaKernel* kernel);
void check_dtype_struct(const RbTxn& txn, const RbDTypeInfo* info);
void check_layer_struct(const RbTxn& txn, const RbLayer* layer);
void check_backend_struct(const RbTxn& txn, const RbBackend* backend);

/// That `backend` is the id of one.
void check_backend_id(const char* what, int32_t backend);
/// That `layer` is the key bit of a registered layer.
void check_layer_id(const char* what, int32_t layer);
/// That `layer` may own composites: it is registered, and no transform.
void check_owner(const char* what, int32_t layer);
/// What a composite shows: where it is, its dtype, shape and strides (or null).
void check_shown(const char* what, int backend, int device, int dtype, int ndim,
                 const int64_t* shape, const int64_t* strides);
/// The memory that a new tensor would have: shape, dtype, device. Strides: those of a dense block.
void check_geometry(const char* what, int backend, int device, int dtype, int ndim,
                    const int64_t* shape, const int64_t* strides, bool dense);

}  // namespace rabbet
