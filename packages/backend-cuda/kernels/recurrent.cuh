// Cells of recurrent networks: LSTM (Hochreiter and Schmidhuber 1997), GRU (Cho et al. 2014, reset
// after the product), tanh and relu. One step of all rows that it has; a thread has a unit of a
// row. A: the dtype of tensors, T: that of sums. MODE: 'l', 'g', 't' or 'r'.
// Twin of rbcuda::RecurrentStep.
struct RecurrentStep {
  Int64 rows, hidden, first;  // `first`: row of the step in tensors of all steps
};

__device__ inline T sigmoid(T x) { return T(1) / (T(1) + exp(-x)); }

// `product` (rows, gates) of the state before, without the bias. h and c are the states.
template <char MODE>
__device__ inline void forward(const A* x, const T* product, const A* bias, A* h, T* c, A* output,
                               A* cells, A* saved, const RecurrentStep& p) {
  enum { GATES = MODE == 'l' ? 4 : MODE == 'g' ? 3 : 1 };
  const Int64 n = p.hidden;
  RB_FOR(e, p.rows * n) {
    const Int64 i = e / n, j = e - i * n, row = p.first + i;
    T mine[GATES], theirs[GATES];
    for (int k = 0; k < GATES; ++k) {
      mine[k] = As<T>::of(x[(row * GATES + k) * n + j]);
      theirs[k] = product[(i * GATES + k) * n + j];
      if (bias) theirs[k] += As<T>::of(bias[k * n + j]);
    }
    A* kept = saved + row * 4 * n + j;
    T state;
    if constexpr (MODE == 'l') {
      const T in = sigmoid(theirs[0] + mine[0]), forget = sigmoid(theirs[1] + mine[1]),
              fresh = tanh(theirs[2] + mine[2]), out = sigmoid(theirs[3] + mine[3]);
      const T cell = forget * c[e] + in * fresh;
      c[e] = cell;
      cells[row * n + j] = As<A>::of(cell);
      kept[0] = As<A>::of(in);
      kept[n] = As<A>::of(forget);
      kept[2 * n] = As<A>::of(fresh);
      kept[3 * n] = As<A>::of(out);
      state = out * tanh(cell);
    } else if constexpr (MODE == 'g') {
      const T reset = sigmoid(theirs[0] + mine[0]), update = sigmoid(theirs[1] + mine[1]),
              fresh = tanh(mine[2] + reset * theirs[2]);
      kept[0] = As<A>::of(reset);
      kept[n] = As<A>::of(update);
      kept[2 * n] = As<A>::of(fresh);
      kept[3 * n] = As<A>::of(theirs[2]);
      state = fresh + update * (As<T>::of(h[e]) - fresh);
    } else {
      const T sum = theirs[0] + mine[0];
      state = MODE == 't' ? (T)tanh(sum) : sum <= 0 ? T(0) : sum;  // NaN passes
    }
    h[e] = output[row * n + j] = As<A>::of(state);
  }
}

// Gradients of a step's gates out of those of its states, dh and dc, which become those of the
// states before, but for the product by the weight. `before` gets the states before. Rows of the
// step before: `known`, from row `earlier` on; other sequences had the initial states.
template <char MODE>
__device__ inline void backward(A* dx, A* dproduct, T* dh, T* dc, A* before, const A* grad_output,
                                const A* grad_cells, const A* grad_saved, const A* output,
                                const A* cells, const A* saved, const A* h0, const A* c0,
                                const RecurrentStep& p, Int64 known, Int64 earlier) {
  enum { GATES = MODE == 'l' ? 4 : MODE == 'g' ? 3 : 1 };
  const Int64 n = p.hidden;
  RB_FOR(e, p.rows * n) {
    const Int64 i = e / n, j = e - i * n, row = p.first + i;
    const A h = i < known ? output[(earlier + i) * n + j] : h0[e];
    before[row * n + j] = h;
    T grad = dh[e];
    if (grad_output) grad += As<T>::of(grad_output[row * n + j]);
    T kept[4], extra[4], left = 0;
    if constexpr (GATES > 1) {
      for (int k = 0; k < 4; ++k) {
        kept[k] = As<T>::of(saved[row * 4 * n + k * n + j]);
        extra[k] = grad_saved ? As<T>::of(grad_saved[row * 4 * n + k * n + j]) : T(0);
      }
    }
    A *to = dx + row * GATES * n + j, *from_product = dproduct + row * GATES * n + j;
    if constexpr (MODE == 'l') {
      const T t = tanh(As<T>::of(cells[row * n + j])),
              c = As<T>::of(i < known ? cells[(earlier + i) * n + j] : c0[e]);
      T grad_c = dc[e];
      if (grad_cells) grad_c += As<T>::of(grad_cells[row * n + j]);
      grad_c += grad * kept[3] * (1 - t * t);
      to[0] = As<A>::of((grad_c * kept[2] + extra[0]) * kept[0] * (1 - kept[0]));
      to[n] = As<A>::of((grad_c * c + extra[1]) * kept[1] * (1 - kept[1]));
      to[2 * n] = As<A>::of((grad_c * kept[0] + extra[2]) * (1 - kept[2] * kept[2]));
      to[3 * n] = As<A>::of((grad * t + extra[3]) * kept[3] * (1 - kept[3]));
      dc[e] = grad_c * kept[1];
    } else if constexpr (MODE == 'g') {
      const T update = grad * (As<T>::of(h) - kept[2]) + extra[1],
              inner = (grad * (1 - kept[1]) + extra[2]) * (1 - kept[2] * kept[2]);
      const T reset = inner * kept[3] + extra[0], product = inner * kept[0] + extra[3];
      to[0] = from_product[0] = As<A>::of(reset * kept[0] * (1 - kept[0]));
      to[n] = from_product[n] = As<A>::of(update * kept[1] * (1 - kept[1]));
      to[2 * n] = As<A>::of(inner);
      from_product[2 * n] = As<A>::of(product);
      left = grad * kept[1];
    } else {
      const T state = As<T>::of(output[row * n + j]);
      to[0] = As<A>::of(MODE == 't' ? grad * (1 - state * state) : state <= 0 ? T(0) : grad);
    }
    dh[e] = left;
  }
}

#define RB_RECURRENT(MODE)                                                                      \
  extern "C" __global__ void rb_kernel(const A* x, const T* product, const A* bias, A* h, T* c, \
                                       A* output, A* cells, A* saved, const RecurrentStep p) {  \
    forward<MODE>(x, product, bias, h, c, output, cells, saved, p);                             \
  }
#define RB_RECURRENT_BACKWARD(MODE)                                                           \
  extern "C" __global__ void rb_kernel(                                                       \
      A* dx, A* dproduct, T* dh, T* dc, A* before, const A* grad_output, const A* grad_cells, \
      const A* grad_saved, const A* output, const A* cells, const A* saved, const A* h0,      \
      const A* c0, const RecurrentStep p, Int64 known, Int64 earlier) {                       \
    backward<MODE>(dx, dproduct, dh, dc, before, grad_output, grad_cells, grad_saved, output, \
                   cells, saved, h0, c0, p, known, earlier);                                  \
  }
