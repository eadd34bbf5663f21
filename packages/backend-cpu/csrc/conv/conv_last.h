// Convolution of float32 and float64 tensors whose channels are last, in one group, where they lie.
#pragma once
#include "conv/conv_geometry.h"

namespace rbcpu {

/// Where element (o, c, kz, i, j) of a weight is: any strides.
template <class T>
struct ConvWeightView {
  const T* data;
  int64_t out, in, tap[3];  // steps
};

/// y = x * w + bias; `bias` may be null.
template <class T>
void conv_last_forward(const ConvGeometry& g, const T* x, const ConvWeightView<T>& w, const T* bias,
                       T* y);
template <class T>
void conv_last_input_gradient(const ConvGeometry& g, const T* dy, const ConvWeightView<T>& w,
                              T* dx);
/// dw, row-major.
template <class T>
void conv_last_weight_gradient(const ConvGeometry& g, const T* x, const T* dy, T* dw);

}  // namespace rbcpu
