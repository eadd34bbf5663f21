// Tensors that kernels see in another way than they were given: some of their dimensions, a part, a
// transpose. They share the memory.
#pragma once
#include "launch/layout.h"

namespace rbcuda {

class View {
 public:
  explicit View(const RbTensor& t) : View(t, t.ndim) {}
  /// The first dimensions of `t` alone.
  View(const RbTensor& t, int ndim);
  View(const View& other) : View(other.tensor_) {}
  View& operator=(const View& other);

  const RbTensor& tensor() const { return tensor_; }
  int ndim() const { return tensor_.ndim; }
  int64_t size(int d) const { return shape_[d]; }
  int64_t stride(int d) const { return strides_[d]; }
  void set_data(void* data) { tensor_.data = data; }
  void set_dtype(int dtype);
  /// Add a dimension behind the others.
  void add(int64_t size, int64_t stride) {
    shape_[tensor_.ndim] = size;
    strides_[tensor_.ndim++] = stride;
    tensor_.numel *= size;
  }
  /// Take dimension `d` out.
  void drop(int d);
  /// Elements `start`, `start + step`, ... of dimension `d`.
  void narrow(int d, int64_t start, int64_t size, int64_t step = 1);

 private:
  RbTensor tensor_;
  int64_t shape_[RB_MAX_DIMS], strides_[RB_MAX_DIMS];
};

/// The real (0) or imaginary (1) parts of a complex tensor.
View part_of(const RbTensor& t, int part);

/// `t` without dimensions: they are added one by one.
inline View scalar_view(const RbTensor& t) { return View(t, 0); }

/// `t` with its dimensions the other way round.
View turned(const RbTensor& t);

}  // namespace rbcuda
