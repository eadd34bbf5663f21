#include "ops/dnn_graph.h"

#include <iterator>

namespace rbcuda {

DnnGraphMaker::Tensor DnnGraphMaker::add(int64_t name, int type, const DnnShape& shape,
                                         int64_t aligned, int flag, int reordering) {
  const bool yes = true;
  DnnMaker tensor(device_, kDnnTensor);
  tensor.set(kDnnTensorType, kDnnAsDataType, &type)
      .set(kDnnTensorShape, kDnnAsInt64, shape.size, 4)
      .set(kDnnTensorStrides, kDnnAsInt64, shape.stride, 4)
      .set(kDnnTensorName, kDnnAsInt64, &name)
      .set(kDnnTensorAlignment, kDnnAsInt64, &aligned);
  if (flag) tensor.set(flag, kDnnAsBool, &yes);
  if (reordering != kDnnPlain) tensor.set(kDnnTensorReordering, kDnnAsReordering, &reordering);
  tensors_.push_back(tensor.finish());
  return tensors_.size() - 1;
}

DnnGraphMaker::Tensor DnnGraphMaker::memory(int64_t name, int type, const DnnShape& shape,
                                            int64_t aligned, int reordering) {
  return add(name, type, shape, aligned, 0, reordering);
}
DnnGraphMaker::Tensor DnnGraphMaker::number(int64_t name) {
  return add(name, kDnnFloat, DnnShape::rows(1, 1, 1, 1), 16, kDnnTensorByValue);
}
DnnGraphMaker::Tensor DnnGraphMaker::between(int type, const DnnShape& shape) {
  return add(next_name_++, type, shape, 16, kDnnTensorVirtual);
}

void DnnGraphMaker::multiply(Tensor a, Tensor b, Tensor out) {
  const int compute = kDnnFloat;
  const DnnOwned how =
      DnnMaker(device_, kDnnMatmul).set(kDnnMatmulCompute, kDnnAsDataType, &compute).finish();
  DnnMaker operation(device_, kDnnDoMatmul);
  add(operation.set(kDnnMatmulA, tensors_[a])
          .set(kDnnMatmulB, tensors_[b])
          .set(kDnnMatmulC, tensors_[out])
          .set(kDnnMatmulHow, how));
}

void DnnGraphMaker::reduce(int mode, Tensor x, Tensor out) {
  const int compute = kDnnFloat;
  const DnnOwned how = DnnMaker(device_, kDnnReduction)
                           .set(kDnnReductionMode, kDnnAsReductionMode, &mode)
                           .set(kDnnReductionCompute, kDnnAsDataType, &compute)
                           .finish();
  DnnMaker operation(device_, kDnnDoReduction);
  add(operation.set(kDnnReductionX, tensors_[x])
          .set(kDnnReductionY, tensors_[out])
          .set(kDnnReductionHow, how));
}

void DnnGraphMaker::reshape(Tensor x, Tensor out) {
  DnnMaker operation(device_, kDnnDoReshape);
  add(operation.set(kDnnReshapeX, tensors_[x]).set(kDnnReshapeY, tensors_[out]));
}

DnnGraphMaker::Tensor DnnGraphMaker::pointwise(int mode, std::vector<Tensor> operands, Tensor out,
                                               int compute, int64_t axis) {
  constexpr int kPlaces[] = {kDnnPointwiseX, kDnnPointwiseB, kDnnPointwiseT};
  DnnMaker how(device_, kDnnPointwise);
  how.set(kDnnPointwiseMode, kDnnAsPointwiseMode, &mode)
      .set(kDnnPointwiseCompute, kDnnAsDataType, &compute);
  if (axis >= 0) how.set(kDnnPointwiseAxis, kDnnAsInt64, &axis);
  const DnnOwned description = how.finish();
  DnnMaker operation(device_, kDnnDoPointwise);
  for (size_t i = 0; i < operands.size() && i < std::size(kPlaces); ++i)
    operation.set(kPlaces[i], tensors_[operands[i]]);
  add(operation.set(kDnnPointwiseY, tensors_[out]).set(kDnnPointwiseHow, description));
  return out;
}

DnnOwned DnnGraphMaker::finish(DnnHandle handle) {
  std::vector<void*> all;
  for (const DnnOwned& operation : operations_) all.push_back(operation.get());
  return DnnMaker(device_, kDnnGraph)
      .set(kDnnGraphHandle, kDnnAsHandle, &handle)
      .set(kDnnGraphOperations, kDnnAsDescriptor, all.data(), static_cast<int64_t>(all.size()))
      .finish();
}

}  // namespace rbcuda
