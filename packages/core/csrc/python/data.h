// Tensors out of Python data (nested sequences, buffers) and Python data out of tensors.
#pragma once
#include <string>
#include <vector>

#include "errors.h"
#include "tensor/memory_format.h"
#include "tensor/tensor.h"
#include "value_types.h"

namespace rabbet::python {

/// Build a tensor with memory of its own. `dtype` -1: from the data. Throws.
TensorRef make_tensor(PyObject* data, int dtype, const DeviceSpec* device);
/// Like make_tensor, but a tensor or an array of that dtype and device is taken as it is. Throws.
TensorRef as_tensor(PyObject* data, int dtype, const DeviceSpec* device);
/// Share the memory of an object with the buffer protocol, which it keeps alive. `dtype` -1: from
/// the buffer's format; else its bytes from `offset` on are read as `dtype`, at most `count`
/// elements
/// (-1: all), or as many as `shape` holds. Throws.
TensorRef from_buffer(PyObject* object, int dtype, const std::vector<int64_t>* shape,
                      int64_t offset, int64_t count);
/// The arguments of `Tensor(...)`: nothing, data (float32), sizes. Throws.
TensorRef legacy_tensor(PyObject* args, PyObject* device);

/// The one element as a Python number; `what` asks for it, in messages. Throws PythonError or
/// Error.
Ref tensor_item(const RbTensor* t, const char* what = "item()");
/// Nested lists of Python numbers; a number for 0 dimensions. Throws.
Ref tensor_to_list(const RbTensor* t);
/// `t` itself or a copy in host memory. Throws.
TensorRef to_host(const RbTensor* t);
/// Cast (through the operator) unless `t` has the dtype already. Throws.
TensorRef cast_to(const RbTensor* t, int dtype);
/// Move (through the operator) unless `t` is there already. Throws.
TensorRef move_to(const RbTensor* t, const DeviceSpec& device);
/// `t` itself if it lies in `format`, else a copy that does. Throws.
TensorRef in_format(const RbTensor* t, MemoryFormat format, const char* what);
/// Whether `o` can be read as tensor data: a sequence or an array. Numbers are not.
bool looks_like_data(PyObject* o);

}  // namespace rabbet::python
