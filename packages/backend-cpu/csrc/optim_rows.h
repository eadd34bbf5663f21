// Optimizer steps over contiguous runs, per instruction-set level (simd_optim.cpp).
#pragma once
#include <stdint.h>

namespace rbcpu {

struct AdamStep {
  double lr, beta1, beta2, eps, weight_decay, step_size, root_correction2;
  bool decoupled, maximize;
};
struct SgdStep {
  double lr, momentum, dampening, weight_decay;
  bool nesterov, maximize, first_step;
};
template <class T>
struct AdamRow {
  T* param;
  const T* grad;
  T *mean, *square, *largest;  // largest: null without amsgrad
};
template <class T>
struct SgdRow {
  T* param;
  const T* grad;
  T* buffer;  // null without momentum
};
struct OptimTable {
  void (*adam_f32)(const AdamRow<float>&, const AdamStep&, int64_t begin, int64_t end);
  void (*adam_f64)(const AdamRow<double>&, const AdamStep&, int64_t begin, int64_t end);
  void (*sgd_f32)(const SgdRow<float>&, const SgdStep&, int64_t begin, int64_t end);
  void (*sgd_f64)(const SgdRow<double>&, const SgdStep&, int64_t begin, int64_t end);
};
extern const OptimTable optim_table_v2, optim_table_v3, optim_table_v4;

}  // namespace rbcpu
