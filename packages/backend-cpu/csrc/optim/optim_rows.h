// Optimizer steps over runs of elements, per instruction-set level (optim_simd.cpp).
#pragma once
#include <stdint.h>

namespace rbcpu {

constexpr int kOptimStates = 3;

/// One run of elements. A state that the step does not use is null.
template <class T>
struct OptimRow {
  T* param;
  const T* grad;
  T* state[kOptimStates];
};

// `sign`: what gradients are multiplied by.
struct AdamStep {  // states: mean, mean square, its maximum (amsgrad)
  double sign, lr, beta1, beta2, eps, weight_decay, step_size, root_correction2;
  bool decoupled;
};
struct SgdStep {  // state: momentum
  double sign, lr, momentum, dampening, weight_decay;
  bool nesterov, first_step;
};
struct RmspropStep {  // states: mean square, momentum, mean (centered)
  double sign, lr, alpha, eps, weight_decay, momentum;
};
struct AdagradStep {  // state: sum of squares
  double sign, lr, eps, weight_decay;
};
struct AdamaxStep {  // states: mean, decayed maximum
  double sign, step_size, beta1, beta2, eps, weight_decay;
};
struct NadamStep {  // states: mean, mean square
  double sign, lr, beta1, beta2, eps, weight_decay, root_correction2, grad_step, mean_step;
  bool decoupled;
};
struct RadamStep {  // states: mean, mean square; rectification 0: the mean square is not used yet
  double sign, lr, beta1, beta2, eps, weight_decay, step_size, rectification;
  bool decoupled;
};

template <class T>
struct OptimSteps {
  template <class Step>
  using Fn = void (*)(const OptimRow<T>&, const Step&, int64_t n);
  Fn<AdamStep> adam;
  Fn<SgdStep> sgd;
  Fn<RmspropStep> rmsprop;
  Fn<AdagradStep> adagrad;
  Fn<AdamaxStep> adamax;
  Fn<NadamStep> nadam;
  Fn<RadamStep> radam;
  /// Sum of squares, sum of magnitudes, largest magnitude (NaN if there is one) of n elements; in
  /// double, in an order that only n determines.
  double (*squares)(const T*, int64_t n);
  double (*magnitudes)(const T*, int64_t n);
  double (*largest)(const T*, int64_t n);
  void (*scale)(T*, T factor, int64_t n);
  void (*clamp)(T*, T low, T high, int64_t n);
};
struct OptimTable {
  OptimSteps<float> f32;
  OptimSteps<double> f64;
};
extern const OptimTable optim_table_v2, optim_table_v3, optim_table_v4;

}  // namespace rbcpu
