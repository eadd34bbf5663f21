// Adam and SGD in one pass over each tensor, once per instruction-set level.
#include "level.h"
#include "optim_rows.h"
#include "scalar.h"

namespace {

using rbcpu::AdamRow;
using rbcpu::AdamStep;
using rbcpu::SgdRow;
using rbcpu::SgdStep;

template <class T, bool Amsgrad>
void adam_run(const AdamRow<T>& r, const AdamStep& s, int64_t begin, int64_t end) {
  const T sign = s.maximize ? T(-1) : T(1);
  const T decay = s.decoupled ? T(0) : T(s.weight_decay);
  const T shrink = s.decoupled ? T(1.0 - s.lr * s.weight_decay) : T(1);
  const T fresh1 = T(1.0 - s.beta1), beta2 = T(s.beta2), fresh2 = T(1.0 - s.beta2);
  const T root = T(s.root_correction2), eps = T(s.eps), step = T(s.step_size);
#pragma GCC ivdep
  for (int64_t i = begin; i < end; ++i) {
    const T p = r.param[i];
    const T g = r.grad[i] * sign + decay * p;
    const T m = r.mean[i] + fresh1 * (g - r.mean[i]);
    const T v = r.square[i] * beta2 + fresh2 * g * g;
    r.mean[i] = m;
    r.square[i] = v;
    T top = v;
    if constexpr (Amsgrad) {
      top = op_maximum::f(r.largest[i], v);
      r.largest[i] = top;
    }
    r.param[i] = p * shrink - step * (m / (m_sqrt(top) / root + eps));
  }
}
template <class T>
void adam(const AdamRow<T>& r, const AdamStep& s, int64_t begin, int64_t end) {
  if (r.largest) {
    adam_run<T, true>(r, s, begin, end);
  } else {
    adam_run<T, false>(r, s, begin, end);
  }
}

template <class T>
void sgd(const SgdRow<T>& r, const SgdStep& s, int64_t begin, int64_t end) {
  const T sign = s.maximize ? T(-1) : T(1), decay = T(s.weight_decay), lr = T(s.lr);
  if (!r.buffer) {
#pragma GCC ivdep
    for (int64_t i = begin; i < end; ++i)
      r.param[i] -= lr * (r.grad[i] * sign + decay * r.param[i]);
    return;
  }
  const T keep = s.first_step ? T(0) : T(s.momentum),
          fresh = s.first_step ? T(1) : T(1.0 - s.dampening);
  const T ahead = s.nesterov ? T(s.momentum) : T(1), direct = s.nesterov ? T(1) : T(0);
#pragma GCC ivdep
  for (int64_t i = begin; i < end; ++i) {
    const T g = r.grad[i] * sign + decay * r.param[i];
    // The first step reads no buffer: it may be uninitialised memory.
    const T b = (s.first_step ? T(0) : keep * r.buffer[i]) + fresh * g;
    r.buffer[i] = b;
    r.param[i] -= lr * (direct * g + ahead * b);
  }
}

}  // namespace

namespace rbcpu {
extern const OptimTable RB_LEVEL_NAME(optim_table) = {adam<float>, adam<double>, sgd<float>,
                                                      sgd<double>};
}
