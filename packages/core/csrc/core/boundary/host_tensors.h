// The functions of the host table for tensors: their making, slots, versions and views.
#pragma once
#include "rabbet/abi.h"

namespace rabbet {

void host_retain(RbTensor* t);
void host_release(RbTensor* t);
int32_t host_tensor_new(int32_t backend, int32_t device, int32_t dtype, int32_t ndim,
                        const int64_t* shape, const int64_t* strides, RbTensor** out);
int32_t host_tensor_adopt(void* data, int32_t backend, int32_t device, int32_t dtype, int32_t ndim,
                          const int64_t* shape, const int64_t* strides, uint32_t flags, void* ctx,
                          void (*del)(void*), RbTensor** out);
int32_t host_tensor_alias(RbTensor* t, RbTensor** out);
int32_t host_tensors_new(uint32_t n, RbTensor*** out);
void host_value_release(RbValue* v);
int32_t host_slot_new(const char* name, int32_t layer, void (*del)(void*), int32_t* slot,
                      uint32_t* offset);
int32_t host_slot_set(RbTensor* t, int32_t slot, void* p, int32_t on);
uint32_t host_version_get(const RbTensor* t);
int32_t host_version_bump(RbTensor* t);
int32_t host_same_storage(const RbTensor* a, const RbTensor* b);
int32_t host_use_count(const RbTensor* t);
RbTensor* host_view_parent(const RbTensor* t);
int32_t host_view_replay(const RbTensor* t, RbTensor* root, RbTensor** out);
int32_t host_tensor_wrap(int32_t level, RbTensor* inner, RbTensor* second, int64_t bits,
                         int32_t ndim, const int64_t* shape, const int64_t* strides,
                         RbTensor** out);
int32_t host_tensor_wrap_along(int32_t level, RbTensor* inner, int64_t dim, RbTensor** out);

}  // namespace rabbet
