// Segments of device memory. Where the driver has virtual memory they are addresses for all of the
// device's memory, of which a part has memory behind it: they grow and shrink in place.
// RABBET_CUDA_EXPANDABLE=0 turns that off, as does "expandable_segments:False" in
// PYTORCH_CUDA_ALLOC_CONF.
//
// RABBET_CUDA_EXACT=1, or PyTorch's PYTORCH_NO_CUDA_MEMORY_CACHING=1: no segments, each tensor is
// an allocation of its own bytes, so that compute-sanitizer sees an access behind its last element.
#pragma once
#include "device/device.h"

namespace rbcuda {

/// Members of RbDeviceTable.
int32_t segment_grow(void*, RbBuffer* segment, uint64_t nbytes);
int32_t segment_shrink(void*, RbBuffer* segment, uint64_t nbytes, void* stream);
/// Copies by `reader` may access the segments of `device` from now on, where the driver allows it.
void allow_reader(Device& device, const Device& reader);
/// Whether it can grow: then no other process can open it.
bool is_expandable(const void* segment);

}  // namespace rbcuda
