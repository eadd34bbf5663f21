// Optimizer steps: one work item per element of a parameter. Buffers that a step does not use alias
// the parameter.
#if IS_FLOAT
#define STEP_BEGIN                 \
  const long i = get_global_id(0); \
  if (i >= n) return;              \
  const T p = param[i];            \
  const T g = grad[i] * sign + decay * p;
#define MOMENTS                                           \
  const T m = mean[i] = mean[i] + fresh1 * (g - mean[i]); \
  const T v = square[i] = square[i] * beta2 + fresh2 * g * g;
#define LARGER_OF(x, y) ((x) > (y) || isnan(x) ? (x) : (y))

__kernel void adam(__global T* param, __global const T* grad, __global T* mean, __global T* square,
                   __global T* largest, int amsgrad, T sign, T decay, T shrink, T fresh1, T beta2,
                   T fresh2, T root, T eps, T step, long n) {
  STEP_BEGIN
  MOMENTS
  T top = v;
  if (amsgrad) top = largest[i] = LARGER_OF(largest[i], v);
  param[i] = p * shrink - step * m / (sqrt(top) * root + eps);
}

// use_buffer 0: none; 1: it begins here, unread; 2: it goes on.
__kernel void sgd(__global T* param, __global const T* grad, __global T* buffer, int use_buffer,
                  T sign, T decay, T lr, T keep, T fresh, T direct, T ahead, long n) {
  STEP_BEGIN
  T b = g;
  if (use_buffer == 2) b = keep * buffer[i] + fresh * g;
  if (use_buffer) buffer[i] = b;
  param[i] = p - lr * (use_buffer ? direct * g + ahead * b : g);
}

__kernel void rmsprop(__global T* param, __global const T* grad, __global T* square,
                      __global T* buffer, __global T* mean, int momentum, int centered, T sign,
                      T decay, T lr, T alpha, T fresh, T eps, T keep, long n) {
  STEP_BEGIN
  const T v = square[i] = square[i] * alpha + fresh * g * g;
  T spread = v;
  if (centered) {
    const T m = mean[i] = mean[i] + fresh * (g - mean[i]);
    spread = v - m * m;
  }
  T step = g / (sqrt(spread) + eps);
  if (momentum) step = buffer[i] = keep * buffer[i] + step;
  param[i] = p - lr * step;
}

__kernel void adagrad(__global T* param, __global const T* grad, __global T* sum, T sign, T decay,
                      T lr, T eps, long n) {
  STEP_BEGIN
  const T v = sum[i] = sum[i] + g * g;
  param[i] = p - lr * (g / (sqrt(v) + eps));
}

__kernel void adamax(__global T* param, __global const T* grad, __global T* mean,
                     __global T* largest, T sign, T decay, T fresh1, T beta2, T eps, T step,
                     long n) {
  STEP_BEGIN
  const T m = mean[i] = mean[i] + fresh1 * (g - mean[i]);
  const T kept = largest[i] * beta2;
  const T top = largest[i] = LARGER_OF(kept, fabs(g) + eps);
  param[i] = p - step * m / top;
}

__kernel void nadam(__global T* param, __global const T* grad, __global T* mean, __global T* square,
                    T sign, T decay, T shrink, T fresh1, T beta2, T fresh2, T root, T eps,
                    T grad_step, T mean_step, long n) {
  STEP_BEGIN
  MOMENTS
  param[i] = p * shrink - (grad_step * g + mean_step * m) / (sqrt(v) * root + eps);
}

__kernel void radam(__global T* param, __global const T* grad, __global T* mean, __global T* square,
                    int rectified, T sign, T decay, T shrink, T fresh1, T beta2, T fresh2, T eps,
                    T step, long n) {
  STEP_BEGIN
  MOMENTS
  param[i] = p * shrink - (rectified ? step * m / (sqrt(v) + eps) : step * m);
}

__kernel void scale_all(__global T* x, T factor, long n) {
  const long i = get_global_id(0);
  if (i < n) x[i] *= factor;
}
__kernel void clamp_all(__global T* x, T low, T high, long n) {
  const long i = get_global_id(0);
  if (i < n) x[i] = x[i] < low ? low : x[i] > high ? high : x[i];
}

#if HAS_FP64
// Norms, in double: partial results of segments of x, then their join. order 1, 2, or 0 for the
// largest magnitude.
__kernel void norm_parts(__global double* parts, __global const T* x, int order, long segment,
                         long segments, long n) {
  const long s = get_global_id(0);
  if (s >= segments) return;
  double sum = 0;
  for (long j = s * segment; j < min((s + 1) * segment, n); ++j) {
    const double v = fabs(x[j]);
    sum = order == 0 ? LARGER_OF(v, sum) : sum + (order == 2 ? v * v : v);
  }
  parts[s] = sum;
}
__kernel void join_norm(__global double* to, __global const double* parts, int order,
                        long segments) {
  if (get_global_id(0) != 0) return;
  double sum = 0;
  for (long s = 0; s < segments; ++s) sum = order == 0 ? LARGER_OF(parts[s], sum) : sum + parts[s];
  *to = order == 2 ? sqrt(sum) : sum;
}
#endif
#endif
