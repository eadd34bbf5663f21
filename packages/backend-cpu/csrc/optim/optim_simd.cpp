// Optimizer steps in one pass over each tensor, once per instruction-set level.
#include "common/level.h"
#include "common/scalar.h"
#include "optim/optim_rows.h"

namespace {

using namespace rbcpu;

template <class V>
struct Tag {
  using type = V;
};

constexpr int kAhead = 1024;  // bytes; the processor's own prefetch stops at the end of a page

// Call body(Tag<V>(), i) for a cache line of elements at a time, then for single ones. Bodies read
// every stream before they write one: memory of different tensors is often equal in the low 12 bits
// of the address, and reads wait for earlier writes that are.
template <class T, class Body, class... P>
RB_INLINE void for_lines(int64_t n, const Body& body, const P*... streams) {
  using V = Pack<T, 64 / kRegister>;
  int64_t i = 0;
  for (; i + kLanesOf<V> <= n; i += kLanesOf<V>) {
    (__builtin_prefetch(reinterpret_cast<const char*>(streams + i) + kAhead), ...);
    body(Tag<V>(), i);
  }
  for (; i < n; ++i) body(Tag<T>(), i);
}
#define RB_STEP(...)                        \
  [&](auto tag, int64_t i) RB_LAMBDA {      \
    using V = typename decltype(tag)::type; \
    __VA_ARGS__                             \
  }

// NaN if one of them is.
template <class V>
RB_INLINE V greater(const V& x, const V& y) {
  return vm_select((x > y) | (x != x), x, y);
}

template <class T, bool Amsgrad>
void adam_run(const OptimRow<T>& r, const AdamStep& s, int64_t n) {
  T *param = r.param, *mean = r.state[0], *square = r.state[1], *largest = r.state[2];
  const T* grad = r.grad;
  const T sign = T(s.sign);
  const T decay = s.decoupled ? T(0) : T(s.weight_decay);
  const T shrink = s.decoupled ? T(1.0 - s.lr * s.weight_decay) : T(1);
  const T fresh1 = T(1.0 - s.beta1), beta2 = T(s.beta2), fresh2 = T(1.0 - s.beta2);
  // A multiplication instead of a second division, which would be slower than the memory.
  const T root = T(1.0 / s.root_correction2), eps = T(s.eps), step = T(s.step_size);
  const auto run = RB_STEP({
    const V p = pack_load<V>(param + i), was = pack_load<V>(mean + i);
    const V g = pack_load<V>(grad + i) * sign + decay * p;
    const V m = was + fresh1 * (g - was);
    const V v = pack_load<V>(square + i) * beta2 + fresh2 * g * g;
    V top = v;
    if constexpr (Amsgrad) {
      top = greater(pack_load<V>(largest + i), v);
      pack_store(largest + i, top);
    }
    pack_store(mean + i, m);
    pack_store(square + i, v);
    pack_store(param + i, p * shrink - step * m / (vm_sqrt(top) * root + eps));
  });
  if constexpr (Amsgrad)
    for_lines<T>(n, run, param, grad, mean, square, largest);
  else
    for_lines<T>(n, run, param, grad, mean, square);
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
  T *param = r.param, *buffer = r.state[0];
  const T* grad = r.grad;
  const T sign = T(s.sign), decay = T(s.weight_decay), lr = T(s.lr);
  if (!buffer) {
    const auto run = RB_STEP({
      const V p = pack_load<V>(param + i);
      pack_store(param + i, p - lr * (pack_load<V>(grad + i) * sign + decay * p));
    });
    for_lines<T>(n, run, param, grad);
    return;
  }
  const T ahead = s.nesterov ? T(s.momentum) : T(1), direct = s.nesterov ? T(1) : T(0);
  if (s.first_step) {  // the buffer is not read: it may be uninitialised memory
    const auto run = RB_STEP({
      const V p = pack_load<V>(param + i);
      const V g = pack_load<V>(grad + i) * sign + decay * p;
      pack_store(buffer + i, g);
      pack_store(param + i, p - lr * (direct * g + ahead * g));
    });
    for_lines<T>(n, run, param, grad);
    return;
  }
  const T keep = T(s.momentum), fresh = T(1.0 - s.dampening);
  const auto run = RB_STEP({
    const V p = pack_load<V>(param + i);
    const V g = pack_load<V>(grad + i) * sign + decay * p;
    const V b = keep * pack_load<V>(buffer + i) + fresh * g;
    pack_store(buffer + i, b);
    pack_store(param + i, p - lr * (direct * g + ahead * b));
  });
  for_lines<T>(n, run, param, grad, buffer);
}

template <class T, bool Momentum, bool Centered>
void rmsprop_run(const OptimRow<T>& r, const RmspropStep& s, int64_t n) {
  T *param = r.param, *square = r.state[0];
  T *buffer = Momentum ? r.state[1] : square, *mean = Centered ? r.state[2] : square;
  const T* grad = r.grad;
  const T sign = T(s.sign), decay = T(s.weight_decay), lr = T(s.lr);
  const T alpha = T(s.alpha), fresh = T(1.0 - s.alpha), eps = T(s.eps), keep = T(s.momentum);
  const auto run = RB_STEP({
    const V p = pack_load<V>(param + i), step0 = pack_load<V>(buffer + i);
    const V was = pack_load<V>(mean + i);
    const V g = pack_load<V>(grad + i) * sign + decay * p;
    const V v = pack_load<V>(square + i) * alpha + fresh * g * g;
    pack_store(square + i, v);
    V spread = v;
    if constexpr (Centered) {
      const V m = was + fresh * (g - was);
      pack_store(mean + i, m);
      spread = v - m * m;
    }
    V step = g / (vm_sqrt(spread) + eps);
    if constexpr (Momentum) {
      step = keep * step0 + step;
      pack_store(buffer + i, step);
    }
    pack_store(param + i, p - lr * step);
  });
  for_lines<T>(n, run, param, grad, square, buffer, mean);
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
  T *param = r.param, *sum = r.state[0];
  const T* grad = r.grad;
  const T sign = T(s.sign), decay = T(s.weight_decay);
  const T lr = T(s.lr), eps = T(s.eps);
  const auto run = RB_STEP({
    const V p = pack_load<V>(param + i);
    const V g = pack_load<V>(grad + i) * sign + decay * p;
    const V v = pack_load<V>(sum + i) + g * g;
    pack_store(sum + i, v);
    pack_store(param + i, p - lr * (g / (vm_sqrt(v) + eps)));
  });
  for_lines<T>(n, run, param, grad, sum);
}

template <class T>
void adamax(const OptimRow<T>& r, const AdamaxStep& s, int64_t n) {
  T *param = r.param, *mean = r.state[0], *largest = r.state[1];
  const T* grad = r.grad;
  const T sign = T(s.sign), decay = T(s.weight_decay);
  const T fresh1 = T(1.0 - s.beta1), beta2 = T(s.beta2), eps = T(s.eps), step = T(s.step_size);
  const auto run = RB_STEP({
    const V p = pack_load<V>(param + i), was = pack_load<V>(mean + i);
    const V g = pack_load<V>(grad + i) * sign + decay * p;
    const V m = was + fresh1 * (g - was);
    const V top = greater(pack_load<V>(largest + i) * beta2, vm_abs(g) + eps);
    pack_store(mean + i, m);
    pack_store(largest + i, top);
    pack_store(param + i, p - step * m / top);
  });
  for_lines<T>(n, run, param, grad, mean, largest);
}

template <class T>
void nadam(const OptimRow<T>& r, const NadamStep& s, int64_t n) {
  T *param = r.param, *mean = r.state[0], *square = r.state[1];
  const T* grad = r.grad;
  const T sign = T(s.sign);
  const T decay = s.decoupled ? T(0) : T(s.weight_decay);
  const T shrink = s.decoupled ? T(1.0 - s.lr * s.weight_decay) : T(1);
  const T fresh1 = T(1.0 - s.beta1), beta2 = T(s.beta2), fresh2 = T(1.0 - s.beta2);
  const T root = T(1.0 / s.root_correction2), eps = T(s.eps);
  const T grad_step = T(s.grad_step), mean_step = T(s.mean_step);
  const auto run = RB_STEP({
    const V p = pack_load<V>(param + i), was = pack_load<V>(mean + i);
    const V g = pack_load<V>(grad + i) * sign + decay * p;
    const V m = was + fresh1 * (g - was);
    const V v = pack_load<V>(square + i) * beta2 + fresh2 * g * g;
    pack_store(mean + i, m);
    pack_store(square + i, v);
    pack_store(param + i, p * shrink - (grad_step * g + mean_step * m) / (vm_sqrt(v) * root + eps));
  });
  for_lines<T>(n, run, param, grad, mean, square);
}

template <class T, bool Rectified>
void radam_run(const OptimRow<T>& r, const RadamStep& s, int64_t n) {
  T *param = r.param, *mean = r.state[0], *square = r.state[1];
  const T* grad = r.grad;
  const T sign = T(s.sign);
  const T decay = s.decoupled ? T(0) : T(s.weight_decay);
  const T shrink = s.decoupled ? T(1.0 - s.lr * s.weight_decay) : T(1);
  const T fresh1 = T(1.0 - s.beta1), beta2 = T(s.beta2), fresh2 = T(1.0 - s.beta2);
  const T eps = T(s.eps), step = T(Rectified ? s.step_size * s.rectification : s.step_size);
  const auto run = RB_STEP({
    const V p = pack_load<V>(param + i), was = pack_load<V>(mean + i);
    const V g = pack_load<V>(grad + i) * sign + decay * p;
    const V m = was + fresh1 * (g - was);
    const V v = pack_load<V>(square + i) * beta2 + fresh2 * g * g;
    pack_store(mean + i, m);
    pack_store(square + i, v);
    if constexpr (Rectified) {
      pack_store(param + i, p * shrink - step * m / (vm_sqrt(v) + eps));
    } else {
      pack_store(param + i, p * shrink - step * m);
    }
  });
  for_lines<T>(n, run, param, grad, mean, square);
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
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}
template <class T>
void clamp(T* x, T low, T high, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {  // NaN fails both comparisons and stays
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
