// Cells of recurrent networks: LSTM (Hochreiter and Schmidhuber 1997), GRU (Cho et al. 2014, reset
// after the product), tanh and relu. What a unit of a sequence computes in a step. A: the dtype of
// tensors, T: that of sums. MODE: 'l', 'g', 't' or 'r'.
#define RB_CONTRACTED  // see compile.h
template <char MODE>
struct Gates {
  enum { count = MODE == 'l' ? 4 : MODE == 'g' ? 3 : 1 };
};

__device__ inline T sigmoid(T x) { return T(1) / (T(1) + exp(-x)); }

// The new state. `mine`: the input's part of the gates, `theirs`: that of the state before, `h`,
// with the bias. `c`: the cell, which becomes the new one; `kept`: what the derivative reads.
template <char MODE>
__device__ inline T new_state(const T* mine, const T* theirs, T h, T& c, T* kept) {
  if constexpr (MODE == 'l') {
    kept[0] = sigmoid(theirs[0] + mine[0]);  // input
    kept[1] = sigmoid(theirs[1] + mine[1]);  // forget
    kept[2] = tanh(theirs[2] + mine[2]);
    kept[3] = sigmoid(theirs[3] + mine[3]);  // output
    c = kept[1] * c + kept[0] * kept[2];
    return kept[3] * tanh(c);
  } else if constexpr (MODE == 'g') {
    kept[0] = sigmoid(theirs[0] + mine[0]);  // reset
    kept[1] = sigmoid(theirs[1] + mine[1]);  // update
    kept[2] = tanh(mine[2] + kept[0] * theirs[2]);
    kept[3] = theirs[2];
    return kept[2] + kept[1] * (h - kept[2]);
  } else {
    const T sum = theirs[0] + mine[0];
    return MODE == 't' ? (T)tanh(sum) : sum <= 0 ? T(0) : sum;  // NaN passes
  }
}

// What a step's derivative reads of a unit: the states before, the new ones, what was kept, and the
// gradients of what was kept.
struct Unit {
  T h, c, new_h, new_c, kept[4], grad_kept[4];
};

// Gradients of the gates' parts, out of those of the new state and the new cell; `grad_c` becomes
// that of the cell before. Returns what reaches the state before without the product.
template <char MODE>
__device__ inline T gate_gradients(const Unit& u, T grad, T& grad_c, T* mine, T* theirs) {
  const T *kept = u.kept, *extra = u.grad_kept;
  if constexpr (MODE == 'l') {
    const T t = tanh(u.new_c), all = grad_c + grad * kept[3] * (1 - t * t);
    mine[0] = theirs[0] = (all * kept[2] + extra[0]) * kept[0] * (1 - kept[0]);
    mine[1] = theirs[1] = (all * u.c + extra[1]) * kept[1] * (1 - kept[1]);
    mine[2] = theirs[2] = (all * kept[0] + extra[2]) * (1 - kept[2] * kept[2]);
    mine[3] = theirs[3] = (grad * t + extra[3]) * kept[3] * (1 - kept[3]);
    grad_c = all * kept[1];
    return 0;
  } else if constexpr (MODE == 'g') {
    const T update = grad * (u.h - kept[2]) + extra[1],
            inner = (grad * (1 - kept[1]) + extra[2]) * (1 - kept[2] * kept[2]),
            reset = inner * kept[3] + extra[0];
    mine[0] = theirs[0] = reset * kept[0] * (1 - kept[0]);
    mine[1] = theirs[1] = update * kept[1] * (1 - kept[1]);
    mine[2] = inner;
    theirs[2] = inner * kept[0] + extra[3];
    return grad * kept[1];
  } else {
    mine[0] = theirs[0] = MODE == 't' ? grad * (1 - u.new_h * u.new_h) : u.new_h <= 0 ? T(0) : grad;
    return 0;
  }
}

// Tensors of all steps that the derivative reads; gradients may be null.
struct Results {
  const A *grad_output, *grad_cells, *grad_saved, *output, *cells, *saved, *h0, *c0;
};
// `row`: of the step, `before`: of the step before in tensors of all steps, or -1 where the state
// was the initial one, of sequence `i`. `grad` and `grad_c` get the gradients of the results.
template <char MODE>
__device__ inline Unit read_unit(const Results& r, Int64 row, Int64 before, Int64 i, Int64 n,
                                 Int64 j, T& grad, T& grad_c) {
  Unit u;
  const Int64 at = row * n + j;
  u.h = As<T>::of(before >= 0 ? r.output[before * n + j] : r.h0[i * n + j]);
  if constexpr (MODE == 't' || MODE == 'r') u.new_h = As<T>::of(r.output[at]);
  grad = r.grad_output ? As<T>::of(r.grad_output[at]) : T(0);
  if constexpr (MODE == 'l') {
    u.new_c = As<T>::of(r.cells[at]);
    u.c = As<T>::of(before >= 0 ? r.cells[before * n + j] : r.c0[i * n + j]);
    grad_c = r.grad_cells ? As<T>::of(r.grad_cells[at]) : T(0);
  }
  if constexpr (Gates<MODE>::count > 1) {
    for (int k = 0; k < 4; ++k) {
      u.kept[k] = As<T>::of(r.saved[(row * 4 + k) * n + j]);
      u.grad_kept[k] = r.grad_saved ? As<T>::of(r.grad_saved[(row * 4 + k) * n + j]) : T(0);
    }
  }
  return u;
}
