// Tensors whose device memory another process of the machine uses, too.
#pragma once
#include <string>

#include "tensor/tensor.h"

namespace rabbet {

/// The segment in which a tensor lies, for ipc_open elsewhere, and the byte at which it begins
/// there. The tensor has to live as long as others use it.
struct IpcPlace {
  std::string handle;
  uint64_t offset;
};
/// Throws RB_E_NOTIMPL if the backend cannot, RB_E_ARG for memory that is not its own.
IpcPlace ipc_export(const Tensor* t);
/// `strides` null: row-major. A segment is opened once, and closed when its last tensor is gone.
Tensor* ipc_open(const IpcPlace& place, int backend, int device, int dtype, int ndim,
                 const int64_t* shape, const int64_t* strides);

}  // namespace rabbet
