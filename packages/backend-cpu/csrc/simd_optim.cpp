// Optimizer steps in one pass over each tensor, once per instruction-set level.
#include "level.h"
#include "optim_rows.h"
#include "scalar.h"

namespace {

using namespace rbcpu;

#define RB_EACH _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i)

template <class T, bool Amsgrad>
void adam_run(const OptimRow<T>& r, const AdamStep& s, int64_t n) {
  T* __restrict param = r.param, * __restrict mean = r.state[0], * __restrict square = r.state[1], * __restrict largest = r.state[2];
  const T* __restrict grad = r.grad;
  const T sign = s.maximize ? T(-1) : T(1);
  const T decay = s.decoupled ? T(0) : T(s.weight_decay);
  const T shrink = s.decoupled ? T(1.0 - s.lr * s.weight_decay) : T(1);
  const T fresh1 = T(1.0 - s.beta1), beta2 = T(s.beta2), fresh2 = T(1.0 - s.beta2);
  // A multiplication instead of a second division, which would be slower than the memory.
  const T root = T(1.0 / s.root_correction2), eps = T(s.eps), step = T(s.step_size);
  RB_EACH {
    const T p = param[i];
    const T g = grad[i] * sign + decay * p;
    const T m = mean[i] + fresh1 * (g - mean[i]);
    const T v = square[i] * beta2 + fresh2 * g * g;
    mean[i] = m;
    square[i] = v;
    T top = v;
    if constexpr (Amsgrad) {
      top = op_maximum::f(largest[i], v);
      largest[i] = top;
    }
    param[i] = p * shrink - step * m / (m_sqrt(top) * root + eps);
  }
}
template <class T>
void adam(const OptimRow<T>& r, const AdamStep& s, int64_t n) {
  if (r.state[2]) {
    adam_run<T, true>(r, s, n);
  } else {
    adam_run<T, false>(r, s, n);
  }
}

template <class T>
void sgd(const OptimRow<T>& r, const SgdStep& s, int64_t n) {
  T* __restrict param = r.param, * __restrict buffer = r.state[0];
  const T* __restrict grad = r.grad;
  const T sign = s.maximize ? T(-1) : T(1), decay = T(s.weight_decay), lr = T(s.lr);
  if (!buffer) {
    RB_EACH param[i] -= lr * (grad[i] * sign + decay * param[i]);
    return;
  }
  const T ahead = s.nesterov ? T(s.momentum) : T(1), direct = s.nesterov ? T(1) : T(0);
  if (s.first_step) {  // the buffer is not read: it may be uninitialised memory
    RB_EACH {
      const T g = grad[i] * sign + decay * param[i];
      buffer[i] = g;
      param[i] -= lr * (direct * g + ahead * g);
    }
    return;
  }
  const T keep = T(s.momentum), fresh = T(1.0 - s.dampening);
  RB_EACH {
    const T g = grad[i] * sign + decay * param[i];
    const T b = keep * buffer[i] + fresh * g;
    buffer[i] = b;
    param[i] -= lr * (direct * g + ahead * b);
  }
}

template <class T, bool Momentum, bool Centered>
void rmsprop_run(const OptimRow<T>& r, const RmspropStep& s, int64_t n) {
  T* __restrict param = r.param, * __restrict square = r.state[0], * __restrict buffer = r.state[1], * __restrict mean = r.state[2];
  const T* __restrict grad = r.grad;
  const T sign = s.maximize ? T(-1) : T(1), decay = T(s.weight_decay), lr = T(s.lr);
  const T alpha = T(s.alpha), fresh = T(1.0 - s.alpha), eps = T(s.eps), keep = T(s.momentum);
  RB_EACH {
    const T p = param[i];
    const T g = grad[i] * sign + decay * p;
    const T v = square[i] * alpha + fresh * g * g;
    square[i] = v;
    T spread = v;
    if constexpr (Centered) {
      const T m = mean[i] + fresh * (g - mean[i]);
      mean[i] = m;
      spread = v - m * m;
    }
    T step = g / (m_sqrt(spread) + eps);
    if constexpr (Momentum) {
      step = keep * buffer[i] + step;
      buffer[i] = step;
    }
    param[i] = p - lr * step;
  }
}
template <class T>
void rmsprop(const OptimRow<T>& r, const RmspropStep& s, int64_t n) {
  if (r.state[1]) {
    if (r.state[2]) {
      rmsprop_run<T, true, true>(r, s, n);
    } else {
      rmsprop_run<T, true, false>(r, s, n);
    }
  } else if (r.state[2]) {
    rmsprop_run<T, false, true>(r, s, n);
  } else {
    rmsprop_run<T, false, false>(r, s, n);
  }
}

template <class T>
void adagrad(const OptimRow<T>& r, const AdagradStep& s, int64_t n) {
  T* __restrict param = r.param, * __restrict sum = r.state[0];
  const T* __restrict grad = r.grad;
  const T sign = s.maximize ? T(-1) : T(1), decay = T(s.weight_decay);
  const T lr = T(s.lr), eps = T(s.eps);
  RB_EACH {
    const T p = param[i];
    const T g = grad[i] * sign + decay * p;
    const T v = sum[i] + g * g;
    sum[i] = v;
    param[i] = p - lr * (g / (m_sqrt(v) + eps));
  }
}

template <class T>
void adamax(const OptimRow<T>& r, const AdamaxStep& s, int64_t n) {
  T* __restrict param = r.param, * __restrict mean = r.state[0], * __restrict largest = r.state[1];
  const T* __restrict grad = r.grad;
  const T sign = s.maximize ? T(-1) : T(1), decay = T(s.weight_decay);
  const T fresh1 = T(1.0 - s.beta1), beta2 = T(s.beta2), eps = T(s.eps), step = T(s.step_size);
  RB_EACH {
    const T p = param[i];
    const T g = grad[i] * sign + decay * p;
    const T m = mean[i] + fresh1 * (g - mean[i]);
    const T top = op_maximum::f(largest[i] * beta2, m_fabs(g) + eps);
    mean[i] = m;
    largest[i] = top;
    param[i] = p - step * m / top;
  }
}

template <class T>
void nadam(const OptimRow<T>& r, const NadamStep& s, int64_t n) {
  T* __restrict param = r.param, * __restrict mean = r.state[0], * __restrict square = r.state[1];
  const T* __restrict grad = r.grad;
  const T sign = s.maximize ? T(-1) : T(1);
  const T decay = s.decoupled ? T(0) : T(s.weight_decay);
  const T shrink = s.decoupled ? T(1.0 - s.lr * s.weight_decay) : T(1);
  const T fresh1 = T(1.0 - s.beta1), beta2 = T(s.beta2), fresh2 = T(1.0 - s.beta2);
  const T root = T(1.0 / s.root_correction2), eps = T(s.eps);
  const T grad_step = T(s.grad_step), mean_step = T(s.mean_step);
  RB_EACH {
    const T p = param[i];
    const T g = grad[i] * sign + decay * p;
    const T m = mean[i] + fresh1 * (g - mean[i]);
    const T v = square[i] * beta2 + fresh2 * g * g;
    mean[i] = m;
    square[i] = v;
    param[i] = p * shrink - (grad_step * g + mean_step * m) / (m_sqrt(v) * root + eps);
  }
}

template <class T, bool Rectified>
void radam_run(const OptimRow<T>& r, const RadamStep& s, int64_t n) {
  T* __restrict param = r.param, * __restrict mean = r.state[0], * __restrict square = r.state[1];
  const T* __restrict grad = r.grad;
  const T sign = s.maximize ? T(-1) : T(1);
  const T decay = s.decoupled ? T(0) : T(s.weight_decay);
  const T shrink = s.decoupled ? T(1.0 - s.lr * s.weight_decay) : T(1);
  const T fresh1 = T(1.0 - s.beta1), beta2 = T(s.beta2), fresh2 = T(1.0 - s.beta2);
  const T eps = T(s.eps), step = T(Rectified ? s.step_size * s.rectification : s.step_size);
  RB_EACH {
    const T p = param[i];
    const T g = grad[i] * sign + decay * p;
    const T m = mean[i] + fresh1 * (g - mean[i]);
    const T v = square[i] * beta2 + fresh2 * g * g;
    mean[i] = m;
    square[i] = v;
    if constexpr (Rectified) {
      param[i] = p * shrink - step * m / (m_sqrt(v) + eps);
    } else {
      param[i] = p * shrink - step * m;
    }
  }
}
template <class T>
void radam(const OptimRow<T>& r, const RadamStep& s, int64_t n) {
  if (s.rectification != 0) {
    radam_run<T, true>(r, s, n);
  } else {
    radam_run<T, false>(r, s, n);
  }
}

// Lanes of partial results, so that the order of the additions is the same at every level.
constexpr int kLanes = 32;

template <class Fold>
double folded(const Fold& fold, double* lanes) {
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int k = 0; k < width; ++k) lanes[k] = fold(lanes[k], lanes[k + width]);
  }
  return lanes[0];
}

template <class T, class Term, class Fold>
double reduced(const T* x, int64_t n, const Term& term, const Fold& fold) {
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int k = 0; k < kLanes; ++k) lanes[k] = fold(lanes[k], term(double(x[i + k])));
  }
  for (int k = 0; i + k < n; ++k) lanes[k] = fold(lanes[k], term(double(x[i + k])));
  return folded(fold, lanes);
}

RB_INLINE double plus(double a, double b) { return a + b; }

template <class T>
double squares(const T* x, int64_t n) {
  return reduced(x, n, [](double v) { return v * v; }, plus);
}
template <class T>
double magnitudes(const T* x, int64_t n) {
  return reduced(x, n, [](double v) { return m_fabs(v); }, plus);
}
template <class T>
double largest(const T* x, int64_t n) {
  return reduced(
      x, n, [](double v) { return m_fabs(v); },
      [](double a, double b) { return op_maximum::f(a, b); });
}
template <class T>
void scale(T* x, T factor, int64_t n) {
  RB_EACH x[i] *= factor;
}
template <class T>
void clamp(T* x, T low, T high, int64_t n) {
  RB_EACH {  // NaN fails both comparisons and stays
    const T v = x[i] < low ? low : x[i];
    x[i] = v > high ? high : v;
  }
}

template <class T>
constexpr OptimSteps<T> steps = {adam<T>,       sgd<T>,     rmsprop<T>, adagrad<T>,
                                 adamax<T>,     nadam<T>,   radam<T>,   squares<T>,
                                 magnitudes<T>, largest<T>, scale<T>,   clamp<T>};

}  // namespace

namespace rbcpu {
extern const OptimTable RB_LEVEL_NAME(optim_table) = {steps<float>, steps<double>};
}
