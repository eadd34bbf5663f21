// Convolution of float32 and float64 without a matrix of windows. All tensors are row-major.
#pragma once
#include "conv/conv_geometry.h"

namespace rbcpu {

/// y = x * w + bias; `bias` may be null.
template <class T>
void conv_forward(const ConvGeometry& g, const T* x, const T* w, const T* bias, T* y);
/// dx: every element of y spread over its window.
template <class T>
void conv_input_gradient(const ConvGeometry& g, const T* dy, const T* w, T* dx);
/// dw: sums of products of x and dy.
template <class T>
void conv_weight_gradient(const ConvGeometry& g, const T* x, const T* dy, T* dw);

/// Whether the functions below compute y and dw of such a convolution: one input channel and few
/// output channels in each group. dx asks for one output channel and stride[0] = 1, too.
bool depthwise(const ConvGeometry& g);
template <class T>
void depthwise_forward(const ConvGeometry& g, const T* x, const T* w, const T* bias, T* y);
template <class T>
void depthwise_input_gradient(const ConvGeometry& g, const T* dy, const T* w, T* dx);
template <class T>
void depthwise_weight_gradient(const ConvGeometry& g, const T* x, const T* dy, T* dw);

}  // namespace rbcpu
