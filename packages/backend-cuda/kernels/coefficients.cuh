// What steps of optimizers multiply by, made of the options of a call: on the host, and in kernels
// where options lie in tensors. Whoever includes this says by RB_FUNCTION how functions begin.
#define RB_NUMBERS 10
struct Numbers {
  double at[RB_NUMBERS];
};
struct Options {
  double sign, lr;    // sign: what gradients are multiplied by
  double factors[3];  // what depends on the number of the step
  double beta1, beta2, eps, weight_decay, momentum, dampening;
  int decoupled, nesterov;
};
// Weight decay of the gradient, and what the parameter is multiplied by where it is decoupled.
RB_FUNCTION double decay_of(const Options& o) { return o.decoupled ? 0 : o.weight_decay; }
RB_FUNCTION double shrink_of(const Options& o) {
  return o.decoupled ? 1 - o.lr * o.weight_decay : 1;
}
#define RB_MOMENT_COEFFICIENTS(o) \
  o.sign, decay_of(o), shrink_of(o), 1 - o.beta1, 1 - o.beta2, o.beta2
RB_FUNCTION Numbers of_adam(const Options& o) {
  return {{RB_MOMENT_COEFFICIENTS(o), 1 / sqrt(o.factors[1]), o.eps, o.lr / o.factors[0]}};
}
RB_FUNCTION Numbers of_nadam(const Options& o) {
  return {{RB_MOMENT_COEFFICIENTS(o), 1 / sqrt(o.factors[2]), o.eps, o.lr * o.factors[1],
           o.lr * o.factors[0]}};
}
// The factor 0: the mean square is not used yet.
RB_FUNCTION Numbers of_radam(const Options& o) {
  const double step = o.lr / o.factors[0], rectified = o.factors[1];
  return {{RB_MOMENT_COEFFICIENTS(o), rectified != 0 ? 1.0 : 0.0, o.eps,
           rectified != 0 ? step * rectified : step}};
}
RB_FUNCTION Numbers of_adamax(const Options& o) {
  return {{RB_MOMENT_COEFFICIENTS(o), 0, o.eps, o.lr / o.factors[0]}};
}
RB_FUNCTION Numbers of_adagrad(const Options& o) {
  return {{o.sign, o.weight_decay, o.lr * o.factors[0], o.eps}};
}
RB_FUNCTION Numbers of_sgd(const Options& o) {
  return {{o.sign, o.weight_decay, o.lr, o.nesterov ? 1.0 : 0.0, o.nesterov ? o.momentum : 1.0,
           o.momentum, 1 - o.dampening}};
}
RB_FUNCTION Numbers of_rmsprop(const Options& o) {  // beta2 is alpha
  return {{o.sign, o.weight_decay, o.lr, o.beta2, 1 - o.beta2, o.eps, o.momentum}};
}
RB_FUNCTION Numbers of_scale(const Options& o) { return {{o.sign}}; }
