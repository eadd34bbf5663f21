#include "ops/conv_cudnn.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "launch/view.h"
#include "ops/dnn_plans.h"
#include "ops/loop.h"
#include "ops/settings.h"

namespace rbcuda {
namespace {

constexpr int kMostDims = 5, kTensors = 3;  // x, w and y
constexpr int64_t kNames[kTensors] = {'x', 'w', 'y'};

// Equal questions have equal answers.
struct Question {
  int32_t device, dtype, result, ndim, tf32, deterministic;
  int64_t shapes[kTensors][kMostDims], strides[kTensors][kMostDims], aligned[kTensors];
  int64_t stride[3], padding[3], dilation[3];
};
static_assert(std::has_unique_object_representations_v<Question>);

// cuDNN has no tensors of 3 dimensions: a dimension of size 1 comes before the last.
Question question_of(const Convolution& c) {
  Question q = {};
  const RbTensor* const tensors[] = {c.x, c.w, c.y};
  const int ndim = c.x->ndim, missing = ndim == 3 ? 1 : 0, rank = ndim - 2;
  q.device = c.x->device.id;
  q.dtype = c.x->dtype_id;
  q.result = c.result;
  q.ndim = ndim + missing;
  q.tf32 = q.dtype == RB_F32 && convolution_tf32();
  q.deterministic = dnn_deterministic();
  for (int k = 0; k < kTensors; ++k) {
    const RbTensor& t = *tensors[k];
    const auto address = reinterpret_cast<uintptr_t>(t.data);
    q.aligned[k] = std::min<int64_t>(16, address & -address ? address & -address : 16);
    for (int d = 0; d < ndim; ++d) {
      const int to = d < 2 ? d : d + missing;
      q.shapes[k][to] = t.shape[d];
      q.strides[k][to] = t.strides[d];
    }
    if (missing) {
      q.shapes[k][2] = 1;
      q.strides[k][2] = t.strides[2] * t.shape[2];
    }
  }
  for (int d = 0; d < rank + missing; ++d) {
    const int from = d - missing;
    const auto at = [&](rb::Span<int64_t> s, int64_t otherwise) {
      return from < 0 ? otherwise : s[s.len == 1 ? 0 : from];
    };
    q.stride[d] = at(c.stride, 1);
    q.padding[d] = at(c.padding, 0);
    q.dilation[d] = at(c.dilation, 1);
  }
  return q;
}

DnnOwned tensor(const Question& q, int k) {
  const int stored = dnn_data_type(q.dtype);
  return DnnMaker(q.device, kDnnTensor)
      .set(kDnnTensorType, kDnnAsDataType, &stored)
      .set(kDnnTensorShape, kDnnAsInt64, q.shapes[k], q.ndim)
      .set(kDnnTensorStrides, kDnnAsInt64, q.strides[k], q.ndim)
      .set(kDnnTensorName, kDnnAsInt64, &kNames[k])
      .set(kDnnTensorAlignment, kDnnAsInt64, &q.aligned[k])
      .finish();
}

DnnOwned convolution(const Question& q) {
  const int64_t dims = q.ndim - 2;
  const int computes = kDnnFloat, mode = kDnnCrossCorrelation;
  return DnnMaker(q.device, kDnnConvolution)
      .set(kDnnConvolutionDims, kDnnAsInt64, &dims)
      .set(kDnnConvolutionCompute, kDnnAsDataType, &computes)
      .set(kDnnConvolutionMode, kDnnAsConvolutionMode, &mode)
      .set(kDnnConvolutionPaddingBefore, kDnnAsInt64, q.padding, dims)
      .set(kDnnConvolutionPaddingAfter, kDnnAsInt64, q.padding, dims)
      .set(kDnnConvolutionDilations, kDnnAsInt64, q.dilation, dims)
      .set(kDnnConvolutionStrides, kDnnAsInt64, q.stride, dims)
      .finish();
}

// The kinds of operation and their attributes, by what is computed.
struct Operation {
  int kind, alpha, beta, convolution, tensors[kTensors];
};
constexpr Operation kOperations[] = {
    {kDnnForward,
     kDnnForwardAlpha,
     kDnnForwardBeta,
     kDnnForwardHow,
     {kDnnForwardX, kDnnForwardW, kDnnForwardY}},
    {kDnnBackwardData,
     kDnnBackwardDataAlpha,
     kDnnBackwardDataBeta,
     kDnnBackwardDataHow,
     {kDnnBackwardDataDx, kDnnBackwardDataW, kDnnBackwardDataDy}},
    {kDnnBackwardFilter,
     kDnnBackwardFilterAlpha,
     kDnnBackwardFilterBeta,
     kDnnBackwardFilterHow,
     {kDnnBackwardFilterX, kDnnBackwardFilterDw, kDnnBackwardFilterDy}},
};

DnnOwned graph(const void* question, DnnHandle handle) {
  const Question& q = *static_cast<const Question*>(question);
  const Operation& o = kOperations[q.result];
  const float one = 1, none = 0;
  DnnMaker operation(q.device, o.kind);
  for (int k = 0; k < kTensors; ++k) operation.set(o.tensors[k], tensor(q, k));
  operation.set(o.convolution, convolution(q))
      .set(o.alpha, kDnnAsFloat, &one)
      .set(o.beta, kDnnAsFloat, &none);
  return DnnMaker(q.device, kDnnGraph)
      .set(kDnnGraphHandle, kDnnAsHandle, &handle)
      .set(kDnnGraphOperations, operation.finish())
      .finish();
}

bool may_be_tried(const Convolution& c) {
  constexpr int kKnown[] = {RB_F16, RB_BF16, RB_F32};
  const int dtype = c.x->dtype_id;
  return std::find(std::begin(kKnown), std::end(kKnown), dtype) != std::end(kKnown) &&
         c.w->dtype_id == dtype && c.y->dtype_id == dtype && c.x->ndim <= kMostDims && c.x->numel &&
         c.w->numel && c.y->numel;
}

bool convolve(const Convolution& c) {
  const Question q = question_of(c);
  const DnnProblem problem = {c.op,
                              q.device,
                              std::string(reinterpret_cast<const char*>(&q), sizeof q),
                              q.dtype != RB_F32 || q.tf32,
                              q.deterministic != 0,
                              graph,
                              &q};
  return run_by_dnn(problem, *c.x,
                    {{kNames[0], c.x->data}, {kNames[1], c.w->data}, {kNames[2], c.y->data}});
}

// One number for each channel.
void add_bias(const Convolution& c) {
  static const Expression sum("a + b");
  View bias = scalar_view(*c.bias);
  bias.add(c.bias->shape[0], c.bias->strides[0]);
  for (int d = 2; d < c.y->ndim; ++d) bias.add(1, 0);
  const RbValue values[] = {read_value(*c.y), read_value(bias.tensor())};
  Operands operands(*c.y, 2, values);
  loop(c.op, computed(c.y->dtype_id), sum, operands);
}

}  // namespace

bool convolve_by_library(const Convolution& c) {
  if (!may_be_tried(c) || !convolve(c)) return false;
  if (c.bias) add_bias(c);
  return true;
}

}  // namespace rbcuda
