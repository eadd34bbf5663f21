// Graphs of several operations for cuDNN, on tensors of four dimensions.
#pragma once
#include <vector>

#include "driver/cudnn_descriptor.h"

namespace rbcuda {

struct DnnShape {
  int64_t size[4], stride[4];

  /// Rows without gaps.
  static DnnShape rows(int64_t a, int64_t b, int64_t c, int64_t d) {
    return {{a, b, c, d}, {b * c * d, c * d, d, 1}};
  }
  /// The last two dimensions change places, in the same memory.
  DnnShape turned() const {
    return {{size[0], size[1], size[3], size[2]}, {stride[0], stride[1], stride[3], stride[2]}};
  }
};

class DnnGraphMaker {
 public:
  /// A place among this graph's tensors.
  using Tensor = size_t;

  explicit DnnGraphMaker(int device) : device_(device) {}

  /// In memory, which the execution names by `name`.
  /// `reordering`: the order of elements in memory that only cuDNN reads and writes.
  Tensor memory(int64_t name, int type, const DnnShape& shape, int64_t aligned,
                int reordering = kDnnPlain);
  /// A float32 that the execution gives by its address on the host.
  Tensor number(int64_t name);
  /// What exists between operations only.
  Tensor between(int type, const DnnShape& shape);

  void multiply(Tensor a, Tensor b, Tensor out);
  void reduce(int mode, Tensor x, Tensor out);
  /// The elements of x where the strides of `out` say.
  void reshape(Tensor x, Tensor out);
  /// `compute`: the data type of the arithmetic. Returns `out`.
  Tensor pointwise(int mode, std::vector<Tensor> operands, Tensor out, int compute = kDnnFloat,
                   int64_t axis = -1);

  DnnOwned finish(DnnHandle handle);

 private:
  Tensor add(int64_t name, int type, const DnnShape& shape, int64_t aligned, int flag,
             int reordering = kDnnPlain);
  void add(DnnMaker& operation) { operations_.push_back(operation.finish()); }

  int device_;
  int64_t next_name_ = 1000;
  std::vector<DnnOwned> tensors_, operations_;
};

}  // namespace rbcuda
